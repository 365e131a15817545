"""A fake NVML: boards as data behind pynvml's functions, each of which a test can make fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
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
        for name in self.functions():
            assert hasattr(pynvml, name), name
            monkeypatch.setattr(pynvml, name, self._guarded(name, getattr(self, f"_{name}")))
        return self

    def functions(self) -> list[str]:
        """The names of the replaced functions."""
        return [name[1:] for name in dir(self) if name.startswith("_nvml")]

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            self.calls[name] += 1
            if name in self.broken:
                raise pynvml.NVMLError(self.broken[name])
            if not self.running and name != "nvmlInit":
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
            return function(*arguments)

        return guarded

    def _nvmlInit(self) -> None:  # noqa: N802  # NVML's names
        self.running = True

    def _nvmlShutdown(self) -> None:  # noqa: N802
        self.running = False

    def _nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.95.05"

    def _nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 13020

    def _nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802
        if pid not in self.names:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.names[pid]

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.boards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Board:  # noqa: N802
        return self.boards[index]

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> Board:  # noqa: N802
        for board in self.boards:
            for device in (board, *(board.slices or ())):
                if device.uuid == uuid:
                    return device
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: Board) -> Board:  # noqa: N802
        assert device.parent is not None
        return device.parent

    def _nvmlDeviceGetUUID(self, device: Board) -> str:  # noqa: N802
        return device.uuid

    def _nvmlDeviceGetName(self, device: Board) -> str:  # noqa: N802
        return device.name

    def _nvmlDeviceGetPciInfo(self, device: Board) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=device.bus)

    def _nvmlDeviceGetEccMode(self, device: Board) -> list[int]:  # noqa: N802
        return [1, 1]

    def _nvmlDeviceGetCudaComputeCapability(self, device: Board) -> tuple[int, int]:  # noqa: N802
        return device.capability

    def _nvmlDeviceGetDriverModel_v2(self, device: Board) -> list[int]:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _nvmlDeviceGetDriverModel_v1(self, device: Board) -> list[int]:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _nvmlDeviceGetMigMode(self, device: Board) -> list[int]:  # noqa: N802
        return [0, 0] if device.slices is None else [1, 1]

    def _nvmlDeviceGetMaxMigDeviceCount(self, device: Board) -> int:  # noqa: N802
        return 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, device: Board, index: int) -> Board:  # noqa: N802
        slices = device.slices or []
        if index >= len(slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return slices[index]

    def _nvmlDeviceGetMemoryInfo(self, device: Board) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=device.total, free=device.free, used=device.total - device.free)

    def _nvmlDeviceGetUtilizationRates(self, device: Board) -> SimpleNamespace:  # noqa: N802
        if device.parent is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=73, memory=41)

    def _sensor(self, device: Board, value: Any) -> Any:
        if device.parent is not None:  # a slice has no sensors
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return value

    def _nvmlDeviceGetTemperature(self, device: Board, sensor: int) -> int:  # noqa: N802
        return int(self._sensor(device, 61))

    def _nvmlDeviceGetPowerUsage(self, device: Board) -> int:  # noqa: N802
        return int(self._sensor(device, 68_900))

    def _nvmlDeviceGetEnforcedPowerLimit(self, device: Board) -> int:  # noqa: N802
        return int(self._sensor(device, 72_000))

    def _nvmlDeviceGetTotalEnergyConsumption(self, device: Board) -> int:  # noqa: N802
        return int(self._sensor(device, 5_000_500))

    def _nvmlDeviceGetClockInfo(self, device: Board, kind: int) -> int:  # noqa: N802
        return int(self._sensor(device, 1000 + kind))

    def _nvmlDeviceGetCurrentClocksEventReasons(self, device: Board) -> int:  # noqa: N802
        idle_and_hot = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        return int(self._sensor(device, idle_and_hot))

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, device: Board) -> int:  # noqa: N802
        return int(self._sensor(device, pynvml.nvmlClocksThrottleReasonSwPowerCap))

    def _nvmlDeviceGetTotalEccErrors(self, device: Board, error: int, counter: int) -> int:  # noqa: N802
        assert (error, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return int(self._sensor(device, 2))

    def _nvmlDeviceGetPcieReplayCounter(self, device: Board) -> int:  # noqa: N802
        return int(self._sensor(device, 4))

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, device: Board) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.compute]

    def _nvmlDeviceGetComputeRunningProcesses_v2(self, device: Board) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.compute]

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, device: Board) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.graphics]

    def _nvmlDeviceGetGraphicsRunningProcesses_v2(self, device: Board) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in device.graphics]

    def _nvmlDeviceGetSupportedEventTypes(self, device: Board) -> int:  # noqa: N802
        return device.events

    def _nvmlEventSetCreate(self) -> str:  # noqa: N802
        return "event set"

    def _nvmlEventSetFree(self, event_set: str) -> None:  # noqa: N802
        assert event_set == "event set"

    def _nvmlDeviceRegisterEvents(self, device: Board, kinds: int, event_set: str) -> None:  # noqa: N802
        assert kinds == pynvml.nvmlEventTypeXidCriticalError

    def _nvmlEventSetWait_v2(self, event_set: str, timeout_ms: int) -> SimpleNamespace:  # noqa: N802
        assert timeout_ms == 0, "a sample must not wait"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        board, xid = self.events.pop(0)
        return SimpleNamespace(device=board, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)


def error_codes() -> list[int]:
    """Every error code of this pynvml, sorted."""
    codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    return sorted(codes)


def error_name(code: int) -> str:
    """The name of an error code, "GPU_IS_LOST", for the ids of tests."""
    return next(name[11:] for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and value == code)
