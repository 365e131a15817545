"""From an upload to pages, entities and vectors, with faults of single pages."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from backend.documents.records import DEFAULT_FEATURES, DocumentEvent, DocumentOptions
from backend.errors import (
    DeadlineExceeded,
    InferenceFailed,
    InvalidField,
    Overloaded,
    PasswordRequired,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongMediaType,
)
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.pages import Box, locate
from backend.files.records import TextLayer
from backend.files.stored_file import StoredFile
from backend.jobs.document_codec import option_fields, pack_answer, unpack_answer
from backend.lanes.inference import Timing, Urgency
from backend.lanes.work_queue import SETTLED_BATCHES, Priority, QueueLimits
from backend.text.entities import EntityResult, EntityService, TextEntities
from backend.text.entity_merge import Entity
from tests.documents.conftest import LIMITS, DocumentsFixture, result_of
from tests.fakes import longest_step_s
from tests.files.pdfs import encoded, pdf, picture, text

BILL = (
    b"Aceros del Norte, S.A. NIF A58818501. Factura del 3 de marzo de 2024 por la reparacion de la cubierta. ",
    b"El importe total de la factura es de 1.284,50 EUR y se abona en la cuenta ES91 2100 0418 4502 0005 1332. ",
)
DIGITAL = pdf(text(BILL[0], 20, 150, size=5), text(BILL[1], 20, 150, size=5))
INK = Image.fromarray(np.kron(np.eye(20, dtype=np.uint8), np.full((10, 15), 255, np.uint8)))  # 300 x 200
SCAN = pdf(picture(300, 200), picture(300, 200), picture(300, 200), image=INK)
PNG = encoded(INK, "PNG")


async def test_everything_of_a_pdf_with_text(documents: DocumentsFixture) -> None:
    """Text layer, language, class, entities with places, phrases, sentences, vectors."""
    answer = await documents.process(DIGITAL)

    found = answer.understood
    assert [1, 2] == [page.number for page in answer.document.pages]
    assert {"text_layer"} == {page.source for page in answer.document.pages}
    assert not documents.ocr.images
    assert answer.text == answer.document.text
    assert "es" == found.language.code
    assert found.classes is not None
    by_type = {placed.entity.type: placed for placed in found.entities}
    assert "ES9121000418450200051332" == by_type["IBAN"].entity.value
    assert "2024-03-03" == by_type["DATE"].entity.value
    for placed in found.entities:
        assert placed.entity.text == answer.text[placed.entity.start : placed.entity.end]
        assert placed.repair is None
        assert placed.places
    assert 2 == by_type["IBAN"].places[0].page
    assert 1 == by_type["DATE"].places[0].page
    assert found.key_phrases
    assert found.key_sentences
    assert found.vector is not None
    assert 1.0 == pytest.approx(float(np.linalg.norm(found.vector)), abs=1e-4)


async def test_own_types_of_entities(documents: DocumentsFixture) -> None:
    """They are asked for page by page, and what they name has its place; numbers and dates are not looked for."""

    async def label(labels: Mapping[str, str], texts: Sequence[str], **_options: Any) -> EntityResult:
        assert {"trabajo": "obra hecha"} == labels
        rows = []
        for page_text in texts:
            start = page_text.find("reparacion")
            found = [Entity("trabajo", "reparacion", start, start + 10, 0.7, "model")] if start >= 0 else []
            rows.append(TextEntities(tuple(found), 1.0, 5))
        return EntityResult(tuple(rows), "tiny/answer", Timing())

    documents.service._services.answers.label = label  # type: ignore[method-assign]
    answer = await documents.process(DIGITAL, entity_labels='{"trabajo":"obra hecha"}')

    [placed] = answer.understood.entities
    assert ("trabajo", "reparacion") == (placed.entity.type, answer.text[placed.entity.start : placed.entity.end])
    assert [1] == [place.page for place in placed.places]
    assert DocumentOptions().key() != DocumentOptions(entity_labels='{"trabajo":""}').key()


async def test_fields_are_told_before_entities_are_found(documents: DocumentsFixture) -> None:
    """A page of an invoice is checked while names are still looked for."""
    told: asyncio.Queue[DocumentEvent] = asyncio.Queue()
    entities = documents.service._services.entities
    find, known = entities.find, asyncio.Event()

    async def find_late(*args: Any, **options: Any) -> TextEntities:
        await known.wait()
        return await find(*args, **options)

    entities.find = find_late  # type: ignore[method-assign]
    with contextlib.closing(StoredFile.of(DIGITAL, LIMITS)) as upload:
        options = DocumentOptions(features=frozenset({"fields", "entities"}))
        working = asyncio.create_task(documents.service.process(upload, options, on_event=told.put_nowait))
        while (event := await asyncio.wait_for(told.get(), 60)).fields is None:
            assert event.stage != "done"
        known.set()
        answer = await working

    assert answer.understood.fields == event.fields


async def test_chunks_of_a_size(documents: DocumentsFixture) -> None:
    """At most so many tokens as were asked for, those that the model adds included."""
    large = await documents.process(DIGITAL, features=frozenset({"chunks"}))
    small = await documents.process(DIGITAL, features=frozenset({"chunks"}), chunk_tokens=16)

    assert len(large.understood.chunks) < len(small.understood.chunks)
    assert all(chunk.tokens <= 16 for chunk in small.understood.chunks)


async def test_chunks_have_the_vectors_of_their_text(documents: DocumentsFixture) -> None:
    """As /v1/embeddings gives them, in order, each on its pages."""
    answer = await documents.process(DIGITAL, features=frozenset({"chunks"}))

    chunks = answer.understood.chunks
    embedded = await documents.stack.service.embed([answer.text[chunk.start : chunk.end] for chunk in chunks])
    assert chunks
    assert np.array_equal(embedded.vectors, np.array([chunk.vector for chunk in chunks]))
    assert {1, 2} == {page for chunk in chunks for page in chunk.pages}
    assert all(chunk.end <= later.start for chunk, later in pairwise(chunks))


async def test_a_scan_is_recognised(documents: DocumentsFixture) -> None:
    """Its boxes are in page units, at any resolution of the image."""
    answer = await documents.process(SCAN, pages="2", engine="rapidocr", languages=("fr",))

    [page] = answer.document.pages
    [image] = documents.ocr.images
    assert ("ocr", "told 1.0", 2) == (page.source, page.engine, page.number)
    assert ("fr",) == image.languages
    assert "rapidocr" == documents.ocr.requests[0][0]
    assert (300.0, 200.0) == (page.width, page.height)
    assert page.words[0].box == pytest.approx(Box(*(side * 300 / image.pixels.shape[1] for side in (10, 10, 110, 30))))
    assert "Factura 2024-017\nTotal: 1.284,50 €" == page.text
    assert 1 == answer.extraction.ocr_pages


FRENCH = "Le conseil municipal se réunit chaque mois à la mairie pour examiner toutes les demandes des habitants"


async def test_pages_after_a_page_in_another_language_are_read_with_it_at_once(documents: DocumentsFixture) -> None:
    """The first page of a file is read twice, the others are not."""
    extractor = documents.service.extractor
    extractor._languages, extractor._pages_at_once = ("es", "en", "fr"), 1
    documents.ocr.result = result_of(((*FRENCH.split(), *FRENCH.split()),))

    await documents.process(SCAN)

    french = ("fr", "es")
    assert [("es", "en"), french, french, french] == [image.languages for image in documents.ocr.images]


async def test_the_languages_of_a_request_are_read_at_once(documents: DocumentsFixture) -> None:
    """And are no answer for a request without them: how a page is read differs."""
    listed = ("es", "en", "fr")
    documents.service.extractor._languages = listed

    for languages in (listed, ()):
        await documents.process(SCAN, pages="1", languages=languages)

    assert [listed, ("es", "en")] == [image.languages for image in documents.ocr.images]


async def test_a_sideways_page_is_rotated(documents: DocumentsFixture) -> None:
    """Width and height are swapped, and boxes are those after the rotation."""
    documents.ocr.result = result_of(rotation=90)

    answer = await documents.process(PNG)

    [page] = answer.document.pages
    assert (90, 200.0, 300.0) == (page.rotation, page.width, page.height)
    assert page.words[0].box == pytest.approx(Box(10, 10, 110, 30))


async def test_a_page_without_words(documents: DocumentsFixture) -> None:
    """An empty text has no vector, no entities and no chunks, and is no error."""
    documents.ocr.result = result_of(())

    answer = await documents.process(PNG)

    assert not answer.text
    assert answer.understood.vector is None
    assert not answer.understood.entities
    assert not answer.understood.chunks


async def test_repairs_are_offered_for_scans_only(documents: DocumentsFixture) -> None:
    """The recognised text stays, with the likely value beside it."""
    misread = "ES91 2100 O418 45O2 0005 1332"
    documents.ocr.result = result_of((("IBAN:", *misread.split()),))

    scanned = (await documents.process(PNG)).understood.entities
    digital = (await documents.process(pdf(text(b"IBAN: " + misread.encode(), 10)))).understood.entities

    [iban] = [placed for placed in scanned if placed.repair]
    assert ("IBAN", misread, False) == (iban.entity.type, iban.entity.text, iban.entity.valid)
    assert "ES9121000418450200051332" == iban.repair.value
    assert iban.places
    assert not [placed for placed in digital if placed.repair]


async def test_only_requested_features(documents: DocumentsFixture) -> None:
    answer = await documents.process(DIGITAL, features=frozenset({"text"}))

    assert answer.text
    assert answer.understood.vector is None
    assert not answer.understood.entities
    assert 0 == documents.stack.metric("batch_jobs_count")


async def test_a_broken_page_does_not_affect_the_others(documents: DocumentsFixture) -> None:
    """It is listed with its error; the rest is answered."""
    documents.ocr.errors = [InferenceFailed("page 1: it cannot be read")]

    answer = await documents.process(SCAN)

    [failed] = answer.failed
    assert 2 == len(answer.document.pages)
    assert failed.number not in [page.number for page in answer.document.pages]
    assert 1 == documents.stack.metric("pages_failed_total")
    assert 2 == documents.stack.metric("pages_total", source="ocr")
    assert [3, 3] == [documents.events[-1].pages_done, documents.events[-1].pages_total]


async def test_without_any_page_there_is_no_answer(documents: DocumentsFixture) -> None:
    documents.ocr.errors = [InferenceFailed("none"), InferenceFailed("of"), InferenceFailed("them")]

    with pytest.raises(InferenceFailed):
        await documents.process(SCAN)


async def test_events_page_by_page(documents: DocumentsFixture) -> None:
    await documents.process(SCAN)

    stages = [event.stage for event in documents.events]
    pages = [event.page.number for event in documents.events if event.page]
    assert ["opening", "reading", "reading", "reading", "reading", "understanding", "understanding", "done"] == stages
    assert documents.events[-2].fields is not None
    assert [0, 1, 2, 3] == [event.pages_done for event in documents.events if event.stage == "reading"]
    assert [1, 2, 3] == sorted(pages)
    assert {3} == {event.pages_total for event in documents.events if event.stage == "reading"}


async def test_others_run_while_a_large_page_is_made(documents: DocumentsFixture) -> None:
    """A table of a megabyte took the event loop half a second."""
    table = b"a;b;c\n" + b"1;2,00;3\n" * 40_000

    assert await longest_step_s(documents.process(table, features=frozenset({"text"}))) < 0.1


async def test_pages_are_cached(documents: DocumentsFixture) -> None:
    """Pages are cached by content and options: the same file again runs no OCR, other options do."""
    first = await documents.process(SCAN, features=frozenset({"text", "words"}))
    again = await documents.process(SCAN, features=frozenset(DEFAULT_FEATURES))
    reads = len(documents.ocr.images)
    await documents.process(SCAN, engine="tesseract")

    assert 3 == reads
    assert first.document == again.document
    assert 6 == len(documents.ocr.images)


async def test_a_cached_file_still_needs_its_password(documents: DocumentsFixture) -> None:
    """The bytes alone are not enough, even when the pages are in the cache."""
    locked = pdf(text(b"a secret of some length", 20), password="open")  # a file of this test alone
    await documents.process(locked, password="open")  # fills the cache

    with pytest.raises(PasswordRequired):
        await documents.process(locked)


@pytest.mark.parametrize(
    ("content", "options", "error"),
    [
        pytest.param(b"\x7fELF\x02", {}, WrongMediaType, id="foreign"),
        pytest.param(b"%PDF-1.7 broken", {}, UnreadableFile, id="broken"),
        pytest.param(DIGITAL, {"pages": "9"}, InvalidField, id="a-page-that-is-not-there"),
        pytest.param(DIGITAL, {"split": "1,9"}, InvalidField, id="a-document-that-is-not-there"),
        pytest.param(pdf(*[b""] * 21), {}, TooLarge, id="too-many-pages"),
    ],
)
async def test_unreadable_uploads(
    documents: DocumentsFixture, content: bytes, options: dict[str, str], error: type[Exception]
) -> None:
    """Each fault has its error, and no file is left open."""
    with pytest.raises(error):
        await documents.process(content, **options)


async def test_cancelling_ends_the_work(documents: DocumentsFixture) -> None:
    documents.ocr.gate = asyncio.Event()
    task = asyncio.create_task(documents.process(SCAN))
    await documents.ocr.entered.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert len(documents.ocr.images) == documents.ocr.cancelled
    documents.ocr.gate = None
    assert await documents.process(SCAN)  # nothing was lost or locked


async def test_what_is_refused_leaves_nothing_in_the_queue(
    documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When entities find no room, the chunks' vectors are not computed for nobody."""
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def refused(*_: Any, **__: Any) -> TextEntities:
        await waiting.wait()
        raise Overloaded(1, 1, 1.0)

    async def embedded(*_: Any, **__: Any) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(EntityService, "find", refused)
    monkeypatch.setattr(type(documents.stack.service), "embed_untruncated", embedded)
    with pytest.raises(Overloaded):
        await documents.process(DIGITAL, features=frozenset({"entities", "chunks"}))

    assert ended.is_set()


