"""The names of the guides, found where they are looked for, without paying for torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import backend.device
from backend.device import _MODULES

DESIGN = {  # §9, without the names of training
    *("GPUManager", "get_gpu_manager", "GPUConfig", "GPUInfo", "DeviceType", "move_to_device", "gpu_memory_guard"),
    *("optimize_model_for_inference", "get_optimal_batch_size", "profile_model", "get_device_info"),
    *("GPUMemoryOptimizer", "GPUPerformanceMonitor", "detect_platform", "check_flash_attention", "cleanup_gpu_memory"),
}


@pytest.mark.parametrize("name", sorted(DESIGN.union(_MODULES)))
def test_names(name: str):
    """Each one can be imported from here, and is the one of its module."""
    found = getattr(backend.device, name)

    assert _MODULES[name] == found.__module__
    assert name in dir(backend.device)
    assert name in backend.device.__all__


def test_an_unknown_name():
    """As in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'GPUManger'"):
        _ = backend.device.GPUManger


def test_types_are_told_the_same():
    """What a type checker reads is what is imported."""
    tree = ast.parse(Path(backend.device.__file__).read_text(encoding="utf-8"))
    told = {
        one.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "backend.lazy_exports")
        for one in node.names
    }

    assert told == _MODULES


def test_no_torch_for_the_machine():
    """Asking for the package, the platform and a config imports no torch: seconds that a CPU service does not pay."""
    code = (
        "import sys; from backend.device import GPUConfig, GPUManager, detect_platform\n"
        "detect_platform(); GPUManager(GPUConfig()); sys.exit('torch' in sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
