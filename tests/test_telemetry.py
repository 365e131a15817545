"""The table of metrics and the log format: names, units, closed labels, series present from the first scrape."""

import logging
import re
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backend.telemetry import METRICS, PREFIX, Metric, Samples, Telemetry, configure_logging, log_event, render_samples

UNITS = ("seconds", "bytes", "ratio", "total", "info", "state")
COUNTED = {"requests_in_flight", "queue_jobs", "queue_tokens", "batch_jobs", "batch_tokens", "lanes", "lanes_busy"}
COUNTED |= {
    "text_characters",
    "cache_entries",
    "document_jobs_live",
    "index_files_waiting",
    "stored_files",
    "stored_chunks",
    "vector_stores",
    "readers",
    "ready",
    "connections",
    "http_workers",
    "device_lost",
    "model_loaded",
    "model_pending",
    "model_wish_unmet",
    "shared_state_up",
    "key_file_faults",
    "device_headroom_batches",
}  # plural nouns and a claim: counts and yes-or-no have no unit


def series(telemetry: Telemetry) -> dict[str, list[dict[str, str]]]:
    """Sample name -> labels of every sample in a scrape."""
    by_name: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(telemetry.render().decode()):
        for sample in family.samples:
            by_name.setdefault(sample.name, []).append(sample.labels)
    return by_name


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_and_unit(metric: Metric):
    """Counters end in _total, durations in _seconds; help is a sentence."""
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name in COUNTED or metric.name.endswith(UNITS)
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert metric.help.endswith(".")


@pytest.mark.parametrize(
    "metric", [metric for metric in METRICS if metric.kind == "histogram"], ids=lambda metric: metric.name
)
def test_buckets(metric: Metric):
    """Buckets ascend; durations start at half a millisecond, those of background jobs at half a second."""
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.buckets
    if metric.name.endswith("_seconds"):
        assert metric.buckets[0] == (0.5 if metric.name.startswith(("document_job", "index_")) else 0.0005)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_present_from_the_first_scrape(metric: Metric):
    """Every series whose labels are known exists before anything has happened."""
    sample = PREFIX + metric.name + ("_count" if metric.kind == "histogram" else "")
    labels = series(Telemetry()).get(sample, [])

    if any(not values for _, values in metric.labels):
        assert labels == []  # opened at start, when routes, tasks and models are known
    else:
        count = 1
        for _, values in metric.labels:
            count *= len(values)
        assert count == len(labels)


def test_series_opened_at_start():
    """Routes and tasks are known only then; every combination appears."""
    telemetry = Telemetry()
    telemetry.open_series("requests_total", ["/embed", "/v1/embeddings"], ["200", "429"])

    assert len(series(telemetry)["financia_requests_total"]) == 4


def test_registries_are_separate():
    """Two services in one process never share counts."""
    first, second = Telemetry(), Telemetry()
    first.jobs_shed_total.inc()

    assert first.registry.get_sample_value("financia_jobs_shed_total") == 1.0
    assert second.registry.get_sample_value("financia_jobs_shed_total") == 0.0


def test_process_metrics():
    """Memory and garbage collection of the process itself."""
    names = series(Telemetry()).keys()

    assert {"process_resident_memory_bytes", "python_gc_collections_total"} <= names


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """The root logger, restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_a_log_line(root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]):
    """A fixed sentence, then its fields, on standard error; below the level nothing."""
    configure_logging("INFO")
    logger = logging.getLogger("backend.test")

    log_event(logger, logging.INFO, "Lane started", lane=0, device="cpu")
    log_event(logger, logging.DEBUG, "Not shown")
    out, err = capsys.readouterr()

    assert out == ""
    assert re.fullmatch(r"\S+ \S+ INFO backend\.test Lane started lane=0 device=cpu\n", err)


def test_samples_are_rendered():
    """Samples get their type, help, labels and the service's prefix; metrics without rows are left out."""
    power = Samples("gpu_power_watts", "gauge", "Power drawn.", ("gpu",), ((("0",), 61.5), (("1",), 30.0)))
    energy = Samples("gpu_energy_joules_total", "counter", "Energy used.", (), (((), 9.0),))
    unknown = Samples("gpu_temperature_celsius", "gauge", "Temperature.", ("gpu",), ())

    assert (
        "# HELP financia_gpu_power_watts Power drawn.\n"
        "# TYPE financia_gpu_power_watts gauge\n"
        'financia_gpu_power_watts{gpu="0"} 61.5\n'
        'financia_gpu_power_watts{gpu="1"} 30.0\n'
        "# HELP financia_gpu_energy_joules_total Energy used.\n"
        "# TYPE financia_gpu_energy_joules_total counter\n"
        "financia_gpu_energy_joules_total 9.0\n"
    ) == render_samples([power, energy, unknown]).decode()


def test_samples_are_escaped():
    """A label's value cannot break the format."""
    text = render_samples([Samples("gpu_info", "gauge", "Cards.", ("name",), ((('a "b"\\\n',), 1.0),))]).decode()

    [family] = text_string_to_metric_families(text)
    assert {"name": 'a "b"\\\n'} == family.samples[0].labels


def test_total_sums_over_labels():
    """A counter without labels is its own sum."""
    telemetry = Telemetry()
    telemetry.oom_recoveries_total.labels("embeddings", "split").inc(2)
    telemetry.oom_recoveries_total.labels("ner", "refused").inc()
    telemetry.jobs_failed_total.inc(4)

    assert 3 == telemetry.total("oom_recoveries_total")
    assert 4 == telemetry.total("jobs_failed_total")
    assert 0 == telemetry.total("nonfinite_outputs_total")


def test_a_mirrored_counter():
    """It shows the source's count at each scrape."""
    telemetry, counted = Telemetry(), [0]
    telemetry.mirror_counter("readers_ended_total", ("died",), lambda: counted[0])
    shown = []
    for counted[0] in (0, 3, 3, 5):
        telemetry.render()
        shown.append(telemetry.registry.get_sample_value("financia_readers_ended_total", {"reason": "died"}))

    assert [0, 3, 3, 5] == shown
