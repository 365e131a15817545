"""GPUManager: chooses a device, sets up torch for it, and reports on its memory and capabilities."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

from backend.device import default_device
from backend.device.choice.selection import DeviceRequest
from backend.device.default_device import local_rank
from backend.device.facts import host
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import apply_ceiling, cleanup_gpu_memory
from backend.device.plan import precision
from backend.device.plan.attention import check_flash_attention, prefer_flash
from backend.device.plan.placement import LoaderSettings, Placement
from backend.device.records import AllocatorStats, DeviceType
from backend.device.watch import monitor
from backend.errors import BadSettings, DeviceUnavailable
from backend.gpu_toolkit.gpu_config import GIB, GPUConfig, device_dict, memory_dict, platform_dict
from backend.telemetry import log_event

if TYPE_CHECKING:
    import torch
    from torch import nn

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound="nn.Module")
process_manager: GPUManager | None = None
_manager_lock = threading.Lock()


class GPUManager:
    """Chooses a device once and sets up torch for it.

    Args:
        config: settings; by default those of this process.
        set_ceiling: limits this process's memory on a device and returns a sentence for the log.
        allocator: device -> statistics of torch's allocator; by default ``Torch().allocator``.

    Raises: DeviceUnavailable, at the first use, for a device that this machine does not have.
    """

    def __init__(
        self,
        config: GPUConfig | None = None,
        *,
        set_ceiling: Callable[[str, int], str] = apply_ceiling,
        allocator: Callable[[str], AllocatorStats] | None = None,
    ) -> None:
        self.config = config or GPUConfig()
        self._set_ceiling = set_ceiling
        self._allocator = allocator or Torch().allocator
        self._lock = threading.Lock()
        self._placements: tuple[Placement, ...] = ()

    @property
    def placement(self) -> Placement:
        """The device, its dtypes, its memory and why."""
        return self.placements[0]

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One for each requested device; the first one computes."""
        with self._lock:
            return self._placements or _placements(self.config)

    def setup_device(self) -> torch.device:
        """Choose the device, limit this process's memory on it, and set the precision of float32 and the cuDNN search.

        Without a requested device it is the card with the most free memory. Call this before the first allocation;
        ``get_device`` does. Logs the reasons.
        """
        import torch  # lazy: the import takes seconds

        chosen = _placements(self.config)
        if self.config.allow_tf32 is not None:
            precision.set_fp32_precision("tf32" if self.config.allow_tf32 else "ieee")
        if chosen[0].type is DeviceType.CUDA:
            torch.backends.cudnn.benchmark = self.config.cudnn_benchmark
            prefer_flash()
        limits = tuple(self._set_ceiling(placement.device, placement.memory_bytes) for placement in chosen)
        with self._lock:
            self._placements = chosen
        log_event(_log, logging.INFO, "device set up", device=chosen[0].device, why=(*chosen[0].why, *limits))
        return torch.device(chosen[0].device)

    def get_device(self) -> torch.device:
        """The device; the first call sets it up."""
        import torch  # as in setup_device

        with self._lock:
            placements = self._placements
        return torch.device(placements[0].device) if placements else self.setup_device()

    def get_gpu_info(self) -> dict[str, Any]:
        """``device_name``, ``total_memory`` in bytes, ``architecture``, ``compute_capability``, …; same on a CPU."""
        return device_dict(default_device.machine_facts(), self.placement)

    def get_memory_usage(self) -> dict[str, float]:
        """Torch's ``allocated_gb``, ``reserved_gb``, ``cached_gb``; the device's ``used_gb``, ``free_gb``, ….

        Each as ``…_bytes`` too. On a CPU allocated and reserved are this process's resident memory.
        """
        placement = self.placement
        device = monitor.memory(default_device.machine_facts(), placement)
        if placement.type is DeviceType.CPU:
            stats = AllocatorStats(allocated_bytes=device.used_bytes, reserved_bytes=device.used_bytes)
            return memory_dict(stats, host.free_memory_bytes(), device.total_bytes)
        return memory_dict(
            self._allocator(placement.device), device.total_bytes - device.used_bytes, device.total_bytes
        )

    def supports_amp(self) -> bool:
        """Whether mixed precision is enabled and the hardware has bf16 or fp16; emulation does not count."""
        import torch  # as in setup_device

        half = precision.amp_dtype(self.placement.dtypes)
        return (
            self.config.enable_mixed_precision and bool(half) and torch.amp.is_autocast_available(self.placement.type)
        )

    def get_amp_dtype(self) -> torch.dtype:
        """torch.bfloat16 or torch.float16 for autocast; torch.float32 without mixed precision."""
        half = precision.amp_dtype(self.placement.dtypes) if self.supports_amp() else None
        return precision.torch_dtype(half or "fp32")

    def optimize_model_for_gpu(self, model: _Model) -> _Model | nn.Module:
        """Move ``model`` to the device in its best memory layout; add checkpointing and parallelism as configured.

        Its dtype stays, since training in mixed precision keeps float32 weights. For serving see
        ``optimize_model_for_inference``.

        Raises: DeviceUnavailable as ``parallelize``.
        """
        return self.parallelize(self.prepare_model(model))

    def prepare_model(self, model: _Model) -> _Model:
        """``optimize_model_for_gpu`` without parallelism: the model itself, on its device."""
        from backend.device.transfer import place_model  # lazy: imports torch
        from backend.training.memory import checkpoint_activations

        device = self.get_device()
        done = place_model(model, device)
        if self.config.enable_gradient_checkpointing:
            done.append(checkpoint_activations(model))
        log_event(_log, logging.INFO, "model optimized for training", model=type(model).__name__, done=done)
        return model

    def parallelize(self, model: _Model) -> _Model | nn.Module:
        """The model on several cards or processes where the config asks for it, else the model.

        Raises: DeviceUnavailable where ``enable_distributed`` finds no process group, or ``enable_data_parallel``
        fewer than two cards.
        """
        import torch  # as in setup_device

        device = self.get_device()
        if self.config.enable_distributed:
            if not torch.distributed.is_initialized():
                raise DeviceUnavailable(
                    "enable_distributed, but there is no process group: start with torchrun and call "
                    "torch.distributed.init_process_group() first"
                )
            ids = [device.index] if device.type == "cuda" else None
            return torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
        if not self.config.enable_data_parallel:
            return model
        used = self.placements
        cards = [int(placement.device.partition(":")[2]) for placement in used if placement.type is DeviceType.CUDA]
        if len(cards) < 2:
            devices = ", ".join(placement.device for placement in used)
            raise DeviceUnavailable(
                f"enable_data_parallel needs two CUDA cards, but the manager has {devices}; name the cards in "
                "device_ids, or leave it off"
            )
        return torch.nn.DataParallel(model, device_ids=cards)

    def loader_settings(self) -> LoaderSettings:
        """Settings for a DataLoader: from the config, else from the machine's cores and memory."""
        config, chosen = self.config, self.placement.loader
        workers = chosen.num_workers if config.num_workers is None else config.num_workers
        pin = chosen.pin_memory if config.pin_memory is None else config.pin_memory
        if pin and self.placement.type is not DeviceType.CUDA:
            log_event(_log, logging.WARNING, "pin_memory does nothing here", device=self.placement.device)
            pin = False
        if not workers:
            return LoaderSettings(pin_memory=pin)
        return LoaderSettings(
            workers,
            pin,
            config.prefetch_factor or chosen.prefetch_factor or 2,  # torch's default
            chosen.persistent_workers if config.persistent_workers is None else config.persistent_workers,
        )

    def empty_cache(self, step: int | None = None) -> bool:
        """Release torch's cached memory to other processes on the device; returns whether it did.

        With ``step`` only at every ``empty_cache_interval``-th step. torch itself never needs it: it reuses its cache.
        """
        interval = self.config.empty_cache_interval
        if step is not None and (interval == 0 or step == 0 or step % interval):
            return False
        placement = self.placement
        if placement.type is DeviceType.CPU:
            return False
        import torch  # as in setup_device

        if placement.type is DeviceType.MPS:
            torch.mps.empty_cache()
        else:
            with torch.cuda.device(placement.device):
                torch.cuda.empty_cache()
        return True

    def clear_memory(self) -> int:
        """Collect garbage and release cached memory; returns the bytes torch released. Slow: not for every step."""
        return cleanup_gpu_memory(self.placement.device)


