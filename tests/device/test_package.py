"""The names of guides: in each package that guides import them from, lazy enough not to import torch."""

import ast
import importlib
from pathlib import Path

import pytest

import backend.gpu_toolkit
from backend.lazy_exports import NAMES

PROMISED = {  # the names of the guides
    *("GPUManager", "get_gpu_manager", "GPUConfig", "GPUInfo", "DeviceType", "move_to_device", "gpu_memory_guard"),
    *("optimize_model_for_inference", "get_optimal_batch_size", "profile_model", "get_device_info"),
    *("GPUMemoryOptimizer", "GPUPerformanceMonitor", "detect_platform", "check_flash_attention", "cleanup_gpu_memory"),
    *("MixedPrecisionTrainer", "MixedPrecisionConfig", "IntegratedGPUTrainingSystem", "TrainingConfig"),
}


@pytest.mark.parametrize("package", ["backend.device", "backend.training", "backend.gpu_toolkit"])
def test_names(package: str):
    """Each one is the object of its module; an unknown or refused one says so."""
    module = importlib.import_module(package)

    assert PROMISED <= set(NAMES) == set(module.__all__) <= set(dir(module))
    assert {name: getattr(module, name).__module__ for name in NAMES} == NAMES
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'GPUManger'"):
        _ = module.GPUManger
    with pytest.raises(ImportError, match=r"has no SignTrainer: train\(task, config\)"):
        _ = module.SignTrainer


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(backend.gpu_toolkit.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    declared = {alias.name: node.module for node in imports for alias in node.names if node.module != "typing"}

    assert declared == {**NAMES, "lazy_exports": "backend.lazy_exports"}
