"""The queued work items, one FIFO per engine and priority. No lock and no clock: the batcher has both."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from backend.lanes.engine import Capacity, Engine
from backend.lanes.policy import QueueHead, first_come, lane_budget, lookahead_items, next_batch, next_queue
from backend.lanes.work_item import Priority, WorkItem

Fifo = deque[WorkItem]


@dataclass(slots=True)
class Dequeued:
    """Items that one ``take`` removed from the queue."""

    items: list[WorkItem] = field(default_factory=list)  # to run together now; empty when none is wanted any more
    dropped: list[WorkItem] = field(default_factory=list)  # abandoned or past their deadline


@dataclass(frozen=True, slots=True)
class Turn:
    """The FIFO that a free lane should serve."""

    engine: Engine  # as it was submitted; ``on`` gives the one of the lane's device
    priority: Priority


class WorkQueue:
    """FIFOs of work items; ``take`` cuts the next batch out of one of them.

    An item that is no longer wanted stays until ``take`` would run it or finds it at the front of its FIFO.
    """

    def __init__(self, ageing_s: float) -> None:
        self.items = 0
        self.tokens = 0
        self.interactive_tokens = 0  # of these
        self._ageing_s = ageing_s
        self._bulk_went_last = False
        self._dropped: list[WorkItem] = []  # left the queue, and no ``take`` has returned them yet
        self._fifos: dict[tuple[int, Priority], Fifo] = {}

    def add(self, items: Sequence[WorkItem], tokens: int) -> None:
        """Append items of one engine and one priority to their FIFO."""
        key = (id(items[0].engine), items[0].priority)
        fifo = self._fifos.get(key)
        if fifo is None:
            fifo = self._fifos[key] = deque()
        fifo.extend(items)
        self.items += len(items)
        self.tokens += tokens
        if items[0].priority is Priority.INTERACTIVE:
            self.interactive_tokens += tokens

    def promote(self, item: WorkItem, priority: Priority) -> None:
        """Move a queued item to the end of a more urgent FIFO; an item that a lane has taken is left alone."""
        fifo = self._fifos.get((id(item.engine), item.priority), Fifo())
        if item not in fifo:
            return
        fifo.remove(item)
        if not fifo:
            del self._fifos[id(item.engine), item.priority]
        self._count_out([item])
        item.priority = priority
        self.add([item], item.cost)

    def next_turn(self, now_s: float) -> Turn | None:
        """Whose items a free lane should run now; None when none is wanted. Unwanted ones found on the way leave."""
        for key in list(self._fifos):
            self._drop_unwanted_heads(key, now_s)
        if not self._fifos:
            return None
        key = self._next_key(now_s)
        return Turn(self._fifos[key][0].engine, key[1])

    def take(
        self, turn: Turn | None, capacity: Capacity, now_s: float, idle_lanes: int, device_index: int = 0
    ) -> Dequeued:
        """Remove the items that a free lane of that device should run now, and unwanted ones found so far.

        Whatever ``capacity`` raises, no item is lost: each stays queued.

        Args:
            turn: as ``next_turn`` gave it, maybe some time ago; there may be nothing left of it.
            capacity: of the turn's engine on that device.
        """
        items = self._cut_batch(turn, capacity, now_s, idle_lanes, device_index) if turn is not None else []
        dropped, self._dropped = self._dropped, []
        return Dequeued(items, dropped)

    def clear(self) -> None:
        """Remove all items; the batcher ends their futures."""
        self._fifos.clear()
        self._dropped.clear()
        self.items = self.tokens = self.interactive_tokens = 0

    def oldest_s(self, now_s: float) -> float:
        """Seconds the oldest item has waited; 0 without one."""
        return max((now_s - fifo[0].enqueued_s for fifo in self._fifos.values()), default=0.0)

    def _count_out(self, items: Sequence[WorkItem]) -> None:
        """Items of one FIFO have left."""
        tokens = sum([item.cost for item in items])
        self.items -= len(items)
        self.tokens -= tokens
        if items[0].priority is Priority.INTERACTIVE:
            self.interactive_tokens -= tokens

    def _drop_unwanted_heads(self, key: tuple[int, Priority], now_s: float) -> None:
        fifo = self._fifos[key]
        while fifo and not fifo[0].is_wanted(now_s):
            self._drop(fifo.popleft())
        if not fifo:
            del self._fifos[key]

    def _drop(self, item: WorkItem) -> None:
        self._count_out([item])
        self._dropped.append(item)

    def _next_key(self, now_s: float) -> tuple[int, Priority]:
        keys = list(self._fifos)
        heads = [QueueHead(key[1], self._fifos[key][0].enqueued_s) for key in keys]
        return keys[next_queue(heads, now_s, ageing_s=self._ageing_s, bulk_went_last=self._bulk_went_last)]

    def _cut_batch(
        self, turn: Turn, capacity: Capacity, now_s: float, idle_lanes: int, device_index: int
    ) -> list[WorkItem]:
        key = (id(turn.engine), turn.priority)
        fifo = self._fifos.get(key)
        if fifo is None:
            return []
        engine = turn.engine.on(device_index)
        budget = lane_budget(engine.budget, self.tokens, idle_lanes)
        chosen: list[WorkItem] = []
        while fifo and not chosen:
            chosen = self._remove(fifo, _choose(fifo, engine, budget, capacity), now_s)
        if chosen:
            self._bulk_went_last = turn.priority is Priority.BULK
        if not fifo:
            del self._fifos[key]
        return chosen

    def _remove(self, fifo: Fifo, indices: Sequence[int], now_s: float) -> list[WorkItem]:
        """Remove and return the items at these ascending indices.

        Where some of them are not wanted any more, only those leave, with others like them further on, and nothing is
        returned: the batch is to be chosen again.
        """
        span = indices[-1] + 1
        unwanted = {index for index, item in enumerate(islice(fifo, span)) if not item.is_wanted(now_s)}
        leaving = unwanted or set(indices)
        examined = [fifo.popleft() for _ in range(span)]
        if len(leaving) < span:
            fifo.extendleft(examined[index] for index in range(span - 1, -1, -1) if index not in leaving)
        if unwanted:
            for index in unwanted:
                self._drop(examined[index])
            return []
        taken = examined if len(leaving) == span else [examined[index] for index in indices]
        self._count_out(taken)
        return taken


def _choose(fifo: Fifo, engine: Engine, budget: int, capacity: Capacity) -> Sequence[int]:
    if not engine.padding_cost:
        return range(first_come((item.cost for item in fifo), budget, capacity))
    costs = [item.cost for item in islice(fifo, lookahead_items(fifo[0].cost, budget))]
    return next_batch(costs, budget, engine.padding_cost, capacity, launch_cost=engine.launch_cost)
