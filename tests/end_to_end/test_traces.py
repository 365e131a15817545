"""Traces of a real service, as a collector gets them: of an HTTP worker, the service process and background jobs.

Embeddings are answered by the worker, whose items cross the channel; documents and jobs by the service process, as one
process alone answers them.
"""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.clients.server import QUICK, LiveServer, run_server
from tests.end_to_end.client import MARKS, send
from tests.end_to_end.invoices import SPANISH
from tests.otlp_receiver import Collector, ReceivedSpan, collector

pytestmark = [pytest.mark.slow, *MARKS]

SPAN = "00f067aa0ba902b7"  # the caller's
SETTINGS = {**QUICK, "OTEL_BSP_SCHEDULE_DELAY": "50", "LOG_FORMAT": "json", "OCR_ENGINE": "tesseract"}


@pytest.fixture(scope="module")
def received() -> Iterator[Collector]:
    with collector() as started:
        yield started


@pytest.fixture(scope="module")
def traced(state_dir: Path, received: Collector) -> Iterator[LiveServer]:
    """A service that sends traces, with HTTP workers in front."""
    with run_server(state_dir, OTEL_EXPORTER_OTLP_ENDPOINT=received.url, SERVER_PROCESSES="2", **SETTINGS) as server:
        yield server


@pytest.fixture
def client(traced: LiveServer) -> Iterator[httpx.Client]:
    with traced.client() as client:
        yield client


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone whose trace the service goes on with."""

    received: Collector
    trace: str = field(default_factory=lambda: uuid4().hex)

    @property
    def headers(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace}-{SPAN}-01", "x-request-id": "mine"}

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Those of the trace that have come."""
        return [span for span in self.received.spans if span.trace_id == self.trace]

    def wait_for(self, *names: str) -> dict[str, ReceivedSpan]:
        """Spans by name, once these are there with all their parents; of several with one name any."""

        def are_there(_: object) -> bool:  # processes send theirs when they like, a parent after its children
            spans = self.spans
            known = {SPAN, *(span.span_id for span in spans)}
            return {*names} <= {span.name for span in spans} and all(span.parent_id in known for span in spans)

        self.received.wait_for(are_there)
        return {span.name: span for span in self.spans}

    def path_of(self, span: ReceivedSpan) -> list[str]:
        """Its name and those of its parents, the caller's request last."""
        by_id = {one.span_id: one for one in self.spans}
        names = [span.name]
        while span.parent_id != SPAN:
            span = by_id[span.parent_id]
            names.append(span.name)
        return names


@pytest.fixture
def caller(received: Collector) -> Caller:
    return Caller(received)


def test_the_stages_of_a_request(client: httpx.Client, caller: Caller, traced: LiveServer):
    """In the caller's trace, those of Server-Timing with its times; the batch is found from the stage it is."""
    text = f"una factura que nadie ha visto {traced.url}"
    answer = client.post("/v1/embeddings", json={"input": text, "model": "bundled"}, headers=caller.headers)
    spans = caller.wait_for("POST /v1/embeddings", "cache", "tokenize", "queue", "inference", "batch", "forward")
    server, timing = spans["POST /v1/embeddings"], answer.headers["server-timing"]
    stages = dict(part.split(";dur=") for part in timing.split(", "))

    assert ("SERVER", SPAN, "mine") == (server.kind, server.parent_id, server.attributes["financia.request_id"])
    assert {server.span_id} == {spans[name].parent_id for name in ("cache", "tokenize", "queue", "inference", "batch")}
    assert ((caller.trace, spans["batch"].span_id),) == spans["inference"].links
    for name in ("queue", "inference"):
        assert abs(float(stages[name]) - (spans[name].ended_ns - spans[name].started_ns) / 1e6) < 0.1
    assert server.started_ns <= spans["queue"].started_ns <= spans["inference"].ended_ns <= server.ended_ns


@pytest.mark.tesseract
def test_the_stages_of_a_document(client: httpx.Client, caller: Caller):
    """Opened, read page by page, recognised on lanes, understood; forwarded by an HTTP worker."""
    file = {"file": ("a.pdf", SPANISH.scanned_pdf)}
    answer = client.post("/v1/documents", files=file, data={"engine": "tesseract"}, headers=caller.headers)
    assert 200 == answer.status_code, answer.text
    found = caller.wait_for("POST /v1/documents", "understand", "batch")
    top = ["POST /v1/documents", "forward request"]

    assert ["draw", "page", "read", *top] == caller.path_of(found["draw"])
    assert ["ocr", "page", "read", *top] == caller.path_of(found["ocr"])
    assert ["open", *top] == caller.path_of(found["open"])
    assert (1, "ocr") == tuple(found["page"].attributes[f"financia.page.{name}"] for name in ("number", "source"))
    assert any("ocr" in caller.path_of(span) for span in caller.spans if span.name == "batch")


def test_a_job_is_in_the_trace_of_its_request(client: httpx.Client, caller: Caller, traced: LiveServer):
    """And so are its log lines, which have the ids."""
    job = client.post("/v1/jobs", files={"file": ("a.pdf", SPANISH.digital)}, headers=caller.headers).json()
    found = caller.wait_for("job", "POST /v1/jobs")
    ended = json.loads(traced.wait_logged(f'"job ended", "job": "{job["id"]}"'))

    assert ["job", "POST /v1/jobs", "forward request"] == caller.path_of(found["job"])
    assert ("CONSUMER", job["id"]) == (found["job"].kind, found["job"].attributes["financia.job.id"])
    assert (caller.trace, found["job"].span_id) == (ended["trace_id"], ended["span_id"])


def test_a_collector_that_hangs_costs_no_request(client: httpx.Client, received: Collector):
    """Nor does it lose one: spans are dropped instead."""
    received.hold = threading.Event()
    try:
        answers = [send(client, b"MZ\x90\x00\x03\x00\x00\x00").status_code for _ in range(20)]
        statuses = [
            client.post("/v1/embeddings", json={"input": str(n), "model": "bundled"}).status_code for n in range(20)
        ]
    finally:
        received.hold.set()
        received.hold = None

    assert {415} == set(answers)
    assert {200} == set(statuses)
