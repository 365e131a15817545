"""The middleware: request ids, metrics, keys, CORS, and connections that close while draining."""

import asyncio

import httpx
import pytest

from backend.api.api_keys import OPEN_PATHS
from backend.api.app import ROUTES, create_app
from backend.api.middleware import STATUSES, server_timing, stages
from backend.api.request_context import ApiOptions, RequestContext
from backend.lanes.inference import Timing
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import TIMING, FakeServices

URL = "/v1/embeddings"
BODY = {"input": "a"}
KEYS = ApiOptions(api_keys=("first-key", "clé"))


@pytest.mark.parametrize("request_id", ["0af7651916cd43dd8448eb211c80319c", "a/b:c@d=e+f", "x" * 128])
async def test_valid_request_id_is_echoed(client: httpx.AsyncClient, request_id: str) -> None:
    """The caller's own id comes back."""
    response = await client.get("/health/live", headers={"X-Request-Id": request_id})

    assert request_id == response.headers["x-request-id"]


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 129, "ñ".encode("latin-1")])
async def test_other_request_ids_are_replaced(client: httpx.AsyncClient, request_id: str | bytes) -> None:
    """An id that is long or odd is not written into logs and headers."""
    answered = (await client.get("/health/live", headers={"X-Request-Id": request_id})).headers["x-request-id"]

    assert request_id != answered
    assert answered.isascii()


async def test_made_request_ids_differ(client: httpx.AsyncClient) -> None:
    """Each request without an id gets one of its own; errors carry theirs too."""
    ids = [(await client.get(path)).headers["x-request-id"] for path in ("/info", "/info", "/nowhere")]

    assert 3 == len(set(ids))


def test_server_timing_is_in_milliseconds() -> None:
    """Seconds inside, milliseconds on the wire, as the header's format has it."""
    timing = Timing(cache_s=0.0, tokenize_s=0.00025, queue_s=0.001, inference_s=0.0123)
    context = RequestContext("id", 0.0, {}, timing=timing)
    read = RequestContext("id", 0.0, {}, stages=(("open", 0.001), ("read", 0.25)))

    assert "cache;dur=0.000, tokenize;dur=0.250, queue;dur=1.000, inference;dur=12.300, total;dur=15.000" == (
        server_timing(stages(context), 0.015)
    )
    assert "open;dur=1.000, read;dur=250.000, total;dur=300.000" == server_timing(stages(read), 0.3)
    assert stages(RequestContext("id", 0.0, {})) is None
    assert "total;dur=15.000" == server_timing(None, 0.015)


def _sample(services: FakeServices, series: str) -> float | None:
    for line in services.telemetry.render().decode().splitlines():
        if line.startswith(f"financia_{series} "):
            return float(line.rpartition(" ")[2])
    return None


