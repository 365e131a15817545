"""Builds what replicas share from the settings: in PostgreSQL where search uses it, else in Redis, else nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from backend.config import Settings
from backend.documents.extractors import FOLDER as EXTRACTORS
from backend.documents.extractors import ExtractorStore, FolderExtractors, SharedExtractors
from backend.replicas.records import SharedRecords
from backend.replicas.redis_records import RedisRecords
from backend.replicas.rollout import CRASHES_MAX, FOLDER, ModelRollout, NoRollout, RolloutFile, Target, targets_at_start
from backend.search.postgres.shared_records import PostgresRecords
from backend.serving.catalog import Catalog
from backend.serving.loading import ModelRequest
from backend.serving.model_swap import ModelSwapper
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from backend.text.classifier_store import ClassifierStore, FolderStore
from backend.text.classifiers import ClassifierRegistry
from backend.text.shared_classifiers import SharedClassifiers


@dataclass(frozen=True, slots=True)
class SharedState:
    """The store of shared records and what was wished at the start; ``records`` is None where nothing is shared."""

    records: SharedRecords | None
    file: RolloutFile
    targets: Mapping[str, Target] = field(default_factory=dict)

    async def loaded(self, load: Callable[[], Catalog]) -> Catalog:
        """The models, loaded on a thread. What ends the process on the way is not loaded for ever (`RolloutFile`)."""
        loadings = [
            await asyncio.to_thread(self.file.begin, task, target.version) for task, target in self.targets.items()
        ]
        try:
            return await asyncio.to_thread(load)
        finally:
            for loading in loadings:
                loading.end()  # also when another model's fault ends the start

    def classifier_store(self, registry: ClassifierRegistry, supervisor: Supervisor) -> ClassifierStore:
        """Where taught classifiers are kept."""
        return FolderStore(registry) if self.records is None else SharedClassifiers(registry, self.records, supervisor)

    def extractors(self, state_dir: Path) -> ExtractorStore:
        """Where taught extractors are kept."""
        return FolderExtractors(state_dir / EXTRACTORS) if self.records is None else SharedExtractors(self.records)

    def rollout(
        self,
        catalog: Catalog,
        loader: ModelSwapper,
        requests: Mapping[str, ModelRequest],
        telemetry: Telemetry,
        supervisor: Supervisor,
    ) -> ModelRollout | NoRollout:
        """What follows the models that all replicas shall serve."""
        if self.records is None:
            return NoRollout()
        sources = {task: request.source for task, request in requests.items()}
        return ModelRollout(self.records, catalog, loader, sources, self.file, telemetry, supervisor)


async def open_shared_state(settings: Settings, on_failure: AsyncExitStack) -> SharedState:
    """The store, and what it wishes. One that is away is tried again later.

    Args:
        on_failure: closes the store where the start ends before there are services to do so.

    Raises: BadSettings for a bad URL; SetupError for a server that cannot be used.
    """
    file = RolloutFile(settings.state_dir / FOLDER)
    records: SharedRecords
    if settings.search_url is not None:
        records = PostgresRecords(settings.search_url)
    elif settings.redis_url is not None:
        records = RedisRecords(settings.redis_url, settings.cache_prefix)
    else:
        return SharedState(None, file)
    on_failure.push_async_callback(records.close)
    await records.start()
    targets = await targets_at_start(records, file)
    crashes = {task: await asyncio.to_thread(file.crashes, task, target.version) for task, target in targets.items()}
    return SharedState(records, file, {task: targets[task] for task in targets if crashes[task] < CRASHES_MAX})
