"""An encoder on a device gets everything queued in ``forward``; ``finish`` waits for that batch alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from backend.lanes.engine import EncoderEngine, Float32Encoder, Float32Fallback, PinnedEncoder, TaskHead
from backend.models.encoder import TokenBatch, Vectors, pack
from backend.models.readout import Readout, SequenceLogits
from backend.models.sequence_head import read_sequence_head
from backend.models.spec import Pooling
from backend.models.token_head import read_token_head
from backend.serving.engines.heads import LogitsHead, PoolingHead, SpanSumsHead, TokenLabelsHead
from backend.telemetry import Telemetry
from tests.tiny_models import TinyModels, encoder_of, spec_of
from tests.tiny_scorers import TinyScorers
from tests.tiny_taggers import TinyTaggers


@dataclass
class Device:
    """Queues batches, and says when each is queued and waited for; a text that begins with 13 is not finite."""

    steps: list[Any] = field(default_factory=list)
    readouts: list[Readout] = field(default_factory=list)
    runtime: str = "fake"
    dtype: str = "fp16"
    padding_cost: float = 0.0
    bad: float = np.nan

    def prepare(self, ids: Any) -> TokenBatch:
        return pack(ids)

    def queue(self, batch: TokenBatch, readout: Readout) -> Any:
        self.readouts.append(readout)
        self.steps.append(("queue", batch.tokens))
        return Queued(self, batch)

    def forward(self, batch: TokenBatch) -> Any:
        raise AssertionError("the readout would not be queued with it")

    hidden = pooled = forward


@dataclass
class Queued:
    device: Device
    batch: TokenBatch

    def wait(self) -> tuple[Sequence[Vectors], np.ndarray]:
        self.device.steps.append(("wait", self.batch.tokens))
        first = self.batch.ids[self.batch.starts]
        rows = np.where(first == 13, self.device.bad, first).astype(np.float32)
        return list(rows[:, None]), np.isfinite(rows)


def engine_of(encoder: Any, head: TaskHead | None = None, **options: Any) -> EncoderEngine:
    return EncoderEngine("embeddings", PinnedEncoder(encoder), head or PoolingHead(Pooling.MEAN), 512, **options)


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_the_next_batch_is_queued_before_the_first_is_waited_for():
    """As a lane of depth 2 calls it."""
    device = Device()
    engine = engine_of(device)
    first = engine.forward(engine.prepare([ids(1, 2)]))
    second = engine.forward(engine.prepare([ids(3), ids(4, 5)]))

    assert [1.0] == [float(row[0]) for row in engine.finish(first)]
    assert [3.0, 4.0] == [float(row[0]) for row in engine.finish(second)]
    assert [("queue", 2), ("queue", 3), ("wait", 2), ("wait", 3)] == device.steps


def test_what_the_device_found_not_finite_is_computed_again():
    """Alone, and by an encoder on a device too."""
    exact = Device(bad=7.0)
    fallback = Float32Fallback(Float32Encoder(lambda: exact), "embeddings", Telemetry())
    engine = engine_of(Device(), fallback=fallback)

    found = engine.finish(engine.forward(engine.prepare([ids(1), ids(13, 2), ids(5)])))
    assert [1.0, 7.0, 5.0] == [float(row[0]) for row in found]
    assert [("queue", 2), ("wait", 2)] == exact.steps


def test_a_head_asks_for_one_readout_as_long_as_it_lives(scorers: TinyScorers):
    """The device keeps what it needs for it: an equal one that is another object would be sent and captured again."""
    device, head = Device(), LogitsHead(read_sequence_head(spec_of(scorers.folder("bert"))))
    engine = engine_of(device, head)
    for _ in range(2):
        engine.finish(engine.forward(engine.prepare([ids(1)])))

    assert isinstance(device.readouts[0], SequenceLogits)
    assert device.readouts[0] is device.readouts[1]


@pytest.mark.parametrize("runtime", ["torch", "torch-packed"])
def test_every_head_gives_on_the_device_what_it_gives_here(
    tiny: TinyModels, scorers: TinyScorers, taggers: TinyTaggers, runtime
):
    """Pooled vectors, sums without spans, logits and label probabilities; only results come home."""
    cases: list[tuple[Any, TaskHead]] = [
        (tiny.plain("bert"), head(pooling)) for head in (PoolingHead, SpanSumsHead) for pooling in Pooling
    ]
    folder = scorers.folder("bert")
    cases.append((folder, LogitsHead(read_sequence_head(spec_of(folder)))))
    folder = taggers.folder("bert")
    cases.append((folder, TokenLabelsHead(read_token_head(spec_of(folder)))))
    payloads = [ids(5, 9, 7), ids(8), ids(*range(5, 25))]
    for folder, head in cases:
        here, there = (engine_of(encoder_of(folder, name, "fp32"), head) for name in ("onnx", runtime))
        expected = here.finish(here.forward(here.prepare(payloads)))
        for row, found in zip(expected, there.finish(there.forward(there.prepare(payloads))), strict=True):
            np.testing.assert_allclose(found, row, atol=1e-3 * np.abs(row).max())
