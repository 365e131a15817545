"""Writing down how far a job is, page by page, in order, and without ever holding up the reading."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from backend.documents.pages import Page
from backend.jobs.document_codec import page_note
from backend.jobs.records import Job, Progress
from backend.jobs.store import JobStore
from backend.jobs.store_retry import Patience
from backend.services.documents.records import DocumentEvent
from backend.telemetry import Telemetry


class JobNotes:
    """The notes of one attempt at a job. What comes while the store is away waits here."""

    def __init__(self, job: Job, store: JobStore, patience: Patience, telemetry: Telemetry) -> None:
        self._pages = telemetry.document_job_pages_total
        self._job, self._store, self._patience = job, store, patience
        self._progress = Progress(stage="opening")
        self._waiting: asyncio.Queue[tuple[Progress, Page | None] | None] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())

    def tell(self, event: DocumentEvent) -> None:
        """A `Tell`: note what happened."""
        stage = "understanding" if event.stage == "done" else event.stage  # a job is done once its result is kept
        self._progress = Progress(
            stage, event.pages_done, event.pages_total, self._progress.failed_pages + (event.failed is not None)
        )
        if event.page is not None:
            self._pages.inc()
        self._waiting.put_nowait((self._progress, event.page))

    def job_now(self, job: Job) -> Job:
        """The job with what was noted."""
        return replace(job, progress=self._progress)

    async def close(self) -> None:
        """Return when everything is written."""
        self._waiting.put_nowait(None)
        await self._writer

    def cancel(self) -> None:
        """Write no more."""
        self._writer.cancel()

    async def _write(self) -> None:
        while (noted := await self._waiting.get()) is not None:
            progress, page = noted
            note = None if page is None else await asyncio.to_thread(page_note, page)
            await self._patience.ask(lambda: self._store.note(self._job, progress, note))  # noqa: B023 - awaited at once
