"""Spans of the work that is under way, found by a context variable: code deep inside needs no tracer.

While traces are off nothing is ever current, and each function here returns at once. Of a trace that is not sampled
only the identity goes on, into logs, jobs and other processes, as W3C Trace Context writes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Literal, NamedTuple, Protocol, Self

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_STATE_CHARACTERS = 512  # W3C Trace Context, 3.3.1.5: what is longer may be dropped
_PACKED = struct.Struct(">16s8sB")
_SAMPLED = 1
_LOW_64_BITS = 2**64 - 1


class SpanContext(NamedTuple):
    """The identity of a span, which other processes may go on from."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""  # `tracestate`, passed on as it came

    def traceparent(self) -> str:
        """The header of that name."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"

    def pack(self) -> bytes:
        """25 bytes, without the state."""
        return _PACKED.pack(
            self.trace_id.to_bytes(16, "big"), self.span_id.to_bytes(8, "big"), int(self.is_sampled) * _SAMPLED
        )

    @classmethod
    def unpack(cls, packed: bytes) -> SpanContext:
        trace_id, span_id, flags = _PACKED.unpack(packed)
        return cls(int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"), bool(flags & _SAMPLED))


PACKED_BYTES = _PACKED.size


def read_traceparent(header: str, state: str = "") -> SpanContext | None:
    """The caller's span; None where the header is absent or malformed, as the specification asks."""
    match = _TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    state = state if len(state) <= _STATE_CHARACTERS else ""
    return SpanContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED), state)


def new_trace_id() -> int:
    return int.from_bytes(os.urandom(16), "big")


def new_span_id() -> int:
    return int.from_bytes(os.urandom(8), "big")


@dataclass(frozen=True, slots=True)
class Sampler:
    """Which traces are recorded: the samplers of OTEL_TRACES_SAMPLER."""

    ratio: float = 1.0  # of traces
    follows_parent: bool = True  # a caller's decision counts, where a traceparent came

    def samples(self, trace_id: int, parent: SpanContext | None) -> bool:
        """By the trace's id, as OpenTelemetry's own samplers decide: all services with one ratio agree."""
        if parent is not None and self.follows_parent:
            return parent.is_sampled
        return trace_id & _LOW_64_BITS < round(self.ratio * 2**64)


def read_sampler(name: str, ratio: float) -> Sampler:
    """The sampler of OTEL_TRACES_SAMPLER and its argument, which only those by ratio take."""
    kind = name.removeprefix("parentbased_")
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": ratio}
    return Sampler(ratios[kind], follows_parent=kind != name)


Kind = Literal["internal", "server", "client", "consumer"]
Value = str | bool | int | float
Attributes = Mapping[str, Value]
_NO_ATTRIBUTES: Attributes = MappingProxyType({})
LINKS_MAX = 128  # of a span: OpenTelemetry's default
request_id: ContextVar[str] = ContextVar("financia_request_id", default="")  # as in X-Request-Id; set by the API
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


@dataclass(slots=True, eq=False)
class Span:
    """Something that takes time; whoever began it ends it, once.

    Times are seconds of the monotonic clock. All spans of a trace in one process share ``offset_ns``, so that their
    order is right whatever happens to the wall clock meanwhile.
    """

    tracer: Tracer
    name: str
    kind: Kind
    context: SpanContext
    parent: SpanContext | None
    started_s: float
    offset_ns: int  # from the monotonic clock to Unix time
    is_parent_remote: bool = False
    attributes: dict[str, Value] = field(default_factory=dict)
    links: Sequence[SpanContext] = ()
    error: str = ""  # what went wrong, as `error.type`
    ended_s: float = 0.0

    def child(self, name: str, kind: Kind = "internal", started_s: float | None = None) -> Span:
        """A span within this one."""
        own = SpanContext(self.context.trace_id, new_span_id(), self.context.is_sampled, self.context.state)
        began_s = time.monotonic() if started_s is None else started_s
        return Span(self.tracer, name, kind, own, self.context, began_s, self.offset_ns)

    def end(self, ended_s: float | None = None) -> None:
        """Hand it to the exporter, which never waits. Safe on any thread."""
        self.ended_s = time.monotonic() if ended_s is None else ended_s
        if self.context.is_sampled:
            self.tracer.export(self)

    def unix_ns(self, monotonic_s: float) -> int:
        return self.offset_ns + int(monotonic_s * 1e9)


class Tracer(Protocol):
    """Begins the spans that have no parent in this process, and exports those that have ended."""

    @property
    def is_on(self) -> bool:
        """Whether anything is ever traced; callers skip their work where not."""

    def start(self, name: str, kind: Kind, parent: SpanContext | None = None, started_s: float | None = None) -> Span:
        """A new span; ``parent``: in another process, else it begins a trace."""

    def resume(self, context: SpanContext) -> Span:
        """A span of another process, to be made current here: whoever began it ends it."""

    def export(self, span: Span) -> None:
        """Take a span that has ended. Returns at once, whatever the collector does."""

    async def close(self) -> None:
        """Send what is left, as far as that goes within a few seconds."""


