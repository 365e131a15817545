"""Texts to ids and back to places: cutting, prompts, special tokens, and text that is odd but legal."""

import functools
import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from backend.errors import InvalidField, ModelUnavailable, TokenIdsOutOfRange, TooLarge
from backend.models.model_files import resolve
from backend.models.spec import TokenTypes
from backend.models.tokenizer import TextTokenizer, cut
from backend.models.tokenizer import tokenizer_of as models_tokenizer_of
from tests.tiny_models import FAMILIES, MAX_TOKENS, TinyModels, reference_of, spec_of, tokenizer_of

CLS, SEP = 101, 102  # all-MiniLM-L6-v2's
ODD = [
    pytest.param("", id="empty"),
    pytest.param(" \t\n ", id="blank"),
    pytest.param("factura\x00 total", id="nul"),
    pytest.param("👩‍👩‍👧‍👦 é 한국어", id="emoji-and-hangul"),
    pytest.param("la [SEP] de [MASK] </s>", id="special-tokens-spelt-out"),
    pytest.param("a" * 100_000, id="one-word-of-100k"),
    pytest.param("de la " * 20_000, id="a-text-of-120k"),
    pytest.param("\u202eright to left\u202c", id="direction-marks"),
    pytest.param("\ufffd\ufeff", id="replacement-and-byte-order-mark"),
]


@pytest.fixture(scope="session")
def tokenizer() -> TextTokenizer:
    return tokenizer_of("minilm")


@pytest.fixture(scope="session")
def worded(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    """One token a word and no special tokens: a text's ids are its words' numbers."""
    file = tmp_path_factory.mktemp("worded") / "tokenizer.json"
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(100)} | {"?": 100}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(file))
    return TextTokenizer(file, max_tokens=8, vocabulary_size=101)


@functools.cache
def with_limit(max_tokens: int) -> TextTokenizer:
    spec = spec_of("minilm")
    return TextTokenizer(spec.folder / "tokenizer.json", max_tokens=max_tokens, vocabulary_size=30522)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text",
    [
        *("Factura de la zürich: 12,50 €", "  the total ", "\n12 euros", "la de  "),
        *(pytest.param(*one.values, id=one.id, marks=pytest.mark.slow) for one in ODD),
    ],
)
def test_ids_are_sentence_transformers_own(tiny: TinyModels, family, text):
    """For every kind of tokenizer, cut at the model's length, special tokens and blanks around a text included."""
    folder = tiny.folder(family)
    expected = reference_of(folder).tokenize([text])["input_ids"][0].tolist()

    [tokens] = tokenizer_of(folder).encode([text])

    assert expected == tokens.ids.tolist()


def test_a_batch_of_texts_equals_each_alone(tokenizer):
    """One call with many texts, in order, gives what many calls give."""
    texts = ["uno", "", "the total " * 300, "\ud800", "dos 👍"]

    together = [tokens.ids.tolist() for tokens in tokenizer.encode(texts)]
    alone = [tokenizer.encode([text])[0].ids.tolist() for text in texts]

    assert alone == together


@pytest.mark.slow
@pytest.mark.parametrize("truncate", ["end", "start"])
@given(words=st.integers(0, 40), limit=st.integers(3, 30))
def test_cutting_keeps_the_length_the_specials_and_one_end_of_the_text(truncate, words, limit):
    """Never over the limit; the special tokens stay; what stays is a prefix or a suffix of the text's tokens."""
    tokenizer, text = with_limit(limit), "a b " * words
    whole = with_limit(1000).encode([text])[0].ids.tolist()
    [tokens] = tokenizer.encode([text], truncate)

    body, kept = whole[1:-1], tokens.ids.tolist()[1:-1]
    assert len(tokens.ids) == min(len(whole), limit)
    assert [CLS, SEP] == tokens.ids[[0, -1]].tolist()
    assert tokens.truncated == (len(whole) > limit)
    assert kept == (body[: len(kept)] if truncate == "end" else body[len(body) - len(kept) :])


@pytest.mark.parametrize("truncate", ["end", "start"])
def test_a_model_with_room_for_the_special_tokens_only(truncate):
    """A limit of two leaves no token of the text, at either end, and never more than the limit."""
    [tokens] = with_limit(2).encode(["la factura"], truncate)

    assert [CLS, SEP] == tokens.ids.tolist()


