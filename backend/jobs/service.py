"""The use case behind ``/v1/jobs``: take a file, tell how far it is, give what came of it, stop it, forget it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol

from backend.documents.page_codec import unpack_page
from backend.documents.pages import Document
from backend.documents.parsing.file_types import sniff
from backend.documents.parsing.stored_file import StoredFile
from backend.errors import NotFound
from backend.jobs.document_codec import document_of, option_fields, partial_result
from backend.jobs.records import Job, JobEvent, JobFile
from backend.jobs.runner import JobPolicy, JobRunner, Process, Write
from backend.jobs.states import move
from backend.jobs.store import JobStore
from backend.services.documents.records import DocumentOptions
from backend.telemetry import Telemetry

_MOST_PASSWORDS = 10_000  # of the newest jobs; each is a few bytes


class Picture(Protocol):
    """`DocumentReader.picture`."""

    def __call__(
        self, upload: StoredFile, number: int, *, turn: int, dpi: float, password: str | None
    ) -> Awaitable[bytes]: ...


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A file to be read in the background."""

    stored: StoredFile  # stays the caller's
    name: str
    options: DocumentOptions
    owner: str = ""  # the API key it came with, or nothing where none is asked for
    encoding_format: str = "float"  # of vectors, answers.FORMS
    format: str = "json"  # that its result has where nobody asks for another, of FORMATS
    limit_s: float | None = None  # less than LIMIT_JOB_S
    key: str | None = None  # its Idempotency-Key


