"""The use case behind ``/v1/jobs``: submit a file, watch its progress, get its result, cancel or delete it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from backend.callers.callers import NO_METER, Meter, owner_digest
from backend.callers.event_watch import EventWatch, Watchers
from backend.documents.records import DocumentAnswer, DocumentOptions, ProcessDocument, RenderPage
from backend.errors import NotFound, QuotaExceeded, Unavailable
from backend.files.file_types import FileType, sniff
from backend.files.page_codec import unpack_page
from backend.files.pages import Document
from backend.files.stored_file import StoredFile
from backend.jobs.document_codec import option_fields, partial_document, unpack_answer
from backend.jobs.records import DOCUMENT, Job, JobEvent, JobFile, JobQuota, KeepAs, move
from backend.jobs.runner import JobPolicy, JobRunner, Keep, Work
from backend.jobs.store import JobStore
from backend.lanes.cache.store import Enter, share_with_all
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from backend.tracing.spans import traceparent

_MAX_PASSWORDS = 10_000  # of the newest jobs; each is a few bytes


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A file to be processed in the background."""

    stored: StoredFile  # stays the caller's
    name: str
    options: DocumentOptions
    owner: str = ""  # `Caller.owner` of who sent it
    encoding_format: str = "float"  # of vectors: "float" or "base64"
    format: str = "json"  # of its result where a request names none; one of FORMATS
    limit_s: float | None = None  # less than LIMIT_JOB_S
    key: str | None = None  # its Idempotency-Key
    quota: JobQuota | None = None  # of its owner
    answer: Mapping[str, Any] = field(default_factory=dict)  # how another service's dialect answers with it, as JSON
    stores: bool = False  # its document is kept
    expires_after_s: float | None = None  # of the stored document


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """Work of another kind than a document's. Each one is a job of its own: nothing is equal to it."""

    kind: str  # one of `JobService.add_work`
    id: str  # of the job
    content: StoredFile  # stays the caller's
    name: str
    owner: str
    quota: JobQuota | None = None
    runs_here_only: bool = False  # while this process lives: no other one has what the work needs


@dataclass(frozen=True, slots=True)
class JobResult:
    """What an ended job produced."""

    document: Document
    answer: DocumentAnswer | None = None  # None where the job failed or was cancelled: the pages are all there is


