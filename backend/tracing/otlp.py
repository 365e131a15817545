"""Sends spans to a collector over OTLP (HTTP, protobuf), with OpenTelemetry's exporter on a thread of its own.

Spans wait in a bounded queue: what a slow or absent collector does not take is dropped and counted. How spans are sent
(OTEL_EXPORTER_OTLP_*, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES) the exporter reads from the standard variables itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backend.tracing.spans import Sampler, SamplingTracer, Span, SpanContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

_log = logging.getLogger(__name__)
_SCOPE = "financia"
_SERVICE_NAME = "financia-inference"  # where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES names it
LAST_SEND_S = 3.0  # that a process which ends waits for the collector
_EXPORTER_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")


@dataclass(slots=True)
class SpanCounts:
    """What became of spans that have ended. Written under the tracer's lock."""

    exported: int = 0
    failed: int = 0  # sent, and not taken
    dropped: int = 0  # not sent: too many waited


class OtlpTracer(SamplingTracer):
    """Samples traces, and has a thread export their spans.

    Args:
        queue: spans that wait at most.
        batch: spans that are sent at once.

    Raises: ValueError for a standard variable that the exporter does not understand.
    """

    def __init__(self, sampler: Sampler, *, version: str, queue: int, batch: int) -> None:
        super().__init__(sampler, self._enqueue)
        self.counts = SpanCounts()
        self._queue, self._waiting = queue, 0
        self._is_closed = self._is_failing = False
        self._lock = threading.Lock()
        self._convert = _converter(_resource(version), version)
        self._processor = _processor(queue, min(batch, queue), self._count)

    async def close(self) -> None:
        """Send what is left, for a few seconds; a collector that hangs is left behind."""
        if self._is_closed:
            return
        self._is_closed = True
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()  # type: ignore[no-untyped-call]  # the SDK annotates most of itself
            with suppress(RuntimeError):  # it took longer, and the loop has closed
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=shut_down, name="last-spans", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SEND_S):
                await sent.wait()

    def _enqueue(self, span: Span) -> None:
        with self._lock:
            if self._waiting >= self._queue or self._is_closed:
                self.counts.dropped += 1
                return
            self._waiting += 1
        try:
            self._processor.on_end(self._convert(span))
        except Exception:  # noqa: BLE001 - a border: no request fails for its trace
            _log.debug("a span could not be converted", exc_info=True)
            self._count(1, "a span could not be converted")

    def _count(self, spans: int, reason: str | None) -> None:
        """``reason``: why the collector has not taken them; None where it has."""
        with self._lock:
            self._waiting -= spans
            was_failing, self._is_failing = self._is_failing, reason is not None
            if reason is None:
                self.counts.exported += spans
            else:
                self.counts.failed += spans
        if self._is_failing and not was_failing:
            _log.warning("traces cannot be sent: %s", reason)
        elif was_failing and not self._is_failing:
            _log.info("traces are sent again")


def _resource(version: str) -> Resource:
    """Who sends the spans: what the standard variables say, and what this process knows."""
    from opentelemetry.sdk.resources import Resource  # 25 MB and half a second with what follows

    own: dict[str, str | int] = {
        "service.version": version,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    told = Resource.create()
    if str(told.attributes.get("service.name", "")).startswith("unknown_service"):
        told = told.merge(Resource({"service.name": _SERVICE_NAME}))
    return Resource({**own}).merge(told)


def _converter(resource: Resource, version: str) -> Callable[[Span], ReadableSpan]:
    """Makes of our spans what the exporter takes: 3 µs of a core each, where spans of the SDK's own tracer take 30."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TraceFlags, TraceState
    from opentelemetry.trace import SpanContext as Context

    kinds = {kind.name.lower(): kind for kind in SpanKind}
    unset, failed = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
    scope, sampled, no_state = InstrumentationScope(_SCOPE, version), TraceFlags(TraceFlags.SAMPLED), TraceState()

    def context_of(own: SpanContext, *, is_remote: bool = False) -> Context:
        state = TraceState.from_header([own.state]) if own.state else no_state
        return Context(own.trace_id, own.span_id, is_remote, sampled, state)

    def convert(span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context_of(span.context),
            None if span.parent is None else context_of(span.parent, is_remote=span.is_parent_remote),
            resource=resource,
            attributes={**span.attributes, "error.type": span.error} if span.error else span.attributes,
            links=[Link(context_of(link)) for link in span.links],
            kind=kinds[span.kind],
            instrumentation_scope=scope,
            status=failed if span.error else unset,
            start_time=span.unix_ns(span.started_s),
            end_time=span.unix_ns(max(span.started_s, span.ended_s)),
        )

    return convert


def _processor(queue: int, batch: int, count: Callable[[int, str | None], None]) -> BatchSpanProcessor:
    """OpenTelemetry's thread that sends batches, with an exporter that counts them."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    reasons = _LastReason()
    for name in _EXPORTER_LOGGERS:
        logging.getLogger(name).addFilter(reasons)

    class CountingExporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            reason: str | None = "the exporter failed"
            try:
                result = super().export(spans)
                reason = None if result is SpanExportResult.SUCCESS else reasons.take()
            finally:
                count(len(spans), reason)
            return result

    return BatchSpanProcessor(CountingExporter(), max_queue_size=queue, max_export_batch_size=batch)


class _LastReason(logging.Filter):
    """Keeps the exporter's last complaint, and its many lines out of the log: a dead collector is told once."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self._last = record.getMessage()
        return False

    def take(self) -> str:
        return self._last or "the collector did not take them"
