"""The names of GPU guides in one place, as they import them: ``from backend.gpu_toolkit import GPUConfig, GPUManager``.

Those of devices are exported by ``backend.device`` too, those of training by ``backend.training``.
"""

from typing import TYPE_CHECKING

from backend.lazy_exports import lazy_exports
from backend.training import REFUSED

if TYPE_CHECKING:
    from backend.device import DeviceType as DeviceType
    from backend.device import GPUConfig as GPUConfig
    from backend.device import GPUInfo as GPUInfo
    from backend.device import GPUManager as GPUManager
    from backend.device import GPUMemoryOptimizer as GPUMemoryOptimizer
    from backend.device import GPUPerformanceMonitor as GPUPerformanceMonitor
    from backend.device import cleanup_gpu_memory as cleanup_gpu_memory
    from backend.device import get_device_info as get_device_info
    from backend.device import get_gpu_manager as get_gpu_manager
    from backend.device import get_optimal_batch_size as get_optimal_batch_size
    from backend.device import gpu_memory_guard as gpu_memory_guard
    from backend.device import move_to_device as move_to_device
    from backend.device import optimize_model_for_inference as optimize_model_for_inference
    from backend.device import profile_model as profile_model
    from backend.training import IntegratedGPUTrainingSystem as IntegratedGPUTrainingSystem
    from backend.training import MixedPrecisionConfig as MixedPrecisionConfig
    from backend.training import MixedPrecisionTrainer as MixedPrecisionTrainer
    from backend.training import TrainingConfig as TrainingConfig

_MODULES = {  # exported name -> the package that exports it
    "DeviceType": "backend.device",
    "GPUConfig": "backend.device",
    "GPUInfo": "backend.device",
    "GPUManager": "backend.device",
    "GPUMemoryOptimizer": "backend.device",
    "GPUPerformanceMonitor": "backend.device",
    "IntegratedGPUTrainingSystem": "backend.training",
    "MixedPrecisionConfig": "backend.training",
    "MixedPrecisionTrainer": "backend.training",
    "TrainingConfig": "backend.training",
    "cleanup_gpu_memory": "backend.device",
    "get_device_info": "backend.device",
    "get_gpu_manager": "backend.device",
    "get_optimal_batch_size": "backend.device",
    "gpu_memory_guard": "backend.device",
    "move_to_device": "backend.device",
    "optimize_model_for_inference": "backend.device",
    "profile_model": "backend.device",
}
__all__ = sorted(_MODULES)  # noqa: PLE0605  # the table is the list
__getattr__, __dir__ = lazy_exports(__name__, _MODULES, REFUSED)
