"""The tracer of a process: by OTLP where a collector is set, else none."""

from __future__ import annotations

from functools import partial

from backend import __version__
from backend.config import Settings
from backend.errors import BadSettings
from backend.telemetry import SPAN_ENDS, Telemetry
from backend.tracing.spans import read_sampler


def open_telemetry(settings: Settings) -> Telemetry:
    """The metrics of a process, with the tracer that its settings ask for. Raises: BadSettings."""
    if not settings.traces:
        return Telemetry()
    # Only here: half a second and 25 MB that a service without traces does not pay.
    from backend.tracing.otlp import OtlpTracer

    sampler = read_sampler(settings.otel_traces_sampler, settings.otel_traces_sampler_arg)
    queue, batch = settings.otel_bsp_max_queue_size, settings.otel_bsp_max_export_batch_size
    try:
        tracer = OtlpTracer(sampler, version=__version__, queue=queue, batch=batch)
    except ValueError as error:
        raise BadSettings([f"traces, by the variables OTEL_*: {error}"]) from error
    telemetry = Telemetry(tracer)
    for outcome in SPAN_ENDS:
        telemetry.mirror_counter("trace_spans_total", [outcome], partial(getattr, tracer.counts, outcome))
    return telemetry