class JobService:
    """Jobs for callers, each of whom sees their own. Belongs to the loop.

    A password is kept by this process alone and in no store: a job that needs one runs here, and fails clearly where
    this process ends before it.

    All calls raise Unavailable where the store is away, and NotFound for a job that is not there or somebody else's.

    Args:
        process: reads a file and understands it.
        write: makes JSON of what came out.
        picture: draws a page.
    """

    def __init__(
        self,
        store: JobStore,
        telemetry: Telemetry,
        policy: JobPolicy,
        *,
        process: Process,
        write: Write,
        picture: Picture,
        now: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self._store, self._telemetry, self._policy = store, telemetry, policy
        self._picture, self._now = picture, now
        self._passwords: dict[str, str] = {}
        self._runner = JobRunner(
            store, telemetry, policy, process=process, write=write, passwords=self._passwords, now=now
        )
        telemetry.document_jobs_live.labels("running").set_function(lambda: self._runner.running)
        telemetry.document_jobs_live.labels("queued").set_function(store.waiting)

    async def start(self) -> None:
        """Open the store and begin to work."""
        await self._store.start()
        self._runner.start()

    async def close(self) -> None:
        """Put what runs back for others, where there are any; let the store go."""
        await self._runner.close()
        await self._store.close()

    async def submit(self, request: JobRequest) -> tuple[Job, bool]:
        """The job of a request, and whether it was there already.

        Raises: WrongMediaType for a file that nobody reads; Overloaded; InvalidField for a foreign Idempotency-Key.
        """
        job, password = self._new_job(request), request.options.password
        if password is not None:
            self._keep_password(job.id, password)
        key = None if request.key is None else _digest(job.owner, request.key)
        try:
            kept = await self._store.add(job, request.stored, key, here=password is not None)
        except BaseException:
            self._passwords.pop(job.id, None)
            raise
        if kept.id != job.id and password is not None:
            self._keep_password(kept.id, self._passwords.pop(job.id))
        return kept, kept.id != job.id

    async def find(self, job_id: str, owner: str) -> Job:
        """The job as it is."""
        job = await self._store.find(job_id)
        if job is None or job.owner != _digest(owner):
            raise NotFound(
                f"id: there is no job '{job_id[:64]}'; jobs are forgotten {self._policy.ttl_s:g} s after their end "
                f"(JOB_TTL_S){self._known_where()}",
                param="id",
            )
        return job

    async def result(self, job: Job) -> bytes | None:
        """The document's JSON; of a job that failed or was cancelled, the pages it read; None where there is none."""
        if job.status == "succeeded":
            return await self._store.result(job)
        if not job.ended or not (pages := await self._store.pages(job.id)):
            return None
        return partial_result(job, pages)

    async def document(self, job: Job) -> Document:
        """The pages of an ended job, for other formats. Raises: NotFound where it has none."""
        pages = await self._store.pages(job.id) if job.ended else {}
        if not pages:
            raise NotFound(f"result: job '{job.id}' is {job.status} and has no pages", param="id")
        return document_of(job, pages, await self._store.result(job) if job.status == "succeeded" else None)

    async def cancel(self, job_id: str, owner: str) -> Job | None:
        """End a live job at once, wherever it runs; forget an ended one, and give None."""
        while True:
            job = await self.find(job_id, owner)
            changed = move(job, "cancel", self._now())
            if changed is None:
                await self._store.forget(job)
                self._passwords.pop(job.id, None)
                return None
            if await self._store.swap(job, changed) == "done":
                self._runner.stop(job.id)
                self._telemetry.document_jobs_total.labels("cancelled").inc()
                return changed

    def events(self, job: Job, after: str) -> AsyncGenerator[JobEvent, None]:
        """What happened to it after this event, then what happens, up to its end."""
        return self._store.events(job.id, after)

    async def picture(self, job: Job, number: int, dpi: float) -> bytes:
        """A page as a PNG, turned as it was read, or as a viewer shows it where it was not read (yet)."""
        stored = await self.file(job)
        try:
            packed = await self._store.page(job.id, number)
            page = None if packed is None else unpack_page(packed)
            turn = 0 if page is None else page.rotation
            return await self._picture(stored, number, turn=turn, dpi=dpi, password=self.password(job))
        finally:
            stored.close()

    async def file(self, job: Job) -> StoredFile:
        """The file it is about, to be closed by the caller."""
        stored = await self._store.file(job.id)
        if stored is None:
            raise NotFound(f"id: the file of job '{job.id}' is no longer kept", param="id")
        return stored

    def password(self, job: Job) -> str | None:
        """The file's password, where this process took it."""
        return self._passwords.get(job.id)

    def report(self) -> dict[str, Any]:
        """What was chosen, and what runs."""
        policy = self._policy
        chosen = {"workers": policy.workers, "limit_s": policy.limit_s, "ttl_s": policy.ttl_s}
        return {**self._store.report(), **chosen, "running": self._runner.running}

    def _new_job(self, request: JobRequest) -> Job:
        stored, now_s = request.stored, self._now()
        owner = _digest(request.owner)
        kind = sniff(stored.head)
        return Job(
            id=secrets.token_hex(16),
            owner=owner,
            file=JobFile(request.name, stored.size_bytes, stored.sha256, kind.value),
            options={
                "document": option_fields(request.options),
                "encoding_format": request.encoding_format,
                "format": request.format,
            },
            same=_digest(owner, stored.sha256, request.options.key(), request.encoding_format, request.format),
            limit_s=min(request.limit_s or self._policy.limit_s, self._policy.limit_s),
            ttl_s=self._policy.ttl_s,
            created_s=now_s,
            expires_s=now_s + self._policy.ttl_s,
            needs_password=request.options.password is not None,
        )

    def _keep_password(self, job_id: str, password: str) -> None:
        self._passwords[job_id] = password
        if len(self._passwords) > _MOST_PASSWORDS:
            del self._passwords[next(iter(self._passwords))]

    def _known_where(self) -> str:
        if self._store.heartbeat_s is not None:
            return ""
        return ", and without REDIS_URL only the process that took them knows them, until it ends"


def _digest(*parts: str) -> str:
    """Equal for equal parts, in every process. The parts cannot be found from it but by trying."""
    hashed = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        hashed.update(len(encoded).to_bytes(8, "little") + encoded)
    return hashed.hexdigest()
