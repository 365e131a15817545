"""Quotas over HTTP: who is refused and when, what answers say, and the metrics of callers."""

import time
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from backend.api.app import create_app
from backend.api.request_context import ApiOptions
from backend.callers.callers import Quotas
from tests.api.asgi import Call
from tests.api.checks import path_of_store, problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.api.text_routes import TEXT_ROUTES
from tests.fakes import GatedEngine
from tests.text.conftest import build
from tests.text.service_stack import ServiceStack

__all__ = ["build"]

TEXTS = "/v1/embeddings"
KEYS = {"api_keys": ("team=mine", "yours"), "admin_keys": ("ops=root",)}
MINE, YOURS, ADMIN = ({"authorization": f"Bearer {key}"} for key in ("mine", "yours", "root"))
JSON = {"content-type": "application/json"}


def options(**quotas: int) -> ApiOptions:
    return ApiOptions(**KEYS, quotas=Quotas(**quotas))  # type: ignore[arg-type]


def counts(services: FakeServices, metric: str) -> dict[str, float]:
    """The series of a metric that are not zero, by their labels."""
    rows = [row.removeprefix(f"financia_{metric}") for row in services.telemetry.render().decode().splitlines()]
    series = dict(row.rsplit(" ", 1) for row in rows if row.startswith("{"))
    return {labels: float(value) for labels, value in series.items() if float(value)}


@pytest.fixture
async def limited(services: FakeServices) -> AsyncIterator[httpx.AsyncClient]:
    """Five requests, ten tokens and three pages a minute."""
    quotas = options(requests_per_minute=5, tokens_per_minute=10, pages_per_minute=3)
    async with connect(services, quotas) as client:
        yield client


async def test_requests(services: FakeServices, limited: httpx.AsyncClient) -> None:
    """The sixth is refused with what is used, allowed and when to come back; other callers are served."""
    answers = [await limited.get("/v1/models", headers=MINE) for _ in range(6)]
    others = [await limited.get("/v1/models", headers=key) for key in (YOURS, ADMIN)]

    assert [200] * 5 == [answer.status_code for answer in answers[:5]]
    body = problem(answers[5], 429, "quota_exceeded", "5", "QUOTA_REQUESTS_PER_MINUTE", "12.0 s")
    assert (True, "rate_limit_error") == (body["retryable"], body["error"]["type"])
    assert ("12", "true") == (answers[5].headers["retry-after"], answers[5].headers["x-should-retry"])
    assert '"requests";r=0;t=12' in answers[5].headers["ratelimit"]
    assert "mine" not in answers[5].text
    assert [200, 200] == [answer.status_code for answer in others]
    services.clock.advance(12.0)
    assert 200 == (await limited.get("/v1/models", headers=MINE)).status_code


async def test_what_answers_say(limited: httpx.AsyncClient) -> None:
    """Each answer, errors too, says what is left; those of callers without quotas say nothing."""
    answer = await limited.post(TEXTS, json={"input": "abc"}, headers=MINE)
    wrong = await limited.post(TEXTS, json={}, headers=MINE)
    admins = await limited.post(TEXTS, json={"input": "abc"}, headers=ADMIN)
    probe = await limited.get("/health/live")

    policy = '"requests";q=5;w=60, "tokens";q=10;w=60;qu="tokens", "pages";q=3;w=60;qu="pages"'
    assert policy == answer.headers["ratelimit-policy"]
    assert '"requests";r=4;t=12, "tokens";r=7;t=18, "pages";r=3;t=0' == answer.headers["ratelimit"]
    assert '"requests";r=3;t=24, "tokens";r=7;t=18, "pages";r=3;t=0' == wrong.headers["ratelimit"]
    assert all("ratelimit" not in other.headers for other in (admins, probe))


