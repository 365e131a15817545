"""The benchmark of fields in the caller's words: its papers say what they claim to, and its figures count right."""

from __future__ import annotations

import random
from collections import Counter

import pypdfium2
import pytest

from benchmarks.own_words import ABSENT, HELD_OUT_LAYOUTS, NAMED, asked_for, make_paper, make_series, read_kinds, row


def test_a_paper_prints_its_values() -> None:
    """Each name and value is on the page, and the same seed makes the same paper."""
    paper, again = (make_paper(random.Random(3), read_kinds()) for _ in range(2))
    with pypdfium2.PdfDocument(paper.pdf) as document:
        text = document[0].get_textpage().get_text_bounded()

    assert paper == again
    assert all(name in text and said in text for name, said in paper.printed.values())


@pytest.mark.parametrize("layout", HELD_OUT_LAYOUTS)
def test_papers_that_are_set_alike(layout: str) -> None:
    """Papers of a series have the same names for the same fields and print them, in the layout that is wanted."""
    papers = make_series(random.Random(3), read_kinds(), 2, layout, alike=True)

    names = [{number: name for number, (name, _) in paper.printed.items()} for paper in papers]
    assert 3 == len(papers)
    assert all(one[number] == names[0][number] for one in names for number in one if number in names[0])
    for paper in papers:
        with pypdfium2.PdfDocument(paper.pdf) as document:
            text = document[0].get_textpage().get_text_bounded().lower()
        assert all(name.lower() in text and said.lower() in text for name, said in paper.printed.values())


@pytest.mark.parametrize("named", NAMED)
def test_what_is_asked_for(named: str) -> None:
    """All that a paper says, in the words that are wanted, and some that it does not say."""
    rng, kinds = random.Random(5), read_kinds()
    paper = make_paper(rng, kinds)
    asked = asked_for(paper, kinds, named, rng)

    printed = {name.lower() for name, _ in paper.printed.values()}
    assert len(paper.printed) == sum(said is not None for _, said in asked.values())
    assert ABSENT == sum(said is None for _, said in asked.values())
    assert (named == NAMED[0]) == (printed <= {name.lower() for name in asked})


def test_figures() -> None:
    """One right of two answers, of four values: F1 1/3, precision 1/2, recall 1/4."""
    counts = Counter(found=2, there=4, right=1)

    assert "| x | 4 | 0.33 | 0.33 | 0.50 | 0.25 | 0.10 |" == row("x", [("tab", counts, [(0.9, True), (0.1, False)])])
