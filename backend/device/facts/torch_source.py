"""torch's answers about the devices of this process. Imports torch on the first call and opens no context unasked."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from typing import Any

from backend.device.records import AllocatorStats, TorchBuild, TorchDevice

_NOTHING = re.compile(r"[0-]*")  # a UUID of zeros is none: older Jetsons


class Torch:
    """A ``TorchSource`` over the installed torch, whatever its build."""

    def __init__(self) -> None:
        self._fault = ""

    def build(self) -> TorchBuild:
        """Version, CUDA and the architectures that it carries kernels for; an empty record without torch."""
        torch = self._torch()
        if torch is None:
            return TorchBuild()
        return TorchBuild(
            version=str(torch.__version__),
            cuda=torch.version.cuda or "",
            hip=getattr(torch.version, "hip", None) or "",
            archs=tuple(torch.cuda.get_arch_list()),  # what was compiled in; asks no device
        )

    def devices(self) -> tuple[TorchDevice, ...]:
        """Every CUDA or ROCm device, from its properties alone.

        ``mem_get_info`` and tensors would open a context of some hundred MiB on each card; properties do not.
        """
        torch = self._torch()
        if torch is None:
            return ()
        said: list[str] = []
        try:
            with warnings.catch_warnings(record=True) as caught:  # "driver too old" and the like come as warnings
                warnings.simplefilter("always")
                found = (
                    tuple(_device(index, torch.cuda.get_device_properties(index)) for index in _indices(torch))
                    if torch.cuda.is_available()
                    else ()
                )
            said = [str(warning.message) for warning in caught]
        except (RuntimeError, AssertionError) as error:  # a forked process, a context killed by another one
            found, said = (), [str(error)]
        self._fault = "" if found or not said else one_sentence(said[0])
        return found

    def mps(self) -> TorchDevice | None:
        """Apple's GPU with the memory that Metal recommends to stay under, or None."""
        torch = self._torch()
        if torch is None or not torch.backends.mps.is_available():
            return None
        name = torch.backends.mps.get_name() if hasattr(torch.backends.mps, "get_name") else "Apple GPU"
        total = int(torch.mps.recommended_max_memory())
        return TorchDevice(0, name, "", total, (0, 0), integrated=True)

    def fault(self) -> str:
        """What torch said when it found no device; "" when it said nothing."""
        return self._fault

    def try_kernel(self, device: str) -> str:
        """Add and multiply on ``device`` and look at the result: "" or what went wrong, as one sentence."""
        torch = self._torch()
        if torch is None:
            return self._fault
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ones = torch.ones(16, 16, device=device)
                got = float(((ones + ones) @ ones).sum().item())  # item() waits for the device
            except (RuntimeError, AssertionError) as error:  # no such device, no kernel image, out of memory, lost
                told = [str(warning.message) for warning in caught]
                return one_sentence(str(error) or type(error).__name__, *told)
        expected = 2.0 * 16**3
        return "" if got == expected else f"a sum on {device} gave {got:g} instead of {expected:g}"

    def allocator(self, device: str) -> AllocatorStats:
        """The allocator's books; zeros where torch keeps none or was never started on the device."""
        kind, _, index = device.partition(":")
        torch: Any = sys.modules.get("torch")  # a reading is no reason to import torch
        if kind == "cpu" or torch is None:
            return AllocatorStats()
        if kind == "mps" and torch.backends.mps.is_available():
            allocated, reserved = int(torch.mps.current_allocated_memory()), int(torch.mps.driver_allocated_memory())
            return AllocatorStats(allocated, reserved, allocated)
        if kind == "cuda" and torch.cuda.is_initialized():
            return _cuda_books(torch, int(index or 0))
        return AllocatorStats()

    def _torch(self) -> Any:  # the module: foreign, and absent where torch is not installed
        try:
            return importlib.import_module("torch")  # late: two seconds and 300 MiB that a CPU service must not pay
        except (ImportError, OSError) as error:  # not installed, or one of its libraries does not load
            self._fault = one_sentence(f"torch cannot be imported: {error}")
            return None


def one_sentence(*messages: str) -> str:
    """The first line of each message, without the debugging advice that CUDA adds to every one."""
    first = [message.strip().splitlines()[0].strip().rstrip(".") for message in messages if message.strip()]
    return "; ".join(first)


def _indices(torch: Any) -> range:
    return range(torch.cuda.device_count())


def _device(index: int, properties: Any) -> TorchDevice:
    bus = getattr(properties, "pci_bus_id", None)  # since torch 2.7, and not on every build
    pci = (
        f"{getattr(properties, 'pci_domain_id', 0):08X}:{bus:02X}:{getattr(properties, 'pci_device_id', 0):02X}.0"
        if isinstance(bus, int)
        else ""
    )
    return TorchDevice(
        index=index,
        name=str(properties.name),
        uuid=normal_uuid(str(getattr(properties, "uuid", ""))),
        total_bytes=int(properties.total_memory),
        capability=(int(properties.major), int(properties.minor)),
        pci_bus_id=pci,
        integrated=bool(getattr(properties, "is_integrated", False)),
    )


def normal_uuid(text: str) -> str:
    """NVML's form of a UUID, which torch writes without its "GPU-"; "" for none or all zeros."""
    bare = text.removeprefix("GPU-").removeprefix("MIG-")
    if _NOTHING.fullmatch(bare):
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def _cuda_books(torch: Any, index: int) -> AllocatorStats:
    books = torch.cuda.memory_stats(index)
    return AllocatorStats(
        allocated_bytes=books.get("allocated_bytes.all.current", 0),
        reserved_bytes=books.get("reserved_bytes.all.current", 0),
        active_bytes=books.get("active_bytes.all.current", 0),
        peak_allocated_bytes=books.get("allocated_bytes.all.peak", 0),
        peak_reserved_bytes=books.get("reserved_bytes.all.peak", 0),
        retries=books.get("num_alloc_retries", 0),
        ooms=books.get("num_ooms", 0),
        rejections=books.get("num_oom_rejections", 0),
        fraction=float(torch.cuda.get_per_process_memory_fraction(index)),
    )
