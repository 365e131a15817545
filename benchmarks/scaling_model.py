"""Which thresholds the autoscaler should have: this service's queue under three traces and a dozen rules.

    python -m benchmarks.scaling_model --measure   # first measure the real service (3 minutes); then simulate
    python -m benchmarks.scaling_model             # simulate with what was measured; some minutes

Rates of texts are those that ``--measure`` found, rates of pages come from results/ocr.json. What is assumed and not
measured is in `ASSUMED`, and in the result.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.scaling_model_autoscaler import Rule
from benchmarks.scaling_model_fleet import Fleet, Machine, Outcome
from benchmarks.scaling_model_measure import costs_measured, foreseen, measure
from benchmarks.scaling_model_replica import TOKENS, Profile, profile_of
from benchmarks.scaling_model_traces import TRACES, Trace
from benchmarks.tables import Result

RESULTS = Path(__file__).parent / "results"
RESULT = RESULTS / "scaling.json"
BOUND_S = 1.0  # of the p99: the latency objective of deploy/prometheus/alerts.yml (FinanciaSlow)
COST_RATIO = 1.3  # over the ideal, to reach
SEEDS = (1, 2)
ASSUMED = {
    "schedule_s": 5.0,  # a node has room and the image: scheduler, volumes, container
    "probes_s": 4.0,  # half a period of the startup probe, half of the readiness probe, endpoints
    "beside_pages_s": 0.025,  # backend/ARCHITECTURE.md: 39 ms at the median beside scans, 14 alone
}
# What an answered request costs besides its texts, in tokens of text: a cached text is nothing but this. Made of the
# rates of results/http.json with 0 to 100 % of texts from the cache (tests/benchmarks/test_scaling_model.py).
REQUEST_TOKENS = 1.25
DEARER = 1.1  # texts that cost so many times what was measured
# Of deploy/kubernetes/keda/scaledobject.yaml and monitoring/podmonitor.yaml; the same tests hold them together.
CHOSEN_LOAD, CHOSEN_QUEUE, CHOSEN_MINIMUM = 0.8, 8_000, 2
SCRAPE_S = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """One row: a rule, and what is different from the machine as it is."""

    name: str
    rule: Rule
    start_s: float = 0.0  # 0: as measured
    scrape_s: float = SCRAPE_S
    text_cost: float = 1.0  # of a computed text, over what was measured
    counted: float = 0.0  # what the trigger of the load counts for each computed token; 0: without a cache

    def on(self, machine: Machine) -> Machine:
        """The machine with what is different here."""
        profile = machine.profile
        slower = replace(
            profile,
            texts_per_s=profile.texts_per_s / self.text_cost,
            quantiles_s=tuple(tuple(one * self.text_cost for one in row) for row in profile.quantiles_s),
        )
        return replace(
            machine,
            profile=slower,
            start_s=self.start_s or machine.start_s,
            scrape_s=self.scrape_s,
            counted=self.counted or COUNTED,
        )


COUNTED = 1 + REQUEST_TOKENS / TOKENS  # requests of one text, none of them from the cache


def load_of(share: float, machine: Machine) -> float:
    """The threshold of the load's trigger: a share of what a full pod does, in computed tokens and requests."""
    return share * machine.tokens_per_s * COUNTED


def cached(name: str, rule: Rule, share: float, *, counted: float) -> Case:
    """Texts of which a share comes from the cache. They cost a request each, which pods have less for computed ones."""
    hits = share / (1 - share)  # for each computed text
    return Case(name, rule, text_cost=1 + hits * REQUEST_TOKENS / (TOKENS + REQUEST_TOKENS), counted=counted)


def rules(machine: Machine) -> Iterator[Case]:
    """Thresholds to choose from, from the issue's single trigger to those that look at the load; from one pod on."""
    for queue in (1_000, 16_000):
        yield Case(f"queue {queue:,}", Rule("queue", queue_tokens=queue))
    yield Case("busy lanes 70 % (like the processor of `hpa`)", Rule("busy", busy_lanes=1.4, stream_jobs=0))
    yield Case("load 0.8", Rule("load", load_tokens_per_s=load_of(0.8, machine)))
    both = {
        load: Rule("both", queue_tokens=CHOSEN_QUEUE, load_tokens_per_s=load_of(load, machine))
        for load in (0.6, 0.7, 0.8, 0.9)
    }
    for load, rule in both.items():
        yield Case(f"load {load}, queue {CHOSEN_QUEUE:,}", rule)
    for load in (0.7, 0.8, 0.9):
        yield Case(f"load {load}, queue {CHOSEN_QUEUE:,}; texts 10 % dearer", both[load], text_cost=DEARER)
    for queue in (CHOSEN_QUEUE, 16_000):
        rule = replace(both[CHOSEN_LOAD], queue_tokens=queue)
        yield Case(f"load {CHOSEN_LOAD}, queue {queue:,}; texts twice as dear", rule, text_cost=2.0)


