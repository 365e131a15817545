"""docling-serve's dialect: conversions and chunks at once, and as tasks, which are jobs."""

import asyncio
import base64
import io
import zipfile
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from backend.documents.records import Chunk
from backend.errors import UnreadableFile
from backend.files.pages import Box, Document, RawWord, make_page
from tests.api import document_fakes
from tests.api.asgi import Call
from tests.api.checks import problem
from tests.api.fakes import FakeServices
from tests.api.test_jobs import PDF, JobsApi, opened
from tests.jobs.replica import FakeProcess

FILES = {"files": ("factura.pdf", PDF, "application/pdf")}
TWO = [("files", ("a.pdf", PDF, "application/pdf")), ("files", ("b.pdf", PDF + b"2", "application/pdf"))]
SOURCE = {"kind": "file", "base64_string": base64.b64encode(PDF).decode(), "filename": "factura.pdf"}


async def test_every_format(client: httpx.AsyncClient, services: FakeServices) -> None:
    """As docling's client asks in a form; what cannot be written or read is told beside the rest."""
    fields = {"to_formats": ["md", "json", "html", "text", "doctags"], "page_range": [1, 3], "ocr_lang": ["es", "en"]}
    fields |= {"force_ocr": "true", "md_page_break_placeholder": "<!-- break -->", "image_export_mode": "placeholder"}

    answer = await client.post("/v1/convert/file", files=FILES, data=fields)

    assert 200 == answer.status_code, answer.text
    [(content, options, _)] = services.documents.calls
    assert (PDF, "1-3", ("es", "en"), "ocr") == (content, options.pages, options.languages, options.source)
    body, document = answer.json(), answer.json()["document"]
    assert ("factura.pdf", None) == (document["filename"], document["doctags_content"])
    assert "1.284,50 €\n\n<!-- break -->\n\n" in document["md_content"]
    assert "DoclingDocument" == document["json_content"]["schema_name"]
    assert document["html_content"].startswith("<!DOCTYPE html>\n<html>\n<head>")
    assert "Total 1.284,50 €\n\n<b> &" in document["text_content"]
    assert ("partial_success", [None, 3]) == (body["status"], [error.get("page_no") for error in body["errors"]])


@pytest.mark.parametrize("source", [{"json": {"sources": [SOURCE]}}, {"files": FILES}])
async def test_markdown_is_the_default(client: httpx.AsyncClient, source: dict[str, Any]) -> None:
    """From a form and from JSON alike; other formats are null."""
    answer = await client.post(f"/v1/convert/{'source' if 'json' in source else 'file'}", **source)

    document = answer.json()["document"]
    assert {"filename", "md_content"} == {name for name, value in document.items() if value is not None}
    assert "Total 1.284,50 €" in document["md_content"]


async def test_headings(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section header of level 1 has two marks, as docling-core writes it."""
    title = [[RawWord("IBAN:ES91", Box(50, 20, 250, 50), 0.9)]]
    body = [[RawWord("palabra", Box(50 * place, 80, 50 * place + 45, 92), 0.9) for place in range(8)]]
    page = make_page(
        [title, body], number=1, width=595.0, height=842.0, source="ocr", why="", engine="", confidence=0.9
    )
    monkeypatch.setattr(document_fakes, "document", lambda: Document("pdf", (page,), 1, "ab" * 32, {}))

    answer = await client.post("/v1/convert/file", files=FILES, data={"to_formats": ["md", "json", "html"]})

    document = answer.json()["document"]
    [header, _] = document["json_content"]["texts"]
    assert ("section_header", 1) == (header["label"], header["level"])
    assert document["md_content"].startswith("## IBAN:ES91\n")
    assert "<h1>IBAN:ES91</h1>" in document["html_content"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"to_formats": "doctags"}, "doctags"),
        ({"to_formats": "yaml"}, "'yaml' is not served; there are md"),
        ({"target_type": "presigned_url"}, "artifact storage to be configured"),
        ({"target_type": "s3"}, "inbody and zip"),
        ({"to_formats": orjson.dumps(["md"] * 101).decode()}, "to_formats: list should have at most 100 items"),
        ({"page_range": ["1"]}, "page_range"),
        ({"ocr_lang": "tlh"}, "ocr_lang: 'tlh' is no language"),
        ({"page_range": ["3", "1"]}, "pages"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, fields: dict[str, Any], named: str) -> None:
    """With the reason as `detail`, which docling's clients show."""
    problem(await client.post("/v1/convert/file", files=FILES, data=fields), 422, "invalid_field", named)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"kind": "http", "url": "https://a/b.pdf"}, "nothing is fetched"),
        ({"kind": "file", "base64_string": "??", "filename": "a.pdf"}, "no base64"),
        ({"kind": "file", "filename": "a.pdf"}, "base64_string"),
    ],
)
async def test_sources_that_are_refused(client: httpx.AsyncClient, source: dict[str, Any], named: str) -> None:
    problem(await client.post("/v1/convert/source", json={"sources": [source]}), 422, "invalid_field", named)


