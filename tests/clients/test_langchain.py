"""LangChain's OpenAIEmbeddings, set as its users must set it, and the error when they do not."""

from typing import Any

import httpx
import numpy as np
import openai
import pytest
import tiktoken
from langchain_openai import OpenAIEmbeddings

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXTS = ["The invoice is due in 30 days.", "La factura vence en 30 días."]


def _embeddings(server: LiveServer, **options: Any) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        base_url=f"{server.url}/v1", api_key="not-needed", model="bundled", max_retries=0, **options
    )


def test_documents_and_queries(live_server: LiveServer) -> None:
    """With check_embedding_ctx_length=False it sends texts, and a query equals its document."""
    embeddings = _embeddings(live_server, check_embedding_ctx_length=False)

    documents = embeddings.embed_documents(TEXTS)
    query = embeddings.embed_query(TEXTS[1])

    assert (2, 384) == np.shape(documents)
    np.testing.assert_allclose(documents[1], query, atol=1e-6)


async def test_async(live_server: LiveServer) -> None:
    """The async methods work too. It never closes connections of its own."""
    async with httpx.AsyncClient() as client:
        embeddings = _embeddings(live_server, check_embedding_ctx_length=False, http_async_client=client)

        assert (2, 384) == np.shape(await embeddings.aembed_documents(TEXTS))


def test_default_sends_foreign_ids(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it sends tiktoken ids: the error says so and what to set.

    tiktoken fetches its vocabulary from the network, so the test gives it one whose ids are as large as the real ones.
    """
    vocabulary = {bytes([byte]): 60_000 + byte for byte in range(256)}
    encoding = tiktoken.Encoding("stand-in", pat_str=r".", mergeable_ranks=vocabulary, special_tokens={})
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _: encoding)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: encoding)

    with pytest.raises(openai.UnprocessableEntityError, match="check_embedding_ctx_length=False"):
        _embeddings(live_server).embed_documents(TEXTS)
