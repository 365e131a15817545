"""A fake NVML: boards as data behind pynvml's functions, each of which a test can make fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

GIB = 1 << 30


@dataclass(eq=False)
class Board:
    """One card or MIG slice."""

    uuid: str
    name: str = "NVIDIA L4"
    capability: tuple[int, int] = (8, 9)
    total: int = 24 * GIB
    free: int = 20 * GIB
    bus: bytes | str = "00000000:01:00.0"
    slices: list[Board] | None = None  # None: MIG is off
    parent: Board | None = None
    events: int = pynvml.nvmlEventTypeXidCriticalError
    compute: list[tuple[int, int | None]] = field(default_factory=list)
    graphics: list[tuple[int, int | None]] = field(default_factory=list)


class FakeNvml:
    """Replaces pynvml's functions with ``install``; ``broken`` maps a function's name to the error it raises."""

    def __init__(self, *boards: Board) -> None:
        self.boards = list(boards)
        self.broken: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.events: list[tuple[Board, int]] = []  # queued Xid events: (board, xid)
        self.running = False
        self.names: dict[int, str] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
        """Replace every function that ``Nvml`` calls."""
        for name, function in self._functions().items():
            assert hasattr(pynvml, name), name
            monkeypatch.setattr(pynvml, name, self._guarded(name, function))
        return self

    def functions(self) -> list[str]:
        """The names of the replaced functions."""
        return sorted(self._functions())

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            self.calls[name] += 1
            if name in self.broken:
                raise pynvml.NVMLError(self.broken[name])
            if not self.running and name != "nvmlInit":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            return function(*arguments)

        return guarded

    def _functions(self) -> dict[str, Callable[..., Any]]:
        """NVML's names -> what they do here. A slice has no sensors and no utilization."""
        idle_and_hot = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        missing = partial(_fail, pynvml.NVML_ERROR_NOT_SUPPORTED)
        return {
            "nvmlInit": partial(setattr, self, "running", True),
            "nvmlShutdown": partial(setattr, self, "running", False),
            "nvmlSystemGetDriverVersion": lambda: "580.95.05",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13020,
            "nvmlSystemGetProcessName": lambda pid: self.names[pid] if pid in self.names else _fail(),
            "nvmlDeviceGetCount": lambda: len(self.boards),
            "nvmlDeviceGetHandleByIndex": lambda index: self.boards[index],
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda device: device.parent,
            "nvmlDeviceGetUUID": lambda device: device.uuid,
            "nvmlDeviceGetName": lambda device: device.name,
            "nvmlDeviceGetPciInfo": lambda device: SimpleNamespace(busId=device.bus),
            "nvmlDeviceGetEccMode": lambda device: [1, 1],
            "nvmlDeviceGetCudaComputeCapability": lambda device: device.capability,
            "nvmlDeviceGetDriverModel_v2": missing,
            "nvmlDeviceGetDriverModel_v1": missing,
            "nvmlDeviceGetMigMode": lambda device: [0, 0] if device.slices is None else [1, 1],
            "nvmlDeviceGetMaxMigDeviceCount": lambda device: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda device, index: (
                device.slices[index] if index < len(device.slices or ()) else _fail()
            ),
            "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(
                total=device.total, free=device.free, used=device.total - device.free
            ),
            "nvmlDeviceGetUtilizationRates": lambda device: (
                missing() if device.parent else SimpleNamespace(gpu=73, memory=41)
            ),
            "nvmlDeviceGetTemperature": lambda device, sensor: _sensor(device, 61),
            "nvmlDeviceGetPowerUsage": lambda device: _sensor(device, 68_900),
            "nvmlDeviceGetEnforcedPowerLimit": lambda device: _sensor(device, 72_000),
            "nvmlDeviceGetTotalEnergyConsumption": lambda device: _sensor(device, 5_000_500),
            "nvmlDeviceGetClockInfo": lambda device, kind: _sensor(device, 1000 + kind),
            "nvmlDeviceGetCurrentClocksEventReasons": lambda device: _sensor(device, idle_and_hot),
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: _sensor(
                device, pynvml.nvmlClocksThrottleReasonSwPowerCap
            ),
            "nvmlDeviceGetTotalEccErrors": self._ecc_errors,
            "nvmlDeviceGetPcieReplayCounter": lambda device: _sensor(device, 4),
            "nvmlDeviceGetComputeRunningProcesses_v3": lambda device: _processes(device.compute),
            "nvmlDeviceGetComputeRunningProcesses_v2": lambda device: _processes(device.compute),
            "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda device: _processes(device.graphics),
            "nvmlDeviceGetGraphicsRunningProcesses_v2": lambda device: _processes(device.graphics),
            "nvmlDeviceGetSupportedEventTypes": lambda device: device.events,
            "nvmlEventSetCreate": lambda: "event set",
            "nvmlEventSetFree": self._only_ours,
            "nvmlDeviceRegisterEvents": lambda device, kinds, event_set: self._only_ours(event_set, kinds),
            "nvmlEventSetWait_v2": self._next_event,
        }

    def _by_uuid(self, uuid: str) -> Board:
        devices = [device for board in self.boards for device in (board, *(board.slices or ()))]
        return next((device for device in devices if device.uuid == uuid), None) or _fail()

    @staticmethod
    def _ecc_errors(device: Board, error: int, counter: int) -> int:
        assert (error, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return _sensor(device, 2)

    @staticmethod
    def _only_ours(event_set: str, kinds: int = pynvml.nvmlEventTypeXidCriticalError) -> None:
        assert (event_set, kinds) == ("event set", pynvml.nvmlEventTypeXidCriticalError)

    def _next_event(self, event_set: str, timeout_ms: int) -> SimpleNamespace:
        assert timeout_ms == 0, "a sample must not wait"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        board, xid = self.events.pop(0)
        return SimpleNamespace(device=board, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)


def _fail(code: int = pynvml.NVML_ERROR_NOT_FOUND, *_: object) -> Any:
    raise pynvml.NVMLError(code)


def _sensor(device: Board, value: int) -> int:
    return _fail(pynvml.NVML_ERROR_INVALID_ARGUMENT) if device.parent else value


def _processes(listed: list[tuple[int, int | None]]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in listed]


def error_codes() -> list[int]:
    """Every error code of this pynvml, sorted."""
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    return sorted(codes)


def error_name(code: int) -> str:
    """The name of an error code, "GPU_IS_LOST", for the ids of tests."""
    return next(name[11:] for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and value == code)
