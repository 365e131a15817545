"""How full the device is, now; the typed answer of GET /metrics/gpu on every kind of machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from backend.device.facts import DeviceType, MachineFacts, resident_bytes
from backend.device.plan import Placement


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes on the device; on a CPU those of this process and of the machine (or cgroup)."""

    used_bytes: int
    total_bytes: int


def memory(facts: MachineFacts, placement: Placement) -> DeviceMemory:
    """Memory in use and in all on the placement's device."""
    if placement.type is DeviceType.CUDA:
        import torch  # a CUDA placement has imported it already

        free, total = torch.cuda.mem_get_info(placement.device)
        return DeviceMemory(total - free, total)
    if placement.type is DeviceType.MPS:
        import torch  # an MPS placement has imported it already

        return DeviceMemory(int(torch.mps.driver_allocated_memory()), facts.gpus[0].total_bytes)
    return DeviceMemory(resident_bytes(), facts.memory_bytes)


def snapshot(facts: MachineFacts, placement: Placement) -> dict[str, object]:
    """The same shape on CUDA, MPS and CPU: ``available``, ``device``, ``reason``, ``gpus`` and memory in bytes."""
    return {
        "available": placement.type is not DeviceType.CPU,
        "type": placement.type.value,
        "device": placement.device,
        "reason": placement.why[0],
        "gpus": [asdict(gpu) for gpu in facts.gpus],
        "memory": asdict(memory(facts, placement)),
    }
