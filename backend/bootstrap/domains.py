"""What the domains are built on, and a domain whose model may come later than the start."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from backend.bootstrap.metering import Metering
from backend.config import Settings
from backend.files.file_readers import FileReaders
from backend.lanes.batcher import Batcher
from backend.lanes.cache.store import VectorCache
from backend.lanes.memory_keeper import IdleTrim
from backend.serving.loading import LoadContext
from backend.serving.model_swap import IdleUnloader
from backend.serving.pending_models import ModelRetry, PendingModel, PendingModels
from backend.supervision import Supervisor
from backend.telemetry import log_event

Files = TypeVar("Files")
Model = TypeVar("Model")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """What every domain is built on."""

    settings: Settings
    context: LoadContext
    cache: VectorCache
    model_lanes: Batcher  # of the device
    page_lanes: Batcher  # on the CPU, at low priority: a page or a piece takes a second, and no text should wait for it
    readers: FileReaders
    idle_trim: IdleTrim
    unloader: IdleUnloader
    metering: Metering
    supervisor: Supervisor


@dataclass(frozen=True, slots=True)
class Found(Generic[Model]):
    """A domain's model at the start, or why there is none."""

    model: Model | None
    why_none: str = ""
    is_missing: bool = False  # it should be there: /health tells
    comes_later: bool = False  # the hub could not be reached; it is asked again

    def pending(self, task: str, source: str, names: Sequence[str] = ()) -> PendingModels:
        """The model that comes later, tried again after the first pause; nothing where none does."""
        if not self.comes_later:
            return PendingModels(())
        pending = PendingModel(task, source, tuple(names), reason=self.why_none, serving=None)
        pending.failed(self.why_none, time.monotonic())
        return PendingModels([pending])


class _Service(Protocol):
    def report(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


Service = TypeVar("Service", bound=_Service)


class OwnModelDomain(Generic[Service, Files, Model]):
    """A service with a model of its own, what is wrong with it, and what mends it. On the event loop.

    Args:
        resolve: brings the files of a source; on a thread.
        load: makes a model of them; on a thread.
        serve: takes the model.
        models: rows of GET /health.
    """

    def __init__(
        self,
        service: Service,
        found: Found[Any],
        pending: PendingModels,
        *,
        resolve: Callable[[str], Files],
        load: Callable[[Files], Model],
        serve: Callable[[Model], None],
        models: Callable[[], list[dict[str, object]]],
        supervisor: Supervisor,
    ) -> None:
        self.service, self.pending, self.models = service, pending, models
        self._missing = (found.why_none,) if found.is_missing and not found.comes_later else ()
        self._resolve, self._load, self._serve, self._supervisor = resolve, load, serve, supervisor
        self._retry = ModelRetry(pending, self.fulfil, fetch=lambda source, _task: resolve(source))

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        return self.service.report()

    def degraded(self) -> tuple[str, ...]:
        """For GET /health."""
        return (*self.pending.sentences(), *self._missing)

    async def fulfil(self, pending: PendingModel) -> None:
        """Let a model serve that the hub gave after the start."""
        files = await asyncio.to_thread(self._resolve, pending.source)
        self._serve(await asyncio.to_thread(self._load, files))
        self.pending.settle(pending.task)
        log_event(_log, logging.INFO, "model fetched", task=pending.task, model=pending.source)

    def start(self) -> None:
        """Ask the hub again for a model that it did not give."""
        self._retry.start(self._supervisor)

    def close(self) -> None:
        self._retry.stop()
        self.service.close()
