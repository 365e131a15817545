"""Long texts cut into slices: their tokens, ids and places, are those of the whole text, whatever stands in it."""

import functools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import TooLarge
from backend.lanes.text_work import TokenBudget
from backend.models import tokenizer as tokenizer_module
from backend.models.text_slices import SLICE_CHARS
from backend.models.tokenizer import TextTokenizer, joined
from tests.tiny_models import FAMILIES, TinyModels, spec_of, tokenizer_of

CUTTABLE = ("bert", "distilbert", "mpnet")
# What could make a word depend on its neighbour: marks that combine, blanks of every kind, characters that the
# normalizer drops or maps to several, words of the tokenizer's own, beginnings and ends of its special tokens.
ATOMS = [
    *"ab1.,-'([])!@#_ \t\n\r\x0b\x0c\x1c\x85\xa0\u2003\u3000",
    *"éßΣςİıﬁ中文字㐀가한Ⅳ①…—“¿€\u0301\u0308\u200d\u200b\ufeff\ufffd\x00\x01👩😀",
    *("[MASK]", "[CLS]", "[SEP]", "[UNK]", "[MA", "SK]", "[", "]", "unaffable", "embeddings", "##s", " ", " ", ". "),
]
NASTY = st.lists(st.one_of(st.sampled_from(ATOMS), st.characters(exclude_categories=["Cs"])), max_size=40).map("".join)


@functools.cache
def short_model() -> TextTokenizer:
    """The bundled tokenizer for a model of six tokens: few texts fit."""
    return TextTokenizer(spec_of("minilm").folder / "tokenizer.json", max_tokens=6, vocabulary_size=30522)


def read_in_slices(tokenizer: TextTokenizer, text: str, size: int):
    return joined([tokenizer.read(text, *part) for part in tokenizer.slices(text, size)])


def assert_equals_the_whole(tokenizer: TextTokenizer, text: str, size: int) -> None:
    whole = tokenizer.read(text, 0, len(text))
    parts = read_in_slices(tokenizer, text, size)

    assert whole.ids.tolist() == parts.ids.tolist()
    assert whole.offsets.tolist() == parts.offsets.tolist()


@pytest.mark.parametrize("source", ["minilm", "bundled"])
@given(text=NASTY, size=st.integers(1, 6))
def test_slices_of_any_text_have_the_tokens_of_the_whole(source, text, size):
    assert_equals_the_whole(tokenizer_of(source), text, size)


@pytest.mark.slow
def test_no_character_before_a_cut_joins_with_the_blank():
    """Of all letters, digits and marks of ASCII that there are, with the bundled tokenizer."""
    tokenizer = tokenizer_of("bundled")
    characters = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    words = [f"a{each}" for each in characters if re.fullmatch(r"[\w!-~]", each)]

    whole = tokenizer.read_each([" ".join(words)])[0]
    alone = tokenizer.encodings([f" {word}" for word in words], add_special_tokens=False)

    assert [number for encoding in alone for number in encoding.ids] == whole.ids.tolist()


