"""Scheduling decisions: which items run next and whether to accept more. Pure: no clock, no queue, no device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from backend.lanes.engine import Capacity, unlimited_count
from backend.lanes.work_item import Priority

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
