"""The document service on real reader processes, lanes and models, with scripted OCR results."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.documents.extraction import DocumentExtractor
from backend.documents.ocr import page_backlog
from backend.documents.records import DocumentAnswer, DocumentEvent, DocumentOptions
from backend.documents.service import DocumentService
from backend.documents.understanding import TextServices
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.lanes.backlog import Backlog
from backend.lanes.cache.store import BlobCache
from backend.lanes.inference import Urgency, UsageCounter
from backend.ocr.records import OcrImage, OcrResult, OcrWord, PixelBox
from backend.summaries.service import SummaryService, SupportFinder
from backend.summaries.writers import Writers
from backend.text.analysis import AnalysisService
from backend.text.answers import AnswerService
from backend.text.entities import EntityService
from backend.text.neutral_vectors import NeutralVectors
from tests.serving.loaded_models import embedding_model
from tests.text.classification_setup import build_classification, random_head, write_bundled_head
from tests.text.conftest import build
from tests.text.service_stack import ServiceStack

__all__ = ["build"]

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
class ScriptedOcr:
    """Stands for `OcrService`: gives ``result``, waits for ``gate``, or raises ``errors``."""

    result: OcrResult | None = None
    errors: list[Exception] = field(default_factory=list)  # raised first, one a page
    gate: asyncio.Event | None = None
    images: list[OcrImage] = field(default_factory=list)
    requests: list[tuple[str, Urgency]] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    engines: tuple[str, ...] = ("told",)
    backlog: Backlog = field(default_factory=lambda: page_backlog(lambda: 1))

    async def recognize(self, image: OcrImage, engine: Any = "auto", urgency: Urgency | None = None) -> OcrResult:
        self.images.append(image)
        self.requests.append((engine, urgency or Urgency()))
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

    def tesseract_of(self, engine: Any) -> Any:
        return "tesseract"

    @property
    def fingerprint(self) -> str:
        return repr(self.engines)

    def report(self) -> dict[str, Any]:
        return {"engines": self.engines}


@dataclass
class DocumentsFixture:
    """The service, with its OCR and the services below."""

    service: DocumentService
    ocr: ScriptedOcr
    stack: ServiceStack
    events: list[DocumentEvent] = field(default_factory=list)

    async def process(self, content: bytes, urgency: Urgency | None = None, **options: Any) -> DocumentAnswer:
        stored = StoredFile.of(content, LIMITS)
        try:
            return await self.service.process(stored, DocumentOptions(**options), urgency, self.events.append)
        finally:
            stored.close()


@pytest.fixture(scope="session")
def file_readers() -> Iterator[FileReaders]:
    with FileReaders(2, LIMITS) as readers:
        yield readers


@pytest.fixture
async def documents(
    build: Callable[..., ServiceStack], tmp_path: Any, file_readers: FileReaders
) -> AsyncIterator[DocumentsFixture]:
    """A service with the bundled encoder, a head that classifies, and patterns for entities."""
    stack = build(embedding_model("minilm"), lanes=2)
    write_bundled_head(tmp_path, "document-type", random_head(stack.catalog.embedding().spec.sha256))
    classification = build_classification(stack, tmp_path)
    entities = EntityService(stack.catalog, stack.inference, stack.telemetry)
    analysis = AnalysisService(stack.catalog, stack.inference, classification.service, entities, stack.telemetry)
    ocr: Any = ScriptedOcr()
    reader = DocumentExtractor(
        file_readers, ocr, BlobCache(stack.cache), languages=("es", "en"), pages_at_once=3, version="test"
    )
    support = SupportFinder(stack.catalog, stack.service, NeutralVectors(stack.service))
    writers = Writers(
        stack.catalog, stack.batcher, stack.inference.text_work, UsageCounter(stack.telemetry, "summaries")
    )
    summaries = SummaryService(analysis, writers, support)
    answers = AnswerService(stack.catalog, stack.inference, stack.service, stack.telemetry)
    services = TextServices(
        stack.catalog, stack.service, entities, analysis, summaries, answers, stack.inference.text_work
    )
    yield DocumentsFixture(DocumentService(reader, services, stack.telemetry), ocr, stack)
    reader._threads.close()
