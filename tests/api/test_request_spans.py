"""The span of a request, by OpenTelemetry's conventions for HTTP servers; and the ids in its log lines."""

import logging

import pytest

from backend.api.request_context import ApiOptions
from backend.telemetry import Telemetry
from backend.tracing.spans import Sampler, fields_of
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.traced import KeptSpans

URL = "/v1/embeddings"
BODY = {"input": "a"}
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def kept(services: FakeServices) -> KeptSpans:
    """The spans of the app over ``services``."""
    kept = KeptSpans()
    services.telemetry = Telemetry(kept.tracer)
    return kept


async def test_the_span_of_a_request(services: FakeServices, kept: KeptSpans) -> None:
    """Named by its route, with the attributes that the conventions require and recommend."""
    async with connect(services) as client:
        answer = await client.post(URL + "?key=secret", json=BODY, headers={"X-Request-Id": "mine"})
    [span] = kept.spans

    assert 200 == answer.status_code
    assert ("POST /v1/embeddings", "server", None, "") == (span.name, span.kind, span.parent, span.error)
    assert {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": URL,
        "url.path": URL,
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "financia.request_id": "mine",
    } == span.attributes
    assert 0 < span.started_s <= span.ended_s


@pytest.mark.parametrize(
    ("method", "path", "name", "status"),
    [
        pytest.param("POST", URL, f"POST {URL}", 400, id="the-callers-fault"),
        pytest.param("GET", URL, f"GET {URL}", 405, id="no-such-method"),
        pytest.param("GET", "/v1/nowhere/12345", "GET", 404, id="no-such-path"),
        pytest.param("GET", "/v1/files/12345", "GET /v1/files/{id}", 404, id="a-template"),
    ],
)
async def test_names_have_few_values(  # noqa: PLR0917 - one for each column of the table
    services: FakeServices, kept: KeptSpans, method: str, path: str, name: str, status: int
) -> None:
    """Routes' templates and methods, never a path; 4xx are no errors of the service."""
    async with connect(services) as client:
        await client.request(method, path, json={"input": []} if method == "POST" else None)
    [span] = kept.spans

    assert (name, status, "") == (span.name, span.attributes["http.response.status_code"], span.error)


async def test_a_fault_of_the_service(services: FakeServices, kept: KeptSpans) -> None:
    """It is an error, by its status."""
    services.embeddings.error = RuntimeError("broken on purpose")  # type: ignore[attr-defined]
    async with connect(services) as client:
        answer = await client.post(URL, json=BODY)

    assert (500, "500") == (answer.status_code, kept.spans[0].error)


async def test_the_callers_trace_goes_on(services: FakeServices, kept: KeptSpans) -> None:
    """With its state; a malformed header begins a new one, as if it were not there."""
    async with connect(services) as client:
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
        await client.post(URL, json=BODY, headers=headers)
        await client.post(URL, json=BODY, headers={"traceparent": "00-zz-1-01"})
    ours, other = kept.spans

    assert (TRACE, "vendor=1") == (f"{ours.context.trace_id:032x}", ours.context.state)
    assert (SPAN, True) == (f"{ours.parent.span_id:016x}", ours.is_parent_remote)
    assert (None, True) == (other.parent, other.context.trace_id != ours.context.trace_id)


@pytest.mark.parametrize(("flags", "expected"), [("00", 0), ("01", 1)])
async def test_the_callers_choice_counts(services: FakeServices, kept: KeptSpans, flags: str, expected: int) -> None:
    """What it does not sample is not recorded here either."""
    async with connect(services) as client:
        await client.post(URL, json=BODY, headers={"traceparent": f"00-{TRACE}-{SPAN}-{flags}"})

    assert expected == len(kept.spans)


async def test_probes_leave_no_spans(services: FakeServices, kept: KeptSpans) -> None:
    """Nor do scrapes: they come every few seconds, and tell nothing of users."""
    async with connect(services) as client:
        for path in ("/health/live", "/health/ready", "/metrics"):
            await client.get(path)

    assert [] == kept.spans


async def test_log_lines_have_the_ids(
    services: FakeServices, kept: KeptSpans, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the request in whose task they are written; the next request's are its own."""
    seen: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(fields_of(record))

    handler = Keep()
    logging.getLogger().addHandler(handler)
    services.embeddings.error = RuntimeError("broken on purpose")  # type: ignore[attr-defined]
    try:
        async with connect(services) as client:
            for number in ("first", "second"):
                await client.post(URL, json=BODY, headers={"X-Request-Id": number})
    finally:
        logging.getLogger().removeHandler(handler)
    failed = [fields for fields in seen if fields.get("route") == URL]

    assert ["first", "second"] == [fields["request_id"] for fields in failed]
    assert [f"{span.context.trace_id:032x}" for span in kept.spans] == [fields["trace_id"] for fields in failed]
    assert {} == {name: 1 for fields in [fields_of(logging.makeLogRecord({}))] for name in fields}


async def test_without_traces_answers_are_the_same(services: FakeServices) -> None:
    """A traceparent is then as any other header."""
    async with connect(services, ApiOptions()) as client:
        answer = await client.post(URL, json=BODY, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})

    assert 200 == answer.status_code
    assert services.telemetry.tracer.is_on is False


def test_a_sampler_of_none_is_on() -> None:
    """Ids go on although nothing is recorded."""
    assert KeptSpans(Sampler(0.0)).tracer.is_on
