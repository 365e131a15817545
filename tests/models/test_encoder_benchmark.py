"""How encoders are measured and compared with float32, and which measurements pass."""

import threading
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from backend.models import encoder_benchmark
from backend.models.encoder import pack, pool
from backend.models.encoder_benchmark import (
    AUTO,
    FAST,
    EncoderBenchmark,
    Fidelity,
    cut_batches,
    measure_fidelity,
    probe_texts,
    rejection_reason,
    spearman,
)
from backend.models.readout import PooledVectors
from backend.models.spec import Pooling
from tests.tiny_models import tokenizer_of

PERFECT = Fidelity(batch_single=1.0, spearman=1.0, neighbours=1.0, cosine=1.0)
NAN = float("nan")


def cloud(texts: int = 24, width: int = 16, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((texts, width)).astype(np.float32)


def test_foreign_vectors_are_unfaithful():
    """Vectors of another model order the pairs otherwise and have other neighbours."""
    vectors = cloud()

    found = measure_fidelity(vectors, vectors[:1], vectors[:1], cloud(seed=8))

    assert abs(found.spearman) < 0.3
    assert found.neighbours < 0.5
    assert "Spearman" in rejection_reason(found, FAST)


@pytest.mark.parametrize(
    ("fidelity", "thresholds", "expected"),
    [
        pytest.param(PERFECT, AUTO, "", id="perfect"),
        pytest.param(Fidelity(0.9999, 0.995, 0.9, 0.5), AUTO, "", id="exactly-at-the-threshold"),
        pytest.param(Fidelity(0.9998, 1.0, 1.0, 1.0), AUTO, "neighbours change", id="batch-differs-from-single"),
        pytest.param(Fidelity(0.9998, 1.0, 1.0, 1.0), FAST, "neighbours change", id="not-even-fast-allows-that"),
        pytest.param(Fidelity(1.0, 0.994, 1.0, 1.0), AUTO, "Spearman 0.9940 < 0.995", id="other-order"),
        pytest.param(Fidelity(1.0, 0.981, 0.85, 1.0), FAST, "", id="fast-lowers-the-thresholds"),
        pytest.param(Fidelity(1.0, 0.979, 1.0, 1.0), FAST, "Spearman", id="but-not-to-zero"),
        pytest.param(Fidelity(1.0, 1.0, 0.89, 1.0), AUTO, "nearest neighbours", id="other-neighbours"),
        pytest.param(Fidelity(NAN, 1.0, 1.0, 1.0), AUTO, "neighbours change", id="nan-in-a-batch"),
        pytest.param(Fidelity(1.0, NAN, 1.0, 1.0), AUTO, "Spearman", id="nan-in-similarities"),
        pytest.param(Fidelity(1.0, 1.0, NAN, 1.0), AUTO, "nearest neighbours", id="nan-in-neighbours"),
    ],
)
def test_rejection_reason(fidelity, thresholds, expected):
    """The first threshold that is missed gives the reason; an empty reason means accepted."""
    found = rejection_reason(fidelity, thresholds)

    assert expected in found
    assert bool(expected) == bool(found)


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=50, unique=True), st.randoms(use_true_random=False))
def test_spearman_is_scipys(values, random):
    """Without ties it is the textbook's rank correlation."""
    first = np.array(values, np.float32)
    others = values.copy()
    random.shuffle(others)
    second = np.array(others, np.float32)

    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-6)


class CountingEncoder:
    """Gives each token its own id as a vector and remembers the batches, and how many ran at once."""

    runtime, dtype, padding_cost = "fake", "fp32", 1.0

    def __init__(self) -> None:
        self.sizes: list[list[int]] = []
        self.inside = self.most_inside = 0
        self._lock = threading.Lock()

    def prepare(self, ids):
        self.sizes.append([len(text) for text in ids])
        return pack(ids)

    def forward(self, batch):
        with self._lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        hidden = batch.ids[:, None].astype(np.float32)
        with self._lock:
            self.inside -= 1
        return hidden

    def pooled(self, output, batch, pooling):
        return pool(output, batch, pooling)


def texts(lengths: list[int]) -> list[np.ndarray]:
    return [np.full(length, length, np.int64) for length in lengths]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(16, 1024))
def test_batches_keep_order_and_budget(lengths, budget):
    """Every text once, in order; longest x count within the budget unless alone."""
    ids = texts(sorted(lengths))
    found = cut_batches(ids, budget)

    assert [text for batch in found for text in map(len, batch)] == sorted(lengths)
    assert all(len(batch) == 1 or len(batch[-1]) * len(batch) <= budget for batch in found)
    assert all(found)


def test_batched_and_single_vectors_are_of_the_same_texts():
    """Probe texts of every length and texts of one word: in batches, then each in a batch of its own."""
    encoder, benchmark = CountingEncoder(), EncoderBenchmark(texts(list(range(1, 65))), lanes=2, budget=512)
    vectors = benchmark.vectors(encoder)
    encoder.sizes.clear()

    batched, single = benchmark.batched_and_single(encoder, vectors)

    assert [[1, 2, 3, 4, 6, 8, 64], *([length] for length in range(1, 65, 4)), *([n] for n in (1, 2, 3, 4, 6, 8))] == (
        encoder.sizes
    )
    assert batched.tolist() == single.tolist()


