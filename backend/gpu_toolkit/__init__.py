"""GPU guides' own objects over ``device`` and ``training``, and all their names in one place for type checkers.

``from backend.gpu_toolkit import GPUConfig, GPUManager``: see ``lazy_exports``.
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
    from backend.gpu_toolkit.gpu_config import GPUConfig as GPUConfig
    from backend.gpu_toolkit.gpu_config import detect_platform as detect_platform
    from backend.gpu_toolkit.manager import GPUManager as GPUManager
    from backend.gpu_toolkit.manager import get_device_info as get_device_info
    from backend.gpu_toolkit.manager import get_gpu_manager as get_gpu_manager
    from backend.gpu_toolkit.memory_optimizer import GPUMemoryOptimizer as GPUMemoryOptimizer
    from backend.gpu_toolkit.memory_optimizer import get_optimal_batch_size as get_optimal_batch_size
    from backend.gpu_toolkit.mixed_precision import MixedPrecisionTrainer as MixedPrecisionTrainer
    from backend.gpu_toolkit.throughput import profile_model as profile_model
    from backend.gpu_toolkit.training_system import IntegratedGPUTrainingSystem as IntegratedGPUTrainingSystem
    from backend.training.lora import add_lora as add_lora
    from backend.training.losses import classification_loss as classification_loss
    from backend.training.memory import checkpoint_activations as checkpoint_activations
    from backend.training.records import LossPart as LossPart
    from backend.training.records import MixedPrecisionConfig as MixedPrecisionConfig
    from backend.training.records import Task as Task
    from backend.training.records import TrainingConfig as TrainingConfig
    from backend.training.records import TrainingResult as TrainingResult
    from backend.training.trainer.loop import train as train
    from backend.training.trainer.model_setup import make_schedule as make_schedule

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the table is the list
