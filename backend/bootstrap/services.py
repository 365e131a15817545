"""The composition root: builds the running services from the settings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from backend import __version__
from backend.abandoned import end_tasks
from backend.api.request_context import ApiLimits, ApiOptions
from backend.api.traffic import Traffic
from backend.batches import BatchService
from backend.bootstrap.documents import DocumentRuntime, build_documents, file_limits, start_page_lanes
from backend.bootstrap.domains import Found, Shared
from backend.bootstrap.images import find_image_model
from backend.bootstrap.metering import Metering, metering_of
from backend.bootstrap.models import AskForGpu, choose_devices, load_models, model_requests, read_classifiers
from backend.bootstrap.search import SearchRuntime, build_search, join_jobs
from backend.bootstrap.shared_state import SharedState, open_shared_state
from backend.bootstrap.speech import find_speech_model
from backend.bootstrap.summaries import SummaryRuntime, build_summaries
from backend.bootstrap.tracing import open_telemetry
from backend.callers.callers import LiveKeys
from backend.callers.quotas import Meters
from backend.callers.usage import UsageService
from backend.config import Settings
from backend.device.facts.host import container_share_bytes
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.memory.device_memory import trim_heap
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, DriverSource
from backend.device.watch.monitor import DeviceMonitor, memory
from backend.documents.extraction import DocumentExtractor
from backend.documents.extractors import ExtractorStore
from backend.documents.service import DocumentService
from backend.documents.understanding import TextServices
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from backend.images.classification import ImageClassificationService
from backend.images.engine import LoadedImageModel
from backend.jobs.service import JobService
from backend.lanes.batcher import Batcher, show_gauges
from backend.lanes.cache.redis_client import RedisOptions, refuse_unfit
from backend.lanes.cache.redis_tier import RedisTier
from backend.lanes.cache.store import MemoryTier, NullCache, TieredCache, VectorCache
from backend.lanes.inference import Inference
from backend.lanes.memory_keeper import IdleTrim, MemoryKeeper
from backend.lanes.text_work import TextLimits, TextWork
from backend.lanes.work_queue import QueueLimits
from backend.models.model_files import resolve
from backend.models.resting_process import Measurement, RestingMeasurements
from backend.replicas.rollout import ModelRollout, NoRollout
from backend.search.files import FileService
from backend.search.retrieval import SearchService
from backend.search.sqlite.storage import SqliteStorage
from backend.search.storage import SearchStorage
from backend.search.stored_documents import StoredDocuments
from backend.search.uploads import UploadService
from backend.search.vector_stores import VectorStoreService
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.answers import LABEL_TASK
from backend.serving.engines.answers import TASK as ANSWERS
from backend.serving.engines.generation import TASK as SUMMARIES
from backend.serving.engines.heads import ANALYSIS, CLASSIFIER, EMBEDDINGS, NER, RERANKER
from backend.serving.health import HealthService
from backend.serving.loading import LoadContext, ModelRequest
from backend.serving.model_swap import IdleUnloader, ModelSwapper, show_model
from backend.serving.pending_models import ModelRetry
from backend.speech.model_files import SpeechModelFiles
from backend.speech.transcription import TranscriptionService
from backend.summaries.service import SummaryService, SupportFinder
from backend.supervision import Supervisor
from backend.telemetry import DEVICE_ALERTS, FALLBACK_OUTCOMES, OOM_ACTIONS, Telemetry
from backend.text.analysis import AnalysisService
from backend.text.answers import AnswerService
from backend.text.classification import ClassificationService
from backend.text.classifier_store import ClassifierStore
from backend.text.embeddings import EmbeddingService
from backend.text.entities import EntityService
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import RerankService
from backend.text.scoring import ScoringService
from backend.text.similarity import SimilarityService

TASKS = (EMBEDDINGS, NER, CLASSIFIER, RERANKER, ANSWERS, LABEL_TASK, ANALYSIS, SUMMARIES)
_MIN_IDLE_S = 60.0  # of a model that leaves when memory is short
_TOKENIZER_THREADS, _CORES_BESIDE = 2, 2  # at least; cores left to the event loop and to what feeds the card
_DEVICE_COUNTERS = (
    "oom_recoveries_total",
    "nonfinite_outputs_total",
    "precision_fallbacks_total",
    "lane_restarts_total",
)


@dataclass(frozen=True, slots=True)
class Services:
    """All running services; what the API gets."""

    catalog: Catalog
    loader: ModelSwapper
    model_retry: ModelRetry
    inference: Inference
    embeddings: EmbeddingService
    entities: EntityService
    classification: ClassificationService
    reranking: RerankService
    similarity: SimilarityService
    answers: AnswerService
    analysis: AnalysisService
    summaries: SummaryService
    speech: TranscriptionService
    images: ImageClassificationService
    documents: DocumentService
    extractors: ExtractorStore
    jobs: JobService
    batches: BatchService
    files: FileService
    vector_stores: VectorStoreService
    search: SearchService
    meters: Meters
    usage: UsageService
    text_work: TextWork
    file_limits: FileLimits
    summary_runtime: SummaryRuntime
    document_runtime: DocumentRuntime
    search_runtime: SearchRuntime
    health: HealthService
    telemetry: Telemetry
    metering: Metering
    supervisor: Supervisor
    batcher: Batcher
    cache: VectorCache
    limits: ApiLimits
    driver: DriverSource
    monitor: DeviceMonitor
    memory: MemoryKeeper
    unloader: IdleUnloader
    context: LoadContext
    rollout: ModelRollout | NoRollout
    late_start: LateStart
    drain_s: float
    processes: Callable[[], dict[str, Any]] = dict  # a report for GET /v1/system, where there are several

    @property
    def stored_documents(self) -> StoredDocuments:
        return self.search_runtime.stored_documents

    @property
    def uploads(self) -> UploadService:
        return self.search_runtime.uploads

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason."""
        return {
            "version": __version__,
            "machine": asdict(self.context.facts),
            "placements": [asdict(placement) for placement in self.context.placements],
            "models": [model.report() for model in self.catalog.models()],
            "pending_models": [*self.catalog.pending.report(), *self.document_runtime.pending_models()],
            "lanes": asdict(self.batcher.status()),
            "cache": asdict(self.cache.status()),
            "classifiers": self.classification.report(),
            **self.document_runtime.report(),
            **self.search_runtime.report(),
            "summaries": self.summary_runtime.report(),
            "limits": asdict(self.limits),
            "memory": self.memory.report(),
            "quotas": self.metering.report(),
            **self.rollout.report(),
            **self.processes(),
        }

    async def start(self) -> None:
        """Open the storages, and begin background work. Raises: SetupError."""
        self.telemetry.ready.set_function(self.health.known_ready)
        self.metering.start(self.supervisor)
        self.memory.start(self.supervisor)
        await self.classification.store.start()
        await self.rollout.start()
        await self.search_runtime.start()
        await self.document_runtime.start()
        self.late_start.begin()

    async def hand_over(self) -> None:
        """Give background work back, so that another replica can start on it at once. May be called again."""
        await asyncio.gather(self.jobs.drain(), self.search_runtime.drain())

    async def close(self) -> None:
        """Hand over background work, finish accepted requests, then close everything."""
        await self.late_start.close()
        self.unloader.stop()
        self.memory.stop()
        self.model_retry.stop()
        self.classification.stop_learning()
        await self.hand_over()  # before the lanes refuse: what is refused there would fail instead of moving on
        parts = (self.document_runtime, self.summary_runtime)
        await asyncio.gather(*(part.close(self.drain_s) for part in parts), self.batcher.drain(self.drain_s))
        await self.search_runtime.close()
        await self.classification.close()
        await self.metering.close()
        await self.rollout.close()
        self.monitor.stop()
        self.driver.close()
        self.inference.close()
        await self.cache.close()
        await self.telemetry.tracer.close()


