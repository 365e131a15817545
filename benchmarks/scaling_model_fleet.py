"""Pods under a trace and an autoscaler: what callers wait, what is refused, what it costs beside the ideal.

Texts are a fluid in steps of half a second: a pod's backlog grows by what arrives at random and falls by what a
saturated pod answers. A text waits for the backlog before it, and takes as long as the replica's own model
(scaling_model_replica) says for the pod's utilisation. Near saturation both contain some of the same waiting, which
makes the model a little too slow there.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from dataclasses import dataclass, field

from benchmarks.scaling_model_autoscaler import SYNC_S, Autoscaler, Rule
from benchmarks.scaling_model_replica import SHARES, TOKENS, WEIGHTS, Profile
from benchmarks.scaling_model_traces import JOB_PAGES, Trace

STEP_S = 0.5
_RATE_S = 60.0  # the range of rate() in the query of busy lanes
_SMOOTHED_S = 5.0  # over which a pod's utilisation is averaged
_LENGTHS_SQUARED = 1.0  # the squared coefficient of variation of a text's tokens


@dataclass(frozen=True, slots=True)
class Machine:
    """What one pod can do and how long its life's steps take."""

    profile: Profile
    pages_per_s: float  # of scanned pages, when nothing else is asked
    beside_pages_s: float  # what a text takes longer while pages are read
    start_s: float  # from the decision to the first request
    drain_s: float = 6.0  # preStop and the grace, besides what it still has to answer
    deadline_s: float = 60.0  # LIMIT_REQUEST_S: what would wait longer is refused
    job_workers: int = 2
    scrape_s: float = 15.0  # deploy/kubernetes/monitoring
    counted: float = 1.0  # what the trigger of the load counts for each computed token: requests, cached texts

    @property
    def tokens_per_s(self) -> float:
        return self.profile.texts_per_s * TOKENS


