"""The use cases behind ``/v1/ocr`` and ``/v1/documents``: extract the pages of an upload and analyse their text.

A recording has pages too: its minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from backend.documents.extraction import DocumentExtractor
from backend.documents.page_classes import images_for
from backend.documents.recordings import RecordingExtractor
from backend.documents.records import (
    TEXT_FEATURES,
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    EventCallback,
    Understood,
    ignore_event,
)
from backend.documents.understanding import TextServices, Understanding
from backend.errors import FinanciaError
from backend.files.file_types import is_recording
from backend.files.pages import Document, Page
from backend.files.stored_file import StoredFile
from backend.files.visual_rows import rows_of
from backend.images.classification import ImageClassificationService
from backend.invoices.taught.apply import keys_on
from backend.invoices.taught.examples import ANY, SupplierExample, example_from
from backend.lanes.inference import Urgency
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry, log_event
from backend.tracing.spans import span

_MOST_EXAMPLES = 20  # of all suppliers that a document names
_log = logging.getLogger(__name__)


class DocumentService:
    """Used on the event loop only. Cancelling a call also ends its work in reader processes and on lanes."""

    def __init__(
        self,
        extractor: DocumentExtractor,
        services: TextServices,
        telemetry: Telemetry,
        idle_trim: IdleTrim | None = None,
        *,
        recordings: RecordingExtractor | None = None,
        images: ImageClassificationService | None = None,
    ) -> None:
        self.examples = SupplierExamples(services.text_work)
        self.extractor = extractor
        self._images = images
        self._recordings = recordings
        self._idle_trim = idle_trim or IdleTrim()
        self._services, self._telemetry = services, telemetry

    async def process(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency | None = None,
        on_event: EventCallback = ignore_event,
        *,
        owner: str | None = None,
    ) -> DocumentAnswer:
        """Extract the pages of a file and analyse their text.

        Args:
            upload: stays the caller's to close.
            on_event: called with the progress, with every page as soon as it is extracted, and with the fields.
            owner: whose confirmed documents teach how to read this one; None: nobody's.

        Raises: PasswordRequired, WrongPassword, UnreadableFile, WrongMediaType, TooLarge, InvalidField for the upload;
            Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        with self._idle_trim.busy():
            return await self._process(upload, options, urgency or Urgency(), on_event, owner)

    async def _process(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency, on_event: EventCallback, owner: str | None
    ) -> DocumentAnswer:
        started_s = time.perf_counter()
        if "summary" in options.features:
            self._services.summaries.check(options.summary)
        images = images_for(self._images, upload, options)
        understanding = Understanding(self._services, options, urgency, images=images)

        def on_page(page: Page) -> None:
            self._telemetry.pages_total.labels(page.source).inc()
            understanding.add(page)

        try:
            extraction = await self._extractor_of(upload).extract(upload, options, urgency, on_event, on_page)
            self._telemetry.pages_failed_total.inc(len(extraction.failed))
            done = len(extraction.document.pages) + len(extraction.failed)
            on_event(DocumentEvent("understanding", done, done))
            read_s = time.perf_counter()
            text = extraction.document.text
            if owner is not None and "fields" in options.features:
                understanding.examples = await self.examples.of(owner, extraction.document)
            understood = Understood()
            with span("understand"):
                if options.features.intersection(TEXT_FEATURES):
                    understood = await understanding.finish(
                        extraction.document,
                        text,
                        lambda found: on_event(DocumentEvent("understanding", done, done, fields=found)),
                    )
        finally:
            await understanding.stop()
            for feature in understanding.faults:
                self._telemetry.structure_failed_total.labels(feature).inc()
        ended_s = time.perf_counter()
        on_event(DocumentEvent("done", done, done))
        device = self._services.catalog.embedding().placement.device
        return DocumentAnswer(extraction, text, understood, options, device, ended_s - read_s, ended_s - started_s)

    def _extractor_of(self, upload: StoredFile) -> DocumentExtractor | RecordingExtractor:
        if self._recordings is not None and is_recording(upload.head):
            return self._recordings
        return self.extractor


class KeptLesson(Protocol):
    """A kept `SupplierExample`."""

    @property
    def lesson(self) -> Mapping[str, Any]: ...


# The lessons of an owner by any of some keys, the newest first, no more than a number.
LessonsOf = Callable[[str, Sequence[str], int], Awaitable[Sequence[KeptLesson]]]


class SupplierExamples:
    """Finds the confirmed documents of a caller's suppliers that a document being read may be like.

    Used on the event loop only. Knows nothing until `lessons_of` is set.
    """

    def __init__(self, text_work: TextWork) -> None:
        self._text_work = text_work
        self.lessons_of: LessonsOf | None = None

    async def of(self, owner: str, document: Document) -> tuple[SupplierExample, ...]:
        """The examples of a document's suppliers, the latest first; none where the storage is away."""
        if self.lessons_of is None:
            return ()
        try:
            if not await self.lessons_of(owner, [ANY], 1):
                return ()
            keys = await self._text_work.run_long(partial(_keys, document), document.characters)
            return tuple(example_from(kept.lesson) for kept in await self.lessons_of(owner, keys, _MOST_EXAMPLES))
        except FinanciaError as error:  # the document is read without them
            log_event(_log, logging.WARNING, "confirmed documents could not be looked up", fault=type(error).__name__)
            return ()


def _keys(document: Document) -> list[str]:
    return keys_on(rows_of(document))
