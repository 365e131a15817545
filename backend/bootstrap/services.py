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
from backend.services.analysis import AnalysisService
from backend.services.catalog import Catalog
from backend.services.classification import ClassificationService
from backend.services.documents.service import DocumentService
from backend.services.documents.understanding import TextServices
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService
from backend.services.health import HealthService
from backend.services.idle_unload import IdleUnloader
from backend.services.inference import Inference
from backend.services.loading import LoadContext
from backend.services.model_swap import ModelSwapper, show_model
from backend.services.reranking import RerankService
from backend.services.scoring import ScoringService
from backend.telemetry import DEVICE_ALERTS, FALLBACK_OUTCOMES, OOM_ACTIONS, Telemetry

TASKS = (EMBEDDINGS, NER, CLASSIFIER, RERANKER, ANALYSIS)
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
    inference: Inference
    embeddings: EmbeddingService
    entities: EntityService
    classification: ClassificationService
    reranking: RerankService
    analysis: AnalysisService
    document_runtime: DocumentRuntime
    health: HealthService
    telemetry: Telemetry
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
    def documents(self) -> DocumentService:
        return self.document_runtime.documents

    @property
    def jobs(self) -> JobService:
        return self.document_runtime.jobs

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
            "lanes": asdict(self.batcher.status()),
            "cache": asdict(self.cache.status()),
            "classifiers": self.classification.report(),
            **self.document_runtime.report(),
            "limits": asdict(self.limits),
        }

    async def close(self) -> None:
        """Finish accepted requests, then close everything."""
        self.unloader.stop()
        self.classification.close()
        await asyncio.gather(self.document_runtime.close(self.drain_s), self.batcher.drain(self.drain_s))
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
    telemetry = Telemetry()
    driver = Nvml()
    context = await asyncio.to_thread(choose_devices, settings, telemetry, driver, gpu=gpu, ask=ask)
    requests = model_requests(settings)
    catalog = await asyncio.to_thread(load_models, context, requests)
    registry = await asyncio.to_thread(read_classifiers, settings, catalog)
    cache = _cache(settings, telemetry)
    await cache.start()
    loop = asyncio.get_running_loop()
    batcher = _batcher(settings, context)
    batcher.start(loop)
    show_gauges(telemetry, batcher.status)
    monitor = _monitor(context, catalog, driver)
    _open_series(context, catalog, monitor)
    monitor.start()
    unloader = IdleUnloader(settings.model_keep_alive_s, context.placements[0].device, telemetry)
    inference = Inference(batcher, cache, telemetry)
    embeddings, scoring = EmbeddingService(catalog, inference, cache, telemetry), ScoringService(inference)
    entities = EntityService(catalog, inference, telemetry)
    classification = ClassificationService(catalog, registry, embeddings, scoring, telemetry)
    classification.on_model_swap(catalog.embedding())
    health = HealthService(catalog, batcher, cache, monitor.report)
    telemetry.ready.set_function(health.known_ready)
    analysis = AnalysisService(catalog, inference, classification, entities, telemetry)
    texts = TextServices(catalog, embeddings, entities, analysis)
    document_runtime = build_documents(settings, context, texts, batcher, cache)
    await document_runtime.start()
    for model in catalog.models():  # only now: the start does not count as idle
        unloader.add(loop, model.residents)
    return Services(
        catalog=catalog,
        loader=ModelSwapper(context, catalog, unloader, requests, on_swap=classification.on_model_swap),
        inference=inference,
        embeddings=embeddings,
        entities=entities,
        classification=classification,
        reranking=RerankService(catalog, embeddings, scoring, telemetry),
        analysis=analysis,
        document_runtime=document_runtime,
        health=health,
        telemetry=telemetry,
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
    return ApiOptions(api_keys=settings.api_keys, cors_origins=settings.cors_origins, version=__version__)


def _batcher(settings: Settings, context: LoadContext) -> Batcher:
    placement = context.placements[0]
    limits, devices = QueueLimits(settings.limit_queue_tokens), len(context.placements)
    return Batcher(placement.lanes, limits, context.telemetry, depth=placement.depth, devices=devices)


def _limits(settings: Settings) -> ApiLimits:
    return ApiLimits(
        inputs=settings.limit_inputs,
        text_chars=settings.limit_text_chars,
        body_bytes=settings.limit_body_bytes,
        request_s=settings.limit_request_s,
        labels=settings.limit_labels,
    )


def _cache(settings: Settings, telemetry: Telemetry) -> VectorCache:
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
        remote = RedisTier(options, telemetry)
    return TieredCache(MemoryTier(settings.cache_memory_bytes), remote, telemetry)


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


def _used_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).used_bytes


def _total_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).total_bytes


def _headroom_batches(monitor: DeviceMonitor, device: str) -> float:
    batches = monitor.headroom(device).batches
    return math.nan if batches is None else batches
