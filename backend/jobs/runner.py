"""Workers that take jobs from the store, process their files, and write progress, results and failures."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from backend.batching.work_item import Priority
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import DeadlineExceeded, FinanciaError, InferenceFailed, PasswordRequired, Unavailable
from backend.jobs.document_codec import options_of, pack_answer
from backend.jobs.progress_writer import ProgressWriter
from backend.jobs.records import Claim, Failure, Job
from backend.jobs.states import Change, move
from backend.jobs.store import JobStore, StoreRetry
from backend.services.documents.records import DocumentAnswer, DocumentOptions, EventCallback
from backend.services.inference import Urgency
from backend.telemetry import Telemetry, log_event

StopReason = Literal["cancelled", "lost", "closing"]
_log = logging.getLogger(__name__)


class Process(Protocol):
    """`DocumentService.process`."""

    def __call__(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency, on_event: EventCallback
    ) -> Awaitable[DocumentAnswer]: ...


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How many jobs run, for how long, and how often they are tried."""

    workers: int = 2  # jobs at once in this process; the pages of one job are already processed several at once
    limit_s: float = 3600.0  # LIMIT_JOB_S; one attempt may take this long
    ttl_s: float = 86_400.0  # JOB_TTL_S; a job is kept this long after its end
    attempts: int = 3  # before a job whose process died each time is given up


@dataclass(slots=True, eq=False)
class _Run:
    claim: Claim
    job: Job  # as it was when it started; writes succeed while its version is current
    work: asyncio.Task[bytes] | None = None
    stopped: StopReason | None = None

    def stop(self, reason: StopReason) -> None:
        self.stopped = self.stopped or reason
        if self.work is not None:
            self.work.cancel()


