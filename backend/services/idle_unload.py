"""Puts models out of memory when nobody has asked for them for a while. One timer a model; nobody polls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from backend.device.memory.release import release
from backend.models.encoder_source import UnloadableEncoder
from backend.telemetry import Telemetry


class KeepAlive:
    """The stay of models in memory. Belongs to the loop; models come and go on other threads.

    Args:
        keep_alive_s: idle time after which a model is put out; None keeps all for ever.
        device: whose memory is released after an unload.
    """

    def __init__(self, keep_alive_s: float | None, device: str, telemetry: Telemetry) -> None:
        self._keep_alive_s, self._device = keep_alive_s, device
        self._telemetry = telemetry
        self._watched: set[UnloadableEncoder] = set()
        self._alarms: dict[UnloadableEncoder, asyncio.TimerHandle] = {}
        self._going: set[asyncio.Task[None]] = set()

    def watch(self, loop: asyncio.AbstractEventLoop, residents: Sequence[UnloadableEncoder]) -> None:
        """Count and put out these from now on; what came before, a start of seconds, is no idleness."""
        for resident in residents:
            self._watched.add(resident)
            self._show(resident, loaded=True)
            resident.changed = partial(self._on_change, loop, resident)
            self._arm(loop, resident, idle_s=0.0)

    def forget(self, residents: Sequence[UnloadableEncoder]) -> None:
        """Leave these alone: another model has taken their place."""
        for resident in residents:
            self._watched.discard(resident)
            self._telemetry.model_loaded.labels(resident.name).set(0)
            if (alarm := self._alarms.pop(resident, None)) is not None:
                alarm.cancel()

    def stop(self) -> None:
        """Let the timers go; what is loaded stays."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        self._watched.clear()

    def _on_change(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder, loaded: bool) -> None:
        self._show(resident, loaded=loaded)
        if loaded and not loop.is_closed():
            loop.call_soon_threadsafe(self._rearm, loop, resident)

    def _show(self, resident: UnloadableEncoder, *, loaded: bool) -> None:
        self._telemetry.model_loaded.labels(resident.name).set(loaded)
        self._telemetry.model_loads_total.labels(resident.name).inc(loaded)

    def _rearm(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder) -> None:
        self._arm(loop, resident, resident.idle_s)

    def _arm(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder, idle_s: float) -> None:
        if self._keep_alive_s is None or resident not in self._watched:
            return
        after_s = max(0.0, self._keep_alive_s - idle_s)
        self._alarms[resident] = loop.call_later(after_s, self._look, loop, resident)

    def _look(self, loop: asyncio.AbstractEventLoop, resident: UnloadableEncoder) -> None:
        if self._keep_alive_s is not None and resident.idle_s < self._keep_alive_s:
            self._rearm(loop, resident)  # it was used meanwhile
            return
        task = loop.create_task(asyncio.to_thread(_put_out, resident.unload, self._device))
        self._going.add(task)
        task.add_done_callback(self._going.discard)


def _put_out(unload: Callable[[], bool], device: str) -> None:
    if unload():
        release(device)