async def test_a_full_queue_refuses_a_request(documents: DocumentsFixture) -> None:
    """With 429, not with an answer that lacks a page."""
    documents.ocr.errors = [Overloaded(10, 10, 0.01)]

    with pytest.raises(Overloaded):
        await documents.process(SCAN)


async def test_a_job_is_analysed_part_by_part(documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks may be more than LIMIT_QUEUE_TOKENS for ever."""
    long = pdf(*[text(BILL[0], 20, 150, size=5)] * 12)
    features = frozenset({"chunks", "vector"})
    monkeypatch.setattr(documents.stack.batcher, "_limits", QueueLimits(300))

    with pytest.raises(TooLarge, match="LIMIT_QUEUE_TOKENS"):
        await documents.process(long, features=features)
    answer = await documents.process(long, Urgency(Priority.BULK), features=features)

    assert answer.understood.vector is not None
    assert 300 < sum(chunk.tokens for chunk in answer.understood.chunks)


async def test_a_reader_that_does_not_start_delays_a_job(
    documents: DocumentsFixture, file_readers: FileReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may be out of processes for a moment: a request gets 503, a job its pages."""
    page_text, faults = file_readers.page_text, [Unavailable("no process can be started", retry_after_s=0.01)] * 2

    def fails_first(*arguments: Any, **options: Any) -> TextLayer:
        if faults:
            raise faults.pop()
        return page_text(*arguments, **options)

    monkeypatch.setattr(file_readers, "page_text", fails_first)

    with pytest.raises(Unavailable):
        await documents.process(DIGITAL, pages="1")
    answer = await documents.process(DIGITAL, Urgency(Priority.BULK), pages="1")

    assert 1 == len(answer.document.pages)


async def test_a_deadline(documents: DocumentsFixture) -> None:
    with pytest.raises(DeadlineExceeded):
        await documents.process(DIGITAL, Urgency(deadline_s=time.monotonic() - 1))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_file_is_closed_on_a_thread(
    documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Closing waits for reader processes, for seconds where one hangs: the event loop must not."""
    closing, closed_by = threading.Event(), []
    close = OpenFile.close

    def recording_close(file: OpenFile) -> None:
        closed_by.append(threading.current_thread())
        close(file)
        closing.set()

    monkeypatch.setattr(OpenFile, "close", recording_close)
    if cancelled:
        documents.ocr.gate = asyncio.Event()
        work = asyncio.create_task(documents.process(SCAN))
        await documents.ocr.entered.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    else:
        await documents.process(DIGITAL)
    assert await asyncio.to_thread(closing.wait, 30.0)

    assert threading.main_thread() not in closed_by


async def test_a_scan_that_would_be_late_is_refused_before_it_is_rendered(documents: DocumentsFixture) -> None:
    """The pages ahead take longer than its deadline; text layers need no lane, and jobs wait."""
    backlog, soon_s = documents.ocr.backlog, time.monotonic() + 600.0
    for _ in range(SETTLED_BATCHES):
        backlog.measured(1, 60.0)
    ahead = backlog.admit(50, Priority.INTERACTIVE, soon_s)
    with pytest.raises(Overloaded, match="50 pages of other documents"):
        await documents.process(SCAN, Urgency(deadline_s=soon_s))

    assert [] == documents.ocr.images
    assert (await documents.process(DIGITAL, Urgency(deadline_s=soon_s))).document.pages
    assert (await documents.process(SCAN, Urgency(Priority.BULK, soon_s))).document.pages
    assert 50 == backlog.left
    ahead.close()
    await documents.process(encoded(INK, "PNG"), Urgency(deadline_s=soon_s))

    assert 0 == backlog.left


async def test_a_page_is_read_no_longer_than_its_caller_waits(documents: DocumentsFixture) -> None:
    """An engine cannot be stopped from outside, so it is told when to end."""
    deadline_s = time.monotonic() + 600.0

    await documents.process(PNG, Urgency(deadline_s=deadline_s))

    assert {deadline_s} == {image.deadline_s for image in documents.ocr.images}


async def test_pages_after_too_many_characters_are_not_read(
    documents: DocumentsFixture, file_readers: FileReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 5 KB may have 200 pages of a million characters: those that the limit admits are the answer."""
    pages = pdf(*[text(BILL[index % 2], 20, 150, size=5) for index in range(12)])
    monkeypatch.setattr(file_readers, "limits", replace(LIMITS, document_chars=250))
    read = []
    page_text = FileReaders.page_text

    def recording(readers: FileReaders, file: OpenFile, number: int, **options: Any) -> TextLayer:
        read.append(number)
        return page_text(readers, file, number, **options)

    monkeypatch.setattr(FileReaders, "page_text", recording)

    answer = await documents.process(pages, features=frozenset())

    assert 2 == len(answer.document.pages)
    assert 10 == len(answer.failed)
    assert {"LIMIT_DOCUMENT_CHARS"} == {failed.error.setting for failed in answer.failed}  # type: ignore[attr-defined]
    assert len(read) <= 5  # three at once


async def test_a_summary_of_a_file(documents: DocumentsFixture) -> None:
    """On request; its sentences are found on the pages, and stay so when the job's result is stored."""
    answer = await documents.process(DIGITAL, features=frozenset({"summary"}), summary_sentences=1)
    nothing = await documents.process(PNG, features=frozenset({"summary"}))

    summary = answer.understood.summary
    [sentence] = summary.sentences
    assert answer.text[sentence.start : sentence.end] == sentence.text
    assert locate(answer.document, sentence.start, sentence.end)
    assert summary == unpack_answer(pack_answer(answer), option_fields(answer.options)).understood.summary
    assert nothing.understood.summary is None or nothing.text
    reads = len(documents.ocr.images)
    with pytest.raises(InvalidField, match="SUMMARY_MODEL"):
        await documents.process(SCAN, features=frozenset({"summary"}), summary_method="model", engine="rapidocr")
    assert reads == len(documents.ocr.images)
