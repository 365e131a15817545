"""POST /v1/embed and /v2/embed: Cohere's shapes. Its rerank routes are in test_rerank.py."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes.cohere import CohereByType, CohereFloats
from backend.api.routes.cohere_classify import CohereClassifications
from backend.api.routes.embeddings import INPUT_TYPES
from backend.text.classifier_files import Example
from backend.text.embeddings import EmbedOptions
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices, vector

TEXTS = ["uno", "dos y tres"]
INPUTS = [{"content": [{"type": "text", "text": text}]} for text in TEXTS]
BOTH = pytest.mark.parametrize("path", ["/v1/embed", "/v2/embed"])
API_LIMITS = ApiLimits(inputs=5, text_chars=100, body_bytes=10_000)


async def test_floats_of_v1(client: httpx.AsyncClient) -> None:
    """Without embedding_types the vectors are a bare list; nothing else is in the answer than Cohere's own fields."""
    response = await client.post("/v1/embed", json={"texts": TEXTS}, headers={"X-Request-Id": "r-1"})

    body = response.json()
    np.testing.assert_array_equal([vector(text) for text in TEXTS], np.float32(body.pop("embeddings")))
    assert 200 == response.status_code
    assert {
        "response_type": "embeddings_floats",
        "id": "r-1",
        "texts": TEXTS,
        "meta": {"api_version": {"version": "1"}, "billed_units": {"input_tokens": 13}},
    } == body
    require_schema(CohereFloats, response.json())


@BOTH
async def test_by_type(client: httpx.AsyncClient, path: str) -> None:
    """Each form that was asked for, once, in Cohere's words; they agree with each other."""
    types = ["int8", "float", "uint8", "binary", "ubinary", "base64", "float"]

    body = (await client.post(path, json={"texts": TEXTS, "embedding_types": types})).json()

    require_schema(CohereByType, body)
    forms = body["embeddings"]
    assert types[:-1] == list(forms)
    floats = np.float32(forms["float"])
    np.testing.assert_array_equal([vector(text) for text in TEXTS], floats)
    np.testing.assert_array_equal(
        floats, [np.frombuffer(base64.b64decode(text, validate=True), "<f4") for text in forms["base64"]]
    )
    np.testing.assert_array_equal(np.packbits(floats > 0, axis=1), forms["ubinary"])
    np.testing.assert_array_equal(np.array(forms["ubinary"]) - 128, forms["binary"])
    np.testing.assert_array_equal(np.array(forms["int8"]) + 128, forms["uint8"])
    assert ("embeddings_by_type", path[2]) == (body["response_type"], body["meta"]["api_version"]["version"])


async def test_floats_are_the_default_of_v2(client: httpx.AsyncClient) -> None:
    """They are by type there all the same; tokens and times are told as on every route that embeds."""
    for types in ({}, {"embedding_types": None}, {"embedding_types": []}):
        response = await client.post("/v2/embed", json={"texts": TEXTS, **types})

        assert ["float"] == list(response.json()["embeddings"])
        assert 13 == response.json()["meta"]["billed_units"]["input_tokens"]
        assert "inference;dur=" in response.headers["server-timing"]
        require_schema(CohereByType, response.json())


@BOTH
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, EmbedOptions(normalize=True), id="defaults"),
        pytest.param({"truncate": "NONE"}, EmbedOptions(truncate="none", normalize=True), id="never-cut"),
        pytest.param({"truncate": "START"}, EmbedOptions(truncate="start", normalize=True), id="cut-the-start"),
        pytest.param({"truncate": "END"}, EmbedOptions(normalize=True), id="cut-the-end"),
        *(
            pytest.param({"input_type": name}, EmbedOptions(prompts=prompts, normalize=True), id=name)
            for name, prompts in INPUT_TYPES.items()
        ),
        pytest.param(
            dict.fromkeys(("model", "images", "input_type", "embedding_types", "truncate")),
            EmbedOptions(normalize=True),
            id="nulls",
        ),
        pytest.param({"images": [], "unheard_of": 1}, EmbedOptions(normalize=True), id="no-images-and-unknown-fields"),
    ],
)
async def test_options(
    client: httpx.AsyncClient, services: FakeServices, path: str, fields: dict[str, Any], expected: EmbedOptions
) -> None:
    """Cohere's words become the service's options."""
    response = await client.post(path, json={"texts": TEXTS, **fields})

    assert 200 == response.status_code
    assert (TEXTS, expected) == services.embeddings.calls[0][:2]


