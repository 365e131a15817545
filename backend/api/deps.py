"""What a route gets: the services below it, the exchange around it, and the limits it keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, cast

from starlette.requests import Request

from backend.documents.parsing.limits import FileLimits
from backend.errors import InvalidField
from backend.jobs.service import JobService
from backend.services.analysis import AnalysisService
from backend.services.catalog import Catalog
from backend.services.classification import ClassificationService
from backend.services.documents.service import DocumentService
from backend.services.embeddings import EmbeddingService
from backend.services.entities import EntityService
from backend.services.health import HealthService
from backend.services.inference import Timing
from backend.services.model_swap import HotLoader
from backend.services.reranking import RerankService
from backend.telemetry import Telemetry

EXCHANGE = "financia.exchange"  # the key of the exchange in the ASGI scope
TIMEOUT_HEADER = b"x-request-timeout-s"


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What one request may ask for; each field is the setting LIMIT_<NAME>."""

    inputs: int = 2048
    labels: int = 1000  # of one request or classifier
    text_chars: int = 1_000_000  # of one text
    body_bytes: int = 16 * 2**20
    request_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How the edge behaves, whatever is behind it."""

    api_keys: tuple[str, ...] = ()  # empty: no key is asked for
    cors_origins: tuple[str, ...] = ()  # empty: CORS is off
    version: str = "0.1.0"


class Services(Protocol):
    """What the composition root hands to the API; ``backend.bootstrap.services.Services`` is one."""

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
    def analysis(self) -> AnalysisService: ...

    @property
    def documents(self) -> DocumentService: ...

    @property
    def jobs(self) -> JobService: ...

    @property
    def file_limits(self) -> FileLimits: ...

    @property
    def health(self) -> HealthService: ...

    @property
    def loader(self) -> HotLoader: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def limits(self) -> ApiLimits: ...

    def system(self) -> dict[str, Any]:
        """Every resolved choice of this process with its reason, ready to be written as JSON."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as the middleware sees them."""

    request_id: str  # the caller's own where it is sane; in the answer and in the log
    started_s: float  # perf_counter
    headers: dict[bytes, bytes]  # of the request, names in lower case; of a repeated one the last
    status: int = 0  # of the answer; set as it starts
    timing: Timing | None = None  # set by a route that asked for inference
    stages: tuple[tuple[str, float], ...] = ()  # set by one whose work has other stages: names of telemetry.STAGES, s


def exchange_of(request: Request) -> Exchange:
    """The exchange that the middleware opened for this request."""
    return cast("Exchange", request.scope[EXCHANGE])


def services_of(request: Request) -> Services:
    """The services behind this app."""
    return cast("Services", request.app.state.services)


def time_limit_s(request: Request, limits: ApiLimits) -> float:
    """Seconds this request may take: LIMIT_REQUEST_S, or less where the caller asks for less.

    Raises: InvalidField when X-Request-Timeout-S is no positive number.
    """
    wish = exchange_of(request).headers.get(TIMEOUT_HEADER)
    if wish is None:
        return limits.request_s
    try:
        wished_s = float(wish)
    except ValueError:
        wished_s = math.nan
    if not (math.isfinite(wished_s) and wished_s > 0):
        raise InvalidField(
            f"X-Request-Timeout-S: must be a positive number of seconds, got '{wish.decode('latin-1')[:40]}'",
            param="X-Request-Timeout-S",
        )
    return min(wished_s, limits.request_s)
