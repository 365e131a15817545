"""Computes what scores start from before the first search: a hundred neutral texts take a CPU about a second."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from backend.abandoned import end_tasks
from backend.errors import FinanciaError
from backend.lanes.inference import Urgency
from backend.lanes.work_item import Priority
from backend.search.encoder import PASSAGE, QUERY
from backend.search.storage import SearchStorage
from backend.serving.catalog import Catalog, LoadedModel
from backend.supervision import Supervisor
from backend.telemetry import log_event
from backend.text.neutral_vectors import NeutralVectors

_log = logging.getLogger(__name__)


class WarmUp:
    """Once a model: at the start where there is something to search, else when the first file is added.

    Used on the event loop only. A process that nobody searches in computes nothing.
    """

    def __init__(
        self, storage: SearchStorage, neutral: NeutralVectors, catalog: Catalog, supervisor: Supervisor
    ) -> None:
        self._storage, self._neutral = storage, neutral
        self._catalog, self._supervisor = catalog, supervisor
        self._model: LoadedModel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._supervisor.run("warm_search", self._begin)

    def wake(self) -> None:
        """Somebody will search soon."""
        model = self._catalog.embedding()
        if model is not self._model:
            self._model = model
            self._task = self._supervisor.run("warm_search", partial(self._work, model))

    async def close(self) -> None:
        await end_tasks(self._task)

    async def _begin(self) -> None:
        try:
            stored = await self._storage.totals()
        except FinanciaError:
            return  # a file that is added later, or the first search, tells
        if stored.chunks:
            self.wake()

    async def _work(self, model: LoadedModel) -> None:
        try:
            await self._neutral.unrelated_cosine(model, QUERY, PASSAGE, Urgency(Priority.BULK))
        except FinanciaError as error:
            self._model = None  # the next file tries again, and the first search does it else
            log_event(_log, logging.INFO, "search not warmed up", why=type(error).__name__)
