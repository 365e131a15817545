"""POST /v1/analyze: everything there is to know of one text."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.deps import ApiLimits
from backend.api.routes import analyze
from backend.api.schemas.text_answers import AnalyzeAnswer
from backend.api.schemas.texts import FEATURES
from backend.services import analysis
from tests.api.checks import check_ended, problem
from tests.api.fakes import FakeServices, fake_services

URL = "/v1/analyze"
TEXT = "Para Juan."


@pytest.fixture
def services() -> FakeServices:
    return fake_services(limits=ApiLimits(text_chars=100, labels=4, body_bytes=10_000))


async def test_everything(client: httpx.AsyncClient) -> None:
    """All features unless told otherwise, and no other field."""
    response = await client.post(URL, json={"input": TEXT})

    assert 200 == response.status_code
    assert {
        "object": "analysis",
        "language": {"code": "es", "score": 0.75},
        "key_phrases": [
            {"text": "Para", "score": 0.5, "places": [{"start": 0, "end": 4}, {"start": 6, "end": 10}]},
        ],
        "key_sentences": [{"text": TEXT, "start": 0, "end": 10, "score": 1.0}],
        "classes": {
            "prediction": "invoice",
            "score": 0.5,
            "predictions": [{"label": "invoice", "score": 0.5}, {"label": "receipt", "score": 1 / 3}],
        },
        "entities": [
            {
                "type": "PER",
                "text": "Juan",
                "start": 5,
                "end": 9,
                "score": 0.25,
                "source": "model",
                "value": None,
                "valid": None,
            }
        ],
        "coverage": 0.5,
        "vector": [0.5, -0.25, 1.0],
        "model": "tiny/encoder",
        "usage": {"prompt_tokens": 12, "total_tokens": 12},
    } == response.json()
    AnalyzeAnswer.model_validate(response.json(), extra="forbid")


@pytest.mark.parametrize("feature", FEATURES)
async def test_one_feature(client: httpx.AsyncClient, services: FakeServices, feature: str) -> None:
    """What is not asked for is neither computed nor answered."""
    body = (await client.post(URL, json={"input": TEXT, "features": [feature]})).json()

    assert {"object", feature, "coverage", "model", "usage"} == body.keys()
    assert [feature] == services.analysis.calls[0][1]["features"]
    AnalyzeAnswer.model_validate(body, extra="forbid")


async def test_what_could_not_be_told_is_null(client: httpx.AsyncClient) -> None:
    """Asked for and not there is not the same as not asked for."""
    body = (await client.post(URL, json={"input": "…"})).json()

    assert (None, None, [], [], []) == tuple(
        body[name] for name in ("language", "classes", "key_phrases", "key_sentences", "entities")
    )
    AnalyzeAnswer.model_validate(body, extra="forbid")


async def test_base64(client: httpx.AsyncClient) -> None:
    """The vector's bytes, as /v1/embeddings writes them."""
    body = (await client.post(URL, json={"input": TEXT, "encoding_format": "base64"})).json()

    assert [0.5, -0.25, 1.0] == np.frombuffer(base64.b64decode(body["vector"]), "<f4").tolist()


async def test_wishes_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """And what is not asked for is left to it."""
    wishes = {
        "top_phrases": 4,
        "top_sentences": 2,
        "labels": ["a", "b"],
        "classifier": "document-type",
    }
    await client.post(URL, json={"input": {"text": TEXT}, "features": ["vector", "classes", "vector"], **wishes})
    await client.post(URL, json={"input": TEXT, "features": None, "labels": None, "classifier": None})

    (text, asked), (_, bare) = services.analysis.calls
    assert TEXT == text
    assert asked.pop("deadline_s") > 0
    assert {"features": ["vector", "classes", "vector"], **wishes} == asked
    assert bare.pop("deadline_s") > 0
    assert {
        "features": None,
        "top_phrases": 10,
        "top_sentences": 3,
        "labels": None,
        "classifier": None,
    } == bare


def test_features_are_the_services() -> None:
    """Every feature the service has can be asked for, and no other."""
    assert set(analysis.FEATURES) == set(FEATURES)


@pytest.mark.parametrize(
    ("fields", "status", "param", "named"),
    [
        pytest.param({"input": ""}, 400, "input", ["must not be empty"], id="empty-text"),
        pytest.param({"input": None}, 422, "input", ["null"], id="null"),
        pytest.param({"input": [TEXT]}, 422, "input", ["one text", "a list"], id="list"),
        pytest.param({"input": {"image": "x"}}, 422, "input", ["text"], id="an-image"),
        pytest.param({"input": "a" * 101}, 413, "input", ["101", "100", "LIMIT_TEXT_CHARS"], id="too-long"),
        pytest.param({"features": []}, 400, "features", ["empty"], id="no-features"),
        pytest.param({"features": ["summary"]}, 422, "features.0", ["summary", "key_sentences"], id="no-such-feature"),
        pytest.param({"features": "vector"}, 422, "features", [], id="one-feature-as-text"),
        pytest.param({"labels": []}, 400, "labels", ["empty list"], id="no-labels"),
        pytest.param({"labels": ["a"]}, 422, "labels", ["a second one"], id="only-one"),
        pytest.param({"labels": ["a", "a"]}, 422, "labels", ["'a'", "twice"], id="twice"),
        pytest.param({"labels": list("abcde")}, 413, "labels", ["5", "4", "LIMIT_LABELS"], id="many"),
        pytest.param({"top_phrases": 0}, 422, "top_phrases", ["0"], id="no-phrases"),
        pytest.param({"top_sentences": 101}, 422, "top_sentences", ["101"], id="many-sentences"),
        pytest.param({"encoding_format": "hex"}, 422, "encoding_format", ["hex"], id="format"),
        pytest.param({"classifier": 5}, 422, "classifier", [], id="number-as-classifier"),
    ],
)
async def test_bad_requests(
    client: httpx.AsyncClient, services: FakeServices, fields: Any, *, status: int, param: str, named: list[str]
) -> None:
    """A problem that names field, value and limit; and nothing is computed."""
    response = await client.post(URL, json={"input": TEXT, **fields})

    assert param == problem(response, status, None, *named)["error"]["param"]
    assert [] == services.analysis.calls


async def test_server_timing_tells_the_stages(client: httpx.AsyncClient) -> None:
    """As every inference does."""
    header = (await client.post(URL, json={"input": TEXT})).headers["server-timing"]

    assert all(stage in header for stage in ("queue", "tokenize", "inference", "total"))


async def test_a_client_that_leaves_ends_the_work(services: FakeServices) -> None:
    """Nobody waits for the answer any more."""
    await check_ended(services, services.analysis, URL, {"input": "a"})


def test_the_example_is_a_true_answer() -> None:
    """What the documentation shows: offsets included."""
    [route] = analyze.ROUTES
    text = route.openapi_extra["requestBody"]["content"]["application/json"]["examples"]["everything"]["value"]["input"]
    example = route.responses[200]["content"]["application/json"]["example"]

    for one in [*example["entities"], *example["key_sentences"]]:
        assert one["text"] == text[one["start"] : one["end"]]
    for phrase in example["key_phrases"]:
        assert {phrase["text"]} == {text[place["start"] : place["end"]] for place in phrase["places"]}
