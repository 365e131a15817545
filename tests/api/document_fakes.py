"""A document service that reads no file, so that only HTTP is tested."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from backend.callers.callers import Caller
from backend.documents.extractors import Extractor, check_change, found
from backend.documents.records import (
    Chunk,
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    ExtractedDocument,
    FailedPage,
    PlacedEntity,
    Understood,
    ignore_event,
)
from backend.errors import UnreadableFile
from backend.files.limits import FileLimits
from backend.files.pages import Box, Document, RawWord, locate, make_page
from backend.files.stored_file import StoredFile
from backend.invoices.ocr_confusions import Change, Repair
from backend.lanes.inference import Urgency
from backend.summaries.records import Summary
from backend.text.analysis import KeySentence
from backend.text.entity_merge import PATTERN, Entity
from backend.text.key_phrases import KeyPhrase
from backend.text.language import Language
from tests.api.text_fakes import FakeService

FILE_LIMITS = FileLimits(file_bytes=100_000, pages=20)
LINES = (("IBAN", "ES91", "2100"), ("Total", "1.284,50", "€"))


def document() -> Document:
    """Two pages of two lines; the second has a word that XML and HTML must escape."""
    pages = [
        make_page(
            [
                [
                    [RawWord(word, Box(50.0 * place, 20.0 * row, 50.0 * place + 45, 20.0 * row + 12), 0.9)
                     for place, word in enumerate(line)]
                    for row, line in enumerate(lines)
                ]
            ],
            number=number, width=595.0, height=842.0, source="ocr", why="fake", engine="fake 1.0", confidence=0.9,
        )
        for number, lines in ((1, LINES), (2, (("<b>", "&"),)))
    ]  # fmt: skip
    return Document("pdf", tuple(pages), 3, "ab" * 32, {"title": "Ñ"})


def answer_of(options: DocumentOptions) -> DocumentAnswer:
    """An answer with every feature."""
    read = document()
    start, end = read.text.index("ES91"), read.text.index("\n")
    iban = Entity("IBAN", read.text[start:end], start, end, 0.9, PATTERN, None, False)
    repair = Repair(iban.text, "ES9121", (Change(3, "O", "0"),), 0.99)
    understood = Understood(
        language=Language("es", 0.99),
        entities=(PlacedEntity(iban, tuple(locate(read, start, end)), repair),),
        coverage=1.0,
        key_phrases=(KeyPhrase("Total", 0.5, ((15, 20),)),),
        key_sentences=(KeySentence("Total", 15, 20, 0.5),),
        vector=np.array([0.25, 0.5], np.float32),
        chunks=(Chunk(0, 10, (1,), 4, np.array([0.125, 1.0], np.float32)),),
        summary=Summary("extractive", "fake-model", "Total", None, (KeySentence("Total", 15, 20, 0.5),)),
        model="fake-model",
        tokens=9,
    )
    failed = FailedPage(3, UnreadableFile("page 3: broken", page=3))
    return DocumentAnswer(
        ExtractedDocument(read, (failed,), 2, 0.01, 0.2, 0.15), read.text, understood, options, "cpu", 0.05, 0.26
    )


@dataclass
class FakeReader:
    """Answers a fixed searchable PDF."""

    calls: list[Any] = field(default_factory=list)

    async def searchable_pdf(self, upload: StoredFile, read: Document, **options: Any) -> bytes:
        self.calls.append((upload.sha256, read, options))
        return b"%PDF-1.7 searchable"


class NoExamples:
    """Nothing was confirmed."""

    async def of(self, *_: object) -> tuple[()]:
        return ()


@dataclass
class FakeDocuments(FakeService):
    """Answers ``answer_of`` whatever the file."""

    extractor: FakeReader = field(default_factory=FakeReader)
    examples: NoExamples = field(default_factory=NoExamples)
    error_after_pages: Exception | None = None

    async def process(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency | None = None,
        on_event: Any = ignore_event,
        *,
        owner: str | None = None,
    ) -> DocumentAnswer:
        del owner
        await self.enter(upload.content(), options, urgency)
        answer = answer_of(options)
        for done, page in enumerate(answer.document.pages, 1):
            on_event(DocumentEvent("reading", done, 3, page))
        if self.error_after_pages is not None:
            raise self.error_after_pages
        on_event(DocumentEvent("done", 3, 3))
        return answer


class FakeExtractors:
    """Keeps extractors in memory, the callers' as the real stores do."""

    def __init__(self) -> None:
        self.kept: dict[str, Extractor] = {}

    async def all(self) -> list[Extractor]:
        return [self.kept[name] for name in sorted(self.kept)]

    async def get(self, name: str) -> Extractor | None:
        return self.kept.get(name)

    async def save(self, extractor: Extractor, caller: Caller) -> Extractor:
        check_change(self.kept.get(extractor.name), caller)
        self.kept[extractor.name] = replace(extractor, owner=caller.owner)
        return self.kept[extractor.name]

    async def delete(self, name: str, caller: Caller) -> None:
        check_change(await found(self, name), caller)
        del self.kept[name]
