"""POST /v1/entities: the answer's shape, and faulty requests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes import entities
from backend.api.routes.entities import EntitiesAnswer
from backend.text.answers import LABEL_MIN_SCORE
from backend.text.entities import EntityResult, TextEntities
from backend.text.entity_merge import Entity
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices, fake_services
from tests.api.text_fakes import TIMING, FakeEntities
from tests.fakes import longest_step_s

URL = "/v1/entities"
JUAN = {
    "type": "PER", "text": "Juan", "start": 7, "end": 11, "score": 0.25, "source": "model", "value": None,
    "valid": None,
}  # fmt: skip
API_LIMITS = ApiLimits(inputs=5, text_chars=100, body_bytes=10_000)


async def test_one_text(client: httpx.AsyncClient) -> None:
    """One text gives a list of one, in the documented shape, with no other field."""
    response = await client.post(URL, json={"input": "👍 Para Juan."})

    assert 200 == response.status_code
    assert "application/json" == response.headers["content-type"]
    assert {
        "object": "list",
        "data": [{"index": 0, "entities": [JUAN], "coverage": 0.5}],
        "model": "tiny/ner",
        "usage": {"prompt_tokens": 14, "total_tokens": 14},
    } == response.json()
    require_schema(EntitiesAnswer, response.json())


async def test_options_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Absent and null fields leave the choice to the service."""
    options = {"types": ["PER"], "min_score": 0.5, "model": "ner", "sources": ["pattern"]}
    await client.post(URL, json={"input": "a", **options})
    await client.post(
        URL, json={"input": ["a"], **dict.fromkeys(("types", "model", "sources", "explain")), "min_score": 1}
    )

    sent, bare = (call for _, call in services.entities.calls)
    assert [["a"], ["a"]] == [texts for texts, _ in services.entities.calls]
    assert sent.pop("urgency").deadline_s > 0
    assert options == sent
    assert (None, 1.0, None) == (bare["types"], bare["min_score"], bare["model"])
    assert bare["sources"] is None


async def test_own_labels(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A list has no descriptions; what a label names has it as its type. Unset, the least score is labels' own."""
    body = {"input": "👍 Para Juan.", "labels": ["cliente"]}
    [item] = (await client.post(URL, json=body)).json()["data"]
    await client.post(URL, json={"input": "", "labels": {"cliente": "quien compra"}, "min_score": 0})

    assert [{**JUAN, "type": "cliente"}] == item["entities"]
    (bare, options), (described, sure) = services.answers.calls
    assert ([{"cliente": ""}, "👍 Para Juan."], [{"cliente": "quien compra"}, ""]) == (bare, described)
    assert (LABEL_MIN_SCORE, 0) == (options["min_score"], sure["min_score"])
    assert not services.entities.calls


@pytest.mark.parametrize(
    ("labels", "status", "words"),
    [
        ([], 422, "labels: must name at least one thing to look for"),
        ({}, 422, "labels: must name at least one thing to look for"),
        ("cliente", 422, "labels: must be names, an object of names and descriptions"),
        ([7], 422, "labels[0]: must be a name"),
        (["a", " "], 422, "a name must not be empty"),
        (["a", "a"], 422, "labels[1]: 'a' is there twice"),
        (["a" * 1001], 413, "1001 is over the limit of 1000"),
        ({"a": 7}, 422, "labels a: must be a description"),
        ({"a": "b" * 1001}, 413, "1001 is over the limit of 1000"),
        ([f"a{index}" for index in range(201)], 413, "labels: 201 is over the limit of 200"),
        ({"a": {"type": "number"}}, 422, "labels a: a type of entities has a description"),
        ({"a": {"properties": {"b": ""}}}, 422, "labels a.b: a type of entities has a description"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}}, 422, "contains itself"),
    ],
)
async def test_refused_labels(client: httpx.AsyncClient, labels: Any, status: int, words: str) -> None:
    """What is refused names the label."""
    answer = await client.post(URL, json={"input": "a", "labels": labels})

    assert "labels" == problem(answer, status, None, words)["error"]["param"]


