"""Each fault is a clear 4xx that names the field, the limit and the setting; odd but legal text is answered."""

from typing import Any

import httpx
import pytest

from backend.errors import TokenIdsOutOfRange
from tests.api.checks import problem
from tests.api.fakes import FakeServices

URL = "/v1/embeddings"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({}, 422, ["input", "required"], id="no-input"),
        pytest.param({"input": []}, 400, ["input", "empty list"], id="empty-list"),
        pytest.param({"input": ""}, 400, ["input", "empty"], id="empty-text"),
        pytest.param({"input": ["a", "", "b"]}, 400, ["input[1]", "empty"], id="one-empty-text"),
        pytest.param({"input": [[]]}, 400, ["input", "empty"], id="no-token-ids"),
        pytest.param({"input": None}, 422, ["input", "null"], id="null"),
        pytest.param({"input": {"words": "a"}}, 422, ["input", "an object"], id="object"),
        pytest.param({"input": ["a", 5]}, 422, ["input[1]", "a text", "a number"], id="texts-and-number"),
        pytest.param({"input": [None]}, 422, ["input[0]", "null"], id="list-of-null"),
        pytest.param({"input": [True, False]}, 422, ["input[0]", "a boolean"], id="booleans-are-no-ids"),
        pytest.param({"input": [1.5, 2.0]}, 422, ["input[0]", "a number"], id="floats-are-no-ids"),
        pytest.param({"input": [1, True]}, 422, ["input[1]", "a boolean"], id="one-boolean-among-ids"),
        pytest.param({"input": [[1, 2.5]]}, 422, ["input[0]", "whole numbers"], id="float-in-a-list-of-ids"),
        pytest.param({"input": [["a", "b"]]}, 422, ["input[0]", "a text"], id="list-of-lists-of-texts"),
        pytest.param({"input": [10**30]}, 422, ["input[0]", "token id"], id="id-beyond-64-bits"),
        pytest.param({"input": "a", "model": 5}, 422, ["model", "string"], id="model-of-wrong-type"),
        pytest.param({"input": "a", "model": "gpt-4"}, 404, ["gpt-4", "fake-model"], id="unknown-model"),
        pytest.param({"input": "a", "encoding_format": "hex"}, 422, ["encoding_format", "base64", "hex"], id="format"),
        pytest.param({"input": "a", "dimensions": 0}, 422, ["dimensions", "0"], id="no-dimensions"),
        pytest.param({"input": "a", "dimensions": True}, 422, ["dimensions"], id="dimensions-as-boolean"),
        pytest.param({"input": "a", "truncate": "middle"}, 422, ["truncate", "middle"], id="truncate"),
        pytest.param({"input": ["a"] * 101}, 413, ["101", "100", "LIMIT_INPUTS"], id="too-many-inputs"),
        pytest.param({"input": ["a", "b" * 200_001]}, 413, ["input[1]", "200001", "LIMIT_TEXT_CHARS"], id="too-long"),
    ],
)
async def test_faulty_request(client: httpx.AsyncClient, body: Any, status: int, named: list[str]) -> None:
    """What is wrong, where, and what was got."""
    problem(await client.post(URL, json=body), status, None, *named)


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        pytest.param(b"", 400, ["not valid JSON", "column"], id="no-body"),
        pytest.param(b'{"input": "a"', 400, ["not valid JSON", "line 1 column 13"], id="cut-off"),
        pytest.param(b'{"input":\n "a",}', 400, ["not valid JSON", "line 2 column"], id="trailing-comma"),
        pytest.param(b'{"input": "a"} {}', 400, ["not valid JSON", "trailing"], id="two-values"),
        pytest.param(b'{"input": "caf\xe9"}', 400, ["not valid JSON", "column"], id="latin-1"),
        pytest.param(rb'{"input": "\ud800"}', 400, ["not valid JSON", "half a pair"], id="lone-surrogate"),
        pytest.param(b'{"input": ' + b"[" * 40_000, 400, ["not valid JSON", "recursion"], id="deep-nesting"),
        pytest.param(b'{"input": [' + b"9" * 5000 + b"]}", 400, ["not valid JSON", "number"], id="endless-number"),
        pytest.param(b"[]", 422, ["JSON object"], id="list"),
    ],
)
async def test_faulty_bytes(client: httpx.AsyncClient, content: bytes, status: int, named: list[str]) -> None:
    """What is no JSON is 400 with its position; what is JSON but no request is 422."""
    problem(await client.post(URL, content=content, headers=JSON), status, None, *named)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a\x00b", id="nul"),
        pytest.param("👩‍👩‍👧‍👦 🇪🇸 ✓", id="emoji"),
        pytest.param(" \n\t ", id="blank"),
        pytest.param("palabra " * 12_500, id="100k-characters"),
        pytest.param("\U0010fffd\ufdd0\uffff", id="non-characters"),
    ],
)
async def test_odd_text_is_answered(client: httpx.AsyncClient, services: FakeServices, text: str) -> None:
    """Odd but legal text reaches the service unchanged."""
    response = await client.post(URL, json={"input": text})

    assert 200 == response.status_code
    assert [text] == services.embeddings.calls[0][0]


async def test_surrogate_pairs_are_one_character(client: httpx.AsyncClient, services: FakeServices) -> None:
    """An escaped pair of surrogates is the character it stands for."""
    response = await client.post(URL, content=rb'{"input": "\ud83d\ude00"}', headers=JSON)

    assert 200 == response.status_code
    assert ["😀"] == services.embeddings.calls[0][0]


@pytest.mark.slow
async def test_ten_thousand_inputs(client: httpx.AsyncClient) -> None:
    """10,000 inputs are refused with the limit and its setting, on every route that takes a list."""
    texts = ["a"] * 10_000

    for path, body in [
        (URL, {"input": texts}),
        ("/embed", {"inputs": texts}),
        ("/tokenize", {"inputs": texts}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": texts}}),
        ("/predict", {"inputs": [[text] for text in texts]}),
        ("/rerank", {"query": "a", "texts": texts}),
        ("/v1/rerank", {"query": "a", "documents": texts}),
        ("/v1/similarity", {"source": "a", "sentences": texts}),
        ("/v1/classify", {"input": texts}),
        ("/v1/entities", {"input": texts}),
    ]:
        problem(await client.post(path, json=body), 413, "too_large", "LIMIT_INPUTS", "100")


async def test_foreign_token_ids(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Ids of another tokenizer: the error says so and what LangChain users set."""
    services.embeddings.error = TokenIdsOutOfRange(91_000, 30_522)

    response = await client.post(URL, json={"input": [[91_000, 5]]})

    problem(response, 422, "token_ids_out_of_range", "91000", "another tokenizer", "check_embedding_ctx_length=False")


async def test_documents_do_not_leak_into_errors(client: httpx.AsyncClient) -> None:
    """A fault in one field does not repeat the caller's text."""
    response = await client.post(URL, json={"input": ["secreto bancario", 5]})

    assert "secreto" not in response.text
