"""Pairs as one input: the ids and types that the tokenizer itself gives, however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from backend.errors import ModelUnavailable, TooLarge
from backend.models.pairs import PairTokenizer, kept_tokens
from backend.models.spec import TokenTypes
from backend.models.tokenizer import TextTokenizer
from tests.tiny_models import spec_of, tokenizer_of
from tests.tiny_scorers import FAMILIES, TABLE, TinyScorers, tokenizer_as_transformers_has_it

PAIRS = [
    ("la factura de zürich", "the invoice total is 12,50 €"), ("la factura de zürich", ""), ("", "the total"),
    ("", ""), ("la factura de zürich", "de la " * 90), ("de la " * 90, "la factura de zürich"),
    ("de la " * 90, "the total is due " * 90), ("the total is due", "the total is due"),
    ("[SEP] </s> 👍 \u0301", "<s>\n\t la"),
]  # fmt: skip
REFUSED = {"first": (4, 6), "second": (5, 6), "longest": ()}  # places in PAIRS where the other text fills the model
STRATEGIES = {"first": "only_first", "second": "only_second", "longest": "longest_first"}


def pairs_of(folder) -> PairTokenizer:
    return PairTokenizer(tokenizer_of(folder), spec_of(folder).token_types)


def worded(tmp_path, pair: str | None, *, max_tokens: int = 8) -> TextTokenizer:
    """One token a word, with a template of the test's own."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "a": 1, "b": 2, "|": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if pair is not None:
        tokenizer.post_processor = processors.TemplateProcessing("$A |", pair, [("|", 3)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return TextTokenizer(tmp_path / "tokenizer.json", max_tokens=max_tokens, vocabulary_size=4)


@pytest.mark.parametrize("cut", STRATEGIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_types_are_transformers_own(scorers: TinyScorers, family, cut):
    """Every template, every way of cutting; where transformers cannot cut, neither can we."""
    folder = scorers.folder(family)
    reference = tokenizer_as_transformers_has_it(folder)
    typed = spec_of(folder).token_types is TokenTypes.SEGMENTS

    for first, second in PAIRS:
        uncut = reference([first], [second])["input_ids"][0]
        if len(uncut) > TABLE and PAIRS.index((first, second)) in REFUSED[cut]:
            with pytest.raises(Exception, match="too short"):
                reference([first], [second], truncation=STRATEGIES[cut])
            with pytest.raises(TooLarge):
                pairs_of(folder).encode([(first, second)], cut)
            continue
        expected = reference([first], [second], truncation=STRATEGIES[cut])
        [found] = pairs_of(folder).encode([(first, second)], cut)

        assert expected["input_ids"] == [found.ids.tolist()]
        assert (len(uncut) > len(found.ids)) == found.truncated
        assert (expected["token_type_ids"] if typed else None) == ([found.types.tolist()] if typed else found.types)


def test_models_with_segments_get_their_types(scorers: TinyScorers):
    """BERT's second text is of type 1, and the payload carries it; RoBERTa has no types."""
    [typed] = pairs_of(scorers.folder("bert")).encode([("la", "the total")])
    [plain] = pairs_of(scorers.folder("roberta")).encode([("la", "the total")])

    assert [0, 0, 0, 1, 1, 1] == typed.types.tolist()
    assert (2, 6) == typed.payload.shape
    assert plain.types is None
    assert 1 == plain.payload.ndim


def test_each_text_is_tokenised_once(scorers: TinyScorers, monkeypatch):
    """A query with a hundred documents costs one query."""
    asked: list[str] = []
    original = TextTokenizer.encodings
    monkeypatch.setattr(
        TextTokenizer,
        "encodings",
        lambda self, texts, **options: asked.extend(texts) or original(self, texts, **options),
    )
    tokenizer = pairs_of(scorers.folder("bert"))
    asked.clear()

    tokenizer.encode([("query", f"document {number % 10}") for number in range(100)])

    assert 11 == len(asked)


@given(first=st.integers(0, 40), second=st.integers(0, 40), room=st.integers(1, 30), cut=st.sampled_from([*STRATEGIES]))
def test_what_stays_is_what_tokenizers_leaves(first, second, room, cut):
    """The library's own cutting, at every length."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(room, strategy=STRATEGIES[cut])

    found = kept_tokens(first, second, room, cut)

    if found is None:
        with pytest.raises(Exception, match="too short"):
            tokenizer.encode("a " * first, "b " * second)
    else:
        ids = tokenizer.encode("a " * first, "b " * second).ids
        assert found == (ids.count(0), ids.count(1))


@pytest.mark.parametrize(
    ("cut", "advice"),
    [
        pytest.param("none", "or let it be cut", id="none"),
        pytest.param("second", "90 of them are of the text that is never cut", id="the-other-fills-the-model"),
    ],
)
def test_what_does_not_fit_is_refused(scorers: TinyScorers, cut, advice):
    """The error names the input by its place in the request, the numbers, and what to do; it is a 413."""
    pairs = [("la", "la"), ("la " * 90, "de la")]

    with pytest.raises(TooLarge) as caught:
        pairs_of(scorers.folder("bert")).encode(pairs, cut, indices=[4, 7], param="documents")

    assert "documents[7] tokens: 95 is over the limit of 64 (the model's length)" in str(caught.value)
    assert advice in str(caught.value)
    assert "documents" == caught.value.param


@pytest.mark.parametrize("cut", ["first", "second", "longest"])
def test_a_model_without_room_for_its_special_tokens(tmp_path, cut):
    """Better an error than an input without its marks."""
    tokenizer = PairTokenizer(worded(tmp_path, "$A | | | $B", max_tokens=2), TokenTypes.NONE)

    with pytest.raises(TooLarge):
        tokenizer.encode([("a", "b")], cut)


def test_a_lone_surrogate_reads_as_the_replacement_character(scorers: TinyScorers):
    odd, replaced = pairs_of(scorers.folder("bert")).encode([("la \ud83d", "\ud83d"), ("la \ufffd", "\ufffd")])

    assert replaced.ids.tolist() == odd.ids.tolist()


def test_two_empty_texts_never_have_no_token(tmp_path):
    """A tokenizer without marks for pairs must not hand the packed batch a text of no rows."""
    tokenizer = PairTokenizer(worded(tmp_path, None), TokenTypes.SEGMENTS)

    [tokens] = tokenizer.encode([("", "")])

    assert (2, 1) == tokens.payload.shape


def test_a_template_in_no_usual_order(tmp_path):
    """The second text first: what is cut would not be what was said."""
    with pytest.raises(ModelUnavailable, match="no first text before a second"):
        PairTokenizer(worded(tmp_path, "$B | $A"), TokenTypes.NONE)
