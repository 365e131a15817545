"""The driver's answers, through NVML: cards, readings, processes. Opens no CUDA context and never crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pynvml  # the module of the maintained package nvidia-ml-py

from backend.device.facts.nvml_readings import ask, describe, processes, read, slices
from backend.device.facts.xids import Xids
from backend.device.records import Card, CardSample, Driver, GPULost, Process

T = TypeVar("T")

_RETRY_S = 30.0  # between two attempts to start NVML anew: on WSL2 every start leaks some driver pool (WSL#12756)
_WHY = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "the NVIDIA driver's library (NVML) is not installed here; a container "
    "needs --gpus all and the NVIDIA container toolkit",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed, but its kernel module is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated and the old kernel module still runs; "
    "restart the machine",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not talk to the NVIDIA driver (permissions of /dev/nvidia*)",
    pynvml.NVML_ERROR_GPU_IS_LOST: "a GPU has fallen off the bus; restart the machine",
    pynvml.NVML_ERROR_UNKNOWN: "the NVIDIA driver answers with an unknown error; in a container this follows "
    "`systemctl daemon-reload` on the host: restart the container",
}


class Nvml:
    """A ``DriverSource`` over pynvml. Takes hold of the driver on the first call, and once more after a loss.

    Args:
        clock: monotonic seconds; spaces the attempts to start NVML anew.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, retry_s: float = _RETRY_S) -> None:
        self._clock = clock
        self._retry_s = retry_s
        self._lock = threading.Lock()  # NVML itself is thread-safe; starting it anew under a reading is not
        self._open = False
        self._retry_at = float("-inf")
        self._why = ""  # the last start failed because
        self._handles: dict[str, tuple[Any, Any]] = {}  # UUID -> the card or slice, and its board
        self._xids = Xids()

    def driver(self) -> Driver:
        """The driver's version and newest CUDA, or why it does not answer."""
        with self._lock:
            try:
                self._start()
                version = ask(pynvml.nvmlSystemGetDriverVersion) or ""
                cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0  # 13020 is 13.2
            except GPULost as error:
                return Driver(fault=str(error))
            return Driver(version, (cuda // 1000, cuda % 1000 // 10))

    def cards(self) -> tuple[Card, ...]:
        """Every card in PCI order; the slices of a card in MIG mode stand in its place."""
        with self._lock:
            try:
                self._start()
                count = ask(pynvml.nvmlDeviceGetCount) or 0
            except GPULost:
                return ()
            return tuple(card for index in range(count) for card in _cards_at(index))

    def sample(self, uuid: str) -> CardSample:
        """One reading. Raises: GPULost when the card or the driver does not answer, even after a new start."""
        with self._lock:
            return self._insist(self._sample, uuid)

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Who holds memory on the card, largest first; none where the platform does not tell. Raises: GPULost."""
        with self._lock:
            return self._insist(lambda wanted: processes(self._handle(wanted)[0]) or (), uuid)

    def close(self) -> None:
        """Let go of the driver."""
        with self._lock:
            self._stop()

    def _insist(self, question: Callable[[str], T], uuid: str) -> T:
        """Ask; after a loss start NVML anew and ask once more, but not more often than ``retry_s`` allows."""
        try:
            self._start()
            return question(uuid)
        except GPULost:
            if self._clock() < self._retry_at:
                raise
            self._retry_at = self._clock() + self._retry_s
            if not self._open:  # it was the start that failed, just now
                raise
        self._stop()
        self._start()
        return question(uuid)

    def _start(self) -> None:
        if self._open:
            return
        if self._why and self._clock() < self._retry_at:
            raise GPULost(self._why)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._why = _WHY.get(error.value, f"the NVIDIA driver does not answer: {error}")
            raise GPULost(self._why) from error
        self._open, self._why = True, ""

    def _stop(self) -> None:
        self._handles.clear()
        self._xids.forget_handles()
        if self._open:
            self._open = False
            with suppress(pynvml.NVMLError):  # it is gone already
                pynvml.nvmlShutdown()

    def _sample(self, uuid: str) -> CardSample:
        device, board = self._handle(uuid)
        board_uuid = ask(pynvml.nvmlDeviceGetUUID, board) or uuid
        return replace(read(device, board), xid_errors=self._xids.counts(board, board_uuid))

    def _handle(self, uuid: str) -> tuple[Any, Any]:
        if uuid not in self._handles:
            device = ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)
            if device is None:
                raise GPULost(f"the driver lists no card {uuid}")
            board = (
                ask(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device) if uuid.startswith("MIG-") else None
            )
            self._handles[uuid] = (device, device if board is None else board)
        return self._handles[uuid]


def _cards_at(index: int) -> tuple[Card, ...]:
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        board = describe(device, index)
        parts = slices(device, board)
    except (pynvml.NVMLError, GPULost) as error:
        why = f"the driver lists this card but cannot talk to it: {error}"
        return (Card("", f"NVIDIA GPU {index}", index, fault=why),)
    if parts is None:
        return (board,)
    empty = "MIG mode is on and the card has no slices; make some with `nvidia-smi mig -cgi … -C`, or switch it off"
    return parts or (replace(board, fault=empty),)
