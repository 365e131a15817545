"""Reading JSON bodies: size limit, media type, slow clients and clients that disconnect."""

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services

URL = "/v1/embeddings"
BODY = b'{"input": "a"}'


@pytest.mark.parametrize(
    "content_type",
    [
        pytest.param("application/json", id="plain"),
        pytest.param("application/json; charset=utf-8", id="charset"),
        pytest.param('Application/JSON;charset="UTF-8"', id="shouted-and-quoted"),
        pytest.param("application/vnd.api+json", id="a-kind-of-json"),
    ],
)
async def test_json_types(client: httpx.AsyncClient, content_type: str) -> None:
    """JSON under any of its names is read."""
    assert 200 == (await client.post(URL, content=BODY, headers={"Content-Type": content_type})).status_code


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        pytest.param({"Sec-Fetch-Site": "same-origin"}, "no Content-Type", id="none-of-a-browser"),
        pytest.param({"Content-Type": "application/x-www-form-urlencoded"}, "curl sends it as -H", id="curl-default"),
        pytest.param({"Content-Type": "text/plain"}, "text/plain", id="text"),
        pytest.param({"Content-Type": "application/json; charset=latin-1"}, "latin-1", id="other-charset"),
        pytest.param({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "gzip", id="compressed"),
    ],
)
async def test_other_types(client: httpx.AsyncClient, headers: dict[str, str], named: str) -> None:
    """Anything else is 415 and says what was got."""
    response = await client.post(URL, content=BODY, headers=headers)

    problem(response, 415, "wrong_media_type", "application/json" if "Encoding" not in str(headers) else named, named)


async def test_content_length_over_the_limit(services: FakeServices) -> None:
    """A Content-Length over the limit is refused before a byte of the body is read."""
    call = Call(services, URL, headers={"content-length": "1000001", "content-type": "application/json"})

    response = await call.run()

    problem(response, 413, "too_large", "1000001", "1000000", "LIMIT_BODY_BYTES")
    assert 0 == call.received


async def test_chunked_body_over_the_limit(services: FakeServices) -> None:
    """Without a length, reading stops at the chunk that passes the limit."""
    chunks = [b"x" * 400_000] * 100
    call = Call(services, URL, chunks, headers={"content-type": "application/json", "transfer-encoding": "chunked"})

    response = await call.run()

    problem(response, 413, "too_large", "1200000", "LIMIT_BODY_BYTES")
    assert 3 == call.received


async def test_wrong_content_length(services: FakeServices) -> None:
    """A Content-Length that is too small does not lift the limit."""
    call = Call(services, URL, [b"x" * 1_000_001], headers={"content-type": "application/json", "content-length": "5"})

    problem(await call.run(), 413, "too_large", "LIMIT_BODY_BYTES")


async def test_body_at_the_limit(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The limit itself is allowed."""
    padding = b" " * (services.limits.body_bytes - len(BODY))

    response = await client.post(URL, content=BODY + padding, headers={"Content-Type": "application/json"})

    assert 200 == response.status_code


async def test_chunked_body(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A body in pieces, cut even inside a character, is put together."""
    content = '{"input": "camión"}'.encode()

    async def pieces() -> AsyncIterator[bytes]:
        for index in range(len(content)):
            yield content[index : index + 1]

    response = await client.post(URL, content=pieces(), headers={"Content-Type": "application/json"})

    assert 200 == response.status_code
    assert ["camión"] == services.embeddings.calls[0][0]


async def test_disconnect_while_sending(services: FakeServices) -> None:
    """A client that disconnects in the middle of its body counts as gone, not as bad input."""
    call = Call(services, URL, [b'{"inp'], headers={"content-type": "application/json"}, disconnects=True)

    problem(await call.run(), 499, "caller_gone")
    assert [] == services.embeddings.calls


async def test_client_that_never_finishes_its_body() -> None:
    """A body that does not come in time ends with 504, not never."""
    services = fake_services(limits=ApiLimits(request_s=0.05))
    call = Call(services, URL, [b'{"inp'], headers={"content-type": "application/json"}, stalls=True)

    response = await call.run()

    problem(response, 504, "deadline_exceeded", "0.05", "LIMIT_REQUEST_S")


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 2_000_000])
async def test_bodies_of_routes_that_read_none(body: bytes) -> None:
    """A body sent to a route that reads none does no harm."""
    async with connect(fake_services()) as client:
        response: Any = await client.request("GET", "/v1/models", content=body)

    assert 200 == response.status_code


