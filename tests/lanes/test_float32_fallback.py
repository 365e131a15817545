"""NaN never leaves: the one text is computed again in float32, and its neighbours notice nothing."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from backend.errors import InferenceFailed
from backend.lanes.engine import EncoderEngine, Float32Encoder, Float32Fallback, NoFallback, PinnedEncoder
from backend.models.encoder import Ids, TokenBatch, Vectors, pack
from backend.models.spec import Pooling
from backend.serving.engines.heads import EMBEDDINGS, PoolingHead
from backend.telemetry import Telemetry


@dataclass
class Overflowing:
    """An encoder whose vector of a text is its ids' sum, and not a number where ``poison`` is among them."""

    poison: int = 13
    bad: float = np.nan
    runs: list[int] = field(default_factory=list)
    runtime: str = "fake"
    dtype: str = "fp16"
    padding_cost: float = 1.0
    launch_cost: int = 0

    def prepare(self, ids: Any) -> TokenBatch:
        """Packed, filled up as a runtime with round shapes does."""
        return pack(ids, row_multiple=8)

    def forward(self, batch: TokenBatch) -> TokenBatch:
        self.runs.append(len(batch.lengths))
        return batch

    def hidden(self, output: Any, batch: TokenBatch) -> Vectors:
        raise NotImplementedError

    def pooled(self, output: Any, batch: TokenBatch, pooling: Pooling) -> Vectors:
        """(batch, 3)."""
        rows = [batch.ids[start : start + length] for start, length in zip(batch.starts, batch.lengths, strict=True)]
        values = [self.bad if self.poison in row else float(row.sum()) for row in rows]
        return np.array([[1.0, value, 2.0] for value in values], np.float32)


def ids(*numbers: int) -> Ids:
    return np.array(numbers, np.int64)


def count(telemetry: Telemetry, name: str, **labels: str) -> float:
    return telemetry.registry.get_sample_value(f"financia_{name}", {"engine": "embeddings", **labels}) or 0.0


def run(engine: EncoderEngine, payloads: list[Ids]) -> list[Any]:
    return list(engine.finish(engine.forward(engine.prepare(payloads))))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_only_the_text_at_fault_is_computed_anew(telemetry, bad):
    """Alone, in float32, from its own ids; everybody's result is finite and in its place."""
    exact = Overflowing(poison=-1, dtype="fp32")
    fallback = Float32Fallback(Float32Encoder(lambda: exact), "embeddings", telemetry)
    engine = EncoderEngine(
        EMBEDDINGS, PinnedEncoder(Overflowing(bad=bad)), PoolingHead(Pooling.MEAN), 100, fallback=fallback
    )

    found = run(engine, [ids(1, 2), ids(4, 13, 5), ids(6), ids(13)])

    assert [3.0, 22.0, 6.0, 13.0] == [float(row[1]) for row in found]
    assert [1, 1] == exact.runs
    assert 2 == count(telemetry, "nonfinite_outputs_total")
    assert 2 == count(telemetry, "precision_fallbacks_total", outcome="rescued")


def test_float32_is_loaded_once_and_only_when_needed(telemetry):
    """A service that never overflows never pays for it."""
    loads: list[int] = []
    exact = Float32Encoder(lambda: loads.append(1) or Overflowing(poison=-1))
    fallback = Float32Fallback(exact, "embeddings", telemetry)
    engine = EncoderEngine(EMBEDDINGS, PinnedEncoder(Overflowing()), PoolingHead(Pooling.MEAN), 100, fallback=fallback)
    run(engine, [ids(1), ids(2)])
    assert not loads
    run(engine, [ids(13)])
    run(engine, [ids(13, 1)])

    assert [1] == loads


def test_a_dropped_copy_is_loaded_again():
    """It leaves memory with the model it stands in for, and comes back with the next text that needs it."""
    loads: list[int] = []
    exact = Float32Encoder(lambda: loads.append(1) or Overflowing(poison=-1))
    first = exact.get()
    exact.drop()

    assert first is not exact.get()
    assert [1, 1] == loads


def test_a_text_that_is_not_finite_in_float32_either(telemetry):
    """Its caller gets the error of the tree, its neighbour the vector."""
    fallback = Float32Fallback(Float32Encoder(Overflowing), "embeddings", telemetry)
    engine = EncoderEngine(EMBEDDINGS, PinnedEncoder(Overflowing()), PoolingHead(Pooling.MEAN), 100, fallback=fallback)

    good, bad = run(engine, [ids(7), ids(13, 2, 3)])

    assert 7.0 == good[1]
    assert isinstance(bad, InferenceFailed)
    assert "3 tokens" in str(bad)
    assert 1 == count(telemetry, "precision_fallbacks_total", outcome="failed")


def test_a_model_served_in_float32_has_no_fallback():
    engine = EncoderEngine(
        EMBEDDINGS, PinnedEncoder(Overflowing()), PoolingHead(Pooling.MEAN), 100, fallback=NoFallback()
    )

    assert isinstance(run(engine, [ids(13)])[0], InferenceFailed)
