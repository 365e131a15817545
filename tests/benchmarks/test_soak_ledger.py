"""The account of a soak: what is a violation, what a fault excuses, and how long it was felt."""

import pytest

from benchmarks.soak.ledger import GRACE_S, Attempt, Ledger, Request
from benchmarks.soak.schedule import AWAY, CALM, CUT_OFF, excused
from benchmarks.soak.summary import as_json, late_texts, rows


def text(start_s: float, took_s: float = 0.02, *failures: Attempt, outcome: str = "right", detail: str = "") -> Request:
    return Request("embeddings", "proxy", outcome, start_s, start_s + took_s, failures, detail)  # type: ignore[arg-type]


def ledger_of(*requests: Request, faults: tuple[tuple[str, float, float], ...] = ()) -> Ledger:
    ledger = Ledger(requests=list(requests))
    for kind, start_s, lifted_s in faults:
        ledger.lift(ledger.begin(kind, start_s, ""), lifted_s)
    return ledger


def rules(ledger: Ledger) -> list[str]:
    return [violation.rule for violation in ledger.all_violations()]


def test_a_right_answer_after_an_excused_failure_is_no_violation():
    """A killed replica cuts a request off; its client tries again and has its answer."""
    cut = Attempt(CUT_OFF, 10.0, 10.1)
    ledger = ledger_of(text(10.0, 0.5, cut), faults=(("replica_killed", 9.9, 12.0),))

    assert [] == rules(ledger)


def test_the_same_failure_without_its_fault_is_one():
    """Nothing explains it: before the fault, or under one that touches no text."""
    cut = Attempt(CUT_OFF, 10.0, 10.1)

    assert ["unexpected failure"] == rules(ledger_of(text(10.0, 0.5, cut)))
    assert ["unexpected failure"] == rules(ledger_of(text(10.0, 0.5, cut), faults=(("redis_killed", 9.9, 12.0),)))
    assert ["unexpected failure"] == rules(ledger_of(text(10.0, 0.5, cut), faults=(("replica_killed", 10.2, 12.0),)))


def test_a_fault_excuses_until_its_grace_ends():
    """What was killed needs a moment after it runs again; not more than that."""
    faults = (("replica_killed", 0.0, 5.0),)
    within, after = (Attempt(AWAY, 5.0 + GRACE_S + off, 5.0 + GRACE_S + off + 0.1) for off in (-1.0, 1.0))

    assert [] == rules(ledger_of(text(within.start_s, 1.0, within), faults=faults))
    assert ["unexpected failure"] == rules(ledger_of(text(after.start_s, 1.0, after), faults=faults))


@pytest.mark.parametrize("outcome", ["wrong", "lost"])
def test_no_fault_excuses_a_wrong_or_lost_answer(outcome):
    """Whatever happens, an accepted request is answered right or refused clearly."""
    ledger = ledger_of(text(1.0, outcome=outcome, detail="cosine 0.2"), faults=(("replica_killed", 0.0, 2.0),))

    [violation] = ledger.all_violations()
    assert (outcome, ("replica_killed",)) == (violation.rule, violation.faults)
    assert "cosine 0.2" in str(violation)


@pytest.mark.parametrize(
    ("fault", "accepted_s", "missed_s", "expected"),
    [
        pytest.param("redis_emptied", 5.0, 20.0, True, id="accepted-before-redis-forgot"),
        pytest.param("redis_emptied", 14.0, 20.0, False, id="accepted-by-the-new-redis"),
        pytest.param("redis_emptied", 5.0, 7.0, False, id="missed-before-redis-forgot"),
        pytest.param("redis_killed", 9.0, 20.0, True, id="in-the-last-second-of-the-log"),
        pytest.param("redis_killed", 5.0, 20.0, False, id="older-than-the-log-may-lack"),
        pytest.param("replica_killed", 5.0, 20.0, False, id="a-replica-takes-no-job-with-it"),
    ],
)
def test_which_jobs_redis_may_have_forgotten(fault, accepted_s, missed_s, expected):
    """By what it promises: all when it comes back empty, a second of its log when it is killed."""
    ledger = ledger_of(faults=((fault, 10.0, 12.0),))

    assert expected is ledger.may_have_forgotten(accepted_s, missed_s)


