"""The use cases behind ``/v1/ocr`` and ``/v1/documents``: one upload in, pages and what they say out."""

from __future__ import annotations

import time

from backend.documents.pages import Document, Page
from backend.documents.parsing.stored_file import StoredFile
from backend.services.documents.extraction import DocumentReader
from backend.services.documents.records import (
    TEXT_FEATURES,
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    Tell,
    Understood,
    nobody,
)
from backend.services.documents.understanding import TextServices, Understanding
from backend.services.inference import Urgency
from backend.telemetry import Telemetry


class DocumentService:
    """Belongs to the loop's thread. A call that is cancelled ends what runs for it in reader processes and on lanes."""

    def __init__(self, reader: DocumentReader, services: TextServices, telemetry: Telemetry) -> None:
        self.reader = reader
        self._services, self._telemetry = services, telemetry

    async def process(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency | None = None, tell: Tell = nobody
    ) -> DocumentAnswer:
        """Read a file and understand its text.

        Args:
            upload: stays the caller's to close.
            tell: of how far it is, and of every page as soon as it is read.

        Raises: PasswordRequired, WrongPassword, UnreadableFile, WrongMediaType, TooLarge, InvalidField for the upload;
            Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        urgency = urgency or Urgency()
        started_s = time.perf_counter()
        understanding = Understanding(self._services, options, urgency)

        def use(page: Page) -> None:
            self._telemetry.pages_total.labels(page.source).inc()
            understanding.add(page)

        try:
            read = await self.reader.read(upload, options, urgency, tell, use)
            self._telemetry.pages_failed_total.inc(len(read.failed))
            done = len(read.document.pages) + len(read.failed)
            tell(DocumentEvent("understanding", done, done))
            read_s = time.perf_counter()
            text = read.document.text
            understood = await self._understand(understanding, options, read.document, text)
        finally:
            await understanding.stop()
        ended_s = time.perf_counter()
        tell(DocumentEvent("done", done, done))
        device = self._services.catalog.embedding().placement.device
        return DocumentAnswer(read, text, understood, options, device, ended_s - read_s, ended_s - started_s)

    async def _understand(
        self, understanding: Understanding, options: DocumentOptions, document: Document, text: str
    ) -> Understood:
        if not options.features.intersection(TEXT_FEATURES):
            return Understood()
        return await understanding.finish(document, text)
