"""Recordings beside documents on paper: ``/v1/documents`` in every format, refusals, and hits with seconds."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.api.routes.document_answers import DocumentAnswer
from backend.api.routes.search import SearchPageAnswer, search_answer
from backend.api.routes.store_files import page_size_answers
from backend.documents.records import PlacedEntity, SkippedFeature
from backend.files.pages import Box, Document, locate
from backend.search.records import PageSize, PlacedWord, StoredChunk, StoreFile
from backend.search.retrieval import Highlight, Hit, HitScores, PageBox, SearchAnswer
from backend.speech.pages import KIND, pages_of
from backend.text.analysis import KeySentence
from backend.text.entity_merge import PATTERN, Entity
from tests.api import document_fakes
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices
from tests.api.speech_fakes import transcript

WAV = (
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data"
)
FILE = {"file": ("clip.wav", WAV, "audio/wav")}
PAPER = {"file": ("a.pdf", b"%PDF-1.7", "application/pdf")}


def recording() -> Document:
    """The two minutes of ``transcript``."""
    return Document(KIND, tuple(pages_of(transcript())), 2, "cd" * 32)


@pytest.fixture(autouse=True)
def _recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake document service find a recording, with an entity and a key sentence in its second minute."""
    document, paper = recording(), document_fakes.answer_of

    def answer_of(options: Any) -> Any:
        answer, start = paper(options), document.text.index("Thank")
        entity = Entity("MISC", "Thank", start, start + 5, 0.5, PATTERN)
        understood = replace(
            answer.understood,
            entities=(PlacedEntity(entity, tuple(locate(document, start, start + 5)), None),),
            key_sentences=(KeySentence("Thank you.", start, start + 10, 0.5),),
            skipped=(SkippedFeature("tables", "a recording has no layout"),),
        )
        extraction = replace(answer.extraction, document=document, failed=(), ocr_pages=0)
        return replace(answer, extraction=extraction, text=document.text, understood=understood)

    monkeypatch.setattr(document_fakes, "answer_of", answer_of)


async def test_a_recording_is_stored(client: httpx.AsyncClient) -> None:
    """As paper is: its minutes and words are there again, and it can be confirmed."""
    kept = (await client.post("/v1/documents?store=true", files=FILE)).json()
    confirmed = await client.post(f"/v1/documents/{kept['id']}/confirm")
    asked = (await client.get(f"/v1/documents/{kept['id']}")).json()

    assert "confirmed" == confirmed.json()["state"]
    assert (kept["pages"], kept["duration_s"]) == (asked["pages"], asked["duration_s"])


async def test_minutes_are_pages(client: httpx.AsyncClient) -> None:
    """Pages, words and places have seconds where those on paper have sizes and boxes."""
    body = (await client.post("/v1/documents", files=FILE)).json()

    require_schema(DocumentAnswer, body)
    first, second = body["pages"]
    assert (KIND, 2, 0, 90.5) == (body["kind"], body["page_count"], body["usage"]["ocr_pages"], body["duration_s"])
    assert [(0.0, 60.0), (60.0, 90.5)] == [(page["start_s"], page["end_s"]) for page in (first, second)]
    assert not {"width", "height", "rotation", "units_per_inch"} & first.keys()
    assert {
        "text": "La", "start_s": 1.0, "end_s": 2.0, "confidence": 0.5, "start": 0, "end": 2, "line": 0, "block": 0,
    } == first["words"][0]  # fmt: skip
    assert "speech" == first["source"]
    assert ["tables: a recording has no layout"] == [f"{one['feature']}: {one['why']}" for one in body["skipped"]]
    assert [{"page": 2, "start_s": 70.0, "end_s": 70.5}] == body["entities"][0]["places"]
    assert [{"page": 2, "start_s": 70.0, "end_s": 71.0}] == body["key_sentences"][0]["places"]


@pytest.mark.parametrize(
    ("name", "media_type", "text"),
    [
        ("text", "text/plain; charset=utf-8", "La factura vence <hoy>.\n\fThank you."),
        (
            "markdown",
            "text/markdown; charset=utf-8",
            "**0:00:01** La factura vence \\<hoy>.\n\n**0:01:10** Thank you.\n",
        ),
        ("srt", "application/x-subrip", "2\n00:01:10,000 --> 00:01:11,000\nThank you.\n\n"),
        ("vtt", "text/vtt; charset=utf-8", "00:01:10.000 --> 00:01:11.000\nThank you.\n\n"),
    ],
)
async def test_formats(client: httpx.AsyncClient, name: str, media_type: str, text: str) -> None:
    """Those of a text, and subtitles."""
    answer = await client.post("/v1/documents", files=FILE, data={"format": name})

    assert (200, media_type) == (answer.status_code, answer.headers["content-type"])
    assert answer.text.endswith(text)


