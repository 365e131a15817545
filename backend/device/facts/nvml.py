"""Reads cards, sensors, processes and Xid errors from NVIDIA's driver through NVML. Creates no CUDA context."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import psutil
import pynvml  # the module of the maintained package nvidia-ml-py

from backend.device.records import Card, CardSample, Driver, GPULost, Process

# Errors of any query that mean that the card or the driver is gone.
_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)  # fmt: skip
# Errors of the memory query, which every working card supports, that mean a stale or broken handle.
_NO_CARD = frozenset(
    {
        pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_OPERATING_SYSTEM, pynvml.NVML_ERROR_IRQ_ISSUE,
    }
)  # fmt: skip
_DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}  # NVML_DRIVER_WDDM, _WDM (what TCC is called there), _MCDM
_CLOCKS = (
    ("graphics", pynvml.NVML_CLOCK_GRAPHICS),
    ("sm", pynvml.NVML_CLOCK_SM),
    ("memory", pynvml.NVML_CLOCK_MEM),
    ("video", pynvml.NVML_CLOCK_VIDEO),
)
_THROTTLE = (  # without "idle" and "applications clocks": these are no throttling
    ("sw_power_cap", pynvml.nvmlClocksEventReasonSwPowerCap),
    ("hw_slowdown", pynvml.nvmlClocksEventReasonHwSlowdown),
    ("sync_boost", pynvml.nvmlClocksEventReasonSyncBoost),
    ("sw_thermal_slowdown", pynvml.nvmlClocksEventReasonSwThermalSlowdown),
    ("hw_thermal_slowdown", pynvml.nvmlClocksEventReasonHwThermalSlowdown),
    ("hw_power_brake_slowdown", pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
    ("display_clock_setting", pynvml.nvmlClocksEventReasonDisplayClockSetting),
)
T = TypeVar("T")

_XID_EVENTS_MAX = 64  # events handled per sample; the others stay queued for the next one
_RETRY_S = 30.0  # between two attempts to restart NVML: on WSL2 every start leaks driver memory (WSL#12756)
START_FAULTS = {
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


def query(function: Callable[..., T], *arguments: object) -> T | None:
    """Call a pynvml function; None when card, driver or permissions do not allow it.

    Raises: GPULost when the card or the driver is gone.
    """
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise GPULost(str(error)) from error
        return None
    except (pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):  # an older driver; a name that is not UTF-8
        return None


def describe(device: Any, pci_index: int) -> Card:
    """A whole card. Raises: GPULost."""
    memory, unified = _memory(device)
    pci = query(pynvml.nvmlDeviceGetPciInfo, device)
    ecc = query(pynvml.nvmlDeviceGetEccMode, device)
    return Card(
        uuid=query(pynvml.nvmlDeviceGetUUID, device) or "",
        name=query(pynvml.nvmlDeviceGetName, device) or "NVIDIA GPU",
        pci_index=pci_index,
        pci_bus_id=_text(pci.busId) if pci else "",
        total_bytes=memory[0],
        free_bytes=memory[1],
        capability=query(pynvml.nvmlDeviceGetCudaComputeCapability, device),
        driver_model=_driver_model(device),
        unified=unified,
        ecc=None if ecc is None else bool(ecc[0]),
    )


def mig_slices(device: Any, board: Card) -> tuple[Card, ...] | None:
    """The MIG slices of a card; None where MIG is off or not supported. Raises: GPULost."""
    mode = query(pynvml.nvmlDeviceGetMigMode, device)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    handles = (
        query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)  # NOT_FOUND for an empty index
        for index in range(query(pynvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0)
    )
    return tuple(_slice(handle, board) for handle in handles if handle is not None)


def read_sensors(device: Any, board: Any) -> CardSample:
    """The sensors now; ``board`` is the card itself, or a slice's card. The caller adds ``xid_errors``.

    Raises: GPULost, also when the memory query fails for a reason other than "not supported".
    """
    (total, free), _ = _memory(device)
    load = query(pynvml.nvmlDeviceGetUtilizationRates, device)
    return CardSample(
        used_bytes=None if total is None or free is None else total - free,
        free_bytes=free,
        total_bytes=total,
        utilization_ratio=_scaled(load.gpu if load else None, 0.01),
        bandwidth_ratio=_scaled(load.memory if load else None, 0.01),
        temperature_celsius=_scaled(query(pynvml.nvmlDeviceGetTemperature, board, pynvml.NVML_TEMPERATURE_GPU), 1.0),
        power_watts=_scaled(query(pynvml.nvmlDeviceGetPowerUsage, board), 1e-3),
        power_limit_watts=_scaled(query(pynvml.nvmlDeviceGetEnforcedPowerLimit, board), 1e-3),
        energy_joules=_scaled(query(pynvml.nvmlDeviceGetTotalEnergyConsumption, board), 1e-3),
        clocks_hz=_clocks(board),
        throttle=_throttle(board),
        ecc_errors=query(
            pynvml.nvmlDeviceGetTotalEccErrors,
            board,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        pcie_replays=query(pynvml.nvmlDeviceGetPcieReplayCounter, board),
        processes=processes(device),
    )


def processes(device: Any) -> tuple[Process, ...] | None:
    """The processes with memory on the card, largest first; None where the platform hides them. Raises: GPULost."""
    compute = _running(
        device, pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2
    )
    graphics = _running(
        device, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2
    )
    if compute is None and graphics is None:
        return None
    used_bytes: dict[int, int | None] = {}
    for process in (*(compute or ()), *(graphics or ())):  # a process in both lists has the same sum in both
        known = [size for size in (used_bytes.get(process.pid), process.usedGpuMemory) if size is not None]
        used_bytes[process.pid] = max(known, default=None)
    ordered = sorted(used_bytes.items(), key=lambda pair: (-(pair[1] or 0), pair[0]))
    return tuple((pid, _process_name(pid), size) for pid, size in ordered)


def _running(device: Any, *functions: Callable[[Any], list[Any]]) -> list[Any] | None:
    for function in functions:  # newest first; an older driver only has an older one
        running = query(function, device)
        if running is not None:
            return running
    return None


def _process_name(pid: int) -> str:
    """The program's name without its folder; "" for processes of other containers and users."""
    command = query(pynvml.nvmlSystemGetProcessName, pid) or ""
    if "\\" in command:  # Windows: a path, in which spaces are common
        return command.rsplit("\\", 1)[-1]
    return command.split(" ", 1)[0].rsplit("/", 1)[-1]  # Linux: some drivers add the arguments