def test_none_refuses_what_does_not_fit():
    """The error names the input, its length, the limit and the way out, and is a 413."""
    with pytest.raises(TooLarge) as caught:
        with_limit(8).encode(["la", "la " * 7], "none")

    assert "input[1] tokens: 9 is over the limit of 8" in str(caught.value)
    assert "truncate='end'" in str(caught.value)
    assert (9, 8, "input") == (caught.value.value, caught.value.limit, caught.value.param)


def test_a_prompt_is_text_before_the_text(tokenizer):
    """The prompt's tokens come first, and its length counts."""
    assert (
        tokenizer.encode(["query: the total"])[0].ids.tolist()
        == tokenizer.encode(["the total"], prompt="query: ")[0].ids.tolist()
    )
    assert with_limit(8).encode(["la " * 6], prompt="query: ")[0].truncated


def test_a_lone_surrogate_reads_as_the_replacement_character(tokenizer):
    """JSON can carry it and UTF-8 cannot; the text keeps its length and its neighbours."""
    odd, replaced = tokenizer.encode(["the \ud83d total", "the \ufffd total"])

    assert replaced.ids.tolist() == odd.ids.tolist()


def test_an_empty_text_never_has_no_token(worded):
    """A tokenizer without special tokens must not hand the packed batch a text of no rows."""
    [tokens] = worded.encode([""])

    assert len(tokens.ids) > 0


# Places


@pytest.mark.parametrize("family", FAMILIES)
def test_places_are_code_points_of_the_callers_text(tiny: TinyModels, family):
    """An emoji is one place and an accent another, whatever they weigh in UTF-8 or UTF-16."""
    text = "👍 zürich 👩‍👧 total é"
    [pieces] = tokenizer_of(tiny.folder(family)).pieces([text])
    [total] = [start for start in range(len(text)) if text.startswith("total", start)]

    spelt = [piece for piece in pieces if not piece.special]
    assert "".join(piece.text for piece in spelt if piece.stop > total and piece.start < total + 5).strip() == "total"
    for piece in spelt:
        assert text[piece.start : piece.stop] == piece.text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt", ["query: ", "total👍 ", "qu"])
def test_offsets_are_of_the_text_behind_a_prompt(tiny: TinyModels, family, prompt):
    """The prompt's tokens have none; one that straddles the two has those of its part in the text."""
    text = "ery: 👍 zürich total é"
    tokenizer = tokenizer_of(tiny.folder(family))
    [pieces] = tokenizer.pieces([text], prompt=prompt)
    [plain] = tokenizer.pieces([prompt + text])

    assert [piece.id for piece in plain] == [piece.id for piece in pieces]
    assert [piece.special for piece in plain] == [piece.special for piece in pieces]
    for piece, whole in zip(pieces, plain, strict=True):
        if piece.special:
            assert (None, None) == (piece.start, piece.stop)
        elif whole.stop <= len(prompt):
            assert (None, None, whole.text) == (piece.start, piece.stop, piece.text)
        else:
            assert (max(0, whole.start - len(prompt)), whole.stop - len(prompt)) == (piece.start, piece.stop)
            assert text[piece.start : piece.stop] == piece.text


def test_a_token_of_prompt_and_text(tiny: TinyModels):
    """ "qu" and "ery" make one word: its offsets are those of "ery"."""
    [pieces] = tokenizer_of(tiny.folder("bert")).pieces(["ery total"], prompt="qu", add_special_tokens=False)

    assert [("ery", 0, 3), ("total", 4, 9)] == [(piece.text, piece.start, piece.stop) for piece in pieces]


def test_pieces_of_the_bundled_model(tokenizer):
    """Word pieces stand where they are in the text, in its own spelling; specials stand nowhere."""
    [pieces] = tokenizer.pieces(["Facturas de 😀"])

    assert [("[CLS]", None), ("[SEP]", None)] == [(pieces[0].text, pieces[0].start), (pieces[-1].text, pieces[-1].stop)]
    assert pieces[0].special
    assert pieces[-1].special
    assert "Facturas" == "".join(piece.text for piece in pieces[1:-1] if piece.stop <= 8)
    assert [("de", 9, 11), ("😀", 12, 13)] == [(piece.text, piece.start, piece.stop) for piece in pieces[-3:-1]]


# Ids that the caller made


def test_bare_ids_are_wrapped(tokenizer):
    """LlamaIndex and others send ids without special tokens; the model needs them."""
    [tokens] = tokenizer.accept([[2000, 2001]])

    assert [CLS, 2000, 2001, SEP] == tokens.ids.tolist()


def test_complete_ids_stay_as_they_are(tokenizer):
    """What /tokenize gave can be sent back and gives the same vector."""
    ids = tokenizer.encode(["la factura de marzo"])[0].ids.tolist()

    assert ids == tokenizer.accept([ids])[0].ids.tolist()


