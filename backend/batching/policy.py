"""When to run which jobs, and whether to take more. No clock, no queue, no device: only the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from backend.batching.work_item import Priority
from backend.engines.engine import Capacity, unlimited_count

# Candidates looked at, in batches' worth: enough neighbours of every length to pack tightly, yet the work per job that
# leaves is constant however many wait. infinity sorts up to 8 batches too (research/serving.md §2.3).
WINDOW_BATCHES = 8
WINDOW_JOBS_MAX = 2048  # bounds the time under the lock: about 0.5 ms
# Padding a batch may hold, as a part of the budget: about what a launch costs, for more costs more than it saves.
# Simulated (closed loops of 1 to 64 clients with 1 to 64 texts, log-normal lengths of mean 39, launches worth 5 to 30
# tokens at a budget of 512 and 2000 at 16384): 1/32 is within 5 % of each case's best, 1/8 up to 23 % below, no cap
# further still. An engine's measured launch cost would be the exact number.
PADDING_SHARE = 32
IDLE_SHARE = 4  # a batch is not cut below a quarter of the budget to feed idle lanes: launches would dominate
RATE_KEEP = 0.95  # weight of the past after each batch: the last 20 batches or so make the rate
RETRY_UNKNOWN_S = 1.0  # before the first batch nothing is known
RETRY_MIN_S = 0.1
RETRY_MAX_S = 60.0  # nobody waits longer, and the queue's own deadlines have emptied it by then


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait, and for how long bulk work lets others pass."""

    queue_tokens: int  # LIMIT_QUEUE_TOKENS: cost of all waiting jobs together
    ageing_s: float = 2.0  # a BULK job that has waited longer counts as INTERACTIVE


@dataclass(frozen=True, slots=True)
class Head:
    """The oldest job of one row; a row is the waiting jobs of one engine and one priority."""

    priority: Priority
    enqueued_s: float


def next_row(heads: Sequence[Head], now_s: float, *, ageing_s: float, bulk_went_last: bool) -> int:
    """Index of the row that a free lane should serve: the oldest head of the highest effective priority.

    A BULK head older than ``ageing_s`` counts as INTERACTIVE, but BULK never goes twice in a row while an
    interactive job waits: an old bulk backlog takes at most every other batch.
    """
    interactive_waits = any(head.priority is Priority.INTERACTIVE for head in heads)
    ageing_counts = not (bulk_went_last and interactive_waits)

    def rank(index: int) -> tuple[int, float]:
        head = heads[index]
        aged = ageing_counts and now_s - head.enqueued_s > ageing_s
        return (Priority.INTERACTIVE if aged else head.priority, head.enqueued_s)

    return min(range(len(heads)), key=rank)


def window_jobs(head_cost: int, budget: int) -> int:
    """How many jobs of a row, oldest first, are worth looking at as company for its head."""
    return min(WINDOW_JOBS_MAX, WINDOW_BATCHES * max(1, budget // max(1, head_cost)))


def next_batch(
    costs: Sequence[int], budget: int, padding_cost: float = 1.0, capacity: Capacity = unlimited_count
) -> list[int]:
    """Which of the waiting jobs should run together now, as ascending indices.

    The first (the oldest) always goes, even over the budget: refusing it is admission's business. Others of
    about its length join, the closest first and the older first among equals, while the padded batch
    (longest x count) stays within ``budget``, what its padding costs within a 32nd of that, and the whole within
    the device's memory.

    Args:
        capacity: how many jobs as long as the longest fit the memory; learnt (device/limits.py).
        costs: cost of each job in arrival order, one engine's and one priority's, unwanted ones already dropped.
        padding_cost: of a padded token, as a part of a real one's: 1 where the whole model pads, about 0.1 where
            attention alone does. Over HTTP, 32 clients: 506 texts/s where 1 gave 490 (docs/engine.md).

    Source: padded-token budget after text-embeddings-inference, core/src/queue.rs.
    """
    head = longest = total = costs[0]
    allowed = budget / PADDING_SHARE
    chosen = [0]
    for index in sorted(range(1, len(costs)), key=lambda index: abs(costs[index] - head)):
        count = len(chosen) + 1
        if longest * count > budget:
            break
        widest = max(longest, costs[index])
        padded = widest * count
        if padded <= budget and (padded - total - costs[index]) * padding_cost <= allowed and count <= capacity(widest):
            chosen.append(index)
            longest, total = widest, total + costs[index]
    return sorted(chosen)


def share(budget: int, queued: int, idle_lanes: int) -> int:
    """Budget of a batch when other lanes are idle too: each gets its part, so that one request uses every core."""
    if not idle_lanes:
        return budget
    part = -(-queued // (idle_lanes + 1))
    return min(budget, max(part + part // PADDING_SHARE, budget // IDLE_SHARE))


class Admission(Enum):
    """What becomes of new jobs."""

    ACCEPTED = "accepted"
    FULL = "full"  # room will come: 429
    NEVER = "never"  # over the whole limit alone: 413


def admit(queued: int, new: int, limit: int) -> Admission:
    """Whether ``new`` tokens may join ``queued`` ones; a request is taken whole or not at all."""
    if new > limit:
        return Admission.NEVER
    return Admission.ACCEPTED if queued + new <= limit else Admission.FULL


@dataclass(frozen=True, slots=True)
class Rate:
    """Measured speed of one lane: exact after the first batch, forgetting the old ones slowly."""

    tokens: float = 0.0
    busy_s: float = 0.0

    def after(self, tokens: int, busy_s: float) -> Rate:
        """The rate once a further batch has ended; long batches weigh more, as they should."""
        return Rate(self.tokens * RATE_KEEP + tokens, self.busy_s * RATE_KEEP + busy_s)

    @property
    def per_s(self) -> float:
        """Unpadded tokens a second; 0 while nothing was measured."""
        return self.tokens / self.busy_s if self.busy_s > 0 else 0.0


def retry_after_s(queued: int, rate_per_s: float) -> float:
    """When to come back: the time the lanes need for what waits now."""
    if rate_per_s <= 0:
        return RETRY_UNKNOWN_S
    return min(RETRY_MAX_S, max(RETRY_MIN_S, queued / rate_per_s))
