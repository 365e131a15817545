"""RapidOCR's networks on the device: do they start, agree with the CPU, and how fast are they."""

import time
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from backend.ocr.rapidocr_models import Network, RapidOcrModels
from benchmarks.gpu_check.context import Context, NotPossible

_NETWORKS: dict[Network, tuple[int, ...]] = {"detect": (1, 3, 1600, 1120), "recognize": (32, 3, 48, 640)}
_SMALL: dict[Network, tuple[int, ...]] = {"detect": (1, 3, 160, 160), "recognize": (1, 3, 48, 160)}


def measure(context: Context) -> dict[str, Any]:
    """Milliseconds on the CPU and on the card, and the largest difference of an output.

    Raises: NotPossible without RapidOCR or ONNX Runtime.
    """
    missing = [name for name in ("rapidocr", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise NotPossible(f"{' and '.join(missing)} not installed")
    import onnxruntime  # its version is told

    if context.is_cuda:
        torch.zeros(1, device=context.device)  # torch's CUDA first, as in the service
    shapes = _SMALL if context.is_small else _NETWORKS
    rng = np.random.default_rng(0)
    pixels = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    result: dict[str, Any] = {"onnxruntime": onnxruntime.__version__, "rows": []}
    outputs: dict[tuple[str, Network], Any] = {}
    for device in dict.fromkeys((context.device, "cpu")):
        models = RapidOcrModels(device, 8 if not context.is_small else 1)
        result[f"provider on {device}"] = {"name": models.provider.name, "why": models.provider.why}
        for network, image in pixels.items():
            outputs[device, network] = models.run(network, image, latin=network == "recognize")
            ms = _milliseconds(models, network, image, 20 if models.provider.is_cuda else 3)
            row = {"device": device, "network": network, "on_cuda": models.provider.is_cuda, "ms": ms}
            other = outputs.get((context.device, network))
            row["difference"] = float(np.abs(outputs[device, network] - other).max())
            result["rows"].append(row)
            context.keep(result)
    return result


def _milliseconds(models: RapidOcrModels, network: Network, image: Any, runs: int) -> float:
    started_s = time.perf_counter()
    for _ in range(runs):
        models.run(network, image, latin=network == "recognize")
    return 1e3 * (time.perf_counter() - started_s) / runs
