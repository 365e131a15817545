"""/v1/classifiers: learn, list, show, forget."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from backend.api.deps import ApiLimits, ApiOptions
from backend.api.schemas.text_answers import ClassifierAnswer, ClassifierList, ForgottenClassifier
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services

URL = "/v1/classifiers"
EXAMPLES = [{"text": "uno", "label": "a"}, {"text": "dos", "label": "b"}, {"text": "tres", "label": "a"}]
GATHERED = {"a": ["uno", "tres"], "b": ["dos"]}


@pytest.fixture
def services() -> FakeServices:
    return fake_services(limits=ApiLimits(inputs=5, text_chars=100, labels=3, body_bytes=10_000))


@pytest.mark.parametrize("body", [{"examples": EXAMPLES}, {"labels": GATHERED}, {"labels": GATHERED, "examples": None}])
async def test_learn(client: httpx.AsyncClient, services: FakeServices, body: Any) -> None:
    """Both forms of a body say the same."""
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
    } == response.json()
    ClassifierAnswer.model_validate(response.json(), extra="forbid")
    [(given, asked)] = services.classification.calls
    assert ("mine", GATHERED) == given
    assert asked["deadline_s"] > 0


async def test_learn_then_ask_then_forget(client: httpx.AsyncClient) -> None:
    """What is learnt is listed, shown and asked; what is forgotten is none of that."""
    await client.put(f"{URL}/mine", json={"examples": EXAMPLES})
    listed = (await client.get(URL)).json()
    shown = (await client.get(f"{URL}/mine")).json()
    asked = (await client.post("/v1/classify", json={"input": "uno", "classifier_id": "mine"})).json()
    gone = await client.delete(f"{URL}/mine")
    again = await client.delete(f"{URL}/mine")

    ClassifierList.model_validate(listed, extra="forbid")
    assert ["document-type", "bundled", "mine"] == [one["name"] for one in listed["data"]]
    assert shown == listed["data"][-1]
    assert "mine" == asked["model"]
    assert {"object": "classifier", "name": "mine", "deleted": True} == gone.json()
    ForgottenClassifier.model_validate(gone.json(), extra="forbid")
    problem(again, 404, "not_found", "mine")
    problem(await client.get(f"{URL}/mine"), 404, "not_found", "mine", "document-type")


async def test_bundled_ones_have_no_birthday(client: httpx.AsyncClient) -> None:
    """Nor a count of examples; null says so."""
    card = (await client.get(f"{URL}/document-type")).json()

    assert (None, None, "bundled", 0.95) == tuple(card[name] for name in ("created", "examples", "kind", "accuracy"))


@pytest.mark.parametrize(
    ("body", "status", "param", "named"),
    [
        pytest.param({}, 422, None, ["examples", "labels"], id="nothing"),
        pytest.param({"examples": EXAMPLES, "labels": GATHERED}, 422, None, ["either"], id="both"),
        pytest.param({"examples": []}, 400, "examples", ["empty"], id="no-examples"),
        pytest.param({"examples": "a"}, 422, "examples", [], id="a-text"),
        pytest.param({"examples": ["a"]}, 422, "examples.0", [], id="texts-without-labels"),
        pytest.param({"examples": [{"text": "a"}]}, 422, "examples.0.label", ["required"], id="no-label"),
        pytest.param({"examples": [{"text": "", "label": "a"}]}, 400, "examples.0.text", ["empty"], id="empty-text"),
        pytest.param({"examples": [{"text": "a", "label": 5}]}, 422, "examples.0.label", [], id="number-as-label"),
        pytest.param({"examples": [*EXAMPLES, {"text": "x", "label": " "}]}, 400, "labels", ["labels[2]"], id="blank"),
        pytest.param({"examples": [*EXAMPLES, {"text": "x", "label": "a "}]}, 422, "labels", ["'a'"], id="twice"),
        pytest.param({"labels": {}}, 400, "labels", ["empty"], id="no-labels"),
        pytest.param({"labels": {"a": ["x"], "b": []}}, 400, "labels.b", ["labels.b", "at least one"], id="no-texts"),
        pytest.param({"labels": {"a": ["x"], "b": ["y", ""]}}, 400, "labels.b", ["labels.b[1]"], id="one-empty"),
        pytest.param({"labels": {"a": "x", "b": ["y"]}}, 422, "labels.a", [], id="a-text-as-list"),
        pytest.param({"labels": {"a": [5], "b": ["y"]}}, 422, "labels.a.0", [], id="a-number-as-text"),
        pytest.param({"labels": ["a", "b"]}, 422, "labels", [], id="labels-without-texts"),
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
async def test_nothing_can_be_learnt(
    client: httpx.AsyncClient, services: FakeServices, body: Any, *, status: int, param: str | None, named: list[str]
) -> None:
    """A problem that names what is wrong; and nothing is learnt."""
    response = await client.put(f"{URL}/mine", json=body)

    assert param == problem(response, status, None, *named)["error"]["param"]
    assert [] == services.classification.calls


async def test_the_service_judges_names(client: httpx.AsyncClient) -> None:
    """Its errors are problems."""
    problem(await client.put(f"{URL}/Mine", json={"examples": EXAMPLES}), 422, "invalid_field", "lower case")
    problem(await client.delete(f"{URL}/document-type"), 422, "invalid_field", "bundled")


async def test_other_methods(client: httpx.AsyncClient) -> None:
    """A refusal names every method that the path has, whichever route has it."""
    one, all_of_them = await client.post(f"{URL}/mine", json={}), await client.put(URL, json={})

    problem(one, 405, "method_not_allowed", "DELETE, GET, PUT")
    assert "DELETE, GET, PUT" == one.headers["allow"]
    assert "GET" == all_of_them.headers["allow"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", URL), ("GET", f"{URL}/a"), ("PUT", f"{URL}/a"), ("DELETE", f"{URL}/a")]
)
async def test_a_key_is_needed(services: FakeServices, method: str, path: str) -> None:
    """As for every route that is no probe."""
    async with connect(services, ApiOptions(api_keys=("secret",))) as client:
        problem(await client.request(method, path), 401, "unauthorized")


async def test_browsers_may_learn_and_forget(services: FakeServices) -> None:
    """A page's preflight is answered for both methods."""
    async with connect(services, ApiOptions(cors_origins=("https://page",))) as client:
        for method in ("PUT", "DELETE"):
            headers = {"Origin": "https://page", "Access-Control-Request-Method": method}
            assert 200 == (await client.options(f"{URL}/a", headers=headers)).status_code
