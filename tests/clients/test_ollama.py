"""Ollama's client: vectors and the list of models."""

from collections.abc import Iterator

import pytest
from ollama import Client, ResponseError

from tests.clients.server import MARKS, LiveServer

pytestmark = MARKS
TEXTS = ["La factura vence en marzo.", "Payment is due in 30 days."]


@pytest.fixture
def client(live_server: LiveServer) -> Iterator[Client]:
    with Client(host=live_server.url) as client:
        yield client


def test_embed(client: Client) -> None:
    """Many texts at a width, and one on the older route: the same vector."""
    many, whole = client.embed("bundled:latest", TEXTS, dimensions=64), client.embed("bundled", TEXTS[0])
    older = client.embeddings("bundled", TEXTS[0])

    assert [64, 64] == [len(vector) for vector in many.embeddings]
    assert (many.prompt_eval_count or 0) > 0
    assert pytest.approx(list(whole.embeddings[0]), abs=1e-5) == list(older.embedding)


def test_list(client: Client) -> None:
    """A name of the list is one that embeds."""
    [name, *_] = [model.model for model in client.list().models]

    assert name
    assert 384 == len(client.embed(name, TEXTS[0]).embeddings[0])


def test_errors_are_its_own(client: Client) -> None:
    """It shows the text of `error`, our message."""
    with pytest.raises(ResponseError) as caught:
        client.embed("llama3", "a")

    assert (404, "model: 'llama3' is not loaded here") == (caught.value.status_code, caught.value.error[:34])
