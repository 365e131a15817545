"""One replica as a queue: two lanes that share the cores, batches bounded by tokens, requests that arrive at random.

Its costs are not guessed but solved from four measured closed loops (`costs_of`), so that an open loop can be foreseen.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from benchmarks.load import percentile
from benchmarks.texts import LENGTHS

TOKENS = 36.0  # of a text of the benchmarks, on average (benchmarks/texts.py)
_SENTENCES = sum(sentences * share for sentences, share in LENGTHS)
_SPREAD = 0.5  # of the logarithm of a sentence's tokens
LANES = 2  # one a core
SHARES = (*(0.025 + 0.05 * index for index in range(19)), 0.965, 0.9775, 0.9925)  # quantiles kept of a distribution
WEIGHTS = (*(0.05 for _ in range(19)), 0.03, 0.005, 0.015)  # the part of all requests that each stands for
UTILISATIONS = (0.05, *(round(0.1 * step, 2) for step in range(1, 9)), 0.85, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Costs:
    """Core-seconds of the parts of a batch, on a machine with a core for each lane."""

    request_s: float  # HTTP, JSON and tokenizer
    launch_s: float  # of a batch, whatever is in it
    token_s: float
    lone_speedup: float  # of a batch that has all cores for itself
    apart_s: float = (
        0.0  # seconds, not core-seconds: of a request outside queue and lanes, as sockets and resting cores
    )
    budget_tokens: int = 512  # of a batch, as autotune chose it (benchmarks/results/http.json, system)

    @property
    def texts_per_s(self) -> float:
        """What a saturated replica answers, a text a request."""
        texts = max(1.0, self.budget_tokens // TOKENS)
        return LANES / (self.request_s + self.launch_s / texts + self.token_s * TOKENS)

    def of_batch(self, texts: int, tokens: float) -> float:
        return self.launch_s + texts * self.request_s + tokens * self.token_s


@dataclass(frozen=True, slots=True)
class ClosedLoops:
    """Texts a second of four closed loops, which the costs are solved from."""

    one_client: float
    two_clients: float
    many_clients: float  # 32 clients, a text a request
    batches: float  # 4 clients, 32 texts a request


def costs_of(measured: ClosedLoops, budget_tokens: int = 512) -> Costs:
    """Costs that give these rates.

    Two clients fill both lanes with a text each, many fill batches to their budget, and requests of 32 texts share one
    HTTP request. What measurements contradict becomes zero: noise must not make a cost negative.
    """
    texts = max(1.0, budget_tokens // TOKENS)
    alone, full, packed = (LANES / rate for rate in (measured.two_clients, measured.many_clients, measured.batches))
    request_s = max(0.0, (full - packed) * 32 / 31)
    launch_s = max(0.0, (alone - full) * texts / (texts - 1))
    token_s = max(1e-6, (full - request_s - launch_s / texts) / TOKENS)
    speedup = (request_s + launch_s + token_s * TOKENS) * measured.one_client
    return Costs(request_s, launch_s, token_s, min(max(speedup, 1.0), float(LANES)), budget_tokens=budget_tokens)


def with_apart(costs: Costs, rate_per_s: float, p50_s: float) -> Costs:
    """The costs with what a request takes besides, told by the median of an open loop in which hardly anybody waits.

    In a closed loop cores never rest; in an open one they do between requests, and wake up late.
    """
    [foreseen_s] = simulate(costs, rate_per_s, 5_000).quantiles((0.5,))
    return replace(costs, apart_s=max(0.0, p50_s - foreseen_s))


@dataclass(slots=True)
class Observed:
    """What was seen of a replica under one load."""

    latencies_s: list[float] = field(default_factory=list)
    queued_token_s: float = 0.0  # waiting tokens over time
    busy_lane_s: float = 0.0
    span_s: float = 0.0

    def quantiles(self, shares: Sequence[float]) -> tuple[float, ...]:
        ascending = sorted(self.latencies_s)
        return tuple(percentile(ascending, share) for share in shares)


@dataclass(slots=True)
class _Batch:
    work_s: float  # core-seconds left
    arrivals_s: list[float]


def token_counts(seed: int) -> Iterator[float]:
    """Tokens of one text after another, in the mix of the benchmarks."""
    rng = random.Random(seed)
    lengths, shares = [sentences for sentences, _ in LENGTHS], [share for _, share in LENGTHS]
    middle = math.log(TOKENS / _SENTENCES) - _SPREAD**2 / 2
    while True:
        [sentences] = rng.choices(lengths, shares)
        yield sum(rng.lognormvariate(middle, _SPREAD) for _ in range(sentences))


def simulate(costs: Costs, rate_per_s: float, requests: int, *, seed: int = 1) -> Observed:
    """An open loop: requests of one text that arrive by a Poisson process, until so many are answered."""
    rng, tokens = random.Random(seed), token_counts(seed + 1)
    now_s, due_s, left = 0.0, rng.expovariate(rate_per_s), requests
    waiting: deque[tuple[float, float]] = deque()  # arrival, tokens
    running: list[_Batch] = []
    seen, queued = Observed(), 0.0
    while left or running:
        speed = costs.lone_speedup if len(running) == 1 else 1.0
        ends_s = now_s + min(batch.work_s for batch in running) / speed if running else math.inf
        then_s = min(ends_s, due_s if left else math.inf)
        for batch in running:
            batch.work_s -= (then_s - now_s) * speed
        seen.queued_token_s += queued * (then_s - now_s)
        seen.busy_lane_s += len(running) * (then_s - now_s)
        now_s = then_s
        if ends_s <= due_s or not left:
            done = min(running, key=lambda batch: batch.work_s)
            running.remove(done)
            seen.latencies_s += [now_s - arrival_s + costs.apart_s for arrival_s in done.arrivals_s]
        else:
            waiting.append((now_s, next(tokens)))
            queued += waiting[-1][1]
            left -= 1
            due_s = now_s + rng.expovariate(rate_per_s)
        while waiting and len(running) < LANES:
            batch, taken = _next_batch(costs, waiting)
            running.append(batch)
            queued -= taken
    seen.span_s = now_s
    return seen


def _next_batch(costs: Costs, waiting: deque[tuple[float, float]]) -> tuple[_Batch, float]:
    """Those that came first, up to the budget, and their tokens; one that is over it goes alone."""
    arrivals_s: list[float] = []
    taken = 0.0
    while waiting and (not arrivals_s or taken + waiting[0][1] <= costs.budget_tokens):
        arrival_s, tokens = waiting.popleft()
        arrivals_s.append(arrival_s)
        taken += tokens
    return _Batch(costs.of_batch(len(arrivals_s), taken), arrivals_s), taken


@dataclass(frozen=True, slots=True)
class Profile:
    """What a replica does at each utilisation, which is the part of its saturated rate that it is asked for."""

    texts_per_s: float  # saturated
    quantiles_s: tuple[tuple[float, ...], ...]  # of latency at SHARES, a row each of UTILISATIONS
    queued_tokens: tuple[float, ...]  # on average
    busy_lanes: tuple[float, ...]

    def index(self, utilisation: float) -> int:
        """The row of the next utilisation up; the last one for all above."""
        for index, limit in enumerate(UTILISATIONS):
            if utilisation <= limit:
                return index
        return len(UTILISATIONS) - 1

    def p99_s(self, index: int) -> float:
        return self.quantiles_s[index][-1]

    def highest_utilisation(self, bound_s: float) -> float:
        """At which 99 of 100 requests are still answered within the bound, between rows by a straight line.

        Raises: ValueError where even an idle replica is too slow.
        """
        rows = [(utilisation, self.p99_s(index)) for index, utilisation in enumerate(UTILISATIONS)]
        if rows[0][1] > bound_s:
            raise ValueError(f"p99 of an idle replica: {rows[0][1]:.3f} s is over the bound of {bound_s} s")
        for (low, low_s), (high, high_s) in pairwise(rows):
            if high_s > bound_s:
                return low + (high - low) * (bound_s - low_s) / (high_s - low_s)
        return UTILISATIONS[-1]


def profile_of(costs: Costs, *, requests: int = 20_000, seed: int = 1) -> Profile:
    """Simulate the replica at each of UTILISATIONS; its saturated rate comes from a load far above it."""
    flood = simulate(costs, 4 * costs.texts_per_s, requests, seed=seed)
    texts_per_s = requests / flood.span_s
    runs = [simulate(costs, share * texts_per_s, requests, seed=seed) for share in UTILISATIONS]
    return Profile(
        texts_per_s,
        tuple(run.quantiles(SHARES) for run in runs),
        tuple(run.queued_token_s / run.span_s for run in runs),
        tuple(run.busy_lane_s / run.span_s for run in runs),
    )
