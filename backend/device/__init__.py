"""The device floor by the names that GPU guides use: ``from backend.device import GPUManager, move_to_device``.

Each name is imported when it is first asked for: half of them need torch, which a service on another runtime does not.
"""

from typing import TYPE_CHECKING

from backend.lazy_names import lazy_names

if TYPE_CHECKING:
    from backend.device.attention import attention_report as attention_report
    from backend.device.attention import check_flash_attention as check_flash_attention
    from backend.device.doors.checkpointing import checkpoint_activations as checkpoint_activations
    from backend.device.doors.describe import detect_platform as detect_platform
    from backend.device.doors.gpu_config import GPUConfig as GPUConfig
    from backend.device.doors.movement import move_to_device as move_to_device
    from backend.device.doors.movement import optimize_model_for_inference as optimize_model_for_inference
    from backend.device.doors.optimizer import GPUMemoryOptimizer as GPUMemoryOptimizer
    from backend.device.doors.optimizer import get_optimal_batch_size as get_optimal_batch_size
    from backend.device.doors.throughput import profile_model as profile_model
    from backend.device.manager import GPUManager as GPUManager
    from backend.device.manager import get_device_info as get_device_info
    from backend.device.manager import get_gpu_manager as get_gpu_manager
    from backend.device.memory import cleanup_gpu_memory as cleanup_gpu_memory
    from backend.device.memory import gpu_memory_guard as gpu_memory_guard
    from backend.device.monitor import GPUPerformanceMonitor as GPUPerformanceMonitor
    from backend.device.records import DeviceType as DeviceType
    from backend.device.records import GPUInfo as GPUInfo

_HOMES = {  # name -> the module it lives in
    "DeviceType": "records",
    "GPUConfig": "doors.gpu_config",
    "GPUInfo": "records",
    "GPUManager": "manager",
    "GPUMemoryOptimizer": "doors.optimizer",
    "GPUPerformanceMonitor": "monitor",
    "attention_report": "attention",
    "check_flash_attention": "attention",
    "checkpoint_activations": "doors.checkpointing",
    "cleanup_gpu_memory": "memory",
    "detect_platform": "doors.describe",
    "get_device_info": "manager",
    "get_gpu_manager": "manager",
    "get_optimal_batch_size": "doors.optimizer",
    "gpu_memory_guard": "memory",
    "move_to_device": "doors.movement",
    "optimize_model_for_inference": "doors.movement",
    "profile_model": "doors.throughput",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605  # the table is the list
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
