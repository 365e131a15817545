"""Which faults come from a seed, and what each of them excuses."""

from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.soak.schedule import AWAY, BAD_GATEWAY, BUSY, CALM, CUT_OFF, FAULTS, FULL_DISK, excused, plan


def test_a_seed_gives_the_same_faults():
    """Two runs with one seed meet the same faults in the same order; another seed gives others."""
    first, again, other = (list(islice(plan(seed), 40)) for seed in (7, 7, 8))

    assert first == again
    assert [fault.kind for fault in first] != [fault.kind for fault in other]


def test_every_kind_comes_once_before_any_comes_twice():
    """A short run has no kind twice; a long one has all of them equally often."""
    kinds = [fault.kind for fault in islice(plan(3), 2 * len(FAULTS))]

    assert set(FAULTS) == set(kinds[: len(FAULTS)])
    assert sorted(kinds[: len(FAULTS)]) == sorted(kinds[len(FAULTS) :])


def test_times_are_within_their_bounds():
    """How long a fault is kept up is the kind's, and the calm before it the run's."""
    for fault in islice(plan(1, calm_s=(2.0, 3.0)), 60):
        least_s, most_s = FAULTS[fault.kind].hold_s
        assert least_s <= fault.hold_s <= most_s
        assert 2.0 <= fault.calm_s <= 3.0
        assert 0 <= fault.choice < 1


@pytest.mark.parametrize(
    ("kinds", "failure", "route", "expected"),
    [
        pytest.param({CALM}, BUSY, "proxy", True, id="a-429-may-always-come"),
        pytest.param({CALM}, AWAY, "proxy", False, id="without-a-fault-nothing-is-away"),
        pytest.param({"replica_killed"}, BAD_GATEWAY, "proxy", True, id="a-killed-replica-cuts-answers-off"),
        pytest.param({"replica_replaced"}, CUT_OFF, "proxy", False, id="a-replacement-loses-no-request"),
        pytest.param({"replica_replaced"}, CUT_OFF, "replica", True, id="but-ends-connections-past-the-proxy"),
        pytest.param({"redis_paused"}, AWAY, "jobs", True, id="jobs-need-redis"),
        pytest.param({"redis_paused"}, AWAY, "replica", True, id="so-does-what-is-taught-to-all"),
        pytest.param({"redis_paused"}, AWAY, "proxy", False, id="texts-do-not"),
        pytest.param({"redis_paused"}, CUT_OFF, "replica", False, id="which-cuts-nothing-off"),
        pytest.param({"disk_full"}, FULL_DISK, "replica", True, id="a-full-disk-teaches-nothing"),
        pytest.param({"disk_full"}, AWAY, "proxy", False, id="and-answers-everything-else"),
        pytest.param({"redis_paused", "lane_killed"}, AWAY, "proxy", True, id="either-of-two-faults-excuses"),
        pytest.param({"overload"}, "503 without Retry-After", "proxy", False, id="no-fault-excuses-a-missing-header"),
    ],
)
def test_what_a_fault_excuses(kinds, failure, route, expected):
    """An attempt may fail only in the ways that the fault it met explains."""
    assert expected is excused(frozenset(kinds), failure, route)
