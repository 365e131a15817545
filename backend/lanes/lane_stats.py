"""The state of the lanes for health and admission, and the batch metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.errors import DoesNotFit
from backend.lanes.lane import BatchResult
from backend.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class BatcherStatus:
    """A snapshot of queue and lanes. Field names are keys of GET /v1/system."""

    lanes: int
    lanes_alive: int
    busy: int  # lanes with a batch
    queued_jobs: int
    queued_tokens: int
    oldest_s: float  # age of the oldest queued item
    running_s: float  # age of the oldest batch on a lane; grows when an engine hangs
    last_batch_age_s: float | None  # since a batch last gave a result; None before the first
    rate_tokens_per_s: float  # all lanes together; 0 before the first batch
    device_fault: str = ""  # why a device is lost for good; the process is about to end


def count_batch(telemetry: Telemetry, result: BatchResult, *, tokens: int, failed: int) -> None:
    """Count one batch. ``tokens``: unpadded ones of all its items; ``failed``: items that got an error."""
    costs, engine = result.batch.costs, result.batch.engine.name
    padded = max(1, max(costs) * len(costs))
    telemetry.batch_jobs.observe(len(costs))
    telemetry.batch_tokens.observe(tokens)
    telemetry.engine_tokens_total.labels(engine).inc(tokens)
    telemetry.batch_padding_ratio.observe(1 - tokens / padded)
    telemetry.batch_duration_seconds.labels(engine).observe(result.busy_s)
    if result.split:
        telemetry.batch_failures_total.inc()
    if failed:
        telemetry.jobs_failed_total.inc(failed)
    if result.batch.oom_count:
        refused = sum(isinstance(value, DoesNotFit) for value in result.values)
        telemetry.oom_recoveries_total.labels(engine, "split").inc(result.batch.oom_count - refused)
        telemetry.oom_recoveries_total.labels(engine, "refused").inc(refused)


def show_gauges(telemetry: Telemetry, status: Callable[[], BatcherStatus]) -> None:
    """Have every scrape read the status at that moment."""
    telemetry.queue_jobs.set_function(lambda: status().queued_jobs)
    telemetry.queue_tokens.set_function(lambda: status().queued_tokens)
    telemetry.queue_oldest_seconds.set_function(lambda: status().oldest_s)
    telemetry.lanes.set_function(lambda: status().lanes_alive)
    telemetry.lanes_busy.set_function(lambda: status().busy)
