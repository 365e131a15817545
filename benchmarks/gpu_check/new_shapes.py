"""What a batch of a shape never seen costs: cuDNN's attention plans each one, flash and efficient attention do not."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from torch.nn.attention import SDPBackend, sdpa_kernel

from backend.lanes.engine import EncoderEngine
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.device_timing import wait
from benchmarks.gpu_check.encoders import alone, candidates_on, encode, engine_of, load, one_of_each_runtime
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model
from benchmarks.gpu_check.targets import AS_SERVED
from benchmarks.results import spread

_TEXTS, _SHAPES = 64, 20
_IDS = 200  # in the vocabulary of every size
_KERNELS: dict[str, Any] = {  # name -> torch's backend; None: whatever torch takes for the service
    AS_SERVED: None,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash, then efficient": [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION],
}


def measure(context: Context) -> dict[str, Any]:
    """For each runtime and kernel: milliseconds of each new shape, then of the same shapes again."""
    folder = make_model(TINY if context.is_small else E5_SMALL, context.folder / "model")
    result: dict[str, Any] = {"rows": []}
    first = 40
    for candidate in one_of_each_runtime(candidates_on(context.device, halves_only=context.is_cuda)):
        with alone(result, candidate):
            engine = engine_of(load(folder, candidate, context.device), 1 << 20)
            for name, backend in _KERNELS.items():
                # Only transformers' attention asks torch for a kernel; and no position beyond the table may be reached.
                if name == AS_SERVED or (context.is_cuda and candidate.runtime == "torch"):
                    row = {"runtime": str(candidate), "kernels": name}
                    result["rows"].append(row | _shape_times(engine, context, backend, first))
                    context.keep(result)
                    first += 2 * _SHAPES  # shapes that no kernel before has seen
    return result


def _shape_times(engine: EncoderEngine, context: Context, backend: Any, first: int) -> dict[str, Any]:
    count, shapes = (4, 3) if context.is_small else (_TEXTS, _SHAPES)
    lengths = range(first, first + 2 * shapes, 2)
    chosen: AbstractContextManager[Any] = nullcontext() if backend is None else sdpa_kernel(backend)
    try:
        with chosen:
            new = list(_seconds(engine, context.device, lengths, count))
            seen = list(_seconds(engine, context.device, lengths, count))
    except RuntimeError as error:  # this kernel does not take such a batch
        return {"fault": str(error).splitlines()[0][:200]}
    return {
        "new_ms": spread(1e3 * each for each in new[1:]),
        "seen_ms": spread(1e3 * each for each in seen[1:]),
        "first_ms": 1e3 * new[0],
    }


def _seconds(engine: EncoderEngine, device: str, lengths: range, count: int) -> Iterator[float]:
    """One batch of each length, one of its texts a token shorter so that there is padding."""
    rng = np.random.default_rng(0)
    for length in lengths:
        texts = [rng.integers(5, _IDS, length - (index == 0)) for index in range(count)]
        wait(device)
        started_s = time.perf_counter()
        encode(engine, texts)
        wait(device)
        yield time.perf_counter() - started_s
