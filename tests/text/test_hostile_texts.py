"""Texts made to take long: work grows with their length, never with its square."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from backend.errors import CallerGone
from backend.models.words import word_places
from backend.text.entity_merge import merge
from backend.text.key_phrases import phrase_candidates
from backend.text.language import detect
from backend.text.patterns import PATTERN_TYPES, find_patterns
from backend.text.sentences import sentence_spans

UNITS = (
    *("a ", "a", "1", "@", "(", "\n", ".  ", "a\u0301", "\u0301", "1 ", "1-", " ", "1.", "a@a.", "http://", "1€ "),
    *("ES12 ", "12345678Z ", "S.A. ", "1 mar ", "+34 ", "中", "ab\n", "Ab Cd ", "- a\n", "…", "[", "'", "\t"),
)
SHORT, LONG = 15_000, 60_000
LINEAR, QUADRATIC = LONG / SHORT, (LONG / SHORT) ** 2
BASE_S = 0.02  # what takes less says nothing about its growth


def analyse(text: str) -> None:
    """Everything that is done to a text without a model."""
    language = detect(text)
    merge(find_patterns(text), PATTERN_TYPES)
    phrase_candidates(text, word_places(text), sentence_spans(text), language.code if language else None)


def cpu_s(work: Callable[[str], None], text: str) -> float:
    """The least of three: seconds of this thread, not of the machine."""
    seconds = []
    for _ in range(3):
        started_s = time.thread_time()
        work(text)
        seconds.append(time.thread_time() - started_s)
    return min(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_four_times_the_text_is_far_from_sixteen_times_the_work(unit):
    detect("la factura")  # reads its model
    short, long = (cpu_s(analyse, unit * (length // len(unit))) for length in (SHORT, LONG))

    assert long < max(short, BASE_S) * (LINEAR + QUADRATIC) / 2


@pytest.mark.parametrize("unit", ["1€ ", "1 ", "factura uno "])
def test_patterns_and_phrases_end_when_nobody_waits(unit):
    """They ask often enough: after a part of the text."""
    text, asked = unit * 5_000, []

    def check() -> None:
        asked.append(1)
        if len(asked) == 3:
            raise CallerGone("nobody waits")

    with pytest.raises(CallerGone):
        find_patterns(text, check=check)
    asked.clear()
    with pytest.raises(CallerGone):
        phrase_candidates(text, word_places(text), sentence_spans(text), "es", check=check)
