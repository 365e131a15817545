"""Writes the progress of a running job to the store, page by page and in order, without holding up the work."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from backend.callers.quotas import NO_METER, Meter
from backend.documents.records import DocumentEvent
from backend.errors import Unavailable
from backend.files.pages import Page
from backend.invoices.records import ExtractedFields
from backend.jobs.document_codec import fields_event, page_record
from backend.jobs.records import Job, Progress
from backend.jobs.store import JobStore
from backend.retry import StoreRetry
from backend.supervision import Supervisor
from backend.telemetry import Telemetry


class ProgressWriter:
    """Progress of one attempt at a job. Events queue up here while the store is away."""

    def __init__(
        self,
        job: Job,
        store: JobStore,
        retry: StoreRetry,
        telemetry: Telemetry,
        *,
        supervisor: Supervisor,
        meter: Meter = NO_METER,
    ) -> None:
        self._pages, self._meter = telemetry.document_job_pages_total, meter
        self._charged_pages = job.progress.pages_done  # an earlier attempt read these, and its owner paid for them
        self._job, self._store, self._retry, self._supervisor = job, store, retry, supervisor
        self._progress = Progress(stage="opening")
        self._queue: asyncio.Queue[tuple[Progress, Page | None, ExtractedFields | None] | None] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())

    def on_event(self, event: DocumentEvent) -> None:
        """An `EventCallback`: queue the progress, and the page or the fields, to be written."""
        stage = "understanding" if event.stage == "done" else event.stage  # a job is done once its result is kept
        self._progress = Progress(
            stage, event.pages_done, event.pages_total, self._progress.failed_pages + (event.failed is not None)
        )
        if event.page is not None:
            self._pages.inc()
            if event.pages_done > self._charged_pages:
                self._meter.charge("pages", 1)
        self._queue.put_nowait((self._progress, event.page, event.fields))

    def on_progress(self, progress: Progress) -> None:
        """Queue the progress of other work than a document's."""
        self._progress = progress
        self._queue.put_nowait((progress, None, None))

    def with_progress(self, job: Job) -> Job:
        """``job`` with the latest progress."""
        return replace(job, progress=self._progress)

    async def close(self) -> None:
        """Return when everything is written. Raises: Unavailable when the process stops and the store is away."""
        self._queue.put_nowait(None)
        await self._writer

    def cancel(self) -> None:
        self._writer.cancel()

    async def _write(self) -> None:
        while (queued := await self._queue.get()) is not None:
            try:
                await self._write_one(*queued)
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - border: an event that cannot be written costs no result
                self._supervisor.failed("write_progress", error)

    async def _write_one(self, progress: Progress, page: Page | None, fields: ExtractedFields | None) -> None:
        record = None if page is None else await asyncio.to_thread(page_record, page)
        event = b"" if fields is None else await asyncio.to_thread(fields_event, fields)
        await self._retry.call(lambda: self._store.write_progress(self._job, progress, record, event))