class NoTracer:
    """Traces are off. A null object."""

    is_on = False

    def start(self, name: str, kind: Kind, parent: SpanContext | None = None, started_s: float | None = None) -> Span:
        """A span that nobody will see."""
        return _begin(self, name, kind, parent, started_s, is_sampled=False)

    def resume(self, context: SpanContext) -> Span:
        return _resume(self, context)

    def export(self, span: Span) -> None: ...

    async def close(self) -> None: ...


class SamplingTracer:
    """Traces what its sampler chooses.

    Args:
        take: gets every sampled span once it has ended, on any thread; must not wait.
    """

    is_on = True

    def __init__(self, sampler: Sampler, take: Callable[[Span], None]) -> None:
        self._sampler, self._take = sampler, take

    def start(self, name: str, kind: Kind, parent: SpanContext | None = None, started_s: float | None = None) -> Span:
        trace_id = new_trace_id() if parent is None else parent.trace_id
        is_sampled = self._sampler.samples(trace_id, parent)
        return _begin(self, name, kind, parent, started_s, is_sampled=is_sampled, trace_id=trace_id)

    def resume(self, context: SpanContext) -> Span:
        return _resume(self, context)

    def export(self, span: Span) -> None:
        self._take(span)

    async def close(self) -> None: ...


def _begin(
    tracer: Tracer,
    name: str,
    kind: Kind,
    parent: SpanContext | None,
    started_s: float | None,
    *,
    is_sampled: bool,
    trace_id: int = 0,
) -> Span:
    own = SpanContext(trace_id or new_trace_id(), new_span_id(), is_sampled, parent.state if parent else "")
    offset_ns = time.time_ns() - time.monotonic_ns()
    began_s = time.monotonic() if started_s is None else started_s
    return Span(tracer, name, kind, own, parent, began_s, offset_ns, is_parent_remote=parent is not None)


def _resume(tracer: Tracer, context: SpanContext) -> Span:
    return Span(tracer, "", "internal", context, None, 0.0, time.time_ns() - time.monotonic_ns())


NO_TRACER = NoTracer()
_current: ContextVar[Span | None] = ContextVar("financia_span", default=None)


class Active:
    """Makes a span current while the block runs, and ends it with the block's error."""

    __slots__ = ("_token", "span")

    def __init__(self, span: Span) -> None:
        self.span = span

    def __enter__(self) -> Self:
        self._token: Token[Span | None] = _current.set(self.span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        if kind is not None and not self.span.error:
            self.span.error = kind.__name__
        self.span.end()

    def set(self, name: str, value: Value) -> None:
        """Add an attribute that was not known at the beginning."""
        self.span.attributes[name] = value

    def fail(self, error: str) -> None:
        """Note what went wrong, as `error.type`."""
        self.span.error = error


class _Inactive:
    """Nothing is traced here. A null object."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def set(self, name: str, value: Value) -> None: ...

    def fail(self, error: str) -> None: ...


INACTIVE = _Inactive()
SpanScope = Active | _Inactive


class Resumed:
    """Makes a span of somebody else current while the block runs; None: nothing."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = _current.set(self._span)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def current() -> Span | None:
    """The span that this task works for, sampled or not."""
    return _current.get()


def sampled() -> Span | None:
    """The same where it is recorded."""
    span = _current.get()
    return span if span is not None and span.context.is_sampled else None


def traceparent() -> str:
    """The header that lets another service go on with this trace; empty without one."""
    span = _current.get()
    return "" if span is None else span.context.traceparent()


def span(name: str, attributes: Attributes = _NO_ATTRIBUTES) -> SpanScope:
    """A span within the current one while the block runs; nothing where there is none."""
    parent = _current.get()
    if parent is None or not parent.context.is_sampled:
        return INACTIVE
    child = parent.child(name)
    child.attributes.update(attributes)
    return Active(child)


def client_span(name: str, attributes: Attributes = _NO_ATTRIBUTES) -> SpanScope:
    """The same around a request to another service."""
    active = span(name, attributes)
    if isinstance(active, Active):
        active.span.kind = "client"
    return active


def record_last(name: str, seconds: float, attributes: Attributes = _NO_ATTRIBUTES) -> None:
    """A span within the current one of what has just ended and took so long."""
    if sampled() is not None:
        ended_s = time.monotonic()
        record(name, ended_s - seconds, ended_s, attributes)


def record(
    name: str,
    started_s: float,
    ended_s: float,
    attributes: Attributes = _NO_ATTRIBUTES,
    links: Sequence[SpanContext] = (),
) -> None:
    """A span within the current one that has ended. Times: of the monotonic clock."""
    parent = sampled()
    if parent is None:
        return
    child = parent.child(name, started_s=started_s)
    child.attributes.update(attributes)
    child.links = links[:LINKS_MAX]
    child.end(ended_s)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a line: those it was logged with, and the request and span that the logging task works for."""
    fields: dict[str, object] = dict(getattr(record, "fields", {}))
    if number := request_id.get():
        fields.setdefault("request_id", number)
    span = current()
    if span is not None:
        fields["trace_id"] = f"{span.context.trace_id:032x}"
        fields["span_id"] = f"{span.context.span_id:016x}"
    return fields


class TextFormatter(logging.Formatter):
    """``time level logger message key=value …``: a fixed sentence, then its fields."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return " ".join([line, *(f"{key}={value}" for key, value in fields_of(record).items())])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, the line's fields, and an error's trace."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in fields_of(record).items():
            line[f"field_{name}" if name in line else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
