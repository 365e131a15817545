"""The scaling model: one replica as a queue, the autoscaler's rule, pods under a trace, and the chosen thresholds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice
from statistics import fmean, median

import pytest

from benchmarks.scaling_model import (
    BOUND_S,
    CHOSEN_LOAD,
    CHOSEN_MINIMUM,
    CHOSEN_QUEUE,
    COST_RATIO,
    COUNTED,
    REQUEST_TOKENS,
    RESULT,
    SCRAPE_S,
)
from benchmarks.scaling_model_autoscaler import Autoscaler, Rule, desired_replicas
from benchmarks.scaling_model_fleet import Fleet, Machine, ideal_of
from benchmarks.scaling_model_replica import (
    SHARES,
    TOKENS,
    UTILISATIONS,
    WEIGHTS,
    ClosedLoops,
    Costs,
    Profile,
    costs_of,
    profile_of,
    simulate,
    token_counts,
)
from benchmarks.scaling_model_traces import TRACES, Trace
from tests.deploy.manifests import FOLDER, ours, the

COSTS = Costs(request_s=0.001, launch_s=0.015, token_s=0.0002, lone_speedup=1.5)


def flat_profile(latency_s: float = 0.05) -> Profile:
    """A replica that takes as long whatever is asked of it, until it is saturated."""
    return Profile(
        texts_per_s=100.0,
        quantiles_s=((latency_s,) * len(SHARES),) * len(UTILISATIONS),
        queued_tokens=(0.0,) * len(UTILISATIONS),
        busy_lanes=tuple(2 * utilisation for utilisation in UTILISATIONS),
    )


def steady(load: float, minutes: int, **changes: object) -> Trace:
    return Trace("steady", "steady", 60.0, (load,) * (minutes + 1), **changes)  # type: ignore[arg-type]


MACHINE = Machine(flat_profile(), pages_per_s=1.0, beside_pages_s=0.0, start_s=15.0)


def test_texts_have_the_benchmarks_mean_length():
    """36 tokens, as benchmarks/texts.py says of its own."""
    assert fmean(islice(token_counts(1), 10_000)) == pytest.approx(TOKENS, rel=0.05)


def test_costs_are_those_that_give_the_measured_rates():
    """Forth and back: the rates of known costs give these costs again."""
    texts = COSTS.budget_tokens // TOKENS
    lone_s = COSTS.of_batch(1, TOKENS)
    packed_s = COSTS.request_s / 32 + COSTS.launch_s / texts + COSTS.token_s * TOKENS
    rates = ClosedLoops(COSTS.lone_speedup / lone_s, 2 / lone_s, COSTS.texts_per_s, 2 / packed_s)

    found = costs_of(rates)

    assert found.request_s == pytest.approx(COSTS.request_s)
    assert found.launch_s == pytest.approx(COSTS.launch_s)
    assert found.token_s == pytest.approx(COSTS.token_s)
    assert found.lone_speedup == pytest.approx(COSTS.lone_speedup)


def test_noise_makes_no_cost_negative():
    """Requests of many texts that were measured slower than single ones."""
    found = costs_of(ClosedLoops(50.0, 300.0, 250.0, 200.0))

    assert (0.0, 0.0) == (found.request_s, found.launch_s)
    assert found.token_s > 0
    assert found.lone_speedup >= 1


def test_a_lone_request_waits_for_nobody():
    """At one request in ten minutes a text takes its batch on both cores; the median text has some 30 tokens."""
    seen = simulate(COSTS, 1 / 600, 500)

    assert seen.queued_token_s == 0.0
    assert min(seen.latencies_s) > (COSTS.request_s + COSTS.launch_s) / COSTS.lone_speedup
    assert fmean(seen.latencies_s) == pytest.approx(COSTS.of_batch(1, TOKENS) / COSTS.lone_speedup, rel=0.1)


def test_what_is_apart_from_queue_and_lanes_is_added():
    """To every request alike."""
    alone, apart = (simulate(replace(COSTS, apart_s=apart_s), 50.0, 100) for apart_s in (0.0, 0.01))

    assert [latency_s + 0.01 for latency_s in alone.latencies_s] == pytest.approx(apart.latencies_s)


def test_batches_make_a_flooded_replica_fast():
    """It answers what full batches allow, far more than texts one by one; and keeps Little's law."""
    requests = 5_000
    seen = simulate(COSTS, 10_000.0, requests)
    waiting_texts = seen.queued_token_s / seen.span_s / TOKENS
    in_lanes_s = COSTS.of_batch(14, 14 * TOKENS)

    assert requests / seen.span_s == pytest.approx(COSTS.texts_per_s, rel=0.1)
    assert waiting_texts == pytest.approx((fmean(seen.latencies_s) - in_lanes_s) * requests / seen.span_s, rel=0.1)


