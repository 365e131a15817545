"""POST /v1/analyze: every feature of one text."""

import base64
from typing import Any

import httpx
import numpy as np
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes import analyze
from backend.api.routes.analyze import FEATURES, AnalyzeAnswer
from backend.text import analysis
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices

URL = "/v1/analyze"
TEXT = "Para Juan."
API_LIMITS = ApiLimits(text_chars=100, labels=4, body_bytes=10_000)


async def test_everything(client: httpx.AsyncClient) -> None:
    """By default the answer has all features, and no other field."""
    response = await client.post(URL, json={"input": TEXT})

    assert 200 == response.status_code
    assert {
        "object": "analysis",
        "language": {"code": "es", "score": 0.75},
        "key_phrases": [{"text": "Para", "score": 0.5, "places": [{"start": 0, "end": 4}, {"start": 6, "end": 10}]}],
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
    require_schema(AnalyzeAnswer, response.json())


@pytest.mark.parametrize("feature", FEATURES)
async def test_one_feature(client: httpx.AsyncClient, services: FakeServices, feature: str) -> None:
    """Other features are neither computed nor answered."""
    body = (await client.post(URL, json={"input": TEXT, "features": [feature]})).json()

    assert {"object", feature, "coverage", "model", "usage"} == body.keys()
    assert [feature] == services.analysis.calls[0][1]["features"]
    require_schema(AnalyzeAnswer, body)


async def test_missing_results_are_null(client: httpx.AsyncClient) -> None:
    """A requested feature without a result is null or empty, not absent."""
    body = (await client.post(URL, json={"input": "…"})).json()

    assert (None, None, [], [], []) == tuple(
        body[name] for name in ("language", "classes", "key_phrases", "key_sentences", "entities")
    )
    require_schema(AnalyzeAnswer, body)


async def test_base64(client: httpx.AsyncClient) -> None:
    """The vector is written as /v1/embeddings writes it."""
    body = (await client.post(URL, json={"input": TEXT, "encoding_format": "base64"})).json()

    assert [0.5, -0.25, 1.0] == np.frombuffer(base64.b64decode(body["vector"]), "<f4").tolist()


async def test_options_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Absent and null fields leave the choice to the service."""
    options = {"top_phrases": 4, "top_sentences": 2, "labels": ["a", "b"], "classifier": "document-type"}
    await client.post(URL, json={"input": {"text": TEXT}, "features": ["vector", "classes", "vector"], **options})
    await client.post(URL, json={"input": TEXT, "features": None, "labels": None, "classifier": None})

    (text, sent), (_, bare) = services.analysis.calls
    assert TEXT == text
    assert sent.pop("urgency").deadline_s > 0
    assert {"features": ["vector", "classes", "vector"], **options} == sent
    assert bare.pop("urgency").deadline_s > 0
    assert {"features": None, "top_phrases": 10, "top_sentences": 3, "labels": None, "classifier": None} == bare


def test_features_are_the_services() -> None:
    """The API's features are those of the service."""
    assert set(analysis.FEATURES) == set(FEATURES)


@pytest.mark.parametrize(
    ("fields", "status", "param", "named"),
    [
        pytest.param({"input": ""}, 400, "input", ["must not be empty"], id="empty-text"),
        pytest.param({"input": [TEXT]}, 422, "input", ["one text", "a list"], id="list"),
        pytest.param({"input": {"image": "x"}}, 422, "input", ["text"], id="an-image"),
        pytest.param({"input": "a" * 101}, 413, "input", ["101", "100", "LIMIT_TEXT_CHARS"], id="too-long"),
        pytest.param({"features": []}, 400, "features", ["empty"], id="no-features"),
        pytest.param({"features": ["summary"]}, 422, "features.0", ["summary", "key_sentences"], id="no-such-feature"),
        pytest.param({"labels": ["a"]}, 422, "labels", ["a second one"], id="only-one"),
        pytest.param({"labels": list("abcde")}, 413, "labels", ["5", "4", "LIMIT_LABELS"], id="many"),
    ],
)
async def test_bad_requests(
    client: httpx.AsyncClient, services: FakeServices, fields: Any, *, status: int, param: str, named: list[str]
) -> None:
    """The problem names field, value and limit; nothing is computed."""
    response = await client.post(URL, json={"input": TEXT, **fields})

    assert param == problem(response, status, None, *named)["error"]["param"]
    assert [] == services.analysis.calls


def test_offsets_of_the_example() -> None:
    """Offsets in the documented example point to its text."""
    [route] = analyze.ROUTES
    text = route.openapi_extra["requestBody"]["content"]["application/json"]["examples"]["everything"]["value"]["input"]
    example = route.responses[200]["content"]["application/json"]["example"]

    for item in [*example["entities"], *example["key_sentences"]]:
        assert item["text"] == text[item["start"] : item["end"]]
    for phrase in example["key_phrases"]:
        assert {phrase["text"]} == {text[place["start"] : place["end"]] for place in phrase["places"]}
