"""The shapes of text-embeddings-inference."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from backend.services.embedding_options import EmbedOptions
from tests.api.checks import problem
from tests.api.fakes import FakeServices, vector


@pytest.mark.parametrize("inputs", ["hola", ["hola"], ["hola", "adiós"], [1, 2, 3], [[1, 2], [3]]])
async def test_embed(client: httpx.AsyncClient, inputs: Any) -> None:
    """A bare list of vectors, one for each input, a single input too."""
    response = await client.post("/embed", json={"inputs": inputs})

    expected = [inputs] if isinstance(inputs, str) or isinstance(inputs[0], int) else inputs
    assert 200 == response.status_code
    np.testing.assert_array_equal([vector(one) for one in expected], np.float32(response.json()))
    assert str(sum(map(len, expected))) == response.headers["x-compute-tokens"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, EmbedOptions(normalize=True), id="defaults-are-tei's"),
        pytest.param({"truncate": True}, EmbedOptions(normalize=True), id="cut"),
        pytest.param({"truncate": False}, EmbedOptions(truncate="none", normalize=True), id="never-cut"),
        pytest.param(
            {"truncate": True, "truncation_direction": "left"},
            EmbedOptions(truncate="start", normalize=True),
            id="cut-left",
        ),
        pytest.param(
            {"truncation_direction": "Left"}, EmbedOptions(truncate="start", normalize=True), id="old-spelling"
        ),
        pytest.param({"normalize": False}, EmbedOptions(normalize=False), id="not-normalised"),
        pytest.param(
            {"prompt_name": "query", "dimensions": 4},
            EmbedOptions(prompt_name="query", dimensions=4, normalize=True),
            id="prompt-and-dimensions",
        ),
        pytest.param(
            {
                "truncate": None,
                "truncation_direction": None,
                "normalize": None,
                "prompt_name": None,
                "dimensions": None,
            },
            EmbedOptions(normalize=True),
            id="nulls",
        ),
    ],
)
async def test_embed_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: EmbedOptions
) -> None:
    """TEI's two fields about cutting become the service's one."""
    await client.post("/embed", json={"inputs": "a", **fields})

    assert expected == services.embeddings.calls[0][1]


async def test_cut_inputs_are_told_in_a_header(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A bare list has no room for it, so a header lists the inputs that were cut."""
    services.embeddings.cut = frozenset({1})

    response = await client.post("/embed", json={"inputs": ["a", "b"]})

    assert "1" == response.headers["x-truncated"]


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({}, 422, "inputs", id="no-inputs"),
        pytest.param({"inputs": []}, 400, "inputs", id="empty-list"),
        pytest.param({"inputs": ""}, 400, "inputs", id="empty-text"),
        pytest.param({"inputs": ["a", True]}, 422, "inputs[1]", id="mixed"),
        pytest.param({"inputs": "a", "truncate": "yes"}, 422, "truncate", id="truncate"),
        pytest.param({"inputs": "a", "truncation_direction": "up"}, 422, "truncation_direction", id="direction"),
    ],
)
async def test_embed_faults(client: httpx.AsyncClient, body: Any, status: int, named: str) -> None:
    """Faults name TEI's own fields."""
    problem(await client.post("/embed", json=body), status, None, named)


async def test_similarity(client: httpx.AsyncClient, services: FakeServices) -> None:
    """One score for each sentence, with TEI's nested parameters."""
    inputs = {"source_sentence": "uno", "sentences": ["uno", "dos"]}

    response = await client.post("/similarity", json={"inputs": inputs, "parameters": {"prompt_name": "query"}})

    scores = response.json()
    assert 200 == response.status_code
    assert pytest.approx(1.0, abs=1e-6) == scores[0]
    assert pytest.approx(float(vector("uno") @ vector("dos")), abs=1e-6) == scores[1]
    assert EmbedOptions(prompt_name="query", normalize=True) == services.embeddings.calls[0][1]
    assert "inference;dur=" in response.headers["server-timing"]


@pytest.mark.parametrize(
    ("inputs", "status", "named"),
    [
        pytest.param("a", 422, "inputs", id="text"),
        pytest.param({"source_sentence": "a"}, 422, "inputs.sentences", id="no-sentences"),
        pytest.param({"source_sentence": "a", "sentences": []}, 400, "inputs.sentences", id="empty-list"),
        pytest.param({"source_sentence": "", "sentences": ["a"]}, 400, "inputs.source_sentence", id="empty-source"),
        pytest.param({"source_sentence": "a", "sentences": ["b", ""]}, 400, "inputs.sentences.1", id="empty-sentence"),
        pytest.param({"source_sentence": "a", "sentences": ["b", 5]}, 422, "inputs.sentences.1", id="number"),
        pytest.param({"source_sentence": "a", "sentences": "b"}, 422, "inputs.sentences", id="text-for-list"),
    ],
)
async def test_similarity_faults(client: httpx.AsyncClient, inputs: Any, status: int, named: str) -> None:
    """Faults say where."""
    problem(await client.post("/similarity", json={"inputs": inputs}), status, None, named)


async def test_tokenize(client: httpx.AsyncClient) -> None:
    """One list of tokens for each text; empty texts are fine where nothing is embedded."""
    bare = await client.post("/tokenize", json={"inputs": ["a", ""], "add_special_tokens": False})
    marked = await client.post("/tokenize", json={"inputs": "a"})

    assert [[{"id": 1, "text": "a", "special": False, "start": 0, "stop": 1}]] * 2 == bare.json()
    assert {"id": 0, "text": "[CLS]", "special": True, "start": None, "stop": None} == marked.json()[0][0]


@pytest.mark.parametrize(
    ("inputs", "status"), [([], 400), (5, 422), ([5], 422), (["a", None], 422), ([["a"]], 422), (None, 422)]
)
async def test_tokenize_faults(client: httpx.AsyncClient, inputs: Any, status: int) -> None:
    """Only texts can be cut into tokens."""
    problem(await client.post("/tokenize", json={"inputs": inputs}), status, None, "inputs")


async def test_info(client: httpx.AsyncClient) -> None:
    """TEI's description, with this service's model and limits."""
    body = (await client.get("/info")).json()

    assert ("fake-model", "int8", 256, 512) == tuple(
        body[name] for name in ("model_id", "model_dtype", "max_input_length", "max_batch_tokens")
    )
    assert {"embedding": {"pooling": "mean"}} == body["model_type"]
    assert (100, True) == (body["max_client_batch_size"], body["auto_truncate"])
