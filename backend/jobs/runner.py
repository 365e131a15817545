"""Workers that take jobs from the store, process their files, and write progress, results and failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from backend.abandoned import end_tasks
from backend.callers.callers import NO_METER, Meter, sharer
from backend.documents.records import DocumentAnswer, DocumentEvent, ProcessDocument
from backend.errors import (
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    JobOfAnotherRelease,
    PasswordRequired,
    TooLarge,
    Unavailable,
)
from backend.files.pages import Page
from backend.files.stored_file import StoredFile
from backend.invoices.records import ExtractedFields
from backend.jobs.document_codec import fields_event, options_of, pack_answer, page_record
from backend.jobs.records import DOCUMENT, Change, Failure, Job, JobClaim, Progress, move
from backend.jobs.store import JobStore
from backend.lanes.cache.store import Enter, share_with_all
from backend.lanes.inference import Urgency, count_started
from backend.lanes.leased_run import Done, Failed, LeasedRun
from backend.lanes.work_queue import Priority
from backend.retry import StoreRetry
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event
from backend.tracing.spans import INACTIVE, Active, SpanScope, read_traceparent

_STOPPED = "the service was stopped before it had read this file; send it again"
_log = logging.getLogger(__name__)


# Stores the document of a job as its `keep_as` says; the same job again is the same document.
Keep = Callable[[Job, StoredFile, DocumentAnswer], Awaitable[None]]


async def _keep_nothing(*_: object) -> None:
    raise Unavailable("store: no documents are kept in this process; send the file without it", kind="for_good")


class Work(Protocol):
    """Work of another kind than a document's: its result, and the tokens that its owner is charged for."""

    def __call__(
        self, content: StoredFile, job: Job, urgency: Urgency, tell: Callable[[Progress], None]
    ) -> Awaitable[tuple[bytes, int]]: ...


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How many jobs run, for how long, and how often they are tried."""

    workers: int = 2  # jobs at once in this process; the pages of one job are already processed several at once
    limit_s: float = 3600.0  # LIMIT_JOB_S; one attempt may take this long
    ttl_s: float = 86_400.0  # JOB_TTL_S; a job is kept this long after its end
    attempts: int = 3  # before a job whose process died each time is given up


@dataclass(frozen=True, slots=True)
class _Requeue:
    """The outcome of an attempt whose job goes back to the queue."""

    is_attempt: bool  # an orderly stop is none; work that its process could not do is, as the file may be the cause


_Outcome = bytes | Failure | _Requeue | None  # the packed result, why it failed, or None where it is no longer ours


@dataclass(slots=True, eq=False, kw_only=True)
class _Run(LeasedRun[bytes]):
    claim: JobClaim
    job: Job  # as it was when it started; writes succeed while its version is current


class JobRunner:
    """Runs jobs of a store on a few workers, in the store's order. Used on the event loop only.

    Args:
        works: by the kind of a job, beside documents.
        passwords: of encrypted files by job id; they are in no store.
        meter_of: the meter of a job's owner.
        enter: entered while a job of an owner runs; CACHE_SCOPE.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: JobStore,
        telemetry: Telemetry,
        policy: JobPolicy,
        *,
        process: ProcessDocument,
        works: Mapping[str, Work],
        passwords: dict[str, str],
        meter_of: Callable[[str], Meter],
        now: Callable[[], float],
        supervisor: Supervisor,
        enter: Enter = share_with_all,
    ) -> None:
        self._store, self._process, self._supervisor, self._enter = store, process, supervisor, enter
        self._works = works
        self._telemetry, self._policy, self._passwords, self._now = telemetry, policy, passwords, now
        self._meter_of = meter_of
        self.keep: Keep = _keep_nothing
        self._free_workers = asyncio.Semaphore(policy.workers)
        self._handled: set[str] = set()  # jobs whose claim a worker has, running or not
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._retry = StoreRetry()
        self._refusal = ""
        self._closing: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        return len(self._runs)

    @property
    def refusal(self) -> str:
        """Why this process takes no more jobs; empty while it does."""
        return self._refusal

    def start(self) -> None:
        keep, every_s = self._supervisor.keep, self._store.heartbeat_s
        self._background = [keep("take_jobs", self._take_jobs), keep("watch_cancellations", self._watch_cancellations)]
        if every_s is not None:
            self._background.append(keep("renew_claims", lambda: self._renew_claims(every_s)))

    def stop(self, job_id: str) -> None:
        """Cancel the work of a job that was cancelled, if it runs here."""
        if run := self._runs.get(job_id):
            run.stop("cancelled")

    async def close(self) -> None:
        """Take no more jobs; those of this process go back into the queue, or fail where no other process can run them.

        May be called again: every call returns when that is done.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def give_back(self) -> None:
        """Return every job that only this process would run, and that no worker of it runs.

        Another process then takes it at once, not when the lease of this one is over; where none can, it fails.
        """
        try:
            for claim in await self._store.held():
                if claim.job_id not in self._runs:
                    with suppress(JobOfAnotherRelease):  # its lease ends, and a replica that knows the format takes it
                        await self._give_back(claim)
        except Unavailable:  # leases are over soon, and other processes then take what is left
            log_event(_log, logging.WARNING, "claims not given back, their store is away")
        except Exception as error:  # noqa: BLE001 - border: what is to be closed after this must be closed
            self._supervisor.failed("take_jobs", error)

    async def _close(self) -> None:
        self._refusal = self._refusal or "the service is shutting down"
        self._retry.stop()
        for run in self._runs.values():  # before their calls to a store that is away fail, which is no fault of a job
            run.stop("closing")
        await end_tasks(*self._background)
        for run in self._runs.values():
            run.stop("closing")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.give_back()

    async def _give_back(self, claim: JobClaim) -> None:
        job = await self._store.find(claim.job_id)
        if job is None or job.ended:
            await self._store.settle(claim)
            return
        if not self._can_move(job):
            changed = move(job, "fail", self._now(), Failure.of(Unavailable(_STOPPED)))
        else:
            running = move(job, "start", self._now()) if job.status == "queued" else job
            changed = running and move(running, "requeue", self._now())
            # The attempt of a process that died still counts; a job that was queued has none more than before.
            changed = changed and replace(changed, attempts=job.attempts)
        if changed is not None and await self._store.swap(job, changed) == "done" and changed.ended:
            self._count(changed)

    def _can_move(self, job: Job) -> bool:
        """Whether another process can run the job."""
        return self._store.heartbeat_s is not None and not job.needs_password

    async def _take_jobs(self) -> None:
        while not self._refusal:
            await self._free_workers.acquire()
            try:
                claim = await self._store.take()
            except BaseException:
                self._free_workers.release()
                raise
            task = self._supervisor.run("run_job", partial(self._handle, claim))
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free_workers.release()

    async def _watch_cancellations(self) -> None:
        async for job_id in self._store.cancellations():
            self.stop(job_id)

    async def _renew_claims(self, every_s: float) -> None:
        while not await self._retry.stops_within(every_s):
            renewals = [self._store.renew_waiting(), *map(self._renew, list(self._runs.values()))]
            for outcome in await asyncio.gather(*renewals, return_exceptions=True):
                # An absent store logs it itself, and claims outlive two missed renewals.
                if isinstance(outcome, Exception) and not isinstance(outcome, Unavailable):
                    self._supervisor.failed("renew_claims", outcome)

    async def _renew(self, run: _Run) -> None:
        """Renew a run's claim; stop the run where another process has the job. One that the store has lost runs on."""
        if await self._store.renew(run.claim, run.job) == "taken":
            run.stop("lost")

    async def _handle(self, claim: JobClaim) -> None:
        """Process a claim until its job has ended."""
        if claim.job_id in self._handled:  # our own claim, renewed late and given to us again
            return
        self._handled.add(claim.job_id)
        try:
            job = await self._retry.call(lambda: self._start_job(claim))
            if job is not None:
                await self._run_job(claim, job)
        except JobOfAnotherRelease as error:  # its claim, not renewed, goes to a replica that may know the format
            log_event(_log, logging.WARNING, "job left to another release", job=claim.job_id, why=error)
        except Unavailable:  # this process ends before the store is back; another one takes the job over
            log_event(_log, logging.WARNING, "job left unfinished, its store is away", job=claim.job_id)
        finally:
            self._handled.discard(claim.job_id)

    async def _run_job(self, claim: JobClaim, job: Job) -> None:
        run = self._runs[job.id] = _Run(claim=claim, job=job)
        if self._closing is not None:  # it began while this process was told to stop
            run.stop("closing")
        started_s = time.monotonic()
        writer = ProgressWriter(
            job,
            self._store,
            self._retry,
            self._telemetry,
            supervisor=self._supervisor,
            meter=self._meter_of(job.owner),
        )
        try:
            with self._span(job) as traced:
                outcome = await self._outcome(run, writer)
                _note_outcome(traced, outcome)
                await writer.close()
                await self._end(run, writer, outcome)
        finally:
            writer.cancel()
            del self._runs[job.id]
            self._telemetry.document_job_duration_seconds.observe(time.monotonic() - started_s)

    async def _start_job(self, claim: JobClaim) -> Job | None:
        """Move the claimed job to "running"; None where it cannot run, and where `give_back` is to return it.

        Raises: JobOfAnotherRelease; Unavailable.
        """
        while not self._refusal:
            job = await self._store.find(claim.job_id)
            if job is None or job.ended:
                await self._store.settle(claim)
                return None
            self._require_known(job)
            rejection = self._rejection(job)
            change: Change = "fail" if rejection else "start"
            changed = move(job, change, self._now(), rejection)
            if changed is None:
                continue
            swapped = await self._store.swap(job, changed, claim=claim)
            if swapped == "lost":  # another replica has taken the job over
                return None
            if swapped == "done":
                if rejection is None:
                    return changed
                self._count(changed)
                return None
        return None

    def _require_known(self, job: Job) -> None:
        """Raises: JobOfAnotherRelease for work or options that this release does not know."""
        if job.kind == DOCUMENT:
            options_of(job.options["document"], None)
        elif job.kind not in self._works:
            raise JobOfAnotherRelease("the job, by its kind,")

    def _rejection(self, job: Job) -> Failure | None:
        """Why a job must not be started; None where it may."""
        if job.attempts >= self._policy.attempts:
            return Failure.of(
                Unavailable(
                    f"jobs: the process that worked on it ended {job.attempts} times before it was done, by deploys, "
                    "want of memory or the file itself. Send it again; if it ends so once more, with fewer pages"
                )
            )
        if job.needs_password and job.id not in self._passwords:
            error = PasswordRequired(
                "password: it was known only to the process that took the file, which has ended; send the file and "
                "its password again"
            )
            return replace(Failure.of(error), retryable=True)
        return None

    async def _outcome(self, run: _Run, writer: ProgressWriter) -> _Outcome:
        """What became of an attempt: of its work, its deadline, or whoever stopped it."""
        job = run.job
        with self._enter(job.owner), count_started(sharer(job.owner)) as started:
            ended = await run.ended(self._work(job, writer), job.limit_s)
        is_late = ended == "late" or (isinstance(ended, Failed) and isinstance(ended.error, DeadlineExceeded))
        if is_late or ended == "cancelled":
            self._meter_of(job.owner).charge("tokens", started.tokens)
        match ended:
            case Done(result):
                return result
            case Failed(error):
                return self._outcome_of_error(job, error)
            case "late":
                return Failure.of(_overdue(job))
            case "closing":
                return _Requeue(is_attempt=False) if self._can_move(job) else Failure.of(Unavailable(_STOPPED))
        return None

    def _outcome_of_error(self, job: Job, error: BaseException) -> _Outcome:
        if isinstance(error, DeadlineExceeded):
            return Failure.of(_overdue(job))
        if isinstance(error, Unavailable) and error.kind == "for_good":
            self._leave_jobs_to_others(error)
            if self._can_move(job):
                return _Requeue(is_attempt=True)
        if isinstance(error, FinanciaError):
            return Failure.of(error)
        _log.error("job failed", exc_info=error, extra={"fields": {"job": job.id}})
        return Failure.of(InferenceFailed(f"the service failed on this file; its log tells why under the job {job.id}"))

    def _leave_jobs_to_others(self, error: Unavailable) -> None:
        """Take no more jobs: no work can be done in this process any more."""
        if self._refusal:
            return
        self._refusal = str(error)
        log_event(_log, logging.CRITICAL, "no more jobs are taken here", why=self._refusal)
        self._background[0].cancel()
        task = self._supervisor.run("take_jobs", self.give_back)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _span(self, job: Job) -> SpanScope:
        """Of an attempt, in the trace of the request that sent the job, wherever that was."""
        tracer = self._telemetry.tracer
        if not tracer.is_on:
            return INACTIVE
        span = tracer.start("job", "consumer", read_traceparent(job.trace))
        span.attributes |= {
            "financia.job.id": job.id,
            "financia.job.attempt": job.attempts,
            "financia.job.waited_s": round(max(0.0, self._now() - job.created_s), 3),
            "financia.file.kind": job.file.kind,
        }
        return Active(span)

    async def _work(self, job: Job, writer: ProgressWriter) -> bytes:
        stored = await self._retry.call(lambda: self._store.file(job.id))
        if stored is None:
            raise Unavailable("jobs: the file is no longer in the store; send it again")
        try:
            urgency = Urgency(Priority.BULK, time.monotonic() + job.limit_s)
            if job.kind == DOCUMENT:
                return await self._document(stored, job, urgency, writer)
            result, tokens = await self._works[job.kind](stored, job, urgency, writer.on_progress)
            self._meter_of(job.owner).charge("tokens", tokens)
            return result
        finally:
            stored.close()

    async def _document(self, stored: StoredFile, job: Job, urgency: Urgency, writer: ProgressWriter) -> bytes:
        options = options_of(job.options["document"], self._passwords.get(job.id))
        answer = await self._process(stored, options, urgency, writer.on_event, owner=job.owner)
        self._meter_of(job.owner).charge("tokens", answer.understood.tokens)
        if job.keep_as is not None:
            await self.keep(job, stored, answer)
        return await asyncio.to_thread(pack_answer, answer)

    async def _end(self, run: _Run, writer: ProgressWriter, outcome: _Outcome) -> None:
        """Write the final state of a job, unless it is no longer ours."""
        changed = self._changed(writer.with_progress(run.job), outcome)
        if changed is None:
            return
        result = outcome if isinstance(outcome, bytes) else None
        try:
            swapped = await self._retry.call(lambda: self._store.swap(run.job, changed, result))
        except TooLarge as error:  # the result is over LIMIT_JOB_BYTES
            await self._end(run, writer, Failure.of(error))
            return
        if swapped == "gone":
            await self._restore(changed, result)
        elif swapped == "done" and changed.ended:
            self._count(changed)

    def _changed(self, job: Job, outcome: _Outcome) -> Job | None:
        now_s = self._now()
        if outcome is None:
            return None
        if isinstance(outcome, Failure):
            return move(job, "fail", now_s, outcome)
        if isinstance(outcome, bytes):
            return move(job, "succeed", now_s)
        requeued = move(job, "requeue", now_s)
        return replace(requeued, attempts=job.attempts) if requeued and outcome.is_attempt else requeued

    async def _restore(self, job: Job, result: bytes | None) -> None:
        """Write a job that the store has lost: as it ended, or as failed, since its file was lost with it."""
        if not job.ended:
            failed = move(replace(job, status="running"), "fail", self._now(), Failure.of(Unavailable(_STOPPED)))
            assert failed is not None, "a running job can fail"
            job = failed
        await self._retry.call(lambda: self._store.restore(job, result))
        self._count(job)

    def _count(self, job: Job) -> None:
        self._telemetry.document_jobs_total.labels(job.status).inc()
        log_event(_log, logging.INFO, "job ended", job=job.id, status=job.status, code=job.failure and job.failure.code)


def _note_outcome(traced: SpanScope, outcome: _Outcome) -> None:
    if isinstance(outcome, Failure):
        traced.fail(outcome.code)
    elif not isinstance(outcome, bytes):  # requeued, cancelled, or taken by another process
        traced.set("financia.job.stopped", value=True)


def _overdue(job: Job) -> DeadlineExceeded:
    return DeadlineExceeded(
        job.limit_s,
        f"not ended within {job.limit_s:g} s (the job's deadline_s, LIMIT_JOB_S at most); the pages read so far are "
        "kept, and a new job for the same file goes on from them. Ask for fewer pages or features, or for more time",
    )


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
