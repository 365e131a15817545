"""Devices: what the machine has, which device to use, its memory. Re-exports the names that GPU guides use.

``from backend.device import GPUManager, move_to_device``: each name is imported on first access, since half of them
import torch, which a service on another runtime does not need.
"""

from typing import TYPE_CHECKING

from backend.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from backend.device.memory.device_memory import cleanup_gpu_memory as cleanup_gpu_memory
    from backend.device.memory.device_memory import gpu_memory_guard as gpu_memory_guard
    from backend.device.plan.attention import attention_report as attention_report
    from backend.device.plan.attention import check_flash_attention as check_flash_attention
    from backend.device.records import DeviceType as DeviceType
    from backend.device.records import GPUInfo as GPUInfo
    from backend.device.transfer import move_to_device as move_to_device
    from backend.device.transfer import optimize_model_for_inference as optimize_model_for_inference
    from backend.device.watch.monitor import GPUPerformanceMonitor as GPUPerformanceMonitor
    from backend.gpu_toolkit.device_info import detect_platform as detect_platform
    from backend.gpu_toolkit.gpu_config import GPUConfig as GPUConfig
    from backend.gpu_toolkit.manager import GPUManager as GPUManager
    from backend.gpu_toolkit.manager import get_device_info as get_device_info
    from backend.gpu_toolkit.manager import get_gpu_manager as get_gpu_manager
    from backend.gpu_toolkit.memory_optimizer import GPUMemoryOptimizer as GPUMemoryOptimizer
    from backend.gpu_toolkit.memory_optimizer import get_optimal_batch_size as get_optimal_batch_size
    from backend.gpu_toolkit.throughput import profile_model as profile_model
    from backend.training.memory.activation_checkpointing import checkpoint_activations as checkpoint_activations

_MODULES = {  # exported name -> the module that defines it
    "DeviceType": "backend.device.records",
    "GPUConfig": "backend.gpu_toolkit.gpu_config",
    "GPUInfo": "backend.device.records",
    "GPUManager": "backend.gpu_toolkit.manager",
    "GPUMemoryOptimizer": "backend.gpu_toolkit.memory_optimizer",
    "GPUPerformanceMonitor": "backend.device.watch.monitor",
    "attention_report": "backend.device.plan.attention",
    "check_flash_attention": "backend.device.plan.attention",
    "checkpoint_activations": "backend.training.memory.activation_checkpointing",
    "cleanup_gpu_memory": "backend.device.memory.device_memory",
    "detect_platform": "backend.gpu_toolkit.device_info",
    "get_device_info": "backend.gpu_toolkit.manager",
    "get_gpu_manager": "backend.gpu_toolkit.manager",
    "get_optimal_batch_size": "backend.gpu_toolkit.memory_optimizer",
    "gpu_memory_guard": "backend.device.memory.device_memory",
    "move_to_device": "backend.device.transfer",
    "optimize_model_for_inference": "backend.device.transfer",
    "profile_model": "backend.gpu_toolkit.throughput",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605  # the table is the list
__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
