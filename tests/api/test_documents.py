"""``/v1/ocr`` and ``/v1/documents``: the forms of an upload, the formats of an answer, and errors."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from lxml import etree

from backend.documents.records import DEFAULT_FEATURES, PAGE_FEATURES
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.document_fakes import document
from tests.api.fakes import FakeServices

FILE = {"file": ("factura ñ.pdf", b"%PDF-1.7 of a test", "application/pdf")}
BOTH = pytest.mark.parametrize("path", ["/v1/ocr", "/v1/documents"])


@BOTH
async def test_a_form_is_read(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """The service gets the file's bytes unchanged and the fields as options."""
    fields = {"pages": "1-2", "language": "es, en", "source": "ocr", "engine": "tesseract", "password": "p"}

    answer = await client.post(path, files=FILE, data=fields)

    assert 200 == answer.status_code
    [(content, options, urgency)] = services.documents.calls
    assert b"%PDF-1.7 of a test" == content
    assert ("1-2", ("es", "en"), "ocr", "tesseract", "p") == (
        options.pages, options.languages, options.source, options.engine, options.password,
    )  # fmt: skip
    assert options.features == frozenset(PAGE_FEATURES if path == "/v1/ocr" else DEFAULT_FEATURES)
    assert urgency.deadline_s > 0


@pytest.mark.parametrize("media_type", ["application/pdf", "image/png", "application/octet-stream", ""])
async def test_the_body_may_be_the_file(client: httpx.AsyncClient, services: FakeServices, media_type: str) -> None:
    """Its fields are then in the query, and its type is read from its bytes."""
    headers = {"content-type": media_type} if media_type else {}

    answer = await client.post("/v1/ocr?pages=2&language=spa%2Beng", content=b"\x89PNG", headers=headers)

    assert 200 == answer.status_code
    [(content, options, _)] = services.documents.calls
    assert (b"\x89PNG", "2", ("es", "en")) == (content, options.pages, options.languages)


async def test_every_feature(client: httpx.AsyncClient) -> None:
    """Entities, sentences and chunks count code points of ``text``; boxes are in the units of their page."""
    answer = await client.post("/v1/documents", files=FILE)

    body, read = answer.json(), document()
    stages = "open;dur=10.000, read;dur=200.000, understand;dur=50.000, total;dur="
    assert answer.headers["server-timing"].startswith(stages)
    [entity] = body["entities"]
    assert read.text == body["text"]
    assert [0, read.page_starts[1]] == [page["start"] for page in body["pages"]]
    assert "IBAN" == body["pages"][0]["words"][0]["text"]
    assert entity["text"] == body["text"][entity["start"] : entity["end"]]
    assert [{"page": 1, "box": [50.0, 0.0, 145.0, 12.0]}] == entity["places"]
    assert {"value": "ES9121", "type": "IBAN", "score": 0.99} == entity["repair"]
    assert [{"page": 1, "box": [0.0, 20.0, 45.0, 32.0]}] == body["key_sentences"][0]["places"]
    assert [0.25, 0.5] == body["vector"]
    assert {"index": 0, "start": 0, "end": 10, "pages": [1], "tokens": 4, "vector": [0.125, 1.0]} == body["chunks"][0]
    assert {"code": "es", "score": 0.99} == body["language"]
    assert [(3, "unreadable_file")] == [(page["number"], page["error"]["code"]) for page in body["failed_pages"]]
    assert {"pages": 2, "ocr_pages": 2, "prompt_tokens": 9, "total_tokens": 9} == body["usage"]
    assert {"open_s", "read_s", "ocr_s", "understand_s", "total_s"} == body["timings"].keys()
    assert ("pdf", 3, {"title": "Ñ"}, "cpu") == (
        body["kind"], body["page_count"], body["metadata"], body["device"]
    )  # fmt: skip


async def test_only_requested_features(client: httpx.AsyncClient) -> None:
    """Other features are absent from the answer, words and texts of pages too."""
    body = (await client.post("/v1/documents", files=FILE, data={"features": "entities,vector"})).json()

    assert {"entities", "vector", "coverage"} <= body.keys()
    assert not {"text", "language", "chunks", "key_phrases", "classes"} & body.keys()
    assert not {"text", "words"} & body["pages"][0].keys()


