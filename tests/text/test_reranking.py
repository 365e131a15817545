"""Reranking: order and scores of sentence-transformers' CrossEncoder, or the embedding model's cosines."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from backend.errors import TooLarge, UnknownModel
from backend.models.calibration import relevance, relevance_by_tokens
from backend.models.numpy_layers import sigmoid
from backend.models.spec import Pooling
from backend.serving.engines.heads import RERANKER
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, SUBJECTS, unrelated_cosine
from backend.text.embeddings import EmbedOptions
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import BY_TOKENS, RerankService
from backend.text.scoring import ScoringService
from tests.serving.loaded_models import embedding_model, scoring_model
from tests.text.service_stack import PROMPTS, ServiceStack, VectorEngine, loaded_model
from tests.tiny_models import TinyModels, reference_of
from tests.tiny_scorers import TinyScorers, cross_encoder_of

QUERY = "the invoice total"
DOCUMENTS = ["la factura de zürich is due", "", "the invoice total is 12,50 €", "de la " * 60, "total", "¿la importe?"]
BY_VECTORS = {"pooling": Pooling.CLS}  # of models whose tokens are not compared
CLOSE = 1e-4  # float32 summed in another order, over two layers of random weights


def service_of(stack: ServiceStack) -> RerankService:
    neutral, scoring = NeutralVectors(stack.service), ScoringService(stack.inference)
    return RerankService(stack.catalog, stack.service, neutral, scoring, stack.telemetry)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
async def test_order_and_raw_scores_are_those_of_the_cross_encoder(scorers: TinyScorers, build, family):
    """CrossEncoder.rank, a document longer than the model among them; the score is the logit's sigmoid."""
    folder = scorers.folder(family, ("relevant",))
    service = service_of(build(VectorEngine(), spec=BY_VECTORS, others=[scoring_model(folder, RERANKER)], lanes=2))
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


@pytest.mark.parametrize("family", ["bert", "roberta"])
async def test_without_a_cross_encoder_cosines_of_tokens_decide(tiny: TinyModels, build, family):
    """Each token of the query counts with the document's nearest one, in proportion to what it tells."""
    folder = tiny.folder(family)
    service = service_of(build(embedding_model(folder), lanes=2))
    tokens = partial(tokens_of, reference_of(folder))
    documents = [document for document in DOCUMENTS if document]
    neutral = [tokens(text) for text in ALL_NEUTRAL_TEXTS]
    subjects = np.arange(len(neutral)) % SUBJECTS
    unrelated = np.mean(
        [
            cosine_of_tokens(one, other)
            for one, subject in zip(neutral, subjects, strict=True)
            for other, its in zip(neutral, subjects, strict=True)
            if subject != its
        ]
    )
    cosines = np.array([cosine_of_tokens(tokens(QUERY), tokens(document)) for document in documents])

    reranked = await service.rerank(QUERY, documents)

    assert np.argsort(-cosines, kind="stable").tolist() == [row.index for row in reranked.results]
    raw = [row.raw_score for row in reranked.results]
    assert raw == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)
    expected = relevance_by_tokens(np.array(raw), unrelated)
    assert [row.score for row in reranked.results] == pytest.approx(expected, abs=1e-2)
    assert (2,) == reranked.truncated


async def test_prompts_do_not_count_as_tokens_of_a_text(tiny: TinyModels, build):
    """A query and a document with one token each have the cosine of these two, whatever stands before them."""
    model = embedding_model(tiny.folder("bert"))
    model = replace(model, spec=replace(model.spec, prompts={"query": "the ", "passage": "la "}))
    service = service_of(build(model))

    reranked = await service.rerank("total", ["total"])

    read = [
        (await build(model).service.token_vectors([text], EmbedOptions())).rows[0][-2]
        for text in ("the total", "la total")
    ]
    assert pytest.approx(cosine(*read), abs=1e-5) == reranked.results[0].raw_score