def variations(chosen: Rule) -> Iterator[Case]:
    """The chosen rule with one thing changed."""
    for minimum in (1, 4, 7):
        yield Case(f"at least {minimum} pod{'s' * (minimum > 1)}", replace(chosen, minimum=minimum))
    for start_s in (45.0, 120.0):
        yield Case(f"a start takes {start_s:.0f} s", chosen, start_s=start_s)
    yield Case("scraped every 15 s", chosen, scrape_s=15.0)
    yield Case("scale-down after 2 minutes", replace(chosen, down_window_s=120.0))
    yield Case("scale-down after 10 minutes", replace(chosen, down_window_s=600.0))
    for jobs in (2, 16):
        yield Case(f"{jobs} jobs a pod", replace(chosen, stream_jobs=jobs))
    for queue in (4_000, 16_000):
        yield Case(f"queue {queue:,}", replace(chosen, queue_tokens=queue))
    requests = 1 + 10 * REQUEST_TOKENS / TOKENS  # ten for each computed text
    yield cached("90 % of texts from the cache", chosen, 0.9, counted=requests)
    threshold = chosen.load_tokens_per_s / COUNTED
    plain = replace(chosen, load_tokens_per_s=threshold)
    yield cached("the same, counting computed tokens alone", plain, 0.9, counted=1.0)
    yield cached("the same, counting all tokens", plain, 0.9, counted=10.0)


def outcomes(machine: Machine, case: Case, trace: Callable[[int], Trace]) -> dict[str, Any]:
    """Of all seeds: the worst latency, the highest cost."""
    runs = [Fleet(case.on(machine), trace(seed), case.rule, BOUND_S, seed).run() for seed in SEEDS]
    return {
        **asdict(max(runs, key=lambda run: (run.p99_s, run.late_ratio))),
        "late_ratio": max(run.late_ratio for run in runs),
        "cost_ratio": max(run.cost_ratio for run in runs),
        "reached": all(_reached(run) for run in runs),
        "seeds": len(runs),
    }


def _reached(outcome: Outcome) -> bool:
    """Refused requests count as late: 99 of 100 of all that were sent, within the bound."""
    return outcome.late_ratio <= 0.01 and outcome.cost_ratio <= COST_RATIO


def machine_of(measured: Result, profile: Profile) -> Machine:
    """One pod of two cores, with the project's measured rates."""
    ocr = json.loads((RESULTS / "ocr.json").read_text(encoding="utf-8"))
    pages_per_s = next(row["pages_per_s"]["median"] for row in ocr["speed"] if row["reader"] == "ours")
    start_s = ASSUMED["schedule_s"] + measured["ready_s"] + ASSUMED["probes_s"]
    return Machine(profile, pages_per_s, ASSUMED["beside_pages_s"], start_s)


def simulated(measured: Result) -> dict[str, object]:
    """All rules and variations on all traces, and the replica they were computed with."""
    costs = costs_measured(measured)
    profile = profile_of(costs)
    machine = machine_of(measured, profile)
    chosen = Rule(
        "chosen",
        queue_tokens=CHOSEN_QUEUE,
        load_tokens_per_s=load_of(CHOSEN_LOAD, machine),
        minimum=CHOSEN_MINIMUM,
    )
    tables = {
        "rules": list(rules(machine)),
        "variations": [Case(_name_of(chosen), chosen), *variations(chosen)],
    }
    return {
        "bound_s": BOUND_S,
        "cost_ratio": COST_RATIO,
        "assumed": {**ASSUMED, "start_s": machine.start_s},
        "replica": {
            "costs": asdict(costs),
            "texts_per_s": profile.texts_per_s,
            "tokens_per_s": machine.tokens_per_s,
            "tokens": TOKENS,
            "pages_per_s": machine.pages_per_s,
            "highest_utilisation": profile.highest_utilisation(BOUND_S),
        },
        "chosen": {
            **asdict(chosen),
            "name": _name_of(chosen),  # of its row
            "load": CHOSEN_LOAD,
            "request_tokens": REQUEST_TOKENS,
            "scrape_s": SCRAPE_S,
        },
        "traces": {trace(1).name: trace(1).title for trace in TRACES},
        "foreseen": foreseen(measured, costs),
        **{name: _case_rows(machine, cases) for name, cases in tables.items()},
    }


def _name_of(rule: Rule) -> str:
    return f"load {CHOSEN_LOAD}, queue {rule.queue_tokens:,.0f}, at least {rule.minimum} pods"


def _case_rows(machine: Machine, cases: list[Case]) -> list[dict[str, object]]:
    """In processes, as each case takes seconds of one core."""
    with ProcessPoolExecutor() as pool:
        return list(pool.map(partial(_case_row, machine), cases))


def _case_row(machine: Machine, case: Case) -> dict[str, object]:
    row = {trace(1).name: outcomes(machine, case, trace) for trace in TRACES}
    summary = {name: f"late {run['late_ratio']:.1%}, cost {run['cost_ratio']:.2f}" for name, run in row.items()}
    print(case.name, summary, file=sys.stderr, flush=True)
    return {"name": case.name, "rule": asdict(case.rule), "outcomes": row}


def main() -> None:
    """Measure where it is asked for, simulate, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure the real service first, on a quiet machine")
    parser.add_argument("--only-measure", action="store_true", help="and simulate later")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    kept = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    if options.measure or options.only_measure:
        kept["measured"] = measure()
        print(json.dumps(kept["measured"]["open_loops"], indent=1), file=sys.stderr)
    if "measured" not in kept:
        parser.error(f"{options.out} has no measurement: run with --measure once")
    if not options.only_measure:
        kept = {**facts(), "measured": kept["measured"], **simulated(kept["measured"])}
    options.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
