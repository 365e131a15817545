"""The job service over a store of the test's choice, and a reading of files that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backend.api.document_answers import document_bytes
from backend.documents.pages import Box, Document, Page, RawWord, make_page
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import UnreadableFile
from backend.jobs.records import Job
from backend.jobs.runner import JobPolicy
from backend.jobs.service import JobRequest, JobService
from backend.jobs.store import JobStore
from backend.services.documents.records import (
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    FailedPage,
    ReadDocument,
    Understood,
)
from backend.services.inference import Urgency
from backend.telemetry import Telemetry
from tests.jobs.samples import NOW_S, TTL_S, upload

PATIENCE_S = 10.0  # only bounds a broken test


def page(number: int) -> Page:
    """A page of one word, which lay on its side."""
    word = RawWord(f"page{number}", Box(1, 2, 30, 12), 0.9)
    return make_page(
        [[[word]]], number=number, width=100, height=200, source="ocr", why="scan", engine="fake", rotation=90
    )


@dataclass
class FakeReading:
    """`DocumentService.process`: reads ``pages`` pages at once; ``stops_at`` has it wait."""

    pages: int = 2
    stops_at: int | None = None  # the page before which it waits for ``gate``
    error: Exception | None = None  # raised after the pages
    fails_at: int | None = None  # a page that cannot be read
    started: asyncio.Queue[StoredFile] = field(default_factory=asyncio.Queue)
    calls: list[tuple[bytes, DocumentOptions, Urgency]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def __call__(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency, tell: Callable[[DocumentEvent], Any]
    ) -> DocumentAnswer:
        self.calls.append((upload.content(), options, urgency))
        tell(DocumentEvent("opening"))
        pages, failed = [], []
        try:
            for number in range(1, self.pages + 1):
                if number == self.stops_at:
                    self.started.put_nowait(upload)
                    await self.gate.wait()
                if number == self.fails_at:
                    failed.append(FailedPage(number, UnreadableFile("broken", page=number)))
                    tell(DocumentEvent("reading", number, self.pages, None, failed[-1]))
                    continue
                pages.append(page(number))
                tell(DocumentEvent("reading", number, self.pages, pages[-1]))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        tell(DocumentEvent("understanding", self.pages, self.pages))
        tell(DocumentEvent("done", self.pages, self.pages))
        document = Document("pdf", tuple(pages), self.pages, upload.sha256, {"title": "Test"})
        read = ReadDocument(document, tuple(failed), len(pages), 0.0, 0.0, 0.0)
        return DocumentAnswer(read, document.text, Understood(), options, "cpu", 0.0, 0.0)


async def picture(stored: StoredFile, number: int, *, turn: int, dpi: float, password: str | None) -> bytes:
    """What was asked for, instead of a PNG."""
    return f"{stored.size_bytes} {number} {turn} {dpi:g} {password}".encode()


@dataclass
class JobDesk:
    """One replica: the service, its store and its reading."""

    store: JobStore
    reading: FakeReading
    policy: JobPolicy = field(default_factory=lambda: JobPolicy(workers=1, limit_s=60.0, ttl_s=TTL_S))
    telemetry: Telemetry = field(default_factory=Telemetry)
    now: Callable[[], float] = lambda: NOW_S

    def __post_init__(self) -> None:
        self.service = JobService(
            self.store,
            self.telemetry,
            self.policy,
            process=self.reading,
            write=document_bytes,
            picture=picture,
            now=self.now,
        )

    async def submit(self, content: bytes = b"%PDF-1.7 one", **asked: Any) -> Job:
        """The job of a file."""
        job, _ = await self.submitted(content, **asked)
        return job

    async def submitted(self, content: bytes = b"%PDF-1.7 one", **asked: Any) -> tuple[Job, bool]:
        """The same, and whether it was there."""
        stored = upload(content)
        try:
            request = {"options": DocumentOptions(), "name": "a.pdf", **asked}
            return await self.service.submit(JobRequest(stored, **request))
        finally:
            stored.close()

    async def ended(self, job: Job, owner: str = "") -> Job:
        """The job, once it has ended."""
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.service.events(job, ""):
                pass
        return await self.service.find(job.id, owner)

    def die(self) -> None:
        """End as a process does that is killed: nothing more is written, nothing given back."""
        runner = self.service._runner
        for task in (*runner._services, *runner._tasks):
            task.cancel()

    def count(self, series: str) -> float:
        """The value of a series of the metrics."""
        lines = self.telemetry.render().decode().splitlines()
        (line,) = [line for line in lines if line.startswith(f"financia_{series} ")]
        return float(line.rpartition(" ")[2])
