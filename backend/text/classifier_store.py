"""Where taught classifiers are kept: in a folder of this process alone, or where all replicas share them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backend.abandoned import run_to_end
from backend.callers.callers import Caller
from backend.models.classifier_head import ClassifierHead
from backend.replicas.records import Version
from backend.text.classifier_files import Example
from backend.text.classifiers import Classifier, ClassifierRegistry


class ClassifierStore(Protocol):
    """Changes the classifiers of a registry and keeps them. Belongs to the loop; its callers take turns at changes."""

    @property
    def registry(self) -> ClassifierRegistry: ...

    def watch(self, on_waiting: Callable[[], None]) -> None:
        """Call ``on_waiting`` when another replica has taught what must be learnt for this embedding model first."""

    async def start(self) -> None:
        """Know what there is, as far as that can be known within seconds."""

    async def close(self) -> None: ...

    async def refresh(self) -> None:
        """Know what other replicas have changed until now. Raises: Unavailable where that cannot be known."""

    async def save(self, name: str, head: ClassifierHead, examples: Sequence[Example], caller: Caller) -> Classifier:
        """Raises: as ClassifierRegistry.save."""

    async def delete(self, name: str, caller: Caller) -> None:
        """Raises: as ClassifierRegistry.delete."""

    async def examples(self, name: str) -> list[Example]:
        """What a classifier was taught with. Raises: NotFound, ModelUnavailable, Unavailable."""

    def version(self, name: str, /) -> Version | None:
        """Tells whether a classifier was taught again meanwhile."""

    async def head_of_others(self, name: str, /) -> ClassifierHead | None:
        """What another replica has learnt from the same examples for this embedding model."""

    async def save_learnt_again(
        self, name: str, head: ClassifierHead, examples: Sequence[Example], version: Version | None, /
    ) -> None:
        """Use a head that was learnt from the examples of this version; for others too. Raises: Unavailable."""

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""

    def degraded(self) -> tuple[str, ...]:
        """What fails, for GET /health; empty while all is well."""


@dataclass(frozen=True, slots=True)
class FolderStore:
    """The folder ``STATE_DIR/classifiers``, of one process."""

    registry: ClassifierRegistry

    def watch(self, on_waiting: Callable[[], None]) -> None:
        """Nobody else teaches."""

    async def start(self) -> None:
        """The registry has read the folder."""

    async def close(self) -> None:
        """Nothing is open."""

    async def refresh(self) -> None:
        """Everything is known."""

    async def save(self, name: str, head: ClassifierHead, examples: Sequence[Example], caller: Caller) -> Classifier:
        return await run_to_end(lambda: self.registry.save(name, head, examples, caller))

    async def delete(self, name: str, caller: Caller) -> None:
        await asyncio.to_thread(self.registry.delete, name, caller)

    async def examples(self, name: str) -> list[Example]:
        return await asyncio.to_thread(self.registry.examples, name)

    def version(self, _name: str) -> Version | None:
        return None

    async def head_of_others(self, _name: str) -> ClassifierHead | None:
        return None

    async def save_learnt_again(
        self, name: str, head: ClassifierHead, examples: Sequence[Example], _version: Version | None
    ) -> None:
        await run_to_end(lambda: self.registry.save(name, head, examples))

    def report(self) -> dict[str, Any]:
        return {"store": "folder", "why": "neither REDIS_URL nor SEARCH_URL is set: only this process has them"}

    def degraded(self) -> tuple[str, ...]:
        return ()
