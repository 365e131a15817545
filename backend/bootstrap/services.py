"""The composition root: builds the running services from the settings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from backend import __version__
from backend.api.dependencies import ApiLimits, ApiOptions
from backend.batching.batcher import Batcher
from backend.batching.lane_stats import show_gauges
from backend.batching.policy import QueueLimits
from backend.bootstrap.documents import DocumentRuntime, build_documents
from backend.bootstrap.models import AskForGpu, choose_devices, load_models, model_requests, read_classifiers
from backend.cache.memory_tier import MemoryTier
from backend.cache.redis_client import RedisOptions
from backend.cache.redis_tier import RedisTier
from backend.cache.shared_usage import RedisUsage
from backend.cache.store import NullCache, VectorCache
from backend.cache.tiered import TieredCache
from backend.config import Settings
from backend.device.facts.nvml import Nvml
from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import Placement
from backend.device.records import DeviceType, DriverSource, MachineFacts
from backend.device.watch.monitor import DeviceMonitor, memory
from backend.documents.parsing.limits import FileLimits
from backend.engines.analysis import TASK as ANALYSIS
from backend.engines.embeddings import TASK as EMBEDDINGS
from backend.engines.ner import TASK as NER
from backend.engines.scoring import CLASSIFIER, RERANKER
from backend.jobs.service import JobService
from backend.models.model_files import resolve
from backend.services.analysis import AnalysisService
from backend.services.callers import Quotas, read_key_ring
from backend.services.catalog import Catalog
from backend.services.classification import ClassificationService
from backend.services.documents.service import DocumentService
from backend.services.documents.understanding import TextServices
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService
from backend.services.health import HealthService
from backend.services.idle_trim import IdleTrim
from backend.services.idle_unload import IdleUnloader
from backend.services.inference import Inference
from backend.services.loading import LoadContext
from backend.services.model_retry import ModelRetry
from backend.services.model_swap import ModelSwapper, show_model
from backend.services.neutral_vectors import NeutralVectors
from backend.services.quota_sync import QuotaSync
from backend.services.quotas import Meters
from backend.services.reranking import RerankService
from backend.services.scoring import ScoringService
from backend.services.similarity import SimilarityService
from backend.services.text_work import TextLimits, TextWork
from backend.supervision import Supervisor
from backend.telemetry import DEVICE_ALERTS, FALLBACK_OUTCOMES, OOM_ACTIONS, Telemetry

TASKS = (EMBEDDINGS, NER, CLASSIFIER, RERANKER, ANALYSIS)
_DEVICE_COUNTERS = (
    "oom_recoveries_total",
    "nonfinite_outputs_total",
    "precision_fallbacks_total",
    "lane_restarts_total",
)


@dataclass(frozen=True, slots=True)
class Metering:
    """What callers use, and what they may."""

    meters: Meters
    quotas: Quotas  # of each caller of API_KEYS
    sync: QuotaSync | None  # None: quotas are counted by this process alone

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        return {**asdict(self.quotas), "shared_by_replicas": self.sync is not None}

    def start(self) -> None:
        if self.sync is not None:
            self.sync.start()

    async def close(self) -> None:
        if self.sync is not None:
            await self.sync.close()


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
    analysis: AnalysisService
    document_runtime: DocumentRuntime
    health: HealthService
    telemetry: Telemetry
    metering: Metering
    batcher: Batcher
    cache: VectorCache
    limits: ApiLimits
    driver: DriverSource
    monitor: DeviceMonitor
    unloader: IdleUnloader
    facts: MachineFacts
    placements: Sequence[Placement]  # one a device
    drain_s: float

    @property
    def text_work(self) -> TextWork:
        return self.inference.text_work

    @property
    def documents(self) -> DocumentService:
        return self.document_runtime.documents

    @property
    def jobs(self) -> JobService:
        return self.document_runtime.jobs

    @property
    def meters(self) -> Meters:
        return self.metering.meters

    @property
    def file_limits(self) -> FileLimits:
        return self.document_runtime.limits

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason."""
        return {
            "version": __version__,
            "machine": asdict(self.facts),
            "placements": [asdict(placement) for placement in self.placements],
            "models": [model.report() for model in self.catalog.models()],
            "pending_models": self.catalog.pending.report(),
            "lanes": asdict(self.batcher.status()),
            "cache": asdict(self.cache.status()),
            "classifiers": self.classification.report(),
            **self.document_runtime.report(),
            "limits": asdict(self.limits),
            "quotas": self.metering.report(),
        }

    async def close(self) -> None:
        """Requeue background jobs, finish accepted requests, then close everything."""
        self.unloader.stop()
        self.model_retry.stop()
        self.classification.close()
        await self.jobs.drain()  # before the lanes refuse: a job that is refused there would fail instead of moving on
        await asyncio.gather(self.document_runtime.close(self.drain_s), self.batcher.drain(self.drain_s))
        await self.metering.close()
        self.monitor.stop()
        self.driver.close()
        self.inference.close()
        await self.cache.close()


