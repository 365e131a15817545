"""Real memory that runs out under the lanes: the batch is split and retried, with the same vectors, and memory back.

On a CPU, where nothing can run out, an encoder refuses large batches with torch's own error.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from backend.device.memory.device_memory import apply_ceiling
from backend.device.plan.placement import Placement
from backend.lanes.batcher import Batcher
from backend.lanes.engine import EncoderEngine, PinnedEncoder
from backend.lanes.work_queue import QueueLimits
from backend.models.batch_limits import AdaptiveBatchLimits, learnt_batch_limits
from backend.models.encoder import Encoder, Ids, TokenBatch, Vectors, normalized
from backend.models.spec import Pooling
from backend.serving.engines.heads import EMBEDDINGS, PoolingHead
from backend.telemetry import Telemetry
from benchmarks.gpu_check.context import Context
from benchmarks.gpu_check.encoders import candidates_on, load
from benchmarks.gpu_check.made_models import E5_SMALL, TINY, make_model

_CEILING_BYTES = 1 << 30
_TEXTS, _TOKENS = 2048, 252
_BUDGET, _HUGE_BUDGET = 16384, 1 << 20  # tokens of a batch: one that fits, one that holds all texts at once


@dataclass(frozen=True, slots=True)
class _Refusing:
    """An encoder whose device has room for a number of rows."""

    encoder: Encoder
    rows_max: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def prepare(self, ids: Sequence[Ids]) -> TokenBatch:
        return self.encoder.prepare(ids)

    def forward(self, batch: TokenBatch) -> Any:
        """Raises: torch.OutOfMemoryError over the limit."""
        self._check(batch)
        return self.encoder.forward(batch)

    def queue(self, batch: TokenBatch, readout: Any) -> Any:
        """As torch's encoders. Raises: torch.OutOfMemoryError over the limit."""
        self._check(batch)
        encoder: Any = self.encoder
        return encoder.queue(batch, readout)

    def _check(self, batch: TokenBatch) -> None:
        if batch.tokens > self.rows_max:
            raise torch.OutOfMemoryError(f"{batch.tokens} rows are over {self.rows_max}: out of memory, by this check")

    def pooled(self, output: Any, batch: TokenBatch, pooling: Pooling) -> Vectors:
        return self.encoder.pooled(output, batch, pooling)


def measure(context: Context) -> dict[str, Any]:
    """Embed the same texts with room and without, and compare."""
    folder = make_model(TINY if context.is_small else E5_SMALL, context.folder / "model")
    found = candidates_on(context.device, halves_only=context.is_cuda)
    candidate = next((each for each in found if each.runtime == "torch-packed"), found[0])
    encoder = load(folder, candidate, context.device)
    place = Placement(context.device, 1, 1, 2, ("gpu_check",), memory_bytes=_CEILING_BYTES)
    count, tokens = (64, 16) if context.is_small else (_TEXTS, _TOKENS)
    rng = np.random.default_rng(1)
    ids = [rng.integers(5, 200, tokens) for _ in range(count)]
    whole, _ = asyncio.run(_embed(encoder, learnt_batch_limits(place), ids, _BUDGET))
    before = _allocated(context)
    ceiling = apply_ceiling(context.device, _CEILING_BYTES)
    tight: Any = encoder if context.is_cuda else _Refusing(encoder, count * tokens // 3)
    limits = learnt_batch_limits(place)
    split, recoveries = asyncio.run(_embed(tight, limits, ids, _HUGE_BUDGET))
    after = _allocated(context)
    stats = torch.cuda.memory_stats(context.device) if context.is_cuda else {}
    return {
        "runtime": str(candidate),
        "texts": count,
        "ceiling": ceiling,
        "cosine_min": float((normalized(whole) * normalized(split)).sum(axis=1).min()),
        "ooms": int(stats.get("num_ooms", 0)) if context.is_cuda else int(sum(recoveries.values())),
        "recoveries": recoveries,
        "allocated_before": before,
        "allocated_after": after,
        "retries": int(stats.get("num_alloc_retries", 0)),
    }


def _allocated(context: Context) -> int:
    if not context.is_cuda:
        return 0
    torch.cuda.synchronize(context.device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_allocated(context.device))


async def _embed(
    encoder: Encoder, limits: AdaptiveBatchLimits, ids: list[Ids], budget: int
) -> tuple[Vectors, dict[str, float]]:
    """The texts' vectors through the lanes, and the counters of recoveries by action."""
    telemetry = Telemetry()
    batcher = Batcher(1, QueueLimits(1 << 24), telemetry, depth=2)
    batcher.start(asyncio.get_running_loop())
    engine = EncoderEngine(EMBEDDINGS, PinnedEncoder(encoder), PoolingHead(Pooling.MEAN), budget, batch_limits=limits)
    items = batcher.submit(engine, ids, [len(text) for text in ids])
    vectors = np.array(await asyncio.gather(*(item.future for item in items)))
    await batcher.drain(10.0)
    samples = [sample for metric in telemetry.registry.collect() for sample in metric.samples]
    recoveries = {
        str(sample.labels.get("action", "")): sample.value
        for sample in samples
        if sample.name.endswith("oom_recoveries_total") and sample.value
    }
    return vectors, recoveries
