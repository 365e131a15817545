"""The re-exports of backend.device: complete, and lazy enough not to import torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import backend.device
from backend.device import _MODULES

PROMISED = {  # the names of the guides
    *("GPUManager", "get_gpu_manager", "GPUConfig", "GPUInfo", "DeviceType", "move_to_device", "gpu_memory_guard"),
    *("optimize_model_for_inference", "get_optimal_batch_size", "profile_model", "get_device_info"),
    *("GPUMemoryOptimizer", "GPUPerformanceMonitor", "detect_platform", "check_flash_attention", "cleanup_gpu_memory"),
}


@pytest.mark.parametrize("name", sorted(PROMISED.union(_MODULES)))
def test_names(name: str):
    """Each one is the object of its module."""
    exported = getattr(backend.device, name)

    assert _MODULES[name] == exported.__module__
    assert name in dir(backend.device)
    assert name in backend.device.__all__


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'GPUManger'"):
        _ = backend.device.GPUManger


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(backend.device.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "backend.lazy_exports")
        for alias in node.names
    }

    assert declared == _MODULES


def test_facts_import_no_torch():
    """Importing the package, the platform and a config imports no torch, which takes seconds."""
    code = (
        "import sys; from backend.device import GPUConfig, GPUManager, detect_platform\n"
        "detect_platform(); GPUManager(GPUConfig()); sys.exit('torch' in sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
