"""A tokenizer read in two parts gives every text the tokens of the whole, and reads the second part on demand alone."""

import functools
import json
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from backend.models.model_files import resolve
from backend.models.tokenizer import OTHER_SCRIPTS, LatinTokenizer, read_tokenizer

NO_PIECE = {"id": 250_002, "content": "<new>"} | dict.fromkeys(
    ("single_word", "lstrip", "rstrip", "normalized", "special"), False
)
TEXTS = [
    pytest.param("La factura nº 2024/017 vence en marzo: 1.284,50 €.", id="spanish"),
    pytest.param("Fußgängerübergänge, l'œuvre, żółć, ½ µm — 25 °C ≤ 30 Ω", id="signs"),
    pytest.param("e\u0301 A\u030a ﬁn \ue000 \ufffd 👍🏽 ▁▁ x\u0338 \x00\x07", id="marks-and-private-characters"),
    pytest.param("", id="empty"),
    pytest.param("a </s> <mask> b", id="special-tokens-spelt-out"),
]


@functools.cache
def latin_characters() -> str:
    """A million looks at a pattern, which only the two tests that ask pay for."""
    return "".join(chr(code) for code in range(sys.maxunicode + 1) if not OTHER_SCRIPTS.match(chr(code)))


LATIN = st.deferred(lambda: st.sampled_from(latin_characters()))


@pytest.fixture(scope="module")
def whole() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(resolve("bundled").folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture(scope="module")
def latin() -> LatinTokenizer:
    tokenizer = read_tokenizer(resolve("bundled").folder / "tokenizer.json")
    assert isinstance(tokenizer, LatinTokenizer)
    return tokenizer


def tokens_of(encoding):
    return encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, len(encoding)


@pytest.mark.parametrize("text", TEXTS)
def test_latin_texts_have_the_tokens_of_the_whole_without_reading_it(whole, latin, text):
    """Ids, offsets and special tokens; alone and as a pair."""
    assert latin.part is not None

    for texts in ([text], [(text, "¿Cuándo?")]):
        [expected], [got] = whole.encode_batch(texts), latin.encode_batch(texts)
        assert tokens_of(expected) == tokens_of(got)
        assert expected.ids == latin.encode_batch_fast(texts)[0].ids
    assert [whole.decode(expected.ids)] == latin.decode_batch([expected.ids])
    assert latin.part is not None


@settings(max_examples=300, deadline=None)
@given(st.text(st.one_of(st.sampled_from("abcdeñ .,01\u0301\u0338€"), LATIN), max_size=40))
def test_any_text_of_these_characters_has_the_tokens_of_the_whole(whole, latin, text):
    assert tokens_of(whole.encode_batch([text])[0]) == tokens_of(latin.encode_batch([text])[0])


def test_no_character_becomes_one_of_another_script(latin):
    """Neither alone by the normaliser, nor by composing with its neighbours."""
    becomes = [one for one in latin_characters() if OTHER_SCRIPTS.search(latin.part.normalizer.normalize_str(one))]
    composed = [
        one
        for one in map(chr, range(sys.maxunicode + 1))
        if OTHER_SCRIPTS.match(one)
        and (parts := unicodedata.normalize("NFD", one)) != one == unicodedata.normalize("NFC", parts)
        and not OTHER_SCRIPTS.search(parts)
    ]

    assert ([], []) == (becomes, composed)


def test_a_text_of_another_script_reads_the_whole(whole):
    """Which then reads all: two of them would take more than one."""
    latin = read_tokenizer(resolve("bundled").folder / "tokenizer.json")
    texts = ["La factura", "счёт 発票", "invoice", "ℵ", "فاتورة"]

    assert [each.ids for each in whole.encode_batch(texts)] == [each.ids for each in latin.encode_batch(texts)]
    assert latin.part is None
    ids = whole.encode(texts[1]).ids
    assert [whole.decode(ids)] == latin.decode_batch([ids])


def test_tokens_by_name_and_number(whole):
    latin = read_tokenizer(resolve("bundled").folder / "tokenizer.json")
    for token in ("<s>", "</s>", "<unk>", "<mask>", "▁de", "▁на"):
        assert whole.token_to_id(token) == latin.token_to_id(token)
        assert token == latin.id_to_token(whole.token_to_id(token))
    assert latin.token_to_id("qqq") is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"normalizer": {"type": "NFC"}}, id="a-normaliser-that-may-do-anything"),
        pytest.param({"post_processor": None}, id="no-template"),
        pytest.param({"added_tokens": [NO_PIECE]}, id="an-added-token-that-is-no-piece"),
    ],
)
def test_another_kind_of_large_tokenizer_is_read_whole(tmp_path, change):
    content = json.loads((resolve("bundled").folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**content, **change}))

    assert isinstance(read_tokenizer(tmp_path / "tokenizer.json"), Tokenizer)
