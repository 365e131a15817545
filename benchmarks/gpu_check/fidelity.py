"""Whether a text has one vector on the device, alone or in a batch, and how far it is from float32's."""

from dataclasses import asdict
from typing import Any

import numpy as np

from backend.models.encoder import Encoder, Ids, normalized
from backend.models.encoder_benchmark import AUTO, EncoderBenchmark, measure_fidelity, probe_texts, rejection_reason
from backend.models.model_files import resolve
from backend.models.runtimes import Candidate, load_encoder
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import alone, candidates_on, encode, engine_of, placement_on, real_model, token_ids
from benchmarks.gpu_check.made_models import TINY, make_model
from benchmarks.texts import distinct_texts

_BUDGET, _CROWD = 16384, 512


def measure(context: Context) -> dict[str, Any]:
    """A row for each runtime and dtype of the device; ``offered``: PRECISION=auto may take it."""
    folder = context.folder / "model"
    spec = resolve(str(make_model(TINY, folder))) if context.is_small else real_model(folder)
    ids = token_ids(spec, probe_texts())
    crowd = token_ids(spec, distinct_texts(16 if context.is_small else _CROWD))
    benchmark = EncoderBenchmark(ids, lanes=1, budget=_BUDGET)
    placement = placement_on(context.device)
    found = candidates_on(context.device)
    exact = Candidate("torch", "fp32")  # transformers, the reference of all
    reference = benchmark.vectors(load_encoder(spec, exact, placement))
    result: dict[str, Any] = {"model": spec.source, "rows": []}
    for candidate in found:
        with alone(result, candidate):
            encoder = load_encoder(spec, candidate, placement)
            vectors = benchmark.vectors(encoder)
            batched, single = benchmark.batched_and_single(encoder, vectors)
            fidelity = measure_fidelity(vectors, batched, single, reference)
            why = rejection_reason(fidelity, AUTO)
            least = min(fidelity.batch_single, _in_a_crowd(encoder, crowd))
            row = {"runtime": str(candidate), **asdict(fidelity), "batch_single": least, "offered": not why}
            result["rows"].append({**row, "why": why})
            context.keep(result)
    return result


def _in_a_crowd(encoder: Encoder, ids: list[Ids]) -> float:
    """Least cosine of texts alone against the same texts in one large batch of other lengths."""
    engine = engine_of(encoder, 1 << 20)
    together = normalized(encode(engine, ids))
    rows = range(0, len(ids), max(1, len(ids) // 32))
    alone = normalized(np.concatenate([encode(engine, [ids[row]]) for row in rows]))
    return float((together[rows] * alone).sum(axis=1).min())
