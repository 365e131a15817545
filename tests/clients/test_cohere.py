"""Cohere's clients, both APIs, against our /v1 and /v2: rerank and embed."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.clients.server import MARKS, LiveServer

cohere = pytest.importorskip("cohere")
pytestmark = MARKS
QUERY = "When is the invoice due?"
DOCUMENTS = [
    "Our office opens at nine and closes at five.",
    "The invoice is due in 30 days.",
    "A recipe for bread with olives.",
    "Payment of this invoice is expected by the end of March.",
]


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[cohere.ClientV2]:
    with cohere.ClientV2("not-needed", base_url=live_server.url) as client:
        yield client


def test_v2(client: cohere.ClientV2) -> None:
    """The best first, as many as asked for, without documents, and with what the client counts."""
    response = client.rerank(model="bundled", query=QUERY, documents=DOCUMENTS, top_n=3)

    scores = [result.relevance_score for result in response.results]
    assert {1, 3} == {result.index for result in response.results[:2]}
    assert 3 == len(scores)
    assert sorted(scores, reverse=True) == scores
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert response.id
    assert ("2", 1.0) == (response.meta.api_version.version, response.meta.billed_units.search_units)
    assert response.meta.tokens.input_tokens > len(DOCUMENTS)
    assert not hasattr(response.results[0], "document")


def test_v1(live_server: LiveServer) -> None:
    """Texts and objects alike; without a model the one that is loaded; documents come back where asked for."""
    documents = [DOCUMENTS[0], *({"text": text} for text in DOCUMENTS[1:])]
    with cohere.Client("not-needed", base_url=live_server.url) as client:
        with_documents = client.rerank(query=QUERY, documents=documents, return_documents=True)
        bare = client.rerank(query=QUERY, documents=documents, top_n=1, return_documents=False)

    assert [DOCUMENTS[result.index] for result in with_documents.results] == [
        result.document.text for result in with_documents.results
    ]
    assert [with_documents.results[0].index] == [result.index for result in bare.results]
    assert bare.results[0].document is None


def test_fields_of_documents(live_server: LiveServer) -> None:
    """rank_fields says what is read: the same words elsewhere count for nothing."""
    documents = [{"title": DOCUMENTS[0], "text": DOCUMENTS[1]}, {"title": DOCUMENTS[1], "text": DOCUMENTS[0]}]
    with cohere.Client("not-needed", base_url=live_server.url) as client:
        by_title = client.rerank(query=QUERY, documents=documents, rank_fields=["title"])
        by_text = client.rerank(query=QUERY, documents=documents)

    assert ([1, 0], [0, 1]) == tuple([result.index for result in response.results] for response in (by_title, by_text))


async def test_async(live_server: LiveServer) -> None:
    """The async client works too."""
    async with cohere.AsyncClientV2("not-needed", base_url=live_server.url) as client:
        response = await client.rerank(model="bundled", query="¿Cuándo vence?", documents=["Vence en marzo.", "Pan."])

    assert 0 == response.results[0].index


def test_embed_v2(client: cohere.ClientV2, live_server: LiveServer) -> None:
    """Vectors by type, with what the client counts; the two input types differ where the model has prompts for them."""
    types = ["float", "int8", "ubinary"]
    asked = {
        input_type: client.embed(model="bundled", input_type=input_type, texts=DOCUMENTS, embedding_types=types)
        for input_type in ("search_query", "search_document")
    }

    query, document = (np.array(response.embeddings.float_) for response in asked.values())
    response = asked["search_document"]
    assert DOCUMENTS == response.texts
    assert ("2", True) == (response.meta.api_version.version, response.meta.billed_units.input_tokens > len(DOCUMENTS))
    np.testing.assert_allclose(1.0, np.linalg.norm(document, axis=1), atol=1e-4)
    int8 = np.array(response.embeddings.int8, np.float64)
    assert (int8 / np.linalg.norm(int8, axis=1, keepdims=True) * document).sum(axis=1).min() > 0.999
    np.testing.assert_array_equal(np.packbits(document > 0, axis=1), response.embeddings.ubinary)
    assert _has_prompts(live_server) != np.allclose(query, document, atol=1e-3)


def _has_prompts(server: LiveServer) -> bool:
    with server.client() as client:
        return bool(client.get("/v1/models/bundled").json()["prompts"])


def test_embed_inputs(client: cohere.ClientV2) -> None:
    """The newer form of texts gives the same vectors, cut to the dimensions asked for."""
    content = [{"content": [{"type": "text", "text": text}]} for text in DOCUMENTS]
    options = {
        "model": "bundled",
        "input_type": "search_document",
        "embedding_types": ["float"],
        "output_dimension": 64,
    }

    by_inputs = client.embed(inputs=content, **options).embeddings.float_
    by_texts = client.embed(texts=DOCUMENTS, **options).embeddings.float_

    assert (len(DOCUMENTS), 64) == np.shape(by_inputs)
    np.testing.assert_allclose(by_texts, by_inputs, atol=1e-6)


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # the client's own, merging answers
def test_embed_v1(live_server: LiveServer) -> None:
    """The older client sends 96 texts at a time and merges the answers, bare or by type."""
    texts = [f"Invoice {number}" for number in range(100)]
    with cohere.Client("not-needed", base_url=live_server.url) as client:
        bare = client.embed(texts=texts, model="bundled", input_type="search_document")
        typed = client.embed(texts=texts, model="bundled", input_type="search_document", embedding_types=["float"])

    assert (100, texts) == (len(bare.embeddings), bare.texts)
    assert ("embeddings_floats", "embeddings_by_type") == (bare.response_type, typed.response_type)
    np.testing.assert_allclose(bare.embeddings, typed.embeddings.float_, atol=1e-6)
    assert bare.meta.billed_units.input_tokens == typed.meta.billed_units.input_tokens > 100


def test_embed_errors(client: cohere.ClientV2) -> None:
    """The client's own exceptions; and what was cut is told."""
    with pytest.raises(cohere.UnprocessableEntityError, match="images are not read"):
        client.embed(model="bundled", input_type="image", images=["data:image/png;base64,AAAA"])
    with pytest.raises(cohere.NotFoundError, match=r"embed-v4\.0"):
        client.embed(model="embed-v4.0", input_type="search_query", texts=["a"])
    long = client.embed(model="bundled", input_type="search_query", texts=["a", "word " * 2000], truncate="START")

    assert "texts 1" in long.meta.warnings[0]


