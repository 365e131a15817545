"""Documents by relevance: sentence-transformers' CrossEncoder order and scores, or the embedding model's cosines."""

from __future__ import annotations

import numpy as np
import pytest

from backend.engines.scoring import RERANKER
from backend.errors import TooLarge, UnknownModel
from backend.models.numpy_layers import sigmoid
from backend.services.reranking import RerankService
from backend.services.scoring import ScoringService
from tests.services.house import House, VectorEngine
from tests.services.loaded import embedding_model, scoring_model
from tests.tiny_models import TinyModels, reference_of
from tests.tiny_scorers import TinyScorers, cross_encoder_of

QUERY = "the invoice total"
DOCUMENTS = ["la factura de zürich is due", "", "the invoice total is 12,50 €", "de la " * 60, "total", "¿la importe?"]
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


def service_of(house: House) -> RerankService:
    return RerankService(house.catalog, house.service, ScoringService(house.inference), house.telemetry)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
async def test_order_and_raw_scores_are_those_of_the_cross_encoder(scorers: TinyScorers, build, family):
    """CrossEncoder.rank, a document longer than the model among them; the score is the logit's sigmoid."""
    folder = scorers.folder(family, ("relevant",))
    service = service_of(build(VectorEngine(), others=[scoring_model(folder, RERANKER)], lanes=2))
    reference = cross_encoder_of(folder)
    expected = [int(row["corpus_id"]) for row in reference.rank(QUERY, DOCUMENTS)]
    logits = reference.predict([(QUERY, one) for one in DOCUMENTS], activation_fn=lambda one: one)

    found = await service.rerank(QUERY, DOCUMENTS)

    assert expected == [one.index for one in found.results]
    assert [one.raw_score for one in found.results] == pytest.approx([logits[place] for place in expected], abs=CLOSE)
    assert [one.score for one in found.results] == pytest.approx(sigmoid(logits[expected]), abs=CLOSE)
    assert (3,) == found.truncated


async def test_without_a_cross_encoder_cosines_decide(tiny: TinyModels, build):
    """Of the embedding model; what is less alike than nothing scores 0, and keeps its place by its raw score."""
    folder = tiny.folder("bert")
    service = service_of(build(embedding_model(folder), lanes=2))
    query, *vectors = reference_of(folder).encode([QUERY, *DOCUMENTS], normalize_embeddings=True)
    cosines = np.array(vectors) @ query

    found = await service.rerank(QUERY, DOCUMENTS)

    assert np.argsort(-cosines, kind="stable").tolist() == [one.index for one in found.results]
    assert [one.raw_score for one in found.results] == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)
    assert [one.score for one in found.results] == pytest.approx(np.clip(sorted(cosines, reverse=True), 0, 1), abs=1e-4)
    assert (3,) == found.truncated


async def test_scores_below_zero_are_cut_and_their_order_kept(build):
    """Random vectors point away from each other as often as not."""
    documents = [f"{number}" for number in range(20)]
    found = await service_of(build(VectorEngine())).rerank(QUERY, documents)

    raw = [one.raw_score for one in found.results]
    assert min(raw) < 0 < max(raw)
    assert sorted(raw, reverse=True) == raw
    assert [max(0.0, one) for one in raw] == [one.score for one in found.results]


@pytest.mark.parametrize("cross", [True, False])
async def test_equal_documents_keep_the_requests_order(scorers: TinyScorers, build, cross):
    """And are judged once."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    house = build(VectorEngine(), others=[model] if cross else [])

    found = await service_of(house).rerank(QUERY, ["total", "la", "total", "la", "total"])

    order = [one.index for one in found.results]
    assert order in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])
    assert (2 if cross else 3) == (model.engine.jobs if cross else len(house.computed))


@pytest.mark.parametrize("top_n", [1, 3, 6, 100])
async def test_the_best_of_them(scorers: TinyScorers, build, top_n):
    """The first of all, in the same order; usage counts every document."""
    house = build(VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)])
    service = service_of(house)

    everything = await service.rerank(QUERY, DOCUMENTS)
    best = await service.rerank(QUERY, DOCUMENTS, top_n=top_n)

    assert everything.results[:top_n] == best.results
    assert everything.tokens == best.tokens


async def test_either_model_is_asked_for_by_its_names(scorers: TinyScorers, build):
    """The cross-encoder unless the embedding model is named; a name of neither lists both."""
    cross = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    house = build(VectorEngine(), others=[cross])
    service = service_of(house)

    by_default = await service.rerank(QUERY, DOCUMENTS)
    by_name = await service.rerank(QUERY, DOCUMENTS, model="reranker")
    by_vectors = await service.rerank(QUERY, DOCUMENTS, model="bundled")

    assert (cross.name, cross.name, house.catalog.embedding().name) == (
        by_default.model,
        by_name.model,
        by_vectors.model,
    )
    assert by_default.results == by_name.results != by_vectors.results
    with pytest.raises(UnknownModel, match=r"'other' is not loaded here; loaded are .*reranker, .*all-MiniLM"):
        await service.rerank(QUERY, DOCUMENTS, model="other")


@pytest.mark.parametrize("cross", [True, False])
async def test_nothing_is_cut_where_that_was_refused(scorers: TinyScorers, build, cross):
    """413 for the one that does not fit; the rest fit."""
    house = build(
        VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else []
    )
    service = service_of(house)
    long = "de la " * 300

    with pytest.raises(TooLarge, match=r"^documents\[1\] tokens: ") as caught:
        await service.rerank(QUERY, ["la", long], truncate="none")
    assert "documents" == caught.value.param

    found = await service.rerank(QUERY, ["la", "de"], truncate="none")
    assert ((), 2) == (found.truncated, len(found.results))


async def test_a_query_that_does_not_fit_is_named(build):
    """It is no document, and nothing that the request calls input."""
    with pytest.raises(TooLarge, match=r"^query tokens: ") as caught:
        await service_of(build(VectorEngine())).rerank("de la " * 300, ["la"], truncate="none")

    assert "query" == caught.value.param


@pytest.mark.parametrize("cross", [True, False])
async def test_documents_are_counted_once(scorers: TinyScorers, build, cross):
    """Under the reranker whoever judges; the embedding task has no part in it."""
    house = build(
        VectorEngine(), others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else []
    )

    found = await service_of(house).rerank(QUERY, ["la", "de la " * 300])

    metrics = [house.metric(f"{name}_total", task=RERANKER) for name in ("inputs", "tokens")]
    assert [2.0, float(found.tokens)] == metrics
    assert (1.0, 0.0) == (house.metric("truncated_total"), house.metric("inputs_total", task="embeddings"))