async def test_inputs_of_v2(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Objects are as good as texts; the parts of one are joined, and the answer says what was read."""
    parts = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}

    body = (await client.post("/v2/embed", json={"inputs": [*INPUTS, parts], "texts": None})).json()

    assert [*TEXTS, "a\nb"] == services.embeddings.calls[0][0] == body["texts"]


async def test_dimensions_of_v2(client: httpx.AsyncClient, services: FakeServices) -> None:
    """output_dimension cuts; what costs nothing to ignore is ignored."""
    fields = {"output_dimension": 8, "max_tokens": 256, "priority": 3}

    body = (await client.post("/v2/embed", json={"texts": TEXTS, "model": "bundled", **fields})).json()

    assert 8 == len(body["embeddings"]["float"][0])
    assert EmbedOptions(normalize=True, dimensions=8) == services.embeddings.calls[0][1]
    assert "bundled" == services.embeddings.calls[0][2]["model"]


@BOTH
async def test_truncated_texts_are_told(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """Where Cohere's clients look for warnings."""
    services.embeddings.truncated = frozenset({0, 1})

    body = (await client.post(path, json={"texts": [*TEXTS, "c"], "embedding_types": ["float"]})).json()

    assert ["cut at the model's 256 tokens: texts 0-1"] == body["meta"]["warnings"]
    require_schema(CohereByType, body)


@BOTH
@pytest.mark.parametrize(
    ("fields", "status", "param", "named"),
    [
        pytest.param({"texts": "a"}, 422, "texts", ["a list"], id="one-text"),
        pytest.param({"texts": ["a", ""]}, 400, "texts", ["texts[1]"], id="empty-text"),
        pytest.param({"images": ["data:image/png;base64,AAAA"]}, 422, "images", ["only texts"], id="images"),
        pytest.param({"input_type": "image"}, 422, "input_type", ["images are not read"], id="image"),
        pytest.param({"input_type": "poem"}, 422, "input_type", ["search_query", "'poem'"], id="input-type"),
        pytest.param({"embedding_types": ["int4"]}, 422, None, ["int8", "int4"], id="type"),
        pytest.param({"truncate": "MIDDLE"}, 422, "truncate", ["MIDDLE", "none"], id="truncate"),
        pytest.param({"model": "embed-v4.0"}, 404, "model", ["embed-v4.0", "bundled"], id="model"),
        pytest.param({"texts": ["a"] * 6}, 413, "texts", ["6", "5", "LIMIT_INPUTS"], id="too-many"),
    ],
)
async def test_bad_requests(
    client: httpx.AsyncClient, path: str, fields: Any, *, status: int, param: str | None, named: list[str]
) -> None:
    """The problem names field, value and limit."""
    body = problem(await client.post(path, json={"texts": TEXTS, **fields}), status, None, *named)

    assert param is None or param == body["error"]["param"]


@pytest.mark.parametrize(
    ("body", "status", "param", "named"),
    [
        pytest.param({}, 422, "texts", ["texts or inputs"], id="neither"),
        pytest.param({"texts": TEXTS, "inputs": INPUTS}, 422, "texts", ["texts or inputs"], id="both"),
        pytest.param({"inputs": []}, 400, "inputs", ["empty list"], id="no-inputs"),
        pytest.param({"inputs": ["a"]}, 422, "inputs", ["inputs[0]", "content"], id="text-as-input"),
        pytest.param({"inputs": {}}, 422, "inputs", ["an object"], id="object"),
        pytest.param({"inputs": [{"content": []}]}, 400, None, ["inputs[0].content"], id="no-parts"),
        pytest.param(
            {"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 422, "inputs",
            ["inputs[0].content[0]", "images are not read"], id="image",
        ),
        pytest.param({"inputs": INPUTS, "max_tokens": 255}, 422, "max_tokens", ["256", "255"], id="max-tokens"),
    ],
)  # fmt: skip
async def test_bad_inputs_of_v2(
    client: httpx.AsyncClient, services: FakeServices, body: Any, *, status: int, param: str | None, named: list[str]
) -> None:
    """Nothing is computed."""
    answer = problem(await client.post("/v2/embed", json=body), status, None, *named)

    assert param is None or param == answer["error"]["param"]
    assert [] == services.embeddings.calls


EXAMPLES = [{"text": "gana dinero", "label": "spam"}, {"text": "acta del lunes", "label": "correo"}]


async def test_classify_by_examples(client: httpx.AsyncClient, services: FakeServices) -> None:
    """On the path of Jina's requests, told by `inputs` and `examples`; the best label is always given."""
    body = {"inputs": ["examples", '"inputs":'], "examples": EXAMPLES, "model": "embed-english-v3.0", "truncate": "END"}
    response = await client.post("/v1/classify", json=body, headers={"X-Request-Id": "r-1"})

    assert 200 == response.status_code, response.text
    require_schema(CohereClassifications, response.json())
    first, second = response.json()["classifications"]
    assert ("r-1", "r-1-0", "examples") == (response.json()["id"], first["id"], first["input"])
    assert ("spam", ["spam"], 0.5, [0.5]) == tuple(
        first[name] for name in ("prediction", "predictions", "confidence", "confidences")
    )
    assert {"spam": {"confidence": 0.5}, "correo": {"confidence": 1 / 3}} == second["labels"]
    texts, examples, _ = services.classification.calls[-1]
    assert (body["inputs"], [Example("gana dinero", ("spam",)), Example("acta del lunes", ("correo",))]) == (
        texts,
        examples,
    )
    jinas = await client.post("/v1/classify", json={"input": ['"inputs": "examples": '], "labels": ["a", "b"]})
    assert "list" == jinas.json()["object"]


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"examples": []}, 400, "examples", id="no-examples"),
        pytest.param({"examples": [*EXAMPLES, {"text": "a"}]}, 422, "examples.2.label", id="no-label"),
        pytest.param({"examples": EXAMPLES * 3}, 413, "LIMIT_INPUTS", id="too-many-examples"),
        pytest.param({"inputs": []}, 400, "inputs", id="no-texts"),
        pytest.param({"inputs": ["a" * 101]}, 413, "LIMIT_TEXT_CHARS", id="long"),
        pytest.param({"preset": "mine"}, 422, "preset", id="preset"),
    ],
)
async def test_bad_examples(client: httpx.AsyncClient, fields: dict[str, Any], status: int, named: str) -> None:
    body = {"inputs": ["a"], "examples": EXAMPLES, **fields}

    problem(await client.post("/v1/classify", json=body), status, None, named)
