"""LlamaIndex's OpenAI embeddings."""

from typing import Any

import httpx
import numpy as np
from llama_index.embeddings.openai import OpenAIEmbedding

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXTS = ["The invoice is due in 30 days.", "La factura vence en 30 días."]


def _embedding(server: LiveServer, **options: Any) -> OpenAIEmbedding:
    return OpenAIEmbedding(
        api_base=f"{server.url}/v1", api_key="not-needed", model_name="bundled", max_retries=0, **options
    )


def test_texts_and_queries(live_server: LiveServer) -> None:
    """Batches of texts, and a query that equals its text."""
    embedding = _embedding(live_server)
    vectors = embedding.get_text_embedding_batch(TEXTS)

    assert (2, 384) == np.shape(vectors)
    np.testing.assert_allclose(vectors[1], embedding.get_query_embedding(TEXTS[1]), atol=1e-6)


async def test_async(live_server: LiveServer) -> None:
    """The async methods work too. It never closes connections of its own."""
    async with httpx.AsyncClient() as client:
        embedding = _embedding(live_server, async_http_client=client)

        assert 384 == len(await embedding.aget_text_embedding(TEXTS[0]))
