"""A job service over a store of the test's choice, with scripted document processing."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from backend.callers.callers import NO_METER, Meter
from backend.documents.records import (
    DocumentAnswer,
    DocumentEvent,
    DocumentOptions,
    ExtractedDocument,
    FailedPage,
    Understood,
)
from backend.errors import UnreadableFile
from backend.files.pages import Box, Document, Page, RawWord, make_page
from backend.files.stored_file import StoredFile
from backend.invoices.records import ExtractedFields
from backend.jobs.records import Job
from backend.jobs.runner import JobPolicy
from backend.jobs.service import JobRequest, JobService
from backend.jobs.store import JobStore
from backend.lanes.cache.store import Enter, share_with_all
from backend.lanes.inference import Urgency
from backend.supervision import Supervisor
from backend.telemetry import BackgroundTask, Telemetry
from tests.jobs.samples import NOW_S, TTL_S, upload

TIMEOUT_S = 10.0  # only bounds a broken test


def page(number: int) -> Page:
    """A page of one word that was rotated by 90 degrees."""
    word = RawWord(f"page{number}", Box(1, 2, 30, 12), 0.9)
    return make_page(
        [[[word]]], number=number, width=100, height=200, source="ocr", why="scan", engine="fake", rotation=90
    )


@dataclass
class FakeProcess:
    """Stands for `DocumentService.process`: gives ``pages`` pages at once, or waits before page ``stops_at``."""

    pages: int = 2
    stops_at: int | None = None  # the page before which it waits for ``gate``
    error: Exception | None = None  # raised after the pages
    fails_at: int | None = None  # a page that fails
    fields: ExtractedFields | None = None  # told before the end
    started: asyncio.Queue[StoredFile] = field(default_factory=asyncio.Queue)
    calls: list[tuple[bytes, DocumentOptions, Urgency]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def __call__(
        self,
        upload: StoredFile,
        options: DocumentOptions,
        urgency: Urgency,
        on_event: Callable[[DocumentEvent], Any],
        *,
        owner: str,
    ) -> DocumentAnswer:
        del owner
        self.calls.append((upload.content(), options, urgency))
        on_event(DocumentEvent("opening"))
        pages, failed = [], []
        try:
            for number in range(1, self.pages + 1):
                if number == self.stops_at:
                    self.started.put_nowait(upload)
                    await self.gate.wait()
                if number == self.fails_at:
                    failed.append(FailedPage(number, UnreadableFile("broken", page=number)))
                    on_event(DocumentEvent("reading", number, self.pages, None, failed[-1]))
                    continue
                pages.append(page(number))
                on_event(DocumentEvent("reading", number, self.pages, pages[-1]))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        on_event(DocumentEvent("understanding", self.pages, self.pages, fields=self.fields))
        on_event(DocumentEvent("done", self.pages, self.pages))
        document = Document("pdf", tuple(pages), self.pages, upload.sha256, {"title": "Test"})
        read = ExtractedDocument(document, tuple(failed), len(pages), 0.0, 0.0, 0.0)
        return DocumentAnswer(read, document.text, Understood(), options, "cpu", 0.0, 0.0)


async def render_page(stored: StoredFile, number: int, *, rotation: int, dpi: float, password: str | None) -> bytes:
    """The arguments, instead of a PNG."""
    return f"{stored.size_bytes} {number} {rotation} {dpi:g} {password}".encode()


async def _no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


class WatchedSupervisor(Supervisor):
    """Remembers the tasks it started, so that a test can end or await them by their names."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, sleep=_no_pause)
        self.tasks: list[asyncio.Task[None]] = []

    def keep(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        self.tasks.append(super().keep(name, work))
        return self.tasks[-1]

    def run(self, name: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        self.tasks.append(super().run(name, work))
        return self.tasks[-1]


@dataclass
class JobReplica:
    """One replica: the service, its store and its scripted processing."""

    store: JobStore
    process: FakeProcess
    policy: JobPolicy = field(default_factory=lambda: JobPolicy(workers=1, limit_s=60.0, ttl_s=TTL_S))
    telemetry: Telemetry = field(default_factory=Telemetry)
    now: Callable[[], float] = lambda: NOW_S
    enter: Enter = share_with_all
    meter_of: Callable[[str], Meter] = lambda _owner: NO_METER

    def __post_init__(self) -> None:
        self.supervisor = WatchedSupervisor(self.telemetry)
        self.service = JobService(
            self.store,
            self.telemetry,
            self.policy,
            process=self.process,
            render_page=render_page,
            supervisor=self.supervisor,
            now=self.now,
            enter=self.enter,
            meter_of=self.meter_of,
        )

    async def submit(self, content: bytes = b"%PDF-1.7 one", **fields: Any) -> Job:
        job, _ = await self.submitted(content, **fields)
        return job

    async def submitted(self, content: bytes = b"%PDF-1.7 one", **fields: Any) -> tuple[Job, bool]:
        """The job, and whether it existed before."""
        stored = upload(content)
        try:
            request = {"options": DocumentOptions(), "name": "a.pdf", **fields}
            return await self.service.submit(JobRequest(stored, **request))
        finally:
            stored.close()

    async def ended(self, job: Job, owner: str = "") -> Job:
        """The job, after its last event."""
        async with asyncio.timeout(TIMEOUT_S):
            async for _ in self.service.events(job, ""):
                pass
        return await self.service.find(job.id, owner)

    def kill(self) -> None:
        """Stop like a killed process: nothing more is written, no claim is released."""
        self.stop()

    def stop(self, *names: BackgroundTask) -> None:
        """End the tasks of these names; without any, all of them."""
        for task in self.supervisor.tasks:
            if not names or task.get_name() in names:
                task.cancel()

    def runs(self) -> list[asyncio.Task[None]]:
        """The jobs that run here, as tasks."""
        return [task for task in self.supervisor.tasks if task.get_name() == "run_job" and not task.done()]

    def count(self, series: str) -> float:
        lines = self.telemetry.render().decode().splitlines()
        (line,) = [line for line in lines if line.startswith(f"financia_{series} ")]
        return float(line.rpartition(" ")[2])
