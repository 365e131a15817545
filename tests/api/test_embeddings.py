"""POST /v1/embeddings: OpenAI's shape."""

import base64
import json
from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.json_io import VECTOR_ENCODINGS
from backend.api.routes.embeddings import EmbeddingsAnswer
from backend.text.embeddings import EmbedOptions
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices, vector

URL = "/v1/embeddings"


async def test_one_text(client: httpx.AsyncClient) -> None:
    """One text is answered as a list of one, in OpenAI's shape, with an id for Mistral's client."""
    response = await client.post(URL, json={"input": "hola"})

    assert 200 == response.status_code
    assert "application/json" == response.headers["content-type"]
    body = response.json()
    assert response.headers["x-request-id"] == body.pop("id")
    assert {"object": "list", "model": "fake-model", "usage": {"prompt_tokens": 4, "total_tokens": 4}} == {
        key: value for key, value in body.items() if key != "data"
    }
    assert [{"object": "embedding", "index": 0}] == _bare(body)
    np.testing.assert_array_equal(vector("hola"), np.float32(body["data"][0]["embedding"]))


def _bare(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key != "embedding"} for item in body["data"]]


async def test_order_is_kept(client: httpx.AsyncClient) -> None:
    """Vectors come in the order of the texts, with their indices; usage counts all tokens."""
    texts = [f"text {index}" for index in range(20)]

    body = (await client.post(URL, json={"input": texts})).json()

    assert list(range(20)) == [item["index"] for item in body["data"]]
    for text, item in zip(texts, body["data"], strict=True):
        np.testing.assert_array_equal(vector(text), np.float32(item["embedding"]))
    assert sum(map(len, texts)) == body["usage"]["total_tokens"]


@pytest.mark.parametrize("count", [1, 3])
async def test_base64_equals_float(client: httpx.AsyncClient, count: int) -> None:
    """Both formats carry the same float32 numbers, bit for bit."""
    texts = [f"text {index}" for index in range(count)]

    as_float = (await client.post(URL, json={"input": texts, "encoding_format": "float"})).json()
    as_base64 = (await client.post(URL, json={"input": texts, "encoding_format": "base64"})).json()

    for number, coded in zip(as_float["data"], as_base64["data"], strict=True):
        decoded = np.frombuffer(base64.b64decode(coded["embedding"], validate=True), "<f4")
        np.testing.assert_array_equal(np.float32(number["embedding"]), decoded)
    assert as_float["usage"] == as_base64["usage"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param("a", ["a"], id="one-text"),
        pytest.param(["a", "b"], ["a", "b"], id="texts"),
        pytest.param([1, 2], [[1, 2]], id="token-ids"),
        pytest.param([[1, 2], [3]], [[1, 2], [3]], id="lists-of-token-ids"),
        pytest.param({"text": "a"}, ["a"], id="jina's-object"),
        pytest.param([{"text": "a"}, "b", {"text": "c"}], ["a", "b", "c"], id="jina's-objects-among-texts"),
    ],
)
async def test_inputs(client: httpx.AsyncClient, services: FakeServices, sent: Any, expected: Any) -> None:
    """Each of OpenAI's four forms of input, and Jina's objects, reach the service as a list."""
    response = await client.post(URL, json={"input": sent})

    assert 200 == response.status_code
    assert expected == services.embeddings.calls[0][0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, EmbedOptions(), id="defaults"),
        pytest.param({"user": "me", "unheard_of": {"a": 1}}, EmbedOptions(), id="user-and-unknown-fields-are-ignored"),
        pytest.param({"truncate": "none"}, EmbedOptions(truncate="none"), id="never-cut"),
        pytest.param({"truncate": "start"}, EmbedOptions(truncate="start"), id="cut-the-start"),
        pytest.param({"dimensions": 8}, EmbedOptions(dimensions=8), id="dimensions"),
        pytest.param({"prompt_name": "query"}, EmbedOptions(prompt_name="query"), id="prompt"),
        pytest.param({"normalize": False}, EmbedOptions(normalize=False), id="not-normalised"),
        pytest.param({"normalized": False}, EmbedOptions(normalize=False), id="jina's-normalized"),
        pytest.param({"truncate": True}, EmbedOptions(), id="jina's-truncate"),
        pytest.param({"truncate": False}, EmbedOptions(truncate="none"), id="jina's-never-cut"),
        pytest.param({"truncate": "START"}, EmbedOptions(truncate="start"), id="nvidia's-capitals"),
        pytest.param({"output_dimension": 8}, EmbedOptions(dimensions=8), id="voyage's-dimension"),
        pytest.param(
            {"task": "retrieval.query"},
            EmbedOptions(prompts=("retrieval.query", "query", "search_query", "retrieval.query")),
            id="jina's-task",
        ),
        pytest.param({"task": "retrieval"}, EmbedOptions(), id="a-task-of-one-side"),
        pytest.param(
            {"input_type": "passage"},
            EmbedOptions(prompts=("passage", "document", "search_document", "retrieval.passage")),
            id="nvidia's-input-type",
        ),
        pytest.param(
            {"late_chunking": False, "return_multivector": None, "task": None, "input_type": None},
            EmbedOptions(),
            id="jina's-defaults",
        ),
        pytest.param(
            dict.fromkeys(("model", "encoding_format", "dimensions", "user", "truncate", "normalize")),
            EmbedOptions(),
            id="nulls-are-defaults",
        ),
    ],
)
async def test_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: EmbedOptions
) -> None:
    """Each field reaches the service; absent and null fields are defaults."""
    response = await client.post(URL, json={"input": "a", **fields})

    assert 200 == response.status_code
    assert expected == services.embeddings.calls[0][1]


