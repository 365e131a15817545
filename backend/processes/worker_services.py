"""What an HTTP worker serves by itself: tasks on texts, which need a tokenizer, caches and lanes, but no state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from backend.api.dependencies import ApiLimits
from backend.api.dependencies import Services as ApiServices
from backend.bootstrap.metering import Metering, worker_metering
from backend.bootstrap.services import limits_of, start_cache, text_limits
from backend.bootstrap.tracing import open_telemetry
from backend.callers.callers import KeyRing
from backend.callers.quotas import Meters
from backend.config import Settings
from backend.errors import ModelUnavailable
from backend.lanes.cache.store import VectorCache
from backend.lanes.idle_trim import IdleTrim
from backend.lanes.inference import Inference
from backend.lanes.text_work import TextWork
from backend.models.fingerprint import tokenizer_digest
from backend.models.tokenizer import tokenizer_of
from backend.processes.control import Models
from backend.processes.remote_batcher import RemoteBatcher
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.pending_models import PendingModels
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService
from backend.text.entities import EntityService
from backend.text.neutral_vectors import NeutralVectors
from backend.text.similarity import SimilarityService

# The routes that use nothing but these services. All others are the service process's.
LOCAL_ROUTES = frozenset(
    ("POST", path)
    for path in (
        "/v1/embeddings",
        "/v1/entities",
        "/v1/similarity",
        "/v1/embed",
        "/v2/embed",
        "/embed",
        "/similarity",
        "/tokenize",
        "/embeddings",
    )
)


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """The services of one HTTP worker: those of ``LOCAL_ROUTES``."""

    catalog: Catalog
    inference: Inference
    embeddings: EmbeddingService
    entities: EntityService
    similarity: SimilarityService
    telemetry: Telemetry
    metering: Metering
    cache: VectorCache
    limits: ApiLimits

    @property
    def text_work(self) -> TextWork:
        return self.inference.text_work

    @property
    def meters(self) -> Meters:
        return self.metering.meters

    def for_api(self) -> ApiServices:
        """As ``create_app`` takes them; routes that need others are never reached here."""
        return cast("ApiServices", self)

    async def take_models(self, models: Models) -> None:
        """Serve these models from the next request on. Raises: ModelUnavailable where files were changed."""
        for model in await asyncio.to_thread(_with_tokenizers, models.loaded):
            self.catalog.replace(model)
        self.catalog.pending = PendingModels(models.pending)

    async def hand_over(self) -> None:
        """There is no background work to hand over."""

    async def close(self) -> None:
        """End threads and connections."""
        await self.metering.close()
        self.inference.close()
        await self.cache.close()
        await self.telemetry.tracer.close()


async def build_worker_services(
    settings: Settings, models: Models, batcher: RemoteBatcher, ring: KeyRing
) -> WorkerServices:
    """The services over models whose engines run in the service process.

    Raises: ModelUnavailable where a model's files are not those of the service process any more.
    """
    telemetry = open_telemetry(settings)
    supervisor = Supervisor(telemetry)
    loaded = await asyncio.to_thread(_with_tokenizers, models.loaded)
    catalog = Catalog(*loaded, pending=PendingModels(models.pending))
    cache = await start_cache(share_cache(settings), telemetry, supervisor)
    text_work = TextWork(telemetry, text_limits(settings), idle_trim=IdleTrim(supervisor=supervisor))
    inference = Inference(batcher, cache, telemetry, text_work)
    embeddings = EmbeddingService(catalog, inference, cache, telemetry)
    metering = worker_metering(settings, telemetry, ring)
    metering.start(supervisor)
    return WorkerServices(
        catalog=catalog,
        inference=inference,
        embeddings=embeddings,
        entities=EntityService(catalog, inference, telemetry),
        similarity=SimilarityService(embeddings, NeutralVectors(embeddings)),
        telemetry=telemetry,
        metering=metering,
        cache=cache,
        limits=limits_of(settings),
    )


def share_cache(settings: Settings) -> Settings:
    """CACHE_MEMORY_BYTES divided among the processes that have a cache: each worker and the service process."""
    processes = settings.server_processes + 1 if settings.server_processes > 1 else 1
    return settings.model_copy(update={"cache_memory_bytes": settings.cache_memory_bytes // processes})


def _with_tokenizers(loaded: Sequence[LoadedModel]) -> list[LoadedModel]:
    for spec in (model.spec for model in loaded):
        if tokenizer_digest(spec.folder / "tokenizer.json") != spec.tokenizer_sha256:
            raise ModelUnavailable(
                f"the tokenizer of {spec.name} in {spec.folder} has changed since the model was loaded; restart the "
                "service, or load it with POST /admin/models"
            )
    return [replace(model, tokenizer=tokenizer_of(model.spec)) for model in loaded]
