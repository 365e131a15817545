"""Spans as a collector gets them over OTLP; and a collector that is slow, absent or refuses."""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from backend.tracing.otlp import OtlpTracer
from backend.tracing.spans import Active, Sampler, SpanContext, record, span
from tests.otlp_receiver import Collector, collector

QUEUE = 100


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the standard variables name."""
    with collector() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield started


@pytest.fixture
async def tracer(received: Collector) -> AsyncIterator[OtlpTracer]:
    tracer = OtlpTracer(Sampler(), version="1.2", queue=QUEUE, batch=QUEUE)
    yield tracer
    await tracer.close()


async def test_what_a_collector_gets(received: Collector, tracer: OtlpTracer):
    """Names, kinds, parents, links, times, attributes and errors, by OpenTelemetry's own decoder."""
    before_ns = time.time_ns()
    caller, other = SpanContext(0xA, 0xB, is_sampled=True, state="vendor=1"), SpanContext(7, 8, is_sampled=True)
    with Active(tracer.start("POST /v1/embed", "server", caller)) as root:
        root.set("http.response.status_code", 200)
        now_s = time.monotonic()
        record("queue", now_s - 2e-3, now_s - 1e-3, {"tokens": 7, "ratio": 0.5, "cut": True, "name": "ñ"}, [other])
        with span("work") as work:
            work.fail("InferenceFailed")
    spans = {one.name: one for one in await asyncio.to_thread(received.wait_named, "POST /v1/embed")}
    server, queue, work = spans["POST /v1/embed"], spans["queue"], spans["work"]

    assert ["/v1/traces"] == sorted(set(received.paths))
    assert "application/x-protobuf" == received.headers[0]["content-type"]
    assert {f"{0xA:032x}"} == {one.trace_id for one in spans.values()}
    assert (f"{0xB:016x}", server.span_id, server.span_id) == (server.parent_id, queue.parent_id, work.parent_id)
    assert ["SERVER", "INTERNAL", "INTERNAL"] == [server.kind, queue.kind, work.kind]
    assert {"vendor=1"} == {one.state for one in spans.values()}
    assert [{"http.response.status_code": 200}, {"error.type": "InferenceFailed"}] == [
        server.attributes,
        work.attributes,
    ]
    assert {"tokens": 7, "ratio": 0.5, "cut": True, "name": "ñ"} == queue.attributes
    assert ((f"{7:032x}", f"{8:016x}"),) == queue.links
    assert [False, False, True] == [server.is_error, queue.is_error, work.is_error]
    assert 0.9e6 < queue.ended_ns - queue.started_ns < 1.1e6
    assert before_ns - 1e9 < server.started_ns <= work.started_ns <= work.ended_ns <= server.ended_ns
    assert server.ended_ns < time.time_ns() + 1e9


async def test_who_sent_it(received: Collector, tracer: OtlpTracer):
    """The service has its name and version, and the process its own."""
    tracer.start("one", "server").end()
    [one] = await asyncio.to_thread(received.wait_named, "one")

    assert ("financia-inference", "1.2") == (one.resource["service.name"], one.resource["service.version"])
    assert os.getpid() == one.resource["process.pid"]
    assert one.resource["service.instance.id"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_SERVICE_NAME": "mine"}, {"service.name": "mine"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs,deployment.environment=test"},
            {"service.name": "theirs", "deployment.environment": "test"},
        ),
    ],
    ids=["name", "attributes"],
)
async def test_standard_variables(received: Collector, monkeypatch: pytest.MonkeyPatch, variables, expected):
    """OpenTelemetry's exporter reads them: who sends, with which headers, how packed."""
    for name, value in {
        **variables,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=1",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }.items():
        monkeypatch.setenv(name, value)
    tracer = OtlpTracer(Sampler(), version="1.2", queue=QUEUE, batch=QUEUE)
    tracer.start("one", "server").end()
    [one] = await asyncio.to_thread(received.wait_named, "one")
    await tracer.close()

    assert expected.items() <= one.resource.items()
    assert ("1", "gzip") == (received.headers[0]["x-key"], received.headers[0]["content-encoding"])


async def test_the_end_sends_what_is_left(received: Collector, monkeypatch: pytest.MonkeyPatch):
    """However long the exporter would have waited."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    tracer = OtlpTracer(Sampler(), version="1.2", queue=QUEUE, batch=QUEUE)
    for _ in range(3):
        tracer.start("one", "server").end()
    await tracer.close()

    assert ["one"] * 3 == [span.name for span in received.spans]
    assert (3, 0, 0) == (tracer.counts.exported, tracer.counts.failed, tracer.counts.dropped)


async def test_a_collector_that_hangs(received: Collector, tracer: OtlpTracer):
    """Spans end at once; what there is no room for is dropped and counted, and what waited is sent later."""
    received.hold = threading.Event()
    for _ in range(3 * QUEUE):
        tracer.start("one", "server").end()
    dropped = tracer.counts.dropped
    received.hold.set()
    await asyncio.to_thread(received.wait_for, lambda spans: len(spans) == QUEUE)

    assert 2 * QUEUE == dropped


@pytest.mark.parametrize("fault", ["absent", "refuses"])
async def test_a_collector_that_takes_nothing(
    received: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
):
    """It is counted, and logged once, not with every batch."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    if fault == "absent":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    received.status = 400
    tracer = OtlpTracer(Sampler(), version="1.2", queue=QUEUE, batch=QUEUE)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            tracer.start("one", "server").end()
            await asyncio.to_thread(tracer._processor.force_flush)
    await tracer.close()

    assert (0, 2, 0) == (tracer.counts.exported, tracer.counts.failed, tracer.counts.dropped)
    assert 1 == sum("traces cannot be sent" in line for line in caplog.messages)
    assert 1 == len(caplog.messages)


async def test_a_collector_that_comes_back(received: Collector, tracer: OtlpTracer, caplog: pytest.LogCaptureFixture):
    """That is logged too."""
    with caplog.at_level(logging.INFO):
        for received.status in (400, 200):
            tracer.start("one", "server").end()
            await asyncio.to_thread(tracer._processor.force_flush)

    assert ["cannot be sent", "sent again"] == [
        "cannot be sent" if "cannot be sent" in line else "sent again" for line in caplog.messages
    ]
    assert (1, 1) == (tracer.counts.exported, tracer.counts.failed)


async def test_closing_beside_a_collector_that_hangs(
    received: Collector, tracer: OtlpTracer, monkeypatch: pytest.MonkeyPatch
):
    """The process ends without it."""
    monkeypatch.setattr("backend.tracing.otlp.LAST_SEND_S", 0.05)
    received.hold = threading.Event()
    tracer.start("one", "server").end()
    await tracer.close()
    tracer.start("late", "server").end()

    assert [] == received.spans
    assert 1 == tracer.counts.dropped
