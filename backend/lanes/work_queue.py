"""The queued work items, in lines by engine and priority. No lock and no clock: the batcher has both.

Owners take turns by what they cost: an item's turn comes where its owner's last one ends, and not before the turn that
is served now. So a short request passes by what others have queued, whoever is alone has one FIFO, and nobody starves.

Source: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996); for batches of models the virtual token counter
(Sheng et al., OSDI 2024, https://arxiv.org/abs/2401.00588), which costs that are known before make equal to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from operator import attrgetter

from backend.lanes.engine import Capacity, Engine
from backend.lanes.policy import QueueHead, first_come, lane_budget, lookahead_items, next_batch, next_queue
from backend.lanes.work_item import Priority, WorkItem

_turn = attrgetter("turn")


@dataclass(slots=True)
class Dequeued:
    """Items that one ``take`` removed from the queue."""

    items: list[WorkItem] = field(default_factory=list)  # to run together now; empty when none is wanted any more
    dropped: list[WorkItem] = field(default_factory=list)  # abandoned or past their deadline


@dataclass(frozen=True, slots=True)
class Turn:
    """The line that a free lane should serve."""

    engine: Engine  # as it was submitted; ``on`` gives the one of the lane's device
    priority: Priority


class TurnQueue:
    """Items of one engine and one priority in the order of their turns: a FIFO an owner."""

    def __init__(self) -> None:
        self.fifos: dict[str, deque[WorkItem]] = {}

    def __iter__(self) -> Iterator[WorkItem]:
        fifos = self.fifos.values()
        return merge(*fifos, key=_turn) if len(fifos) > 1 else chain(*fifos)

    @property
    def head(self) -> WorkItem:
        """The item that goes next."""
        return next(iter(self))

    @property
    def oldest_s(self) -> float:
        """When the oldest item came."""
        return min([fifo[0].enqueued_s for fifo in self.fifos.values()])

    def add(self, items: Sequence[WorkItem]) -> None:
        """Append items of one owner."""
        self.fifos.setdefault(items[0].owner, deque()).extend(items)

    def pop_unwanted(self, now_s: float) -> list[WorkItem]:
        """Remove and return what is not wanted of what each owner has in front."""
        unwanted = []
        for owner, fifo in list(self.fifos.items()):
            while fifo and not fifo[0].is_wanted(now_s):
                unwanted.append(fifo.popleft())
            if not fifo:
                del self.fifos[owner]
        return unwanted

    def pop(self, leaving: set[WorkItem]) -> list[list[WorkItem]]:
        """Remove and return these items, owner by owner."""
        popped = []
        for owner, fifo in list(self.fifos.items()):
            if moved := [item for item in fifo if item in leaving]:
                popped.append(moved)
                self.fifos[owner] = deque([item for item in fifo if item not in leaving])
                if not self.fifos[owner]:
                    del self.fifos[owner]
        return popped

    def remove(self, first: Sequence[WorkItem], leaving: Sequence[WorkItem]) -> None:
        """Remove ``leaving``, which are among the ``first`` items of the line."""
        fifos = self.fifos
        for item in first:
            fifos[item.owner].popleft()
        if len(leaving) < len(first):
            gone = set(leaving)
            for item in reversed(first):
                if item not in gone:
                    fifos[item.owner].appendleft(item)
        for owner in [owner for owner, fifo in fifos.items() if not fifo]:
            del fifos[owner]


class WorkQueue:
    """Lines of work items; ``take`` cuts the next batch out of one of them.

    An item that is no longer wanted stays until ``take`` would run it or finds it in front.
    """

    def __init__(self, ageing_s: float) -> None:
        self.items = 0
        self.tokens = 0
        self._ageing_s = ageing_s
        # By owner and priority; emptied by ``add`` alone, so that the loop reads them without the lock.
        self._owned: dict[tuple[str, Priority], int] = {}  # tokens
        self._next_turns: dict[tuple[str, Priority], int] = {}
        self._served = dict.fromkeys(Priority, 0)  # the turn of the last batch
        self._bulk_went_last = False
        self._dropped: list[WorkItem] = []  # left the queue, and no ``take`` has returned them yet
        self._lines: dict[tuple[int, Priority], TurnQueue] = {}

    def add(self, items: Sequence[WorkItem], tokens: int) -> None:
        """Append items of one engine, one priority and one owner to their line."""
        if not self.items:
            self._forget_turns()
        priority = items[0].priority
        owner = items[0].owner, priority
        turn = max(self._served[priority], self._next_turns.get(owner, 0))
        for item in items:
            item.turn = turn
            turn += item.cost
        self._next_turns[owner] = turn
        self._owned[owner] = self._owned.get(owner, 0) + tokens
        key = (id(items[0].engine), priority)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = TurnQueue()
        line.add(items)
        self.items += len(items)
        self.tokens += tokens

    def tokens_of(self, owner: str) -> int:
        """What an owner has queued."""
        return sum([self._owned.get((owner, priority), 0) for priority in Priority])

    def tokens_before(self, owner: str, new: int) -> int:
        """What goes before interactive items that this owner adds: of each other no more than it then has itself."""
        own = self._owned.get((owner, Priority.INTERACTIVE), 0) + new
        return sum([min(own, tokens) for (_, each), tokens in self._owned.items() if each is Priority.INTERACTIVE])

    def promote(self, items: Sequence[WorkItem], priority: Priority) -> None:
        """Move queued items to the end of more urgent lines; those that a lane has taken are left alone."""
        leaving = set(items)
        for key in {(id(item.engine), item.priority) for item in items} & self._lines.keys():
            for moved in self._lines[key].pop(leaving):
                self._count_out(moved)
                for item in moved:
                    item.priority = priority
                self.add(moved, sum([item.cost for item in moved]))
            self._end(key)

    def next_turn(self, now_s: float) -> Turn | None:
        """Whose items a free lane should run now; None when none is wanted. Unwanted ones found on the way leave."""
        for key, line in list(self._lines.items()):
            for item in line.pop_unwanted(now_s):
                self._drop(item)
            self._end(key)
        if not self._lines:
            return None
        key = self._next_key(now_s)
        return Turn(self._lines[key].head.engine, key[1])

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
        self._lines.clear()
        self._dropped.clear()
        self.items = self.tokens = 0
        self._forget_turns()

    def oldest_s(self, now_s: float) -> float:
        """Seconds the oldest item has waited; 0 without one."""
        return max((now_s - line.oldest_s for line in self._lines.values()), default=0.0)

    def _forget_turns(self) -> None:
        """Nothing waits: nobody is before anybody."""
        self._owned.clear()
        self._next_turns.clear()
        self._served = dict.fromkeys(Priority, 0)

    def _end(self, key: tuple[int, Priority]) -> None:
        """Forget a line that has become empty."""
        if not self._lines[key].fifos:
            del self._lines[key]

    def _count_out(self, items: Sequence[WorkItem]) -> None:
        costs: dict[str, int] = {}
        for item in items:
            costs[item.owner] = costs.get(item.owner, 0) + item.cost
        self.items -= len(items)
        for owner, tokens in costs.items():
            self.tokens -= tokens
            self._owned[owner, items[0].priority] -= tokens

    def _drop(self, item: WorkItem) -> None:
        self._count_out([item])
        self._dropped.append(item)

    def _next_key(self, now_s: float) -> tuple[int, Priority]:
        keys, lines = list(self._lines), self._lines.values()
        if len(keys) == 1:
            return keys[0]
        heads = [QueueHead(key[1], line.oldest_s, line.head.turn) for key, line in zip(keys, lines, strict=True)]
        return keys[next_queue(heads, now_s, ageing_s=self._ageing_s, bulk_went_last=self._bulk_went_last)]

    def _cut_batch(
        self, turn: Turn, capacity: Capacity, now_s: float, idle_lanes: int, device_index: int
    ) -> list[WorkItem]:
        key = (id(turn.engine), turn.priority)
        line = self._lines.get(key)
        if line is None:
            return []
        engine = turn.engine.on(device_index)
        budget = lane_budget(engine.budget, self.tokens, idle_lanes)
        chosen: list[WorkItem] = []
        while line.fifos and not chosen:
            chosen = self._remove(line, _choose(line, engine, budget, capacity), now_s)
        if chosen:
            self._bulk_went_last = turn.priority is Priority.BULK
            self._served[turn.priority] = max(self._served[turn.priority], chosen[0].turn)
        self._end(key)
        return chosen

    def _remove(self, line: TurnQueue, indices: Sequence[int], now_s: float) -> list[WorkItem]:
        """Remove and return the items at these ascending indices.

        Where some of them are not wanted any more, only those leave, with others like them further on, and nothing is
        returned: the batch is to be chosen again.
        """
        examined = list(islice(line, indices[-1] + 1))
        unwanted = [item for item in examined if not item.is_wanted(now_s)]
        leaving = unwanted or [examined[index] for index in indices]
        line.remove(examined, leaving)
        if unwanted:
            for item in unwanted:
                self._drop(item)
            return []
        self._count_out(leaving)
        return leaving


def _choose(line: TurnQueue, engine: Engine, budget: int, capacity: Capacity) -> Sequence[int]:
    if not engine.padding_cost:
        return range(first_come((item.cost for item in line), budget, capacity))
    costs = [item.cost for item in islice(line, lookahead_items(line.head.cost, budget))]
    return next_batch(costs, budget, engine.padding_cost, capacity, launch_cost=engine.launch_cost)
