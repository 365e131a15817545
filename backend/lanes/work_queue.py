"""Queued work items, the order in which they run, and whether to accept more. No lock, no clock, no device.

Owners take turns by what they cost: an item's turn comes where its owner's last one ends, and not before the turn that
is served now. So a short request passes by what others have queued, whoever is alone has one FIFO, and nobody starves.

Source: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996); for batches of models the virtual token counter
(Sheng et al., OSDI 2024, https://arxiv.org/abs/2401.00588), which costs that are known before make equal to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from heapq import merge
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from backend.errors import DeadlineExceeded
from backend.lanes.engine import Capacity, Engine, unlimited_count
from backend.tracing.spans import Span, SpanContext

# For whom a task works, entered with `count_started`: owners take turns on the lanes. Unset: all are one.
owner_of_work: ContextVar[str] = ContextVar("owner_of_work", default="")


class Priority(IntEnum):
    """Scheduling class; the smaller number goes first."""

    INTERACTIVE = 0
    BULK = 1


@dataclass(slots=True, eq=False)
class WorkItem:
    """A text or a page that waits for a lane or runs on one.

    ``future`` always ends: with the engine's result, or with a FinanciaError. A single caller awaits it directly;
    callers that share an item await ``asyncio.shield(item.future)`` and call ``abandon`` when they leave.
    """

    engine: Engine
    payload: Any  # what engine.prepare takes
    cost: int  # tokens (or pixels), unpadded; counted by the service
    priority: Priority
    deadline_s: float  # monotonic; math.inf for none
    enqueued_s: float  # monotonic; set by the batcher
    future: asyncio.Future[Any]
    owner: str = ""  # as ``owner_of_work`` was
    turn: int = 0  # where it stands among the items of all owners; set by the queue, in cost
    waiters: int = 1  # callers that still want the result; changed on the event loop only
    started_s: float = 0.0  # monotonic; when a lane took it
    finished_s: float = 0.0  # monotonic; when its batch ended
    lane_s: float = 0.0  # its part of the time that its batch kept the lane, by cost
    work_s: float = 0.0  # its part of the time that the lane's thread was on a core
    tell_begun: Callable[[int], None] | None = None  # called with the cost of one that began before it was cancelled,
    # where that is known later: in another process
    span: Span | None = None  # that its caller works for, where that is recorded
    batch_span: SpanContext | None = None  # of the batch that it ran in, where a span of it was recorded

    def join(self) -> bool:
        """Add a waiter; False when the item has already ended or was abandoned."""
        if not self.waiters or self.future.done():
            return False
        self.waiters += 1
        return True

    def abandon(self) -> None:
        """Remove a waiter. Without waiters the item is cancelled, and dropped if it is still queued."""
        self.waiters = max(0, self.waiters - 1)
        if not self.waiters:
            self.future.cancel()

    def is_wanted(self, now_s: float) -> bool:
        """Whether a caller still waits and the deadline has not passed. Safe on any thread."""
        return self.waiters > 0 and now_s < self.deadline_s and not self.future.done()

    def deadline_error(self) -> DeadlineExceeded:
        """The error for its callers once the deadline has passed."""
        return DeadlineExceeded(round(self.deadline_s - self.enqueued_s, 3))

    @property
    def queue_s(self) -> float:
        """Seconds it waited for a lane."""
        return self.started_s - self.enqueued_s

    @property
    def inference_s(self) -> float:
        """Seconds from a lane taking it to its result."""
        return self.finished_s - self.started_s


# Candidates for a batch, in multiples of a full batch: enough neighbours of every length to pack tightly, yet constant
# work per item that leaves, however many wait. infinity sorts up to 8 batches too.
LOOKAHEAD_BATCHES = 8
LOOKAHEAD_ITEMS_MAX = 1024  # bounds the time under the lock; more only where a single batch holds more
BATCH_ITEMS_MAX = 4096  # of one batch: beyond it a launch is long paid for
# A batch may hold budget / PADDING_DIVISOR of padding: about what a launch costs, for more costs more than it saves.
# Simulated (closed loops of 1 to 64 clients with 1 to 64 texts, log-normal lengths of mean 39, launches worth 5 to 30
# tokens at a budget of 512 and 2000 at 16384): 1/32 is within 5 % of each case's best, 1/8 up to 23 % below, no cap
# further still. An engine's measured launch cost would be the exact number.
PADDING_DIVISOR = 32
IDLE_DIVISOR = 4  # a batch is not cut below a quarter of the budget to occupy idle lanes: launches would dominate
BULK_DIVISOR = 16  # a part of bulk work takes at most this share of the queue: a full queue has room for it soon
SHARE_DIVISOR = 16  # an owner may always have this part of the limit, a request of some 60,000 tokens
RATE_DECAY = 0.95  # weight of the past after each batch: the last 20 batches or so make the rate
SETTLED_BATCHES = 8
RETRY_UNKNOWN_S = 1.0  # before the first batch nothing is known
RETRY_MIN_S = 0.1
RETRY_MAX_S = 60.0  # clients do not wait longer, and by then deadlines have emptied the queue


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait, and how long bulk work yields to interactive work."""

    queue_tokens: int  # LIMIT_QUEUE_TOKENS: cost of all queued items together
    ageing_s: float = 2.0  # a BULK item that has waited longer counts as INTERACTIVE


