"""How encoders are measured: batches within the budget, texts alone and together, as many threads as lanes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.models import encoder_bench
from backend.models.encoder import pack, pool
from backend.models.encoder_bench import Bench, batches


class CountingEncoder:
    """Gives each token its own id as a vector and remembers the batches, and how many ran at once."""

    runtime, dtype = "fake", "fp32"

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
    found = batches(ids, budget)

    assert [text for batch in found for text in map(len, batch)] == sorted(lengths)
    assert all(len(batch) == 1 or len(batch[-1]) * len(batch) <= budget for batch in found)
    assert all(found)


def test_vectors_come_in_the_order_of_length():
    """Shortest first, whatever the order given; every row one text."""
    vectors = Bench(texts([9, 2, 30, 4]), lanes=1, budget=32).vectors(CountingEncoder())

    assert [[2.0], [4.0], [9.0], [30.0]] == vectors.tolist()


def test_alone_means_batches_of_one():
    """Places and vectors of texts of every length, each encoded by itself."""
    encoder = CountingEncoder()
    lengths = list(range(1, 65))

    places, vectors = Bench(texts(lengths), lanes=2, budget=512).alone(encoder)

    assert all(len(size) == 1 for size in encoder.sizes)
    assert len(places) == 16
    assert [[float(lengths[place])] for place in places] == vectors.tolist()


@pytest.mark.parametrize("lanes", [1, 3])
def test_speed_never_uses_more_threads_than_lanes(monkeypatch, lanes):
    """Tokens of all lanes together, measured as the lanes will run: no more batches at once than there are lanes."""
    monkeypatch.setattr(encoder_bench, "_WINDOW_S", 0.05)
    monkeypatch.setattr(encoder_bench, "_WINDOWS", 1)
    encoder = CountingEncoder()

    speed = Bench(texts([4, 8, 12]), lanes=lanes, budget=16).speed(encoder)

    assert speed > 0
    assert 1 <= encoder.most_inside <= lanes


def test_speed_at_another_budget(monkeypatch):
    """The budget of the call cuts the batches."""
    monkeypatch.setattr(encoder_bench, "_WINDOW_S", 0.0)
    encoder = CountingEncoder()

    Bench(texts([8] * 8), lanes=1, budget=8).speed(encoder, 32)

    assert [[8] * 4] * 2 == encoder.sizes[:2]


@pytest.mark.parametrize("max_tokens", [3, 48, 512])
def test_warming_never_passes_the_models_length(max_tokens):
    """Lone texts of rising lengths, none longer than the position table."""
    encoder = CountingEncoder()

    encoder_bench.warm_up(encoder, max_tokens)

    lengths = [length for [length] in encoder.sizes]
    assert sorted(set(lengths)) == lengths
    assert max(lengths, default=0) <= max_tokens
    assert bool(lengths) == (max_tokens >= 4)
