"""Single questions to NVML about one card; each may go unanswered (None) without harm to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import psutil
import pynvml  # the module of the maintained package nvidia-ml-py

from backend.device.records import Card, CardSample, GPULost, Process

T = TypeVar("T")

# The card or the driver has gone, whatever was asked.
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
# What a stale or broken handle answers when asked for its memory, which every working card can tell.
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
_THROTTLE = (  # an idle card and clocks set by hand are no brake that acts now
    ("sw_power_cap", pynvml.nvmlClocksEventReasonSwPowerCap),
    ("hw_slowdown", pynvml.nvmlClocksEventReasonHwSlowdown),
    ("sync_boost", pynvml.nvmlClocksEventReasonSyncBoost),
    ("sw_thermal_slowdown", pynvml.nvmlClocksEventReasonSwThermalSlowdown),
    ("hw_thermal_slowdown", pynvml.nvmlClocksEventReasonHwThermalSlowdown),
    ("hw_power_brake_slowdown", pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
    ("display_clock_setting", pynvml.nvmlClocksEventReasonDisplayClockSetting),
)


def ask(question: Callable[..., T], *arguments: object) -> T | None:
    """The answer, or None where this card, driver or user gets none. Raises: GPULost when card or driver has gone."""
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise GPULost(str(error)) from error
        return None
    except (pynvml.NVMLLibraryMismatchError, UnicodeDecodeError):  # an older driver; a name in no known encoding
        return None


def describe(device: Any, pci_index: int) -> Card:
    """A whole card. Raises: GPULost."""
    memory, unified = _memory(device)
    pci = ask(pynvml.nvmlDeviceGetPciInfo, device)
    ecc = ask(pynvml.nvmlDeviceGetEccMode, device)
    return Card(
        uuid=ask(pynvml.nvmlDeviceGetUUID, device) or "",
        name=ask(pynvml.nvmlDeviceGetName, device) or "NVIDIA GPU",
        pci_index=pci_index,
        pci_bus_id=_text(pci.busId) if pci else "",
        total_bytes=memory[0],
        free_bytes=memory[1],
        capability=ask(pynvml.nvmlDeviceGetCudaComputeCapability, device),
        driver_model=_driver_model(device),
        unified=unified,
        ecc=None if ecc is None else bool(ecc[0]),
    )


def slices(device: Any, board: Card) -> tuple[Card, ...] | None:
    """The MIG slices of a card; None where MIG is off or unknown to it. Raises: GPULost."""
    mode = ask(pynvml.nvmlDeviceGetMigMode, device)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    found = (
        ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)  # NOT_FOUND where the place is empty
        for index in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0)
    )
    return tuple(_slice(handle, board) for handle in found if handle is not None)


def read(device: Any, board: Any) -> CardSample:
    """One reading; ``board`` is the card itself, or a slice's card. ``xid_errors`` is for the caller to add.

    Raises: GPULost, also when even the memory cannot be told for a reason other than "not supported".
    """
    (total, free), _ = _memory(device)
    load = ask(pynvml.nvmlDeviceGetUtilizationRates, device)
    return CardSample(
        used_bytes=None if total is None or free is None else total - free,
        free_bytes=free,
        total_bytes=total,
        utilization_ratio=_scaled(load.gpu if load else None, 0.01),
        bandwidth_ratio=_scaled(load.memory if load else None, 0.01),
        temperature_celsius=_scaled(ask(pynvml.nvmlDeviceGetTemperature, board, pynvml.NVML_TEMPERATURE_GPU), 1.0),
        power_watts=_scaled(ask(pynvml.nvmlDeviceGetPowerUsage, board), 1e-3),
        power_limit_watts=_scaled(ask(pynvml.nvmlDeviceGetEnforcedPowerLimit, board), 1e-3),
        energy_joules=_scaled(ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, board), 1e-3),
        clocks_hz=_clocks(board),
        throttle=_throttle(board),
        ecc_errors=ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            board,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        pcie_replays=ask(pynvml.nvmlDeviceGetPcieReplayCounter, board),
        processes=processes(device),
    )


def processes(device: Any) -> tuple[Process, ...] | None:
    """Who holds memory, largest first; None where the platform does not tell. Raises: GPULost."""
    compute = _running(
        device, pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2
    )
    graphics = _running(
        device, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2
    )
    if compute is None and graphics is None:
        return None
    held: dict[int, int | None] = {}
    for one in (*(compute or ()), *(graphics or ())):  # a process in both lists has one and the same sum
        known = [bytes_ for bytes_ in (held.get(one.pid), one.usedGpuMemory) if bytes_ is not None]
        held[one.pid] = max(known, default=None)
    ordered = sorted(held.items(), key=lambda pair: (-(pair[1] or 0), pair[0]))
    return tuple((pid, _process_name(pid), used) for pid, used in ordered)


def _running(device: Any, *questions: Callable[[Any], list[Any]]) -> list[Any] | None:
    for question in questions:  # the newest first; an older driver has only an older one
        found = ask(question, device)
        if found is not None:
            return found
    return None


def _process_name(pid: int) -> str:
    """The program's name without its folder; "" for processes of other containers and users."""
    told = ask(pynvml.nvmlSystemGetProcessName, pid) or ""
    if "\\" in told:  # Windows: a path, in which spaces are common
        return told.rsplit("\\", 1)[-1]
    return told.split(" ", 1)[0].rsplit("/", 1)[-1]  # Linux: some drivers add the arguments


def _slice(handle: Any, board: Card) -> Card:
    memory, _ = _memory(handle)
    name = ask(pynvml.nvmlDeviceGetName, handle) or board.name  # "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    return replace(
        board,
        uuid=ask(pynvml.nvmlDeviceGetUUID, handle) or "",
        name=name,
        total_bytes=memory[0],
        free_bytes=memory[1],
        mig=name.partition(" MIG ")[2] or "unnamed",
        parent_uuid=board.uuid,
    )


def _memory(device: Any) -> tuple[tuple[int | None, int | None], bool]:
    """((total, free), unified) in bytes. Raises: GPULost."""
    try:
        told = pynvml.nvmlDeviceGetMemoryInfo(device)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:  # GB10, Jetson: there is only the machine's memory
            machine = psutil.virtual_memory()
            return (int(machine.total), int(machine.available)), True
        if error.value in _GONE | _NO_CARD:
            raise GPULost(str(error)) from error
        return (None, None), False
    return (int(told.total), int(told.free)), False


def _driver_model(device: Any) -> str:
    model = ask(pynvml.nvmlDeviceGetDriverModel_v2, device) or ask(pynvml.nvmlDeviceGetDriverModel_v1, device)
    return _DRIVER_MODELS.get(model[0], "") if model else ""  # Windows alone has one


def _clocks(board: Any) -> tuple[tuple[str, int], ...] | None:
    asked = ((domain, ask(pynvml.nvmlDeviceGetClockInfo, board, number)) for domain, number in _CLOCKS)
    told = tuple((domain, mhz * 1_000_000) for domain, mhz in asked if mhz is not None)
    return told or None


def _throttle(board: Any) -> tuple[str, ...] | None:
    bits = ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, board)
    if bits is None:  # drivers before 535 know it by its old name
        bits = ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, board)
    return None if bits is None else tuple(name for name, bit in _THROTTLE if bits & bit)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
