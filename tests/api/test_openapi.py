"""The OpenAPI document says what happens: statuses, headers, keys, and the limits of this very service."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from backend.api.api_keys import is_open
from backend.api.app import create_app
from backend.api.openapi import HEADERS, PROBLEMS
from backend.api.request_context import ApiLimits, ApiOptions
from backend.errors import CallerGone, FinanciaError, SetupError, TrainingError
from tests.api.conftest import connect
from tests.api.fakes import fake_services

LIMITS = ApiLimits(inputs=7, labels=5, text_chars=300)


@pytest.fixture(scope="module", params=[(), ("secret",)], ids=["without-keys", "with-keys"])
def keys(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The service's keys."""
    return request.param


@pytest.fixture(scope="module")
def document(keys: tuple[str, ...]) -> dict[str, Any]:
    """What GET /openapi.json answers."""
    services = fake_services()
    services.limits = LIMITS
    return create_app(services, ApiOptions(api_keys=keys)).openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, made) for path, methods in document["paths"].items() for method, made in methods.items()]


def test_every_route_may_fail(document: dict[str, Any]):
    """500 and 503 can be answered to anything: by an error of ours, and while the process stops."""
    for path, _, operation in operations(document):
        assert {"500", "503"} <= operation["responses"].keys(), path


def test_keys(document: dict[str, Any], keys: tuple[str, ...]):
    """401 where a key is needed, and there only; POST /admin/models always needs one."""
    guarded = {(method, path) for path, method, operation in operations(document) if "401" in operation["responses"]}
    closed = {(method, path) for path, method, _ in operations(document) if not is_open(method.upper(), path)}

    assert (closed if keys else {("post", "/admin/models")}) == guarded
    assert bool(keys) == ("security" in document)
    for path, method, operation in operations(document):
        assert ([] if keys and is_open(method.upper(), path) else None) == operation.get("security"), path


def test_headers(document: dict[str, Any]):
    """Every answer has its id and its times; a problem says whether to try again; and every header is described."""
    responses = document["components"]["responses"]
    answers = [answer for *_, operation in operations(document) for answer in operation["responses"].values()]

    assert {f"Problem{status}" for status in PROBLEMS} == responses.keys()
    assert set(HEADERS) == set(document["components"]["headers"])
    for answer in [*answers, *responses.values()]:
        assert "$ref" in answer or {"X-Request-Id", "Server-Timing"} <= answer["headers"].keys()
        assert set(answer.get("headers", {})) <= set(HEADERS)
    assert {"Retry-After", "X-Should-Retry"} <= responses["Problem429"]["headers"].keys()
    assert "WWW-Authenticate" in responses["Problem401"]["headers"]


def test_every_error_has_its_status():
    """A class of an error that is answered has the row of its status."""

    def answered(error: type[FinanciaError]) -> Iterator[type[FinanciaError]]:
        if issubclass(error, CallerGone | TrainingError | SetupError):  # nobody is there, or nobody has asked
            return
        yield error
        for narrower in error.__subclasses__():
            yield from answered(narrower)

    assert set() == {error.status for error in answered(FinanciaError)} - PROBLEMS.keys()


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("delete", "/v1/jobs/{id}", {"200", "204", "404"}),
        ("post", "/v1/jobs", {"200", "202", "413", "415", "422", "429"}),
        ("get", "/v1/jobs/{id}/events", {"200", "204", "404"}),
        ("get", "/health", {"200", "503"}),
        ("post", "/v1/embeddings", {"200", "400", "413", "415", "422", "429", "504", "507"}),
    ],
)
def test_statuses(document: dict[str, Any], method: str, path: str, statuses: set[str]):
    """Everything that happens is there."""
    assert statuses <= document["paths"][path][method]["responses"].keys()


def test_jobs(document: dict[str, Any]):
    """A replayed job is told by its status and header, and events are events."""
    created = document["paths"]["/v1/jobs"]["post"]["responses"]
    deleted = document["paths"]["/v1/jobs/{id}"]["delete"]["responses"]["204"]
    events = document["paths"]["/v1/jobs/{id}/events"]["get"]["responses"]["200"]["content"]

    assert "Idempotent-Replay" in created["200"]["headers"]
    assert "Location" in created["202"]["headers"]
    assert "content" not in deleted
    assert ["text/event-stream"] == list(events)
    assert {"id", "event", "data"} == events["text/event-stream"]["schema"]["properties"].keys()


def test_limits_of_this_service(document: dict[str, Any]):
    """Lengths in the schemas are those of the settings."""
    schemas = document["components"]["schemas"]
    [text, texts, *_] = schemas["EmbeddingsRequest"]["properties"]["input"]["anyOf"]

    assert (300, 7, 300) == (text["maxLength"], texts["maxItems"], texts["items"]["maxLength"])
    assert 5 == schemas["ClassifyRequest"]["properties"]["labels"]["anyOf"][0]["maxItems"]
    assert 7 == schemas["SimilarityInput"]["properties"]["sentences"]["maxItems"]
    assert 5 == schemas["LearnRequest"]["properties"]["labels"]["anyOf"][0]["maxProperties"]


def test_a_lower_limit_of_a_field_stays():
    """A question has at most 1,000 characters, however long a text may be; the document told that."""
    schemas = create_app(fake_services(), ApiOptions()).openapi()["components"]["schemas"]
    [sent] = [
        schema["properties"]
        for schema in schemas.values()
        if {"question", "context"} == {*schema.get("properties", ())}
    ]

    assert (1000, 200_000) == (sent["question"]["maxLength"], sent["context"]["maxLength"])


@pytest.mark.parametrize(
    ("field", "value", "fits"),
    [
        pytest.param("pages", "1-3, 7,-2,5-", True, id="ranges"),
        pytest.param("pages", "", True, id="all-pages"),
        pytest.param("pages", "0", False, id="page-zero"),
        pytest.param("pages", "1,,2", False, id="nothing-between-commas"),
        pytest.param("language", "es, en", True, id="languages"),
        pytest.param("language", "spa+chi_sim", True, id="languages-as-tesseract-names-them"),
        pytest.param("language", "12", False, id="a-number-is-no-language"),
        pytest.param("features", "text,words", True, id="features"),
        pytest.param("features", "colour", False, id="unknown-feature"),
        pytest.param("labels", "one, two", True, id="labels"),
        pytest.param("labels", "a, b or c\nd", True, id="labels-by-lines"),
        pytest.param("labels", "one", False, id="one-label"),
    ],
)
async def test_patterns_of_forms(document: dict[str, Any], field: str, value: str, *, fits: bool):
    """What the pattern of a form's field lets through is what the service accepts."""
    form = document["paths"]["/v1/documents"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    async with connect(fake_services()) as client:
        fields = {"labels": "a, b", field: value}
        answer = await client.post("/v1/documents", data=fields, files={"file": ("a.pdf", b"%PDF-1.7 a document")})

    assert fits == bool(re.search(form["properties"][field]["pattern"], value))
    if field != "pages":  # they are looked at when the file is open, which this service's are not
        assert (200 if fits else 422) == answer.status_code


def test_forms_hold_texts(document: dict[str, Any]):
    """No field of a form is null or a list: the schema says which texts it takes."""
    form = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]

    for name, field in form["properties"].items():
        assert "null" not in str(field), name
        assert field.get("type") != "array", name
