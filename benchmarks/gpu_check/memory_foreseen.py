"""Memory of batches: what the service's own table foresees against the allocator's peak, padded batches too."""

from itertools import product
from typing import Any

import numpy as np
import torch

from backend.device.facts.host import read_host
from backend.device.memory.device_memory import release
from backend.device.plan.placement import Placement
from backend.device.tuning_cache import TuningCache
from backend.models.autotune import Choice
from backend.models.batch_limits import measure_batch_limits
from backend.models.encoder import Encoder, Ids
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder
from backend.models.spec import ModelSpec
from benchmarks.gpu_check.context import Context, Rows
from benchmarks.gpu_check.encoders import alone, candidates_on, encode, engine_of, one_of_each_runtime, placement_on
from benchmarks.gpu_check.made_models import BASE, TINY, make_model

_LENGTHS, _COUNTS = (32, 128, 512), (4, 32, 128)


def measure(context: Context) -> dict[str, Any]:
    """Rows of each runtime's table."""
    size = TINY if context.is_small else BASE
    spec = resolve(str(make_model(size, context.folder / size.name)))
    placement = placement_on(context.device)
    result: dict[str, Any] = {"table": []}
    for candidate in one_of_each_runtime(candidates_on(context.device, halves_only=context.is_cuda)):
        with alone(result, candidate):
            result["table"] += _table(spec, candidate, placement, context)
        context.keep(result)
    return result


def _table(spec: ModelSpec, candidate: Candidate, placement: Placement, context: Context) -> Rows:
    """What the service's own table foresees of batches, measured and read as at a start, beside what they take."""
    encoder = load_encoder(spec, candidate, placement)
    choice = Choice(candidate.runtime, candidate.dtype, 16384, 0.0, ())
    kept = TuningCache(context.folder / f"{candidate.runtime}-{candidate.dtype}.json")
    limits = measure_batch_limits(encoder, spec, choice, placement, kept=kept, platform=read_host().platform)
    rows: Rows = []
    for length, count in product(_LENGTHS, _COUNTS) if context.is_cuda else ():
        row = {"runtime": str(candidate), "length": length, "count": count}
        row["foreseen_bytes"] = limits.batch_bytes(length * count, length)
        rows += _measured(encoder, row, context.device)
    return rows


def _measured(encoder: Encoder, row: dict[str, Any], device: str) -> Rows:
    """One batch of equal lengths, and one whose texts but the first are half as long."""
    length, rows = row["length"], []
    for padded in (False, True):
        texts = [np.full(length // 2 if padded and index else length, 7) for index in range(row["count"])]
        rows.append({**row, "padded": padded, "measured_bytes": _peak(encoder, texts, device)})
    return rows


def _peak(encoder: Encoder, texts: list[Ids], device: str) -> int:
    """Bytes above what was allocated before the batch, at most."""
    release(device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    encode(engine_of(encoder, 1 << 20), texts)
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)