@dataclass(frozen=True, slots=True)
class QueueHead:
    """What goes next of one queue, which holds the items of one engine and one priority."""

    priority: Priority
    enqueued_s: float  # of its oldest item
    turn: int = 0  # of the item that goes next


def next_queue(heads: Sequence[QueueHead], now_s: float, *, ageing_s: float, bulk_went_last: bool) -> int:
    """Index of the queue that a free lane should serve: the first turn of the highest effective priority.

    A BULK head older than ``ageing_s`` counts as INTERACTIVE, but BULK never goes twice in a row while an
    interactive item waits: an old bulk backlog takes at most every other batch.
    """
    interactive_waits = any(head.priority is Priority.INTERACTIVE for head in heads)
    ageing_counts = not (bulk_went_last and interactive_waits)

    def order(index: int) -> tuple[int, float]:
        head = heads[index]
        aged = ageing_counts and now_s - head.enqueued_s > ageing_s
        return (Priority.INTERACTIVE if aged else head.priority, head.enqueued_s)

    firsts: dict[Priority, int] = {}
    for index in sorted(range(len(heads)), key=lambda index: (heads[index].turn, heads[index].enqueued_s)):
        firsts.setdefault(heads[index].priority, index)
    return min(firsts.values(), key=order)


def lookahead_items(head_cost: int, budget: int) -> int:
    """How many items of a queue, oldest first, to consider for a batch with its head: enough to fill it."""
    full = min(BATCH_ITEMS_MAX, max(1, budget // max(1, head_cost)))
    return max(full, min(LOOKAHEAD_ITEMS_MAX, LOOKAHEAD_BATCHES * full))


def next_batch(
    costs: Sequence[int],
    budget: int,
    padding_cost: float = 1.0,
    capacity: Capacity = unlimited_count,
    *,
    launch_cost: int = 0,
) -> list[int]:
    """Which of the queued items should run together now, as ascending indices.

    The first (the oldest) always goes, even over the budget: admission is where it would be refused. Others join, the
    closest in length first and the older first among equals, while the padded batch (longest x count) stays within
    ``budget`` and the device's memory, and is either no dearer than a launch or has at most a 32nd of the budget in
    padding.

    Args:
        capacity: how many items as long as the longest fit the memory; learnt from earlier batches.
        costs: cost of each item in arrival order, of one engine and one priority, unwanted ones already dropped.
        padding_cost: of a padded token, as a fraction of a real one's: 1 where the whole model pads, about 0.1 where
            attention alone does. Over HTTP, 32 clients: 506 texts/s where 1 gave 490 (docs/engine.md).
        launch_cost: what the device computes in the time of a launch. A padded batch up to it takes no longer than any
            other. Simulated as above for launches of 600 to 5750 tokens at a budget of 16384: within 10 % of each
            case's best, and down to 44 % of it without.

    Source: padded-token budget after text-embeddings-inference, core/src/queue.rs.
    """
    head = longest = total = costs[0]
    padding_max, room = budget / PADDING_DIVISOR, capacity(head)
    distances = [abs(cost - head) for cost in costs]
    chosen = [0]
    full_for_shorter = full_for_longer = False  # what refuses an item refuses all that are further from the head
    for index in sorted(range(1, len(costs)), key=distances.__getitem__):
        cost, count = costs[index], len(chosen) + 1
        new_longest, new_room = (longest, room) if cost <= longest else (cost, capacity(cost))
        padded = new_longest * count
        cheap = padded <= launch_cost or (padded - total - cost) * padding_cost <= padding_max
        if padded <= budget and cheap and count <= new_room:
            chosen.append(index)
            longest, room, total = new_longest, new_room, total + cost
        elif cost <= head:
            full_for_shorter = True
        else:
            full_for_longer = True
        if full_for_shorter and full_for_longer:
            break
    return sorted(chosen)


def first_come(costs: Iterable[int], budget: int, capacity: Capacity = unlimited_count) -> int:
    """How many of the queued items, oldest first, an engine without padding should run together now.

    Rows are laid end to end, so lengths need not be alike: items join in their order until the next one's rows would
    pass ``budget`` or the device's memory. The first always goes. Reads no more of ``costs`` than it takes, and one.

    Args:
        capacity: as for ``next_batch``; rows take the memory of as many of the longest as have so many rows.
    """
    longest = total = count = room = 0
    for cost in costs:
        if cost > longest:
            longest, room = cost, cost * capacity(cost)
        total += cost
        if count and (total > min(budget, room) or count == BATCH_ITEMS_MAX):
            break
        count += 1
    return count


def equivalent_count(costs: Sequence[int], padding_cost: float) -> int:
    """How many items as long as the longest take the memory of these: fewer than there are where rows are packed."""
    longest = max(costs)
    return len(costs) if padding_cost or not longest else -(-sum(costs) // longest)


def lane_budget(budget: int, queued: int, idle_lanes: int) -> int:
    """Budget of a batch when other lanes are idle too: queued work is divided, so that one request uses every core."""
    if not idle_lanes:
        return budget
    part = -(-queued // (idle_lanes + 1))
    return min(budget, max(part + part // PADDING_DIVISOR, budget // IDLE_DIVISOR))


class Admission(Enum):
    """The decision on new items."""

    ACCEPTED = "accepted"
    FULL = "full"  # the queue has no capacity now: 429
    NEVER = "never"  # over the whole limit alone: 413


def admit(queued: int, new: int, limit: int, own: int | None = None) -> Admission:
    """Whether ``new`` tokens may join ``queued`` ones; a request is accepted whole or not at all.

    Args:
        own: what its owner has of those, where owners have shares: half while others wait, for what is added to some
            of its own, and ``SHARE_DIVISOR`` of the limit however much others have.
    """
    if new > limit:
        return Admission.NEVER
    if own and own < queued and own + new > limit // 2:
        return Admission.FULL
    has_room = queued + new <= limit or (own is not None and own + new <= limit // SHARE_DIVISOR)
    return Admission.ACCEPTED if has_room else Admission.FULL


def waits_too_long(queued: int, rate_per_s: float, left_s: float) -> bool:
    """Whether ``queued`` tokens, which go first, take longer than the time left. Never without a measured rate.

    Work whose time is over is not refused for the queue: it ends as late.
    """
    return rate_per_s > 0 and left_s > 0 and queued > rate_per_s * left_s


def admit_single(queued: int, new: int, limit: int, own: int | None = None) -> Admission:
    """The same for one item, which may always enter an empty queue.

    A page that counts more than the whole limit could otherwise never be read.
    """
    if new > limit:
        return Admission.FULL if queued else Admission.ACCEPTED
    return admit(queued, new, limit, own)


def portions(costs: Sequence[int], limit: int) -> list[slice]:
    """Consecutive parts of these items, each within ``limit`` tokens or a single item."""
    parts: list[slice] = []
    start = tokens = 0
    for index, cost in enumerate(costs):
        if index > start and tokens + cost > limit:
            parts.append(slice(start, index))
            start, tokens = index, 0
        tokens += cost
    return [*parts, slice(start, len(costs))] if costs else []


@dataclass(frozen=True, slots=True)
class Throughput:
    """Measured speed of one lane, exponentially averaged; exact after the first batch."""

    tokens: float = 0.0
    busy_s: float = 0.0
    batches: int = 0

    def after(self, tokens: int, busy_s: float) -> Throughput:
        """The average with one more batch; long batches weigh more, as they should."""
        return Throughput(self.tokens * RATE_DECAY + tokens, self.busy_s * RATE_DECAY + busy_s, self.batches + 1)

    @property
    def per_s(self) -> float:
        """Unpadded tokens a second; 0 before the first batch."""
        return self.tokens / self.busy_s if self.busy_s > 0 else 0.0

    @property
    def settled_per_s(self) -> float:
        """The same; 0 while too few batches were measured to refuse work for it: the first ones load what they need."""
        return self.per_s if self.batches >= SETTLED_BATCHES else 0.0


def retry_after_s(queued: int, rate_per_s: float) -> float:
    """When a refused client should try again: the time the lanes need for what is queued now."""
    if rate_per_s <= 0:
        return RETRY_UNKNOWN_S
    return min(RETRY_MAX_S, max(RETRY_MIN_S, queued / rate_per_s))


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
