"""The composition root: Settings in, running Services out. Nothing else knows both."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from backend import __version__
from backend.api.deps import ApiLimits, ApiOptions
from backend.batching.batcher import Batcher
from backend.batching.policy import QueueLimits
from backend.cache.memory import MemoryCache
from backend.cache.redis_link import RedisOptions
from backend.cache.redis_tier import RedisTier
from backend.cache.store import NullCache, VectorCache
from backend.cache.tiered import TieredCache
from backend.config import Settings
from backend.device import process
from backend.device.choices import CHOICE_FILE, ChoiceFile, SavedChoice
from backend.device.facts import probe
from backend.device.memory import apply_ceiling
from backend.device.monitor import DeviceMonitor, memory
from backend.device.plan import Placement, place_all
from backend.device.profile import TunedSettings
from backend.device.records import DeviceType, DriverSource, MachineFacts
from backend.device.selection import Wishes, is_open, wants_gpu
from backend.device.sources.nvml import Nvml
from backend.device.sources.torch_source import Torch
from backend.ml.embeddings import TASK as EMBEDDINGS
from backend.ml.ner import TASK as NER
from backend.models.selection import Wish
from backend.models.store import BUNDLED
from backend.services.catalog import Catalog
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService
from backend.services.health import HealthService
from backend.services.hot_loading import HotLoader, show_model
from backend.services.keep_alive import KeepAlive
from backend.services.loading import Ground, ModelWish, load_model
from backend.telemetry import DEVICE_ALERTS, OOM_ACTIONS, RESCUES, Telemetry, log_event

_log = logging.getLogger(__name__)
PROFILES = {"bundled": BUNDLED, "multilingual": "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"}
TUNING_FILE = "tuning.json"
TASKS = (EMBEDDINGS, NER)
_DEVICE_COUNTERS = (
    "oom_recoveries_total",
    "nonfinite_outputs_total",
    "precision_fallbacks_total",
    "lane_restarts_total",
)
Ask = Callable[[MachineFacts, ChoiceFile], SavedChoice | None]


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that runs, for the API."""

    catalog: Catalog
    loader: HotLoader
    embeddings: EmbeddingService
    entities: EntityService
    health: HealthService
    telemetry: Telemetry
    batcher: Batcher
    cache: VectorCache
    limits: ApiLimits
    driver: DriverSource
    monitor: DeviceMonitor
    keep_alive: KeepAlive
    facts: MachineFacts
    placements: Sequence[Placement]  # one a device
    drain_s: float

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason."""
        return {
            "version": __version__,
            "machine": asdict(self.facts),
            "placements": [asdict(placement) for placement in self.placements],
            "models": [model.report() for model in self.catalog.models()],
            "lanes": asdict(self.batcher.status()),
            "cache": asdict(self.cache.status()),
            "limits": asdict(self.limits),
        }

    async def close(self) -> None:
        """Finish what was accepted, then let everything go."""
        self.keep_alive.stop()
        await self.batcher.drain(self.drain_s)
        self.monitor.stop()
        self.driver.close()
        self.embeddings.close()
        self.entities.close()
        await self.cache.close()


async def build(settings: Settings, *, gpu: int | None = None, ask: Ask | None = None) -> Services:
    """Load the models and start the lanes.

    Args:
        gpu: the card's number, before every setting (``--gpu``).
        ask: lets a person choose where there are several cards and nothing else decides.

    Raises: SetupError (DeviceUnavailable, ModelUnavailable) with the reason; nothing is left running then.
    """
    telemetry = Telemetry()
    driver = Nvml()
    ground = await asyncio.to_thread(survey, settings, telemetry, driver, gpu=gpu, ask=ask)
    wished = _wished(settings)
    catalog = await asyncio.to_thread(_load, ground, wished)
    cache = _cache(settings, telemetry)
    await cache.start()
    home, loop = ground.placements[0], asyncio.get_running_loop()
    batcher = Batcher(
        home.lanes,
        QueueLimits(settings.limit_queue_tokens),
        telemetry,
        depth=home.depth,
        devices=len(ground.placements),
    )
    batcher.start(loop)
    monitor = _monitor(ground, catalog, driver)
    _describe(ground, catalog, monitor)
    monitor.start()
    keep_alive = KeepAlive(settings.model_keep_alive_s, home.device, telemetry)
    for model in catalog.models():
        keep_alive.watch(loop, model.residents)
    return Services(
        catalog=catalog,
        loader=HotLoader(ground, catalog, keep_alive, wished),
        embeddings=EmbeddingService(catalog, batcher, cache, telemetry),
        entities=EntityService(catalog, batcher, telemetry),
        health=HealthService(catalog, batcher, cache, monitor.report),
        telemetry=telemetry,
        batcher=batcher,
        cache=cache,
        driver=driver,
        monitor=monitor,
        keep_alive=keep_alive,
        limits=_limits(settings),
        facts=ground.facts,
        placements=ground.placements,
        drain_s=settings.limit_drain_s,
    )


def survey(
    settings: Settings, telemetry: Telemetry, driver: DriverSource, *, gpu: int | None = None, ask: Ask | None = None
) -> Ground:
    """Look at the machine, choose the devices, and set their memory ceilings.

    Raises: DeviceUnavailable when an explicit wish cannot be granted.
    """
    wishes = wishes_of(settings, gpu=gpu)
    facts = probe(
        look_for_gpu=wants_gpu(wishes),
        driver=driver,
        visible=settings.cuda_visible_devices,
        order=settings.cuda_device_order,
    )
    file = ChoiceFile(settings.state_dir / CHOICE_FILE)
    saved = file.load()
    if ask is not None and saved is None and is_open(facts, wishes):
        saved = ask(facts, file)
    placements = place_all(facts, wishes, saved)
    process.adopt(facts, wishes, saved)  # for guards and doors: "auto" is then what was chosen here
    for placement in placements:
        _log_reasons("device chosen", placement.why)
        if placement.type is not DeviceType.CPU:
            _log_reasons("memory ceiling", (apply_ceiling(placement.device, placement.memory_bytes),))
    return Ground(facts, placements, TunedSettings(settings.state_dir / TUNING_FILE), telemetry)


def wishes_of(settings: Settings, *, gpu: int | None = None) -> Wishes:
    """What the operator asked for about the device."""
    return Wishes(
        settings.device, settings.use_gpu, settings.lanes, gpu=gpu, memory_fraction=settings.gpu_memory_fraction
    )


def api_options(settings: Settings) -> ApiOptions:
    """How the edge behaves."""
    return ApiOptions(api_keys=settings.api_keys, cors_origins=settings.cors_origins, version=__version__)


def _wished(settings: Settings) -> dict[str, ModelWish]:
    """What is asked for by task; the source of one that is not configured is empty."""
    wish = Wish(settings.precision, settings.runtime, settings.batch_tokens)
    source = settings.embedding_model or PROFILES[settings.model_profile]
    return {
        EMBEDDINGS: ModelWish(source, wish, settings.model_aliases),
        NER: ModelWish(settings.ner_model or "", wish, task=NER),
    }


def _load(ground: Ground, wished: Mapping[str, ModelWish]) -> Catalog:
    """Load every configured model, one after the other: each may measure, which needs the machine to itself."""
    models = [load_model(ground, one) for one in wished.values() if one.source]
    for model in models:
        _log_reasons("model loaded", model.choice.why)
    return Catalog(*models)


def _limits(settings: Settings) -> ApiLimits:
    return ApiLimits(
        inputs=settings.limit_inputs,
        text_chars=settings.limit_text_chars,
        body_bytes=settings.limit_body_bytes,
        request_s=settings.limit_request_s,
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
    return TieredCache(MemoryCache(settings.cache_memory_bytes), remote, telemetry)


def _monitor(ground: Ground, catalog: Catalog, driver: DriverSource) -> DeviceMonitor:
    telemetry = ground.telemetry
    kind = ground.placements[0].type

    def batch_bytes(device: str) -> int | None:
        devices = [placement.device for placement in ground.placements]
        model = catalog.embedding()
        engine = model.engine.on(devices.index(device))
        return engine.room.batch_bytes(engine.budget, model.spec.max_tokens)

    return DeviceMonitor(
        ground.facts,
        ground.placements,
        driver=driver if kind is DeviceType.CUDA else None,
        torch_source=Torch() if kind is not DeviceType.CPU else None,
        batch_bytes=batch_bytes,
        counters=lambda: {name: telemetry.total(name) for name in _DEVICE_COUNTERS},
        on_alert=lambda device, alert: telemetry.device_alerts_total.labels(device, alert.kind.value).inc(),
    )


def _describe(ground: Ground, catalog: Catalog, monitor: DeviceMonitor) -> None:
    """Open the series whose labels are known only now; a model may be hot-loaded for any task."""
    telemetry = ground.telemetry
    for model in catalog.models():
        show_model(telemetry, model)
    for series in ("inputs_total", "tokens_total", "batch_duration_seconds", "nonfinite_outputs_total"):
        telemetry.open_series(series, TASKS)
    telemetry.open_series("oom_recoveries_total", TASKS, OOM_ACTIONS)
    telemetry.open_series("precision_fallbacks_total", [EMBEDDINGS], RESCUES)
    for placement in ground.placements:
        device = placement.device
        telemetry.open_series("device_alerts_total", [device], DEVICE_ALERTS)
        used, total = telemetry.device_memory_used_bytes, telemetry.device_memory_total_bytes
        used.labels(device).set_function(partial(_used_bytes, ground.facts, placement))
        total.labels(device).set_function(partial(_total_bytes, ground.facts, placement))
        if placement.type is DeviceType.CUDA:
            telemetry.device_headroom_batches.labels(device).set_function(partial(_headroom_batches, monitor, device))


def _used_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).used_bytes


def _total_bytes(facts: MachineFacts, placement: Placement) -> float:
    return memory(facts, placement).total_bytes


def _headroom_batches(monitor: DeviceMonitor, device: str) -> float:
    batches = monitor.headroom(device).batches
    return math.nan if batches is None else batches


def _log_reasons(event: str, reasons: tuple[str, ...]) -> None:
    for reason in reasons:
        log_event(_log, logging.INFO, event, why=reason)
