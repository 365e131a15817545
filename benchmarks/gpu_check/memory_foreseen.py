"""Memory of batches: what the service's own table foresees against the allocator's peak, padded batches too."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel

from backend.device.facts.host import read_host
from backend.device.memory.probe import CudaMeter, predict
from backend.device.memory.probe import measure as measure_table
from backend.device.memory.release import release
from backend.device.memory.trial_run import dry_run
from backend.device.plan.placement import Placement
from backend.device.tuning_cache import TuningCache
from backend.errors import DoesNotFit
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
_ENCODERS: dict[str, dict[str, Any]] = {
    "MiniLM-L6": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
_DRY_RUN_LENGTHS = (128, 512, 2048)
_DRY_RUN_COUNTS = (1, 4, 16, 64)


def measure(context: Context) -> dict[str, Any]:
    """Rows of the service's table, then those of a dry run, which needs no weights."""
    size = TINY if context.is_small else BASE
    spec = resolve(str(make_model(size, context.folder / size.name)))
    placement = placement_on(context.device)
    result: dict[str, Any] = {"table": []}
    for candidate in one_of_each_runtime(candidates_on(context.device, halves_only=context.is_cuda)):
        with alone(result, candidate):
            result["table"] += _table(spec, candidate, placement, context)
        context.keep(result)
    names, lengths = (["MiniLM-L6"], (32,)) if context.is_small else (list(_ENCODERS), _DRY_RUN_LENGTHS)
    result["dry_run"] = []
    for name in names:
        result["dry_run"] += _dry_run_rows(name, context.device, lengths)
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


def _dry_run_rows(name: str, device: str, lengths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A row for each length and count of one encoder."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    config = AutoConfig.for_model("bert", max_position_embeddings=max(lengths), **_ENCODERS[name])

    def make_bert() -> torch.nn.Module:
        model: torch.nn.Module = AutoModel.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
        return model.eval()

    predicted = predict(make_bert, _inputs, lengths, safety=1.0)
    assert predicted is not None, "the dry run of a BERT failed"
    _, dry_run_bytes = dry_run(make_bert, _inputs, list(product(lengths, _DRY_RUN_COUNTS)))
    measured = _measured_peaks(make_bert, device, lengths) if device != "cpu" else {}
    for length, count in product(lengths, _DRY_RUN_COUNTS):
        yield {
            "encoder": name,
            "length": length,
            "count": count,
            "weights_bytes": predicted.weights_bytes,
            "foreseen_bytes": predicted.table.peak_bytes(length, count),
            "dry_run_bytes": dry_run_bytes[length, count],
            "measured_bytes": measured.get((length, count)),
        }


def _measured_peaks(make_bert: Any, device: str, lengths: Sequence[int]) -> dict[tuple[int, int], int | None]:
    """The allocator's peak of each batch on the GPU; None where it does not fit."""
    model, meter = make_bert().to(device), CudaMeter(device)
    peaks: dict[tuple[int, int], int | None] = {}

    @torch.inference_mode()
    def run(count: int, length: int) -> None:
        model(**{name: ids.to(device) for name, ids in _inputs(count, length).items()})

    for length, count in product(lengths, _DRY_RUN_COUNTS):
        try:
            peaks[length, count] = measure_table(run, meter, [length], counts=(count,), safety=1.0).peak_bytes(
                length, count
            )
        except DoesNotFit:
            peaks[length, count] = None
    release(device)
    return peaks


def _inputs(count: int, length: int) -> dict[str, torch.Tensor]:
    ids = torch.ones(count, length, dtype=torch.long)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
