"""Reranking: order and scores of sentence-transformers' CrossEncoder, or the embedding model's cosines."""

from __future__ import annotations

import numpy as np
import pytest

from backend.errors import TooLarge, UnknownModel
from backend.models.calibration import relevance
from backend.models.numpy_layers import sigmoid
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, unrelated_cosine
from backend.serving.engines.scoring import RERANKER
from backend.text.embeddings import EmbedOptions
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import RerankService
from backend.text.scoring import ScoringService
from tests.serving.loaded_models import embedding_model, scoring_model
from tests.text.service_stack import PROMPTS, ServiceStack, VectorEngine, loaded_model
from tests.tiny_models import TinyModels, reference_of
from tests.tiny_scorers import TinyScorers, cross_encoder_of

QUERY = "the invoice total"
DOCUMENTS = ["la factura de zürich is due", "", "the invoice total is 12,50 €", "de la " * 60, "total", "¿la importe?"]
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


def service_of(stack: ServiceStack) -> RerankService:
    neutral, scoring = NeutralVectors(stack.service), ScoringService(stack.inference)
    return RerankService(stack.catalog, stack.service, neutral, scoring, stack.telemetry)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
async def test_order_and_raw_scores_are_those_of_the_cross_encoder(scorers: TinyScorers, build, family):
    """CrossEncoder.rank, a document longer than the model among them; the score is the logit's sigmoid."""
    folder = scorers.folder(family, ("relevant",))
    service = service_of(build(VectorEngine(), others=[scoring_model(folder, RERANKER)], lanes=2))
    reference = cross_encoder_of(folder)
    expected = [int(row["corpus_id"]) for row in reference.rank(QUERY, DOCUMENTS)]
    logits = reference.predict([(QUERY, document) for document in DOCUMENTS], activation_fn=lambda logit: logit)

    reranked = await service.rerank(QUERY, DOCUMENTS)

    assert expected == [row.index for row in reranked.results]
    assert [row.raw_score for row in reranked.results] == pytest.approx(
        [logits[index] for index in expected], abs=CLOSE
    )
    assert [row.score for row in reranked.results] == pytest.approx(sigmoid(logits[expected]), abs=CLOSE)
    assert (3,) == reranked.truncated


async def test_without_a_cross_encoder_cosines_decide(tiny: TinyModels, build):
    """The raw score is the cosine, the score how far it is from that of unrelated texts."""
    folder = tiny.folder("bert")
    service = service_of(build(embedding_model(folder), lanes=2))
    query, *vectors = reference_of(folder).encode([QUERY, *DOCUMENTS], normalize_embeddings=True)
    cosines = np.array(vectors) @ query
    neutral = reference_of(folder).encode(list(ALL_NEUTRAL_TEXTS), normalize_embeddings=True)
    unrelated = unrelated_cosine(neutral, neutral)

    reranked = await service.rerank(QUERY, DOCUMENTS)

    assert np.argsort(-cosines, kind="stable").tolist() == [row.index for row in reranked.results]
    assert [row.raw_score for row in reranked.results] == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)
    expected = relevance(np.array([row.raw_score for row in reranked.results]), unrelated)
    assert [row.score for row in reranked.results] == pytest.approx(expected, abs=1e-2)
    assert (3,) == reranked.truncated


async def test_scores_follow_the_cosines(build):
    """0 to 1 in the order of the cosines, negative ones included: random vectors have them half of the time."""
    documents = [f"{number}" for number in range(20)]

    reranked = await service_of(build(VectorEngine())).rerank(QUERY, documents)

    raw, scores = ([getattr(row, name) for row in reranked.results] for name in ("raw_score", "score"))
    assert min(raw) < 0 < max(raw)
    assert sorted(raw, reverse=True) == raw
    assert sorted(scores, reverse=True) == scores
    assert 0 <= min(scores) < max(scores) <= 1


