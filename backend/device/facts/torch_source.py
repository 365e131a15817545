"""Reads devices from torch, imported on the first call. Only ``try_kernel`` creates a context on a device."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from backend.device.records import AllocatorStats, TorchBuild, TorchDevice

_EMPTY_UUID = re.compile(r"[0-]*")  # older Jetsons report a UUID of zeros


def installed_build() -> TorchBuild:
    """Version and CUDA of the installed torch by its files, without importing it; an empty record without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return TorchBuild()
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return TorchBuild()
    told = dict(re.findall(r"^(\w+)(?:: [\w\[\]]+)? = '([^']*)'", text, re.MULTILINE))
    return TorchBuild(told.get("__version__", ""), told.get("cuda", ""), told.get("hip", ""))


class Torch:
    """The ``TorchSource`` of the installed torch, of any build."""

    def __init__(self) -> None:
        self._fault = ""

    def build(self) -> TorchBuild:
        """Version, CUDA and the architectures that it has kernels for; an empty record without torch."""
        torch = self._torch()
        if torch is None:
            return TorchBuild()
        return TorchBuild(
            version=str(torch.__version__),
            cuda=torch.version.cuda or "",
            hip=torch.version.hip or "",
            archs=tuple(torch.cuda.get_arch_list()),  # of the build; queries no device
        )

    def devices(self) -> tuple[TorchDevice, ...]:
        """Every CUDA or ROCm device, from its properties alone.

        ``mem_get_info`` or a tensor would create a context of some hundred MiB on each card; properties do not.
        """
        torch = self._torch()
        if torch is None:
            return ()
        messages: list[str] = []
        try:
            with warnings.catch_warnings(record=True) as caught:  # torch warns of, for example, a driver too old
                warnings.simplefilter("always")
                devices = (
                    tuple(
                        _device(index, torch.cuda.get_device_properties(index))
                        for index in range(torch.cuda.device_count())
                    )
                    if torch.cuda.is_available()
                    else ()
                )
            messages = [str(warning.message) for warning in caught]
        except (RuntimeError, AssertionError) as error:  # a forked process, a context killed by another one
            devices, messages = (), [str(error)]
        self._fault = "" if devices or not messages else one_sentence(messages[0])
        return devices

    def mps(self) -> TorchDevice | None:
        """Apple's GPU, or None; its total is the memory that Metal recommends not to exceed."""
        torch = self._torch()
        if torch is None or not torch.backends.mps.is_available():
            return None
        total = int(torch.mps.recommended_max_memory())
        return TorchDevice(0, torch.backends.mps.get_name(), "", total, (0, 0), integrated=True)

    def fault(self) -> str:
        """Why torch found no device, from its warning or error; "" without one."""
        return self._fault

    def try_kernel(self, device: str) -> str:
        """Add and multiply on ``device`` and check the result: "" or the error as one sentence."""
        torch = self._torch()
        if torch is None:
            return self._fault
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                ones = torch.ones(16, 16, device=device)
                result = float(((ones + ones) @ ones).sum().item())  # item() waits for the device
            except (RuntimeError, AssertionError) as error:  # no such device, no kernel image, out of memory, lost
                messages = [str(warning.message) for warning in caught]
                return one_sentence(str(error) or type(error).__name__, *messages)
        expected = 2.0 * 16**3
        return "" if result == expected else f"a sum on {device} gave {result:g} instead of {expected:g}"

    def allocator(self, device: str) -> AllocatorStats:
        """The allocator's statistics; zeros where torch has none or has not started on the device."""
        kind, _, index = device.partition(":")
        torch: Any = sys.modules.get("torch")  # statistics are no reason to import torch
        if kind == "cpu" or torch is None:
            return AllocatorStats()
        if kind == "mps" and torch.backends.mps.is_available():
            allocated, reserved = int(torch.mps.current_allocated_memory()), int(torch.mps.driver_allocated_memory())
            return AllocatorStats(allocated, reserved, allocated)
        if kind == "cuda" and torch.cuda.is_initialized():
            return _cuda_stats(torch, int(index or 0))
        return AllocatorStats()

    def _torch(self) -> Any:  # the module, or None when torch is not installed
        try:
            return importlib.import_module("torch")  # lazily: two seconds and 300 MiB that a CPU service must not pay
        except (ImportError, OSError) as error:  # not installed, or one of its libraries does not load
            self._fault = one_sentence(f"torch cannot be imported: {error}")
            return None


def one_sentence(*messages: str) -> str:
    """The first line of each message, without the debugging advice that CUDA appends."""
    first_lines = [message.strip().splitlines()[0].strip().rstrip(".") for message in messages if message.strip()]
    return "; ".join(first_lines)


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
    """A UUID in NVML's form, with the "GPU-" that torch leaves out; "" for none or all zeros."""
    bare = text.removeprefix("GPU-").removeprefix("MIG-")
    if _EMPTY_UUID.fullmatch(bare):
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def _cuda_stats(torch: Any, index: int) -> AllocatorStats:
    # Read twice a batch, once under the queue's lock: not ``memory_stats``, which flattens and sorts every counter.
    stats = torch.cuda.memory_stats_as_nested_dict(index)

    def of_all(counter: str, value: str) -> int:
        return int(stats.get(counter, {}).get("all", {}).get(value, 0))

    return AllocatorStats(
        allocated_bytes=of_all("allocated_bytes", "current"),
        reserved_bytes=of_all("reserved_bytes", "current"),
        active_bytes=of_all("active_bytes", "current"),
        peak_allocated_bytes=of_all("allocated_bytes", "peak"),
        peak_reserved_bytes=of_all("reserved_bytes", "peak"),
        retries=stats.get("num_alloc_retries", 0),
        ooms=stats.get("num_ooms", 0),
        rejections=stats.get("num_oom_rejections", 0),
        fraction=float(torch.cuda.get_per_process_memory_fraction(index)),
    )