@pytest.mark.parametrize(
    ("fields", "param", "named"),
    [
        pytest.param({"task": "poetry"}, "task", ["retrieval.query", "'poetry'"], id="unknown-task"),
        pytest.param({"input_type": "image"}, "input_type", ["images are not read"], id="image"),
        pytest.param({"late_chunking": True}, "late_chunking", ["not served"], id="late-chunking"),
        pytest.param({"return_multivector": 0}, "return_multivector", ["not served"], id="multivector-0"),
        pytest.param({"return_multivector": True}, "return_multivector", ["not served"], id="multivector"),
        pytest.param({"embedding_type": "int4"}, "embedding_type", ["ubinary", "int4"], id="unknown-type"),
        pytest.param({"truncate": "End"}, "truncate", ["end", "'End'"], id="truncate"),
        pytest.param({"task": "qa", "input_type": "query"}, "task", ["one of"], id="task-and-input-type"),
        pytest.param({"input_type": "query", "prompt_name": "query"}, "input_type", ["one of"], id="two-prompts"),
        pytest.param({"input": [1], "prompt_name": "query"}, "prompt_name", ["token ids"], id="prompt-before-ids"),
        pytest.param({"input": [[1]], "task": "qa.query"}, "task", ["token ids"], id="task-of-ids"),
        pytest.param({"input": {"image": "x"}}, "input", ["field text"], id="jina's-image"),
        pytest.param({"input": ["a", {"url": "x"}]}, "input", ["input[1]"], id="jina's-image-among-texts"),
        pytest.param({"input": [{"text": "a"}, 5]}, "input", ["input[1]"], id="number-among-objects"),
    ],
)
async def test_what_is_not_served(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], param: str, named: list[str]
) -> None:
    """A wish that cannot be met is refused, not ignored, and the message says what can be."""
    body = problem(await client.post(URL, json={"input": "a", **fields}), 422, "invalid_field", *named)

    assert param == body["error"]["param"]
    assert [] == services.embeddings.calls


@pytest.mark.parametrize("field", ["embedding_type", "encoding_type"])
@pytest.mark.parametrize("form", ["float", "base64", "int8", "uint8", "binary", "ubinary"])
async def test_embedding_types(client: httpx.AsyncClient, field: str, form: str) -> None:
    """Jina's forms and quantised ones; they go before the encoding that OpenAI's client always sends."""
    body = (await client.post(URL, json={"input": "hola", "encoding_format": "base64", field: form})).json()

    assert json.loads(VECTOR_ENCODINGS[form](vector("hola"))) == body["data"][0]["embedding"]
    require_schema(EmbeddingsAnswer, body)


@pytest.mark.slow
async def test_truncated_inputs_are_listed(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Nothing is truncated silently: the answer lists the inputs, as its schema says."""
    services.embeddings.truncated = frozenset({0, 2})

    body = (await client.post(URL, json={"input": ["a", "b", "c"]})).json()

    assert [0, 2] == body["truncated"]
    require_schema(EmbeddingsAnswer, body)


async def test_whole_numbers_as_json_has_them(client: httpx.AsyncClient) -> None:
    """JSON Schema counts 8.0 among the integers, so it is one for fields and for token ids."""
    floats = await client.post("/v1/embeddings", json={"input": [[1.0, 2]], "dimensions": 8.0})
    integers = await client.post("/v1/embeddings", json={"input": [[1, 2]], "dimensions": 8})

    assert 200 == floats.status_code
    assert integers.json()["data"] == floats.json()["data"]


async def test_azure_openai(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The deployment's name is the model's, where the body names none; the answer has an id, as Mistral's needs."""
    path = "/openai/deployments/bundled/embeddings?api-version=2024-10-21"

    named, bare = [await client.post(path, json={"input": "a", **more}) for more in ({"model": "fake-model"}, {})]
    unknown = await client.post("/openai/deployments/ada/embeddings", json={"input": "a"})

    assert ["fake-model", "bundled"] == [call["model"] for *_, call in services.embeddings.calls[:2]]
    assert named.json()["id"] == named.headers["x-request-id"]
    assert bare.json()["data"] == named.json()["data"]
    problem(unknown, 404, "model_not_found", "ada")
