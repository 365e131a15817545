"""A collector: an HTTP server that takes traces over OTLP, and decodes them by OpenTelemetry's own protobuf classes."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

WAIT_S = 60.0  # for a machine that is busy with other work; spans come within a second


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as a collector sees it; ids in hexadecimal."""

    name: str
    kind: str  # "SERVER", …
    trace_id: str
    span_id: str
    parent_id: str  # "" for a trace's first
    started_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]  # trace and span
    is_error: bool
    resource: dict[str, Any]
    state: str


@dataclass(slots=True)
class Collector:
    """What came, and how it is answered."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    hold: threading.Event | None = None  # no request is answered before it is set
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, done: Callable[[list[ReceivedSpan]], object], wait_s: float = WAIT_S) -> list[ReceivedSpan]:
        """The spans, once ``done`` says that those waited for are there."""
        with self.changed:
            if not self.changed.wait_for(lambda: done(self.spans), wait_s):
                raise AssertionError(f"not there after {wait_s:g} s; names: {[span.name for span in self.spans]}")
            return list(self.spans)

    def wait_named(self, *names: str) -> list[ReceivedSpan]:
        """The spans, once there is one of each name."""
        return self.wait_for(lambda spans: set(names) <= {span.name for span in spans})

    def take(self, body: bytes, path: str, headers: dict[str, str]) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self.changed:
            self.paths.append(path)
            self.headers.append(headers)
            for group in request.resource_spans:
                resource = _attributes(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [_span(span, resource) for span in scope.spans]
            self.changed.notify_all()


def _span(span: WireSpan, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        resource=resource,
        state=span.trace_state,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port of 127.0.0.1."""
    received = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if (hold := received.hold) is not None:
                hold.wait(WAIT_S)
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if received.status == 200:
                received.take(body, self.path, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(received.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        if received.hold is not None:
            received.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
