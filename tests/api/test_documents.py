"""``/v1/ocr`` and ``/v1/documents``: uploads in their forms, answers in theirs, and errors that say what to do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from lxml import etree

from backend.errors import Overloaded, PasswordRequired, TooLarge, UnreadableFile, WrongMediaType
from backend.services.documents.records import FEATURES, PAGE_FEATURES
from tests.api.document_fakes import document
from tests.api.fakes import FakeServices

FILE = {"file": ("factura ñ.pdf", b"%PDF-1.7 of a test", "application/pdf")}
BOTH = pytest.mark.parametrize("path", ["/v1/ocr", "/v1/documents"])


@BOTH
async def test_a_form_is_read(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """The file's bytes as they were, and the fields as options."""
    fields = {"pages": "1-2", "language": "es, en", "source": "ocr", "engine": "tesseract", "password": "p"}

    answer = await client.post(path, files=FILE, data=fields)

    assert 200 == answer.status_code
    [(content, options, urgency)] = services.documents.calls
    assert b"%PDF-1.7 of a test" == content
    assert ("1-2", ("es", "en"), "ocr", "tesseract", "p") == (
        options.pages, options.languages, options.source, options.engine, options.password,
    )  # fmt: skip
    assert options.features == frozenset(PAGE_FEATURES if path == "/v1/ocr" else FEATURES)
    assert urgency is not None
    assert urgency.deadline_s > 0


@pytest.mark.parametrize("media_type", ["application/pdf", "image/png", "application/octet-stream", ""])
async def test_a_body_may_be_the_file(client: httpx.AsyncClient, services: FakeServices, media_type: str) -> None:
    """With its fields in the query; its bytes tell what it is."""
    headers = {"content-type": media_type} if media_type else {}

    answer = await client.post("/v1/ocr?pages=2&language=spa%2Beng", content=b"\x89PNG", headers=headers)

    assert 200 == answer.status_code
    [(content, options, _)] = services.documents.calls
    assert (b"\x89PNG", "2", ("spa", "eng")) == (content, options.pages, options.languages)


async def test_all_there_is_to_know(client: httpx.AsyncClient) -> None:
    """One system of places: entities, sentences and chunks count code points of ``text``, boxes are of pages."""
    told = (await client.post("/v1/documents", files=FILE)).json()

    read = document()
    [entity] = told["entities"]
    assert read.text == told["text"]
    assert [0, read.page_starts[1]] == [page["start"] for page in told["pages"]]
    assert "IBAN" == told["pages"][0]["words"][0]["text"]
    assert entity["text"] == told["text"][entity["start"] : entity["end"]]
    assert [{"page": 1, "box": [50.0, 0.0, 145.0, 12.0]}] == entity["places"]
    assert {"value": "ES9121", "type": "IBAN", "score": 0.99} == entity["repair"]
    assert [{"page": 1, "box": [0.0, 20.0, 45.0, 32.0]}] == told["key_sentences"][0]["places"]
    assert [0.25, 0.5] == told["vector"]
    assert {"index": 0, "start": 0, "end": 10, "pages": [1], "tokens": 4, "vector": [0.125, 1.0]} == told["chunks"][0]
    assert {"code": "es", "score": 0.99} == told["language"]
    assert [(3, "unreadable_file")] == [(one["number"], one["error"]["code"]) for one in told["failed_pages"]]
    assert {"pages": 2, "ocr_pages": 2, "prompt_tokens": 9, "total_tokens": 9} == told["usage"]
    assert {"open_s", "read_s", "ocr_s", "understand_s", "total_s"} == told["timings"].keys()
    assert ("pdf", 3, {"title": "Ñ"}, "cpu") == (
        told["kind"], told["page_count"], told["metadata"], told["device"]
    )  # fmt: skip