class JobService:
    """Jobs of all callers; each caller sees only their own. Used on the event loop only.

    Passwords stay in this process and reach no store: a job that needs one runs here, and fails with a clear error if
    this process ends first.

    All calls raise Unavailable where the store is away, and NotFound for a job that is absent or somebody else's.

    Args:
        process: extracts a file's pages and analyses their text.
        render_page: draws a page as a PNG.
        meter_of: the meter of a job's owner, which is charged for pages and tokens as they are read.
        models: which models serve now; an equal request is answered with an old job only if these are the same.
        check_kind: raises for files that no job could work on here.
        enter: entered while a job of an owner runs; CACHE_SCOPE.
    """

    def __init__(
        self,
        store: JobStore,
        telemetry: Telemetry,
        policy: JobPolicy,
        *,
        process: ProcessDocument,
        render_page: RenderPage,
        meter_of: Callable[[str], Meter] = lambda _owner: NO_METER,
        models: Callable[[], str] = str,
        check_kind: Callable[[FileType], None] = lambda _kind: None,
        enter: Enter = share_with_all,
        supervisor: Supervisor | None = None,
        now: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self._store, self._telemetry, self._policy = store, telemetry, policy
        self._render_page, self._now = render_page, now
        self._passwords: dict[str, str] = {}
        self._works: dict[str, Work] = {}
        self._watchers = Watchers()
        self._meter_of, self._models, self._check_kind = meter_of, models, check_kind
        self._runner = JobRunner(
            store,
            telemetry,
            policy,
            process=process,
            works=self._works,
            passwords=self._passwords,
            meter_of=meter_of,
            now=now,
            supervisor=supervisor or Supervisor(telemetry),
            enter=enter,
        )
        telemetry.document_jobs_live.labels("running").set_function(lambda: self._runner.running)
        telemetry.document_jobs_live.labels("queued").set_function(store.waiting)

    def keep_with(self, keep: Keep) -> None:
        """What stores the documents of jobs that ask for it; to be set before `start`."""
        self._runner.keep = keep

    def add_work(self, kind: str, work: Work) -> None:
        """Have jobs of this kind done by ``work``. Before `start`."""
        self._works[kind] = work

    async def start(self) -> None:
        await self._store.start()
        self._runner.start()

    async def drain(self) -> None:
        """Requeue the jobs of this process where another one can take them, and fail the others with a retryable error.

        Jobs are still found, and still accepted where another process can run them. May be called again.
        """
        await self._runner.close()

    async def close(self) -> None:
        """`drain`, and close the store."""
        await self.drain()
        await self._store.close()

    def degraded(self) -> tuple[str, ...]:
        """Why this process takes no more jobs; empty while it does."""
        refusal = self._runner.refusal
        return (f"background jobs are left to other processes: {refusal}",) if refusal else ()

    async def submit(self, request: JobRequest) -> tuple[Job, bool]:
        """The job of a request, and whether it existed already.

        Raises: WrongMediaType for an unknown type of file; Overloaded; QuotaExceeded; InvalidField for a foreign
            Idempotency-Key; Unavailable for a job that no other process could run once this one stops.
        """
        job, password = self._new_job(request), request.options.password
        runs_here_only = password is not None or self._store.heartbeat_s is None
        if runs_here_only and self._runner.refusal:
            raise self._refused(password)
        if password is not None:
            self._keep_password(job.id, password)
        key = None if request.key is None else owner_digest(job.owner, request.key)
        try:
            stored_job = await self._store.add(
                job, request.stored, key, pinned=password is not None, quota=request.quota
            )
        except BaseException as error:
            self._passwords.pop(job.id, None)
            if isinstance(error, QuotaExceeded):
                self._meter_of(job.owner).refuse(error)
            raise
        if runs_here_only and self._runner.refusal:  # it came while this process began to stop
            await self._runner.give_back()
        if stored_job.id != job.id and password is not None:
            self._keep_password(stored_job.id, self._passwords.pop(job.id))
        return stored_job, stored_job.id != job.id

    async def submit_work(self, request: WorkRequest) -> Job:
        """The job of a request for other work than a document's. Raises: as `submit`."""
        here_only = request.runs_here_only or self._store.heartbeat_s is None
        if here_only and self._runner.refusal:
            raise self._refused(None)
        now_s, content = self._now(), request.content
        job = Job(
            id=request.id,
            owner=request.owner,
            file=JobFile(request.name, content.size_bytes, content.sha256, request.kind),
            # A release without such work reads the options of a document, and leaves the job to those that know it.
            options={"kind": request.kind, "document": {}},
            same=owner_digest(request.owner, request.id),
            limit_s=self._policy.limit_s,
            ttl_s=self._policy.ttl_s,
            created_s=now_s,
            trace=traceparent(),
        )
        try:
            await self._store.add(job, content, None, pinned=request.runs_here_only, quota=request.quota)
        except QuotaExceeded as error:
            self._meter_of(job.owner).refuse(error)
            raise
        if here_only and self._runner.refusal:  # it came while this process began to stop
            await self._runner.give_back()
        return job

    async def find(self, job_id: str, owner: str, kind: str = DOCUMENT) -> Job:
        job = await self._store.find(job_id)
        if job is None or job.owner != owner or job.kind != kind:
            raise NotFound(
                f"id: there is no job '{job_id[:64]}'; jobs are forgotten {self._policy.ttl_s:g} s after their end "
                f"(JOB_TTL_S){self._store_hint()}",
                param="id",
            )
        return job

    async def storing(self, document_id: str, owner: str) -> Job | None:
        """The job that makes this stored document, or was to make it; None where there is none."""
        job = await self._store.find(document_id.removeprefix(_document_id("")))
        if job is None or job.owner != owner or job.keep_as is None or job.keep_as.file_id != document_id:
            return None
        return job

    async def result(self, job: Job) -> JobResult | None:
        """What an ended job produced; None for a live one and for one without any page. Unpacked on a thread."""
        if job.status == "succeeded":
            packed = await self._store.result(job)
            options = job.options["document"]
            answer = None if packed is None else await asyncio.to_thread(unpack_answer, packed, options)
            return None if answer is None else JobResult(answer.document, answer)
        if not job.ended or not (pages := await self._store.pages(job.id)):
            return None
        return JobResult(await asyncio.to_thread(partial_document, job, pages))

    async def document(self, job: Job) -> Document:
        """The pages of an ended job. Raises: NotFound where it has none."""
        result = await self.result(job)
        if result is None or not result.document.pages:
            raise NotFound(f"result: job '{job.id}' is {job.status} and has no pages", param="id")
        return result.document

    async def cancel(self, job_id: str, owner: str) -> Job | None:
        """Cancel a live job at once, wherever it runs, and return it; delete an ended one, and return None."""
        cancelled = await self.cancel_live(job_id, owner)
        if cancelled is None:
            await self._store.forget(await self.find(job_id, owner))
            self._passwords.pop(job_id, None)
        return cancelled

    async def cancel_live(self, job_id: str, owner: str, kind: str = DOCUMENT) -> Job | None:
        """Cancel a live job at once, wherever it runs, and return it; None where it has ended."""
        while True:
            job = await self.find(job_id, owner, kind)
            changed = move(job, "cancel", self._now())
            if changed is None:
                return None
            if await self._store.swap(job, changed) == "done":
                self._runner.stop(job.id)
                self._telemetry.document_jobs_total.labels("cancelled").inc()
                return changed

    async def position(self, job: Job) -> int | None:
        """The place of a waiting job in the queue, from 1; None for one that no longer waits."""
        return None if job.status != "queued" else await self._store.position(job.id)

    async def forget_ended(self, owner: str, dialect: str, *, older_than_s: float) -> None:
        """Delete the jobs of an owner that another service's dialect sent and that ended so long ago."""
        for job_id in await self._store.ended(owner):
            job = await self._store.find(job_id)
            if job is None or job.ended_s is None or job.options.get("answer", {}).get("dialect") != dialect:
                continue
            if job.ended_s <= self._now() - older_than_s:
                await self._store.forget(job)
                self._passwords.pop(job_id, None)

    def events(self, job: Job, after: str) -> EventWatch[JobEvent]:
        """What happened to the job after this event id, then what happens, up to its end; to be closed by the caller.

        Args:
            after: an id of these events, or one beyond them, after which nothing is told; "" for all.

        Raises: Overloaded at once, where too many clients wait for events.
        """
        return self._watchers.watch(self._store.events(job.id, after), job.owner)

    async def page_image(self, job: Job, number: int, dpi: float) -> bytes:
        """A page as a PNG, rotated upright as OCR found it; one that was not extracted (yet) as a viewer shows it."""
        stored = await self.file(job)
        try:
            packed = await self._store.page(job.id, number)
            page = None if packed is None else unpack_page(packed)
            rotation = 0 if page is None else page.rotation
            return await self._render_page(stored, number, rotation=rotation, dpi=dpi, password=self.password(job))
        finally:
            stored.close()

    async def file(self, job: Job) -> StoredFile:
        """The file of the job, to be closed by the caller."""
        stored = await self._store.file(job.id)
        if stored is None:
            raise NotFound(f"id: the file of job '{job.id}' is no longer kept", param="id")
        return stored

    def password(self, job: Job) -> str | None:
        """The password of the file, where this process accepted the job."""
        return self._passwords.get(job.id)

    def report(self) -> dict[str, Any]:
        """The store, the limits and the number of running jobs, for GET /v1/system."""
        policy = self._policy
        limits = {"workers": policy.workers, "limit_s": policy.limit_s, "ttl_s": policy.ttl_s}
        return {**self._store.report(), **limits, "running": self._runner.running}

    def _new_job(self, request: JobRequest) -> Job:
        stored, now_s, owner = request.stored, self._now(), request.owner
        job_id = secrets.token_hex(16)
        keep_as = KeepAs(_document_id(job_id), request.expires_after_s) if request.stores else None
        kind = sniff(stored.head)
        self._check_kind(kind)
        return Job(
            id=job_id,
            owner=owner,
            file=JobFile(request.name, stored.size_bytes, stored.sha256, kind.value),
            options={
                "document": option_fields(request.options),
                "encoding_format": request.encoding_format,
                "format": request.format,
                "models": self._models(),
                "answer": dict(request.answer),
                "store": None if keep_as is None else asdict(keep_as),
            },
            same=owner_digest(owner, *_sameness(request, job_id)),
            limit_s=min(request.limit_s or self._policy.limit_s, self._policy.limit_s),
            ttl_s=self._policy.ttl_s,
            created_s=now_s,
            needs_password=request.options.password is not None,
            trace=traceparent(),
        )

    async def live(self, owner: str) -> int:
        """How many of its quota of jobs an owner uses now: those that are queued or running."""
        return await self._store.live(owner)

    def _refused(self, password: str | None) -> Unavailable:
        why = "a password stays in its process" if password else "without REDIS_URL jobs stay in their process"
        return Unavailable(
            f"jobs: {self._runner.refusal}, and no other process could run this one ({why}). Send it to another "
            "replica, or again when this one has been replaced"
        )

    def _keep_password(self, job_id: str, password: str) -> None:
        self._passwords[job_id] = password
        if len(self._passwords) > _MAX_PASSWORDS:
            del self._passwords[next(iter(self._passwords))]

    def _store_hint(self) -> str:
        if self._store.heartbeat_s is not None:
            return ""
        return ", and without REDIS_URL only the process that took them knows them, until it ends"


def _document_id(job_id: str) -> str:
    """The id of the document that a job stores: known before there is one, so that it can be watched."""
    return f"file-{job_id}"


def _sameness(request: JobRequest, job_id: str) -> list[str]:
    """What two requests of an owner have in common where one job does for both."""
    same = [request.stored.sha256, request.options.key(), request.encoding_format, request.format]
    if request.stores:  # each stores a document of its own, but for those with the same key
        same += ["store", str(request.expires_after_s), request.key or job_id]
    return [*same, orjson.dumps(request.answer).decode()] if request.answer else same
