"""Apache Tika's dialect, and Open WebUI's external loader."""

from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits
from backend.errors import UnreadableFile
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services

PDF = b"%PDF-1.7 of a test"
TEXT = "IBAN ES91 2100\nTotal 1.284,50 €\n\n<b> &"


async def test_open_webui_tika_loader(client: httpx.AsyncClient) -> None:
    """Its TikaLoader puts the bytes without a media type and reads JSON."""
    body = (await client.put("/tika/text", content=PDF)).json()

    assert (TEXT, "application/pdf", "3", "Ñ") == (
        body["X-TIKA:content"], body["Content-Type"], body["xmpTPg:NPages"], body["dc:title"],
    )  # fmt: skip
    assert body["X-TIKA:Parsed-By"]


@pytest.mark.parametrize(
    ("path", "accept", "media_type", "expected"),
    [
        ("/tika", "text/plain", "text/plain; charset=utf-8", TEXT),
        ("/tika", "*/*", "text/plain; charset=utf-8", TEXT),
        ("/tika/text", "text/plain", "text/plain; charset=utf-8", TEXT),
        ("/tika", "text/html", "text/html; charset=utf-8", "&lt;b&gt; &amp;"),
        ("/tika", "application/json", "application/json", "&lt;b&gt;"),
        ("/rmeta/text", "application/json", "application/json", '[{"Content-Type":'),
        ("/rmeta", "application/json", "application/json", "&lt;b&gt;"),
        ("/rmeta/xml", "application/json", "application/json", "&lt;b&gt;"),
        ("/rmeta/html", "*/*", "application/json", "&lt;b&gt;"),
        ("/tika/html", "*/*", "application/json", "&lt;b&gt;"),
        ("/tika/xml", "text/plain", "application/json", "&lt;b&gt;"),
        ("/tika", "application/xml", "text/html; charset=utf-8", "&lt;b&gt; &amp;"),
        ("/meta", "text/csv", "text/csv; charset=utf-8", '"X-TIKA:Parsed-By","financia-inference"'),
        ("/meta", "application/json", "application/json", '{"Content-Type":'),
        ("/detect/stream", "text/plain", "text/plain; charset=utf-8", "application/pdf"),
    ],
)
async def test_bodies(client: httpx.AsyncClient, path: str, accept: str, media_type: str, expected: str) -> None:
    """As tika-python and tika-client put them."""
    name = {"Content-Disposition": 'attachment; filename="a.pdf"'}

    answer = await client.put(path, content=PDF, headers={"accept": accept, **name})

    assert (200, media_type) == (answer.status_code, answer.headers["content-type"])
    assert expected in answer.text


@pytest.mark.parametrize(
    "path", ["/tika/form", "/tika/form/text", "/rmeta/form/html", "/rmeta/form/text", "/rmeta/form", "/meta/form"]
)
async def test_forms(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """As tika-client, and so Paperless-ngx, posts them, in a field of any name."""
    files = {"upload-file": ("factura ñ.pdf", PDF, "application/pdf")}

    answer = (await client.post(path, files=files, headers={"accept": "application/json"})).json()

    metadata = answer[0] if isinstance(answer, list) else answer
    assert ("factura ñ.pdf", str(len(PDF))) == (metadata["resourceName"], metadata["Content-Length"])
    assert PDF == services.documents.calls[0][0]


async def test_metadata_alone(client: httpx.AsyncClient) -> None:
    """Where the path says to ignore the content."""
    [listed] = (await client.put("/rmeta/ignore", content=PDF)).json()
    whole = (await client.put("/tika/ignore", content=PDF)).json()

    assert "application/pdf" == listed["Content-Type"] == whole["Content-Type"]
    assert "X-TIKA:content" not in listed.keys() | whole.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("La factura vence el primero de marzo de este año.", "es"), ("Payment is due in thirty days.", "en"), ("12", "")],
)
async def test_language(client: httpx.AsyncClient, text: str, expected: str) -> None:
    """Of a text, as tika-python and curl send it: whatever the media type says."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = await client.put("/language/string", content=text.encode(), headers=headers)

    assert (200, expected) == (answer.status_code, answer.text)


async def test_language_of_a_file_that_is_too_large() -> None:
    """It is refused by its bytes, as any body with a text is: files may be 100 MB, which would be 400 MB of text."""
    async with connect(fake_services(limits=ApiLimits(body_bytes=50_000))) as client:
        answer = await client.put("/language/stream", content=b"a" * 50_001)

    assert "LIMIT_BODY_BYTES" in problem(answer, 413, "too_large")["detail"]


async def test_version(client: httpx.AsyncClient) -> None:
    """As docling-serve's client reads it, too."""
    assert {"financia-inference"} == (await client.get("/version")).json().keys()


async def test_external_loader(client: httpx.AsyncClient) -> None:
    """Pages as Markdown with their numbers from 0, and the file's name as Open WebUI quotes it."""
    headers = {"X-Filename": "factura%20%C3%B1.pdf", "Content-Type": "application/pdf"}

    pages: list[dict[str, Any]] = (await client.put("/process", content=PDF, headers=headers)).json()

    assert [("factura ñ.pdf", 0, 3), ("factura ñ.pdf", 1, 3)] == [
        (page["metadata"]["source"], page["metadata"]["page"], page["metadata"]["total_pages"]) for page in pages
    ]
    assert "Total 1.284,50 €" in pages[0]["page_content"]


async def test_errors(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Those of the reading, and of a form without a file."""
    services.documents.error = UnreadableFile("file: broken")

    problem(await client.put("/tika", content=PDF), 422, "unreadable_file", "broken")
    problem(await client.put("/process", content=b""), 400, "bad_input", "empty")
    problem(await client.post("/tika/form", files={"a": (None, "b")}), 422, "invalid_field", "only a")
    problem(await client.put("/detect/stream", content=b"\x00\x01\x02"), 415, "wrong_media_type")


async def test_it_greets(client: httpx.AsyncClient) -> None:
    """What checks of a Tika server look for."""
    assert "Tika Server" in (await client.get("/tika")).text
