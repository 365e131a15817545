"""The answer task: of the tokens of a question and a passage, those of the passage that answer the question.

A token classifier of three labels is a span head: where the logits of START and END are taken less that of OUTSIDE,
their sum over a first and a last token is the logit of the span between them, and the first token of the pair stands
for "no answer here". So it is trained, kept and served as a tagger is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from backend.models.encoder import Vectors

TASK = "answer"  # the engine's name, and a label of its metrics
LABELS = ("O", "START", "END")  # of the model, in this order
MAX_TOKENS = 40  # of an answer
_LEAST = 1e-30  # of a probability: float32 has none smaller whose logarithm is finite


class Span(NamedTuple):
    """The best answer within a passage."""

    first: int  # of its tokens, among the passage's; both included
    last: int
    margin: float  # its logit less that of no answer


def best_span(probabilities: Vectors, start: int, stop: int) -> Span:
    """The run of at most ``MAX_TOKENS`` tokens that answers best; whether it does, its margin tells.

    Args:
        probabilities: of the pair's tokens, (tokens, 3).
        start, stop: the passage's tokens, one at least.
    """
    totals, nowhere = _totals(probabilities, start, stop)
    return _best(totals, nowhere)


def best_span_within(probabilities: Vectors, start: int, stop: int, places: Sequence[tuple[int, int]]) -> Span | None:
    """The same of the runs that have a token of one of the places; None where there are none.

    Args:
        places: first and past-last tokens, among the passage's.
    """
    totals, nowhere = _totals(probabilities, start, stop)
    firsts = np.arange(stop - start)[:, None]
    lasts = firsts + np.arange(MAX_TOKENS)
    touching = [(firsts < past) & (lasts >= first) for first, past in places]
    totals = np.where(np.any(touching, axis=0), totals, -np.inf)
    return _best(totals, nowhere) if np.isfinite(totals).any() else None


def _totals(probabilities: Vectors, start: int, stop: int) -> tuple[NDArray[np.float64], float]:
    """The logit of each run, by its first token and how much further its last one is, and that of no answer."""
    logs = np.log(np.maximum(probabilities, _LEAST), dtype=np.float64)
    logits = logs[:, 1:] - logs[:, :1]
    begins, ends = logits[start:stop].T
    lasts = sliding_window_view(np.append(ends, np.full(MAX_TOKENS - 1, -np.inf)), MAX_TOKENS)
    return begins[:, None] + lasts, float(logits[0].sum())


def _best(totals: NDArray[np.float64], nowhere: float) -> Span:
    first, further = divmod(int(totals.argmax()), MAX_TOKENS)
    return Span(first, first + further, float(totals[first, further]) - nowhere)
