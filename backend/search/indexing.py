"""Indexes the files of vector stores in the background: reads them, cuts them into chunks, embeds them, stores all."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from backend.abandoned import end_tasks
from backend.callers.callers import NO_METER, Meter, sharer
from backend.documents.records import DocumentEvent
from backend.errors import (
    DeadlineExceeded,
    FinanciaError,
    InferenceFailed,
    PasswordRequired,
    StorageCorrupt,
    TooLarge,
    Unavailable,
    UnreadableFile,
)
from backend.lanes.cache.store import Enter, share_with_all
from backend.lanes.inference import Urgency, count_started
from backend.lanes.leased_run import Done, Failed, LeasedRun
from backend.lanes.work_queue import Priority
from backend.retry import Backoff, StoreRetry
from backend.search.document_chunks import PASSAGE, chunk_tokens, cut_chunks, identity_of, page_sizes
from backend.search.file_reading import ChunkVectors, FactFinder, FileText, FileTextReader, kept_text
from backend.search.limits import SearchLimits
from backend.search.records import IndexClaim, IndexedFile, IndexFailure, NewChunk, Progress
from backend.search.storage import SearchStorage
from backend.search.waker import Waker
from backend.serving.catalog import Catalog, LoadedModel
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event
from backend.text.embeddings import EmbeddingService
from backend.tracing.spans import Active

Outcome = Literal["completed", "failed", "lost", "released"]
_log = logging.getLogger(__name__)
_EMBEDDED_AT_ONCE = 512  # chunks between two reports of progress
_SMALL_BYTES = 2**16  # a file up to this size is worked on beside others: some twenty pages of text
_SMALL_AT_ONCE = 16  # of them to a worker: their chunks share batches, and reading one overlaps storing another


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """How many files are indexed at once, for how long, and how often they are tried."""

    workers: int = 1  # INDEX_WORKERS; each has a large file, and some small ones beside it
    limit_s: float = 3600.0  # LIMIT_JOB_S; of one attempt
    lease_s: float = 60.0  # a claim that nobody renews for so long is another worker's
    attempts: int = 3  # before a file whose worker died each time is given up
    poll_s: float = 3.0  # between looks for files that were added by other processes
    progress_s: float = 1.0  # between two writes of progress at least


@dataclass(slots=True, eq=False, kw_only=True)
class _Run(LeasedRun[IndexedFile]):
    """One attempt at a file."""

    claim: IndexClaim
    progress: Progress = field(default_factory=lambda: Progress("reading"))
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    coming_chunks: int = 0  # that are not stored yet
    is_paid: bool = False  # its tokens were charged

    def report(self, progress: Progress) -> None:
        self.progress = progress
        self.changed.set()


class Indexer:
    """Workers that take files from the storage: a large one at a time each, and small ones beside it.

    What is in memory is bounded by the workers, as is what one process takes from others. Used on the event loop only.
    A claim is renewed while its file is worked on; where it is lost, because the file was removed, its batch cancelled
    or another process has it, the work ends at once. `close` gives files back.

    Args:
        meter_of: the meter of a file's owner, which is charged for pages and tokens as they are read.
        enter: entered while a file of an owner is indexed; CACHE_SCOPE.
    """

    def __init__(
        self,
        storage: SearchStorage,
        reader: FileTextReader,
        facts: FactFinder,
        embeddings: EmbeddingService,
        catalog: Catalog,
        *,
        telemetry: Telemetry,
        supervisor: Supervisor,
        policy: IndexPolicy,
        limits: SearchLimits,
        meter_of: Callable[[str], Meter] = lambda _owner: NO_METER,
        enter: Enter = share_with_all,
        retry: StoreRetry | None = None,
    ) -> None:
        self._storage, self._reader, self._facts = storage, reader, facts
        self._embeddings, self._catalog = embeddings, catalog
        self._telemetry, self._supervisor, self._enter = telemetry, supervisor, enter
        self._policy, self._limits, self._meter_of = policy, limits, meter_of
        self._runs: set[_Run] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._waker = Waker()
        self._retry = retry or StoreRetry(Backoff(0.25, 10.0), tries=11)  # some minute; then the claim is given up
        self._refusal = ""
        self._storage_fault = ""  # of claiming
        self._writing_fault = ""  # of what was indexed: on a full disk claims go on

    def start(self) -> None:
        keep = self._supervisor.keep
        self._workers = [keep("index_files", self._work) for _ in range(self._policy.workers)]

    def wake(self) -> None:
        """Look for files at once."""
        self._waker.wake()

    @property
    def running(self) -> int:
        return len(self._runs)

    def degraded(self) -> tuple[str, ...]:
        """Why files are not indexed here; empty while they are."""
        reason = self._refusal or self._storage_fault or self._writing_fault
        return (f"files of vector stores are not indexed by this process: {reason}",) if reason else ()

    async def close(self) -> None:
        """Take no more files, and give those that are being worked on back. May be called again."""
        self._refusal = self._refusal or "the service is shutting down"
        self._retry.stop()
        self._waker.close()
        for run in tuple(self._runs):
            run.stop("closing")
        await asyncio.gather(*self._workers, return_exceptions=True)

    async def _work(self) -> None:
        """Take files one after the other; the small ones are worked on while the next ones are taken."""
        room = asyncio.Semaphore(_SMALL_AT_ONCE)
        async with asyncio.TaskGroup() as small:
            while not self._refusal:
                async with room:  # nothing is claimed that would have to wait here
                    claim = await self._next()
                if claim is not None and claim.bytes <= _SMALL_BYTES:
                    await room.acquire()
                    small.create_task(self._handle(claim)).add_done_callback(lambda _: room.release())
                elif claim is not None:
                    await self._handle(claim)
                elif not self._refusal:
                    await self._waker.wait_about(self._policy.poll_s)

    async def _next(self) -> IndexClaim | None:
        """The next file; None where none waits, or the storage is away."""
        try:
            claim = await self._storage.claim(identity_of(self._catalog.embedding()), self._policy.lease_s)
        except (Unavailable, StorageCorrupt) as error:
            if not self._storage_fault:
                log_event(_log, logging.WARNING, "no files to index, their storage fails", why=type(error).__name__)
            self._storage_fault = str(error)
            return None
        self._storage_fault = ""
        if claim is None and not self._runs:  # nobody waits for what could not be written
            self._writing_fault = ""
        return claim

    async def _handle(self, claim: IndexClaim) -> None:
        """Work on a claim until it has ended."""
        run, started_s = _Run(claim=claim), time.monotonic()
        self._runs.add(run)
        if self._refusal:  # it was told to stop while the claim came
            run.stop("closing")
        renewing = asyncio.create_task(self._renew(run))
        try:
            outcome = await self._outcome(run)
        finally:
            await end_tasks(renewing)
            self._runs.discard(run)
        self._telemetry.index_duration_seconds.observe(time.monotonic() - started_s)
        self._telemetry.indexed_files_total.labels(outcome).inc()

    async def _outcome(self, run: _Run) -> Outcome:
        """What became of an attempt; its end is written."""
        if run.claim.attempts > self._policy.attempts:
            return await self._fail(run.claim, _given_up(run.claim))
        with self._enter(run.claim.owner), count_started(sharer(run.claim.owner)) as started:
            ended = await run.ended(self._traced(run), self._policy.limit_s)
        is_refused = isinstance(ended, Failed) and isinstance(ended.error, Unavailable)
        if not run.is_paid and ended != "closing" and not is_refused:
            # Its owner took it away, or it failed or took too long; what is done again elsewhere is paid for there.
            self._meter_of(run.claim.owner).charge("tokens", started.tokens)
        match ended:
            case Done(indexed):
                return await self._finish(run, indexed)
            case Failed(error):
                return await self._settle_error(run.claim, error)
            case "late":
                return await self._fail(run.claim, _failure(_overdue(self._policy.limit_s)))
            case "closing":
                return await self._release(run.claim)
        return "lost"

    async def _finish(self, run: _Run, indexed: IndexedFile) -> Outcome:
        try:
            stored = await self._retry.call(lambda: self._storage.finish(run.claim, indexed))
        except Unavailable as error:
            self._writing_fault = str(error)
            return await self._release(run.claim)
        except StorageCorrupt as error:
            return await self._fail_corrupt(run.claim, error)
        finally:
            run.coming_chunks = 0
        self._writing_fault = ""
        if not stored:
            return "lost"
        self._telemetry.indexed_chunks_total.inc(len(indexed.chunks))
        log_event(_log, logging.INFO, "file indexed", file=run.claim.file.file_id, chunks=len(indexed.chunks))
        return "completed"

    async def _settle_error(self, claim: IndexClaim, error: BaseException) -> Outcome:
        if isinstance(error, Unavailable) and error.kind == "for_good":
            self._refusal = self._refusal or str(error)
            log_event(_log, logging.CRITICAL, "no more files are indexed here", why=self._refusal)
            return await self._release(claim)
        if isinstance(error, StorageCorrupt):
            return await self._fail_corrupt(claim, error)
        if isinstance(error, Unavailable):  # of the storage: of models it was tried until the deadline
            self._writing_fault = str(error)
            await self._release(claim)
            await self._waker.wait_about(self._policy.poll_s)
            return "released"
        if isinstance(error, FinanciaError):
            return await self._fail(claim, _failure(error))
        _log.error("indexing a file failed", exc_info=error, extra={"fields": {"file": claim.file.file_id}})
        sentence = f"the service failed on this file; its log tells why under the file {claim.file.file_id}"
        return await self._fail(claim, IndexFailure(FinanciaError.code, sentence))

    async def _fail_corrupt(self, claim: IndexClaim, error: StorageCorrupt) -> Outcome:
        """Given back, a file whose bytes are broken would be the next to be claimed for ever, before all others."""
        log_event(_log, logging.ERROR, "a file is broken in its storage", file=claim.file.file_id, why=str(error))
        sentence = "what the service keeps of this file cannot be read any more; upload it again, and tell the operator"
        return await self._fail(claim, IndexFailure(error.code, sentence))

    async def _fail(self, claim: IndexClaim, failure: IndexFailure) -> Outcome:
        log_event(_log, logging.INFO, "file not indexed", file=claim.file.file_id, code=failure.code)
        with suppress(Unavailable, StorageCorrupt):  # its claim runs out, and it is tried again
            return "failed" if await self._retry.call(lambda: self._storage.fail(claim, failure)) else "lost"
        return "released"

    async def _release(self, claim: IndexClaim) -> Outcome:
        with suppress(Unavailable, StorageCorrupt):  # its claim runs out
            await self._storage.release(claim)
        return "released"

    async def _renew(self, run: _Run) -> None:
        """Write progress, and keep the claim; stop the run where it is lost. A storage that is away is asked again.

        A file that is done sooner than progress is written costs no write for it.
        """
        policy = self._policy
        while True:
            await asyncio.sleep(policy.progress_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(policy.lease_s / 3):
                    await run.changed.wait()
            run.changed.clear()
            with suppress(Unavailable, StorageCorrupt):
                if not await self._storage.renew(run.claim, run.progress, policy.lease_s):
                    run.stop("lost")
                    return

    async def _traced(self, run: _Run) -> IndexedFile:
        """`_index` in a trace of its own: the request that stored the file may be days old."""
        tracer, claim = self._telemetry.tracer, run.claim
        if not tracer.is_on:
            return await self._index(run)
        span = tracer.start("index file", "consumer")
        span.attributes |= {"financia.file.id": claim.file.file_id, "financia.index.attempt": claim.attempts}
        with Active(span):
            return await self._index(run)

    async def _index(self, run: _Run) -> IndexedFile:
        """Read, cut and embed a file. Raises: what is wrong with the file, or with the service."""
        claim, model = run.claim, self._catalog.embedding()
        meter, urgency = self._meter_of(claim.owner), Urgency(Priority.BULK, time.monotonic() + self._policy.limit_s)
        stored = await self._retry.call(lambda: self._storage.content(claim.file.file_id))
        if stored is None:
            raise UnreadableFile("file: it is no longer kept; upload it again")
        try:
            file = await self._reader.read(stored, claim.file.name, urgency, _page_reporter(run, meter))
        except PasswordRequired:
            content = await self._retry.call(lambda: self._storage.document_content(claim.file.file_id))
            if content is None:
                raise
            file = await asyncio.to_thread(kept_text, content)
        finally:
            stored.close()
        chunks = await self._cut(file, claim, model)
        await self._check_room(run, len(chunks))
        embedding = asyncio.create_task(self._embed(run, chunks, model, urgency))
        try:
            facts = await self._facts.find(file, embedding, urgency)  # beside it
            embedded = await embedding
        finally:
            await end_tasks(embedding)
        meter.charge("tokens", sum(embedded.tokens) + facts.tokens)
        run.is_paid = True
        return IndexedFile(
            chunks=chunks,
            vectors=embedded.vectors,
            encoder=identity_of(model),
            found=facts.found,
            pages=page_sizes(file.document) if file.document else (),
            language=facts.language,
        )

    async def _cut(self, file: FileText, claim: IndexClaim, model: LoadedModel) -> list[NewChunk]:
        if not file.text.strip():
            return []
        prompt_tokens = len(
            model.tokenizer.encodings([self._embeddings.prompt(model, PASSAGE)], add_special_tokens=False)[0]
        )
        sizes = chunk_tokens(claim.file.chunking, model.spec.max_tokens, prompt_tokens)
        _, token_starts = await self._embeddings.token_starts(file.text, model)
        return await asyncio.to_thread(cut_chunks, file.text, token_starts, sizes, file.rows, file.document)

    async def _check_room(self, run: _Run, chunks: int) -> None:
        """Raises: TooLarge where the owner would have too many chunks, with those of files that end soon."""
        owner, most = run.claim.owner, self._limits.stored_chunks
        usage = await self._retry.call(lambda: self._storage.usage(owner))
        total = usage.chunks + chunks + sum(one.coming_chunks for one in self._runs if one.claim.owner == owner)
        if chunks and total > most:
            advice = "Delete files from vector stores, or split this one."
            raise TooLarge("chunks in all vector stores", total, most, "LIMIT_STORED_CHUNKS", advice=advice)
        run.coming_chunks = chunks

    async def _embed(self, run: _Run, chunks: list[NewChunk], model: LoadedModel, urgency: Urgency) -> ChunkVectors:
        parts = [np.empty((0, model.spec.width), np.float32)]
        tokens: list[int] = []
        for first in range(0, len(chunks), _EMBEDDED_AT_ONCE):
            run.report(Progress("embedding", first, len(chunks)))
            texts = [chunk.text for chunk in chunks[first : first + _EMBEDDED_AT_ONCE]]
            embedded = await self._embeddings.embed_in_chunks(model, texts, PASSAGE, urgency)
            parts.append(embedded.vectors)
            tokens += embedded.tokens
        run.report(Progress("embedding", len(chunks), len(chunks)))
        return ChunkVectors(np.concatenate(parts), tuple(tokens), model)


def _page_reporter(run: _Run, meter: Meter) -> Callable[[DocumentEvent], None]:
    """Reports the pages as they are read, and charges those that an earlier attempt has not read."""
    before = run.claim.file.progress
    were_all_read = before.stage == "embedding"

    def on_event(event: DocumentEvent) -> None:
        run.report(Progress("reading", event.pages_done, event.pages_total))
        if (
            event.page is not None
            and not were_all_read
            and (before.stage != "reading" or event.pages_done > before.done)
        ):
            meter.charge("pages", 1)

    return on_event


def _failure(error: FinanciaError) -> IndexFailure:
    """What the caller is told."""
    if isinstance(error, PasswordRequired):
        return IndexFailure(
            error.code,
            "file: it is encrypted, and no password is kept; send it with its password to POST /v1/documents with "
            "store=true and add the document that this makes, or remove its password",
        )
    return IndexFailure(error.code, str(error))


def _given_up(claim: IndexClaim) -> IndexFailure:
    error = InferenceFailed(
        f"the process that worked on it ended {claim.attempts - 1} times before it was done; it is not tried again, as "
        "the file itself may be the cause. Split the file, and tell the operator"
    )
    return _failure(error)


def _overdue(limit_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        limit_s, f"not indexed within {limit_s:g} s (LIMIT_JOB_S); split the file, or add it when less is to be done"
    )