async def test_a_refusal_reads_no_body(services: FakeServices) -> None:
    """Neither that of requests nor that of tokens or pages: a caller over quota sends nothing in vain."""
    app = create_app(services, options(requests_per_minute=3, tokens_per_minute=1, pages_per_minute=1))  # type: ignore[arg-type]
    first = Call(services, TEXTS, [b'{"input": "abc"}'], headers={**JSON, **MINE}, app=app)
    assert 200 == (await first.run()).status_code
    for path, quota in ((TEXTS, "tokens"), ("/v1/ocr", "tokens"), ("/v1/jobs", "requests")):
        call = Call(services, path, [b"x" * 100] * 3, headers={**JSON, **MINE}, app=app)
        answer = await call.run()

        assert (429, 0) == (answer.status_code, call.received)
        assert f"QUOTA_{quota.upper()}_PER_MINUTE" in answer.json()["detail"]


async def test_what_began_is_paid_for(services: FakeServices, build: Callable[..., ServiceStack]) -> None:
    """A request that times out costs what a lane began to compute of it, and nothing while it only waited."""
    stack = build(GatedEngine(), clock=time.monotonic)
    services.embeddings = stack.service  # type: ignore[assignment]
    impatient = {**MINE, "x-request-timeout-s": "0.3"}
    async with connect(services, options(tokens_per_minute=100)) as client:
        began = await client.post(TEXTS, json={"input": "abc"}, headers=impatient)
        cost = counts(services, "key_tokens_total")
        waited = await client.post(TEXTS, json={"input": "another"}, headers=impatient)

    assert [504, 504] == [began.status_code, waited.status_code]
    assert {'{key="team"}': 3.0} == cost == counts(services, "key_tokens_total")


@pytest.mark.parametrize("path", TEXT_ROUTES)
async def test_tokens(services: FakeServices, path: str) -> None:
    """Each route charges what its usage says; to tokenise alone costs a request only."""
    body, tokens = TEXT_ROUTES[path]
    async with connect(services, options(tokens_per_minute=1000)) as client:
        answer = await client.post(await path_of_store(client, path, MINE), json=body("abc"), headers=MINE)
    used = counts(services, "key_tokens_total").get('{key="team"}', 0)
    said = answer.json()["usage"]["total_tokens"] if tokens is None else tokens

    assert 200 == answer.status_code
    assert said == used
    assert f'"tokens";r={1000 - used:.0f}' in answer.headers["ratelimit"]


async def test_the_fields_of_a_text_count_as_a_page(services: FakeServices) -> None:
    """As a file's page does: reading them takes as long."""
    async with connect(services, options(pages_per_minute=3)) as client:
        answer = await client.post("/v1/fields", json={"input": "FACTURA 2026/017"}, headers=MINE)

    assert 200 == answer.status_code
    assert 1 == counts(services, "key_pages_total")['{key="team"}']


async def test_a_debt_of_tokens(services: FakeServices, limited: httpx.AsyncClient) -> None:
    """What takes tokens is refused until the debt is refilled; what takes none is not."""
    assert 200 == (await limited.post(TEXTS, json={"input": "a" * 30}, headers=MINE)).status_code

    refused = await limited.post(TEXTS, json={"input": "a"}, headers=MINE)
    problem(refused, 429, "quota_exceeded", "used 30", "quota is 10", "QUOTA_TOKENS_PER_MINUTE")
    assert "126" == refused.headers["retry-after"]
    assert 200 == (await limited.get("/v1/models", headers=MINE)).status_code
    services.clock.advance(126.0)
    assert 200 == (await limited.post(TEXTS, json={"input": "a"}, headers=MINE)).status_code
    assert {'{key="team",quota="tokens"}': 1.0} == counts(services, "quota_exceeded_total")