async def test_vectors_as_base64(client: httpx.AsyncClient) -> None:
    """Little-endian float32, as /v1/embeddings writes them."""
    body = (await client.post("/v1/documents", files=FILE, data={"encoding_format": "base64"})).json()

    assert [0.25, 0.5] == np.frombuffer(base64.b64decode(body["vector"]), "<f4").tolist()


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
    """``format`` and ``Accept`` choose alike; other formats than JSON need the pages only."""
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
        assert services.documents.extractor.calls
    else:
        assert "1.284,50" in by_field.text


EMPTY_PARTS = [(f"empty{index}", (None, "")) for index in range(70)]
FORM_B = {"content-type": "multipart/form-data; boundary=b"}
WHOLE_FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nwhole\r\n--b--\r\n'


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
        pytest.param({"files": [("file", ("a", b"x")), *EMPTY_PARTS]}, 413, "parts of the form: 65", id="parts"),
        pytest.param({"files": {"file": ("n" * 40_000, b"x")}}, 413, "bytes of the parts' headers", id="long-name"),
        pytest.param(
            {"files": [("file", ("a", b"x")), *[("f" * 4000, (None, "")) for _ in range(10)]]},
            413, "bytes of the parts' headers", id="long-headers",
        ),
        pytest.param(
            {"content": b"--b", "headers": {"content-type": f"multipart/form-data; boundary={'b' * 300}"}},
            400, "Boundary length 300", id="long-boundary",
        ),
    ],
)  # fmt: skip
async def test_bad_uploads(
    client: httpx.AsyncClient, services: FakeServices, asked: dict, status: int, words: str
) -> None:
    """The error says what is wrong and what to send instead; nothing was processed."""
    answer = await client.post("/v1/documents", **asked)

    assert status == answer.status_code, answer.text
    assert words in answer.json()["detail"]
    assert not services.documents.calls


