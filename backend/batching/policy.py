"""Scheduling decisions: which items run next and whether to accept more. Pure: no clock, no queue, no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from backend.batching.work_item import Priority
from backend.engines.engine import Capacity, unlimited_count

# Candidates for a batch, in multiples of a full batch: enough neighbours of every length to pack tightly, yet constant
# work per item that leaves, however many wait. infinity sorts up to 8 batches too.
LOOKAHEAD_BATCHES = 8
LOOKAHEAD_ITEMS_MAX = 2048  # bounds the time under the lock: about 0.5 ms
# A batch may hold budget / PADDING_DIVISOR of padding: about what a launch costs, for more costs more than it saves.
# Simulated (closed loops of 1 to 64 clients with 1 to 64 texts, log-normal lengths of mean 39, launches worth 5 to 30
# tokens at a budget of 512 and 2000 at 16384): 1/32 is within 5 % of each case's best, 1/8 up to 23 % below, no cap
# further still. An engine's measured launch cost would be the exact number.
PADDING_DIVISOR = 32
IDLE_DIVISOR = 4  # a batch is not cut below a quarter of the budget to occupy idle lanes: launches would dominate
BULK_DIVISOR = 16  # a part of bulk work takes at most this share of the queue: a full queue has room for it soon
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
    """The oldest item of one queue, which holds the items of one engine and one priority."""

    priority: Priority
    enqueued_s: float


def next_queue(heads: Sequence[QueueHead], now_s: float, *, ageing_s: float, bulk_went_last: bool) -> int:
    """Index of the queue that a free lane should serve: the oldest head of the highest effective priority.

    A BULK head older than ``ageing_s`` counts as INTERACTIVE, but BULK never goes twice in a row while an
    interactive item waits: an old bulk backlog takes at most every other batch.
    """
    interactive_waits = any(head.priority is Priority.INTERACTIVE for head in heads)
    ageing_counts = not (bulk_went_last and interactive_waits)

    def order(index: int) -> tuple[int, float]:
        head = heads[index]
        aged = ageing_counts and now_s - head.enqueued_s > ageing_s
        return (Priority.INTERACTIVE if aged else head.priority, head.enqueued_s)

    return min(range(len(heads)), key=order)


def lookahead_items(head_cost: int, budget: int) -> int:
    """How many items of a queue, oldest first, to consider for a batch with its head."""
    return min(LOOKAHEAD_ITEMS_MAX, LOOKAHEAD_BATCHES * max(1, budget // max(1, head_cost)))


def next_batch(
    costs: Sequence[int], budget: int, padding_cost: float = 1.0, capacity: Capacity = unlimited_count
) -> list[int]:
    """Which of the queued items should run together now, as ascending indices.

    The first (the oldest) always goes, even over the budget: admission is where it would be refused. Others join, the
    closest in length first and the older first among equals, while the padded batch (longest x count) stays within
    ``budget``, the cost of its padding within a 32nd of that, and the batch within the device's memory.

    Args:
        capacity: how many items as long as the longest fit the memory; learnt from earlier batches.
        costs: cost of each item in arrival order, of one engine and one priority, unwanted ones already dropped.
        padding_cost: of a padded token, as a fraction of a real one's: 1 where the whole model pads, about 0.1 where
            attention alone does. Over HTTP, 32 clients: 506 texts/s where 1 gave 490 (docs/engine.md).

    Source: padded-token budget after text-embeddings-inference, core/src/queue.rs.
    """
    head = longest = total = costs[0]
    padding_max = budget / PADDING_DIVISOR
    chosen = [0]
    for index in sorted(range(1, len(costs)), key=lambda index: abs(costs[index] - head)):
        count = len(chosen) + 1
        if longest * count > budget:
            break
        new_longest = max(longest, costs[index])
        padded = new_longest * count
        padding = (padded - total - costs[index]) * padding_cost
        if padded <= budget and padding <= padding_max and count <= capacity(new_longest):
            chosen.append(index)
            longest, total = new_longest, total + costs[index]
    return sorted(chosen)


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


def admit(queued: int, new: int, limit: int) -> Admission:
    """Whether ``new`` tokens may join ``queued`` ones; a request is accepted whole or not at all."""
    if new > limit:
        return Admission.NEVER
    return Admission.ACCEPTED if queued + new <= limit else Admission.FULL


def waits_too_long(queued: int, rate_per_s: float, left_s: float) -> bool:
    """Whether ``queued`` tokens, which go first, take longer than the time left. Never without a measured rate.

    Work whose time is over is not refused for the queue: it ends as late.
    """
    return rate_per_s > 0 and left_s > 0 and queued > rate_per_s * left_s


def admit_single(queued: int, new: int, limit: int) -> Admission:
    """The same for one item, which may always enter an empty queue.

    A page that counts more than the whole limit could otherwise never be read.
    """
    if new > limit:
        return Admission.FULL if queued else Admission.ACCEPTED
    return admit(queued, new, limit)


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