async def test_only_what_is_asked_for(client: httpx.AsyncClient) -> None:
    """Features that were not asked for are absent, words and texts too."""
    told = (await client.post("/v1/documents", files=FILE, data={"features": "entities,vector"})).json()

    assert {"entities", "vector", "coverage"} <= told.keys()
    assert not {"text", "language", "chunks", "key_phrases", "classes"} & told.keys()
    assert not {"text", "words"} & told["pages"][0].keys()


async def test_vectors_as_base64(client: httpx.AsyncClient) -> None:
    """Little-endian float32, as /v1/embeddings writes them."""
    told = (await client.post("/v1/documents", files=FILE, data={"encoding_format": "base64"})).json()

    assert [0.25, 0.5] == np.frombuffer(base64.b64decode(told["vector"]), "<f4").tolist()


@pytest.mark.parametrize(
    ("form", "accept", "content_type"),
    [
        ("text", "text/plain", "text/plain; charset=utf-8"),
        ("markdown", "text/markdown", "text/markdown; charset=utf-8"),
        ("hocr", "text/vnd.hocr+html", "text/vnd.hocr+html; charset=utf-8"),
        ("alto", "application/alto+xml", "application/alto+xml"),
        ("pdf", "application/pdf", "application/pdf"),
    ],
)
async def test_formats(
    client: httpx.AsyncClient, services: FakeServices, form: str, accept: str, content_type: str
) -> None:
    """By ``format`` and by ``Accept`` alike; only pages are read for them."""
    path = "/v1/documents"
    by_field = await client.post(path, files=FILE, data={"format": form})
    by_header = await client.post(path, files=FILE, headers={"accept": accept})

    assert content_type == by_field.headers["content-type"] == by_header.headers["content-type"]
    assert by_field.content == by_header.content
    assert "3" == by_field.headers["x-failed-pages"]
    assert {frozenset(PAGE_FEATURES)} == {options.features for _, options, _ in services.documents.calls}
    if form in ("hocr", "alto"):
        assert etree.fromstring(by_field.content) is not None
    elif form == "pdf":
        assert by_field.content.startswith(b"%PDF")
        assert services.documents.extractor.asked
    else:
        assert "1.284,50" in by_field.text


