"""Which trace a span belongs to, as W3C Trace Context and the channel between processes write it."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

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