async def test_behind_the_nearest_documents_vectors_decide(tiny: TinyModels, build):
    """Tokens are compared of twenty different documents; equal ones are equal, and the others stand behind them."""
    folder = tiny.folder("bert")
    stack = build(embedding_model(folder), lanes=2)
    documents = [f"{'la ' * (number % 7)}{'total ' * (number // 7 % 5)}{number}" for number in range(30)] * 2
    query, *vectors = reference_of(folder).encode([QUERY, *documents], normalize_embeddings=True)
    by_vectors = np.argsort(-(np.array(vectors) @ query), kind="stable").tolist()

    reranked = await service_of(stack).rerank(QUERY, documents)

    order = [row.index for row in reranked.results]
    nearest = set(dict.fromkeys(documents[index] for index in by_vectors[: 2 * BY_TOKENS]))
    assert {documents[index] for index in order[: 2 * BY_TOKENS]} == nearest
    assert [documents[index] for index in by_vectors[2 * BY_TOKENS :]] == [
        documents[index] for index in order[2 * BY_TOKENS :]
    ]
    raw, scores = ([getattr(row, name) for row in reranked.results] for name in ("raw_score", "score"))
    assert sorted(raw, reverse=True) == raw
    assert sorted(scores, reverse=True) == scores
    assert all(raw[at] == raw[at + 1] for at in range(0, len(raw), 2))