async def test_several_files_are_a_zip(client: httpx.AsyncClient) -> None:
    """Each format of each file by its name."""
    answer = await client.post("/v1/convert/file", files=TWO, data={"to_formats": ["md", "json"]})

    assert "application/zip" == answer.headers["content-type"]
    assert 'filename="converted_docs.zip"' in answer.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert ["a.md", "a.json", "b.md", "b.json"] == archive.namelist()
        assert "DoclingDocument" == orjson.loads(archive.read("b.json"))["schema_name"]


async def test_chunks(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Chunks of the text with their pages; of a form, whose fields have prefixes, and of JSON."""
    of_form = await client.post(
        "/v1/chunk/hybrid/file",
        files=FILES,
        data={"convert_page_range": ["2", "3"], "chunking_include_raw_text": "true"},
    )
    of_json = await client.post(
        "/v1/chunk/hierarchical/source", json={"sources": [SOURCE], "include_converted_doc": True}
    )

    (_, by_size, _), (_, by_element, _) = services.documents.calls
    assert ("2-3", "") == (by_size.pages, by_element.pages)
    assert {"chunks"} == by_size.features - by_element.features  # an element needs no vector
    [chunk] = of_form.json()["chunks"]
    assert ("factura.pdf", 0, "IBAN ES91 ", "IBAN ES91 ", [1], 4) == (
        *(chunk[name] for name in ("filename", "chunk_index", "text", "raw_text", "page_numbers", "num_tokens")),
    )
    assert (["#/texts/0"], "factura.pdf") == (chunk["doc_items"], chunk["metadata"]["origin"]["filename"])
    assert ("<b> &", 2) == tuple(of_json.json()["chunks"][-1][name] for name in ("text", "num_tokens"))
    assert None is of_json.json()["chunks"][0]["raw_text"]
    assert "Total" in of_json.json()["documents"][0]["content"]["md_content"]
    problem(await client.post("/v1/chunk/other/file", files=FILES), 404, "not_found", "hybrid")


async def test_the_size_of_chunks(client: httpx.AsyncClient, services: FakeServices) -> None:
    """`max_tokens` of the chunker, in forms and in JSON; without it the service's own size."""
    await client.post("/v1/chunk/hybrid/file", files=FILES, data={"chunking_max_tokens": "64"})
    body = {"sources": [SOURCE], "chunking_options": {"chunker": "hybrid", "max_tokens": 400, "tokenizer": "any"}}
    by_another = await client.post("/v1/chunk/hybrid/source", json=body)
    by_ours = await client.post("/v1/chunk/hybrid/file", files=FILES, data={"chunking_tokenizer": "fake-model"})

    assert [64, 400, 256] == [options.chunk_tokens for _, options, _ in services.documents.calls]
    *of_pages, told = by_another.json()["documents"][0]["errors"]
    assert ("tokenizer", of_pages) == (told["module_name"], by_ours.json()["documents"][0]["errors"])
    refused = await client.post("/v1/chunk/hybrid/file", files=FILES, data={"chunking_max_tokens": "3"})
    problem(refused, 422, "invalid_field", "max_tokens")


async def test_a_chunk_below_its_heading(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heading of a chunk before is said again, and counted."""
    title = [[RawWord("Título", Box(50, 20, 250, 50), 0.9)]]
    body = [[RawWord("IBAN:ES91", Box(50 + 100 * place, 80, 140 + 100 * place, 92), 0.9) for place in range(4)]]
    page = make_page(
        [title, body], number=1, width=595.0, height=842.0, source="ocr", why="", engine="", confidence=0.9
    )
    read = Document("pdf", (page,), 1, "ab" * 32, {})
    monkeypatch.setattr(document_fakes, "document", lambda: read)
    vector = np.zeros(2, np.float32)
    monkeypatch.setattr(document_fakes, "Chunk", lambda *_: Chunk(8, 18, (1,), 4, vector))

    answer = await client.post("/v1/chunk/hybrid/file", files=FILES, data={"chunking_include_raw_text": "true"})

    [chunk] = answer.json()["chunks"]
    assert (["Título"], "Título\nIBAN:ES91 ", "IBAN:ES91 ", 4 + 2, ["#/texts/1"]) == tuple(
        chunk[name] for name in ("headings", "text", "raw_text", "num_tokens", "doc_items")
    )


async def polled(api: JobsApi, task: str, wait: str = "10") -> dict[str, Any]:
    return (await api.client.get(f"/v1/status/poll/{task}", params={"wait": wait})).json()


async def test_a_task_of_two_files() -> None:
    """One id for both; waiting ends with them; the result is what the foreground would have answered."""
    async with opened(FakeProcess()) as api:
        task = (await api.client.post("/v1/convert/file/async", files=TWO, data={"to_formats": "text"})).json()
        ended = await polled(api, task["task_id"])
        result = await api.client.get(f"/v1/result/{task['task_id']}")

    assert ("convert", "pending") == (task["task_type"], task["task_status"])
    assert ("success", 2, 2) == (
        ended["task_status"], ended["task_meta"]["num_docs"], ended["task_meta"]["num_succeeded"],
    )  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(result.content)) as archive:
        assert ["a.txt", "b.txt"] == archive.namelist()
        assert b"page1\n\npage2" == archive.read("a.txt")


async def test_a_task_that_waits() -> None:
    """A poll ends with its time; the result is not there yet, in the words that docling's client knows."""
    async with opened(process := FakeProcess(stops_at=2)) as api:
        task = (await api.client.post("/v1/convert/source/async", json={"sources": [SOURCE]})).json()["task_id"]
        await process.started.get()
        running = await polled(api, task, "0.01")
        early = await api.client.get(f"/v1/result/{task}")
        process.gate.set()
        ended = await polled(api, task)

    assert ("started", "success") == (running["task_status"], ended["task_status"])
    assert "Task result not found. Please wait for a completion status." == early.json()["detail"]


async def test_places_in_the_queue() -> None:
    """Told while a task waits, and in order; not of one that runs."""
    async with opened(process := FakeProcess(stops_at=1)) as api:
        tasks = []
        for name in ("a.pdf", "b.pdf", "c.pdf"):
            files = {"files": (name, PDF + name.encode())}
            tasks.append((await api.client.post("/v1/convert/file/async", files=files)).json()["task_id"])
            if name == "a.pdf":
                await process.started.get()
        places = [(await polled(api, task, "0"))["task_position"] for task in tasks]
        process.gate.set()
        ended = [await polled(api, task) for task in tasks]

    assert [None, 1, 2] == places
    assert {("success", None)} == {(task["task_status"], task["task_position"]) for task in ended}


async def test_a_task_that_is_watched() -> None:
    """Its state at once, then each other one up to the end; the same as events and as docling's messages."""
    async with opened(process := FakeProcess(stops_at=2)) as api:
        task = (await api.client.post("/v1/convert/file/async", files=TWO)).json()["task_id"]
        await process.started.get()
        call = Call(api.services, f"/v1/status/ws/{task}", method="GET", app=api.app)
        watching = asyncio.create_task(call.run())
        await call.answering.wait()
        process.gate.set()
        told = (await watching).text.splitlines()

    messages = [orjson.loads(line.removeprefix("data: ")) for line in told if line.startswith("data: ")]
    states = [message["task"]["task_status"] for message in messages]
    assert ["connection", *["update"] * (len(messages) - 1)] == [message["message"] for message in messages]
    assert ("started", "success", 2) == (states[0], states[-1], messages[-1]["task"]["task_meta"]["num_succeeded"])
    assert len(messages) - 1 == len({orjson.dumps(message) for message in messages[1:]})


async def test_a_key_in_the_address() -> None:
    """Only where a WebSocket may be, as browsers give those no headers: addresses are written into logs."""
    async with opened(FakeProcess(), keys=("own",)) as api:
        answers = [
            await api.client.get(f"{path}?api_key={key}")
            for path, key in (("/v1/status/ws/a", "own"), ("/v1/status/ws/a", "no"), ("/v1/status/poll/a", "own"))
        ]

    assert [404, 401, 401] == [answer.status_code for answer in answers]


async def test_results_are_cleared() -> None:
    """Those of ended tasks, by age; jobs of other routes stay, and no other site's page can ask for it."""
    async with opened(FakeProcess()) as api:
        task = (await api.client.post("/v1/convert/file/async", files=FILES)).json()["task_id"]
        job = (await api.client.post("/v1/jobs", files={"file": ("a.pdf", PDF)})).json()["id"]
        await polled(api, task)
        kept = await api.client.get("/v1/clear/results")
        before = (await api.client.get(f"/v1/result/{task}")).status_code
        problem(await api.client.get("/v1/clear/results?older_then=x"), 422, "invalid_field", "older_then")
        problem(await api.client.get("/v1/clear/results", headers={"Sec-Fetch-Site": "cross-site"}), 403, "cross_site")
        cleared = await api.client.get("/v1/clear/results?older_then=0")
        after = (await api.client.get(f"/v1/result/{task}")).json()

        assert {"status": "ok"} == kept.json() == cleared.json()
        assert (200, "Task not found.") == (before, after["detail"])
        assert 200 == (await api.client.get(f"/v1/jobs/{job}")).status_code
        assert {"status": "ok"} == (await api.client.get("/v1/clear/converters")).json()


async def test_a_task_that_fails() -> None:
    """Its status says why, and its result is a failure in docling's words."""
    async with opened(FakeProcess(pages=0, error=UnreadableFile("file: broken"))) as api:
        task = (await api.client.post("/v1/convert/file/async", files=FILES)).json()["task_id"]
        ended = await polled(api, task)
        result = (await api.client.get(f"/v1/result/{task}")).json()

    assert ("failure", "file: broken") == (ended["task_status"], ended["error_message"])
    assert ("TaskFailureResult", "file: broken", False) == (
        result["kind"], result["failure"]["message"], result["failure"]["retryable"],
    )  # fmt: skip


async def test_tasks_of_nobody() -> None:
    """Unknown ids and jobs of other routes are no tasks."""
    async with opened(FakeProcess()) as api:
        job = (await api.client.post("/v1/jobs", files={"file": ("a.pdf", PDF)})).json()["id"]
        for task in ("none", job, f"{job}-none"):
            assert "Task not found." == (await api.client.get(f"/v1/result/{task}")).json()["detail"]
            assert 404 == (await api.client.get(f"/v1/status/poll/{task}")).status_code
            assert 404 == (await api.client.get(f"/v1/status/ws/{task}")).status_code