@dataclass(slots=True)
class _Pod:
    created_s: float
    ready_s: float
    scrape_due_s: float
    backlog: float = 0.0  # tokens
    utilisation: float = 0.0  # of the last seconds
    busy_lane_s: float = 0.0  # counters that Prometheus takes the rate of
    tokens: float = 0.0
    queue_seen: float = 0.0  # tokens, at the last scrape
    counters_seen: deque[tuple[float, float, float]] = field(default_factory=deque)  # moment, lane-seconds, tokens
    jobs: list[float] = field(default_factory=list)  # pages left of each


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trace under a rule."""

    p50_s: float  # of answered requests
    p99_s: float  # of all that were sent; where over 1 % were refused, the longest wait of the others
    late_ratio: float  # of requests over the bound, refused ones included
    refused_ratio: float
    pod_s: float  # from the decision to the exit, of all pods
    ideal_pod_s: float
    pods_most: int
    changes: int  # of the number of pods
    jobs_done_s: float  # from the first job until none is left for the first time; 0.0 without jobs
    ideal_jobs_done_s: float

    @property
    def cost_ratio(self) -> float:
        return self.pod_s / self.ideal_pod_s


@dataclass(slots=True)
class Fleet:
    """One run. ``bound_s`` is the p99 that the ideal is held to, too."""

    machine: Machine
    trace: Trace
    rule: Rule
    bound_s: float
    seed: int = 1
    _pods: list[_Pod] = field(default_factory=list)
    _waits: Counter[tuple[int, float, bool]] = field(default_factory=Counter)
    _refused: float = 0.0
    _pod_s: float = 0.0
    _queue: list[float] = field(default_factory=list)  # pages left of jobs that wait

    def run(self) -> Outcome:
        """Step through the trace; jobs that are left at its end keep it going."""
        random_of, arrivals = random.Random(self.seed), deque(self.trace.jobs)
        ideal, ideal_jobs_s = ideal_of(self.machine, self.trace, self.rule.maximum, self.bound_s)
        first = max(ideal[0], self.rule.minimum)
        autoscaler = Autoscaler(self.rule, [(0.0, first)])
        now_s, most, changes, done_s = 0.0, 0, 0, 0.0
        for _ in range(first):
            self._create(0.0, random_of, ready_s=0.0)
        while now_s < self.trace.duration_s or self._queue or any(pod.jobs for pod in self._pods):
            while arrivals and arrivals[0][0] <= now_s:
                self._queue += [float(JOB_PAGES)] * arrivals.popleft()[1]
            ready = [pod for pod in self._pods if pod.ready_s <= now_s]
            self._texts(now_s, ready, random_of)
            if self._pages(ready) and not done_s and not self._queue and not any(pod.jobs for pod in self._pods):
                done_s = now_s
            self._scrape(now_s, ready)
            if now_s % SYNC_S == 0.0:
                pods = len(self._pods)
                wish = autoscaler.decide(now_s, pods, self._totals(now_s))
                changes += wish != pods
                self._scale(wish, now_s, random_of)
            most = max(most, len(self._pods))
            now_s += STEP_S
        self._pod_s += sum(now_s - pod.created_s for pod in self._pods)
        first_s = self.trace.jobs[0][0] if self.trace.jobs else 0.0
        ideal_pod_s = sum(ideal) * _IDEAL_STEP_S + max(0.0, now_s - self.trace.duration_s)
        return self._outcome(ideal_pod_s, most, changes, done_s - first_s if done_s else 0.0, ideal_jobs_s)

    def _texts(self, now_s: float, ready: list[_Pod], random_of: random.Random) -> None:
        machine, profile = self.machine, self.machine.profile
        rate = machine.tokens_per_s
        expected = self.trace.load(now_s) * profile.texts_per_s * STEP_S / len(ready)
        for pod in ready:
            texts = max(0.0, random_of.gauss(expected, math.sqrt(expected)))
            tokens = max(0.0, TOKENS * (texts + math.sqrt(texts * _LENGTHS_SQUARED) * random_of.gauss(0.0, 1.0)))
            wait_s = pod.backlog / rate
            if wait_s > machine.deadline_s:
                self._refused += texts
                texts = tokens = 0.0
            pod.utilisation += (tokens / (rate * STEP_S) - pod.utilisation) * STEP_S / _SMOOTHED_S
            index = profile.index(pod.utilisation)
            if texts:
                self._waits[index, round(wait_s, 2), bool(pod.jobs)] += texts  # type: ignore[assignment]
            answered = min(pod.backlog + tokens, rate * STEP_S)
            pod.backlog += tokens - answered
            pod.tokens += (
                answered * machine.counted
            )  # counted with the answer: an overloaded pod tells what it does, not what is asked
            pod.busy_lane_s += (2.0 if pod.backlog or pod.jobs else profile.busy_lanes[index]) * STEP_S

    def _pages(self, ready: list[_Pod]) -> bool:
        """Read pages with what texts leave; whether a job ended."""
        ended = False
        for pod in ready:
            while self._queue and len(pod.jobs) < self.machine.job_workers:
                pod.jobs.append(self._queue.pop(0))
            if pod.jobs:
                pages = self.machine.pages_per_s * max(0.0, 1.0 - pod.utilisation) * STEP_S / len(pod.jobs)
                left = [job - pages for job in pod.jobs]
                pod.jobs = [job for job in left if job > 0]
                ended |= len(pod.jobs) < len(left)
        return ended

    def _scrape(self, now_s: float, ready: list[_Pod]) -> None:
        for pod in ready:
            if pod.scrape_due_s <= now_s:
                pod.scrape_due_s += self.machine.scrape_s
                usual = self.machine.profile.queued_tokens[self.machine.profile.index(pod.utilisation)]
                pod.queue_seen = pod.backlog or usual
                pod.counters_seen.append((now_s, pod.busy_lane_s, pod.tokens))

    def _totals(self, now_s: float) -> dict[str, float]:
        busy = tokens = 0.0
        for pod in self._pods:
            while pod.counters_seen and pod.counters_seen[0][0] <= now_s - _RATE_S:
                pod.counters_seen.popleft()
            if len(pod.counters_seen) > 1:
                first, last = pod.counters_seen[0], pod.counters_seen[-1]
                busy += (last[1] - first[1]) / (last[0] - first[0])
                tokens += (last[2] - first[2]) / (last[0] - first[0])
        jobs = len(self._queue) + sum(len(pod.jobs) for pod in self._pods)
        queued = sum(pod.queue_seen for pod in self._pods)
        return {"queue_tokens": queued, "load_tokens_per_s": tokens, "busy_lanes": busy, "stream_jobs": float(jobs)}

    def _create(self, now_s: float, random_of: random.Random, *, ready_s: float) -> None:
        self._pods.append(_Pod(now_s, ready_s, ready_s + random_of.random() * self.machine.scrape_s))

    def _scale(self, wish: int, now_s: float, random_of: random.Random) -> None:
        while len(self._pods) < wish:
            self._create(now_s, random_of, ready_s=now_s + self.machine.start_s)
        while len(self._pods) > wish:
            pod = (
                self._pods.pop()
            )  # the youngest; its jobs go back with the pages that are read, its texts are answered
            self._queue += pod.jobs
            drain_s = self.machine.drain_s + pod.backlog / self.machine.tokens_per_s
            self._pod_s += now_s + drain_s - pod.created_s

    def _outcome(
        self, ideal_pod_s: float, most: int, changes: int, jobs_done_s: float, ideal_jobs_done_s: float
    ) -> Outcome:
        spread: list[tuple[float, float]] = []  # latency, requests
        for (index, wait_s, beside_pages), requests in self._waits.items():
            more_s = wait_s + (self.machine.beside_pages_s if beside_pages else 0.0)
            row = self.machine.profile.quantiles_s[index]
            spread += [(row[at] + more_s, requests * WEIGHTS[at]) for at in range(len(SHARES))]
        spread.sort()
        answered = sum(requests for _, requests in spread)
        late = sum(requests for latency_s, requests in spread if latency_s > self.bound_s) + self._refused
        asked = answered + self._refused
        return Outcome(
            p50_s=_weighted(spread, 0.5 * answered),
            p99_s=_weighted(spread, 0.99 * asked),
            late_ratio=late / asked,
            refused_ratio=self._refused / asked,
            pod_s=self._pod_s,
            ideal_pod_s=ideal_pod_s,
            pods_most=most,
            changes=changes,
            jobs_done_s=jobs_done_s,
            ideal_jobs_done_s=ideal_jobs_done_s,
        )


def _weighted(spread: list[tuple[float, float]], requests: float) -> float:
    counted = 0.0
    for latency_s, weight in spread:
        counted += weight
        if counted >= requests:
            return latency_s
    return spread[-1][0]


_IDEAL_STEP_S = 10.0


def ideal_of(machine: Machine, trace: Trace, maximum: int, bound_s: float) -> tuple[list[int], float]:
    """What somebody would run who knows the future and has pods that start and end at once.

    Every ten seconds the fewest whole pods whose p99 is within the bound for the texts of that moment, and all pods
    while there are jobs; one at least, whatever the rule's minimum is.
    Returns: pods of each step, and the seconds from the first job until none is left.
    """
    highest = machine.profile.highest_utilisation(bound_s)
    pods, pages, done_s = [], 0.0, 0.0
    arrivals = deque(trace.jobs)
    for step in range(int(trace.duration_s / _IDEAL_STEP_S)):
        now_s = step * _IDEAL_STEP_S
        while arrivals and arrivals[0][0] <= now_s:
            pages += JOB_PAGES * arrivals.popleft()[1]
        load = trace.load(now_s)
        if pages > 0:
            pods.append(maximum)
            pages -= max(0.0, maximum - load) * machine.pages_per_s * _IDEAL_STEP_S
            if pages <= 0 and not done_s:
                done_s = now_s + _IDEAL_STEP_S - trace.jobs[0][0]
        else:
            pods.append(min(max(1, math.ceil(load / highest)), maximum))
    return pods, done_s
