"""The answer task: of the tokens of a question and a passage, those of the passage that answer the question.

A token classifier of three labels is a span head: where the logits of START and END are taken less that of OUTSIDE,
their sum over a first and a last token is the logit of the span between them, and the first token of the pair stands
for "no answer here". So it is trained, kept and served as a tagger is. A type of entities is asked for alike, by a
question that may have many answers, of a model of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from backend.models.encoder import Vectors

TASK, LABEL_TASK = "answer", "label"  # of questions and of types: the engines' names, and labels of their metrics
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
    logits = _logits(probabilities)
    begins, ends = logits[start:stop].T
    lasts = sliding_window_view(np.append(ends, np.full(MAX_TOKENS - 1, -np.inf)), MAX_TOKENS)
    return begins[:, None] + lasts, float(logits[0].sum())


def _best(totals: NDArray[np.float64], nowhere: float) -> Span:
    first, further = divmod(int(totals.argmax()), MAX_TOKENS)
    return Span(first, first + further, float(totals[first, further]) - nowhere)


def type_question(name: str, description: str = "") -> str:
    """How a type of entities is asked for, as it was taught."""
    return f"Which {name} is mentioned?" + (f" ({description})" if description else "")


def spans(probabilities: Vectors, start: int, stop: int) -> tuple[NDArray[np.int64], Vectors]:
    """The last token of the likeliest run of at most ``MAX_TOKENS`` from each token of a passage on, and its margin.

    The margin is the mean of its beginning's and its end's, and of the logarithm of how likely nothing inside begins or
    ends: two answers with what is between them are no answer.

    Args:
        probabilities: of the pair's tokens, (tokens, 3).
        start, stop: the passage's tokens, one at least.
    """
    logits = _logits(probabilities)
    margins = logits[start:stop] - logits[0]
    doubts = np.concatenate([np.zeros((1, 2)), np.logaddexp(0, margins).cumsum(axis=0)])
    firsts = np.arange(len(margins))[:, None]
    lasts = np.minimum(firsts + np.arange(MAX_TOKENS), len(margins) - 1)
    inside = doubts[lasts + 1, 0] - doubts[firsts + 1, 0] + doubts[lasts, 1] - doubts[firsts, 1]
    totals = (margins[firsts, 0] + margins[lasts, 1] - inside) / 2
    best = totals.argmax(axis=1)
    return lasts[firsts[:, 0], best], totals[firsts[:, 0], best]


def _logits(probabilities: Vectors) -> Vectors:
    """START and END less O, (tokens, 2)."""
    logs = np.log(np.maximum(probabilities, _LEAST), dtype=np.float64)
    return logs[:, 1:] - logs[:, :1]
