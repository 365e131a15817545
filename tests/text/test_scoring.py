"""Logits of texts and pairs over real lanes: equal to transformers', in order, truncated as requested."""

import numpy as np
import pytest

from backend.errors import TooLarge
from backend.lanes.inference import Urgency
from backend.models.tokenizer import TextTokenizer
from backend.serving.engines.heads import CLASSIFIER
from backend.text.scoring import ScoringService
from tests.serving.loaded_models import scoring_model
from tests.text.service_stack import VectorEngine
from tests.tiny_scorers import TinyScorers

TEXTS = ("la factura de zürich is due", "", "the invoice total is 12,50 €", "de la " * 60)
PAIRS = tuple(("the invoice total", text) for text in TEXTS)
NOW = Urgency()
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


@pytest.fixture
async def stack(build):
    """Lanes and a cache; the embedding model is not used."""
    return build(VectorEngine(), lanes=2)


async def test_texts_and_pairs_of_one_request_keep_their_order(scorers: TinyScorers, stack):
    """Mixed inputs have the logits that each has alone."""
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    service = ScoringService(stack.inference)
    inputs = [TEXTS[0], PAIRS[1], TEXTS[3], PAIRS[2], TEXTS[0], ("", ""), ""]

    together = await service.logits(model, inputs, NOW)
    model.engine.batches.clear()
    again = await service.logits(model, inputs, NOW)
    fresh = ScoringService(stack.inference)
    alone = [
        (await fresh.logits(scoring_model(scorers.folder("bert"), CLASSIFIER), [one], NOW, truncate="start")).values[0]
        for one in inputs
        if one is not TEXTS[3]  # which "start" truncates elsewhere; the parameter keeps the others from the cache
    ]

    np.testing.assert_array_equal(together.values, again.values)
    np.testing.assert_allclose(np.delete(together.values, 2, axis=0), alone, atol=CLOSE, rtol=CLOSE)
    assert 0 == model.engine.inputs


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("la factura", ("la factura", ""), id="a-text-and-a-pair"),
        pytest.param(("la", "factura"), ("la factura", ""), id="where-the-first-ends"),
        pytest.param(("la", "de"), ("de", "la"), id="which-is-first"),
        pytest.param("pair:2:la:de", ("la", "de"), id="a-text-that-looks-like-a-key"),
        pytest.param(("de la " * 60, "la"), ("de la " * 60, "de"), id="one-long-text-with-two"),
    ],
)
async def test_no_two_inputs_share_a_cache_key(scorers: TinyScorers, stack, one, other):
    """Both are computed, whichever comes first."""
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    service = ScoringService(stack.inference)

    first = await service.logits(model, [one], NOW)
    second = await service.logits(model, [other], NOW)

    assert 2 == model.engine.inputs
    assert not np.allclose(first.values, second.values)


@pytest.mark.parametrize(("changed", "value"), [("cut", "second"), ("truncate", "start")])
async def test_what_changes_the_tokens_changes_the_key(scorers: TinyScorers, stack, changed, value):
    """A long input truncated another way has another key."""
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    service = ScoringService(stack.inference)
    long = "the total is due " * 40
    inputs = [long + "la factura", ("the total is due " * 9, "de la factura " * 9)]

    plain = await service.logits(model, inputs, NOW)
    other = await service.logits(model, inputs, NOW, **{changed: value})

    assert 4 == model.engine.inputs
    assert not np.array_equal(plain.values, other.values)


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        pytest.param(["la"] * 3 + [TEXTS[3]], {"truncate": "none"}, r"input\[3\] tokens", id="a-text"),
        pytest.param(
            [("la", "de")] * 2 + [("la", TEXTS[3])],
            {"cut": "none", "param": "documents"},
            r"documents\[2\] tokens",
            id="a-pair",
        ),
        pytest.param(
            [("la", "de"), ("de", TEXTS[3])], {"cut": "first"}, r"input\[1\] tokens", id="the-second-alone-is-too-long"
        ),
    ],
)
async def test_what_does_not_fit_is_named_by_its_place(scorers: TinyScorers, stack, inputs, options, message):
    """The error names the input's position where truncation is refused, or cannot help."""
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)

    with pytest.raises(TooLarge, match=message):
        await ScoringService(stack.inference).logits(model, inputs, NOW, **options)

    assert 0 == model.engine.inputs == stack.in_flight


async def test_very_many_pairs_are_run_in_chunks(scorers: TinyScorers, stack, monkeypatch):
    """Results are in order, and errors name positions in the whole request."""
    monkeypatch.setattr("backend.lanes.inference.CHUNK_INPUTS", 4)
    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    service = ScoringService(stack.inference)
    pairs = [("the invoice", "la " * (number % 7)) for number in range(11)]

    chunked = await service.logits(model, pairs, NOW)
    monkeypatch.undo()
    at_once = await service.logits(model, pairs, NOW)

    np.testing.assert_array_equal(chunked.values, at_once.values)
    assert 7 == model.engine.inputs  # equal pairs once, in whichever chunk
    monkeypatch.setattr("backend.lanes.inference.CHUNK_INPUTS", 4)
    with pytest.raises(TooLarge, match=r"documents\[9\] tokens"):
        await service.logits(model, [*pairs[:9], ("la", "de " * 99)], NOW, cut="none", param="documents")


async def test_a_long_first_text_is_tokenised_once(scorers: TinyScorers, stack, monkeypatch):
    """Although its pairs are tokenised in several slices."""
    read: list[str] = []
    encodings = TextTokenizer.encodings

    def counted(tokenizer: TextTokenizer, texts, **options):
        read.extend(text for text in texts if isinstance(text, str))
        return encodings(tokenizer, texts, **options)

    model = scoring_model(scorers.folder("bert"), CLASSIFIER)
    monkeypatch.setattr(TextTokenizer, "encodings", counted)
    premise = "la factura " * 4_000
    pairs = [(premise, f"label {number}") for number in range(5)]
    await ScoringService(stack.inference).logits(model, pairs, NOW, cut="first")

    assert 1 == read.count(premise)
    assert 5 == len([text for text in read if text.startswith("label ")])
