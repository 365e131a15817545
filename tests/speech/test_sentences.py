"""Segments end where sentences do, and nothing of the text, the words and the tokens is lost."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.files.speech_records import Segment, SpokenWord, gap, joined
from backend.speech.sentences import JOINED_PAUSE_S, SentenceJoiner, cut_at_sentences


def spoken(text: str, start_s: float = 0.0, each_s: float = 0.5) -> Segment:
    """A segment with times of its words, and as many tokens."""
    texts = text.split()
    words = tuple(
        SpokenWord(word, start_s + index * each_s, start_s + (index + 1) * each_s, 0.9)
        for index, word in enumerate(texts)
    )
    return Segment(start_s, start_s + len(texts) * each_s, text, words, tuple(range(len(texts))), "es")


def split_by_words(tokens: Sequence[int], texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Of a model whose tokens are words."""
    edges = [0]
    for text in texts:
        edges.append(edges[-1] + len(text.split()))
    return [tuple(tokens[first:last]) for first, last in pairwise(edges)]


def cut(segment: Segment) -> tuple[Segment, ...]:
    return cut_at_sentences(segment, split_by_words)


def by_sentence(*segments: Segment) -> list[Segment]:
    joiner = SentenceJoiner()
    return [*joiner.add(part for segment in segments for part in cut(segment)), *joiner.finish()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("¿Qué hora es? Son las tres.", ["¿Qué hora es?", "Son las tres."], id="spanish"),
        pytest.param("Dr. Smith came. He paid $3.50!", ["Dr. Smith came.", "He paid $3.50!"], id="no-ends"),
        pytest.param("El Sr. Ruiz vive en EE. UU. desde 1.999.", ["El Sr. Ruiz vive en EE. UU. desde 1.999."], id="es"),
        pytest.param("Wait… what? No.", ["Wait… what?", "No."], id="an-ellipsis-goes-on"),
        pytest.param("sin puntos ni comas", ["sin puntos ni comas"], id="no-stop"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_a_segment_is_cut_at_its_sentences(text: str, expected: list[str]) -> None:
    """Stops of abbreviations and numbers end none; each sentence has the times of its words, and their tokens."""
    segment = spoken(text, 10.0)
    parts = cut(segment)

    assert expected == [part.text for part in parts if part.text]
    assert segment.words == tuple(word for part in parts for word in part.words)
    assert segment.tokens == tuple(token for part in parts for token in part.tokens)
    for part in parts[: len(segment.words)]:
        assert (part.words[0].start_s, part.words[-1].end_s) == (part.start_s, part.end_s)


def test_without_words_the_time_is_shared_out() -> None:
    """By characters; a wide one takes the time of two."""
    first, second = cut(Segment(10.0, 20.0, "uno dos. Tres cua."))
    chinese = cut(Segment(0.0, 4.0, "你好。再见。"))

    assert [(10.0, 14.737), (14.737, 20.0)] == [(part.start_s, part.end_s) for part in (first, second)]
    assert ["你好。", "再见。"] == [part.text for part in chinese]
    assert chinese[0].end_s == chinese[1].start_s == pytest.approx(2.0, abs=0.2)


def test_languages_without_spaces_are_cut_between_words() -> None:
    """The first word of a sentence is joined to none; within a word nothing is cut."""
    words = [SpokenWord(text, at, at + 1.0, 0.9, at > 0) for at, text in enumerate(["你好", "。", "再见", "。"])]
    segment = Segment(0.0, 4.0, "你好。再见。", tuple(words))
    within = replace(segment, words=(SpokenWord("你好。再见。", 0.0, 4.0, 0.9),))
    first, second = cut(segment)

    assert [(0.0, 2.0, "你好。"), (2.0, 4.0, "再见。")] == [
        (part.start_s, part.end_s, part.text) for part in (first, second)
    ]
    assert [False, True, False, True] == [word.is_joined for part in (first, second) for word in part.words]
    assert (within,) == cut(within)


@pytest.mark.parametrize("text", ["你好。OK", "你好。 再见。"])
def test_no_cut_changes_the_text(text: str) -> None:
    """Segments are joined with a space unless both sides are wide: the text would have another one, or lose its own."""
    assert [text] == [part.text for part in cut(Segment(0.0, 4.0, text))]


def test_a_sentence_goes_on_in_the_next_segment() -> None:
    """Numbers are weighted by tokens, the higher temperature counts, and a cut at either end is told."""
    before = replace(spoken("Ayer vino el"), avg_logprob=-0.2, temperature=0.2, no_speech_prob=0.1, is_cut=True)
    after = replace(spoken("médico.", 1.7), avg_logprob=-1.0, compression_ratio=2.0, no_speech_prob=0.1)
    [segment] = by_sentence(before, after)

    assert (0.0, 2.2, "Ayer vino el médico.") == (segment.start_s, segment.end_s, segment.text)
    assert (*before.words, *after.words) == segment.words
    assert (0, 1, 2, 0) == segment.tokens
    assert (-0.4, 1.25, 0.1, 0.2, True) == (
        pytest.approx(segment.avg_logprob),
        segment.compression_ratio,
        segment.no_speech_prob,
        segment.temperature,
        segment.is_cut,
    )


OPEN = spoken("Ayer vino el")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(OPEN, spoken("médico.", 1.5 + JOINED_PAUSE_S), id="a-long-pause"),
        pytest.param(OPEN, replace(spoken("doctor.", 1.5), language="en"), id="another-language"),
        pytest.param(replace(OPEN, speaker=0), replace(spoken("médico.", 1.5), speaker=1), id="another-speaker"),
        pytest.param(replace(OPEN, is_cut=True), replace(spoken("médico.", 1.5), is_cut=True), id="a-cut"),
        pytest.param(OPEN, spoken("médico.", 1.5, each_s=30.0), id="too-long"),
        pytest.param(OPEN, replace(spoken("médico.", 1.5), words=()), id="words-of-one-alone"),
        pytest.param(spoken("Ayer vino."), spoken("Hoy no.", 1.0), id="an-end"),
    ],
)
def test_what_ends_a_segment(before: Segment, after: Segment) -> None:
    """A full stop, or what no sentence should go on over."""
    assert [before, after] == by_sentence(before, after)


