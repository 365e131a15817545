"""What takes work items of engines: the batcher of this process, or in an HTTP worker the way to another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from backend.lanes.engine import Engine
from backend.lanes.work_item import Priority, WorkItem


class Submitter(Protocol):
    """The part of a `Batcher` that services of texts use. Belongs to the loop's thread."""

    @property
    def limit_tokens(self) -> int:
        """LIMIT_QUEUE_TOKENS: more of them are never admitted together."""

    @property
    def bulk_tokens(self) -> int:
        """How many tokens bulk work should submit at once, so that it fits beside what already waits."""

    def submit(
        self,
        engine: Engine,
        payloads: Sequence[Any],
        costs: Sequence[int],
        *,
        priority: Priority = ...,
        deadline_s: float = ...,
    ) -> list[WorkItem]:
        """Queue one work item per payload, all of them or none, and return at once.

        What `Batcher.submit` raises is raised here, or ends the items' futures.
        """

    def promote(self, item: WorkItem, priority: Priority) -> None:
        """Raise a queued item to the priority of a caller that has joined it."""
