"""Selection of the sentences of a summary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.text.key_sentences import SummaryLength, select_summary, summary_candidates

PROSE = "The tenant pays the rent of number {} in the first days of each month."
BACK = "This obligation of number {} ends with the lease of the flat."


def vectors(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float32)


def selected(texts: list[str], rows: np.ndarray, length: SummaryLength, tokens: list[int] | None = None) -> list[int]:
    """Indexes in the texts."""
    candidates = summary_candidates(texts, "en")
    chosen = select_summary(
        [texts[index] for index in candidates.indexes],
        candidates.before,
        rows[candidates.indexes],
        np.array([1, 0], np.float32),
        length=length,
        tokens=np.array(tokens or [10] * len(texts))[candidates.indexes],
    )
    return [int(candidates.indexes[sentence.index]) for sentence in chosen]


def test_a_reference_comes_with_the_sentence_before_it() -> None:
    """Both or neither: with room for one sentence only, it is another one."""
    texts = [PROSE.format(0), PROSE.format(1), BACK.format(1), PROSE.format(2)]
    rows = vectors((0, 1), (0.9, 0.1), (0.9, -0.3), (0.5, 0.5))

    assert [1] == selected(texts, rows, SummaryLength(sentences=1))
    assert [1, 2] == selected(texts, rows, SummaryLength(sentences=2))


def test_a_reference_after_what_cannot_be_quoted_is_left_out() -> None:
    """After a heading, a row or a sentence cut off, nothing tells what it refers to."""
    texts = ["2. OBLIGATIONS", BACK.format(1), PROSE.format(1), "and so on until the", BACK.format(2)]

    assert [2] == summary_candidates(texts, "en").indexes.tolist()


def test_a_run_of_references() -> None:
    """However long: each comes with all those before it."""
    texts = [PROSE.format(0), *(BACK.format(number) for number in range(3))]
    candidates = summary_candidates(texts, "en")

    assert [[0, 1, 2, 3], [0, 1, 2, 3]] == [candidates.indexes.tolist(), candidates.before.tolist()]


def test_with_room_for_all_every_sentence_that_qualifies_comes() -> None:
    """A short one with a figure too: "Dicho recorte supondría 300.000 euros." has four words."""
    texts = [
        "La oposición pide que se reduzcan los gastos de representación.",
        "Dicho recorte supondría 300.000 euros.",
    ]
    candidates = summary_candidates(texts, "es")

    assert [[0, 1], [0, 1]] == [candidates.indexes.tolist(), candidates.before.tolist()]


FOOTER = "The committee reviewed the calendar and agreed to keep its meetings."


def test_what_pages_repeat_is_left_out() -> None:
    """Three times anywhere, page numbers apart; what is like it but for a figure stays."""
    texts = [
        text
        for number in (1, 2, 3)
        for text in (PROSE.format(number), f"{FOOTER[:-1]} of the regional delegates, page {number} of 3.")
    ]

    assert [0, 2, 4] == summary_candidates(texts, "en").indexes.tolist()


def test_what_two_pages_repeat_at_their_ends_is_left_out() -> None:
    """Twice on one page, or in the middle of pages, it is a point that is made again."""
    body = [PROSE.format(number) for number in range(8)]
    texts = [*body[:4], FOOTER, *body[4:], FOOTER]
    pages = [0] * 5 + [1] * 5

    assert [0, 1, 2, 3, 5, 6, 7, 8] == summary_candidates(texts, "en", pages=pages).indexes.tolist()
    assert list(range(10)) == summary_candidates(texts, "en").indexes.tolist()


def test_the_first_sentence_may_refer() -> None:
    """Whoever reads the text lacks as much as whoever reads its summary."""
    assert [0] == summary_candidates([BACK.format(1)], "en").indexes.tolist()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("REPORT OF THE INDEPENDENT AUDITORS ON THE ANNUAL ACCOUNTS OF THE YEAR 2023.", id="capitals"),
        pytest.param("of the flat, which the tenant pays in the first days of each month.", id="without-its-beginning"),
        pytest.param("The tenant pays the rent in the first days of each", id="without-its-end"),
        pytest.param("Total 1,284.50 1,061.57 222.93 21.00 17.20 12.", id="row"),
    ],
)
def test_what_is_no_whole_sentence_is_left_out(text: str) -> None:
    """As long as there are whole ones."""
    assert [0] == summary_candidates([PROSE, text], "en").indexes.tolist()


def test_tokens() -> None:
    """A sentence that does not fit is passed over for one that does; none is cut."""
    texts = [PROSE.format(number) for number in range(3)]
    rows = vectors((1, 0), (0.9, 0.1), (0, 1))

    assert [1, 2] == selected(texts, rows, SummaryLength(tokens=25), [30, 12, 12])
    assert [] == selected(texts, rows, SummaryLength(tokens=11), [30, 12, 12])
    assert [1] == selected(texts, rows, SummaryLength(sentences=1, tokens=25), [30, 12, 12])


@given(
    kinds=st.lists(st.sampled_from([PROSE, BACK, "2. HEADING"]), max_size=12),
    sentences=st.integers(1, 5),
    tokens=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_no_summary_breaks_a_rule(kinds: list[str], sentences: int, tokens: int, seed: int) -> None:
    """Whatever the text: within both lengths, and what refers has the sentence before it."""
    texts = [kind.format(number) for number, kind in enumerate(kinds)]
    numbers = np.random.default_rng(seed)
    rows = numbers.standard_normal((len(texts), 2)).astype(np.float32)
    costs = numbers.integers(1, 30, len(texts)).tolist()
    chosen = selected(texts, rows, SummaryLength(sentences, tokens), costs)

    assert len(chosen) <= sentences
    assert sum(costs[index] for index in chosen) <= tokens
    assert all(index == 0 or not texts[index].startswith("This") or index - 1 in chosen for index in chosen)
    assert not any("HEADING" in texts[index] for index in chosen)


def test_a_book_is_thinned() -> None:
    """The candidates of a text of any length are bounded; they come from all of it."""
    texts = [PROSE.format(number) for number in range(9_000)]
    indexes = summary_candidates(texts, "en").indexes

    assert 4000 < len(indexes) <= 8192
    assert indexes[0] == 0
    assert indexes[-1] > 8_990
