"""Voyage's client: vectors, ranks, errors."""

import pytest
from voyageai import Client
from voyageai.error import AuthenticationError, InvalidRequestError

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
DOCUMENTS = ["Abrimos a las nueve.", "La factura vence en marzo."]


@pytest.fixture
def client(live_server: LiveServer) -> Client:
    return Client(api_key="not-needed", base_url=f"{live_server.url}/v1")


def test_embed(client: Client) -> None:
    """Its words for a question and for a width, and whole numbers."""
    floats = client.embed(DOCUMENTS, model="bundled", input_type="query", output_dimension=64)
    whole = client.embed(DOCUMENTS[:1], model="bundled", output_dtype="int8")

    assert ([64, 64], True) == ([len(vector) for vector in floats.embeddings], floats.total_tokens > 0)
    assert all(isinstance(number, int) for number in whole.embeddings[0])


def test_rerank(client: Client) -> None:
    """The best one with its text, which the client takes from its own list."""
    ranked = client.rerank("¿Cuándo hay que pagar?", DOCUMENTS, model="bundled", top_k=1)

    [best] = ranked.results
    assert (1, DOCUMENTS[1]) == (best.index, best.document)
    assert 0 < best.relevance_score <= 1
    assert ranked.total_tokens > 0


def test_errors_are_its_own(client: Client, guarded_server: LiveServer) -> None:
    """With our message."""
    with pytest.raises(InvalidRequestError, match="must not be empty"):
        client.embed([""], model="bundled")
    with pytest.raises(AuthenticationError, match="API_KEYS"):
        Client(api_key="wrong-key", base_url=f"{guarded_server.url}/v1").embed(["a"], model="bundled")
