"""Builds document processing from the settings: file limits, reader processes, engines and lanes, the job store."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from backend import __version__
from backend.bootstrap.domains import Found, Shared
from backend.bootstrap.images import ImageDomain, build_images
from backend.bootstrap.speech import SpeechDomain, build_speech
from backend.config import Settings
from backend.device.memory.device_memory import lower_ceiling
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType
from backend.documents.extraction import DocumentExtractor
from backend.documents.ocr import REST_S, OcrService
from backend.documents.ocr_engines import RapidOcrPlacement, check_default_languages, load_ocr_engines
from backend.documents.recordings import RecordingExtractor
from backend.documents.service import DocumentService
from backend.documents.understanding import TextServices
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.images.classification import ImageClassificationService
from backend.images.engine import LoadedImageModel
from backend.jobs.memory_store import MemoryJobStore
from backend.jobs.redis_store import RedisJobOptions, RedisJobStore
from backend.jobs.runner import JobPolicy
from backend.jobs.service import JobService
from backend.jobs.store import JobStore
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import BlobCache, entry
from backend.lanes.work_queue import QueueLimits
from backend.ocr.rapidocr_autotune import RuntimeSelector
from backend.ocr.rapidocr_sessions import LaneThreads
from backend.ocr.records import OCR_TASKS
from backend.serving.catalog import Catalog
from backend.serving.loading import LoadContext
from backend.speech.model_files import SpeechModelFiles
from backend.telemetry import OOM_ACTIONS, READER_ENDS, READER_STATES, Telemetry, log_event

# On two cores texts took 39 ms at the median beside three clients' scans, and 1,800 ms on lanes shared with them
# (docs/documents.md).
NICENESS = 10
_log = logging.getLogger(__name__)
# Of a GPU for RapidOCR's networks, at most: they are small, and need no more for one page after the other.
_DEVICE_RATIO, _DEVICE_BYTES = 0.25, 2 * 2**30
_PREFETCH = 2  # pages of a file that are rendered while others are on the lanes


def file_limits(settings: Settings) -> FileLimits:
    return FileLimits(
        file_bytes=settings.limit_file_bytes,
        pages=settings.limit_pages,
        page_pixels=settings.limit_page_pixels,
        page_s=settings.limit_page_s,
        document_lines=settings.limit_document_lines,
        document_chars=settings.limit_document_chars,
        render_pixels=settings.limit_render_pixels,
        audio_s=settings.limit_audio_s,
        audio_channels=settings.limit_audio_channels,
        worker_bytes=settings.limit_reader_bytes,
    )


@dataclass(frozen=True, slots=True)
class DocumentRuntime:
    """The running services of documents and jobs, with what they own."""

    documents: DocumentService
    jobs: JobService
    lanes: Batcher  # of OCR and speech engines that run on the CPU
    speech: SpeechDomain
    images: ImageDomain

    def report(self) -> dict[str, Any]:
        """The choices made and their reasons, for GET /v1/system."""
        ocr = {**self.documents.extractor.report(), "lanes": asdict(self.lanes.status())}
        others = {"speech": self.speech.report(), "images": self.images.report()}
        return {"ocr": ocr, **others, "jobs": self.jobs.report()}

    def pending_models(self) -> list[dict[str, object]]:
        """For GET /v1/system."""
        return [*self.speech.pending.report(), *self.images.pending.report()]

    def models(self) -> list[dict[str, object]]:
        """Those that the catalog does not hold, for GET /health."""
        return [*self.speech.models(), *self.images.models()]

    def degraded(self) -> tuple[str, ...]:
        """For GET /health."""
        return (*self.jobs.degraded(), *self.speech.degraded(), *self.images.degraded())

    async def start(self) -> None:
        """Start the job workers."""
        await self.jobs.start()
        self.speech.start()
        self.images.start()

    async def close(self, drain_s: float) -> None:
        """Finish accepted pages, stop the reader processes, and close the store of jobs."""
        await self.jobs.drain()
        await self.lanes.drain(drain_s)
        self.speech.close()
        self.images.close()
        self.documents.extractor.close()
        await self.jobs.close()


def build_documents(
    shared: Shared, texts: TextServices, speech_model: Found[SpeechModelFiles], image_model: Found[LoadedImageModel]
) -> DocumentRuntime:
    """Document processing and jobs, not started yet.

    Raises: SetupError for an OCR_ENGINE that is not installed, or OCR_LANGUAGES that no engine reads.
    """
    settings, context, lanes = shared.settings, shared.context, shared.page_lanes
    _register_metrics(shared.readers, context.telemetry)
    extractor = DocumentExtractor(
        shared.readers,
        _ocr(shared),
        BlobCache(shared.cache),
        languages=settings.ocr_languages,
        pages_at_once=context.facts.cores + _PREFETCH,
        version=__version__,
    )
    speech, images = build_speech(shared, speech_model), build_images(shared, image_model)
    documents = DocumentService(
        extractor,
        texts,
        context.telemetry,
        shared.idle_trim,
        recordings=RecordingExtractor(speech.service),
        images=images.service,
    )
    jobs = JobService(
        _job_store(settings, shared.readers.limits),
        context.telemetry,
        JobPolicy(workers=settings.job_workers, limit_s=settings.limit_job_s, ttl_s=settings.job_ttl_s),
        process=documents.process,
        render_page=extractor.page_image,
        meter_of=shared.metering.meters.of,
        models=partial(_fingerprints, texts.catalog, images.service),
        check_kind=speech.service.check_kind,
        enter=entry(settings.cache_scope),
        supervisor=shared.supervisor,
    )
    return DocumentRuntime(documents, jobs, lanes, speech, images)


def _ocr(shared: Shared) -> OcrService:
    """The engines that are installed, on the page lanes; RapidOCR where the models are."""
    settings, context, placement = shared.settings, shared.context, shared.context.placements[0]
    tessdata = None if settings.tessdata_prefix is None else str(settings.tessdata_prefix)
    rapidocr = _rapidocr_placement(context, placement)
    engines = load_ocr_engines(settings.ocr_engine, tessdata, rapidocr, keep_in=context.models_dir)
    check_default_languages(settings.ocr_languages, engines)
    if engines.rapidocr is not None and engines.rapidocr.on_device:
        lower_ceiling(placement.device, rapidocr.device_bytes)
    all_there = engines.default != "auto" or engines.any_tesseract is not None
    log_event(_log, logging.INFO if all_there else logging.WARNING, "OCR chosen", why=engines.why)
    rapidocr_lanes = shared.page_lanes if placement.type is DeviceType.CPU else shared.model_lanes
    rest_s = REST_S if settings.model_keep_alive_s is None else settings.model_keep_alive_s
    return OcrService(engines, shared.page_lanes, rapidocr_lanes, idle_trim=shared.idle_trim, rest_s=rest_s)


def _fingerprints(catalog: Catalog, images: ImageClassificationService) -> str:
    """Equal while documents get the same answers by the same models."""
    return f"{catalog.fingerprints()} {images.fingerprint}".rstrip()


def _rapidocr_placement(context: LoadContext, placement: Placement) -> RapidOcrPlacement:
    """On the device of the models, with a part of their memory; on the CPU with a thread of each page lane."""
    cores = LaneThreads(threads=1, lanes=context.facts.cores)
    device_bytes = min(_DEVICE_BYTES, int(_DEVICE_RATIO * placement.memory_bytes))
    selector = RuntimeSelector(context.facts, cores, context.tuned)
    return RapidOcrPlacement(placement.device, device_bytes, cores.threads, cores.lanes, selector)


def start_page_lanes(settings: Settings, context: LoadContext) -> Batcher:
    """One lane a core at low priority: a page takes a second, and no text should wait for it."""
    limits = QueueLimits(settings.limit_queue_tokens)
    lanes = Batcher(context.facts.cores, limits, context.telemetry, niceness=NICENESS)
    lanes.start(asyncio.get_running_loop())
    return lanes


def _job_store(settings: Settings, limits: FileLimits) -> JobStore:
    """Redis where REDIS_URL is set, shared by all replicas; else the memory of this process."""
    if settings.redis_url is None:
        bounds = (settings.limit_jobs, settings.limit_job_bytes, limits)
        return MemoryJobStore(*bounds, now=lambda: datetime.now(UTC).timestamp())
    options = RedisJobOptions(
        settings.redis_url,
        prefix=settings.cache_prefix,
        limit_jobs=settings.limit_jobs,
        result_bytes=settings.limit_job_bytes,
    )
    return RedisJobStore(options, limits, monotonic=time.monotonic)


def _register_metrics(readers: FileReaders, telemetry: Telemetry) -> None:
    """Register the OCR engines' series, and gauges that count the reader processes at each scrape."""
    telemetry.open_series("batch_duration_seconds", OCR_TASKS)
    telemetry.open_series("oom_recoveries_total", OCR_TASKS, OOM_ACTIONS)
    for state in READER_STATES:
        telemetry.readers.labels(state).set_function(partial(_count, readers, state))
    telemetry.mirror_counter("readers_started_total", (), partial(_count, readers, "started"))
    for reason in READER_ENDS:
        telemetry.mirror_counter("readers_ended_total", (reason,), partial(_count, readers, reason))


def _count(readers: FileReaders, name: str) -> int:
    return int(getattr(readers.counts(), name))
