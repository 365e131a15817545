"""The Prometheus metrics of the report: they parse, follow the naming rules, and omit unknown values."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backend.device.records import CardSample
from backend.device.watch.gpu_report import THROTTLE_REASONS, gpu_samples, table
from backend.telemetry import METRICS, PREFIX, render_samples
from tests.device.fakes import CPU, GIB, LOST, ON_CARD, ON_CPU, SAMPLE, TWO_CARDS, report

UNITS = ("_bytes", "_ratio", "_celsius", "_watts", "_hz", "_seconds", "_total", "_info")
COUNTED = ("gpu_available", "gpu_lost", "gpu_memory_unified", "gpu_throttle_active", "gpu_processes")
COUNTED += ("gpu_headroom_batches",)  # yes-or-no and plural nouns have no unit
L4, T4 = {"gpu": "0", "uuid": "GPU-1"}, {"gpu": "1", "uuid": "GPU-2"}


def families(found):
    return {
        family.name: family for family in text_string_to_metric_families(render_samples(gpu_samples(found)).decode())
    }


def series(found, name):
    """[(labels, number)] of one metric, by its name without the prefix."""
    family = families(found).get(PREFIX + name.removesuffix("_total"))
    return [(sample.labels, sample.value) for sample in family.samples] if family else []


def test_names_kinds_and_help():
    """Base units, _total for counters alone, a sentence of help, and no name of the main table."""
    metrics = gpu_samples(report())

    assert len({metric.name for metric in metrics}) == len(metrics)
    assert not {metric.name for metric in metrics} & {metric.name for metric in METRICS}
    for metric in metrics:
        assert re.fullmatch(r"(gpu|torch)(_[a-z]+)+", metric.name)
        assert metric.name in COUNTED or metric.name.endswith(UNITS), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_the_table_is_what_is_exported():
    """Documents list every metric, whatever machine they are written on."""
    assert [(one.name, one.labels) for one in gpu_samples(report())] == [(one.name, one.labels) for one in table()]


def test_identity_is_one_series():
    """Names stand in gpu_info alone; everything else joins by uuid."""
    same = {"driver": "580.95.05", "cuda": "13.0", "mig_profile": ""}

    assert [
        {**L4, "name": "NVIDIA L4", "arch": "Ada Lovelace", "compute_capability": "8.9", **same},
        {**T4, "name": "Tesla T4", "arch": "Turing", "compute_capability": "7.5", **same},
    ] == [labels for labels, _ in series(report(), "gpu_info")]
    assert {"gpu_info"} == {one.name for one in gpu_samples(report()) if "name" in one.labels}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu_memory_used_bytes", [(L4, 4.0 * GIB), (T4, 4.0 * GIB)]),
        ("gpu_memory_free_bytes", [(L4, 20.0 * GIB), (T4, 20.0 * GIB)]),
        ("gpu_memory_unified", [(L4, 0.0), (T4, 0.0)]),
        ("gpu_utilization_ratio", [(L4, 0.5), (T4, 0.5)]),
        ("gpu_memory_bandwidth_utilization_ratio", [(L4, 0.25), (T4, 0.25)]),
        ("gpu_energy_joules_total", [(L4, 123.5), (T4, 123.5)]),
        ("gpu_pcie_replays_total", [(L4, 3.0), (T4, 3.0)]),
        ("gpu_xid_errors_total", [({**L4, "xid": "31"}, 2.0), ({**T4, "xid": "31"}, 2.0)]),
        ("gpu_processes", [(L4, 2.0), (T4, 2.0)]),
        ("gpu_lost", [(L4, 0.0), (T4, 0.0)]),
        ("torch_memory_allocated_bytes", [(L4, 2.0 * GIB)]),
        ("torch_memory_active_bytes", [(L4, 2.0 * GIB)]),
        ("torch_memory_reserved_peak_bytes", [(L4, 6.0 * GIB)]),
        ("torch_alloc_retries_total", [(L4, 1.0)]),
        ("torch_oom_rejections_total", [(L4, 2.0)]),
        ("gpu_ceiling_bytes", [({"device": "cuda:0", "uuid": "GPU-1"}, 20.0 * GIB)]),
        ("gpu_collector_last_success_timestamp_seconds", [({}, 1.7e9)]),
        ("gpu_collector_errors_total", [({}, 1.0)]),
    ],
)
def test_numbers(name, expected):
    """What the report says, under the labels that join."""
    assert expected == series(report(), name)


def test_throttling_by_reason():
    """Every reason has a series: 1 for those at work, 0 for the others, also for one we do not know yet."""
    known = dict.fromkeys(THROTTLE_REASONS, 0.0) | {"sw_power_cap": 1.0}
    found = report(samples=[CardSample(throttle=("sw_power_cap", "new_reason"))])

    assert {**known, "new_reason": 1.0} == {
        labels["reason"]: value for labels, value in series(found, "gpu_throttle_active") if labels["gpu"] == "0"
    }


@pytest.mark.parametrize(
    ("found", "absent"),
    [
        pytest.param(
            report(samples=[CardSample()]),
            ["gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_throttle_active", "gpu_xid_errors_total"],
            id="a-card-without-sensors",
        ),
        pytest.param(report(samples=[LOST]), ["gpu_utilization_ratio", "gpu_power_watts"], id="a-lost-card"),
        pytest.param(report(CPU, ON_CPU), ["gpu_info", "gpu_lost", "torch_memory_allocated_bytes"], id="no-card"),
        pytest.param(
            report(), ["gpu_headroom_bytes", "gpu_headroom_batches", "gpu_exhaustion_seconds"], id="no-forecast"
        ),
    ],
)
def test_what_is_unknown_is_absent(found, absent):
    """No series rather than a zero that would read as a value."""
    assert [] == [name for name in absent if PREFIX + name.removesuffix("_total") in families(found)]


def test_names_are_escaped():
    """A name with quotes cannot break the format."""
    card = TWO_CARDS.gpus[0]
    strange = type(card)(0, 'a "card"\\\n', card.uuid, 1, (8, 9), bf16=True)
    facts = type(TWO_CARDS)(1, "", (), 1, (strange,))

    assert 'a "card"\\\n' == series(report(facts, ON_CARD, [SAMPLE]), "gpu_info")[0][0]["name"]