@pytest.mark.parametrize("lanes", [1, 3])
def test_speed_never_uses_more_threads_than_lanes(monkeypatch, lanes):
    """Tokens of all lanes together, measured as the lanes will run: no more batches at once than there are lanes."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.05)
    monkeypatch.setattr(encoder_benchmark, "WINDOWS", 1)
    encoder = CountingEncoder()

    speed = EncoderBenchmark(texts([4, 8, 12]), lanes=lanes, budget=16).speed(encoder)

    assert speed > 0
    assert 1 <= encoder.most_inside <= lanes


def test_a_speed_is_of_the_given_clock():
    """Other processes lengthen a window, and not the seconds that it is measured in: 8 tokens a hundredth of one."""
    encoder, now = CountingEncoder(), [0.0]
    forward = encoder.forward

    def run(batch):
        now[0] += 0.01
        return forward(batch)

    encoder.forward = run

    assert 800 == pytest.approx(EncoderBenchmark(texts([8]), lanes=1, budget=8, clock=lambda: now[0]).speed(encoder))


def test_speed_on_an_accelerator_fills_its_batches(monkeypatch):
    """A probe of 30 tokens is repeated to eight budgets of 64: batches are full, in no order of length."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.0)
    encoder, benchmark = CountingEncoder(), EncoderBenchmark(texts([8, 10, 12]), lanes=1, budget=64, budgets_at_least=8)
    benchmark.speed(encoder)
    run = [text for batch in encoder.sizes for text in batch]

    assert sum(run) >= 8 * 64
    assert {len(batch) for batch in encoder.sizes} >= {5, 6, 8}
    assert run != sorted(run)


def test_a_slow_device_is_measured_on_a_part(monkeypatch):
    """Warming up ends after some seconds, and only what was warm is measured."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.01)
    monkeypatch.setattr(encoder_benchmark, "WARM_UP_S", -1.0)
    encoder = CountingEncoder()
    EncoderBenchmark(texts([8, 16]), lanes=1, budget=16, budgets_at_least=8).speed(encoder)

    assert 1 == len({tuple(batch) for batch in encoder.sizes})


def test_an_encoder_that_reads_on_its_device_is_measured_so():
    """Its queue is what serving calls: graphs and copies home are in the numbers."""
    calls: list[object] = []

    class Queued(CountingEncoder):
        def queue(self, batch, readout):
            calls.append(readout)
            vectors = self.pooled(self.forward(batch), batch, readout.pooling)
            results = Mock()
            results.wait.return_value = (list(vectors), np.ones(len(vectors), np.bool_))
            return results

    vectors = encoder_benchmark.encode_batch(Queued(), texts([4, 9]))

    assert [PooledVectors(Pooling.MEAN)] == calls
    assert [[4.0], [9.0]] == vectors.tolist()


@pytest.mark.parametrize(("depth", "expected"), [(1, 1), (2, 2)])
def test_batches_in_flight_are_those_of_a_lane(monkeypatch, depth, expected):
    """The next batch is launched before the last one is waited for."""
    monkeypatch.setattr(encoder_benchmark, "WINDOW_S", 0.01)
    encoder = CountingEncoder()
    launched: list[int] = [0]
    most: list[int] = []
    forward, pooled = encoder.forward, encoder.pooled

    def launch(batch):
        launched[0] += 1
        most.append(launched[0])
        return forward(batch)

    def wait(output, batch, pooling):
        launched[0] -= 1
        return pooled(output, batch, pooling)

    encoder.forward, encoder.pooled = launch, wait
    EncoderBenchmark(texts([8, 16]), lanes=1, budget=16, depth=depth).speed(encoder)

    assert expected == max(most)
    assert 0 == launched[0], "nothing is left in flight"


def test_what_fails_in_a_window_fails_the_measurement(monkeypatch):
    """An error on a lane's thread is the candidate's, not a speed of nothing."""
    encoder = CountingEncoder()
    pooled = encoder.pooled

    def fail_later(output, batch, pooling):
        if len(encoder.sizes) > 1:
            raise RuntimeError("CUDA out of memory")
        return pooled(output, batch, pooling)

    encoder.pooled = fail_later
    with pytest.raises(RuntimeError, match="out of memory"):
        EncoderBenchmark(texts([8]), lanes=1, budget=16).speed(encoder)


def test_the_cost_of_a_launch_in_tokens(monkeypatch):
    """A lone text of 8 tokens at 1,000 tokens a second takes 8 ms, in which full batches have 4,000."""
    benchmark = EncoderBenchmark(texts([30, 8]), lanes=1, budget=16)
    monkeypatch.setattr(benchmark, "_best_window", lambda encoder, batches: 1000.0 * (batches == [[benchmark._ids[0]]]))

    assert 4000 == benchmark.launch_tokens(CountingEncoder(), 500_000.0)


def test_batches_without_padding_are_cut_by_their_sum():
    """Rows laid end to end fill the budget, whatever the longest."""
    assert [[1, 1, 2], [8], [9]] == [
        [*map(len, batch)] for batch in cut_batches(texts([1, 1, 2, 8, 9]), 10, packed=True)
    ]


def test_texts_are_many_different_and_of_mixed_lengths():
    """Real traffic of this kind: mean near 40 tokens, from a sentence to a page, nothing cut."""
    texts = probe_texts()
    tokens = tokenizer_of("minilm").encode(texts)
    lengths = np.array([len(text.ids) for text in tokens])

    assert len(set(texts)) == len(texts) == 64
    assert 30 <= lengths.mean() <= 55
    assert lengths.min() <= 16
    assert lengths.max() >= 150
    assert sum(text.truncated for text in tokens) <= 4
