"""/v1/classifiers: train, list, show and delete classifiers."""

from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits, ApiOptions
from backend.api.routes.classifiers import ClassifierAnswer, ClassifierList, ForgottenClassifier
from backend.errors import Forbidden
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

URL = "/v1/classifiers"
EXAMPLES = [{"text": "uno", "label": "a"}, {"text": "dos", "label": "b"}, {"text": "tres", "label": "a"}]
BY_LABEL = {"a": ["uno", "tres"], "b": ["dos"]}
API_LIMITS = ApiLimits(inputs=5, text_chars=100, labels=3, body_bytes=10_000)


@pytest.mark.parametrize("body", [{"examples": EXAMPLES}, {"labels": BY_LABEL}, {"labels": BY_LABEL, "examples": None}])
async def test_learn(client: httpx.AsyncClient, services: FakeServices, body: Any) -> None:
    """Both forms of the body give the same classifier."""
    response = await client.put(f"{URL}/mine", json=body)

    assert {
        "object": "classifier",
        "name": "mine",
        "kind": "learnt",
        "labels": ["a", "b"],
        "multi_label": False,
        "examples": 3,
        "threshold": 0.4,
        "accuracy": None,
        "created": 1767225600,
        "status": "ready",
    } == response.json()
    require_schema(ClassifierAnswer, response.json())
    [(inputs, options)] = services.classification.calls
    assert ("mine", BY_LABEL) == inputs
    assert options["urgency"].deadline_s > 0


async def test_learn_classify_and_forget(client: httpx.AsyncClient) -> None:
    """A new classifier is listed, shown and can be used; a deleted one is gone."""
    await client.put(f"{URL}/mine", json={"examples": EXAMPLES})
    listed = (await client.get(URL)).json()
    card = (await client.get(f"{URL}/mine")).json()
    classified = (await client.post("/v1/classify", json={"input": "uno", "classifier_id": "mine"})).json()
    deleted = await client.delete(f"{URL}/mine")
    again = await client.delete(f"{URL}/mine")

    require_schema(ClassifierList, listed)
    assert ["document-type", "bundled", "mine"] == [card["name"] for card in listed["data"]]
    assert card == listed["data"][-1]
    assert "mine" == classified["model"]
    assert {"object": "classifier", "name": "mine", "deleted": True} == deleted.json()
    require_schema(ForgottenClassifier, deleted.json())
    problem(again, 404, "not_found", "mine")
    problem(await client.get(f"{URL}/mine"), 404, "not_found", "mine", "document-type")


async def test_bundled_classifiers_have_no_training_data(client: httpx.AsyncClient) -> None:
    """Date and number of examples are null for them."""
    card = (await client.get(f"{URL}/document-type")).json()

    assert (None, None, "bundled", 0.95) == tuple(card[name] for name in ("created", "examples", "kind", "accuracy"))


@pytest.mark.parametrize(
    ("body", "status", "param", "named"),
    [
        pytest.param({}, 422, "examples", ["examples", "labels"], id="nothing"),
        pytest.param({"examples": EXAMPLES, "labels": BY_LABEL}, 422, "examples", ["either"], id="both"),
        pytest.param({"examples": []}, 400, "examples", ["empty"], id="no-examples"),
        pytest.param({"examples": [{"text": "a"}]}, 422, "examples.0.label", ["required"], id="no-label"),
        pytest.param({"examples": [{"text": "", "label": "a"}]}, 400, "examples.0.text", ["empty"], id="empty-text"),
        pytest.param({"examples": [*EXAMPLES, {"text": "x", "label": " "}]}, 400, "labels", ["labels[2]"], id="blank"),
        pytest.param({"examples": [*EXAMPLES, {"text": "x", "label": "a "}]}, 422, "labels", ["'a'"], id="twice"),
        pytest.param({"labels": {}}, 400, "labels", ["empty"], id="no-labels"),
        pytest.param({"labels": {"a": ["x"], "b": []}}, 400, "labels.b", ["labels.b", "at least one"], id="no-texts"),
        pytest.param({"labels": {"a": ["x"], "b": ["y", ""]}}, 400, "labels.b", ["labels.b[1]"], id="one-empty"),
        pytest.param(
            {"labels": {label: ["x"] for label in "abcd"}}, 413, "labels", ["4", "3", "LIMIT_LABELS"], id="many-labels"
        ),
        pytest.param(
            {"labels": {"a": ["x"] * 5, "b": ["y"]}}, 413, "examples", ["6", "5", "LIMIT_INPUTS"], id="many-texts"
        ),
        pytest.param(
            {"labels": {"a": ["x" * 101], "b": ["y"]}}, 413, "examples", ["101", "LIMIT_TEXT_CHARS"], id="long-text"
        ),
    ],
)
async def test_faulty_examples(
    client: httpx.AsyncClient, services: FakeServices, body: Any, *, status: int, param: str | None, named: list[str]
) -> None:
    """The problem names what is wrong; nothing is trained."""
    response = await client.put(f"{URL}/mine", json=body)

    assert param == problem(response, status, None, *named)["error"]["param"]
    assert [] == services.classification.calls


async def test_the_service_checks_names(client: httpx.AsyncClient) -> None:
    """Its errors are answered as problems."""
    problem(await client.put(f"{URL}/Mine", json={"examples": EXAMPLES}), 422, "invalid_field", "lower case")
    problem(await client.delete(f"{URL}/document-type"), 422, "invalid_field", "bundled")


async def test_other_methods(client: httpx.AsyncClient) -> None:
    """A refusal names every method that the path has, whichever route has it."""
    one_classifier, collection = await client.post(f"{URL}/mine", json={}), await client.put(URL, json={})

    problem(one_classifier, 405, "method_not_allowed", "DELETE, GET, PUT")
    assert "DELETE, GET, PUT" == one_classifier.headers["allow"]
    assert "GET" == collection.headers["allow"]


async def test_who_asks_is_told(services: FakeServices) -> None:
    """The service decides by the caller who may replace and delete; its refusal is a 403."""
    options = ApiOptions(api_keys=("team=one",), admin_keys=("ops=two",))
    async with connect(services, options) as client:
        for key in ("one", "two"):
            headers = {"Authorization": f"Bearer {key}"}
            await client.put(f"{URL}/mine", json={"examples": EXAMPLES}, headers=headers)
            await client.delete(f"{URL}/mine", headers=headers)
        services.classification.error = Forbidden("name: taught with another key", param="name")
        refused = await client.put(f"{URL}/mine", json={"examples": EXAMPLES}, headers=headers)

    assert ["team", "team", "ops", "ops", "ops"] == [caller.name for caller in services.classification.callers]
    problem(refused, 403, "forbidden", "another key")
