"""POST /v1/entities: entities on the wire, and what a request may not ask."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from backend.api.deps import ApiLimits
from backend.api.routes import entities
from backend.api.schemas.text_answers import EntitiesAnswer
from backend.errors import InvalidField, Overloaded, UnknownModel
from backend.services.entities import NoEntityModel
from tests.api.checks import check_ended, check_told, problem
from tests.api.fakes import FakeServices, fake_services

URL = "/v1/entities"
JUAN = {
    "type": "PER",
    "text": "Juan",
    "start": 7,
    "end": 11,
    "score": 0.25,
    "source": "model",
    "value": None,
    "valid": None,
}


@pytest.fixture
def services() -> FakeServices:
    return fake_services(limits=ApiLimits(inputs=5, text_chars=100, body_bytes=10_000))


async def test_one_text(client: httpx.AsyncClient) -> None:
    """A list of one, in the shape that the documentation shows, and no other field."""
    response = await client.post(URL, json={"input": "👍 Para Juan."})

    assert 200 == response.status_code
    assert "application/json" == response.headers["content-type"]
    assert {
        "object": "list",
        "data": [
            {
                "index": 0,
                "entities": [JUAN],
                "coverage": 0.5,
            }
        ],
        "model": "tiny/ner",
        "usage": {"prompt_tokens": 14, "total_tokens": 14},
    } == response.json()
    EntitiesAnswer.model_validate(response.json(), extra="forbid")


async def test_order_is_kept(client: httpx.AsyncClient) -> None:
    """Indices are the inputs'; a text without entities, or without anything, has its place."""
    body = (await client.post(URL, json={"input": ["Juan", "", "sin nombres", "a Juan"]})).json()

    assert [0, 1, 2, 3] == [item["index"] for item in body["data"]]
    assert [1, 0, 0, 1] == [len(item["entities"]) for item in body["data"]]
    assert body["usage"]["total_tokens"] == 4 + 0 + 11 + 6 + 4 * 2


async def test_wishes_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """And what is not asked for is left to it."""
    wishes = {"types": ["PER"], "min_score": 0.5, "model": "ner", "sources": ["pattern"]}
    await client.post(URL, json={"input": "a", **wishes})
    await client.post(
        URL, json={"input": ["a"], **dict.fromkeys(("types", "model", "sources", "explain")), "min_score": 1}
    )

    asked, bare = (wishes for _, wishes in services.entities.calls)
    assert [["a"], ["a"]] == [texts for texts, _ in services.entities.calls]
    assert asked.pop("deadline_s") > 0
    assert wishes == asked
    assert (None, 1.0, None) == (bare["types"], bare["min_score"], bare["model"])
    assert bare["sources"] is None


async def test_explain_tells_what_gave_way(client: httpx.AsyncClient) -> None:
    """Which entity, to which, and why; without being asked the answer has no such list."""
    [item] = (await client.post(URL, json={"input": "👍 Para Juan.", "explain": True})).json()["data"]

    [gone] = item["lost"]
    assert ("CODE", "Ju", 7, 9, "pattern", "JU", False) == tuple(
        gone["entity"][name] for name in ("type", "text", "start", "end", "source", "value", "valid")
    )
    assert (JUAN, "names are longer") == (gone["to"], gone["why"])
    assert [JUAN] == item["entities"]


async def test_server_timing_tells_the_stages(client: httpx.AsyncClient) -> None:
    """As every inference does."""
    header = (await client.post(URL, json={"input": "a"})).headers["server-timing"]

    assert all(stage in header for stage in ("queue", "tokenize", "inference", "total"))


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        pytest.param({}, 422, "input", id="no-input"),
        pytest.param({"input": []}, 400, "input", id="no-texts"),
        pytest.param({"input": [1, 2]}, 422, "input", id="token-ids"),
        pytest.param({"input": ["a", None]}, 422, "input", id="null-among-texts"),
        pytest.param({"input": "a", "types": []}, 400, "types", id="no-types"),
        pytest.param({"input": "a", "types": "PER"}, 422, "types", id="one-type-as-text"),
        pytest.param({"input": "a", "sources": []}, 400, "sources", id="no-sources"),
        pytest.param({"input": "a", "sources": ["oracle"]}, 422, "sources.0", id="no-such-source"),
        pytest.param({"input": "a", "sources": "model"}, 422, "sources", id="one-source-as-text"),
        pytest.param({"input": "a", "explain": "yes"}, 422, "explain", id="a-text-as-wish"),
        pytest.param({"input": "a", "min_score": 1.5}, 422, "min_score", id="above-one"),
        pytest.param({"input": "a", "min_score": -0.1}, 422, "min_score", id="below-zero"),
        pytest.param({"input": "a", "min_score": "0.5"}, 422, "min_score", id="a-text-as-score"),
        pytest.param({"input": "a", "model": 3}, 422, "model", id="a-number-as-model"),
        pytest.param({"input": ["a"] * 6}, 413, "input", id="too-many"),
        pytest.param({"input": ["a", "a" * 101]}, 413, "input", id="too-long"),
    ],
)
async def test_bad_requests(client: httpx.AsyncClient, services: FakeServices, body: Any, status: int, param: str):
    """A problem that names the field, and nothing is computed."""
    response = await client.post(URL, json=body)

    assert param == problem(response, status)["error"]["param"]
    assert [] == services.entities.calls


async def test_not_a_number_is_no_score(client: httpx.AsyncClient) -> None:
    """Python's json writes NaN; no score is at least that."""
    content = json.dumps({"input": "a", "min_score": float("nan")})
    response = await client.post(URL, content=content, headers={"content-type": "application/json"})

    assert response.status_code in (400, 422)


@pytest.mark.parametrize(
    ("error", "status", "code", "told"),
    [
        pytest.param(NoEntityModel("ner"), 404, "model_not_found", "set NER_MODEL", id="none-loaded"),
        pytest.param(UnknownModel("x", ("tiny/ner",)), 404, "model_not_found", "tiny/ner", id="another-name"),
        pytest.param(InvalidField("types: 'X' is not", param="types"), 422, "invalid_field", "types", id="type"),
        pytest.param(Overloaded(10, 10, 2.0), 429, "overloaded", "", id="full"),
    ],
)
async def test_the_services_errors_are_problems(
    services: FakeServices, error: Exception, status: int, code: str, told: str
) -> None:
    """With status, code and what to do."""
    await check_told(services, services.entities, URL, error, status, code, told)


async def test_a_client_that_leaves_ends_the_work(services: FakeServices) -> None:
    """Nobody waits for the answer any more."""
    await check_ended(services, services.entities, URL, {"input": "a"})


async def test_the_example_is_a_true_answer() -> None:
    """What the documentation shows: offsets included."""
    [route] = entities.ROUTES
    described = route.openapi_extra["requestBody"]["content"]["application/json"]["examples"]
    text = described["one text"]["value"]["input"]
    example = route.responses[200]["content"]["application/json"]["example"]

    EntitiesAnswer.model_validate(example, extra="forbid")
    for one in example["data"][0]["entities"]:
        assert one["text"] == text[one["start"] : one["end"]]


async def test_openapi_describes_it(client: httpx.AsyncClient) -> None:
    """Request and answer by their schemas."""
    document = (await client.get("/openapi.json")).json()

    content = document["paths"][URL]["post"]["requestBody"]["content"]["application/json"]
    assert "#/components/schemas/EntitiesRequest" == content["schema"]["$ref"]
    assert {"EntitiesRequest", "EntitiesAnswer"} <= document["components"]["schemas"].keys()
