"""The composition root: Settings in, running Services out. Nothing else knows both."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
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
from backend.device import monitor
from backend.device.facts import MachineFacts, probe
from backend.device.plan import Placement, Wishes, place, wants_gpu
from backend.device.profile import TunedSettings
from backend.ml.embeddings import EmbeddingEngine
from backend.models.bench import warm_up
from backend.models.selection import Selector, Wish
from backend.models.store import BUNDLED, resolve
from backend.models.tokens import TextTokenizer
from backend.services.catalog import Catalog, LoadedModel, names_of
from backend.services.embeddings import TASK, EmbeddingService
from backend.services.health import HealthService
from backend.telemetry import Telemetry, log_event

_log = logging.getLogger(__name__)
PROFILES = {"bundled": BUNDLED, "multilingual": "sentence-transformers/paraphrase-multilingual-mpnet-base-v2"}
TUNING_FILE = "tuning.json"


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that runs, for the API."""

    catalog: Catalog
    embeddings: EmbeddingService
    health: HealthService
    telemetry: Telemetry
    batcher: Batcher
    cache: VectorCache
    limits: ApiLimits
    facts: MachineFacts
    placement: Placement
    drain_s: float

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason."""
        return {
            "version": __version__,
            "machine": asdict(self.facts),
            "placement": asdict(self.placement),
            "models": [model.report() for model in self.catalog.models()],
            "lanes": asdict(self.batcher.status()),
            "cache": asdict(self.cache.status()),
            "limits": asdict(self.limits),
        }

    async def close(self) -> None:
        """Finish what was accepted, then let everything go."""
        await self.batcher.drain(self.drain_s)
        self.embeddings.close()
        await self.cache.close()


async def build(settings: Settings) -> Services:
    """Load the models and start the lanes.

    Raises: SetupError (DeviceUnavailable, ModelUnavailable) with the reason; nothing is left running then.
    """
    wishes = Wishes(settings.device, settings.use_gpu, settings.lanes)
    facts = await asyncio.to_thread(probe, look_for_gpu=wants_gpu(wishes))
    placement = place(facts, wishes)
    _log_reasons("device chosen", placement.why)
    model = await asyncio.to_thread(_load_embedding, settings, facts, placement)
    _log_reasons("model loaded", model.choice.why)
    telemetry = Telemetry()
    _describe(telemetry, facts, model)
    cache = _cache(settings, telemetry)
    await cache.start()
    batcher = Batcher(placement.lanes, QueueLimits(settings.limit_queue_tokens), telemetry, depth=placement.depth)
    batcher.start(asyncio.get_running_loop())
    catalog = Catalog(model)
    return Services(
        catalog=catalog,
        embeddings=EmbeddingService(catalog, batcher, cache, telemetry),
        health=HealthService(catalog, batcher, cache, facts),
        telemetry=telemetry,
        batcher=batcher,
        cache=cache,
        limits=ApiLimits(
            inputs=settings.limit_inputs,
            text_chars=settings.limit_text_chars,
            body_bytes=settings.limit_body_bytes,
            request_s=settings.limit_request_s,
        ),
        facts=facts,
        placement=placement,
        drain_s=settings.limit_drain_s,
    )


def api_options(settings: Settings) -> ApiOptions:
    """How the edge behaves."""
    return ApiOptions(api_keys=settings.api_keys, cors_origins=settings.cors_origins, version=__version__)


def _load_embedding(settings: Settings, facts: MachineFacts, placement: Placement) -> LoadedModel:
    spec = resolve(settings.embedding_model or PROFILES[settings.model_profile])
    tokenizer = TextTokenizer(
        spec.folder / "tokenizer.json", max_tokens=spec.max_tokens, vocabulary_size=spec.shape.vocabulary_size
    )
    selector = Selector(facts, placement, TunedSettings(settings.state_dir / TUNING_FILE))
    encoder, choice = selector.select(
        spec, tokenizer, Wish(settings.precision, settings.runtime, settings.batch_tokens)
    )
    warm_up(encoder, spec.max_tokens)
    return LoadedModel(
        spec=spec,
        tokenizer=tokenizer,
        engine=EmbeddingEngine(encoder, spec.pooling, choice.budget),
        placement=placement,
        choice=choice,
        names=names_of(spec, settings.model_aliases),
        created_s=datetime.now(UTC).timestamp(),
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


def _describe(telemetry: Telemetry, facts: MachineFacts, model: LoadedModel) -> None:
    """Open the series whose labels are known only now."""
    telemetry.model_info.labels(model.name, model.runtime, model.dtype, model.device).set(1)
    for counter in ("inputs_total", "tokens_total"):
        telemetry.open_series(counter, [TASK])
    telemetry.open_series("batch_duration_seconds", [model.engine.name])
    used, total = telemetry.device_memory_used_bytes, telemetry.device_memory_total_bytes
    used.labels(model.device).set_function(lambda: monitor.memory(facts, model.placement).used_bytes)
    total.labels(model.device).set_function(lambda: monitor.memory(facts, model.placement).total_bytes)


def _log_reasons(event: str, reasons: tuple[str, ...]) -> None:
    for reason in reasons:
        log_event(_log, logging.INFO, event, why=reason)