@pytest.mark.parametrize("path", ["/v1/ocr", "/v1/documents"])
async def test_pages(services: FakeServices, path: str) -> None:
    """Each page that was read is charged; files are refused in debt, texts are not."""
    async with connect(services, options(pages_per_minute=2)) as client:
        headers = MINE | {"content-type": "application/pdf"}
        answers = [await client.post(path, content=b"%PDF", headers=headers) for _ in range(2)]
        text = await client.post(TEXTS, json={"input": "a"}, headers=MINE)

    assert [200, 429, 200] == [answer.status_code for answer in (*answers, text)]
    problem(answers[1], 429, "quota_exceeded", "used 2", "QUOTA_PAGES_PER_MINUTE", "30.0 s")
    assert {'{key="team"}': 2.0} == counts(services, "key_pages_total")


async def test_a_failed_document_costs_its_pages(services: FakeServices, limited: httpx.AsyncClient) -> None:
    """They were read, whatever befell the rest."""
    services.documents.error_after_pages = RuntimeError("the analysis failed")
    answer = await limited.post("/v1/ocr", content=b"%PDF", headers=MINE | {"content-type": "application/pdf"})

    assert 500 == answer.status_code
    assert {'{key="team"}': 2.0} == counts(services, "key_pages_total")


async def test_learning_costs_tokens(services: FakeServices, limited: httpx.AsyncClient) -> None:
    """Those of its examples."""
    body = {"examples": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]}
    assert 200 == (await limited.put("/v1/classifiers/own", json=body, headers=MINE)).status_code

    assert {'{key="team"}': 20.0} == counts(services, "key_tokens_total")
    assert 429 == (await limited.put("/v1/classifiers/own", json=body, headers=MINE)).status_code


async def test_metrics_by_name(services: FakeServices) -> None:
    """Requests by the name of the key and the class of the status; the keys are nowhere in the metrics."""
    async with connect(services, options()) as client:
        for key, body in ((MINE, {"input": "a"}), (MINE, {}), (YOURS, {"input": "a"}), (ADMIN, {"input": "a"})):
            await client.post(TEXTS, json=body, headers=key)
        await client.post(TEXTS, json={"input": "a"}, headers={"Authorization": "Bearer wrong"})
        metrics = (await client.get("/metrics", headers=ADMIN)).text

    assert {
        '{key="team",status="2xx"}': 1.0,
        '{key="team",status="4xx"}': 1.0,
        '{key="key-2",status="2xx"}': 1.0,
        '{key="ops",status="2xx"}': 1.0,
    } == counts(services, "key_requests_total")
    assert 'financia_key_requests_total{key="ops",status="5xx"} 0.0' in metrics
    assert not any(f'"{key}"' in metrics for key in ("mine", "yours", "root", "wrong"))


async def test_without_keys_nobody_is_metered(client: httpx.AsyncClient, services: FakeServices) -> None:
    """No series of callers, no headers of quotas."""
    answer = await client.post(TEXTS, json={"input": "a"}, headers=MINE)

    assert "ratelimit" not in answer.headers
    assert {} == counts(services, "key_requests_total")


async def test_admin_keys_alone(services: FakeServices) -> None:
    """They close the service for everybody else, too."""
    async with connect(services, ApiOptions(admin_keys=("ops=root",))) as client:
        statuses = [(await client.get("/v1/models", headers=key)).status_code for key in ({}, MINE, ADMIN)]

    assert [401, 401, 200] == statuses


async def test_scrapes_tell_callers_to_admins_only(services: FakeServices) -> None:
    """Everybody may scrape; who uses how much only an admin's key is told, others the sums."""
    async with connect(services, options()) as client:
        for key in (MINE, YOURS):
            await client.post(TEXTS, json={"input": "a b c"}, headers=key)
        scrapes = [
            await client.get("/metrics", headers=key) for key in (ADMIN, MINE, {"authorization": "Bearer no"}, {})
        ]
    named, *others = [answer.text for answer in scrapes]

    assert {200} == {answer.status_code for answer in scrapes}
    assert 'financia_key_requests_total{key="team",status="2xx"} 1.0' in named
    for text in others:
        assert 'key="' not in text
        assert 'financia_key_requests_total{status="2xx"} 2.0' in text