def get_gpu_manager(config: GPUConfig | None = None) -> GPUManager:
    """The manager of this process, created by the first call.

    Raises: BadSettings when it exists and ``config`` differs: a set-up cannot be undone.
    """
    global process_manager  # noqa: PLW0603  # one per process
    with _manager_lock:
        if process_manager is None:
            process_manager = GPUManager(config)
        elif config is not None and config != process_manager.config:
            raise BadSettings(
                ["GPUConfig: this process has its GPU manager already; give the config at the first call"]
            )
        return process_manager


def get_device_info(device: str = "auto") -> dict[str, Any]:
    """Everything about a device: ``get_gpu_info``, memory, mixed precision, platform and versions.

    Sets nothing up and opens no context on another card.
    """
    manager, facts = GPUManager(GPUConfig(device=device)), default_device.machine_facts()
    half = precision.amp_dtype(manager.placement.dtypes)
    return {
        **manager.get_gpu_info(),
        "memory": manager.get_memory_usage(),
        "supports_amp": manager.supports_amp(),
        "amp_dtype": half,
        "loader": asdict(manager.placement.loader),
        "flash_attention": check_flash_attention(manager.placement.device),
        "cpu_cores": facts.cores,
        "cpu_memory_gb": facts.memory_bytes / GIB,
        "platform": platform_dict(facts.platform),
        "driver": facts.driver.version,
        "torch": Torch().build().version,
        "torch_cuda": Torch().build().cuda,
        "why_no_gpu": facts.why_no_gpu,
    }


def _placements(config: GPUConfig) -> tuple[Placement, ...]:
    """Those that the config asks for; with ``enable_distributed`` under torchrun this rank's own card of them."""
    request, rank = _request(config), local_rank()
    if config.enable_distributed and rank.count > 1:
        mine = default_device.rank_placement(config.wanted, rank)
        if mine.type is DeviceType.CUDA:
            request = replace(request, device=mine.device, gpu=None)
    return default_device.placements(request)


def _request(config: GPUConfig) -> DeviceRequest:
    request = default_device.device_request() if config.wanted == "auto" else default_device.request_for(config.wanted)
    return request if config.memory_fraction is None else replace(request, memory_fraction=config.memory_fraction)
