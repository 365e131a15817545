"""Embeddings, classes, pages and analysis on the CPU and on the card: benchmarks/devices.py without training."""

from typing import Any

from backend.models.model_files import BUNDLED, resolve
from benchmarks.devices import CPU, FULL, QUICK, measure_tasks
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import real_model
from benchmarks.gpu_check.made_models import TINY, make_model


def measure(context: Context) -> dict[str, Any]:
    """A row for each task: seconds on each device, and the CPU's time as a multiple of the card's.

    Where no encoder is installed, one with fresh weights takes its place, in a fixed arithmetic; no names are found.
    """
    devices = list(dict.fromkeys((CPU, context.device)))
    folder = context.folder / "model"
    spec = resolve(str(make_model(TINY, folder))) if context.is_small else real_model(folder)
    settings: dict[str, dict[str, str]] = {}
    if spec.folder == folder.resolve():
        made = {"EMBEDDING_MODEL": str(folder), "NER_MODEL": "none"}
        settings = {device: {**made, "PRECISION": "fp32" if device == CPU else "bf16"} for device in devices}
    elif spec.source != BUNDLED:
        settings = {device: {"EMBEDDING_MODEL": spec.source, "NER_MODEL": "none"} for device in devices}
    result = measure_tasks(devices, QUICK if context.is_small else FULL, context.folder, settings)
    return {**result, "model": spec.source}
