"""The entity task: label probabilities of tokens, and decoding the labels of words into entities."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.errors import InferenceFailed
from backend.lanes.engine import EncoderEngine, Engine, PinnedEncoder
from backend.models.token_head import TagPrefix, read_tags, read_token_head
from backend.models.weights import Linear
from backend.serving.engines.heads import NER, TokenLabelsHead, decode
from tests.tiny_models import encoder_of, spec_of, tokenizer_of
from tests.tiny_taggers import TinyTaggers

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC")
SURE = 0.9


def engine_of(folder, runtime: str = "onnx") -> EncoderEngine:
    return EncoderEngine(
        NER,
        PinnedEncoder(encoder_of(folder, runtime, "fp32")),
        TokenLabelsHead(read_token_head(spec_of(folder))),
        budget=512,
    )


def run(engine: Engine, payloads) -> list:
    return list(engine.finish(engine.forward(engine.prepare(payloads))))


def test_an_output_that_is_not_finite_fails_its_payload_alone(taggers: TinyTaggers):
    """The neighbours get their probabilities, and no NaN leaves the engine."""
    engine = engine_of(taggers.folder("bert"))
    payloads = [tokens.ids for tokens in tokenizer_of(taggers.folder("bert")).encode(["la", "de la", "total is"])]
    encoder, batch = engine.prepare(payloads)
    hidden = encoder.forward(batch).copy()
    hidden[batch.starts[1] + 2, 3] = np.nan

    first, second, third = engine.finish((encoder, batch, hidden))

    assert np.isfinite(first).all()
    assert np.isfinite(third).all()
    assert isinstance(second, InferenceFailed)
    assert "of 4 tokens is not a finite number" in str(second)


def test_weights_that_are_no_numbers_fail_every_payload(taggers: TinyTaggers):
    """A head that was stored broken is never served as a certainty."""
    engine = engine_of(taggers.folder("bert"))
    head = read_token_head(spec_of(taggers.folder("bert")))
    broken = replace(head, layer=Linear(head.layer.weight * np.float32("nan"), head.layer.bias))
    payloads = [tokens.ids for tokens in tokenizer_of(taggers.folder("bert")).encode(["la", "de la"])]

    assert all(
        isinstance(result, InferenceFailed) for result in run(replace(engine, head=TokenLabelsHead(broken)), payloads)
    )


# Labels to entities


def rows_of(labels: str) -> np.ndarray:
    """(words, labels): each word's label has the probability ``SURE``, or what follows its colon."""
    rows = np.full((len(labels.split()), len(LABELS)), 0.0, np.float32)
    for row, label in zip(rows, labels.split(), strict=True):
        name, _, score = label.partition(":")
        row[LABELS.index(name)] = float(score or SURE)
    return rows


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param("O O", "", id="none"),
        pytest.param("B-PER I-PER O", "PER 0-1", id="an-entity"),
        pytest.param("O I-PER I-PER", "PER 1-2", id="an-inside-that-continues-nothing-begins"),
        pytest.param("B-PER I-LOC I-LOC", "PER 0-0|LOC 1-2", id="an-inside-of-another-type-begins"),
        pytest.param("B-PER B-PER I-PER", "PER 0-0|PER 1-2", id="a-begin-ends-the-one-before"),
        pytest.param("B-PER O I-PER", "PER 0-0|PER 2-2", id="outside-ends-it"),
        pytest.param("B-LOC E-LOC I-LOC", "LOC 0-1|LOC 2-2", id="an-end-ends-it"),
        pytest.param("S-LOC S-LOC I-LOC", "LOC 0-0|LOC 1-1|LOC 2-2", id="singles"),
        pytest.param("E-LOC O", "LOC 0-0", id="an-end-that-ends-nothing"),
        pytest.param("O O B-PER", "PER 2-2", id="at-the-end"),
    ],
)
def test_decode(labels, expected):
    """BIO, BIOES and BILOU, also where a model breaks its scheme."""
    spans = decode(rows_of(labels), read_tags(LABELS))

    assert expected == "|".join(f"{span.type} {span.first}-{span.last}" for span in spans)


def test_plain_types_join_while_they_stay():
    """IO: no mark between two neighbours of one type."""
    rows = np.eye(3, dtype=np.float32)[[1, 1, 0, 1, 2]]

    spans = decode(rows, read_tags(["O", "PER", "LOC"]))

    assert [("PER", 0, 1), ("PER", 3, 3), ("LOC", 4, 4)] == [(span.type, span.first, span.last) for span in spans]


def test_an_entitys_score_is_the_mean_of_its_words():
    """Each word's is its own label's probability."""
    [span] = decode(rows_of("B-PER:0.9 I-PER:0.5 I-PER:0.7"), read_tags(LABELS))

    assert span.score == pytest.approx(0.7)


@given(st.lists(st.sampled_from(LABELS), max_size=30))
def test_entities_cover_every_word_that_is_not_outside_once(labels):
    """In order, without overlap, each of one type."""
    tags = read_tags(LABELS)
    spans = decode(rows_of(" ".join(labels)), tags)

    chosen = [tags[LABELS.index(label)] for label in labels]
    assert [(word, span.type) for span in spans for word in range(span.first, span.last + 1)] == [
        (word, tag.type) for word, tag in enumerate(chosen) if tag.prefix is not TagPrefix.OUTSIDE
    ]