async def build(settings: Settings, *, gpu: int | None = None, ask: AskForGpu | None = None) -> Services:
    """Load the models and start the lanes.

    Args:
        gpu: the GPU's number; overrides every setting (``--gpu``).
        ask: prompts for a GPU where there are several and no setting decides.

    Raises: SetupError (DeviceUnavailable, ModelUnavailable) with the reason; nothing is left running then.
    """
    telemetry, driver, requests = Telemetry(), Nvml(), model_requests(settings)
    supervisor, loop = Supervisor(telemetry), asyncio.get_running_loop()
    context = await asyncio.to_thread(choose_devices, settings, telemetry, driver, gpu=gpu, ask=ask)
    catalog = await asyncio.to_thread(load_models, context, requests)
    cache = _cache(settings, telemetry, supervisor)
    await cache.start()
    batcher = _start_batcher(settings, context, loop)
    monitor = _start_monitor(context, catalog, driver)
    unloader = IdleUnloader(settings.model_keep_alive_s, context.placements[0].device, telemetry, supervisor)
    text_work = TextWork(telemetry, _text_limits(settings), idle_trim=IdleTrim(supervisor=supervisor))
    inference = Inference(batcher, cache, telemetry, text_work)
    embeddings, scoring = EmbeddingService(catalog, inference, cache, telemetry), ScoringService(inference)
    entities, neutral = EntityService(catalog, inference, telemetry), NeutralVectors(embeddings)
    classification = await _classification(settings, catalog, embeddings, scoring, telemetry, neutral=neutral)
    analysis = AnalysisService(catalog, inference, classification, entities, telemetry)
    texts = TextServices(catalog, embeddings, entities, analysis, text_work.idle_trim)
    metering = _metering(settings, telemetry)
    meters = metering.meters
    document_runtime = build_documents(settings, context, texts, batcher, cache, meters=meters, supervisor=supervisor)
    metering.start()
    await document_runtime.start()
    degraded = partial(_degraded, supervisor, document_runtime.jobs)
    health = HealthService(catalog, batcher, cache, monitor.report, degraded=degraded)
    telemetry.ready.set_function(health.known_ready)
    loader = ModelSwapper(context, catalog, unloader, requests, on_swap=classification.on_model_swap)
    model_retry = _start_model_retry(context, catalog, loader, unloader, supervisor)
    return Services(
        catalog=catalog,
        loader=loader,
        model_retry=model_retry,
        inference=inference,
        embeddings=embeddings,
        entities=entities,
        classification=classification,
        reranking=RerankService(catalog, embeddings, neutral, scoring, telemetry),
        similarity=SimilarityService(embeddings, neutral),
        analysis=analysis,
        document_runtime=document_runtime,
        health=health,
        telemetry=telemetry,
        metering=metering,
        batcher=batcher,
        cache=cache,
        driver=driver,
        monitor=monitor,
        unloader=unloader,
        limits=_limits(settings),
        facts=context.facts,
        placements=context.placements,
        drain_s=settings.limit_drain_s,
    )


def api_options(settings: Settings) -> ApiOptions:
    """The options of the API."""
    return ApiOptions(
        api_keys=settings.api_keys,
        admin_keys=settings.admin_keys,
        quotas=_quotas(settings),
        cors_origins=settings.cors_origins,
        allowed_hosts=settings.allowed_hosts,
        version=__version__,
    )


def _quotas(settings: Settings) -> Quotas:
    return Quotas(
        requests_per_minute=settings.quota_requests_per_minute,
        tokens_per_minute=settings.quota_tokens_per_minute,
        pages_per_minute=settings.quota_pages_per_minute,
        jobs=settings.quota_jobs,
    )


def _metering(settings: Settings, telemetry: Telemetry) -> Metering:
    """Meters of every caller; quotas a minute are shared by the replicas where there is a Redis to share them."""
    meters, quotas = Meters(telemetry), _quotas(settings)
    meters.open(read_key_ring(settings.api_keys, settings.admin_keys, quotas).callers)
    rates = (quotas.requests_per_minute, quotas.tokens_per_minute, quotas.pages_per_minute)
    if settings.redis_url is None or not any(rates):
        return Metering(meters, quotas, None)
    shared = RedisUsage(RedisOptions(settings.redis_url, prefix=settings.cache_prefix))
    return Metering(meters, quotas, QuotaSync(meters, shared))


async def _classification(
    settings: Settings,
    catalog: Catalog,
    embeddings: EmbeddingService,
    scoring: ScoringService,
    telemetry: Telemetry,
    *,
    neutral: NeutralVectors,
) -> ClassificationService:
    registry = await asyncio.to_thread(read_classifiers, settings, catalog)
    classification = ClassificationService(catalog, registry, embeddings, scoring, telemetry, neutral=neutral)
    classification.on_model_swap(catalog.embedding())
    return classification


