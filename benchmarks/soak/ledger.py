"""The account of every request and job: how it ended, what it met, and which fault was on. Pure: times are given."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.soak.schedule import CALM, FAULTS, Route, excused

GRACE_S = 15.0  # after a fault is lifted, until when its traces are its own

# right: the answer that was expected. refused: a clear error that was expected. wrong: any other answer.
# lost: no answer within the client's patience. gone: a job that Redis forgot with everything else.
Outcome = Literal["right", "refused", "wrong", "lost", "gone", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that brought no answer."""

    failure: str  # as schedule.py names it
    start_s: float
    end_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request with all its attempts."""

    kind: str  # what was asked: "embeddings", "scan", "job", …
    route: Route
    outcome: Outcome
    start_s: float
    end_s: float
    failures: tuple[Attempt, ...] = ()
    detail: str = ""  # of an outcome that is wrong or lost

    @property
    def took_s(self) -> float:
        """From when it was due to its answer, attempts that failed included."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Window:
    """One fault of the run."""

    kind: str
    start_s: float
    lifted_s: float
    note: str = ""  # what it hit

    @property
    def end_s(self) -> float:
        return self.lifted_s + GRACE_S

    def touches(self, start_s: float, end_s: float) -> bool:
        return start_s < self.end_s and end_s > self.start_s


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not happen, and did."""

    rule: str  # one of a few words: "wrong answer", "lost", …
    what: str
    at_s: float
    faults: tuple[str, ...]  # that were on

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  {self.rule}: {self.what}  [{', '.join(self.faults) or CALM}]"


@dataclass(slots=True)
class Ledger:
    """Everything that was asked, and every fault."""

    requests: list[Request] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)  # seen outside of a request: at rest, in a job's events
    origin_s: float = 0.0  # when the traffic began

    def kinds(self, start_s: float, end_s: float) -> frozenset[str]:
        """The faults that were on at some moment of a span; `CALM` where there was none."""
        met = frozenset(window.kind for window in self.windows if window.touches(start_s, end_s))
        return met or frozenset({CALM})

    def begin(self, kind: str, now_s: float, note: str) -> int:
        """Note that a fault begins; its number, for `lift`."""
        self.windows.append(Window(kind, now_s, math.inf, note))
        return len(self.windows) - 1

    def lift(self, number: int, now_s: float) -> Window:
        """Note that a fault is over: what was killed runs again, what was full has room."""
        self.windows[number] = replace(self.windows[number], lifted_s=now_s)
        return self.windows[number]

    def report(self, rule: str, what: str, start_s: float, end_s: float) -> None:
        """Note a violation that is no request's."""
        self.violations.append(self._violation(rule, what, start_s, end_s))

    def all_violations(self) -> list[Violation]:
        """Those that were noted and those of requests, by time."""
        found = [violation for request in self.requests for violation in self._violations_of(request)]
        return sorted([*self.violations, *found], key=lambda violation: violation.at_s)

    def _violations_of(self, request: Request) -> Iterable[Violation]:
        if request.outcome in ("wrong", "lost"):
            what = f"{request.kind}: {request.detail}"
            yield self._violation(request.outcome, what, request.start_s, request.end_s)
        for attempt in request.failures:
            if not excused(self.kinds(attempt.start_s, attempt.end_s), attempt.failure, request.route):
                what = f"{request.kind}: {attempt.failure} {attempt.detail}"
                yield self._violation("unexpected failure", what, attempt.start_s, attempt.end_s)

    def _violation(self, rule: str, what: str, start_s: float, end_s: float) -> Violation:
        faults = self.kinds(start_s, end_s) - {CALM}
        return Violation(rule, what, round(end_s - self.origin_s, 1), tuple(sorted(faults)))

    def may_have_forgotten(
        self, accepted_s: float, missed_s: float, *, route: Route = "jobs", margin_s: float = 2.0
    ) -> bool:
        """Whether a job is lost that was accepted then and missed later, by what is promised.

        A Redis that restarts empty forgets all, as a service without one does; one that was killed may lack in its log
        what came in the last second (appendfsync everysec).
        """
        for window in self.windows:
            if not window.start_s - margin_s < missed_s:
                continue
            if FAULTS[window.kind].forgets == route and accepted_s < window.lifted_s:
                return True
            if (
                route == "jobs"
                and window.kind == "redis_killed"
                and window.start_s - margin_s < accepted_s < window.lifted_s
            ):
                return True
        return False

    def recovery_s(self, window: Window, late_s: float) -> float:
        """From a fault's begin until no small text was refused or late any more; 0 where none was."""
        bad = [
            request.end_s
            for request in self.texts()
            if window.start_s < request.end_s
            and request.start_s < window.end_s
            and (request.failures or request.took_s > late_s)
        ]
        return max(bad, default=window.start_s) - window.start_s

    def texts(self) -> list[Request]:
        """Requests of one small text."""
        return [request for request in self.requests if request.kind in SMALL_TEXTS]

    def counts(self, requests: Iterable[Request]) -> Counter[str]:
        return Counter(request.outcome for request in requests)


SMALL_TEXTS = frozenset({"embeddings", "entities", "classify"})