class JobRunner:
    """Runs jobs of a store on a few workers, in the store's order. Used on the event loop only.

    Args:
        passwords: of encrypted files by job id; they are in no store.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: JobStore,
        telemetry: Telemetry,
        policy: JobPolicy,
        *,
        process: Process,
        passwords: dict[str, str],
        now: Callable[[], float],
    ) -> None:
        self._store, self._process = store, process
        self._telemetry, self._policy, self._passwords, self._now = telemetry, policy, passwords, now
        self._free_workers = asyncio.Semaphore(policy.workers)
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._retry = StoreRetry()

    @property
    def running(self) -> int:
        return len(self._runs)

    def start(self) -> None:
        loops = [self._take_jobs(), self._watch_cancellations()]
        if self._store.heartbeat_s is not None:
            loops.append(self._renew_claims(self._store.heartbeat_s))
        self._background = [asyncio.create_task(loop) for loop in loops]

    def stop(self, job_id: str) -> None:
        """Cancel the work of a job that was cancelled, if it runs here."""
        if run := self._runs.get(job_id):
            run.stop("cancelled")

    async def close(self) -> None:
        """Take no more jobs; running ones go back into the queue, for another replica or the next start."""
        self._retry.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for run in self._runs.values():
            run.stop("closing")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take_jobs(self) -> None:
        while True:
            await self._free_workers.acquire()
            claim = await self._store.take()
            task = asyncio.create_task(self._handle(claim))
            self._tasks.add(task)
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free_workers.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a job's worker failed", exc_info=error)

    async def _watch_cancellations(self) -> None:
        async for job_id in self._store.cancellations():
            self.stop(job_id)

    async def _renew_claims(self, every_s: float) -> None:
        while not await self._retry.stops_within(every_s):
            try:
                await self._store.renew_waiting()
                for run in list(self._runs.values()):
                    if not await self._store.renew(run.claim, run.job):
                        run.stop("lost")
            except Unavailable:
                continue  # logged by the store; claims outlive two missed renewals

    async def _handle(self, claim: Claim) -> None:
        """Process a claim until its job has ended."""
        if claim.job_id in self._runs:  # our own claim, renewed late and given to us again
            return
        try:
            job = await self._retry.call(lambda: self._start_job(claim))
            if job is not None:
                await self._run_job(claim, job)
        except Unavailable:  # this process ends before the store is back; another one takes the job over
            log_event(_log, logging.WARNING, "job left unfinished, its store is away", job=claim.job_id)

    async def _run_job(self, claim: Claim, job: Job) -> None:
        run = self._runs[job.id] = _Run(claim, job)
        started_s = time.monotonic()
        writer = ProgressWriter(job, self._store, self._retry, self._telemetry)
        try:
            outcome = await self._outcome(run, writer)
            await writer.close()
            await self._end(run, writer, outcome)
        finally:
            writer.cancel()
            del self._runs[job.id]
            self._telemetry.document_job_duration_seconds.observe(time.monotonic() - started_s)

    async def _start_job(self, claim: Claim) -> Job | None:
        """Move the claimed job to "running"; None where it cannot run."""
        while True:
            job = await self._store.find(claim.job_id)
            if job is None or job.ended:
                await self._store.settle(claim)
                return None
            rejection = self._rejection(job)
            change: Change = "fail" if rejection else "start"
            changed = move(job, change, self._now(), rejection)
            if changed is not None and await self._store.swap(job, changed) == "done":
                if rejection is None:
                    return changed
                self._count(changed)
                return None

    def _rejection(self, job: Job) -> Failure | None:
        """Why a job must not be started; None where it may."""
        if job.attempts >= self._policy.attempts:
            return Failure.of(
                InferenceFailed(
                    f"the process that worked on it ended {job.attempts} times before it was done; it is not tried "
                    "again, as the file itself may be the cause. Send it again with fewer pages, and tell the operator"
                )
            )
        if job.needs_password and job.id not in self._passwords:
            return Failure.of(
                PasswordRequired(
                    "password: it was known only to the process that took the file, which has ended; send the file and "
                    "its password again"
                )
            )
        return None

    async def _outcome(self, run: _Run, writer: ProgressWriter) -> bytes | Failure | None:
        """The packed result, or why the job failed; None where it is requeued or no longer ours."""
        job = run.job
        run.work = asyncio.create_task(self._work(job, writer))
        if run.stopped:
            run.work.cancel()
        try:
            done, _ = await asyncio.wait({run.work}, timeout=job.limit_s)
        finally:
            run.work.cancel()
            await asyncio.wait({run.work})
        if run.stopped:
            return self._outcome_when_stopped(run)
        if not done or run.work.cancelled():
            return Failure.of(_overdue(job))
        error = run.work.exception()
        if error is None:
            return run.work.result()
        if isinstance(error, DeadlineExceeded):
            return Failure.of(_overdue(job))
        if isinstance(error, FinanciaError):
            return Failure.of(error)
        _log.error("job failed", exc_info=error, extra={"fields": {"job": job.id}})
        return Failure.of(InferenceFailed(f"the service failed on this file; its log tells why under the job {job.id}"))

    def _outcome_when_stopped(self, run: _Run) -> Failure | None:
        if run.stopped != "closing" or (self._store.heartbeat_s is not None and not run.job.needs_password):
            return None
        return Failure.of(Unavailable("the service was stopped while it read this file; send it again"))

    async def _work(self, job: Job, writer: ProgressWriter) -> bytes:
        stored = await self._retry.call(lambda: self._store.file(job.id))
        if stored is None:
            raise Unavailable("jobs: the file is no longer in the store; send it again")
        try:
            options = options_of(job.options["document"], self._passwords.get(job.id))
            urgency = Urgency(Priority.BULK, time.monotonic() + job.limit_s)
            answer = await self._process(stored, options, urgency, writer.on_event)
            return await asyncio.to_thread(pack_answer, answer)
        finally:
            stored.close()

    async def _end(self, run: _Run, writer: ProgressWriter, outcome: bytes | Failure | None) -> None:
        """Write the final state of a job, unless it is no longer ours."""
        job = writer.with_progress(run.job)
        if outcome is None:
            changed = move(job, "requeue", self._now()) if run.stopped == "closing" else None
        elif isinstance(outcome, Failure):
            changed = move(job, "fail", self._now(), outcome)
        else:
            changed = move(job, "succeed", self._now())
        if changed is None:
            return
        result = outcome if isinstance(outcome, bytes) else None
        try:
            swapped = await self._retry.call(lambda: self._store.swap(run.job, changed, result))
        except FinanciaError as error:  # TooLarge: the result is over LIMIT_JOB_BYTES
            if result is None:
                raise
            await self._end(run, writer, Failure.of(error))
            return
        if swapped == "gone" and changed.ended:
            await self._retry.call(lambda: self._store.restore(changed, result))
        if swapped != "stale" and changed.ended:
            self._count(changed)

    def _count(self, job: Job) -> None:
        self._telemetry.document_jobs_total.labels(job.status).inc()
        log_event(_log, logging.INFO, "job ended", job=job.id, status=job.status, code=job.failure and job.failure.code)


def _overdue(job: Job) -> DeadlineExceeded:
    return DeadlineExceeded(
        job.limit_s,
        f"not ended within {job.limit_s:g} s (the job's deadline_s, LIMIT_JOB_S at most); the pages read so far are "
        "kept, and a new job for the same file goes on from them. Ask for fewer pages or features, or for more time",
    )