def test_no_ids_become_the_empty_text(tokenizer):
    assert tokenizer.encode([""])[0].ids.tolist() == tokenizer.accept([[]])[0].ids.tolist()


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(("truncate", "kept"), [("end", [10, 11, 12]), ("start", [17, 18, 19])])
def test_ids_are_cut_like_texts(truncate, kept, wrapped):
    """Special tokens stay at both ends, the body loses one end, and the cut is reported."""
    body = list(range(10, 20))
    ids = [CLS, *body, SEP] if wrapped else body
    [tokens] = with_limit(5).accept([ids], truncate)

    assert [CLS, *kept, SEP] == tokens.ids.tolist()
    assert tokens.truncated


def test_ids_that_do_not_fit_are_refused_with_none():
    with pytest.raises(TooLarge, match=r"input\[0\] tokens: 12 is over the limit of 5"):
        with_limit(5).accept([list(range(10, 20))], "none")


@pytest.mark.parametrize(
    ("ids", "culprit"), [([[5], [30522]], 30522), ([[-1]], -1), ([[5, 100_000, -2]], 100_000), ([[10**30]], 10**30)]
)
def test_ids_of_another_tokenizer_are_refused(tokenizer, ids, culprit):
    """The error shows the first id that cannot be, the vocabulary, and LangChain's setting."""
    with pytest.raises(TokenIdsOutOfRange) as caught:
        tokenizer.check(ids)

    assert f"token id {culprit} " in str(caught.value)
    assert "0 to 30521" in str(caught.value)
    assert "check_embedding_ctx_length=False" in str(caught.value)


def test_ids_of_another_tokenizer_in_a_large_vocabulary():
    """It has each of tiktoken's ids, so they are told by the special tokens that they lack; the model's own pass."""
    large = TextTokenizer(spec_of("minilm").folder / "tokenizer.json", max_tokens=64, vocabulary_size=250_002)
    large.check([[CLS, 5, 200_000, SEP], [CLS], []])

    with pytest.raises(InvalidField, match=r"input\[1\].* begin with \[101\] .*check_embedding_ctx_length=False"):
        large.check([[CLS, 5, SEP], [791, 25637, 374]])


# Files


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="absent"),
        pytest.param("", id="empty"),
        pytest.param("{", id="broken"),
        pytest.param(json.dumps({"version": "1.0"}), id="not-a-tokenizer"),
    ],
)
def test_a_file_that_is_no_fast_tokenizer(tmp_path, content):
    """The start stops with the file's name and what to do."""
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is not a fast tokenizer .* save the model with"):
        TextTokenizer(file, max_tokens=8, vocabulary_size=10)


def test_padding_and_truncation_of_the_file_are_ignored(tiny: TinyModels, tmp_path):
    """A tokenizer saved with its own cutting and padding counts and cuts as we do."""
    source = tiny.folder("bert") / "tokenizer.json"
    saved = Tokenizer.from_file(str(source))
    saved.enable_truncation(6)
    saved.enable_padding(length=30)
    saved.save(str(tmp_path / "tokenizer.json"))

    ours = TextTokenizer(tmp_path / "tokenizer.json", max_tokens=MAX_TOKENS, vocabulary_size=200)

    texts = ["la", "the total is due de la factura"]
    expected = [tokens.ids.tolist() for tokens in tokenizer_of(tiny.folder("bert")).encode(texts)]
    assert expected == [tokens.ids.tolist() for tokens in ours.encode(texts)]


# Windows


LONG = "zürich 👍 la factura e\u0301 de [SEP] total\u200b 12,50 €\n" * 12


@pytest.mark.parametrize("overlap", [0, 3, 16, 10_000])
@pytest.mark.parametrize("family", FAMILIES)
def test_windows_answer_for_every_token_once(tiny: TinyModels, family, overlap):
    """Every window fits the model and has its special tokens; their own tokens, in order, are the text's."""
    tokenizer = tokenizer_of(tiny.folder(family))
    [whole] = tokenizer.pieces([LONG], add_special_tokens=False)
    [around] = tokenizer.pieces(["la"])

    found = tokenizer.windows(LONG, overlap)

    own = [(window, slice(window.own_start, window.own_stop)) for window in found.windows]
    assert [piece.id for piece in whole] == [number for window, part in own for number in window.ids[part].tolist()]
    assert [(piece.start, piece.stop) for piece in whole] == [
        tuple(place) for window, part in own for place in window.offsets[part].tolist()
    ]
    for window in found.windows:
        assert len(window.ids) <= MAX_TOKENS
        assert len(window.ids) == len(window.offsets) == len(window.words)
        assert [around[0].id, around[-1].id] == window.ids[[0, -1]].tolist()
        assert [[-1, -1], [-1, -1]] == window.offsets[[0, -1]].tolist()
        assert [-1, -1] == window.words[[0, -1]].tolist()


