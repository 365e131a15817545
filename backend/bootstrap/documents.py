"""What the settings ask of reading files: limits, processes that parse, engines that recognise, where jobs are kept."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from backend import __version__
from backend.api.document_answers import document_bytes
from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.cache.blobs import BlobCache
from backend.cache.store import VectorCache
from backend.config import Settings
from backend.device.records import DeviceType
from backend.documents.parsing.file_readers import FileReaders
from backend.documents.parsing.limits import FileLimits
from backend.engines.ocr.tasks import OCR_TASKS
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.redis_options import RedisJobOptions
from backend.jobs.redis_store import RedisJobStore
from backend.jobs.runner import JobPolicy
from backend.jobs.service import JobService
from backend.jobs.store import JobStore
from backend.services.documents.extraction import DocumentReader
from backend.services.documents.ocr import PageReader
from backend.services.documents.ocr_engines import load_ocr_engines
from backend.services.documents.service import DocumentService
from backend.services.documents.understanding import TextServices
from backend.services.loading import Ground
from backend.telemetry import OOM_ACTIONS, READER_ENDS, READER_STATES, Telemetry, log_event

# On two cores texts took 39 ms at the median beside three clients' scans, and 1,800 ms on lanes shared with them
# (docs/documents.md).
NICENESS = 10
_log = logging.getLogger(__name__)
_AHEAD = 2  # pages of a file that are drawn while those on the lanes are read


def file_limits(settings: Settings) -> FileLimits:
    """The guards, as files/limits.py names them."""
    return FileLimits(
        file_bytes=settings.limit_file_bytes,
        pages=settings.limit_pages,
        page_pixels=settings.limit_page_pixels,
        page_s=settings.limit_page_s,
        render_pixels=settings.limit_render_pixels,
        worker_bytes=settings.limit_reader_bytes,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What reads files, running."""

    documents: DocumentService
    jobs: JobService
    limits: FileLimits
    lanes: Batcher  # of what recognises on the CPU

    def report(self) -> dict[str, Any]:
        """What was chosen, and why."""
        ocr = {**self.documents.reader.report(), "lanes": asdict(self.lanes.status())}
        return {"ocr": ocr, "jobs": self.jobs.report()}

    async def start(self) -> None:
        """Make ready for the first file, and begin to work on jobs."""
        await self.documents.reader.warm_up(self.lanes.status().lanes)
        await self.jobs.start()

    async def close(self, drain_s: float) -> None:
        """Put jobs back or end them, then finish what was accepted, then let the processes go."""
        await self.jobs.close()
        await self.lanes.drain(drain_s)
        self.documents.reader.close()


def start_reading(
    settings: Settings, ground: Ground, texts: TextServices, model_lanes: Batcher, cache: VectorCache
) -> Reading:
    """Everything that reads files, still to be started.

    Raises: SetupError for an engine asked for that is not there.
    """
    home, telemetry, limits = ground.placements[0], ground.telemetry, file_limits(settings)
    lanes = _page_lanes(settings, ground)
    tessdata = None if settings.tessdata_prefix is None else str(settings.tessdata_prefix)
    engines = load_ocr_engines(settings.ocr_engine, tessdata, home.device, home.threads)
    log_event(_log, logging.INFO, "OCR chosen", why=engines.why, absent="; ".join(engines.absent) or "nothing")
    pages = PageReader(engines, lanes, lanes if home.type is DeviceType.CPU else model_lanes)
    readers = FileReaders(settings.reader_processes or ground.facts.cores, limits)
    _show(readers, telemetry)
    reader = DocumentReader(
        readers,
        pages,
        BlobCache(cache),
        languages=settings.ocr_languages,
        pages_at_once=ground.facts.cores + _AHEAD,
        version=__version__,
    )
    documents = DocumentService(reader, texts, telemetry)
    jobs = JobService(
        _job_store(settings, limits),
        telemetry,
        JobPolicy(workers=settings.job_workers, limit_s=settings.limit_job_s, ttl_s=settings.job_ttl_s),
        process=documents.process,
        write=document_bytes,
        picture=reader.picture,
    )
    return Reading(documents, jobs, limits, lanes)


def _page_lanes(settings: Settings, ground: Ground) -> Batcher:
    """One a core, which leave it to the models' lanes at once: a page takes a second that no text should wait for."""
    limits = QueueLimits(settings.limit_queue_tokens)
    lanes = Batcher(ground.facts.cores, limits, ground.telemetry, niceness=NICENESS)
    lanes.start(asyncio.get_running_loop())
    return lanes


def _job_store(settings: Settings, limits: FileLimits) -> JobStore:
    """In Redis where there is one, for all replicas; else in this process."""
    if settings.redis_url is None:
        return MemoryJobStore(settings.limit_jobs, settings.limit_job_bytes, lambda: datetime.now(UTC).timestamp())
    options = RedisJobOptions(
        settings.redis_url,
        prefix=settings.cache_prefix,
        limit_jobs=settings.limit_jobs,
        result_bytes=settings.limit_job_bytes,
    )
    return RedisJobStore(options, limits, monotonic=time.monotonic)


def _show(readers: FileReaders, telemetry: Telemetry) -> None:
    """Open the engines' series, and let every scrape read the processes as they are then."""
    telemetry.open_series("batch_duration_seconds", OCR_TASKS)
    telemetry.open_series("oom_recoveries_total", OCR_TASKS, OOM_ACTIONS)
    for state in READER_STATES:
        telemetry.readers.labels(state).set_function(partial(_count, readers, state))
    telemetry.follow("readers_started_total", (), partial(_count, readers, "started"))
    for reason in READER_ENDS:
        telemetry.follow("readers_ended_total", (reason,), partial(_count, readers, reason))


def _count(readers: FileReaders, name: str) -> int:
    return int(getattr(readers.counts(), name))
