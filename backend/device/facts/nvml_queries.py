"""Queries NVML about one card. A query that the platform does not support gives None and does not affect others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import psutil
import pynvml  # the module of the maintained package nvidia-ml-py

from backend.device.records import Card, CardSample, GPULost, Process

T = TypeVar("T")

# Errors of any query that mean that the card or the driver is gone.
_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
# Errors of the memory query, which every working card supports, that mean a stale or broken handle.
_NO_CARD = frozenset(
    {
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_IRQ_ISSUE,
    }
)
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
