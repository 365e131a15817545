"""The queued work items, one FIFO per engine and priority. No lock and no clock: the batcher has both."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.batching.policy import QueueHead, lane_budget, lookahead_items, next_batch, next_queue
from backend.batching.work_item import Priority, WorkItem

Fifo = deque[WorkItem]


@dataclass(slots=True)
class Dequeued:
    """Items that one ``take`` removed from the queue."""

    items: list[WorkItem] = field(default_factory=list)  # to run together now; empty when none is wanted any more
    dropped: list[WorkItem] = field(default_factory=list)  # abandoned or past their deadline


class WorkQueue:
    """FIFOs of work items; ``take`` cuts the next batch out of one of them.

    An item that is no longer wanted stays until ``take`` comes across it. ``take`` starts at the oldest items and
    examines more than it returns, so unwanted ones leave faster than they would have run.
    """

    def __init__(self, ageing_s: float) -> None:
        self.items = 0
        self.tokens = 0
        self.interactive_tokens = 0  # of these
        self._ageing_s = ageing_s
        self._bulk_went_last = False
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
        self._count_out(item)
        item.priority = priority
        self.add([item], item.cost)

    def take(self, now_s: float, idle_lanes: int, device_index: int = 0) -> Dequeued:
        """Remove the items that a free lane of that device should run now, and unwanted ones found on the way."""
        dequeued = Dequeued()
        for key in list(self._fifos):
            self._drop_unwanted_heads(key, now_s, dequeued)
        if self._fifos:
            self._cut_batch(self._next_key(now_s), now_s, idle_lanes, device_index, dequeued)
        for item in (*dequeued.items, *dequeued.dropped):
            self._count_out(item)
        return dequeued

    def clear(self) -> None:
        """Remove all items; the batcher ends their futures."""
        self._fifos.clear()
        self.items = self.tokens = self.interactive_tokens = 0

    def oldest_s(self, now_s: float) -> float:
        """Seconds the oldest item has waited; 0 without one."""
        return max((now_s - fifo[0].enqueued_s for fifo in self._fifos.values()), default=0.0)

    def _count_out(self, item: WorkItem) -> None:
        self.items -= 1
        self.tokens -= item.cost
        if item.priority is Priority.INTERACTIVE:
            self.interactive_tokens -= item.cost

    def _drop_unwanted_heads(self, key: tuple[int, Priority], now_s: float, dequeued: Dequeued) -> None:
        fifo = self._fifos[key]
        while fifo and not fifo[0].is_wanted(now_s):
            dequeued.dropped.append(fifo.popleft())
        if not fifo:
            del self._fifos[key]

    def _next_key(self, now_s: float) -> tuple[int, Priority]:
        keys = list(self._fifos)
        heads = [QueueHead(key[1], self._fifos[key][0].enqueued_s) for key in keys]
        key = keys[next_queue(heads, now_s, ageing_s=self._ageing_s, bulk_went_last=self._bulk_went_last)]
        self._bulk_went_last = key[1] is Priority.BULK
        return key

    def _cut_batch(
        self, key: tuple[int, Priority], now_s: float, idle_lanes: int, device_index: int, dequeued: Dequeued
    ) -> None:
        fifo = self._fifos[key]
        head = fifo[0]
        engine = head.engine.on(device_index)
        budget = lane_budget(engine.budget, self.tokens, idle_lanes)
        examined = [fifo.popleft() for _ in range(min(len(fifo), lookahead_items(head.cost, budget)))]
        wanted = [item for item in examined if item.is_wanted(now_s)]
        if len(wanted) < len(examined):
            dequeued.dropped += set(examined).difference(wanted)
        if wanted:  # the head's caller may leave meanwhile
            costs = [item.cost for item in wanted]
            chosen = next_batch(costs, budget, engine.padding_cost, engine.batch_limits.capacity())
            dequeued.items = [wanted[index] for index in chosen]
        if len(dequeued.items) < len(wanted):
            leaving = set(dequeued.items)
            fifo.extendleft(item for item in reversed(wanted) if item not in leaving)
        if not fifo:
            del self._fifos[key]
