"""Counts of the driver's critical errors (Xid) per card, from NVML's event set; nothing where it has none."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pynvml  # the module of the maintained package nvidia-ml-py

from backend.device.facts.nvml_readings import ask

_AT_ONCE = 64  # events taken in one reading; a storm goes on in the next one


class Xids:
    """Listens to the cards it is told to watch. Not thread-safe: NVML's owner holds its lock."""

    def __init__(self) -> None:
        self._set: Any = None
        self._watched: dict[str, bool] = {}  # UUID of a whole card -> whether the driver agreed
        self._counts: dict[str, Counter[int]] = {}

    def counts(self, device: Any, uuid: str) -> tuple[tuple[int, int], ...] | None:
        """(xid, count) since the first question about this card; None where the driver does not report them.

        Raises: GPULost.
        """
        if uuid not in self._watched:
            self._watched[uuid] = self._watch(device)
        if not self._watched[uuid]:
            return None
        self._collect()
        return tuple(sorted(self._counts.get(uuid, Counter()).items()))

    def forget_handles(self) -> None:
        """The driver was let go of: register again on the next question. The counts stay."""
        if self._set is not None:
            with suppress(pynvml.NVMLError):  # it went with the driver
                pynvml.nvmlEventSetFree(self._set)
        self._set = None
        self._watched.clear()

    def _watch(self, device: Any) -> bool:
        kinds = ask(pynvml.nvmlDeviceGetSupportedEventTypes, device) or 0  # none on Windows and WSL2
        if not kinds & pynvml.nvmlEventTypeXidCriticalError:
            return False
        if self._set is None:
            self._set = ask(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return False
        try:
            pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except pynvml.NVMLError:  # not supported, or not permitted to this user
            return False
        return True

    def _collect(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)  # 0 ms: what has come already
            except pynvml.NVMLError:  # a time-out is the usual end; a lost card is noticed by its memory reading
                return
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._counts.setdefault(self._card_of(event), Counter())[int(event.eventData)] += 1

    def _card_of(self, event: Any) -> str:
        try:
            return str(pynvml.nvmlDeviceGetUUID(event.device))
        except pynvml.NVMLError:  # a card that fell off the bus (Xid 79) has no UUID any more
            watched = [uuid for uuid, agreed in self._watched.items() if agreed]
            return watched[0] if len(watched) == 1 else ""
