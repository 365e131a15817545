"""What every route can reach: the services, the limits, and the context of the request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from starlette.requests import Request

from backend.api.traffic import Traffic
from backend.callers.callers import ANYBODY, Caller, LiveKeys, Quotas
from backend.callers.quotas import NO_METER, Meter, Meters
from backend.callers.usage import UsageService
from backend.documents.service import DocumentService
from backend.files.limits import FileLimits
from backend.images.classification import ImageClassificationService
from backend.jobs.service import JobService
from backend.lanes.cache.scope import CacheScope
from backend.lanes.inference import Timing
from backend.lanes.text_work import TextWork
from backend.replicas.model_wishes import AloneWithModels, ModelWishes
from backend.search.files import FileService
from backend.search.retrieval import SearchService
from backend.search.vector_stores import VectorStoreService
from backend.serving.catalog import Catalog
from backend.serving.health import HealthService
from backend.serving.model_swap import ModelSwapper
from backend.speech.transcription import TranscriptionService
from backend.summaries.service import SummaryService
from backend.telemetry import Telemetry
from backend.text.analysis import AnalysisService
from backend.text.classification import ClassificationService
from backend.text.embeddings import EmbeddingService
from backend.text.entities import EntityService
from backend.text.reranking import RerankService
from backend.text.similarity import SimilarityService

CONTEXT_KEY = "financia.request_context"  # in the ASGI scope


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits of one request; each field is the setting LIMIT_<NAME>."""

    inputs: int = 2048
    labels: int = 1000  # of one request or classifier
    text_chars: int = 1_000_000  # of one text
    tokenize_tokens: int = 1_000_000  # that one POST /tokenize is answered with
    body_bytes: int = 16 * 2**20
    request_s: float = 60.0
    transcription_s: float = 600.0  # instead of request_s, of /v1/audio


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Options of the HTTP layer, whatever services are behind it."""

    api_keys: tuple[str, ...] = ()  # as in API_KEYS; without these and admin_keys no key is asked for
    admin_keys: tuple[str, ...] = ()  # as in ADMIN_KEYS
    quotas: Quotas = field(default_factory=Quotas)  # of each caller of api_keys
    keys: LiveKeys | None = None  # in place of the three above; which of them may change while the app serves
    cache_scope: CacheScope = "service"  # as CACHE_SCOPE
    cors_origins: tuple[str, ...] = ()  # empty: CORS is off
    allowed_hosts: tuple[str, ...] = ()  # names of this service that are not private, while there are no keys
    traffic: Traffic = field(default_factory=Traffic)  # which the connections of the server count too
    version: str = "0.1.0"


class Services(Protocol):
    """The services that routes call; ``backend.bootstrap.services.Services`` implements it."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def embeddings(self) -> EmbeddingService: ...

    @property
    def entities(self) -> EntityService: ...

    @property
    def classification(self) -> ClassificationService: ...

    @property
    def reranking(self) -> RerankService: ...

    @property
    def similarity(self) -> SimilarityService: ...

    @property
    def analysis(self) -> AnalysisService: ...

    @property
    def summaries(self) -> SummaryService: ...

    @property
    def speech(self) -> TranscriptionService: ...

    @property
    def images(self) -> ImageClassificationService: ...

    @property
    def text_work(self) -> TextWork: ...

    @property
    def documents(self) -> DocumentService: ...

    @property
    def jobs(self) -> JobService: ...

    @property
    def files(self) -> FileService: ...

    @property
    def vector_stores(self) -> VectorStoreService: ...

    @property
    def search(self) -> SearchService: ...

    @property
    def file_limits(self) -> FileLimits: ...

    @property
    def health(self) -> HealthService: ...

    @property
    def loader(self) -> ModelSwapper: ...

    @property
    def model_wishes(self) -> ModelWishes | AloneWithModels: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def meters(self) -> Meters: ...

    @property
    def usage(self) -> UsageService: ...

    @property
    def limits(self) -> ApiLimits: ...

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason, ready to be written as JSON."""


@dataclass(slots=True)
class RequestContext:
    """What the middleware knows of a request, and what routes report to it."""

    request_id: str  # the caller's X-Request-Id where it is valid; in the answer and in the log
    started_s: float  # perf_counter
    headers: dict[bytes, bytes]  # names in lower case; of a repeated header the last value
    status: int = 0  # of the response; set when it starts
    timing: Timing | None = None  # set by routes that run inference
    caller: Caller = ANYBODY  # whose key it carries
    meter: Meter = NO_METER  # counts what the caller uses
    arrived_s: float = field(default_factory=time.monotonic)  # when its headers were there; deadlines count from here
    stages: tuple[tuple[str, float], ...] = ()  # set by routes with other stages: names of telemetry.STAGES, seconds


def context_of(request: Request) -> RequestContext:
    """The context that the middleware made for this request."""
    return cast("RequestContext", request.scope[CONTEXT_KEY])


def services_of(request: Request) -> Services:
    """The services behind this app."""
    return cast("Services", request.app.state.services)