@pytest.mark.parametrize("name", ["html", "csv", "xlsx", "hocr", "alto", "pdf"])
@pytest.mark.parametrize("path", ["/v1/documents", "/v1/jobs"])
async def test_formats_of_paper(client: httpx.AsyncClient, services: FakeServices, path: str, name: str) -> None:
    """They lay out a page: refused before anything is transcribed, with what there is."""
    answer = await client.post(path, files=FILE, data={"format": name})

    problem(answer, 422, "invalid_field", name, "a recording has not", "json, text, markdown, srt, vtt")
    assert not services.documents.calls


@pytest.mark.parametrize("name", ["srt", "vtt"])
@pytest.mark.parametrize("path", ["/v1/documents", "/v1/ocr", "/v1/jobs"])
async def test_subtitles_of_paper(client: httpx.AsyncClient, services: FakeServices, path: str, name: str) -> None:
    """They need times."""
    answer = await client.post(path, files=PAPER, data={"format": name})

    problem(answer, 422, "invalid_field", name, "times of a recording", "hocr")
    assert not services.documents.calls


@pytest.mark.parametrize(
    "fields",
    [{"pages": "1-2"}, {"source": "ocr"}, {"engine": "tesseract"}, {"language": "qqq"}, {"language": "es,qqq"}],
    ids=str,
)
@pytest.mark.parametrize("path", ["/v1/documents", "/v1/jobs"])
async def test_options_of_paper(
    client: httpx.AsyncClient, services: FakeServices, path: str, fields: dict[str, str]
) -> None:
    """They are refused when they are sent, not when a job begins."""
    answer = await client.post(path, files=FILE, data=fields)

    problem(answer, 422, "invalid_field", next(iter(fields)))
    assert not services.documents.calls


@pytest.mark.parametrize("path", ["/v1/ocr", "/v1/fields"])
async def test_no_pages_to_read(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """Routes that read paper name those that hear."""
    answer = await client.post(path, files=FILE)

    problem(answer, 415, "wrong_media_type", "recording", "/v1/audio/transcriptions", "/v1/documents")
    assert not services.documents.calls


def hit(*, spoken: bool) -> Hit:
    """A chunk of two words in the second minute, or on the second page."""
    height = 0.0 if spoken else 842.0
    file = StoreFile(
        "vs_1", "file-1", "clip.wav", 0.0, pages=(PageSize(1, 60.25, height, 0), PageSize(2, 90.5, height, 0))
    )
    thank, you = PageBox(2, Box(70.0, 0, 70.5, 1)), PageBox(2, Box(70.5, 0, 71.0, 1))
    words = (PlacedWord(0, 5, 2, 0, thank.box), PlacedWord(6, 10, 2, 0, you.box))
    chunk = StoredChunk(7, "file-1", 0, 25, 35, "Thank you.", 4, words)
    whole = PageBox(2, Box(70.0, 0, 71.0, 1))
    return Hit(file, chunk, 0.9, HitScores(0.8), (2,), (whole,), (Highlight(6, 10, (you,)),))


def test_hits() -> None:
    """A hit begins where the query's words are said; on paper it has no seconds."""
    answer = search_answer(SearchAnswer(("q",), [hit(spoken=True), hit(spoken=False)], has_more=False, tokens=1))

    require_schema(SearchPageAnswer, answer)
    spoken, printed = answer["data"]
    assert (2, 70.5, 71.0) == (spoken["page"], spoken["start_s"], spoken["end_s"])
    assert [{"page": 2, "start_s": 70.0, "end_s": 71.0}] == spoken["boxes"]
    assert [{"page": 2, "start_s": 70.5, "end_s": 71.0}] == spoken["highlights"][0]["boxes"]
    assert [{"page": 2, "start_s": 60.25, "end_s": 90.5}] == spoken["page_sizes"]
    assert (None, None) == (printed["start_s"], printed["end_s"])
    assert [{"page": 2, "box": (70.0, 0, 71.0, 1)}] == printed["boxes"]


def test_pages_of_a_stored_recording() -> None:
    """Each minute begins where the one before ends."""
    pages = [PageSize(1, 60.25, 0.0, 0), PageSize(2, 90.5, 0.0, 0)]

    assert [
        {"page": 1, "start_s": 0.0, "end_s": 60.25}, {"page": 2, "start_s": 60.25, "end_s": 90.5},
    ] == page_size_answers(pages)  # fmt: skip
