"""litellm's requests, recorded from the wire of 1.110.2, which is not installed for the tests: it takes 150 MB.

Each is answered with the fields that its provider's transformation reads.
"""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.api.fakes import WIDTH, FakeServices
from tests.api.test_jobs import PDF

TEXTS = ["Payment is due in 30 days.", "La factura vence en marzo."]
MODEL = {"model": "tiny/reranker"}
RANKED = {**MODEL, "query": "¿Cuándo vence?", "top_n": 1, "documents": TEXTS, "return_documents": True}
URL = f"data:application/pdf;base64,{base64.b64encode(PDF).decode()}"
DOCUMENT = {"type": "document_url", "document_url": URL}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/v2/rerank", id="cohere"),
        pytest.param("/rerank", id="infinity"),
        pytest.param("/v1/rerank", id="jina_ai-azure_ai-hosted_vllm-together_ai"),
    ],
)
async def test_ranks(client: httpx.AsyncClient, path: str) -> None:
    answer = (await client.post(path, json=RANKED)).json()

    [best] = answer["results"]
    assert {"index", "relevance_score", "document"} <= best.keys()
    assert answer["id"]
    assert answer["usage"]["total_tokens"] > 0


async def test_huggingface(client: httpx.AsyncClient) -> None:
    """`top_n` goes with texts here, where text-embeddings-inference ignores it."""
    fields = {"raw_scores": False, "truncation_direction": "Right", "top_n": 1, "return_text": True}

    answer = await client.post("/rerank", json={**fields, "query": "¿Cuándo vence?", "texts": TEXTS})

    assert {"index", "score", "text"} == answer.json()[0].keys()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        pytest.param("/v1/embeddings", {}, id="openai-mistral-xinference-jina_ai-nvidia_nim"),
        pytest.param(
            "/openai/deployments/bundled/embeddings?api-version=2024-10-21", {"encoding_format": "base64"}, id="azure"
        ),
        pytest.param("/embeddings", {}, id="infinity-voyage"),
    ],
)
async def test_vectors(client: httpx.AsyncClient, path: str, more: dict[str, Any]) -> None:
    answer = (await client.post(path, json={"model": "bundled", "input": TEXTS, **more})).json()

    vectors = [row["embedding"] for row in answer["data"]]
    widths = [len(base64.b64decode(one)) // 4 if isinstance(one, str) else len(one) for one in vectors]
    assert [WIDTH, WIDTH] == widths
    assert answer["usage"]["total_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "model"),
    [
        pytest.param("/v1/ocr", "mistral-ocr-latest", id="mistral"),
        pytest.param("/providers/mistral/azure/ocr", "mistral-document-ai-2505", id="azure_ai"),
    ],
)
async def test_ocr(client: httpx.AsyncClient, services: FakeServices, path: str, model: str) -> None:
    answer = (await client.post(path, json={"model": model, "document": DOCUMENT})).json()

    assert PDF == services.documents.calls[0][0]
    assert (model, 0) == (answer["model"], answer["pages"][0]["index"])
    assert {"markdown", "dimensions", "images"} <= answer["pages"][0].keys()
    assert answer["usage_info"]["pages_processed"] == len(answer["pages"])
