"""The names of GPU guides, and lazy access to them: each is imported where it is first used (PEP 562).

``from backend.device import GPUManager``, ``from backend.training import MixedPrecisionTrainer`` and ``from
backend.gpu_toolkit import GPUConfig`` are how guides write them, so the three packages give all of them. Half of the
modules import torch, which a service on another runtime does not need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

NAMES = {  # name -> the module that defines it
    "DeviceType": "backend.device.records",
    "GPUConfig": "backend.gpu_toolkit.gpu_config",
    "GPUInfo": "backend.device.records",
    "GPUManager": "backend.gpu_toolkit.manager",
    "GPUMemoryOptimizer": "backend.gpu_toolkit.memory_optimizer",
    "GPUPerformanceMonitor": "backend.device.watch.monitor",
    "IntegratedGPUTrainingSystem": "backend.gpu_toolkit.training_system",
    "LossPart": "backend.training.records",
    "MixedPrecisionConfig": "backend.training.records",
    "MixedPrecisionTrainer": "backend.gpu_toolkit.mixed_precision",
    "Task": "backend.training.records",
    "TrainingConfig": "backend.training.records",
    "TrainingResult": "backend.training.records",
    "add_lora": "backend.training.lora",
    "attention_report": "backend.device.plan.attention",
    "check_flash_attention": "backend.device.plan.attention",
    "checkpoint_activations": "backend.training.memory",
    "classification_loss": "backend.training.losses",
    "cleanup_gpu_memory": "backend.device.memory.device_memory",
    "detect_platform": "backend.gpu_toolkit.gpu_config",
    "get_device_info": "backend.gpu_toolkit.manager",
    "get_gpu_manager": "backend.gpu_toolkit.manager",
    "get_optimal_batch_size": "backend.gpu_toolkit.memory_optimizer",
    "gpu_memory_guard": "backend.device.memory.device_memory",
    "make_schedule": "backend.training.trainer.model_setup",
    "move_to_device": "backend.device.transfer",
    "optimize_model_for_inference": "backend.device.transfer",
    "profile_model": "backend.gpu_toolkit.throughput",
    "train": "backend.training.trainer.loop",
}
REFUSED = {  # classes of an application in a guide -> what to take
    "SignTrainer": "train(task, config) trains any model; a task makes losses of its examples (docs/training.md)",
    "SignFlowInferencePipeline": "the service runs what training wrote (docs/training.md); in a program "
    "optimize_model_for_inference of backend.device prepares any model",
}


def lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Build the ``__getattr__``, ``__dir__`` and ``__all__`` of ``package``.

    A refused name raises ImportError, for ``from package import name`` replaces the message of an AttributeError.
    """

    def get_attribute(name: str) -> object:
        if name in REFUSED:
            raise ImportError(f"{package} has no {name}: {REFUSED[name]}")
        if name not in NAMES:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(NAMES[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *NAMES})

    return get_attribute, list_names, sorted(NAMES)
