"""The engines of the service process by the numbers that HTTP workers know them by."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from backend.lanes.engine import Engine
from backend.models.tokenizer import TextTokenizer
from backend.processes.control import Models
from backend.processes.remote_batcher import RemoteEngine
from backend.serving.catalog import Catalog, LoadedModel


class EngineTable:
    """Numbers that are never given twice. An engine stays until no worker names it any more."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.engines: dict[int, Engine] = {}
        self._versions: dict[int, tuple[int, ...]] = {}  # the engines of each version
        self._version = 0
        self._next = 1

    def describe(self) -> Models:
        """The models that serve now, under a new version."""
        self._version += 1
        before = set(self.engines)
        loaded = tuple(self._described(model) for model in self._catalog.models())
        self._versions[self._version] = tuple(set(self.engines) - before)
        return Models(self._version, loaded, self._catalog.pending.models())

    def forget_before(self, version: int) -> None:
        """All workers name engines of this version or later ones."""
        for old in [number for number in self._versions if number < version]:
            for engine_id in self._versions.pop(old):
                del self.engines[engine_id]

    def _described(self, model: LoadedModel) -> LoadedModel:
        return replace(
            model,
            engine=self._add(model.engine),
            token_engine=self._add(model.token_engine),
            tokenizer=cast("TextTokenizer", None),  # each worker reads its own
            residents=(),
        )

    def _add(self, engine: Engine) -> RemoteEngine:
        engine_id, self._next = self._next, self._next + 1
        self.engines[engine_id] = engine
        return RemoteEngine(engine_id, engine.name, engine.budget, engine.padding_cost, engine.launch_cost)
