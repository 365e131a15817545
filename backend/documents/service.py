"""The use cases behind ``/v1/ocr`` and ``/v1/documents``: extract the pages of an upload and analyse their text.

A recording has pages too: its minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from backend.documents.extraction import DocumentExtractor
from backend.documents.page_classes import images_for
from backend.documents.recordings import RecordingExtractor, is_recording
from backend.documents.records import (
    TEXT_FEATURES,
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    EventCallback,
    Understood,
    ignore_event,
)
from backend.documents.supplier_examples import SupplierExamples
from backend.documents.understanding import TextServices, Understanding
from backend.files.pages import Document, Page
from backend.files.stored_file import StoredFile
from backend.images.classification import ImageClassificationService
from backend.invoices.records import ExtractedFields
from backend.lanes.inference import Urgency
from backend.lanes.memory_keeper import IdleTrim
from backend.telemetry import Telemetry
from backend.tracing.spans import span


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
            with span("understand"):
                understood = await self._understand(
                    understanding,
                    options,
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
        if self._recordings is not None and is_recording(upload):
            return self._recordings
        return self.extractor

    async def _understand(
        self,
        understanding: Understanding,
        options: DocumentOptions,
        document: Document,
        text: str,
        on_fields: Callable[[ExtractedFields], None],
    ) -> Understood:
        if not options.features.intersection(TEXT_FEATURES):
            return Understood()
        return await understanding.finish(document, text, on_fields)