def test_errors_are_its_own(client: cohere.ClientV2) -> None:
    """Each error raises the client's own exception, with our message."""
    with pytest.raises(cohere.BadRequestError, match="documents: must not be an empty list"):
        client.rerank(model="bundled", query=QUERY, documents=[])
    with pytest.raises(cohere.UnprocessableEntityError, match="top_n"):
        client.rerank(model="bundled", query=QUERY, documents=DOCUMENTS, top_n=0)
    with pytest.raises(cohere.NotFoundError, match=r"rerank-v3\.5"):
        client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)


def test_keys(guarded_server: LiveServer) -> None:
    """The client's key is sent as the API key."""
    with cohere.ClientV2("right-key", base_url=guarded_server.url) as client:
        assert 1 == client.rerank(model="bundled", query=QUERY, documents=DOCUMENTS[:2]).results[0].index
    with cohere.ClientV2("wrong-key", base_url=guarded_server.url) as client:
        with pytest.raises(cohere.UnauthorizedError, match="API_KEYS"):
            client.rerank(model="bundled", query=QUERY, documents=DOCUMENTS)


def test_classify_by_examples(live_server: LiveServer) -> None:
    """The classes of the examples, with confidences that add up to 1."""
    examples = [
        cohere.ClassifyExample(text=text, label=label)
        for label, texts in {
            "billing": ["The invoice is wrong.", "I was charged twice.", "Where is my receipt?"],
            "delivery": ["The parcel has not arrived.", "When will you ship it?", "It came broken in the box."],
        }.items()
        for text in texts
    ]
    with cohere.Client("not-needed", base_url=live_server.url) as client:
        response = client.classify(inputs=["My package is late.", "You billed me two times."], examples=examples)

    assert ["delivery", "billing"] == [found.prediction for found in response.classifications]
    for found in response.classifications:
        assert found.confidence == found.labels[found.prediction].confidence > 0.5
        assert pytest.approx(1.0) == sum(label.confidence for label in found.labels.values())


def test_models(live_server: LiveServer) -> None:
    """Their list: what embeds and ranks, by its name."""
    with cohere.Client("not-needed", base_url=live_server.url) as client:
        models = client.models.list().models

    assert {"embed", "rerank"} <= {endpoint for model in models for endpoint in model.endpoints}
    assert "intfloat/multilingual-e5-small" in {model.name for model in models}
