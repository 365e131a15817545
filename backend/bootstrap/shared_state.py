"""Builds what replicas share from the settings: in PostgreSQL where search uses it, else in Redis, else nothing.

Taught classifiers and extractors lie there too, or in STATE_DIR; what is found in the other place is taken over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from backend.config import Settings
from backend.documents import extractors
from backend.documents.extractors import EXTRACTORS_MAX, read_extractor
from backend.errors import InvalidField, ModelUnavailable, Unavailable
from backend.models.classifier_head import pack_head, read_head
from backend.replicas.folder_records import FolderRecords
from backend.replicas.records import Records, SharedRecords, new_id, take_over
from backend.replicas.redis_records import RedisRecords
from backend.replicas.rollout import CRASHES_MAX, FOLDER, ModelRollout, NoRollout, RolloutFile, Target, targets_at_start
from backend.search.postgres.shared_records import PostgresRecords
from backend.serving.catalog import Catalog
from backend.serving.loading import ModelRequest
from backend.serving.model_swap import ModelSwapper
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event
from backend.text import classifier_store
from backend.text.classifier_files import folders, pack_examples, read_examples, read_owner, recover
from backend.text.classifier_store import head_part, record_header
from backend.text.classifiers import CLASSIFIERS_MAX

_log = logging.getLogger(__name__)
TAUGHT = "taught"  # in STATE_DIR
_TAKEN_OVER = ".taken-over"
_TAKE_OVER_S = 10.0
# What is taken over of each kind: heads are learnt again from their examples.
_KINDS = (
    (classifier_store.KIND, (classifier_store.EXAMPLES,), CLASSIFIERS_MAX),
    (extractors.KIND, (extractors.PART,), EXTRACTORS_MAX),
)


_Record = tuple[str, bytes, dict[str, bytes]]  # name, header, parts


@dataclass(frozen=True, slots=True)
class SharedState:
    """The store of shared records and what was wished at the start; ``records`` is None where nothing is shared."""

    records: SharedRecords | None
    taught: Records  # where taught classifiers and extractors are kept
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
    file, kept = RolloutFile(settings.state_dir / FOLDER), FolderRecords(settings.state_dir / TAUGHT)
    await _take_over_folders(settings.state_dir, kept)
    records: SharedRecords
    if settings.search_url is not None:
        records = PostgresRecords(settings.search_url)
    elif settings.redis_url is not None:
        records = RedisRecords(settings.redis_url, settings.cache_prefix)
    else:
        return SharedState(None, kept, file)
    on_failure.push_async_callback(records.close)
    await records.start()
    targets = await targets_at_start(records, file)
    crashes = {task: await asyncio.to_thread(file.crashes, task, target.version) for task, target in targets.items()}
    taught = await _taught(settings, kept, records)
    return SharedState(records, taught, file, {task: targets[task] for task in targets if crashes[task] < CRASHES_MAX})


async def _taught(settings: Settings, kept: FolderRecords, shared: SharedRecords) -> Records:
    """Where what is taught is kept, and what the other place has with it (if it is away, at the next start)."""
    source, target = (shared, kept) if settings.taught_in == "state" else (kept, shared)
    try:
        async with asyncio.timeout(_TAKE_OVER_S):
            for kind, parts, limit in _KINDS:
                if names := await take_over(kind, parts, source, target, limit):
                    log_event(_log, logging.INFO, "what was taught is taken over", kind=kind, names=names)
                if source is kept:
                    await kept.set_aside(kind)  # once: what the shared store loses later stays lost for all alike
    except (Unavailable, TimeoutError) as error:
        message = "what was taught is taken over at the next start"
        log_event(_log, logging.WARNING, message, source=source.address, reason=error)
    return target


async def _take_over_folders(state_dir: Path, kept: FolderRecords) -> None:
    """Keep what earlier releases were taught, which had a folder for each kind; these are renamed."""
    for kind, read in ((classifier_store.KIND, _old_classifiers), (extractors.KIND, _old_extractors)):
        folder = state_dir / kind
        try:
            for name, header, parts in await asyncio.to_thread(read, folder):
                with suppress(InvalidField):  # a folder that was never taught
                    await kept.write(kind, name, new_id(), expected=None, header=header, parts=parts)
            if folder.is_dir():
                folder.rename(folder.with_name(kind + _TAKEN_OVER))
        except (Unavailable, OSError) as error:
            message = "what an earlier release was taught cannot be taken over"
            log_event(_log, logging.WARNING, message, folder=folder, reason=error)


def _old_classifiers(root: Path) -> list[_Record]:
    recover(root)
    records = []
    for folder in folders(root):
        with suppress(ModelUnavailable):
            parts = {classifier_store.EXAMPLES: pack_examples(read_examples(folder))}
            with suppress(ModelUnavailable):
                head = read_head(folder)
                parts[head_part(head)] = pack_head(head)
            records.append((folder.name, record_header(read_owner(folder)), parts))
    return records


def _old_extractors(root: Path) -> list[_Record]:
    found = [extractor for file in sorted(root.glob("*.json")) if (extractor := read_extractor(file)) is not None]
    return [(extractor.name, b"", {extractors.PART: extractor.packed()}) for extractor in found]
