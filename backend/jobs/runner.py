"""The workers behind the jobs: take one, read its file, write down how far it is, and end it in every way there is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from backend.batching.work_item import Priority
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import (
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    PasswordRequired,
    Unavailable,
)
from backend.jobs.document_codec import options_of
from backend.jobs.progress_writer import JobNotes
from backend.jobs.records import Claim, Failure, Job
from backend.jobs.states import Change, move
from backend.jobs.store import JobStore
from backend.jobs.store_retry import Patience
from backend.services.documents.records import DocumentAnswer, DocumentOptions, Tell
from backend.services.inference import Urgency
from backend.telemetry import Telemetry, log_event

Stop = Literal["cancelled", "lost", "closing"]
_log = logging.getLogger(__name__)


class Process(Protocol):
    """`DocumentService.process`."""

    def __call__(
        self, upload: StoredFile, options: DocumentOptions, urgency: Urgency, tell: Tell
    ) -> Awaitable[DocumentAnswer]: ...


Write = Callable[[DocumentAnswer, str], bytes]  # the answer and the form of its vectors -> JSON; on any thread


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How jobs run."""

    workers: int = 2  # jobs at once in this process; the pages of one are read several at once already
    limit_s: float = 3600.0  # LIMIT_JOB_S; that one attempt may take
    ttl_s: float = 86_400.0  # JOB_TTL_S; that a job is kept after it ended
    attempts: int = 3  # before a job whose process ends under it is given up


@dataclass(slots=True, eq=False)
class _Run:
    """A job on its worker."""

    claim: Claim
    job: Job  # as it was when it started: its version is our right to write
    work: asyncio.Task[bytes] | None = None
    stopped: Stop | None = None

    def stop(self, why: Stop) -> None:
        """Cancel what runs for it, at once."""
        self.stopped = self.stopped or why
        if self.work is not None:
            self.work.cancel()


class JobRunner:
    """Runs jobs of a store on a few workers, in the store's order. Belongs to the loop.

    Args:
        passwords: of encrypted files by job; they are in no store.
        now: Unix seconds.
    """

    def __init__(
        self,
        store: JobStore,
        telemetry: Telemetry,
        policy: JobPolicy,
        *,
        process: Process,
        write: Write,
        passwords: dict[str, str],
        now: Callable[[], float],
    ) -> None:
        self._store, self._process, self._write = store, process, write
        self._telemetry, self._policy, self._passwords, self._now = telemetry, policy, passwords, now
        self._free = asyncio.Semaphore(policy.workers)
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._patience = Patience()

    @property
    def running(self) -> int:
        """Jobs that run in this process."""
        return len(self._runs)

    def start(self) -> None:
        """Begin to take jobs."""
        services = [self._take_jobs(), self._listen()]
        if self._store.heartbeat_s is not None:
            services.append(self._keep_claims(self._store.heartbeat_s))
        self._services = [asyncio.create_task(service) for service in services]

    def stop(self, job_id: str) -> None:
        """End a job that was cancelled, if it runs here."""
        if run := self._runs.get(job_id):
            run.stop("cancelled")

    async def close(self) -> None:
        """Take no more; what runs goes back into the queue, for another replica or the next start."""
        self._patience.end()
        for service in self._services:
            service.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        for run in self._runs.values():
            run.stop("closing")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take_jobs(self) -> None:
        while True:
            await self._free.acquire()
            claim = await self._store.take()
            task = asyncio.create_task(self._serve(claim))
            self._tasks.add(task)
            task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a job's worker failed", exc_info=error)

    async def _listen(self) -> None:
        async for job_id in self._store.stops():
            self.stop(job_id)

    async def _keep_claims(self, every_s: float) -> None:
        while not await self._patience.ends_within(every_s):
            try:
                await self._store.renew_waiting()
                for run in list(self._runs.values()):
                    if not await self._store.renew(run.claim, run.job):
                        run.stop("lost")
            except Unavailable:
                continue  # logged by the store; claims outlive two missed beats

    async def _serve(self, claim: Claim) -> None:
        """One claim, from its taking to the job's end."""
        if claim.job_id in self._runs:  # ours, late with its renewal, and given to us again
            return
        try:
            job = await self._patience.ask(lambda: self._begin(claim))
            if job is not None:
                await self._run(claim, job)
        except Unavailable:  # the process ends before the store is back: whoever finds it next goes on
            log_event(_log, logging.WARNING, "job left unfinished, its store is away", job=claim.job_id)

    async def _run(self, claim: Claim, job: Job) -> None:
        run = self._runs[job.id] = _Run(claim, job)
        started_s = time.monotonic()
        notes = JobNotes(job, self._store, self._patience, self._telemetry)
        try:
            outcome = await self._outcome(run, notes)
            await notes.close()
            await self._end(run, notes, outcome)
        finally:
            notes.cancel()
            del self._runs[job.id]
            self._telemetry.document_job_duration_seconds.observe(time.monotonic() - started_s)

    async def _begin(self, claim: Claim) -> Job | None:
        """The job as it runs from now on; None where there is nothing to run."""
        while True:
            job = await self._store.find(claim.job_id)
            if job is None or job.ended:
                await self._store.settle(claim)
                return None
            unfit = self._unfit(job)
            change: Change = "fail" if unfit else "start"
            changed = move(job, change, self._now(), unfit)
            if changed is not None and await self._store.swap(job, changed) == "done":
                if unfit is None:
                    return changed
                self._count(changed)
                return None

    def _unfit(self, job: Job) -> Failure | None:
        """Why a job is not even tried."""
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

    async def _outcome(self, run: _Run, notes: JobNotes) -> bytes | Failure | None:
        """The result; or why there is none; or None where somebody else decides about the job."""
        job = run.job
        run.work = asyncio.create_task(self._work(job, notes))
        if run.stopped:
            run.work.cancel()
        try:
            done, _ = await asyncio.wait({run.work}, timeout=job.limit_s)
        finally:
            run.work.cancel()
            await asyncio.wait({run.work})
        if run.stopped:
            return self._when_stopped(run)
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

    def _when_stopped(self, run: _Run) -> Failure | None:
        if run.stopped != "closing" or (self._store.heartbeat_s is not None and not run.job.needs_password):
            return None
        return Failure.of(Unavailable("the service was stopped while it read this file; send it again"))

    async def _work(self, job: Job, notes: JobNotes) -> bytes:
        stored = await self._patience.ask(lambda: self._store.file(job.id))
        if stored is None:
            raise Unavailable("jobs: the file is no longer in the store; send it again")
        try:
            options = options_of(job.options["document"], self._passwords.get(job.id))
            urgency = Urgency(Priority.BULK, time.monotonic() + job.limit_s)
            answer = await self._process(stored, options, urgency, notes.tell)
            return await asyncio.to_thread(self._write, answer, job.options["encoding_format"])
        finally:
            stored.close()

    async def _end(self, run: _Run, notes: JobNotes, outcome: bytes | Failure | None) -> None:
        """Write how a job ended, unless it is no longer ours to say."""
        job = notes.job_now(run.job)
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
            swapped = await self._patience.ask(lambda: self._store.swap(run.job, changed, result))
        except FinanciaError as error:  # the result is larger than the store takes
            if result is None:
                raise
            await self._end(run, notes, Failure.of(error))
            return
        if swapped == "gone" and changed.ended:
            await self._patience.ask(lambda: self._store.restore(changed, result))
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
