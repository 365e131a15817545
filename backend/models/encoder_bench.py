"""Speed and vectors of an encoder on the probe texts, run on as many threads as there are lanes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np

from backend.models.encoder import Encoder, Ids, Vectors
from backend.models.spec import Pooling

# The best of short windows: other work on the machine only ever makes one slower. Single windows of 0.3 s chose
# budgets of 256, 512 and 1024 in three starts in a row.
_WINDOWS, _WINDOW_S = 3, 0.15
_SINGLES = 16  # probe texts that are also encoded alone


_WARM_STEP, _WARM_TOKENS = 4, 160  # lone texts up to this length are most of the traffic


def warm_up(encoder: Encoder, max_tokens: int) -> None:
    """Run lone texts of every usual length, so that no early request waits for a kernel to be compiled."""
    for length in range(_WARM_STEP, min(_WARM_TOKENS, max_tokens) + 1, _WARM_STEP):
        _run(encoder, [np.ones(length, np.int64)])


class Bench:
    """The probe texts, shortest first. Belongs to the start: nothing else runs meanwhile."""

    def __init__(self, ids: Sequence[Ids], *, lanes: int, budget: int) -> None:
        """``budget``: padded tokens of a batch unless a call says otherwise."""
        self._lanes, self._budget = lanes, budget
        self._ids = sorted(ids, key=len)

    def vectors(self, encoder: Encoder) -> Vectors:
        """(texts, width), mean-pooled, computed in batches within the budget."""
        return np.concatenate([_run(encoder, batch) for batch in batches(self._ids, self._budget)])

    def alone(self, encoder: Encoder) -> tuple[list[int], Vectors]:
        """Some texts of every length encoded one by one: their places and vectors."""
        step = max(1, len(self._ids) // _SINGLES)
        places = list(range(0, len(self._ids), step))
        return places, np.concatenate([_run(encoder, [self._ids[place]]) for place in places])

    def speed(self, encoder: Encoder, budget: int | None = None) -> float:
        """Tokens a second, all lanes together, after one pass that compiles the shapes."""
        work = batches(self._ids, budget or self._budget)
        for batch in work:
            _run(encoder, batch)
        return max(self._window(encoder, work) for _ in range(_WINDOWS))

    def _window(self, encoder: Encoder, work: list[list[Ids]]) -> float:
        endless, lock, done = cycle(work), threading.Lock(), list[int]()
        started = time.perf_counter()
        arguments = (encoder, endless, lock, done, started + _WINDOW_S)
        threads = [threading.Thread(target=_work, args=arguments) for _ in range(self._lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - started)


def batches(ids: Sequence[Ids], budget: int) -> list[list[Ids]]:
    """Consecutive texts, shortest first, while longest x count stays within the budget."""
    cut: list[list[Ids]] = [[]]
    for text in ids:
        if cut[-1] and len(text) * (len(cut[-1]) + 1) > budget:
            cut.append([])
        cut[-1].append(text)
    return cut


def _work(
    encoder: Encoder, endless: Iterator[list[Ids]], lock: threading.Lock, done: list[int], until_s: float
) -> None:
    while time.perf_counter() < until_s:
        with lock:
            batch = next(endless)
        _run(encoder, batch)
        done.append(sum(map(len, batch)))


def _run(encoder: Encoder, ids: Sequence[Ids]) -> Vectors:
    batch = encoder.prepare(ids)
    return encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN)
