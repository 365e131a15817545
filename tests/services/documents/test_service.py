"""One upload in: pages, what they say and where, whatever happens to one of them."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from backend.batching.work_item import Priority
from backend.documents.pages import Box
from backend.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidField,
    Overloaded,
    PasswordRequired,
    TooLarge,
    UnreadableFile,
    WrongMediaType,
)
from backend.services.documents.records import FEATURES
from backend.services.inference import Urgency
from tests.documents.parsing.pdfs import encoded, pdf, picture, text
from tests.services.documents.conftest import Archive, result_of

BILL = (
    b"Aceros del Norte, S.A. NIF A58818501. Factura del 3 de marzo de 2024 por la reparacion de la cubierta. ",
    b"El importe total de la factura es de 1.284,50 EUR y se abona en la cuenta ES91 2100 0418 4502 0005 1332. ",
)
DIGITAL = pdf(text(BILL[0], 20, 150, size=5), text(BILL[1], 20, 150, size=5))
INK = Image.fromarray(np.kron(np.eye(20, dtype=np.uint8), np.full((10, 15), 255, np.uint8)))  # 300 x 200
SCAN = pdf(picture(300, 200), picture(300, 200), picture(300, 200), image=INK)
PNG = encoded(INK, "PNG")


async def test_everything_of_a_pdf_with_text(archive: Archive) -> None:
    """Text layer, language, class, entities on paper, phrases, sentences, vectors."""
    answer = await archive.process(DIGITAL)

    found = answer.understood
    assert [1, 2] == [page.number for page in answer.document.pages]
    assert {"text_layer"} == {page.source for page in answer.document.pages}
    assert not archive.ocr.images
    assert answer.text == answer.document.text
    assert found.language is not None
    assert "es" == found.language.code
    assert found.classes is not None
    kinds = {one.entity.type: one for one in found.entities}
    assert "ES9121000418450200051332" == kinds["IBAN"].entity.value
    assert "2024-03-03" == kinds["DATE"].entity.value
    for one in found.entities:
        assert one.entity.text == answer.text[one.entity.start : one.entity.end]
        assert one.repair is None
        assert one.places
    assert 2 == kinds["IBAN"].places[0].page
    assert 1 == kinds["DATE"].places[0].page
    assert found.key_phrases
    assert found.key_sentences
    assert found.vector is not None
    assert 1.0 == pytest.approx(float(np.linalg.norm(found.vector)), abs=1e-4)


async def test_chunks_have_the_vectors_of_their_text(archive: Archive) -> None:
    """As /v1/embeddings gives them, in order, each on its pages."""
    answer = await archive.process(DIGITAL, features=frozenset({"chunks"}))

    chunks = answer.understood.chunks
    embedded = await archive.house.service.embed([answer.text[one.start : one.end] for one in chunks])
    assert chunks
    assert np.array_equal(embedded.vectors, np.array([one.vector for one in chunks]))
    assert {1, 2} == {page for one in chunks for page in one.pages}
    assert all(one.end <= later.start for one, later in pairwise(chunks))


async def test_a_scan_is_recognised(archive: Archive) -> None:
    """Its words stand in page units, whatever it was drawn with."""
    answer = await archive.process(SCAN, pages="2", engine="rapidocr", languages=("fr",))

    [page] = answer.document.pages
    [image] = archive.ocr.images
    assert ("ocr", "told 1.0", 2) == (page.source, page.engine, page.number)
    assert ("fr",) == image.languages
    assert "rapidocr" == archive.ocr.wishes[0][0]
    assert (300.0, 200.0) == (page.width, page.height)
    assert page.words[0].box == pytest.approx(Box(*(side * 300 / image.pixels.shape[1] for side in (10, 10, 110, 30))))
    assert "Factura 2024-017\nTotal: 1.284,50 €" == page.text
    assert 1 == answer.read.ocr_pages


async def test_a_page_on_its_side_stands_upright(archive: Archive) -> None:
    """Width and height change places, and boxes are those after the turn."""
    archive.ocr.result = result_of(rotation=90)

    answer = await archive.process(PNG)

    [page] = answer.document.pages
    assert (90, 200.0, 300.0) == (page.rotation, page.width, page.height)
    assert page.words[0].box == pytest.approx(Box(10, 10, 110, 30))


async def test_a_page_without_words_says_nothing(archive: Archive) -> None:
    """An empty text has no vector, no entities and no chunks, and is no error."""
    archive.ocr.result = result_of(())

    answer = await archive.process(PNG)

    assert not answer.text
    assert answer.understood.vector is None
    assert not answer.understood.entities
    assert not answer.understood.chunks


async def test_look_alikes_are_offered_for_scans_alone(archive: Archive) -> None:
    """What was read stays, and what it must have been stands beside it."""
    misread = "ES91 2100 O418 45O2 0005 1332"
    archive.ocr.result = result_of((("IBAN:", *misread.split()),))

    scanned = (await archive.process(PNG)).understood.entities
    digital = (await archive.process(pdf(text(b"IBAN: " + misread.encode(), 10)))).understood.entities

    [iban] = [one for one in scanned if one.repair]
    assert ("IBAN", misread, False) == (iban.entity.type, iban.entity.text, iban.entity.valid)
    assert iban.repair is not None
    assert "ES9121000418450200051332" == iban.repair.value
    assert iban.places
    assert not [one for one in digital if one.repair]


async def test_only_what_is_asked_for(archive: Archive) -> None:
    """Pages alone touch no model."""
    answer = await archive.process(DIGITAL, features=frozenset({"text"}))

    assert answer.text
    assert answer.understood.vector is None
    assert not answer.understood.entities
    assert 0 == archive.house.metric("batch_jobs_count")


async def test_a_broken_page_costs_the_others_nothing(archive: Archive) -> None:
    """It is told of with its error; the rest is answered."""
    archive.ocr.errors = [InferenceFailed("page 1: it cannot be read")]

    answer = await archive.process(SCAN)

    [failed] = answer.failed
    assert 2 == len(answer.document.pages)
    assert failed.number not in [page.number for page in answer.document.pages]
    assert 1 == archive.house.metric("pages_failed_total")
    assert 2 == archive.house.metric("pages_total", source="ocr")
    assert [3, 3] == [archive.events[-1].pages_done, archive.events[-1].pages_total]


async def test_without_any_page_there_is_no_answer(archive: Archive) -> None:
    """The first page's error is the file's."""
    archive.ocr.errors = [InferenceFailed("none"), InferenceFailed("of"), InferenceFailed("them")]

    with pytest.raises(InferenceFailed):
        await archive.process(SCAN)


async def test_progress_is_told_page_by_page(archive: Archive) -> None:
    """Opening, each page with its words, understanding, done."""
    await archive.process(SCAN)

    stages = [event.stage for event in archive.events]
    pages = [event.page.number for event in archive.events if event.page]
    assert ["opening", "reading", "reading", "reading", "reading", "understanding", "done"] == stages
    assert [0, 1, 2, 3] == [event.pages_done for event in archive.events if event.stage == "reading"]
    assert [1, 2, 3] == sorted(pages)
    assert {3} == {event.pages_total for event in archive.events if event.stage == "reading"}


async def test_a_page_is_read_once(archive: Archive) -> None:
    """By content and options: the same file again asks no engine, other options do."""
    first = await archive.process(SCAN, features=frozenset({"text", "words"}))
    again = await archive.process(SCAN, features=frozenset(FEATURES))
    reads = len(archive.ocr.images)
    await archive.process(SCAN, engine="tesseract")

    assert 3 == reads
    assert first.document == again.document
    assert 6 == len(archive.ocr.images)


async def test_a_cached_file_still_needs_its_password(archive: Archive) -> None:
    """Who has the bytes alone gets nothing, also when others have had them read."""
    locked = pdf(text(b"a secret of some length", 20), password="open")  # of a test's own file
    await archive.process(locked, password="open")  # the same

    with pytest.raises(PasswordRequired):
        await archive.process(locked)


@pytest.mark.parametrize(
    ("content", "options", "error"),
    [
        pytest.param(b"nothing that is read", {}, WrongMediaType, id="foreign"),
        pytest.param(b"%PDF-1.7 broken", {}, UnreadableFile, id="broken"),
        pytest.param(DIGITAL, {"pages": "9"}, InvalidField, id="a-page-that-is-not-there"),
        pytest.param(pdf(*[b""] * 21), {}, TooLarge, id="too-many-pages"),
    ],
)
async def test_what_cannot_be_read_is_said(
    archive: Archive, content: bytes, options: dict[str, str], error: type[Exception]
) -> None:
    """By an error of the tree, and nothing is left open."""
    with pytest.raises(error):
        await archive.process(content, **options)


async def test_a_caller_that_leaves_ends_the_work(archive: Archive) -> None:
    """Pages that wait for a lane are given up."""
    archive.ocr.gate = asyncio.Event()
    task = asyncio.create_task(archive.process(SCAN))
    await archive.ocr.entered.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(archive.ocr.images) == archive.ocr.cancelled
    archive.ocr.gate = None
    assert await archive.process(SCAN)  # nothing was lost or locked


async def test_a_full_queue_refuses_a_caller_and_lets_the_background_wait(archive: Archive) -> None:
    """Who waits gets 429; a job has pages to lose, and goes on when there is room."""
    archive.ocr.errors = [Overloaded(10, 10, 0.01)]
    with pytest.raises(Overloaded):
        await archive.process(SCAN)

    archive.ocr.errors = [Overloaded(10, 10, 0.01)]
    answer = await archive.process(SCAN, Urgency(Priority.BULK))

    assert 3 == len(answer.document.pages)


async def test_a_deadline_ends_it(archive: Archive) -> None:
    """What comes too late is not begun."""
    with pytest.raises(DeadlineExceeded):
        await archive.process(DIGITAL, Urgency(deadline_s=time.monotonic() - 1))
