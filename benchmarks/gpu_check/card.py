"""The card, its driver, and the torch that runs on it."""

import shutil
import subprocess
from typing import Any

import torch

from backend.device.facts.machine import probe
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from benchmarks.gpu_check.context import Context


def measure(context: Context) -> dict[str, Any]:
    """Facts by torch and by our own probe of the machine."""
    driver = Nvml()
    try:
        facts = probe(driver=driver, torch_source=Torch())
    finally:
        driver.close()
    cards = [
        {"name": gpu.name, "capability": list(gpu.capability), "total_bytes": gpu.total_bytes, "usable": not gpu.fault}
        for gpu in facts.gpus
    ]
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": facts.driver.version,
        "cards": cards,
        "compiler": shutil.which("gcc") or shutil.which("cc") or "",
    }
    if context.is_cuda:
        properties = torch.cuda.get_device_properties(context.device)
        result |= {
            "name": properties.name,
            "capability": [properties.major, properties.minor],
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "nvidia_smi": _nvidia_smi(),
        }
    return result


def _nvidia_smi() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    query = "--query-gpu=name,driver_version,power.limit,clocks.max.sm,memory.total,mig.mode.current"
    completed = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], check=False, capture_output=True, text=True, timeout=30
    )
    return completed.stdout.strip()