def _slice(handle: Any, board: Card) -> Card:
    memory, _ = _memory(handle)
    name = query(pynvml.nvmlDeviceGetName, handle) or board.name  # "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    return replace(
        board,
        uuid=query(pynvml.nvmlDeviceGetUUID, handle) or "",
        name=name,
        total_bytes=memory[0],
        free_bytes=memory[1],
        mig=name.partition(" MIG ")[2] or "unnamed",
        parent_uuid=board.uuid,
    )


def _memory(device: Any) -> tuple[tuple[int | None, int | None], bool]:
    """((total, free), unified) in bytes. Raises: GPULost."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:  # GB10, Jetson: the GPU uses the machine's memory
            machine = psutil.virtual_memory()
            return (int(machine.total), int(machine.available)), True
        if error.value in _GONE | _NO_CARD:
            raise GPULost(str(error)) from error
        return (None, None), False
    return (int(memory.total), int(memory.free)), False


def _driver_model(device: Any) -> str:
    model = query(pynvml.nvmlDeviceGetDriverModel_v2, device) or query(pynvml.nvmlDeviceGetDriverModel_v1, device)
    return _DRIVER_MODELS.get(model[0], "") if model else ""  # only Windows has driver models


def _clocks(board: Any) -> tuple[tuple[str, int], ...] | None:
    megahertz = ((domain, query(pynvml.nvmlDeviceGetClockInfo, board, number)) for domain, number in _CLOCKS)
    clocks = tuple((domain, mhz * 1_000_000) for domain, mhz in megahertz if mhz is not None)
    return clocks or None


def _throttle(board: Any) -> tuple[str, ...] | None:
    bits = query(pynvml.nvmlDeviceGetCurrentClocksEventReasons, board)
    if bits is None:  # drivers before 535 have it under its old name
        bits = query(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, board)
    return None if bits is None else tuple(name for name, bit in _THROTTLE if bits & bit)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


class Nvml:
    """The ``DriverSource`` over pynvml. Initialises NVML on the first call, and again after the driver was lost.

    Args:
        clock: monotonic seconds; spaces the attempts to restart NVML.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, retry_s: float = _RETRY_S) -> None:
        self._clock = clock
        self._retry_s = retry_s
        self._lock = threading.Lock()  # NVML itself is thread-safe; restarting it during a query is not
        self._is_open = False
        self._retry_at = float("-inf")
        self._start_fault = ""  # why the last start failed
        self._handles: dict[str, tuple[Any, Any]] = {}  # UUID -> handles of the card or slice, and of its board
        self._xids = _XidCounter()

    def driver(self) -> Driver:
        """The driver's version and newest CUDA, or why it does not answer."""
        with self._lock:
            try:
                self._start()
                version = query(pynvml.nvmlSystemGetDriverVersion) or ""
                cuda = query(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0  # 13020 is 13.2
            except GPULost as error:
                return Driver(fault=str(error))
            return Driver(version, (cuda // 1000, cuda % 1000 // 10))

    def cards(self) -> tuple[Card, ...]:
        """Every card in PCI order; for a card in MIG mode its slices instead."""
        with self._lock:
            try:
                self._start()
                count = query(pynvml.nvmlDeviceGetCount) or 0
            except GPULost:
                return ()
            return tuple(card for index in range(count) for card in _cards_at(index))

    def sample(self, uuid: str) -> CardSample:
        """The sensors now. Raises: GPULost when the card or the driver does not answer, even after a restart."""
        with self._lock:
            return self._with_restart(self._sample, uuid)

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """The processes with memory on the card, largest first; () where the platform hides them. Raises: GPULost."""
        with self._lock:
            return self._with_restart(lambda uuid: processes(self._handle(uuid)[0]) or (), uuid)

    def close(self) -> None:
        """Shut NVML down; the next call initialises it again."""
        with self._lock:
            self._stop()

    def _with_restart(self, read: Callable[[str], T], uuid: str) -> T:
        """Call ``read``; if the card is lost, restart NVML and call it again, at most once in ``retry_s``."""
        try:
            self._start()
            return read(uuid)
        except GPULost:
            if self._clock() < self._retry_at:
                raise
            self._retry_at = self._clock() + self._retry_s
            if not self._is_open:  # the start itself failed, just now
                raise
        self._stop()
        self._start()
        return read(uuid)

    def _start(self) -> None:
        if self._is_open:
            return
        if self._start_fault and self._clock() < self._retry_at:
            raise GPULost(self._start_fault)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._start_fault = START_FAULTS.get(error.value, f"the NVIDIA driver does not answer: {error}")
            raise GPULost(self._start_fault) from error
        self._is_open, self._start_fault = True, ""

    def _stop(self) -> None:
        self._handles.clear()
        self._xids.forget_handles()
        if self._is_open:
            self._is_open = False
            with suppress(pynvml.NVMLError):  # the driver may be gone already
                pynvml.nvmlShutdown()

    def _sample(self, uuid: str) -> CardSample:
        device, board = self._handle(uuid)
        board_uuid = query(pynvml.nvmlDeviceGetUUID, board) or uuid
        return replace(read_sensors(device, board), xid_errors=self._xids.counts(board, board_uuid))

    def _handle(self, uuid: str) -> tuple[Any, Any]:
        if uuid not in self._handles:
            device = query(pynvml.nvmlDeviceGetHandleByUUID, uuid)
            if device is None:
                raise GPULost(f"the driver lists no card {uuid}")
            board = (
                query(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device) if uuid.startswith("MIG-") else None
            )
            self._handles[uuid] = (device, device if board is None else board)
        return self._handles[uuid]


class _XidCounter:
    """Counts the driver's critical errors (Xid) per card with an NVML event set. Not thread-safe: ``Nvml`` locks."""

    def __init__(self) -> None:
        self._event_set: Any = None
        self._registered: dict[str, bool] = {}  # UUID of a whole card -> whether the driver reports its events
        self._counts: dict[str, Counter[int]] = {}

    def counts(self, device: Any, uuid: str) -> tuple[tuple[int, int], ...] | None:
        """(xid, count) since the first call for this card; None where the driver does not report them.

        Raises: GPULost.
        """
        if uuid not in self._registered:
            self._registered[uuid] = self._register(device)
        if not self._registered[uuid]:
            return None
        self._collect()
        return tuple(sorted(self._counts.get(uuid, Counter()).items()))

    def forget_handles(self) -> None:
        """Drop the event set before NVML is shut down; the next call registers again. The counts stay."""
        if self._event_set is not None:
            with suppress(pynvml.NVMLError):  # the driver may be gone already
                pynvml.nvmlEventSetFree(self._event_set)
        self._event_set = None
        self._registered.clear()

    def _register(self, device: Any) -> bool:
        event_types = query(pynvml.nvmlDeviceGetSupportedEventTypes, device) or 0  # none on Windows and WSL2
        if not event_types & pynvml.nvmlEventTypeXidCriticalError:
            return False
        if self._event_set is None:
            self._event_set = query(pynvml.nvmlEventSetCreate)
        if self._event_set is None:
            return False
        try:
            pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, self._event_set)
        except pynvml.NVMLError:  # not supported, or this user has no permission
            return False
        return True

    def _collect(self) -> None:
        for _ in range(_XID_EVENTS_MAX):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._event_set, 0)  # 0 ms: events that are queued already
            except pynvml.NVMLError:  # usually a time-out; a lost card is noticed when its memory is read
                return
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._counts.setdefault(self._card_of(event), Counter())[int(event.eventData)] += 1

    def _card_of(self, event: Any) -> str:
        try:
            return str(pynvml.nvmlDeviceGetUUID(event.device))
        except pynvml.NVMLError:  # a card that fell off the bus (Xid 79) has no UUID any more
            uuids = [uuid for uuid, registered in self._registered.items() if registered]
            return uuids[0] if len(uuids) == 1 else ""


def _cards_at(index: int) -> tuple[Card, ...]:
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        board = describe(device, index)
        slices = mig_slices(device, board)
    except (pynvml.NVMLError, GPULost) as error:
        why = f"the driver lists this card but cannot talk to it: {error}"
        return (Card("", f"NVIDIA GPU {index}", index, fault=why),)
    if slices is None:
        return (board,)
    empty = "MIG mode is on and the card has no slices; make some with `nvidia-smi mig -cgi … -C`, or switch it off"
    return slices or (replace(board, fault=empty),)