def test_latency_and_lanes_grow_with_the_load():
    """Lanes are busy long before the replica is full, as batches are small then: they are no measure of the load."""
    profile = profile_of(COSTS, requests=1_000)
    half = profile.index(0.5)

    assert profile.busy_lanes[0] < profile.busy_lanes[half] <= 2.0
    assert profile.p99_s(0) < profile.p99_s(half) < profile.p99_s(len(UTILISATIONS) - 1)
    assert profile.busy_lanes[half] > 1.5  # of two
    assert sum(WEIGHTS) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("total", "threshold", "pods", "expected"),
    [
        pytest.param(0.0, 100.0, 4, 0, id="nothing-to-do"),
        pytest.param(401.0, 100.0, 4, 4, id="within-the-tolerance"),
        pytest.param(361.0, 100.0, 4, 4, id="within-it-below"),
        pytest.param(445.0, 100.0, 4, 5, id="over-it"),
        pytest.param(355.0, 100.0, 4, 4, id="rounded-up"),
        pytest.param(299.0, 100.0, 4, 3, id="under-it"),
    ],
)
def test_desired_replicas_one_metric(total: float, threshold: float, pods: int, expected: int):
    """As the controller computes an AverageValue."""
    assert expected == desired_replicas(total, threshold, pods)


def test_the_largest_wish_counts_at_once():
    """Up to the maximum in one look."""
    rule = Rule("rule", queue_tokens=100, load_tokens_per_s=10)
    totals = {"queue_tokens": 650.0, "load_tokens_per_s": 25.0, "stream_jobs": 0.0}

    assert 7 == Autoscaler(rule).decide(0.0, 1, totals)
    assert 10 == Autoscaler(rule).decide(0.0, 1, {**totals, "queue_tokens": 9_999.0})


def test_pods_go_one_a_minute_after_the_window():
    """Five minutes hold the highest wish; then one in each period of a minute."""
    autoscaler, pods, gone_s = Autoscaler(Rule("rule", queue_tokens=100)), 4, []
    for look in range(60):
        now_s = look * 15.0
        totals = {"queue_tokens": 400.0 if look == 0 else 0.0, "stream_jobs": 0.0}
        wish = autoscaler.decide(now_s, pods, totals)
        gone_s += [now_s] * (wish < pods)
        pods = wish

    assert 1 == pods
    assert [300.0, 360.0, 420.0] == gone_s


def test_a_steady_load_keeps_as_many_pods_as_it_needs():
    """With the rate of tokens as a trigger; nobody waits, and the number never changes."""
    rule = Rule("rule", queue_tokens=8_000, load_tokens_per_s=0.8 * MACHINE.tokens_per_s)
    outcome = Fleet(MACHINE, steady(1.5, 10), rule, BOUND_S).run()

    assert (0.0, 0.0) == (outcome.late_ratio, outcome.refused_ratio)
    assert 2 == outcome.pods_most
    assert outcome.cost_ratio == pytest.approx(1.0, abs=0.05)


def test_the_queue_alone_never_rests():
    """It is empty as soon as there are enough pods, so that they are taken away again, and callers wait meanwhile."""
    outcome = Fleet(MACHINE, steady(2.5, 30), Rule("queue", queue_tokens=8_000), BOUND_S).run()

    assert outcome.changes > 4
    assert outcome.late_ratio > 0.01


def test_an_overloaded_pod_makes_callers_wait_and_then_refuses():
    """One pod that may not grow, asked for 1.5 times what it can: the wait grows by half a second a second."""
    rule = Rule("alone", queue_tokens=8_000, maximum=1)
    two_minutes = Fleet(MACHINE, steady(1.5, 2), rule, BOUND_S).run()
    ten_minutes = Fleet(MACHINE, steady(1.5, 10), rule, BOUND_S).run()

    assert two_minutes.p99_s == pytest.approx(60.0, rel=0.1)
    assert 0.0 == two_minutes.refused_ratio
    assert ten_minutes.refused_ratio == pytest.approx(1 / 3 * 8 / 10, rel=0.1)
    assert ten_minutes.p99_s < 62