@pytest.fixture
async def large_client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app with the usual limits."""
    async with connect(fake_services(limits=ApiLimits())) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b'{"input":[' + b"1," * 1_000_001 + b"1]}", "values in the body: 100000", id="numbers"),
        pytest.param(b'{"input":[' + b"[1]," * 50_000 + b"[1]]}", "lists and objects in the body: 5000", id="lists"),
        pytest.param(b'{"input":"a","x":[' + b"{}," * 50_000 + b"{}]}", "lists and objects", id="in-unknown-fields"),
        pytest.param(b'{"input":[' + b'"",' * 1_000_001 + b'""]}', "values in the body: 100000", id="texts"),
        pytest.param(
            b'{"input":"a",' + b",".join(b'"%d":1' % index for index in range(100_000)) + b"}",
            "keys of objects in the body: 100001",
            id="keys",
        ),
        pytest.param(b'{"input":["' + b'\\\\",[1],"' * 50_000 + b'"]}', "lists and objects", id="behind-backslashes"),
    ],
)
async def test_more_values_than_are_parsed(large_client: httpx.AsyncClient, body: bytes, words: str) -> None:
    """Five million lists blocked every other request for half a minute."""
    answer = await large_client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})

    problem(answer, 413, "too_large", words, "fewer inputs")


@pytest.mark.parametrize("field", ["types", "sources"])
async def test_a_million_wrong_items(large_client: httpx.AsyncClient, field: str) -> None:
    """The first is told. All of them took 4 s of the event loop, and eight such requests 19 s."""
    body = f'{{"input":"a","{field}":[{",".join(["1"] * 900_000)}]}}'
    started_s = time.process_time()
    answer = await large_client.post("/v1/entities", content=body, headers={"content-type": "application/json"})

    problem(answer, 422, "invalid_field", f"{field}.0")
    assert time.process_time() - started_s < 1


@pytest.mark.parametrize("mark", ["a,", "[{", '\\"[1],', "\\\\[1],"])
async def test_marks_within_a_text_are_no_values(large_client: httpx.AsyncClient, mark: str) -> None:
    """Tables and code are texts like others."""
    text = (mark * 200_000)[:900_000]
    answer = await large_client.post("/v1/embeddings", json={"input": [text, text, text], "model": "bundled"})

    assert 200 == answer.status_code


async def test_a_program_that_names_no_type(client: httpx.AsyncClient) -> None:
    """Weaviate's clients and litellm's for Voyage send JSON without a Content-Type; no browser does."""
    assert 200 == (await client.post(URL, content=BODY)).status_code


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (URL, {"input": "a", "encoding_fromat": "float"}, "did you mean 'encoding_format'?"),
        (URL, {"inptu": "a"}, "'inptu' is no field of this route, did you mean 'input'?"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top-n": 1}, "did you mean 'top_n'?"),
        ("/v1/rerank", {"query": "a", "texts": ["b"]}, "did you mean 'documents'?"),
        ("/v1/embed", {"input": ["a"]}, "did you mean 'texts'?"),
        ("/embed", {"input": "a"}, "did you mean 'inputs'?"),
        ("/v1/classify", {"input": ["a"], "label": ["b", "c"]}, "did you mean 'labels'?"),
        ("/v1/classify", {"input": ["a"], "candidate_labels": ["b", "c"]}, "did you mean 'labels'?"),
        ("/v1/rerank", {"q": "a", "documents": ["b"]}, "did you mean 'query'?"),
        ("/v1/vector_stores/vs_1/search", {"query": "a", "top_k": 3}, "did you mean 'max_num_results'?"),
    ],
)
async def test_a_misspelt_field(client: httpx.AsyncClient, path: str, body: object, named: str) -> None:
    """It is told what was meant, instead of being ignored; the same where a needed field is missing for it."""
    problem(await client.post(path, json=body), 422, "invalid_field", named)


@pytest.mark.parametrize("content", [b"{'input': 'a'}", b"'{input:"])
async def test_the_shells_quotes(client: httpx.AsyncClient, content: bytes) -> None:
    """JSON in single quotes, and what cmd.exe makes of a command that is right elsewhere."""
    answer = await client.post(URL, content=content, headers={"Content-Type": "application/json"})

    problem(answer, 400, "bad_input", "double quotes", "cmd.exe")


async def test_a_file_where_texts_are_read(client: httpx.AsyncClient) -> None:
    problem(await client.post(URL, files={"file": b"a"}), 415, "wrong_media_type", "POST /v1/documents")


async def test_fields_of_other_services(client: httpx.AsyncClient) -> None:
    """Unknown fields that resemble none are ignored as ever."""
    body = {"input": "a", "truncation": True, "output_dtype": "float", "modality": "text", "priority": 3, "usage": 1}

    assert 200 == (await client.post(URL, json=body)).status_code


@pytest.mark.parametrize("path", [URL, "/v1/rerank", "/v1/similarity"])
async def test_an_empty_model_is_the_default(client: httpx.AsyncClient, path: str) -> None:
    """Forms of tools send it so where nothing was chosen."""
    body = {"input": "a", "query": "a", "documents": ["b"], "source": "a", "sentences": ["b"], "model": ""}

    assert 200 == (await client.post(path, json=body)).status_code
