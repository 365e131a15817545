"""Requests as clients send them that cannot be installed beside ours, recorded from their wire.

Recorded from langchain-cohere 0.6.0 (cohere 5.21.1), litellm 1.106.2 and 1.110.2, llama-index-embeddings-jinaai 0.7.0,
llama-index-embeddings-cohere 0.9.0 and infinity's own client; each of them read the answers of the service.
"""

import base64
from typing import Any

import httpx
import pytest

from tests.api.fakes import WIDTH, FakeServices
from tests.api.test_jobs import PDF

TEXTS = ["Payment is due in 30 days.", "La factura vence en marzo."]
QUESTION = "¿Cuándo vence?"
RANKED = {"documents": TEXTS, "top_n": 1, "return_documents": True}
AZURE = "/openai/deployments/bundled/embeddings?api-version=2024-10-21"
DOCUMENT = {"type": "document_url", "document_url": f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"}
QUERY = ("query", "search_query", "retrieval.query")
PASSAGE = ("passage", "document", "search_document", "retrieval.passage")


@pytest.mark.parametrize(
    ("path", "body", "prompts", "width"),
    [
        pytest.param(
            "/v1/embed",
            {"texts": TEXTS, "input_type": "search_document", "embedding_types": ["float"], "truncate": None},
            PASSAGE,
            WIDTH,
            id="langchain-cohere-documents",
        ),
        pytest.param(
            "/v1/embed",
            {"texts": TEXTS[:1], "input_type": "search_query", "embedding_types": ["float"], "truncate": None},
            QUERY,
            WIDTH,
            id="langchain-cohere-query",
        ),
        pytest.param("/v2/embed", {"texts": TEXTS, "input_type": "search_query"}, QUERY, WIDTH, id="litellm-cohere"),
        pytest.param(
            "/v2/embed",
            {"texts": TEXTS, "input_type": "search_document", "embedding_types": ["float"], "output_dimension": 8},
            PASSAGE,
            8,
            id="litellm-cohere-dimensions",
        ),
        pytest.param(
            "/v2/embed",
            {"texts": TEXTS[:1], "input_type": "search_query", "embedding_types": ["float"], "truncate": "END"},
            QUERY,
            WIDTH,
            id="llama-index-cohere",
        ),
        pytest.param("/embeddings", {"input": TEXTS, "output_dimension": 8}, (), 8, id="litellm-infinity-dimensions"),
        pytest.param(
            "/embeddings", {"input": TEXTS, "dimensions": 0, "modality": "text"}, (), WIDTH, id="infinity-client"
        ),
        pytest.param(
            "/v1/embeddings", {"task": "retrieval.query", "input": TEXTS}, ("retrieval.query", *QUERY), WIDTH,
            id="litellm-jina",
        ),
        pytest.param(
            "/v1/embeddings", {"input": TEXTS, "input_type": "query"}, QUERY, WIDTH, id="litellm-nvidia-and-openai"
        ),
        pytest.param(
            "/v1/embeddings", {"input": TEXTS, "encoding_type": "float", "task": "retrieval.passage"},
            ("retrieval.passage", *PASSAGE), WIDTH, id="llama-index-jina",
        ),
        pytest.param(
            "/v1/embeddings", {"input": TEXTS, "encoding_type": "ubinary"}, (), WIDTH // 8, id="llama-index-jina-binary"
        ),
        pytest.param("/v1/embeddings", {"input": TEXTS}, (), WIDTH, id="litellm-openai-mistral-xinference-nvidia_nim"),
        pytest.param("/embeddings", {"input": TEXTS}, (), WIDTH, id="litellm-infinity-voyage"),
        pytest.param(AZURE, {"input": TEXTS, "encoding_format": "base64"}, (), WIDTH, id="litellm-azure"),
    ],
)  # fmt: skip
async def test_vectors(
    client: httpx.AsyncClient,
    services: FakeServices,
    path: str,
    body: dict[str, Any],
    *,
    prompts: tuple[str, ...],
    width: int,
) -> None:
    """One vector a text, of the width asked for, with the prompt that the client means."""
    response = await client.post(path, json={"model": "bundled", **body})

    answer = response.json()
    assert 200 == response.status_code, response.text
    vectors = answer["embeddings"]["float"] if "embed" == path[-5:] else [row["embedding"] for row in answer["data"]]
    widths = [len(base64.b64decode(one)) // 4 if isinstance(one, str) else len(one) for one in vectors]
    assert [width] * len(services.embeddings.calls[0][0]) == widths
    assert "data" not in answer or answer["usage"]["total_tokens"] > 0
    assert prompts == services.embeddings.calls[0][1].prompts


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v2/rerank", {"documents": TEXTS, "top_n": 1, "max_tokens_per_doc": None}, id="langchain-cohere"),
        pytest.param("/v2/rerank", RANKED, id="litellm-cohere"),
        pytest.param("/rerank", RANKED, id="litellm-infinity"),
        pytest.param("/v1/rerank", RANKED, id="litellm-jina_ai-azure_ai-hosted_vllm-together_ai"),
        pytest.param("/rerank", {"documents": TEXTS, "return_documents": False, "top_n": 1}, id="litellm-infinity-top"),
        pytest.param(
            "/rerank", {"documents": TEXTS, "return_documents": True, "raw_scores": False}, id="infinity-client"
        ),
    ],
)
async def test_ranks(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """The best first, as many as asked for, with the fields that these clients read."""
    response = await client.post(path, json={"model": "tiny/reranker", "query": QUESTION, **body})

    answer = response.json()
    assert 200 == response.status_code, response.text
    assert answer["id"]
    assert body.get("top_n", 2) == len(answer["results"])
    assert {"index", "relevance_score"} <= answer["results"][0].keys()
    assert bool(body.get("return_documents")) == ("document" in answer["results"][0])
    assert answer["usage"]["total_tokens"] > 0


async def test_ranks_of_text_embeddings_inference(client: httpx.AsyncClient) -> None:
    """litellm's huggingface provider: `top_n` goes with texts here, where text-embeddings-inference ignores it."""
    fields = {"raw_scores": False, "truncation_direction": "Right", "top_n": 1, "return_text": True}

    answer = await client.post("/rerank", json={**fields, "query": QUESTION, "texts": TEXTS})

    assert {"index", "score", "text"} == answer.json()[0].keys()


@pytest.mark.parametrize(
    ("path", "model"),
    [
        pytest.param("/v1/ocr", "mistral-ocr-latest", id="mistral"),
        pytest.param("/providers/mistral/azure/ocr", "mistral-document-ai-2505", id="azure_ai"),
    ],
)
async def test_ocr(client: httpx.AsyncClient, services: FakeServices, path: str, model: str) -> None:
    """litellm's ways to Mistral's OCR."""
    answer = (await client.post(path, json={"model": model, "document": DOCUMENT})).json()

    assert PDF == services.documents.calls[0][0]
    assert (model, 0) == (answer["model"], answer["pages"][0]["index"])
    assert {"markdown", "dimensions", "images"} <= answer["pages"][0].keys()
    assert answer["usage_info"]["pages_processed"] == len(answer["pages"])