class LateStart:
    """Does what the start leaves undone, step by step, while requests are served. Belongs to the loop.

    Args:
        measurements: that the last step begins.
    """

    def __init__(
        self,
        steps: Sequence[Callable[[], Coroutine[Any, Any, None]]],
        measurements: RestingMeasurements,
        supervisor: Supervisor,
    ) -> None:
        self._steps, self._measurements, self._supervisor = steps, measurements, supervisor
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Leave undone what is not done yet."""
        await end_tasks(self._task)
        await self._measurements.close()

    async def _run(self) -> None:
        for step in self._steps:
            await self._supervisor.run("finish_start", step)


async def build(settings: Settings, *, gpu: int | None = None, ask: AskForGpu | None = None) -> Services:
    """Load the models and start the lanes.

    Args:
        gpu: the GPU's number; overrides every setting (``--gpu``).
        ask: prompts for a GPU where there are several and no setting decides.

    Raises: SetupError (DeviceUnavailable, ModelUnavailable) with the reason; nothing is left running then.
    """
    async with AsyncExitStack() as on_failure:
        services = await _assemble(settings, on_failure, gpu, ask)
        on_failure.pop_all()
    try:
        await services.start()
    except BaseException:
        await services.close()
        raise
    return services


@dataclass(frozen=True, slots=True)
class _Foundation:
    """What the settings name and the machine has: devices, models, what replicas share, who may call."""

    telemetry: Telemetry
    driver: DriverSource
    supervisor: Supervisor
    metering: Metering
    replicas: SharedState
    context: LoadContext
    catalog: Catalog
    requests: dict[str, ModelRequest]
    speech_model: Found[SpeechModelFiles]
    image_model: Found[LoadedImageModel]


async def _find(settings: Settings, on_failure: AsyncExitStack, gpu: int | None, ask: AskForGpu | None) -> _Foundation:
    """Choose devices and load models."""
    telemetry, driver, requests = open_telemetry(settings), Nvml(), model_requests(settings)
    supervisor = Supervisor(telemetry)
    metering = metering_of(settings, telemetry)  # first: wrong keys, and then a wrong model, stop the start at once
    if settings.redis_url is not None:
        await refuse_unfit(settings.redis_url)
    speech_model = await find_speech_model(settings)
    replicas = await open_shared_state(settings, on_failure)
    context = await asyncio.to_thread(choose_devices, settings, telemetry, driver, gpu=gpu, ask=ask)
    catalog = await replicas.loaded(partial(load_models, context, requests, replicas.targets))
    image_model = await asyncio.to_thread(find_image_model, settings, context)
    return _Foundation(
        telemetry, driver, supervisor, metering, replicas, context, catalog, requests, speech_model, image_model
    )


@dataclass(frozen=True, slots=True)
class _TextStack:
    """What is said of texts, and what that rests on."""

    services: TextServices
    classification: ClassificationService
    reranking: RerankService
    neutral: NeutralVectors
    summaries: SummaryRuntime


async def _text_stack(settings: Settings, found: _Foundation, inference: Inference, cache: VectorCache) -> _TextStack:
    catalog, telemetry = found.catalog, found.telemetry
    embeddings, scoring = EmbeddingService(catalog, inference, cache, telemetry), ScoringService(inference)
    entities, neutral = EntityService(catalog, inference, telemetry), NeutralVectors(embeddings)
    own = await asyncio.to_thread(read_classifiers, settings, catalog)
    store = ClassifierStore(own, found.replicas.taught, found.supervisor)
    classification = ClassificationService(catalog, store, embeddings, scoring, telemetry, neutral=neutral)
    classification.on_model_swap(catalog.embedding())
    analysis = AnalysisService(catalog, inference, classification, entities, telemetry)
    support = SupportFinder(catalog, embeddings, neutral)
    summaries = build_summaries(settings, found.context, inference, analysis, support)
    answers = AnswerService(catalog, inference, embeddings, telemetry)
    services = TextServices(catalog, embeddings, entities, analysis, summaries.service, answers, inference.text_work)
    reranking = RerankService(catalog, embeddings, neutral, scoring, telemetry)
    return _TextStack(services, classification, reranking, neutral, summaries)


def _shared(
    settings: Settings, found: _Foundation, cache: VectorCache, batcher: Batcher, inference: Inference
) -> Shared:
    unloader = IdleUnloader(settings.model_keep_alive_s, found.telemetry, found.supervisor)
    return Shared(
        settings,
        found.context,
        cache,
        batcher,
        start_page_lanes(settings, found.context),
        FileReaders(settings.reader_processes or found.context.facts.cores, file_limits(settings)),
        inference.text_work.idle_trim,
        unloader,
        found.metering,
        found.supervisor,
    )


async def _assemble(settings: Settings, on_failure: AsyncExitStack, gpu: int | None, ask: AskForGpu | None) -> Services:
    """Everything, its background work not started yet."""
    found = await _find(settings, on_failure, gpu, ask)
    telemetry, catalog, supervisor, metering = found.telemetry, found.catalog, found.supervisor, found.metering
    cache = await start_cache(settings, telemetry, supervisor)
    batcher, monitor = _start_batcher(settings, found.context), _start_monitor(found.context, catalog, found.driver)
    inference = Inference(batcher, cache, telemetry, _text_work(settings, found.context, telemetry, supervisor))
    stack = await _text_stack(settings, found, inference, cache)
    texts, classes, neutral = stack.services, stack.classification, stack.neutral
    shared = _shared(settings, found, cache, batcher, inference)
    documents = build_documents(shared, texts, found.speech_model, found.image_model)
    search = build_search(shared, texts, documents.documents, classes, reranking=stack.reranking, neutral=neutral)
    loader, measurements = _model_swapper(found, shared, classes)
    rollout = found.replicas.rollout(catalog, loader, found.requests, telemetry, supervisor)
    watched = (metering, documents, search, classes.store, rollout)
    return Services(
        catalog=catalog,
        loader=loader,
        model_retry=_start_model_retry(found.context, catalog, loader, shared.unloader, supervisor),
        inference=inference,
        embeddings=texts.embeddings,
        entities=texts.entities,
        classification=classes,
        reranking=stack.reranking,
        similarity=SimilarityService(texts.embeddings, neutral),
        answers=texts.answers,
        analysis=texts.analysis,
        summaries=stack.summaries.service,
        speech=documents.speech.service,
        images=documents.images.service,
        documents=documents.documents,
        extractors=ExtractorStore(found.replicas.taught),
        jobs=documents.jobs,
        batches=join_jobs(shared, search, documents.jobs, texts.embeddings, limits_of(settings)),
        files=search.files,
        vector_stores=search.vector_stores,
        search=search.search,
        meters=metering.meters,
        usage=metering.usage(),
        text_work=inference.text_work,
        file_limits=shared.readers.limits,
        summary_runtime=stack.summaries,
        document_runtime=documents,
        search_runtime=search,
        health=HealthService(
            catalog,
            batcher,
            cache,
            monitor.report,
            degraded=partial(_degraded, supervisor, watched),
            measuring=measurements.names,
            others=documents.models,
        ),
        telemetry=telemetry,
        metering=metering,
        supervisor=supervisor,
        memory=_memory_keeper(settings, cache, search.storage, shared.idle_trim, shared.unloader),
        batcher=batcher,
        cache=cache,
        driver=found.driver,
        monitor=monitor,
        unloader=shared.unloader,
        limits=limits_of(settings),
        context=found.context,
        drain_s=settings.limit_drain_s,
        rollout=rollout,
        late_start=_late_start(found, loader, documents.documents.extractor, measurements),
    )


def _is_idle(*batchers: Batcher) -> bool:
    statuses = [batcher.status() for batcher in batchers]
    return not any(status.busy or status.queued_jobs for status in statuses)


def api_options(settings: Settings, keys: LiveKeys, memory: MemoryKeeper | None = None) -> ApiOptions:
    """The options of the API.

    Args:
        memory: of the process that does the work; an HTTP worker holds little.
    """
    largest_bytes = max(settings.limit_file_bytes, settings.limit_body_bytes)
    traffic = Traffic(settings.limit_in_flight_bytes, largest_bytes, memory=memory)
    return ApiOptions(
        keys=keys,
        cache_scope=settings.cache_scope,
        cors_origins=settings.cors_origins,
        allowed_hosts=settings.allowed_hosts,
        traffic=traffic,
        version=__version__,
    )


def _model_swapper(
    found: _Foundation, shared: Shared, classes: ClassificationService
) -> tuple[ModelSwapper, RestingMeasurements]:
    """What replaces models, and what measures those that serve unmeasured, also after a swap."""
    measurements = RestingMeasurements(
        partial(_is_idle, shared.model_lanes, shared.page_lanes),
        found.supervisor,
        is_on=shared.settings.measure_when_idle,
    )

    def on_swap(model: LoadedModel) -> None:
        classes.on_model_swap(model)
        _measure_later(model, loader, measurements)

    loader = ModelSwapper(found.context, found.catalog, shared.unloader, found.requests, on_swap=on_swap)
    return loader, measurements


def _measure_later(model: LoadedModel, loader: ModelSwapper, measurements: RestingMeasurements) -> None:
    if model.after_start is not None and model.after_start.measure is not None:
        name = f"{model.name} for {model.task}, served by {model.choice.candidate}"
        adopt = partial(loader.adopt_measured, model)
        measurements.add(Measurement(name, model.after_start.measure, adopt))


def _late_start(
    found: _Foundation, loader: ModelSwapper, extractor: DocumentExtractor, measurements: RestingMeasurements
) -> LateStart:
    async def measure_later() -> None:
        for model in found.catalog.models():
            if found.catalog.pending.of(model.task) is None:  # else it serves only until that one is fetched
                _measure_later(model, loader, measurements)
        for measurement in extractor.measurements():
            measurements.add(measurement)

    return LateStart((loader.finish_start, extractor.warm_up, measure_later), measurements, found.supervisor)


def _start_model_retry(
    context: LoadContext, catalog: Catalog, loader: ModelSwapper, unloader: IdleUnloader, supervisor: Supervisor
) -> ModelRetry:
    """Fetch what is pending; and watch the models that serve: only now, as the start does not count as idle."""
    for model in catalog.models():
        unloader.add(asyncio.get_running_loop(), model.residents)
    model_retry = ModelRetry(catalog.pending, loader.fulfil, fetch=partial(resolve, models_dir=context.models_dir))
    model_retry.start(supervisor)
    return model_retry


def _text_work(settings: Settings, context: LoadContext, telemetry: Telemetry, supervisor: Supervisor) -> TextWork:
    """A core tokenises 0.3 million tokens a second, a card computes millions; on a CPU the cores are the model's."""
    threads = _TOKENIZER_THREADS
    if context.placements[0].type is DeviceType.CUDA:
        threads = max(threads, context.facts.cores - _CORES_BESIDE)
    trim = IdleTrim(supervisor=supervisor)
    return TextWork(telemetry, text_limits(settings), threads=threads, idle_trim=trim)