@pytest.mark.parametrize(
    ("source", "units", "whole"),
    [
        pytest.param("minilm", ("a ", "la factura\n", "中", "(", "[MASK]"), ("a",), id="minilm"),
        pytest.param("bundled", ("la factura ", "Zürich,\n", "12,50 €\t", "</s> <mask> "), ("a", "発票"), id="bundled"),
    ],
)
def test_slices_are_short_and_cover_the_text(source, units, whole):
    """Of prose, lines, forms and punctuation; a word without an end is not cut, nor scripts without blanks."""
    slices = tokenizer_of(source).slices
    for unit in units:
        text = unit * (1_000_000 // len(unit))
        parts = list(slices(text))

        assert text == "".join(text[start:stop] for start, stop in parts)
        assert max(stop - start for start, stop in parts) < SLICE_CHARS + 20
    for unit in whole:
        text = unit * (300_000 // len(unit))
        assert [(0, len(text))] == list(slices(text))


def test_a_word_of_100_000_characters():
    """Read to its end where all of it is asked for, and cut at the model's length where a vector is."""
    tokenizer = tokenizer_of("bundled")
    word = "abcdefghij" * 10_000

    [tokens] = tokenizer.encode([word])

    assert (512, True) == (len(tokens.ids), tokens.truncated)
    assert tokens.ids[1:-1].tolist() == tokenizer.read_all(word).ids[:510].tolist()


@pytest.mark.parametrize("source", ["minilm", "bundled"])
def test_a_long_word_is_handed_over_in_parts(source, monkeypatch):
    """The library makes objects of all tokens that it is asked for with the lock held: 0.6 s for a million."""
    tokenizer, longest, arrays = tokenizer_of(source), [], tokenizer_module._arrays
    monkeypatch.setattr(tokenizer_module, "_arrays", lambda part: longest.append(len(part)) or arrays(part))
    word = "!?,1" * 15_000
    [expected] = tokenizer.encodings([word], add_special_tokens=False)

    tokens = tokenizer.read(f"a {word}", 2, 60_002)

    assert (expected.ids, len(expected)) == (tokens.ids.tolist(), sum(longest))
    assert max(longest) <= tokenizer_module._TOKENS_AT_ONCE < len(expected)
    assert (60_002, len(tokens.ids)) == (tokens.offsets[-1, 1], len(tokens.offsets))


def test_the_tokens_of_a_word_are_counted_before_they_are_handed_over(monkeypatch):
    """Handing over four million held the lock for 0.8 s, only to tell that there are too many."""
    monkeypatch.setattr(tokenizer_module, "_arrays", lambda _part: pytest.fail("they were handed over"))
    budget = TokenBudget(10_000, "tokens", "LIMIT_TOKENIZE_TOKENS", "")

    with pytest.raises(TooLarge, match="tokens: 20000"):
        tokenizer_of("minilm").read("!" * 20_000, 0, 20_000, budget.add)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_tokenizers(tiny: TinyModels, family):
    """Cased and uncased, cut at every place that may be; families that cannot be cut stay whole."""
    tokenizer = tokenizer_of(tiny.folder(family))
    text = "La  factura [MASK], de<mask> Zürich: ¿total 12,50 €?\n\n中文 字。 the's </s>  é́ " * 3

    assert_equals_the_whole(tokenizer, text, 1)
    assert (family in CUTTABLE) == (len(list(tokenizer.slices(text, 1))) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["", "query: "])
@pytest.mark.parametrize(
    ("text", "most"),
    [
        pytest.param("la factura de marzo, " * 2_000, 5_000, id="prose"),
        pytest.param("中文" * 20_000, 5_000, id="ideographs"),
        pytest.param(" " * 30_000 + "la factura " * 30_000, 200_000, id="after-blanks"),
        pytest.param("a" * 40_000 + " la" * 90_000, 200_000, id="after-one-word"),
        pytest.param("\u0301" * 40_000 + " la" * 90_000, 200_000, id="after-marks-that-are-dropped"),
    ],
)
def test_a_text_cut_at_its_end_is_read_no_further_than_needed(text, most, prompt, monkeypatch):
    """The ids are those of reading all of it."""
    tokenizer = tokenizer_of("minilm")
    [beginning] = tokenizer.encode([text], prompt=prompt)
    read = len(tokenizer._beginning(prompt + text))
    monkeypatch.setattr(TextTokenizer, "_beginning", lambda _, text: text)
    [whole] = tokenizer.encode([text], prompt=prompt)

    assert whole.ids.tolist() == beginning.ids.tolist()
    assert (True, True) == (whole.truncated, beginning.truncated)
    assert read < most


@given(text=NASTY, times=st.integers(1, 30))
def test_the_beginning_of_any_text_gives_the_ids_of_the_whole(text, times):
    """Also where a text fits the model by a hair."""
    tokenizer = short_model()
    text = text * times
    [found] = tokenizer.encode([text])
    whole = tokenizer.encodings([text])[0].ids

    assert found.truncated == (len(whole) > 6)
    assert (whole if len(whole) <= 6 else [*whole[:5], whole[-1]]) == found.ids.tolist()


def test_windows_of_slices_are_those_of_the_whole_text():
    """Ids, places, words and coverage."""
    tokenizer = tokenizer_of("minilm")
    text = "La factura de Zürich: 12,50 €. [MASK] 中文 " * 4_000
    sliced = tokenizer.windows(text, 10)
    whole = tokenizer.cut(text, tokenizer.read(text, 0, len(text)), 10)

    assert len(list(tokenizer.slices(text))) > 1
    assert whole.coverage == sliced.coverage
    for expected, found in zip(whole.windows, sliced.windows, strict=True):
        assert (expected.own_start, expected.own_stop) == (found.own_start, found.own_stop)
        for name in ("ids", "offsets", "words"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))