@pytest.mark.parametrize(
    ("fault", "expected"), [("alone_killed", True), ("redis_emptied", False), ("replica_killed", False)]
)
def test_the_service_without_redis_is_excused_by_its_own_death_alone(fault, expected):
    ledger = ledger_of(faults=((fault, 10.0, 12.0),))

    assert expected is ledger.may_have_forgotten(5.0, 20.0, route="alone")
    assert expected is excused(frozenset({fault}), CUT_OFF, "alone")


def test_a_fault_that_goes_on_counts_from_its_begin():
    """Before it is lifted nobody knows how long it lasts."""
    ledger = Ledger()
    ledger.begin("redis_emptied", 10.0, "")

    assert {"redis_emptied"} == ledger.kinds(500.0, 501.0)
    assert ledger.may_have_forgotten(5.0, 11.0)


def test_recovery_lasts_until_the_last_late_text():
    """From the begin of the fault to the answer of the last text that was late or tried again."""
    late, tried_again, quick = text(11.0, 2.0), text(13.0, 1.5, Attempt(AWAY, 13.0, 13.1)), text(20.0)
    ledger = ledger_of(late, tried_again, quick, faults=(("lane_killed", 10.0, 10.5),))

    assert pytest.approx(4.5) == ledger.recovery_s(ledger.windows[0], late_s=1.0)
    assert 0.0 == ledger_of(quick, faults=(("lane_killed", 10.0, 10.5),)).recovery_s(ledger.windows[0], late_s=1.0)


def test_rows_count_calm_and_each_fault():
    """A request counts under every fault that it met; jobs and texts are told apart."""
    calm = [text(float(second)) for second in range(5)]
    job = Request("job", "jobs", "failed", 100.0, 101.0)
    ledger = ledger_of(*calm, text(100.5, 3.0), job, faults=(("redis_paused", 100.0, 110.0),))

    found = {row.kind: row for row in rows(ledger, late_s=1.0)}
    assert (5, 0, 0.02) == (found[CALM].requests, found[CALM].jobs, found[CALM].text_p99_s)
    paused = found["redis_paused"]
    assert (1, 2, 1, 1, 3.0, 3.5) == (
        paused.times,
        paused.requests,
        paused.jobs,
        paused.failed,
        paused.text_p99_s,
        paused.recovery_s,
    )


def test_an_attempt_counts_where_it_failed():
    """A long job meets faults that did it no harm."""
    job = Request("job", "jobs", "right", 90.0, 200.0, (Attempt(AWAY, 101.0, 101.5),))
    ledger = ledger_of(job, faults=(("redis_paused", 100.0, 110.0), ("lane_killed", 150.0, 150.5)))

    assert {CALM: 0, "redis_paused": 1, "lane_killed": 0} == {row.kind: row.tried_again for row in rows(ledger, 1.0)}


def test_the_bound_on_small_texts_is_for_the_calm():
    """Under a fault they may be late; without one a late p99 fails the run, and says by how much."""
    slow = ledger_of(text(1.0, 2.5))
    under_a_fault = ledger_of(text(1.0, 0.01), text(100.0, 2.5), faults=(("overload", 99.0, 101.0),))

    [violation] = late_texts(rows(slow, 1.0), 1.0)
    assert "2.500 s" in violation.what
    assert [] == late_texts(rows(under_a_fault, 1.0), 1.0)


def test_the_verdict_is_the_violations():
    """A run passes when there is none; times in the result count from the begin of the traffic."""
    ledger = ledger_of(text(1001.0), faults=(("overload", 1010.0, 1012.0),))
    ledger.origin_s = 1000.0
    found = rows(ledger, 1.0)
    passed = as_json(ledger, found, ledger.all_violations())
    ledger.report("stuck", "a job", 1004.0, 1005.0)
    failed = as_json(ledger, found, ledger.all_violations())

    assert (True, {"embeddings": {"right": 1}}) == (passed["passed"], passed["totals"])
    assert (False, {"stuck": 1}) == (failed["passed"], failed["rules_broken"])
    assert 5.0 == failed["violations"][0]["at_s"]  # type: ignore[index]
    assert 10.0 == failed["faults"][0]["start_s"]  # type: ignore[index]