async def test_query_and_documents_have_their_prompts(build):
    """A text as a query is another than the same as a document."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS})

    reranked = await service_of(stack).rerank("total", ["total", "la factura"])

    async def vector(text, prompt) -> np.ndarray:
        embedded = await stack.service.embed([text], EmbedOptions(prompt_name=prompt, normalize=True))
        return embedded.vectors[0]

    query = await vector("total", "query")
    expected = {index: query @ await vector(text, "passage") for index, text in enumerate(["total", "la factura"])}
    assert expected == pytest.approx({row.index: row.raw_score for row in reranked.results}, abs=1e-6)


async def test_a_model_is_measured_once(build):
    """The neutral texts are embedded at the first request, for query and documents; after a swap anew."""
    stack, counts = build(VectorEngine(), spec={"prompts": PROMPTS}), list[int]()
    service = service_of(stack)

    for number, swap in enumerate((False, False, True)):
        if swap:
            stack.catalog.replace(loaded_model(stack.engine, sha256="b" * 64, prompts=PROMPTS))
        before = len(stack.computed)
        await service.rerank(f"query {number}", [f"document {number}"])
        counts.append(len(stack.computed) - before)

    neutral = 2 * len(ALL_NEUTRAL_TEXTS)
    assert [2 + neutral, 2, 2 + neutral] == counts


@pytest.mark.parametrize("cross", [True, False])
async def test_equal_documents_keep_the_requests_order(scorers: TinyScorers, build, cross):
    """Equal documents are scored once."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    stack = build(VectorEngine(), others=[model] if cross else [])

    reranked = await service_of(stack).rerank(QUERY, ["total", "la", "total", "la", "total"])

    order = [row.index for row in reranked.results]
    assert order in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])
    assert (2 if cross else 3 + len(ALL_NEUTRAL_TEXTS)) == (model.engine.inputs if cross else len(stack.computed))


@pytest.mark.parametrize("top_n", [1, 3, 6, 100])
async def test_top_n(scorers: TinyScorers, build, top_n):
    """The first ``top_n`` of all; usage counts every document."""
    stack = build(VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)])
    service = service_of(stack)

    everything = await service.rerank(QUERY, DOCUMENTS)
    best = await service.rerank(QUERY, DOCUMENTS, top_n=top_n)

    assert everything.results[:top_n] == best.results
    assert everything.tokens == best.tokens


async def test_either_model_can_be_named(scorers: TinyScorers, build):
    """The cross-encoder unless the embedding model is named; a name of neither lists both."""
    cross = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    stack = build(VectorEngine(), others=[cross])
    service = service_of(stack)

    by_default = await service.rerank(QUERY, DOCUMENTS)
    by_name = await service.rerank(QUERY, DOCUMENTS, model="reranker")
    by_vectors = await service.rerank(QUERY, DOCUMENTS, model="bundled")

    assert (cross.name, cross.name, stack.catalog.embedding().name) == (
        by_default.model,
        by_name.model,
        by_vectors.model,
    )
    assert by_default.results == by_name.results != by_vectors.results
    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are .*reranker, .*all-MiniLM"):
        await service.rerank(QUERY, DOCUMENTS, model="other")


@pytest.mark.parametrize("cross", [True, False])
async def test_truncation_can_be_refused(scorers: TinyScorers, build, cross):
    """413 names the document that does not fit."""
    stack = build(
        VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else []
    )
    service = service_of(stack)
    long = "de la " * 300

    with pytest.raises(TooLarge, match=r"^documents\[1\] tokens: ") as caught:
        await service.rerank(QUERY, ["la", long], truncate="none")
    assert "documents" == caught.value.param

    reranked = await service.rerank(QUERY, ["la", "de"], truncate="none")
    assert ((), 2) == (reranked.truncated, len(reranked.results))


async def test_a_query_that_does_not_fit_is_named(build):
    """The error names the query, not a document or an input."""
    with pytest.raises(TooLarge, match=r"^query tokens: ") as caught:
        await service_of(build(VectorEngine())).rerank("de la " * 300, ["la"], truncate="none")

    assert "query" == caught.value.param


@pytest.mark.parametrize("cross", [True, False])
async def test_documents_are_counted_once(scorers: TinyScorers, build, cross):
    """Counted for the reranker whichever model scores, and not for the embedding task."""
    stack = build(
        VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else []
    )

    reranked = await service_of(stack).rerank(QUERY, ["la", "de la " * 300])

    metrics = [stack.metric(f"{name}_total", task=RERANKER) for name in ("inputs", "tokens")]
    assert [2.0, float(reranked.tokens)] == metrics
    assert (1.0, 0.0) == (stack.metric("truncated_total"), stack.metric("inputs_total", task="embeddings"))
