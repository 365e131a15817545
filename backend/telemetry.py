"""Every metric the service exports, in one table, beside the tracer of its spans; and the set-up of logging."""

from __future__ import annotations

import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Exposed
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from backend.tracing.spans import NO_TRACER, JsonFormatter, TextFormatter, Tracer

# Encoders answer in milliseconds; vLLM's first bucket, 0.3 s, is blind to them.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
RATIOS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75)

STAGES = ("cache", "tokenize", "queue", "inference", "open", "read", "understand", "decode", "transcribe", "total")
PAGE_SOURCES = ("text_layer", "ocr", "speech")
SPEECH_ENDS = ("pause", "speech")
SPEECH_RETRIES = ("language", "whole_window", "temperature", "unheard")
AUDIO_SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
STRUCTURE = ("fields", "tables")
JOB_ENDS = ("succeeded", "failed", "cancelled")
JOB_STATES = ("queued", "running")
INDEX_ENDS = ("completed", "failed", "lost", "released")
SEARCH_STAGES = ("embed", "vector", "keyword", "rerank", "total")
READER_STATES = ("idle", "busy")
READER_ENDS = ("late", "died", "recycled")
REFUSALS = ("headers_too_large", "headers_too_late", "bad_input", "too_many_connections", "stalled")
DROPS = ("caller_gone", "deadline")
OOM_ACTIONS = ("split", "refused")
FALLBACK_OUTCOMES = ("rescued", "failed")
DEVICE_ALERTS = ("headroom", "exhaustion", "lost", "retries")
KEY_STATUSES = ("2xx", "3xx", "4xx", "5xx")
SPAN_ENDS = ("exported", "failed", "dropped")
QUOTAS = ("requests", "tokens", "pages", "jobs", "stored_bytes")
KEY_FILE_OUTCOMES = ("loaded", "refused")
CACHE_TIERS = ("memory", "redis")
CACHE_ERRORS = ("timeout", "connection", "foreign", "write")
CACHE_STATES = ("closed", "open", "half_open")
BackgroundTask = Literal[
    "take_jobs",
    "renew_claims",
    "watch_cancellations",
    "run_job",
    "write_progress",
    "write_cache",
    "unload_idle",
    "trim_memory",
    "keep_memory",
    "sweep_search",
    "share_classifiers",
    "share_models",
    "fetch_models",
    "finish_start",
    "measure_runtimes",
    "index_files",
    "reembed_stores",
    "expire_stores",
    "warm_search",
    "watch_keys",
    "keep_usage",
    "share_quotas",
    "keep_http_workers",
    "watch_http_workers",
]  # what backend/supervision runs


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table. ``labels`` maps a label to its closed set of values; an empty set is filled at start."""

    name: str  # without the financia_ prefix; ends in its unit
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    buckets: Sequence[float] = ()


METRICS: tuple[Metric, ...] = (
    Metric("requests_total", "counter", "HTTP requests answered.", (("route", ()), ("status", ()))),
    Metric("request_duration_seconds", "histogram", "Time from request to response.", (("route", ()),), SECONDS),
    Metric("requests_in_flight", "gauge", "HTTP requests being answered now."),
    Metric("connections", "gauge", "Open connections of clients."),
    Metric("in_flight_bytes", "gauge", "Bytes of request bodies being worked on, and of answers nobody has read yet."),
    Metric(
        "connections_refused_total",
        "counter",
        "Connections closed before they became a request, and of clients that read no answer.",
        (("reason", REFUSALS),),
    ),
    Metric("stage_duration_seconds", "histogram", "Time of one stage of a request.", (("stage", STAGES),), SECONDS),
    Metric("inputs_total", "counter", "Texts or pages received.", (("task", ()),)),
    Metric("tokens_total", "counter", "Tokens of the texts received, cached ones included.", (("task", ()),)),
    Metric(
        "key_requests_total",
        "counter",
        "HTTP requests answered to a caller, by the name of its key and the class of the status.",
        (("key", ()), ("status", KEY_STATUSES)),
    ),
    Metric("key_tokens_total", "counter", "Tokens a caller was charged for, cached ones included.", (("key", ()),)),
    Metric("key_pages_total", "counter", "Pages a caller was charged for, those of its jobs included.", (("key", ()),)),
    Metric(
        "quota_exceeded_total",
        "counter",
        "Requests refused because the caller had used up a quota (429).",
        (("key", ()), ("quota", QUOTAS)),
    ),
    Metric(
        "key_file_reads_total",
        "counter",
        "Versions of the keys file that were read; refused: it had a fault, and the keys read before stayed.",
        (("outcome", KEY_FILE_OUTCOMES),),
    ),
    Metric("key_file_faults", "gauge", "Faults of the keys file; while there are any, the keys read before hold."),
    Metric("key_file_loaded_timestamp_seconds", "gauge", "When the keys that hold were read, of a file."),
    Metric("truncated_total", "counter", "Texts cut at the model's length because the request allowed it."),
    Metric("text_characters", "gauge", "Characters of long texts being worked on."),
    Metric("texts_shed_total", "counter", "Requests refused because too many characters were being worked on (429)."),
    Metric("queue_jobs", "gauge", "Jobs waiting for a lane."),
    Metric("queue_tokens", "gauge", "Tokens of the jobs waiting for a lane."),
    Metric("queue_oldest_seconds", "gauge", "Age of the oldest waiting job."),
    Metric("batch_jobs", "histogram", "Jobs in a batch.", (), COUNTS),
    Metric("batch_tokens", "histogram", "Real tokens in a batch.", (), TOKENS),
    Metric(
        "engine_tokens_total",
        "counter",
        "Tokens that an engine's batches computed, none from the cache; engines of pages count in units of their own.",
        (("engine", ()),),
    ),
    Metric("batch_padding_ratio", "histogram", "Share of a batch that is padding.", (), RATIOS),
    Metric("batch_duration_seconds", "histogram", "Time of one batch on its lane.", (("engine", ()),), SECONDS),
    Metric("batch_failures_total", "counter", "Batches whose forward raised; each is then split."),
    Metric("jobs_failed_total", "counter", "Jobs that failed alone."),
    Metric("jobs_dropped_total", "counter", "Jobs dropped before the device.", (("reason", DROPS),)),
    Metric("jobs_shed_total", "counter", "Jobs refused because the queue was full (429)."),
    Metric("jobs_coalesced_total", "counter", "Jobs saved because an equal one was already under way."),
    Metric("lanes", "gauge", "Lanes that are alive."),
    Metric("lanes_busy", "gauge", "Lanes that run a batch now."),
    Metric("lane_restarts_total", "counter", "Lanes that died and were started again."),
    Metric(
        "oom_recoveries_total",
        "counter",
        "Times the device's memory ran out: the batch was split and retried, or one input alone did not fit.",
        (("engine", ()), ("action", OOM_ACTIONS)),
    ),
    Metric("nonfinite_outputs_total", "counter", "Outputs that were not finite numbers.", (("engine", ()),)),
    Metric(
        "precision_fallbacks_total",
        "counter",
        "Outputs computed again in float32 because they were not finite.",
        (("engine", ()), ("outcome", FALLBACK_OUTCOMES)),
    ),
    Metric("device_lost", "gauge", "1 once a device's context is dead; the process then ends."),
    Metric("model_loaded", "gauge", "1 while the model is in memory, 0 while unloaded as idle.", (("model", ()),)),
    Metric("model_loads_total", "counter", "Times the model was loaded, also again after idling.", (("model", ()),)),
    Metric(
        "model_pending",
        "gauge",
        "1 while the model that is set for a task could not be fetched from the hub, and another serves or none.",
        (("task", ()),),
    ),
    Metric(
        "model_wish_unmet",
        "gauge",
        "1 while a model that was wished of all replicas (POST /admin/models) does not serve here.",
        (("task", ()),),
    ),
    Metric("shared_state_up", "gauge", "1 while the store that replicas share answers; 0 too where there is none."),
    Metric(
        "device_headroom_batches",
        "gauge",
        "How many more full batches fit into the device's free memory.",
        (("device", ()),),
    ),
    Metric(
        "device_alerts_total",
        "counter",
        "Warnings before the memory runs out, and devices lost from sight.",
        (("device", ()), ("kind", DEVICE_ALERTS)),
    ),
    Metric("pages_total", "counter", "Pages read, cached ones included.", (("source", PAGE_SOURCES),)),
    Metric("pages_failed_total", "counter", "Pages that could not be read, of documents that were answered."),
    Metric("audio_seconds_total", "counter", "Seconds of recordings transcribed, cached ones included."),
    Metric("audio_speech_seconds_total", "counter", "Of these, seconds in which somebody speaks."),
    Metric(
        "audio_speed_ratio",
        "histogram",
        "Seconds of a recording that were transcribed in a second, from its opening to its end; no cached ones.",
        (),
        AUDIO_SPEEDS,
    ),
    Metric(
        "speech_pieces_total",
        "counter",
        "Pieces that recordings were cut into, by what each ends with: amid speech where nobody paused in time.",
        (("end", SPEECH_ENDS),),
    ),
    Metric(
        "speech_retries_total",
        "counter",
        "Pieces heard again: in their file's language, with 30 s of context, by chance, or where a text was missing.",
        (("reason", SPEECH_RETRIES),),
    ),
    Metric("speech_dropped_total", "counter", "Stretches whose text was dropped, as nobody may have said it."),
    Metric(
        "structure_failed_total",
        "counter",
        "Documents whose fields or tables could not be read for a fault of this service.",
        (("feature", STRUCTURE),),
    ),
    Metric("readers", "gauge", "Processes that parse files.", (("state", READER_STATES),)),
    Metric("readers_started_total", "counter", "Processes started to parse files."),
    Metric("readers_ended_total", "counter", "Processes that parsed files and were ended.", (("reason", READER_ENDS),)),
    Metric("document_jobs_total", "counter", "Background jobs that ended.", (("status", JOB_ENDS),)),
    Metric(
        "document_jobs_live",
        "gauge",
        "Background jobs that run in this process; and those queued, with Redis all that live in any, as last seen.",
        (("state", JOB_STATES),),
    ),
    Metric("document_job_duration_seconds", "histogram", "Time of one attempt at a background job.", (), LONG_SECONDS),
    Metric("document_job_pages_total", "counter", "Pages that background jobs read."),
    Metric(
        "indexed_files_total",
        "counter",
        "Attempts at files of vector stores, by their end.",
        (("outcome", INDEX_ENDS),),
    ),
    Metric("indexed_chunks_total", "counter", "Chunks that were embedded and stored."),
    Metric("reembedded_chunks_total", "counter", "Chunks that were embedded again for another model."),
    Metric("index_duration_seconds", "histogram", "Time of one attempt at a file of a vector store.", (), LONG_SECONDS),
    Metric("index_files_waiting", "gauge", "Files of vector stores that are not indexed yet, in all processes."),
    Metric("stored_files", "gauge", "Files that are kept for all callers."),
    Metric("stored_bytes", "gauge", "Bytes of files and of what vector stores hold of them."),
    Metric("stored_chunks", "gauge", "Chunks in all vector stores."),
    Metric("vector_stores", "gauge", "Vector stores of all callers."),
    Metric(
        "search_duration_seconds", "histogram", "Time of one stage of a search in a vector store.",
        (("stage", SEARCH_STAGES),), SECONDS,
    ),
    Metric("cache_hits_total", "counter", "Cache look-ups answered.", (("tier", CACHE_TIERS),)),
    Metric("cache_misses_total", "counter", "Cache look-ups that no tier answered."),
    Metric("cache_errors_total", "counter", "Cache faults; none of them fails a request.", (("kind", CACHE_ERRORS),)),
    Metric("cache_bytes", "gauge", "Bytes held by the memory cache."),
    Metric("cache_entries", "gauge", "Entries held by the memory cache."),
    Metric("cache_circuit_state", "gauge", "1 for the state the Redis circuit is in.", (("state", CACHE_STATES),)),
    Metric("cache_lookup_duration_seconds", "histogram", "Time of one Redis look-up.", (), SECONDS),
    Metric(
        "background_failures_total",
        "counter",
        "Unexpected failures of the service's own background tasks; each is started again.",
        (("task", get_args(BackgroundTask)),),
    ),
    Metric("ready", "gauge", "1 while the service is ready."),
    Metric(
        "trace_spans_total",
        "counter",
        "Spans of traces that ended: sent, not taken by the collector, or dropped because too many waited.",
        (("outcome", SPAN_ENDS),),
    ),
    Metric("http_workers", "gauge", "HTTP workers that accept connections; 0 where one process does it all."),
    Metric("http_worker_restarts_total", "counter", "HTTP workers that ended and were started again."),
    Metric(
        "model_info",
        "gauge",
        "1 for each loaded model.",
        (("model", ()), ("runtime", ()), ("dtype", ()), ("device", ())),
    ),
    Metric(
        "device_memory_used_bytes", "gauge", "Memory in use on the device (process memory on a CPU).", (("device", ()),)
    ),
    Metric(
        "device_memory_total_bytes",
        "gauge",
        "Memory of the device (cgroup or machine memory on a CPU).",
        (("device", ()),),
    ),
)  # fmt: skip
_KINDS = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
PREFIX = "financia_"
# Gauges that add up over the processes of a service; of the others its service process's are told.
ADDED_GAUGES = frozenset(
    (
        *(PREFIX + name for name in ("requests_in_flight", "connections", "in_flight_bytes", "text_characters")),
        *(PREFIX + name for name in ("cache_bytes", "cache_entries")),
        *("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds"),
    )
)
LabelValues = tuple[tuple[str, str], ...]
Snapshot = list[tuple[str, str, LabelValues, float]]  # of samples: family, name, labels, value


class Telemetry:
    """The metrics of one service, in a registry of its own so that tests never share counts.

    Every metric of ``METRICS`` is an attribute by its name; all series with a closed set of labels exist
    from the first scrape. Safe on any thread.
    """

    def __init__(self, tracer: Tracer = NO_TRACER) -> None:
        self.tracer = tracer
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._mirrored: list[_MirroredCounter] = []
        self._others: Callable[[], Awaitable[Sequence[Snapshot]]] | None = None
        self._metrics: dict[str, Any] = {metric.name: self._make(metric) for metric in METRICS}
        self.__dict__.update(self._metrics)
        self._unopened = [
            (metric.name, tuple(values for _, values in metric.labels))
            for metric in METRICS
            if metric.labels and all(values for _, values in metric.labels)
        ]
        self._opening = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        """Asked for what is no attribute; type checkers take it for the metrics."""
        raise AttributeError(f"no metric is called {name!r}; the table is telemetry.METRICS")

    def open_series(self, name: str, *label_values: Iterable[str]) -> None:
        """Have the first scrape find the series of a metric whose labels are known only at start (routes, tasks).

        They are created by that scrape: 1,600 series take 40 ms, which no start has to wait for.
        """
        with self._opening:
            self._unopened.append((name, tuple(tuple(values) for values in label_values)))

    def total(self, name: str) -> float:
        """The sum of a counter over all its labels."""
        samples = (sample for family in self._metrics[name].collect() for sample in family.samples)
        return float(sum(sample.value for sample in samples if sample.name.endswith("_total")))

    def mirror_counter(self, name: str, labels: Sequence[str], count: Callable[[], int]) -> None:
        """Have a counter show ``count()``, which is counted elsewhere and never falls, at each scrape."""
        counter = self._metrics[name]
        self._mirrored.append(_MirroredCounter(counter.labels(*labels) if labels else counter, count))

    def add_others(self, others: Callable[[], Awaitable[Sequence[Snapshot]]]) -> None:
        """Have ``render_all`` add what other processes of the service count."""
        self._others = others

    async def render_all(self, *, hidden: Collection[str] = ()) -> bytes:
        """The exposition text that Prometheus scrapes: of all processes of the service together.

        Args:
            hidden: labels to leave out; what they told apart is summed.
        """
        if self._others is None and not hidden:
            return self.render()
        added: dict[str, dict[tuple[str, LabelValues], float]] = {}  # by family
        others = [] if self._others is None else await self._others()
        for family, name, labels, value in add_snapshots(*others):
            added.setdefault(family, {})[name, labels] = value
        self._complete()
        families = [_summed(one, added.get(one.name, {})) for one in self.registry.collect()]
        return _render([_without(hidden, family) for family in families])

    def render(self) -> bytes:
        """The same of this process alone."""
        self._complete()
        return generate_latest(self.registry)

    def snapshot(self) -> Snapshot:
        """What another process of the service adds to its own numbers: all counts, and gauges that add up."""
        self._complete()
        return [
            (family.name, sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in self.registry.collect()
            if family.type in ("counter", "histogram") or family.name in ADDED_GAUGES
            for sample in family.samples
            if sample.value and not sample.name.endswith("_created")
        ]

    def _complete(self) -> None:
        """Before a scrape: all series that were announced, and counts that are kept elsewhere."""
        with self._opening:
            for name, label_values in self._unopened:
                for values in product(*label_values):
                    self._metrics[name].labels(*values)
            self._unopened.clear()
        for mirrored in self._mirrored:
            mirrored.update()

    def _make(self, metric: Metric) -> Any:
        options: dict[str, Any] = {"buckets": metric.buckets} if metric.buckets else {}
        labels = [label for label, _ in metric.labels]
        return _KINDS[metric.kind](PREFIX + metric.name, metric.help, labels, registry=self.registry, **options)


@dataclass(slots=True)
class _MirroredCounter:
    """A counter whose value is kept elsewhere."""

    counter: Counter
    count: Callable[[], int]
    shown: int = 0

    def update(self) -> None:
        counted = self.count()
        self.counter.inc(max(0, counted - self.shown))
        self.shown = counted


@dataclass(frozen=True, slots=True)
class Samples:
    """One metric whose values were sampled elsewhere, such as from a driver, rather than counted here."""

    name: str  # without the financia_ prefix; ends in its unit, a counter's in _total
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], float], ...]  # the labels' values, and the number


def render_samples(metrics: Iterable[Samples]) -> bytes:
    """The exposition text of these metrics alone, as by ``Telemetry.render``. A metric without rows is left out."""
    return _render([_exposed(metric) for metric in metrics if metric.rows])


def add_snapshots(*snapshots: Snapshot) -> Snapshot:
    """Their sums, series by series."""
    totals: dict[tuple[str, str, LabelValues], float] = {}
    for snapshot in snapshots:
        for family, name, labels, value in snapshot:
            totals[family, name, labels] = totals.get((family, name, labels), 0.0) + value
    return [(*series, value) for series, value in totals.items()]


def without_gauges(snapshot: Snapshot) -> Snapshot:
    """What a process has counted, and what stays counted when it has ended."""
    return [row for row in snapshot if row[0] not in ADDED_GAUGES]


def _summed(family: Exposed, others: Mapping[tuple[str, LabelValues], float]) -> Exposed:
    """A family of this process with what the others add to its series, and their series that it lacks."""
    added = dict(others)
    summed = Exposed(family.name, family.documentation, family.type, family.unit)
    for sample in family.samples:
        more = added.pop((sample.name, tuple(sorted(sample.labels.items()))), 0.0)
        summed.samples.append(sample._replace(value=sample.value + more))
    for (name, labels), value in added.items():
        summed.add_sample(name, dict(labels), value)
    return summed


def _without(hidden: Collection[str], family: Exposed) -> Exposed:
    """The family without these labels, its series that are the same then summed."""
    if not any(label in sample.labels for sample in family.samples for label in hidden):
        return family
    sums: defaultdict[tuple[str, LabelValues], float] = defaultdict(float)
    for sample in family.samples:
        if not sample.name.endswith("_created"):  # a time
            labels = tuple((name, value) for name, value in sample.labels.items() if name not in hidden)
            sums[sample.name, labels] += sample.value
    summed = Exposed(family.name, family.documentation, family.type, family.unit)
    for (name, labels), value in sums.items():
        summed.add_sample(name, dict(labels), value)
    return summed


def _render(exposed: Sequence[Exposed]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_StaticCollector(exposed))
    return generate_latest(registry)


class _StaticCollector(Collector):
    """Exports metrics that are complete already."""

    def __init__(self, exposed: Sequence[Exposed]) -> None:
        self._exposed = exposed

    def collect(self) -> Iterable[Exposed]:
        return self._exposed


def _exposed(metric: Samples) -> Exposed:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    exposed = family(PREFIX + metric.name, metric.help, labels=metric.labels)
    for values, number in metric.rows:
        exposed.add_metric(values, number)
    return exposed


def configure_logging(level: str, form: str = "text") -> None:
    """Send every log line of the process to standard error, as ``text`` or as ``json``; call once, at start."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def log_event(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Log a short fixed sentence with fields. Never text of documents, never secrets."""
    logger.log(level, message, extra={"fields": fields})
