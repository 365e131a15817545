"""A tokenizer of the pieces of Latin script, or of those that stand in a text, gives the tokens of the whole."""

import functools
import gc
import json
import sys
import unicodedata
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from backend.errors import TooLarge
from backend.models import latin_tokenizer
from backend.models.latin_tokenizer import OTHER_SCRIPTS, LatinTokenizer, read_tokenizer
from backend.models.model_files import resolve

NO_PIECE = {"id": 250_002, "content": "<new>"} | dict.fromkeys(
    ("single_word", "lstrip", "rstrip", "normalized", "special"), False
)
TEXTS = [
    pytest.param("La factura nº 2024/017 vence en marzo: 1.284,50 €.", id="spanish"),
    pytest.param("Fußgängerübergänge, l'œuvre, żółć, ½ µm — 25 °C ≤ 30 Ω", id="signs"),
    pytest.param("e\u0301 A\u030a ﬁn \ue000 \ufffd 👍🏽 ▁▁ x\u0338 \x00\x07", id="marks-and-private-characters"),
    pytest.param("", id="empty"),
    pytest.param("a </s> <mask> b", id="special-tokens-spelt-out"),
    pytest.param("Счёт № 17, 発票２０２４ فاتورة ﷺ Ελλάδα ไทย", id="many-scripts"),
    pytest.param("я</s>я<mask> 発<<s>s>票</s>\u0301é", id="special-tokens-beside-other-scripts"),
    pytest.param("\U00020000ⴰ\ue000я ▁▁発 　票", id="unknown-characters"),
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
def test_every_text_has_the_tokens_of_the_whole(whole, latin, text):
    """Ids, offsets and special tokens; alone, as a pair, and beside texts of other scripts."""
    for texts in ([text], [(text, "¿Cuándo?")], ["счёт", text, "a"]):
        expected, got = whole.encode_batch(texts), latin.encode_batch(texts)
        assert list(map(tokens_of, expected)) == list(map(tokens_of, got))
        assert [each.ids for each in expected] == [each.ids for each in latin.encode_batch_fast(texts)]
        assert whole.decode_batch([each.ids for each in expected]) == latin.decode_batch([each.ids for each in got])


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        st.one_of(st.sampled_from("abcdeñ .,01\u0301\u0338€"), LATIN, st.characters(exclude_categories=["Cs"])),
        max_size=40,
    )
)
def test_any_text_has_the_tokens_of_the_whole(whole, latin, text):
    assert tokens_of(whole.encode_batch([text])[0]) == tokens_of(latin.encode_batch([text])[0])


def test_no_character_becomes_one_of_another_script(latin):
    """Neither alone by the normaliser, nor by composing with its neighbours."""
    becomes = [
        one for one in latin_characters() if OTHER_SCRIPTS.search(latin.latin.tokenizer.normalizer.normalize_str(one))
    ]
    composed = [
        one
        for one in map(chr, range(sys.maxunicode + 1))
        if OTHER_SCRIPTS.match(one)
        and (parts := unicodedata.normalize("NFD", one)) != one == unicodedata.normalize("NFC", parts)
        and not OTHER_SCRIPTS.search(parts)
    ]

    assert ([], []) == (becomes, composed)


def test_a_word_is_looked_at_in_parts(whole, latin, monkeypatch):
    """At most 65,600 characters at once: none holds the interpreter for long."""
    monkeypatch.setattr(latin_tokenizer, "SLICE_CHARS", 100)
    word = "счётфактуравыставленапокупателю" * 100

    assert whole.encode(word).ids == latin.encode_batch([word])[0].ids
    assert max(map(len, latin._words(word))) < 200


def test_a_word_of_too_many_pieces_is_refused(latin, monkeypatch):
    monkeypatch.setattr(latin_tokenizer, "_MOST_PIECES", 10)

    with pytest.raises(TooLarge, match=r"different tokens of a text: \d+ is over the limit of 10 .* blanks"):
        latin.encode_batch(["発票号码开票日期购买方名称销售方名称"])


def test_a_tokenizer_leaves_memory_without_the_garbage_collector():
    """The service freezes what is there at its start, so that a cycle would stay for good: 46 MB of pieces."""
    tokenizer = read_tokenizer(resolve("bundled").folder / "tokenizer.json")
    tokenizer.encode_batch(["счёт"])
    gc.disable()
    try:
        table = weakref.ref(tokenizer._table)
        del tokenizer
        assert table() is None
    finally:
        gc.enable()


def test_ids_without_a_piece_are_left_out(whole, latin):
    ids = [*whole.encode("счёт").ids, 250_030]

    assert whole.decode_batch([ids, [6]]) == latin.decode_batch([ids, [6]])


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
