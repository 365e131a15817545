"""The result of a soak: a row for each kind of fault, totals, and whether it passed. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.load import percentile
from benchmarks.soak.ledger import Ledger, Request, Violation, Window
from benchmarks.soak.schedule import CALM, FAULTS

_MAX_LISTED = 200  # violations in the result file


@dataclass(frozen=True, slots=True)
class Row:
    """What happened under one kind of fault, or without any."""

    kind: str
    times: int
    requests: int  # that met it, jobs included
    jobs: int
    tried_again: int  # of them, answered although an attempt under this fault failed
    failed: int  # jobs that ended with a retryable error
    gone: int  # jobs that Redis forgot when it came back empty
    wrong: int
    lost: int
    text_p50_s: float  # small texts, from when they were due to the right answer
    text_p99_s: float
    recovery_s: float  # the longest, from the fault's begin until no small text was refused or late


def rows(ledger: Ledger, late_s: float) -> list[Row]:
    """Calm first, then the faults in the order of the table of kinds; those that did not come are left out.

    A request that met two faults counts under both.
    """
    by_kind: dict[str, list[Request]] = {}
    for request in ledger.requests:
        for kind in ledger.kinds(request.start_s, request.end_s):
            by_kind.setdefault(kind, []).append(request)
    windows = {kind: [window for window in ledger.windows if window.kind == kind] for kind in (CALM, *FAULTS)}
    return [
        _row(ledger, kind, by_kind.get(kind, []), windows[kind], late_s)
        for kind in (CALM, *FAULTS)
        if kind == CALM or windows[kind]
    ]


def _row(ledger: Ledger, kind: str, requests: Sequence[Request], windows: Sequence[Window], late_s: float) -> Row:
    counts = ledger.counts(requests)
    texts = set(map(id, ledger.texts()))
    times_s = sorted(request.took_s for request in requests if id(request) in texts)
    return Row(
        kind=kind,
        times=len(windows),
        requests=len(requests),
        jobs=sum(request.kind == "job" for request in requests),
        tried_again=sum(_tried_again(ledger, kind, request) for request in requests),
        failed=counts["failed"],
        gone=counts["gone"],
        wrong=counts["wrong"],
        lost=counts["lost"],
        text_p50_s=round(percentile(times_s, 0.5), 4),
        text_p99_s=round(percentile(times_s, 0.99), 4),
        recovery_s=round(max((ledger.recovery_s(window, late_s) for window in windows), default=0.0), 1),
    )


def _tried_again(ledger: Ledger, kind: str, request: Request) -> bool:
    """Whether an attempt failed under this fault, and a later one was answered: a job meets many faults."""
    if request.outcome in ("wrong", "lost"):
        return False
    return any(kind in ledger.kinds(attempt.start_s, attempt.end_s) for attempt in request.failures)


def _window(window: Window, origin_s: float) -> dict[str, object]:
    start_s, lifted_s = round(window.start_s - origin_s, 1), round(window.lifted_s - origin_s, 1)
    return {"kind": window.kind, "start_s": start_s, "lifted_s": lifted_s, "note": window.note}


def late_texts(found: Sequence[Row], bound_s: float) -> list[Violation]:
    """The bound on small texts without a fault, broken."""
    calm = next(row for row in found if row.kind == CALM)
    if calm.text_p99_s <= bound_s:
        return []
    what = f"p99 of small texts without a fault is {calm.text_p99_s:.3f} s, the bound is {bound_s:g} s"
    return [Violation("late", what, 0.0, ())]


def as_json(ledger: Ledger, found: Sequence[Row], violations: Sequence[Violation]) -> dict[str, object]:
    """Rows, totals by kind of request, faults as they came, violations, verdict."""
    totals: dict[str, Counter[str]] = {}
    for request in ledger.requests:
        totals.setdefault(request.kind, Counter())[request.outcome] += 1
    return {
        "passed": not violations,
        "rows": [asdict(row) for row in found],
        "totals": {kind: dict(sorted(counts.items())) for kind, counts in sorted(totals.items())},
        "rules_broken": dict(Counter(violation.rule for violation in violations)),
        "violations": [asdict(violation) for violation in violations[:_MAX_LISTED]],
        "faults": [_window(window, ledger.origin_s) for window in ledger.windows],
    }