def _start_model_retry(
    context: LoadContext, catalog: Catalog, loader: ModelSwapper, unloader: IdleUnloader, supervisor: Supervisor
) -> ModelRetry:
    """Fetch what is pending; and watch the models that serve: only now, as the start does not count as idle."""
    for model in catalog.models():
        unloader.add(asyncio.get_running_loop(), model.residents)
    model_retry = ModelRetry(catalog.pending, loader, fetch=partial(resolve, models_dir=context.models_dir))
    model_retry.start(supervisor)
    return model_retry


def _degraded(supervisor: Supervisor, jobs: JobService) -> tuple[str, ...]:
    return (*supervisor.failing(), *jobs.degraded())


def _start_batcher(settings: Settings, context: LoadContext, loop: asyncio.AbstractEventLoop) -> Batcher:
    placement = context.placements[0]
    limits, devices = QueueLimits(settings.limit_queue_tokens), len(context.placements)
    batcher = Batcher(placement.lanes, limits, context.telemetry, depth=placement.depth, devices=devices)
    batcher.start(loop)
    show_gauges(context.telemetry, batcher.status)
    return batcher


def _limits(settings: Settings) -> ApiLimits:
    return ApiLimits(
        inputs=settings.limit_inputs,
        text_chars=settings.limit_text_chars,
        tokenize_tokens=settings.limit_tokenize_tokens,
        body_bytes=settings.limit_body_bytes,
        request_s=settings.limit_request_s,
        labels=settings.limit_labels,
    )


def _text_limits(settings: Settings) -> TextLimits:
    return TextLimits(request_chars=settings.limit_request_chars, queue_chars=settings.limit_queue_chars)


def _cache(settings: Settings, telemetry: Telemetry, supervisor: Supervisor) -> VectorCache:
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
    return TieredCache(MemoryTier(settings.cache_memory_bytes), remote, telemetry)


def _start_monitor(context: LoadContext, catalog: Catalog, driver: DriverSource) -> DeviceMonitor:
    monitor = _monitor(context, catalog, driver)
    _open_series(context, catalog, monitor)
    monitor.start()
    return monitor


def _monitor(context: LoadContext, catalog: Catalog, driver: DriverSource) -> DeviceMonitor:
    telemetry = context.telemetry
    kind = context.placements[0].type

    def batch_bytes(device: str) -> int | None:
        devices = [placement.device for placement in context.placements]
        model = catalog.embedding()
        engine = model.engine.on(devices.index(device))
        return engine.batch_limits.batch_bytes(engine.budget, model.spec.max_tokens)

    return DeviceMonitor(
        context.facts,
        context.placements,
        driver=driver if kind is DeviceType.CUDA else None,
        torch_source=Torch() if kind is not DeviceType.CPU else None,
        batch_bytes=batch_bytes,
        counters=lambda: {name: telemetry.total(name) for name in _DEVICE_COUNTERS},
        on_alert=lambda device, alert: telemetry.device_alerts_total.labels(device, alert.kind.value).inc(),
    )


def _open_series(context: LoadContext, catalog: Catalog, monitor: DeviceMonitor) -> None:
    """Create the metric series whose labels are known only now, for every task: a model may be swapped in later."""
    telemetry = context.telemetry
    for model in catalog.models():
        show_model(telemetry, model)
    for task in TASKS:
        telemetry.model_pending.labels(task).set_function(partial(_is_pending, catalog, task))
    for series in ("inputs_total", "tokens_total", "batch_duration_seconds", "nonfinite_outputs_total"):
        telemetry.open_series(series, TASKS)
    telemetry.open_series("oom_recoveries_total", TASKS, OOM_ACTIONS)
    telemetry.open_series("precision_fallbacks_total", TASKS, FALLBACK_OUTCOMES)
    for placement in context.placements:
        device = placement.device
        telemetry.open_series("device_alerts_total", [device], DEVICE_ALERTS)
        used, total = telemetry.device_memory_used_bytes, telemetry.device_memory_total_bytes
        used.labels(device).set_function(partial(_used_bytes, context.facts, placement))
        total.labels(device).set_function(partial(_total_bytes, context.facts, placement))
        if placement.type is DeviceType.CUDA:
            telemetry.device_headroom_batches.labels(device).set_function(partial(_headroom_batches, monitor, device))


def _is_pending(catalog: Catalog, task: str) -> float:
    return float(catalog.pending.of(task) is not None)


def _used_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).used_bytes


def _total_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).total_bytes


def _headroom_batches(monitor: DeviceMonitor, device: str) -> float:
    batches = monitor.headroom(device).batches
    return math.nan if batches is None else batches