class _Watched(Protocol):
    def degraded(self) -> Sequence[str]: ...


def _degraded(supervisor: Supervisor, parts: Sequence[_Watched]) -> tuple[str, ...]:
    return (*supervisor.failing(), *(sentence for part in parts for sentence in part.degraded()))


def _start_batcher(settings: Settings, context: LoadContext) -> Batcher:
    placement = context.placements[0]
    limits, devices = QueueLimits(settings.limit_queue_tokens), len(context.placements)
    batcher = Batcher(placement.lanes, limits, context.telemetry, depth=placement.depth, devices=devices)
    batcher.start(asyncio.get_running_loop())
    show_gauges(context.telemetry, batcher.status)
    return batcher


def limits_of(settings: Settings) -> ApiLimits:
    return ApiLimits(
        inputs=settings.limit_inputs,
        text_chars=settings.limit_text_chars,
        tokenize_tokens=settings.limit_tokenize_tokens,
        body_bytes=settings.limit_body_bytes,
        request_s=settings.limit_request_s,
        connections=settings.limit_connections,
        transcription_s=settings.limit_transcription_s,
        labels=settings.limit_labels,
    )


def _memory_keeper(
    settings: Settings, cache: VectorCache, storage: SearchStorage, idle_trim: IdleTrim, unloader: IdleUnloader
) -> MemoryKeeper:
    """What holds memory that can be had again, cheapest first."""

    async def shrink_cache() -> None:
        cache.shrink()
        await asyncio.to_thread(trim_heap)

    async def forget_stores() -> None:
        if isinstance(storage, SqliteStorage):
            storage.release_memory()
        await asyncio.to_thread(trim_heap)

    return MemoryKeeper(
        settings.memory_limit_bytes or container_share_bytes(),
        {
            "freed_pages": partial(asyncio.to_thread, trim_heap),
            "engines_at_rest": idle_trim.now,
            "cached_vectors": shrink_cache,
            "searched_stores": forget_stores,
            "idle_models": partial(unloader.unload_idle, _MIN_IDLE_S),
        },
        {
            "cached_vectors": lambda: cache.status().memory_bytes,
            "searched_stores": lambda: storage.memory_bytes if isinstance(storage, SqliteStorage) else 0,
        },
    )


