"""Texts and pairs to scores through the lanes' three verbs, against transformers' and sentence-transformers' own."""

import json

import numpy as np
import pytest

from backend.lanes.engine import EncoderEngine, PinnedEncoder
from backend.models.pairs import PairTokenizer
from backend.models.sequence_head import read_sequence_head
from backend.serving.engines.heads import RERANKER, LogitsHead
from tests.tiny_models import encoder_of, rewrite, spec_of, tokenizer_of
from tests.tiny_scorers import EVERY, NLI, TinyScorers, cross_encoder_of, reference_logits

QUERY = "the invoice total"
DOCUMENTS = ("la factura de zürich is due", "", "the invoice total is 12,50 €", "de la " * 60, "total")
PAIRS = [(QUERY, document) for document in DOCUMENTS]
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


def engine_of(folder, runtime: str, name: str = RERANKER) -> EncoderEngine:
    head = read_sequence_head(spec_of(folder))
    return EncoderEngine(name, PinnedEncoder(encoder_of(folder, runtime, "fp32")), LogitsHead(head), budget=512)


def logits_of(folder, runtime: str, pairs, cut="longest") -> np.ndarray:
    """(pairs, labels), in one batch."""
    engine = engine_of(folder, runtime)
    tokens = PairTokenizer(tokenizer_of(folder), spec_of(folder).token_types).encode(pairs, cut)
    return np.array(engine.finish(engine.forward(engine.prepare([pair.payload for pair in tokens]))))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "runtime"), EVERY)
def test_pairs_are_scored_as_transformers_scores_them(scorers: TinyScorers, family, runtime):
    """Logits of several labels; token types where the family has them."""
    folder = scorers.folder(family)

    found = logits_of(folder, runtime, PAIRS, "second")

    np.testing.assert_allclose(found, reference_logits(folder, PAIRS, "only_second"), atol=CLOSE, rtol=CLOSE)


def test_token_types_change_a_score(scorers: TinyScorers):
    """So a runtime that lost them would be noticed above."""
    folder = scorers.folder("bert")
    engine = engine_of(folder, "onnx")
    [tokens] = PairTokenizer(tokenizer_of(folder), spec_of(folder).token_types).encode([PAIRS[0]])

    typed, untyped = engine.finish(engine.forward(engine.prepare([tokens.payload, tokens.ids])))

    assert np.abs(typed - untyped).max() > 100 * CLOSE


@pytest.mark.slow
@pytest.mark.parametrize(("family", "runtime"), EVERY)
def test_relevance_is_the_cross_encoders(scorers: TinyScorers, family, runtime):
    """predict and rank of sentence-transformers."""
    folder = scorers.folder(family, ("relevance",))
    head, reference = read_sequence_head(spec_of(folder)), cross_encoder_of(folder)

    found = head.apply(logits_of(folder, runtime, PAIRS), head.relevance)[:, 0]

    np.testing.assert_allclose(found, reference.predict(PAIRS), atol=CLOSE, rtol=CLOSE)
    ranked = reference.rank(QUERY, list(DOCUMENTS))
    assert [document["corpus_id"] for document in ranked] == np.argsort(-found).tolist()


@pytest.mark.parametrize("function", ["linear.Identity", "activation.Sigmoid"])
@pytest.mark.parametrize("labels", [("relevance",), NLI], ids=["one-label", "several"])
def test_relevance_by_a_function_of_the_models_own(scorers: TinyScorers, copy_of, labels, function):
    """As config.json names it: what ms-marco rerankers do."""
    folder = copy_of(scorers.folder("bert", labels))
    rewrite(folder / "config.json", sentence_transformers={"activation_fn": f"torch.nn.modules.{function}"})
    head = read_sequence_head(spec_of(folder))

    found = head.apply(logits_of(folder, "onnx", PAIRS), head.relevance)

    expected = cross_encoder_of(folder).predict(PAIRS).reshape(found.shape)
    np.testing.assert_allclose(found, expected, atol=CLOSE, rtol=CLOSE)


def test_a_folder_that_sentence_transformers_wrote(scorers: TinyScorers, tmp_path):
    """Its own modules.json and settings, the function among them."""
    reference = cross_encoder_of(scorers.folder("bert", ("relevance",)))
    reference.save_pretrained(str(tmp_path), create_model_card=False)
    head = read_sequence_head(spec_of(tmp_path))

    found = head.apply(logits_of(tmp_path, "onnx", PAIRS), head.relevance)[:, 0]

    assert "activation_fn" in json.loads((tmp_path / "config_sentence_transformers.json").read_text())
    np.testing.assert_allclose(found, reference.predict(PAIRS), atol=CLOSE, rtol=CLOSE)