@pytest.mark.parametrize("field", ["types", "sources"])
async def test_labels_or_types(client: httpx.AsyncClient, field: str) -> None:
    """What to look for is said in one way."""
    answer = await client.post(URL, json={"input": "a", "labels": ["b"], field: ["model"]})

    told = f"{field}: says what to look for, as labels does; leave one of them out"
    assert field == problem(answer, 422, None, told)["error"]["param"]


async def test_explain_lists_lost_entities(client: httpx.AsyncClient) -> None:
    """`lost` says which entity gave way, to which, and why; without `explain` it is absent."""
    [item] = (await client.post(URL, json={"input": "👍 Para Juan.", "explain": True})).json()["data"]

    [lost] = item["lost"]
    assert ("CODE", "Ju", 7, 9, "pattern", "JU", False) == tuple(
        lost["entity"][name] for name in ("type", "text", "start", "end", "source", "value", "valid")
    )
    assert (JUAN, "names are longer") == (lost["to"], lost["why"])
    assert [JUAN] == item["entities"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        pytest.param({}, 422, "input", id="no-input"),
        pytest.param({"input": "a", "types": []}, 400, "types", id="no-types"),
        pytest.param({"input": "a", "types": "PER"}, 422, "types", id="one-type-as-text"),
        pytest.param({"input": "a", "sources": []}, 400, "sources", id="no-sources"),
        pytest.param({"input": "a", "sources": ["oracle"]}, 422, "sources.0", id="no-such-source"),
        pytest.param({"input": "a", "min_score": 1.5}, 422, "min_score", id="above-one"),
        pytest.param({"input": "a", "min_score": -0.1}, 422, "min_score", id="below-zero"),
        pytest.param({"input": "a", "model": 3}, 422, "model", id="a-number-as-model"),
        pytest.param({"input": ["a"] * 6}, 413, "input", id="too-many"),
        pytest.param({"input": ["a", "a" * 101]}, 413, "input", id="too-long"),
    ],
)
async def test_bad_requests(client: httpx.AsyncClient, services: FakeServices, body: Any, status: int, param: str):
    """The problem names the field; nothing is computed."""
    response = await client.post(URL, json=body)

    assert param == problem(response, status)["error"]["param"]
    assert [] == services.entities.calls


async def test_the_example_is_a_valid_answer() -> None:
    """The documented example matches the schema, and its offsets its text."""
    [route] = entities.ROUTES
    described = route.openapi_extra["requestBody"]["content"]["application/json"]["examples"]
    text = described["one text"]["value"]["input"]
    example = route.responses[200]["content"]["application/json"]["example"]

    require_schema(EntitiesAnswer, example)
    for entity in example["data"][0]["entities"]:
        assert entity["text"] == text[entity["start"] : entity["end"]]


class ManyEntities(FakeEntities):
    """Finds 300,000, at once."""

    found = TextEntities((Entity("PER", "Juan", 0, 4, 0.25, "model"),) * 300_000, 1.0, 1, ())

    async def find(self, texts: Sequence[str], **_options: Any) -> EntityResult:
        return EntityResult((self.found,) * len(texts), "tiny/ner", TIMING)


@pytest.mark.parametrize("services", [replace(fake_services(), entities=ManyEntities())], ids=["many"])
@pytest.mark.parametrize(("path", "field"), [(URL, "input"), ("/ner", "text"), ("/hf/token-classification", "inputs")])
async def test_others_run_while_many_are_written(client: httpx.AsyncClient, path: str, field: str) -> None:
    """A megabyte of amounts has 330,000: for Weaviate's client they were written on the event loop, in 0.33 s."""
    assert await longest_step_s(client.post(path, json={field: "Juan"})) < 0.1
