"""The identity of a span: headers of callers, the bytes between processes, and which traces are sampled."""

import pytest

from backend.tracing.spans import PACKED_BYTES, Sampler, SpanContext, new_trace_id, read_sampler, read_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = SpanContext(int(TRACE, 16), int(SPAN, 16), is_sampled=True)


def test_there_and_back():
    """As a header and as bytes."""
    for context in (CALLER, CALLER._replace(is_sampled=False), SpanContext(1, 1, is_sampled=True)):
        assert context == read_traceparent(context.traceparent())
        assert context == SpanContext.unpack(context.pack())
        assert PACKED_BYTES == len(context.pack())


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        pytest.param(f"00-{TRACE}-{SPAN}-01", True, id="sampled"),
        pytest.param(f"00-{TRACE}-{SPAN}-00", False, id="not-sampled"),
        pytest.param(f"00-{TRACE}-{SPAN}-03", True, id="a-flag-of-level-2"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True, id="a-later-version"),
    ],
)
def test_callers_are_understood(header, sampled):
    assert CALLER._replace(is_sampled=sampled) == read_traceparent(header)


@pytest.mark.parametrize(
    "header",
    [
        "", "00", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01\n", "\u0660" * 55, "x" * 100_000,
    ],
)  # fmt: skip
def test_other_headers_are_none(header):
    """W3C Trace Context: a malformed one is ignored, never guessed at."""
    assert read_traceparent(header) is None


def test_the_state_goes_on_as_it_came():
    """Unless it is longer than anybody has to carry."""
    kept = read_traceparent(CALLER.traceparent(), "vendor=1,other=2")
    cut = read_traceparent(CALLER.traceparent(), "v=" + "1" * 600)

    assert ("vendor=1,other=2", "") == (kept.state, cut.state)


@pytest.mark.parametrize(
    ("name", "ratio", "alone", "with_a_sampled_caller", "with_another"),
    [
        ("always_on", 0.0, True, True, True),
        ("always_off", 1.0, False, False, False),
        ("traceidratio", 0.0, False, False, False),
        ("parentbased_always_on", 0.0, True, True, False),
        ("parentbased_always_off", 1.0, False, True, False),
        ("parentbased_traceidratio", 0.0, False, True, False),
        ("parentbased_traceidratio", 1.0, True, True, False),
    ],
)
def test_samplers(name, ratio, alone, with_a_sampled_caller, with_another):
    """The six of the specification."""
    sampler = read_sampler(name, ratio)

    assert [alone, with_a_sampled_caller, with_another] == [
        sampler.samples(CALLER.trace_id, caller) for caller in (None, CALLER, CALLER._replace(is_sampled=False))
    ]


def test_ratios_are_opentelemetrys():
    """Services that share a ratio must choose the same traces, whoever wrote them."""
    from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

    theirs, ours = TraceIdRatioBased(0.25), Sampler(0.25)
    ids = [new_trace_id() for _ in range(400)]

    assert [theirs.should_sample(None, number, "").decision is Decision.RECORD_AND_SAMPLE for number in ids] == [
        ours.samples(number, None) for number in ids
    ]