def test_jobs_bring_pods_and_keep_them():
    """Until the last one ended: running jobs are in the stream too."""
    trace = steady(0.1, 5, jobs=((60.0, 40),))
    outcome = Fleet(MACHINE, trace, Rule("jobs", queue_tokens=8_000), BOUND_S).run()

    assert 10 == outcome.pods_most
    assert outcome.jobs_done_s == pytest.approx(outcome.ideal_jobs_done_s, rel=0.5)
    assert outcome.jobs_done_s > 40 * 20 / 10


def test_the_ideal_is_the_fewest_pods():
    """Whole ones, up to the highest utilisation that keeps the bound; more than that would be cheaper and too slow."""
    pods, jobs_s = ideal_of(MACHINE, steady(3.1, 10), 10, BOUND_S)

    assert ({math.ceil(3.1 / 0.95)}, 60, 0.0) == (set(pods), len(pods), jobs_s)


@pytest.mark.parametrize("trace", TRACES)
def test_traces_repeat_by_their_seed(trace):
    """The same loads for the same seed, others for another, never more than ten pods can do."""
    once, again, other = trace(1), trace(1), trace(2)

    assert once == again
    assert once.loads != other.loads
    assert 0 < min(once.loads) <= max(once.loads) < 9.5


def test_the_manifest_has_the_chosen_thresholds():
    """Those of the result, for the rate that was measured; and they reach what can be reached."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    triggers = {one["name"]: one["metadata"] for one in the(ours(FOLDER / "keda"), "ScaledObject")["spec"]["triggers"]}
    scaled = the(ours(FOLDER / "keda"), "ScaledObject")["spec"]
    [down] = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]["policies"]
    window_s = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"][
        "stabilizationWindowSeconds"
    ]
    ends = the(ours(FOLDER / "monitoring"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    rule = Rule("")

    assert CHOSEN_QUEUE == float(triggers["queue"]["threshold"])
    assert CHOSEN_LOAD * COUNTED * result["replica"]["tokens_per_s"] == pytest.approx(
        float(triggers["load"]["threshold"]), rel=0.02
    )
    assert f"{REQUEST_TOKENS} * sum(rate(financia_requests_total[1m]))" in triggers["load"]["query"]
    assert (CHOSEN_MINIMUM, rule.maximum) == (scaled["minReplicaCount"], scaled["maxReplicaCount"])
    assert (rule.down_window_s, rule.down_period_s) == (window_s, down["periodSeconds"])
    assert rule.stream_jobs == float(triggers["jobs"]["streamLength"])
    assert [f"{SCRAPE_S:.0f}s"] == [end["interval"] for end in ends if end["path"] == "/metrics"]
    assert (BOUND_S, COST_RATIO) == (result["bound_s"], result["cost_ratio"])


@pytest.mark.parametrize(
    ("hits", "load"), [(0.5, "hits_50_percent"), (0.9, "hits_90_percent"), (1.0, "hits_100_percent")]
)
def test_a_cached_text_costs_what_its_request_does(hits: float, load: str):
    """Full pods count the same work a second, however many texts come from the cache: what the trigger relies on."""
    loads = json.loads((RESULT.parent / "http.json").read_text(encoding="utf-8"))["raw"]["loads"]
    rates = {
        name: median(
            one["report"]["texts_per_s"] for one in loads if (one["peer"], one["load"]) == ("ours-cached", name)
        )
        for name in ("hits_0_percent", load)
    }

    counted = rates[load] * ((1 - hits) * TOKENS + REQUEST_TOKENS)
    expected = rates["hits_0_percent"] * (TOKENS + REQUEST_TOKENS)
    assert 0.95 * expected <= counted <= 1.12 * expected, "too few: requests are late; too many: pods that nobody needs"


def test_the_model_foresees_the_service():
    """The median within a quarter and the p99 within a third, at both loads; else thresholds mean nothing."""
    for row in json.loads(RESULT.read_text(encoding="utf-8"))["foreseen"]:
        assert row["foreseen_p50_s"] == pytest.approx(row["p50_s"], rel=0.25)
        assert row["foreseen_p99_s"] == pytest.approx(row["p99_s"], rel=0.33)


def test_the_bound_is_that_of_the_alert():
    """FinanciaSlow says from which latency on operators are woken."""
    alerts = (FOLDER.parent / "prometheus" / "alerts.yml").read_text(encoding="utf-8")

    assert 'le="1.0"' in alerts or 'le="1"' in alerts