async def test_series_exist_before_the_first_request(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Every route has its request series from the first scrape, at zero."""
    del client
    text = services.telemetry.render().decode()

    for route in (*(route.path_format for route in ROUTES), "/docs", "/openapi.json", "other"):
        assert f'\nfinancia_request_duration_seconds_count{{route="{route}"}} 0.0\n' in text
        for status in STATUSES:
            assert f'\nfinancia_requests_total{{route="{route}",status="{status}"}} 0.0\n' in text


async def test_stages_are_counted(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A request that reached the service fills the stages; others do not."""
    await client.post(URL, json=BODY)
    await client.get("/health/live")

    for stage in ("cache", "tokenize", "queue", "inference", "total"):
        assert 1 == _sample(services, f'stage_duration_seconds_count{{stage="{stage}"}}')
    assert TIMING.inference_s == _sample(services, 'stage_duration_seconds_sum{stage="inference"}')


async def test_skipped_stages_are_not_counted(client: httpx.AsyncClient, services: FakeServices) -> None:
    """An answer from the cache counts for none of the stages that it skipped."""
    services.embeddings.timing = Timing(cache_s=0.001)
    await client.post(URL, json=BODY)

    assert 1 == _sample(services, 'stage_duration_seconds_count{stage="cache"}')
    assert 0 == _sample(services, 'stage_duration_seconds_count{stage="queue"}')


async def test_requests_are_counted_by_template(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The label is the route's template, whatever the path; made-up paths share one label."""
    await client.post(URL, json=BODY)
    await client.post(URL, json={})
    await client.get(URL)
    await client.get("/v1/models/bundled")
    await client.get("/v1/models/nobody")
    await client.get("/openapi.json")
    for number in range(5):
        await client.get(f"/made/up/{number}")

    for route, status, expected in [
        (URL, 200, 1),
        (URL, 422, 1),
        (URL, 405, 1),
        ("/v1/models/{name}", 200, 1),
        ("/v1/models/{name}", 404, 1),
        ("/openapi.json", 200, 1),
        ("other", 404, 5),
    ]:
        assert expected == _sample(services, f'requests_total{{route="{route}",status="{status}"}}')
    assert 3 == _sample(services, f'request_duration_seconds_count{{route="{URL}"}}')
    assert "made" not in services.telemetry.render().decode()


async def test_in_flight_falls_after_an_error(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The gauge rises while a request is answered and falls whatever its end."""
    services.embeddings.gate = asyncio.Event()
    running = asyncio.create_task(client.post(URL, json=BODY))
    await services.embeddings.entered.wait()
    assert 1 == _sample(services, "requests_in_flight")

    services.embeddings.error = RuntimeError("unexpected")
    await client.post(URL, json=BODY)
    services.embeddings.gate.set()
    await running

    assert 0 == _sample(services, "requests_in_flight")


@pytest.mark.parametrize("key", ["first-key", "clé"])
async def test_any_of_the_keys_opens(services: FakeServices, key: str) -> None:
    """Each key is as good as the others; the scheme may be written in any case."""
    async with connect(services, KEYS) as client:
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {key}".encode()}
            assert 200 == (await client.post(URL, json=BODY, headers=headers)).status_code


@pytest.mark.parametrize(
    "authorization",
    [
        "", "Bearer", "Bearer wrong", "Basic first-key", "Bearer first",
    ],
)  # fmt: skip
async def test_wrong_keys(services: FakeServices, authorization: str) -> None:
    """Anything else is 401 and says how to send a key; the body is not looked at."""
    async with connect(services, KEYS) as client:
        response = await client.post(URL, content=b"no json", headers={"Authorization": authorization})

    problem(response, 401, "unauthorized", "API_KEYS")
    assert "Bearer" == response.headers["www-authenticate"]
    assert "first-key" not in response.text


async def test_what_is_open_without_a_key(services: FakeServices) -> None:
    """Probes, metrics and documentation need no key; every other path does, unknown ones too."""
    async with connect(services, KEYS) as client:
        statuses = {path: (await client.get(path)).status_code for path in OPEN_PATHS}
        closed = [route.path for route in ROUTES if route.path not in OPEN_PATHS]
        refused = {
            path: (await client.get(path)).status_code
            for path in [*closed, "/nowhere", "/health/", "http://test//health"]
        }

    assert {200, 204} == set(statuses.values())  # Weaviate's probes have no body
    assert set(refused.values()) == {401}


async def test_without_api_keys_any_key_passes(client: httpx.AsyncClient) -> None:
    """Without API_KEYS any key is as good as none: OpenAI's clients always send one."""
    assert 200 == (await client.post(URL, json=BODY, headers={"Authorization": "Bearer whatever"})).status_code


async def test_cors_is_off_by_default(client: httpx.AsyncClient) -> None:
    """No origin is allowed unless it was named."""
    response = await client.post(URL, json=BODY, headers={"Origin": "https://app.example"})

    assert "access-control-allow-origin" not in response.headers
    preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    problem(await client.options(URL, headers=preflight), 405)


async def test_cors_for_named_origins(services: FakeServices) -> None:
    """A named origin may call and read errors; another may not; a preflight needs no key."""
    options = ApiOptions(api_keys=("key",), cors_origins=("https://app.example",))
    named = {"Origin": "https://app.example"}
    async with connect(services, options) as client:
        preflight = await client.options(
            URL,
            headers={
                **named,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization",
            },
        )
        refused = await client.post(URL, json=BODY, headers=named)
        other = await client.post(URL, json=BODY, headers={"Origin": "https://evil.example"})

    assert 200 == preflight.status_code
    assert "https://app.example" == preflight.headers["access-control-allow-origin"]
    problem(refused, 401)
    assert "https://app.example" == refused.headers["access-control-allow-origin"]
    assert "access-control-allow-origin" not in other.headers


async def test_draining_closes_connections(services: FakeServices) -> None:
    """While the server stops, every answer, errors too, tells the client to connect anew; before, none does."""
    app = create_app(services)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        before = await client.post(URL, json=BODY)
        app.state.draining = True
        answers = [await client.post(URL, json=BODY), await client.post(URL, json={}), await client.get("/nowhere")]

    assert "connection" not in before.headers
    assert ["close"] * 3 == [answer.headers["connection"] for answer in answers]


async def test_a_request_cancelled_while_draining_gets_503(services: FakeServices) -> None:
    """The server cancels what has no time left: its client gets 503, not a bare error."""
    services.documents.gate = asyncio.Event()
    app = create_app(services)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        task = asyncio.create_task(client.post("/v1/ocr", content=b"%PDF"))
        await services.documents.entered.wait()
        app.state.draining = True
        task.cancel()
        answer = await task

    assert (503, "unavailable") == (answer.status_code, answer.json()["code"])
    assert 1 == services.documents.cancelled
