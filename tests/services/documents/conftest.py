"""The document service on real reader processes, lanes and models, over an OCR that a test tells what to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.cache.blobs import BlobCache
from backend.documents.parsing.file_readers import FileReaders
from backend.documents.parsing.limits import FileLimits
from backend.documents.parsing.stored_file import StoredFile
from backend.engines.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox
from backend.services.analysis import AnalysisService
from backend.services.documents.extraction import DocumentReader
from backend.services.documents.records import DocumentAnswer, DocumentEvent, DocumentOptions
from backend.services.documents.service import DocumentService
from backend.services.documents.understanding import TextServices
from backend.services.entities import EntityService
from backend.services.inference import Urgency
from tests.services.desk import desk_of, head_of, keep_head
from tests.services.house import House
from tests.services.loaded import embedding_model

LIMITS = FileLimits(file_bytes=2**22, pages=20, page_s=20.0)
LINES = (("Factura", "2024-017"), ("Total:", "1.284,50", "€"))


def result_of(lines: tuple[tuple[str, ...], ...] = LINES, *, rotation: int = 0, confidence: float = 0.9) -> OcrResult:
    """Words of a hundred by twenty pixels, one line under the other."""
    block = tuple(
        tuple(
            OcrWord(text, PixelBox(10 + 110 * column, 10 + 30 * row, 110 + 110 * column, 30 + 30 * row), confidence)
            for column, text in enumerate(line)
        )
        for row, line in enumerate(lines)
    )
    return OcrResult((block,), rotation, confidence, "told 1.0", "told by the test", ())


@dataclass
class ToldOcr:
    """Says what it was told; waits at its gate, or fails, where a test wants that."""

    result: OcrResult | None = None
    errors: list[Exception] = field(default_factory=list)  # raised first, one a page
    gate: asyncio.Event | None = None
    images: list[OcrImage] = field(default_factory=list)
    wishes: list[tuple[str, Urgency]] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    engines: tuple[str, ...] = ("told",)

    async def read(self, image: OcrImage, engine: Any = "auto", urgency: Urgency | None = None) -> OcrResult:
        self.images.append(image)
        self.wishes.append((engine, urgency or Urgency()))
        self.entered.set()
        if self.errors:
            raise self.errors.pop(0)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.result or result_of()

    def report(self) -> dict[str, Any]:
        return {"engines": self.engines}


@dataclass
class Archive:
    """The service, and what is below it."""

    service: DocumentService
    ocr: ToldOcr
    house: House
    events: list[DocumentEvent] = field(default_factory=list)

    async def process(self, content: bytes, urgency: Urgency | None = None, **options: Any) -> DocumentAnswer:
        stored = StoredFile.of(content, LIMITS)
        try:
            return await self.service.process(stored, DocumentOptions(**options), urgency, self.events.append)
        finally:
            stored.close()


@pytest.fixture(scope="session")
def file_readers() -> Iterator[FileReaders]:
    """Two real processes for all tests."""
    with FileReaders(2, LIMITS) as readers:
        yield readers


@pytest.fixture
async def archive(build: Callable[..., House], tmp_path: Any, file_readers: FileReaders) -> AsyncIterator[Archive]:
    """A service with the bundled encoder, a head that classifies, and patterns for entities."""
    house = build(embedding_model("bundled"), lanes=2)
    keep_head(tmp_path, "document-type", head_of(house.catalog.embedding().spec.sha256))
    desk = desk_of(house, tmp_path)
    entities = EntityService(house.catalog, house.inference, house.telemetry)
    analysis = AnalysisService(house.catalog, house.inference, desk.service, entities, house.telemetry)
    ocr: Any = ToldOcr()
    reader = DocumentReader(
        file_readers, ocr, BlobCache(house.cache), languages=("es", "en"), pages_at_once=3, version="test"
    )
    services = TextServices(house.catalog, house.service, entities, analysis)
    yield Archive(DocumentService(reader, services, house.telemetry), ocr, house)
    reader._threads.shutdown(wait=False)