def text_limits(settings: Settings) -> TextLimits:
    return TextLimits(request_chars=settings.limit_request_chars, queue_chars=settings.limit_queue_chars)


async def start_cache(settings: Settings, telemetry: Telemetry, supervisor: Supervisor) -> VectorCache:
    if not settings.cache_enabled:
        return NullCache()
    remote = None
    if settings.redis_url:
        options = RedisOptions(
            settings.redis_url,
            prefix=settings.cache_prefix,
            ttl_s=settings.cache_ttl_s,
            timeout_s=settings.cache_timeout_s,
        )
        remote = RedisTier(options, telemetry, supervisor)
    cache = TieredCache(MemoryTier(settings.cache_memory_bytes), remote, telemetry)
    await cache.start()
    return cache


def _start_monitor(context: LoadContext, catalog: Catalog, driver: DriverSource) -> DeviceMonitor:
    telemetry, kind = context.telemetry, context.placements[0].type

    def batch_bytes(device: str) -> int | None:
        devices = [placement.device for placement in context.placements]
        model = catalog.embedding()
        engine = model.engine.on(devices.index(device))
        return engine.batch_limits.batch_bytes(engine.budget, model.spec.max_tokens)

    monitor = DeviceMonitor(
        context.facts,
        context.placements,
        driver=driver if kind is DeviceType.CUDA else None,
        torch_source=Torch() if kind is not DeviceType.CPU else None,
        batch_bytes=batch_bytes,
        counters=lambda: {name: telemetry.total(name) for name in _DEVICE_COUNTERS},
        on_alert=lambda device, alert: telemetry.device_alerts_total.labels(device, alert.kind.value).inc(),
    )
    _open_series(context, catalog, monitor)
    monitor.start()
    return monitor


