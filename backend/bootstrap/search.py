"""Builds files, vector stores and search from the settings: the storage, the services, and their background tasks."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from backend.api.request_context import ApiLimits
from backend.api.routes.document_answers import document_json
from backend.api.routes.embeddings import BATCH_ENDPOINT, answer_in_batch
from backend.batches import BatchService
from backend.bootstrap.documents import file_limits
from backend.bootstrap.domains import Shared
from backend.callers.callers import LiveKeys
from backend.config import Settings
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType
from backend.documents.records import DocumentAnswer
from backend.documents.service import DocumentService
from backend.documents.understanding import TextServices
from backend.files.stored_file import StoredFile
from backend.jobs.records import Job
from backend.jobs.service import JobService
from backend.lanes.cache.store import entry
from backend.search.file_reading import FactFinder, FileTextReader
from backend.search.files import FileService
from backend.search.indexing import Indexer, IndexPolicy
from backend.search.lessons import lesson_of
from backend.search.limits import SearchLimits
from backend.search.postgres.storage import PostgresSearchStorage
from backend.search.retrieval import SearchService
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.sqlite.vector_matrix import DeviceVectors
from backend.search.storage import SearchStorage
from backend.search.stored_documents import StoredDocuments
from backend.search.upkeep import ExpiryTask, Reembedder, WarmUp
from backend.search.uploads import UploadService
from backend.search.vector_stores import VectorStoreService
from backend.supervision import Supervisor
from backend.telemetry import log_event
from backend.text.classification import ClassificationService
from backend.text.embeddings import EmbeddingService
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import RerankService

STORAGE_DIR = "search"  # in STATE_DIR
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SearchRuntime:
    """The running services of files, vector stores and search, with what they own."""

    storage: SearchStorage
    files: FileService
    uploads: UploadService
    stored_documents: StoredDocuments
    vector_stores: VectorStoreService
    search: SearchService
    indexer: Indexer
    reembedder: Reembedder
    expiry: ExpiryTask
    warm_up: WarmUp
    limits: SearchLimits

    def report(self) -> dict[str, Any]:
        """The storage, the limits and what runs, for GET /v1/system."""
        running = {"indexing": self.indexer.running}
        limits = {name: value for name, value in asdict(self.limits).items() if name != "owner_bytes"}
        return {"search": {**self.storage.report(), **running, "limits": limits}}

    def degraded(self) -> tuple[str, ...]:
        """What is broken in the storage, and why files are not indexed here; empty while all is well."""
        fault = self.storage.report().get("fault")
        return (*((fault,) if fault else ()), *self.indexer.degraded())

    async def start(self) -> None:
        """Open the storage, and begin to work.

        Raises: SetupError for a storage that cannot be opened; one whose data are broken is told by `degraded`, and its
        routes refuse.
        """
        await self.storage.start()
        log_event(_log, logging.INFO, "search storage opened", **self.storage.report())
        self.indexer.start()
        self.reembedder.start()
        self.expiry.start()
        self.warm_up.start()

    async def drain(self) -> None:
        """Give files that are being indexed back, and end the background tasks. May be called again."""
        await asyncio.gather(self.indexer.close(), self.reembedder.close(), self.expiry.close(), self.warm_up.close())

    async def close(self) -> None:
        """`drain`, and close the storage."""
        await self.drain()
        await self.search.close()
        await self.storage.close()


def build_search(
    shared: Shared,
    texts: TextServices,
    documents: DocumentService,
    classification: ClassificationService,
    *,
    reranking: RerankService,
    neutral: NeutralVectors,
) -> SearchRuntime:
    """Files, vector stores and search, not started yet. Raises: BadSettings for a SEARCH_URL that is none."""
    settings, telemetry = shared.settings, shared.context.telemetry
    limits, catalog = search_limits(settings), texts.catalog
    bytes_of = partial(_stored_bytes_of, shared.metering.keys)
    storage = search_storage(settings, shared.context.placements[0], shared.supervisor)
    indexer = _indexer(shared, texts, documents, classification, storage)
    reembedder = Reembedder(
        storage,
        texts.embeddings,
        catalog,
        telemetry=telemetry,
        supervisor=shared.supervisor,
        meter_of=shared.metering.meters.of,
        enter=entry(settings.cache_scope),
    )
    warm_up = WarmUp(storage, neutral, catalog, shared.supervisor)

    def on_added() -> None:
        indexer.wake()
        warm_up.wake()

    vector_stores = VectorStoreService(
        storage, catalog, limits, on_added=on_added, on_reembed=reembedder.wake, now=_now_s, bytes_of=bytes_of
    )
    files = FileService(storage, limits, render_page=documents.extractor.page_image, now=_now_s, bytes_of=bytes_of)
    stored_documents = StoredDocuments(storage, files, lesson_of=lesson_of)
    documents.examples.lessons_of = storage.lessons
    return SearchRuntime(
        storage=storage,
        files=files,
        uploads=UploadService(files, shared.readers.limits),
        stored_documents=stored_documents,
        vector_stores=vector_stores,
        search=SearchService(
            vector_stores,
            storage,
            catalog,
            texts.embeddings,
            neutral=neutral,
            reranking=reranking,
            telemetry=telemetry,
            now=_now_s,
        ),
        indexer=indexer,
        reembedder=reembedder,
        expiry=ExpiryTask(storage, telemetry, shared.supervisor, now=_now_s),
        warm_up=warm_up,
        limits=limits,
    )


async def keep_document(service: StoredDocuments, job: Job, content: StoredFile, answer: DocumentAnswer) -> None:
    """Store the document of a job as `POST /v1/documents` does."""
    assert job.keep_as is not None, "the runner asks for those alone"
    read = await asyncio.to_thread(document_json, answer)
    name, wish = job.file.name or "file", job.keep_as
    await service.add(job.owner, content, name, read, expires_after_s=wish.expires_after_s, file_id=wish.file_id)


def join_jobs(
    shared: Shared, search: SearchRuntime, jobs: JobService, embeddings: EmbeddingService, limits: ApiLimits
) -> BatchService:
    """Let jobs work on stored files: keep the documents that they read, and answer batches of requests for vectors."""
    settings = shared.settings
    jobs.keep_with(partial(keep_document, search.stored_documents))
    return BatchService(
        jobs,
        search.files,
        shared.readers.limits,
        output_bytes=settings.limit_job_bytes,
        answers={BATCH_ENDPOINT: partial(answer_in_batch, embeddings, limits)},
        runs_here_only=settings.search_url is None,
    )


def _indexer(
    shared: Shared,
    texts: TextServices,
    documents: DocumentService,
    classification: ClassificationService,
    storage: SearchStorage,
) -> Indexer:
    settings = shared.settings
    return Indexer(
        storage,
        FileTextReader(documents.process, shared.readers.limits),
        FactFinder(texts.entities, classification),
        texts.embeddings,
        texts.catalog,
        telemetry=shared.context.telemetry,
        supervisor=shared.supervisor,
        policy=IndexPolicy(workers=settings.index_workers, limit_s=settings.limit_job_s),
        limits=search_limits(settings),
        meter_of=shared.metering.meters.of,
        enter=entry(settings.cache_scope),
    )


def _stored_bytes_of(keys: LiveKeys, owner: str) -> int | None:
    return keys.quotas_of(owner).stored_bytes


def search_limits(settings: Settings) -> SearchLimits:
    return SearchLimits(
        stored_files=settings.limit_stored_files,
        stored_bytes=settings.limit_stored_bytes,
        stored_chunks=settings.limit_stored_chunks,
        vector_stores=settings.limit_vector_stores,
        waiting_files=settings.limit_waiting_files,
    )


def search_storage(
    settings: Settings, placement: Placement | None = None, supervisor: Supervisor | None = None
) -> SearchStorage:
    """A PostgreSQL server where SEARCH_URL is set, shared by all replicas; else a folder of STATE_DIR.

    Args:
        placement: whose device scans the vectors of large stores; None: the processor scans all.
        supervisor: of the service; None for a command.
    """
    if settings.search_url is not None:
        limits = file_limits(settings)
        limits = replace(limits, file_bytes=max(limits.file_bytes, settings.limit_job_bytes))  # a batch's answers
        return PostgresSearchStorage(settings.search_url, limits, supervisor=supervisor)
    device = None if placement is None else device_vectors(placement)
    options = SqliteOptions(settings.state_dir / STORAGE_DIR, settings.search_memory_bytes, device=device)
    return SqliteStorage(options, supervisor=supervisor)


def device_vectors(placement: Placement) -> DeviceVectors | None:
    """The part of an accelerator that is kept for vectors (`placement.with_vectors`); None on a CPU."""
    if placement.type is DeviceType.CPU or not placement.vector_bytes:
        return None
    from backend.models.device_matrix import DeviceMatrix, bytes_for  # a process on a CPU need not import torch

    return DeviceVectors(partial(DeviceMatrix, device=placement.device), bytes_for, placement.vector_bytes)


def _now_s() -> float:
    return datetime.now(UTC).timestamp()
