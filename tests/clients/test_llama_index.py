"""LlamaIndex's OpenAI embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from llama_index.embeddings.openai import OpenAIEmbedding

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXTS = ["The invoice is due in 30 days.", "La factura vence en 30 días."]


@pytest.fixture
def embedding(live_server: LiveServer) -> OpenAIEmbedding:
    return OpenAIEmbedding(api_base=f"{live_server.url}/v1", api_key="not-needed", model_name="bundled", max_retries=0)


def test_texts_and_queries(embedding: OpenAIEmbedding) -> None:
    """Batches of texts, and a query that equals its text."""
    vectors = embedding.get_text_embedding_batch(TEXTS)

    assert (2, 384) == np.shape(vectors)
    np.testing.assert_allclose(vectors[1], embedding.get_query_embedding(TEXTS[1]), atol=1e-6)


async def test_async(embedding: OpenAIEmbedding) -> None:
    """The async methods work too."""
    assert 384 == len(await embedding.aget_text_embedding(TEXTS[0]))
