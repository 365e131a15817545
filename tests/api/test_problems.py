"""Every error is answered in the same shape; unexpected ones reveal nothing."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backend import errors
from backend.errors import FinanciaError
from tests.api.asgi import Call
from tests.api.checks import ERROR_TYPES, problem
from tests.api.fakes import FakeServices

URL = "/v1/embeddings"
WITH_ARGUMENTS: dict[type[FinanciaError], FinanciaError] = {
    errors.TokenIdsOutOfRange: errors.TokenIdsOutOfRange(99_999, 30_522),
    errors.TooLarge: errors.TooLarge("pages", 300, 200, "LIMIT_PAGES"),
    errors.UnknownModel: errors.UnknownModel("gpt", ["bundled"]),
    errors.Overloaded: errors.Overloaded(5000, 4000, 2.3),
    errors.QuotaExceeded: errors.QuotaExceeded.of_rate("tokens", 1204, 1000, 12.3),
    errors.DeadlineExceeded: errors.DeadlineExceeded(60.0),
    errors.HeadersTooLarge: errors.HeadersTooLarge("header fields", 201, 200),
    errors.HeadersTooLate: errors.HeadersTooLate(10.0),
    errors.TooManyConnections: errors.TooManyConnections(2000),
    errors.WrongPassword: errors.WrongPassword(),
    errors.ModelPending: errors.ModelPending(
        "intfloat/multilingual-e5-base", "the hub cannot be reached", serving="bundled", retry_after_s=15.0
    ),
    errors.NotAcceptable: errors.NotAcceptable("image/png", ["application/json", "text/plain"]),
}


def _tree(root: type[FinanciaError]) -> Iterator[type[FinanciaError]]:
    if root is errors.SetupError:  # never on the wire
        return
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:  # others stand for one of these, with the data of a stored one
            yield from _tree(child)


def _example(kind: type[FinanciaError]) -> FinanciaError:
    return WITH_ARGUMENTS.get(kind) or kind("what happened, and what to change")


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.__name__) for kind in _tree(FinanciaError)])
async def test_every_error_of_the_tree(
    client: httpx.AsyncClient, services: FakeServices, kind: type[FinanciaError]
) -> None:
    """Status, code and retryable are the class's; the message is the error's own."""
    error = _example(kind)
    services.embeddings.error = error

    response = await client.post(URL, json={"input": "a"})

    body = problem(response, kind.status, kind.code, str(error))
    assert (kind.title, kind.retryable) == (body["title"], body["retryable"])
    fallback = "server_error" if kind.status >= 500 else "invalid_request_error"
    assert ERROR_TYPES.get(kind.status, fallback) == body["error"]["type"]
    assert error.param == body["error"]["param"]
    assert str(kind.retryable).lower() == response.headers["x-should-retry"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(errors.Overloaded(5000, 4000, 2.3), "3", id="rounded-up"),
        pytest.param(errors.Overloaded(5000, 4000, 0.01), "1", id="at-least-one-second"),
        pytest.param(errors.Unavailable("draining", retry_after_s=7.0), "7", id="unavailable"),
        pytest.param(errors.InferenceFailed("the engine raised"), None, id="nothing-to-wait-for"),
    ],
)
async def test_retry_after(
    client: httpx.AsyncClient, services: FakeServices, error: FinanciaError, expected: str | None
) -> None:
    """Retry-After is in whole seconds, rounded up, and absent where waiting does not help."""
    services.embeddings.error = error

    response = await client.post(URL, json={"input": "a"})

    assert expected == response.headers.get("retry-after")


@pytest.mark.parametrize("message", ["línea\nsegunda", "half \ud800 a pair"])
async def test_any_message_can_be_written(client: httpx.AsyncClient, services: FakeServices, message: str) -> None:
    """Whatever a message quotes, the answer is JSON."""
    services.embeddings.error = errors.BadInput(message)

    problem(await client.post(URL, json={"input": "a"}), 400, "bad_input", message)


class Secretive(Exception):
    """An unexpected error whose message must stay secret."""


async def test_unknown_exception(
    client: httpx.AsyncClient, services: FakeServices, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected error is 500 without its message, and is logged once with the request's id."""
    services.embeddings.error = Secretive("password=hunter2 in /srv/secret.py")

    with caplog.at_level(logging.WARNING):
        response = await client.post(URL, json={"input": "a"}, headers={"X-Request-Id": "look-for-me"})

    problem(response, 500, "internal_error", "request id")
    assert "hunter2" not in response.text
    assert "Secretive" not in response.text
    (record,) = caplog.records
    fields: dict[str, Any] = record.__dict__["fields"]
    assert {"request_id": "look-for-me", "method": "POST", "route": URL} == fields
    assert isinstance(record.exc_info[1], Secretive)
    services.embeddings.error = None
    assert 200 == (await client.post(URL, json={"input": "a"})).status_code


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        pytest.param("GET", "/v1", 404, "not_found", id="root-of-the-version"),
        pytest.param("POST", "/v1/embedding", 404, "not_found", id="unknown"),
        pytest.param("POST", "/v1/embeddings/", 404, "not_found", id="slash-at-the-end"),
        pytest.param("GET", "/v1/embeddings", 405, "method_not_allowed", id="get-of-a-post"),
        pytest.param("DELETE", "/embed", 405, "method_not_allowed", id="delete"),
        pytest.param("POST", "/health", 405, "method_not_allowed", id="post-of-a-get"),
    ],
)
async def test_router_errors(client: httpx.AsyncClient, method: str, path: str, status: int, code: str) -> None:
    """Unknown paths and methods have the same shape as every other error."""
    response = await client.request(method, path)

    problem(response, status, code, path)
    if status == 405:
        assert response.headers["allow"] in {"POST", "GET"}


async def test_path_that_is_no_text(services: FakeServices) -> None:
    """A path with odd characters is quoted without breaking the answer."""
    problem(await Call(services, "/\ufffd\x00/" + "x" * 5000, method="GET").run(), 404, "not_found")


async def test_fastapi_route_that_validates(services: FakeServices) -> None:
    """A route that leaves validation to FastAPI answers its faults in the same shape."""
    from backend.api.app import create_app

    app = create_app(services)

    @app.get("/pages")
    async def pages(count: int) -> int:
        return count

    response = await Call(services, "/pages", method="GET", app=app).run()

    body = problem(response, 422, "invalid_field", "count")
    assert "count" == body["error"]["param"]
