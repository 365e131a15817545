"""Spans by a context variable: nothing without a tracer, and parents in their order."""

import asyncio

import pytest

from backend.tracing.spans import (
    INACTIVE,
    NO_TRACER,
    Active,
    Resumed,
    Sampler,
    SpanContext,
    client_span,
    current,
    record,
    span,
    traceparent,
)
from tests.traced import KeptSpans


def test_without_a_trace_nothing_happens():
    """No object is made, nothing is current, and there is no header."""
    with span("work") as scope:
        scope.set("number", 1)
        scope.fail("Error")
        record("part", 0.0, 1.0)

        assert (INACTIVE, None, "") == (scope, current(), traceparent())


def test_children_within_parents():
    """Of what runs now and of what has ended; times do not leave their parents."""
    kept = KeptSpans()
    with Active(kept.tracer.start("root", "server")) as root:
        with span("outer", {"number": 1}) as outer:
            outer.set("later", value=True)
            with client_span("inner"):
                assert traceparent().split("-")[1] == f"{root.span.context.trace_id:032x}"
        record("before", root.span.started_s, root.span.started_s + 1e-6, {"tokens": 2})

    assert ["inner", "outer", "before", "root"] == kept.names
    assert kept.one("outer").context == kept.one("inner").parent
    assert [root.span.context] * 2 == [kept.one("outer").parent, kept.one("before").parent]
    assert {"number": 1, "later": True} == kept.one("outer").attributes
    assert ["client", "internal"] == [kept.one("inner").kind, kept.one("outer").kind]
    assert all(root.span.offset_ns == one.offset_ns for one in kept.spans)
    assert root.span.started_s <= kept.one("outer").started_s <= kept.one("outer").ended_s <= root.span.ended_s


def test_an_error_is_noted_and_goes_on():
    """By its type; never by its message, which may quote a document."""
    kept = KeptSpans()
    with pytest.raises(ValueError, match="secret"), Active(kept.tracer.start("root", "server")), span("work"):
        raise ValueError("secret")

    assert ["ValueError", "ValueError"] == [one.error for one in kept.spans]
    assert current() is None


def test_a_trace_that_is_not_sampled():
    """Its identity goes on, and no span is made."""
    kept = KeptSpans(Sampler(0.0))
    with Active(kept.tracer.start("root", "server")):
        with span("work") as scope:
            pass
        header = traceparent()

    assert (INACTIVE, [], "-00") == (scope, kept.spans, header[-3:])


def test_a_span_of_another_process():
    """It is the parent here, and is not ended here."""
    kept, caller = KeptSpans(), SpanContext(5, 6, is_sampled=True)
    with Resumed(kept.tracer.resume(caller)), span("work"):
        pass

    assert [(5, caller)] == [(one.context.trace_id, one.parent) for one in kept.spans]


async def test_tasks_go_on_with_the_trace_of_their_beginning():
    """And never with that of others which run at the same time."""
    kept = KeptSpans()

    async def request(name: str) -> None:
        with Active(kept.tracer.start(name, "server")):
            await asyncio.sleep(0)
            await asyncio.gather(*(work(f"{name}.{part}") for part in range(3)), asyncio.to_thread(in_thread, name))

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        with span(name):
            await asyncio.sleep(0)

    def in_thread(name: str) -> None:
        with span(f"{name}.thread"):
            pass

    await asyncio.gather(*(request(name) for name in "abc"))

    for name in "abc":
        children = [one for one in kept.spans if one.name.startswith(f"{name}.")]

        assert 4 == len(children)
        assert {kept.one(name).context} == {one.parent for one in children}


async def test_no_tracer_is_a_tracer():
    """Code may begin spans without asking whether traces are on."""
    with Active(NO_TRACER.start("root", "server", SpanContext(5, 6, is_sampled=True))), span("work") as scope:
        header = traceparent()
    await NO_TRACER.close()

    assert (INACTIVE, "-00", False) == (scope, header[-3:], NO_TRACER.is_on)