def tokens_of(reference: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and vectors of a text's tokens, special ones aside."""
    ids = reference.tokenizer(text, truncation=True, max_length=reference.max_seq_length)["input_ids"][1:-1]
    vectors = reference.encode([text], output_value="token_embeddings")[0].numpy()[1:-1]
    return np.array(ids), vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosine_of_tokens(query: tuple[np.ndarray, np.ndarray], document: tuple[np.ndarray, np.ndarray]) -> float:
    """The mean over the query's tokens, weighted by the logarithm of their ids."""
    weights = np.maximum(np.log(query[0] / 20), 0.3)
    return float(np.average((query[1] @ document[1].T).max(axis=1), weights=weights))


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


@pytest.mark.parametrize(
    "spec", [pytest.param(BY_VECTORS, id="tokens-do-not-make-vectors"), pytest.param({"max_tokens": 8192}, id="long")]
)
async def test_some_models_compare_vectors(tiny: TinyModels, build, spec):
    """The raw score is the cosine, the score how far it is from that of unrelated texts."""
    model = embedding_model(tiny.folder("bert"))
    stack = build(replace(model, spec=replace(model.spec, **spec)), lanes=2)
    embedded = await stack.service.embed([QUERY, *DOCUMENTS], EmbedOptions(normalize=True))
    cosines = embedded.vectors[1:] @ embedded.vectors[0]
    neutral = (await stack.service.embed(list(ALL_NEUTRAL_TEXTS), EmbedOptions(normalize=True))).vectors

    reranked = await service_of(stack).rerank(QUERY, DOCUMENTS)

    assert np.argsort(-cosines, kind="stable").tolist() == [row.index for row in reranked.results]
    raw = [row.raw_score for row in reranked.results]
    assert raw == pytest.approx(sorted(cosines, reverse=True), abs=1e-4)
    expected = relevance(np.array(raw), unrelated_cosine(neutral, neutral))
    assert [row.score for row in reranked.results] == pytest.approx(expected, abs=1e-2)
    assert (3,) == reranked.truncated


async def test_scores_follow_the_cosines(build):
    """0 to 1 in the order of the cosines, negative ones included: random vectors have them half of the time."""
    documents = [f"{number}" for number in range(20)]

    reranked = await service_of(build(VectorEngine(), spec=BY_VECTORS)).rerank(QUERY, documents)

    raw, scores = ([getattr(row, name) for row in reranked.results] for name in ("raw_score", "score"))
    assert min(raw) < 0 < max(raw)
    assert sorted(raw, reverse=True) == raw
    assert sorted(scores, reverse=True) == scores
    assert 0 <= min(scores) < max(scores) <= 1


async def test_query_and_documents_have_their_prompts(build):
    """A text as a query is another than the same as a document."""
    stack = build(VectorEngine(), spec={"prompts": PROMPTS, **BY_VECTORS})

    reranked = await service_of(stack).rerank("total", ["total", "la factura"])

    async def vector(text, prompt) -> np.ndarray:
        embedded = await stack.service.embed([text], EmbedOptions(prompt_name=prompt, normalize=True))
        return embedded.vectors[0]

    query = await vector("total", "query")
    expected = {index: query @ await vector(text, "passage") for index, text in enumerate(["total", "la factura"])}
    assert expected == pytest.approx({row.index: row.raw_score for row in reranked.results}, abs=1e-6)


async def test_a_model_is_measured_once(build):
    """The neutral texts are embedded at the first request, for query and documents; after a swap anew."""
    stack, counts = build(VectorEngine(), spec={"prompts": PROMPTS, **BY_VECTORS}), list[int]()
    service = service_of(stack)

    for number, swap in enumerate((False, False, True)):
        if swap:
            stack.catalog.replace(loaded_model(stack.engine, sha256="b" * 64, prompts=PROMPTS, **BY_VECTORS))
        before = len(stack.computed)
        await service.rerank(f"query {number}", [f"document {number}"])
        counts.append(len(stack.computed) - before)

    neutral = 2 * len(ALL_NEUTRAL_TEXTS)
    assert [2 + neutral, 2, 2 + neutral] == counts


@pytest.mark.parametrize("cross", [True, False])
async def test_equal_documents_keep_the_requests_order(scorers: TinyScorers, build, cross):
    """Equal documents are scored once."""
    model = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    stack = build(VectorEngine(), spec=BY_VECTORS, others=[model] if cross else [])

    reranked = await service_of(stack).rerank(QUERY, ["total", "la", "total", "la", "total"])

    order = [row.index for row in reranked.results]
    assert order in ([0, 2, 4, 1, 3], [1, 3, 0, 2, 4])
    assert (2 if cross else 3 + len(ALL_NEUTRAL_TEXTS)) == (model.engine.inputs if cross else len(stack.computed))


@pytest.mark.parametrize("top_n", [1, 3, 6, 100])
async def test_top_n(scorers: TinyScorers, build, top_n):
    """The first ``top_n`` of all; usage counts every document."""
    stack = build(
        VectorEngine(), spec=BY_VECTORS, others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)]
    )
    service = service_of(stack)

    everything = await service.rerank(QUERY, DOCUMENTS)
    best = await service.rerank(QUERY, DOCUMENTS, top_n=top_n)

    assert everything.results[:top_n] == best.results
    assert everything.tokens == best.tokens


async def test_either_model_can_be_named(scorers: TinyScorers, build):
    """The cross-encoder unless the embedding model is named; a name of neither lists both."""
    cross = scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)
    stack = build(VectorEngine(), spec=BY_VECTORS, others=[cross])
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
        VectorEngine(),
        spec=BY_VECTORS,
        others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else [],
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
        await service_of(build(VectorEngine(), spec=BY_VECTORS)).rerank("de la " * 300, ["la"], truncate="none")

    assert "query" == caught.value.param


@pytest.mark.parametrize("cross", [True, False])
async def test_documents_are_counted_once(scorers: TinyScorers, build, cross):
    """Counted for the reranker whichever model scores, and not for the embedding task."""
    stack = build(
        VectorEngine(),
        spec=BY_VECTORS,
        others=[scoring_model(scorers.folder("bert", ("relevant",)), RERANKER)] if cross else [],
    )

    reranked = await service_of(stack).rerank(QUERY, ["la", "de la " * 300])

    metrics = [stack.metric(f"{name}_total", task=RERANKER) for name in ("inputs", "tokens")]
    assert [2.0, float(reranked.tokens)] == metrics
    assert (1.0, 0.0) == (stack.metric("truncated_total"), stack.metric("inputs_total", task="embeddings"))