def _open_series(context: LoadContext, catalog: Catalog, monitor: DeviceMonitor) -> None:
    """Create the metric series whose labels are known only now, for every task: a model may be swapped in later."""
    telemetry = context.telemetry
    for model in catalog.models():
        show_model(telemetry, model)
    for task in TASKS:
        telemetry.model_pending.labels(task).set_function(lambda task=task: float(catalog.pending.of(task) is not None))
    of_tasks = ("inputs_total", "tokens_total", "engine_tokens_total", "batch_duration_seconds")
    for series in (*of_tasks, "nonfinite_outputs_total"):
        telemetry.open_series(series, TASKS)
    telemetry.open_series("oom_recoveries_total", TASKS, OOM_ACTIONS)
    telemetry.open_series("precision_fallbacks_total", TASKS, FALLBACK_OUTCOMES)
    for placement in context.placements:
        _open_device_series(context, placement, monitor)


def _open_device_series(context: LoadContext, placement: Placement, monitor: DeviceMonitor) -> None:
    telemetry, facts, device = context.telemetry, context.facts, placement.device
    telemetry.open_series("device_alerts_total", [device], DEVICE_ALERTS)
    telemetry.device_memory_used_bytes.labels(device).set_function(lambda: memory(facts, placement).used_bytes)
    telemetry.device_memory_total_bytes.labels(device).set_function(lambda: memory(facts, placement).total_bytes)
    if placement.type is DeviceType.CUDA:

        def headroom_batches() -> float:
            batches = monitor.headroom(device).batches
            return math.nan if batches is None else batches

        telemetry.device_headroom_batches.labels(device).set_function(headroom_batches)
