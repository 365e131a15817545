"""POST /v1/summarize: a text as JSON or a file as upload; who made the summary, and from what."""

from typing import Any

import httpx
import pytest

from backend.api.routes.document_answers import DocumentAnswer
from backend.api.routes.summarize import SummaryAnswer
from backend.errors import UpstreamFailed
from backend.summaries.records import SummaryOptions
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices

URL = "/v1/summarize"
TEXT = "El precio sube."
WHY_NOT = {"code": "other", "params": {"text": "why not"}}
PDF = {"file": ("a.pdf", b"%PDF-1.7", "application/pdf")}


async def test_a_text(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The sentences with their places and scores; nothing of a file, nothing of what is generated."""
    answer = (await client.post(URL, json={"input": TEXT})).json()

    assert {
        "object": "summary",
        "method": "extractive",
        "model": "tiny/encoder",
        "generated": False,
        "text": TEXT,
        "sentences": [{"text": TEXT, "start": 0, "end": 15, "score": 0.8765}],
        "language": {"code": "es", "score": 0.75},
        "coverage": 1.0,
        "warnings": [],
        "warning_reasons": [],
        "usage": {"prompt_tokens": 17, "total_tokens": 17},
    } == answer
    require_schema(SummaryAnswer, answer)
    assert SummaryOptions() == services.summaries.calls[0][1]


async def test_a_written_summary(client: httpx.AsyncClient) -> None:
    """It says so, and each sentence what it rests on."""
    answer = (await client.post(URL, json={"input": TEXT, "method": "abstractive"})).json()

    assert ("model", "tiny/t5", True, 0.5) == tuple(
        answer[name] for name in ("method", "model", "generated", "coverage")
    )
    source = {"text": TEXT, "start": 0, "end": 15, "cosine": 0.5}
    assert [
        {"text": "Texto.", "based_on": [source], "unsupported": True, "why": "why not", "reasons": [WHY_NOT]}
    ] == answer["sentences"]
    require_schema(SummaryAnswer, answer)


async def test_options(client: httpx.AsyncClient, services: FakeServices) -> None:
    """All of them reach the service."""
    wish = {"method": "model", "sentences": 2, "max_tokens": 60, "min_tokens": 9, "beams": 4}
    await client.post(URL, json={"input": {"text": TEXT}, **wish})

    assert SummaryOptions("model", 2, 60, 9, 4) == services.summaries.calls[0][1]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"method": "magic"}, "method"), ({"sentences": 0}, "sentences"), ({"sentences": 101}, "sentences"),
        ({"max_tokens": 7}, "max_tokens"), ({"max_tokens": 2049}, "max_tokens"),
        ({"max_tokens": 20, "min_tokens": 21}, "min_tokens"), ({"beams": 0}, "beams"), ({"beams": 9}, "beams"),
        ({"beams": "4"}, "beams"), ({"input": [TEXT, TEXT]}, "input"), ({"input": "   "}, "input"),
    ],
)  # fmt: skip
async def test_what_is_refused(client: httpx.AsyncClient, changes: dict[str, Any], param: str) -> None:
    """422 with the field."""
    answer = await client.post(URL, json={"input": TEXT, **changes})

    assert param == problem(answer, 422, "invalid_field")["error"]["param"]


async def test_a_file(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The same answer, with the lines on its pages, and the pages that could not be read."""
    wish = {"method": "model", "sentences": "2", "max_tokens": "", "beams": "4"}
    answer = (await client.post(URL, files=PDF, data=wish)).json()

    require_schema(SummaryAnswer, answer)
    [sentence] = answer["sentences"]
    assert "Total" == sentence["text"]
    assert [1] == [place["page"] for place in sentence["places"]]
    assert [3] == [failed["number"] for failed in answer["failed_pages"]]
    options = services.documents.calls[0][1]
    assert {"summary", "language"} == options.features
    assert SummaryOptions("model", 2, None, 0, 4) == options.summary
    problem(await client.post(URL, files=PDF, data={"format": "pdf"}), 422, "invalid_field", "json")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("correo.txt", TEXT.encode(), TEXT),
        ("correo.md", f"# {TEXT}".encode("utf-16"), f"# {TEXT}"),
        ("precios.csv", b"precio;subida\n12;4\n", "precio;subida\n12;4\n"),
        ("latin.txt", "El año pasa.".encode("cp1252"), "El año pasa."),
    ],
)
async def test_a_file_of_plain_text(
    client: httpx.AsyncClient, services: FakeServices, name: str, content: bytes, text: str
) -> None:
    """Read as vector stores read it; without pages, and what is only for pages is named."""
    form = {"sentences": "2", "language": "es"}
    answer = await client.post(URL, files={"file": (name, content)}, data=form)

    require_schema(SummaryAnswer, answer.json())
    assert "pages" not in answer.json()
    assert ["language: not used for a file of plain text, which has no pages"] == answer.json()["warnings"]
    assert [{"code": "not_used_of_text", "params": {"options": ["language"]}}] == answer.json()["warning_reasons"]
    assert (text, SummaryOptions(sentences=2)) == services.summaries.calls[0][:2]


async def test_a_file_of_neither(client: httpx.AsyncClient) -> None:
    """415 that names what is read."""
    answer = await client.post(URL, files={"file": ("a.bin", bytes(range(32)) * 9)})

    assert 415 == answer.status_code
    assert "Plain text is read too" in answer.text


async def test_a_file_of_blanks(client: httpx.AsyncClient) -> None:
    """422, as blank input is."""
    answer = await client.post(URL, files={"file": ("a.txt", b" \n ")})

    assert "file" == problem(answer, 422, "invalid_field")["error"]["param"]


async def test_the_feature_of_documents(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Only on request, with options of its own; its sentences have places."""
    usual = (await client.post("/v1/documents", files=PDF)).json()
    form = {"features": "summary", "summary_sentences": "5", "summary_tokens": "90", "summary_method": "extractive"}
    answer = (await client.post("/v1/documents", files=PDF, data=form)).json()

    assert "summary" not in usual
    require_schema(DocumentAnswer, answer)
    assert [1] == [place["page"] for place in answer["summary"]["sentences"][0]["places"]]
    assert SummaryOptions(sentences=5, max_tokens=90) == services.documents.calls[1][1].summary


async def test_an_api_that_fails(client: httpx.AsyncClient, services: FakeServices) -> None:
    """503 with its own code."""
    services.summaries.error = UpstreamFailed("SUMMARY_URL answered with status 500; try again")

    problem(await client.post(URL, json={"input": TEXT, "method": "api"}), 503, "upstream_failed", "SUMMARY_URL")