@pytest.mark.slow
@given(tokens=st.integers(0, 400), size=st.integers(1, 60), overlap=st.integers(0, 59))
def test_cuts_are_equal_overlapping_and_deep(tokens, size, overlap):
    """Neighbours share ``overlap`` at least, and a token is answered for where it stands furthest from a cut."""
    found = cut(tokens, size, min(overlap, size - 1))

    def depth(token: int, start: int, stop: int) -> int:
        return min(token - start if start else tokens, stop - 1 - token if stop < tokens else tokens)

    owners = [(own_start, own_stop) for _, _, own_start, own_stop in found]
    assert list(range(tokens)) == [token for start, stop in owners for token in range(start, stop)]
    for start, stop, own_start, own_stop in found:
        assert stop - start == min(tokens, size)
        for token in range(own_start, own_stop):
            assert depth(token, start, stop) >= max(depth(token, *other[:2]) for other in found) - 1  # ties go left
    for before, after in pairwise(found):
        assert before[1] - after[0] >= min(overlap, size - 1)


def test_windows_tell_words_and_their_places(tokenizer):
    """The pieces of a word carry its number; special tokens none."""
    text = "Facturación de O'Brien, 👍."
    found = tokenizer.windows(text, 8)
    [window] = found.windows

    assert ["Facturación", "de", "O'Brien", ",", "👍", "."] == [text[start:stop] for start, stop in found.words]
    assert sorted(window.words[1:-1].tolist()) == window.words[1:-1].tolist()
    for word, (start, stop) in zip(window.words[1:-1], window.offsets[1:-1], strict=True):
        assert found.words[word][0] <= start < stop <= found.words[word][1]


@pytest.mark.parametrize("text", ["", " \t\n "])
def test_nothing_to_read_is_no_window(tokenizer, text):
    found = tokenizer.windows(text, 8)

    assert ((), 0, 1.0, 0) == (found.windows, len(found.words), found.coverage, found.tokens)


def test_coverage_is_the_share_that_the_vocabulary_has(tiny: TinyModels):
    """Blanks do not count; what becomes the unknown token was not read."""
    tokenizer = tokenizer_of(tiny.folder("bert"))

    assert tokenizer.windows("la factura", 8).coverage == 1.0
    assert tokenizer.windows("la 한국 的", 8).coverage == pytest.approx(2 / 5)


def test_a_model_with_room_for_its_special_tokens_only_reads_no_window():
    """Better an error than a text that was not read."""
    with pytest.raises(TooLarge):
        with_limit(2).windows("la", 1)


@given(st.text(st.characters(), max_size=60))
def test_any_text_has_windows(text):
    """Every string Python can hold: places stay within it, and no token is left without its window."""
    found = with_limit(6).windows(text, 2)

    own = sum(window.own_stop - window.own_start for window in found.windows)
    assert own == len(with_limit(6).pieces([text], add_special_tokens=False)[0])
    assert 0.0 <= found.coverage <= 1.0
    for window in found.windows:
        assert window.offsets.max() <= len(text)
        assert window.words.max() < len(found.words)


def test_odd_texts_of_any_length_are_read_quickly(tokenizer):
    """A word of 100,000 letters is one unknown token; a text of as many words is many windows."""
    assert 1 == len(tokenizer.windows("a" * 100_000, 32).windows)
    assert tokenizer.windows("de la " * 20_000, 32).tokens > 40_000


# One for several models


def test_models_with_equal_tokenizers_share_one(tiny: TinyModels, copy_of: Callable[[Path], Path]):
    """As the bundled encoder and its tagger; it is freed with the last of them."""
    spec = replace(resolve(str(copy_of(tiny.folder("roberta")))), max_tokens=11)  # no other test has loaded it

    first, second = models_tokenizer_of(spec), models_tokenizer_of(replace(spec, name="another", sha256="0" * 64))
    others = [replace(spec, max_tokens=7), replace(spec, token_types=TokenTypes.SEGMENTS)]

    assert first is second
    assert all(first is not models_tokenizer_of(other) for other in others)
    freed = weakref.ref(first)
    del first, second
    gc.collect()
    assert freed() is None