def test_an_abbreviation_at_the_end_of_a_segment_ends_no_sentence() -> None:
    """What follows tells."""
    assert ["Llama al Dr. Ruiz."] == [part.text for part in by_sentence(spoken("Llama al Dr."), spoken("Ruiz.", 1.5))]


def test_words_of_joined_segments_stand_as_their_text_does() -> None:
    """Without a space between wide letters."""
    first = Segment(0.0, 1.0, "東京", (SpokenWord("東京", 0.0, 1.0, 0.9),))
    second = Segment(1.0, 2.0, "です。", (SpokenWord("です。", 1.0, 2.0, 0.9),))
    [segment] = by_sentence(first, second)

    assert ("東京です。", [False, True]) == (segment.text, [word.is_joined for word in segment.words])


_WORDS = st.sampled_from(["uno", "Dos", "tres.", "¿Qué?", "Sr.", "5.000", "你好。", "再见", "EE.", "UU.", "no…", "!"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(_WORDS, min_size=1, max_size=12), st.floats(0, 2), st.booleans()), max_size=8))
def test_nothing_is_lost(rows: list[tuple[list[str], float, bool]]) -> None:
    """The text, the words and the tokens are those of the model's segments, in order; no two segments overlap."""
    heard, at_s = list[Segment](), 0.0
    for texts, pause_s, has_words in rows:
        segment = spoken(joined(texts), at_s, 1.0)
        heard.append(segment if has_words and len(segment.words) == len(texts) else replace(segment, words=()))
        at_s = segment.end_s + pause_s
    found = by_sentence(*heard)

    assert joined(one.text for one in heard) == joined(one.text for one in found)
    assert [word[:4] for one in heard for word in one.words] == [word[:4] for one in found for word in one.words]
    assert [token for one in heard for token in one.tokens] == [token for one in found for token in one.tokens]
    assert all(before.start_s <= before.end_s <= after.start_s for before, after in pairwise(found))
    for one in found:
        assert one.words == () or one.text == "".join(
            ("" if word.is_joined else gap(before, word.text)) + word.text
            for before, word in zip(["", *(word.text for word in one.words)], one.words, strict=False)
        )