async def test_server_timing_tells_the_stages(client: httpx.AsyncClient) -> None:
    """Opening, reading, understanding."""
    header = (await client.post("/v1/documents", files=FILE)).headers["server-timing"]

    assert header.startswith("open;dur=10.000, read;dur=200.000, understand;dur=50.000, total;dur=")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnreadableFile("file: broken"), 422, "unreadable_file"),
        (PasswordRequired("file: it is encrypted; send its password"), 422, "password_required"),
        (WrongMediaType("file: it looks like a ZIP"), 415, "wrong_media_type"),
        (TooLarge("pages", 300, 200, "LIMIT_PAGES"), 413, "too_large"),
        (Overloaded(10, 10, 2.0), 429, "overloaded"),
    ],
)
async def test_the_services_errors_are_problems(
    client: httpx.AsyncClient, services: FakeServices, error: Exception, status: int, code: str
) -> None:
    """Each with its own status and words."""
    services.documents.error = error

    answer = await client.post("/v1/documents", files=FILE)

    assert (status, code) == (answer.status_code, answer.json()["code"])
    assert "application/problem+json" == answer.headers["content-type"]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        pytest.param({"files": {"document": ("a.pdf", b"x")}}, 422, "in the field 'file'", id="other-field"),
        pytest.param({"files": {"other": (None, "x")}}, 422, "has no field 'file', only other", id="no-file"),
        pytest.param({"files": {"file": ("a.pdf", b"")}}, 400, "empty", id="empty-file"),
        pytest.param({"content": b""}, 400, "body is empty", id="empty-body"),
        pytest.param({"json": {"file": "x"}}, 415, "not application/json", id="json"),
        pytest.param({"files": [("file", ("a", b"x")), ("file", ("b", b"y"))]}, 422, "more than one", id="two"),
        pytest.param({"files": {"file": ("a", b"x" * 100_001)}}, 413, "LIMIT_FILE_BYTES", id="too-large"),
        pytest.param({"content": b"x" * 100_001}, 413, "LIMIT_FILE_BYTES", id="too-large-a-body"),
        pytest.param({"files": FILE, "data": {"source": "magic"}}, 422, "source", id="source"),
        pytest.param({"files": FILE, "data": {"format": "docx"}}, 422, "format: 'docx'", id="format"),
        pytest.param({"files": FILE, "data": {"pages": "1" * 2000}}, 422, "pages", id="pages"),
        pytest.param({"files": FILE, "headers": {"accept": "image/png"}}, 406, "application/alto+xml", id="accept"),
        pytest.param({"content": b"x", "headers": {"content-encoding": "gzip"}}, 415, "uncompressed", id="gzip"),
        pytest.param({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary", id="bare"),
        pytest.param(
            {"content": b"--other\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=b"}},
            400, "multipart/form-data", id="torn-head",
        ),
        pytest.param(
            {
                "content": b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhalf a fi',
                "headers": {"content-type": "multipart/form-data; boundary=b"},
            },
            400, "not whole", id="cut-off",
        ),
        pytest.param(
            {"files": {"file": ("a", b"x"), "labels": (None, "y" * 1_000_001)}}, 413, "fields", id="long-fields"
        ),
    ],
)  # fmt: skip
async def test_bad_uploads_are_told(
    client: httpx.AsyncClient, services: FakeServices, asked: dict, status: int, words: str
) -> None:
    """What is wrong, and what to do; nothing was read."""
    answer = await client.post("/v1/documents", **asked)

    assert status == answer.status_code, answer.text
    assert words in answer.json()["detail"]
    assert not services.documents.calls


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"features": "text,magic"}, "features.1"),
        ({"labels": "one"}, "second one"),
        ({"top_phrases": "0"}, "top_phrases"),
        ({"top_sentences": "many"}, "top_sentences"),
        ({"encoding_format": "hex"}, "encoding_format"),
    ],
)
async def test_bad_fields_are_told(client: httpx.AsyncClient, fields: dict[str, str], words: str) -> None:
    """By name, with what was got."""
    answer = await client.post("/v1/documents", files=FILE, data=fields)

    assert 422 == answer.status_code
    assert words in answer.json()["detail"]


async def test_labels_come_in_commas_or_lines(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A label that has a comma goes on a line of its own."""
    await client.post("/v1/documents", files=FILE, data={"labels": "factura, contrato"})
    await client.post("/v1/documents", files=FILE, data={"labels": "compra, venta\nalquiler"})

    assert [("factura", "contrato"), ("compra, venta", "alquiler")] == [
        one.labels for _, one, _ in services.documents.calls
    ]


async def test_a_length_that_is_too_much_is_refused_before_the_first_byte(
    client: httpx.AsyncClient, services: FakeServices
) -> None:
    """500 MB need not be sent to be refused."""
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(500):
            sent += 1
            yield b"x" * 1000

    headers = {"content-length": str(500 * 2**20), "content-type": "application/pdf"}
    answer = await client.post("/v1/ocr", content=body(), headers=headers)

    assert 413 == answer.status_code
    assert not services.documents.calls


async def test_a_client_that_leaves_ends_the_work(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Reading stops when nobody waits."""
    services.documents.gate = asyncio.Event()
    task = asyncio.create_task(client.post("/v1/documents", files=FILE))
    await services.documents.entered.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 1 == services.documents.cancelled


async def test_a_request_that_takes_too_long_ends(client: httpx.AsyncClient, services: FakeServices) -> None:
    """With 504, and the work with it."""
    services.documents.gate = asyncio.Event()

    answer = await client.post("/v1/documents", files=FILE, headers={"x-request-timeout-s": "0.05"})

    assert 504 == answer.status_code
    assert 1 == services.documents.cancelled