async def test_a_large_upload_is_freed_on_a_thread(services: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred megabytes took the event loop 55 ms."""
    freed, freed_by = threading.Event(), []
    close = StoredFile.close

    def recording_close(file: StoredFile) -> None:
        freed_by.append(threading.current_thread())
        close(file)
        freed.set()

    monkeypatch.setattr(StoredFile, "close", recording_close)
    services.file_limits = FileLimits()
    async with connect(services) as client:
        assert 200 == (await client.post("/v1/documents", content=b"x" * 2**21)).status_code
    assert await asyncio.to_thread(freed.wait, 30.0)

    assert threading.main_thread() not in freed_by


@pytest.mark.parametrize(("tail_pieces", "status"), [(1, 200), (30, 413)])
async def test_what_follows_a_form(client: httpx.AsyncClient, tail_pieces: int, status: int) -> None:
    """A form may have an end that means nothing, and not one without end."""

    async def body() -> AsyncIterator[bytes]:
        yield WHOLE_FORM
        for _ in range(tail_pieces):
            yield b"x" * 60_000

    answer = await client.post("/v1/documents", content=body(), headers=FORM_B)

    assert status == answer.status_code
    assert status == 200 or "bytes of the form" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"features": "text,magic"}, "features.1"),
        ({"labels": "one"}, "second one"),
        ({"top_phrases": "0"}, "top_phrases"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"schema": "{"}, "schema: is no JSON"),
        ({"schema": "[]"}, "schema: must name"),
        ({"entity_labels": "cliente"}, "entity_labels: is no JSON"),
        ({"entity_labels": "[]"}, "entity_labels: must name"),
        ({"entity_labels": '{"a": {"type": "number"}}'}, "entity_labels a: a type of entities has a description"),
        ({"entity_labels": '["a"]', "features": "text"}, "entity_labels: features leaves entities out"),
    ],
)
async def test_bad_fields(client: httpx.AsyncClient, fields: dict[str, str], words: str) -> None:
    """The error names the field."""
    answer = await client.post("/v1/documents", files=FILE, data=fields)

    assert 422 == answer.status_code
    assert words in answer.json()["detail"]


async def test_labels_are_split_at_commas_or_lines(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Labels that contain commas are sent one a line."""
    await client.post("/v1/documents", files=FILE, data={"labels": "factura, contrato"})
    await client.post("/v1/documents", files=FILE, data={"labels": "compra, venta\nalquiler"})

    assert [("factura", "contrato"), ("compra, venta", "alquiler")] == [
        options.labels for _, options, _ in services.documents.calls
    ]


async def test_own_types_of_entities(client: httpx.AsyncClient, services: FakeServices) -> None:
    """They come as JSON, a list or with descriptions."""
    for labels in ('["cliente"]', '{"cliente": ""}', ""):
        await client.post("/v1/documents", files=FILE, data={"entity_labels": labels})

    assert ['{"cliente":""}', '{"cliente":""}', ""] == [
        options.entity_labels for _, options, _ in services.documents.calls
    ]


async def test_a_content_length_over_the_limit_is_refused_at_once(
    client: httpx.AsyncClient, services: FakeServices
) -> None:
    """A client need not send 500 MB to be refused."""
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


async def test_one_deadline_for_reading_and_writing(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The searchable PDF is written in what reading has left of LIMIT_REQUEST_S, not in as much again."""
    answer = await client.post("/v1/documents", files=FILE, headers={"Accept": "application/pdf"})

    assert 200 == answer.status_code
    [(_, _, urgency)] = services.documents.calls
    [(_, _, options)] = services.documents.extractor.calls
    assert urgency.deadline_s == options["deadline_s"]


async def test_the_fields_of_a_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Only fields are asked for, with the pages for another format than JSON; the electronic invoice goes along."""
    answer = await client.post(
        "/v1/fields", files={**FILE, "xml": ("f.xml", b"<Invoice/>")}, data={"features": "chunks"}
    )
    table = await client.post("/v1/fields", files=FILE, data={"format": "csv"})

    assert {"fields", "fields_why", "fields_reasons", "valid", "documents"} <= answer.json().keys()
    keys = {"pages", "kind", "fields", "fields_why", "fields_reasons", "valid"}
    assert [keys] == [one.keys() for one in answer.json()["documents"]]
    assert "chunks" not in answer.json()
    assert "text/csv; charset=utf-8" == table.headers["content-type"]
    [first, second] = [options for _, options, _ in services.documents.calls]
    assert (frozenset({"fields"}), "<Invoice/>") == (first.features, first.xml)
    assert frozenset({"fields", *PAGE_FEATURES}) == second.features


@pytest.mark.parametrize("path", ["/v1/documents", "/v1/fields"])
async def test_callers_say_which_pages_are_one_document(
    client: httpx.AsyncClient, services: FakeServices, path: str
) -> None:
    for split in ("", " none ", "1-2,3"):
        await client.post(path, files=FILE, data={"split": split})
    wrong = await client.post(path, files=FILE, data={"split": "1-2,2"})

    assert ["auto", "none", "1-2,3"] == [options.split for _, options, _ in services.documents.calls]
    assert (422, "split") == (wrong.status_code, wrong.json()["error"]["param"])
    assert "page 2 stands in two documents" in wrong.json()["error"]["message"]


async def test_the_fields_of_a_text(client: httpx.AsyncClient) -> None:
    """A text as JSON is read without the document service; what is no text is refused."""
    text = "FACTURA\nNº factura: 23   Fecha 12/03/2026\nBase imponible  100,00\nIVA 21 %  21,00\nTotal  121,00 €"
    answer = (await client.post("/v1/fields", json={"input": text})).json()
    refused = await client.post("/v1/fields", json={"input": ["a", "b"]})

    assert ("text", "121.00") == (answer["kind"], answer["fields"]["InvoiceTotal"]["value"])
    assert text[answer["fields"]["InvoiceTotal"]["start"] :].startswith("121,00")
    assert 422 == refused.status_code


async def test_fields_in_ones_own_words(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A schema goes with a file as JSON in the form; of a text its values come typed, nested as in the schema."""
    schema = {"properties": {"coche": {"properties": {"km": {"type": "integer"}}}, "averías": {"type": "list"}}}
    await client.post("/v1/documents", files=FILE, data={"schema": json.dumps(schema)})
    answer = await client.post("/v1/fields", json={"input": "Km: 87.500\nAverías: frenos", "schema": schema})

    assert schema == json.loads(services.documents.calls[0][1].schema)
    custom = answer.json()["custom"]
    assert (87500, "87.500", 4, 10, 1) == tuple(
        custom["coche"]["km"][name] for name in ("value", "text", "start", "end", "page")
    )
    assert ["frenos"] == custom["averías"]["value"] == [item["value"] for item in custom["averías"]["items"]]


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ISO-8859-1", "latin-1"), ("UTF-8", "utf-8"), ("utf-16", "utf-16"), ("utf-16", "utf-16-be"), ("utf-16", "utf-8")],
)
async def test_electronic_invoices_in_their_encoding(
    client: httpx.AsyncClient, services: FakeServices, encoding: str, written: str
) -> None:
    """The bytes are read as the declaration says; UTF-16 in which it can be read as ASCII is UTF-8."""
    xml = f'<?xml version="1.0" encoding="{encoding}"?><a>Asesoría</a>'.encode(written)

    await client.post("/v1/fields", files={**FILE, "xml": ("f.xml", xml)})

    [(_, options, _)] = services.documents.calls
    assert "Asesoría" in (options.xml or "")


@pytest.mark.parametrize("encoding", ["punycode", "idna", "undefined", "no-such-encoding", "unicode_escape"])
async def test_no_other_codec_reads_an_electronic_invoice(client: httpx.AsyncClient, encoding: str) -> None:
    """Python's other codecs may be slow (400 KB of punycode took 27 s) or fail: they are refused by name."""
    xml = f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + b"-" + b"a" * 400_000
    started_s = time.perf_counter()

    response = await client.post("/v1/fields", files={**FILE, "xml": ("f.xml", xml)})

    assert 422 == response.status_code
    assert "xml" == response.json()["error"]["param"]
    assert encoding in response.json()["detail"]
    assert time.perf_counter() - started_s < 2.0


async def test_a_name_of_unclosed_quotes_is_read_in_linear_time(client: httpx.AsyncClient) -> None:
    """A part's header of 32 KB whose quotation marks are all escaped took 12 s of the event loop."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="' + b'\\"' * 16_000 + b"\r\n\r\n"
    started_s = time.perf_counter()

    response = await client.post(
        "/v1/ocr",
        content=head + b"\x89PNG" + b"\r\n--x--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )

    assert response.status_code in (200, 422)
    assert time.perf_counter() - started_s < 2.0


async def test_curl_without_line_breaks(client: httpx.AsyncClient, services: FakeServices) -> None:
    """``curl -d @file`` takes them out of a PDF; with --data-binary, which has the same media type, they are there."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    broken = await client.post("/v1/documents", content=b"%PDF-1.7%%EOF", headers=headers)
    whole = await client.post("/v1/documents", content=b"%PDF-1.7\n%%EOF", headers=headers)

    problem(broken, 422, "invalid_field", "--data-binary @")
    assert (200, 1) == (whole.status_code, len(services.documents.calls))


@pytest.mark.parametrize(
    "sent",
    [
        {"files": {"file": (None, "factura 1.pdf")}},
        {"content": b"./scans/factura-1.jpeg"},
        {"content": b"file=@factura.pdf", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    ],
)
async def test_curl_without_the_at_sign(client: httpx.AsyncClient, sent: dict[str, Any]) -> None:
    """The name came in place of the file: the answer says how to send it."""
    problem(await client.post("/v1/ocr", **sent), 422, "invalid_field", "-F file=@", "--data-binary @")


@pytest.mark.parametrize(
    ("path", "field", "meant"),
    [("/v1/ocr", "page", "pages"), ("/v1/documents", "lang", "language"), ("/v1/jobs", "feature", "features")],
)
async def test_a_misspelt_field_of_a_form(client: httpx.AsyncClient, path: str, field: str, meant: str) -> None:
    """Is refused: it would be ignored, and the whole file be read; fields of others are ignored as ever."""
    refused = await client.post(path, files={"file": b"%PDF"}, data={field: "1"})
    problem(refused, 422, "invalid_field", field, f"did you mean '{meant}'?")

    assert "did you mean" not in (await client.post(path, files={"file": b"%PDF"}, data={"tenant": "1"})).text


async def test_an_address_in_place_of_a_file(client: httpx.AsyncClient) -> None:
    refused = await client.post("/v1/documents", files={"url": (None, "https://example.com/a.pdf")})

    problem(refused, 422, "invalid_field", "addresses are not fetched")
