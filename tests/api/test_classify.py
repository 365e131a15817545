"""POST /v1/classify: Jina's shape, and faulty requests."""

from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes.classify import ClassifyAnswer
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices, fake_services

URL = "/v1/classify"
LABELS = ["factura", "contrato"]
API_LIMITS = ApiLimits(inputs=5, text_chars=100, labels=4, body_bytes=10_000)


async def test_one_text(client: httpx.AsyncClient) -> None:
    """One text gives a list of one, in Jina's shape, with no other field."""
    response = await client.post(URL, json={"input": "hola", "labels": LABELS})

    assert 200 == response.status_code
    assert {
        "object": "list",
        "data": [
            {
                "object": "classification",
                "index": 0,
                "prediction": "factura",
                "score": 0.5,
                "predictions": [{"label": "factura", "score": 0.5}, {"label": "contrato", "score": 1 / 3}],
            }
        ],
        "model": "document-type",
        "usage": {"prompt_tokens": 6, "total_tokens": 6},
    } == response.json()
    require_schema(ClassifyAnswer, response.json())


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param({"text": "a"}, ["a"], id="object"),
        pytest.param(["a", "b"], ["a", "b"], id="texts"),
        pytest.param([{"text": "a"}, "b", {"text": "c", "image": "x"}], ["a", "b", "c"], id="objects-among-texts"),
    ],
)
async def test_every_form_of_input(
    client: httpx.AsyncClient, services: FakeServices, sent: Any, expected: list[str]
) -> None:
    """Each form of input reaches the service as texts; the answers keep their order."""
    response = await client.post(URL, json={"input": sent})

    assert list(range(len(expected))) == [item["index"] for item in response.json()["data"]]
    assert expected == services.classification.calls[0][0]


async def test_options_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Absent and null fields leave the choice to the service."""
    options = {
        "labels": LABELS,
        "model": "document-type",
        "multi_label": True,
        "top_k": 1,
        "min_score": 0.25,
        "hypothesis_template": "This text is about {}.",
    }
    await client.post(URL, json={"input": "a", **options})
    await client.post(URL, json={"input": "a", **dict.fromkeys(options), "classifier_id": None})
    await client.post(URL, json={"input": "a"})

    sent, nulls, bare = (options for _, options in services.classification.calls)
    assert [True] * 3 == [call.pop("urgency").deadline_s > 0 for call in (sent, nulls, bare)]
    assert options == sent
    assert dict.fromkeys(options) == nulls == bare


async def test_classifier_id_is_the_model(client: httpx.AsyncClient) -> None:
    """Jina's `classifier_id` means the same as `model`."""
    bodies = [{"classifier_id": "bundled"}, {"model": "bundled"}, {"model": "bundled", "classifier_id": "bundled"}]
    answers = [(await client.post(URL, json={"input": "a", **body})).json()["model"] for body in bodies]

    assert ["bundled"] * 3 == answers


async def test_abstaining(client: httpx.AsyncClient) -> None:
    """There is no prediction, but the best label and its score are answered."""
    [item] = (await client.post(URL, json={"input": "abstain"})).json()["data"]

    assert (None, 0.5, "invoice") == (item["prediction"], item["score"], item["predictions"][0]["label"])


async def test_cut_inputs_are_listed(client: httpx.AsyncClient) -> None:
    """`truncated` lists the indices of truncated inputs."""
    body = (await client.post(URL, json={"input": ["a", "long text", "b", "long too"]})).json()

    assert [1, 3] == body["truncated"]
    require_schema(ClassifyAnswer, body)


@pytest.mark.parametrize(
    ("body", "status", "param", "named"),
    [
        pytest.param({}, 422, "input", ["required"], id="no-input"),
        pytest.param({"input": ["a", ""]}, 400, "input", ["input[1]"], id="one-empty-text"),
        pytest.param({"input": [1, 2]}, 422, "input", ["input[0]", "a number"], id="token-ids"),
        pytest.param({"input": [{"image": "x"}]}, 422, "input", ["input[0]", "base64"], id="an-image"),
        pytest.param({"input": "a", "labels": []}, 400, "labels", ["empty list", "leave the field out"], id="none"),
        pytest.param({"input": "a", "labels": "b"}, 422, "labels", ["a list of texts"], id="one-label-as-text"),
        pytest.param({"input": "a", "labels": ["b", 5]}, 422, "labels", ["labels[1]", "a number"], id="number"),
        pytest.param({"input": "a", "labels": ["b", " \n"]}, 400, "labels", ["labels[1]", "empty"], id="blank"),
        pytest.param(
            {"input": "a", "labels": ["b", "c", "b"]}, 422, "labels", ["labels[2]", "'b'", "labels[0]"], id="twice"
        ),
        pytest.param({"input": "a", "labels": ["b", "b "]}, 422, "labels", ["'b'"], id="twice-but-for-blanks"),
        pytest.param({"input": "a", "labels": ["b", "c" * 501]}, 422, "labels", ["labels[1]", "501", "500"], id="long"),
        pytest.param({"input": "a", "labels": ["b"]}, 422, "labels", ["a second one", "multi_label"], id="only-one"),
        pytest.param({"input": "a", "labels": list("bcdef")}, 413, "labels", ["5", "4", "LIMIT_LABELS"], id="many"),
        pytest.param({"input": "a", "hypothesis_template": "x"}, 422, "hypothesis_template", ["{}"], id="no-place"),
        pytest.param({"input": "a", "hypothesis_template": "{}{}"}, 422, "hypothesis_template", ["once"], id="two"),
        pytest.param(
            {"input": "a", "hypothesis_template": "{}" + "x" * 499}, 422, "hypothesis_template", ["500"], id="long"
        ),
        pytest.param(
            {"input": "a", "model": "x", "classifier_id": "y"}, 422, "classifier_id", ["model"], id="two-names"
        ),
        pytest.param({"input": ["a", "a" * 101]}, 413, "input", ["input[1]", "LIMIT_TEXT_CHARS"], id="too-long"),
    ],
)
async def test_bad_requests(
    client: httpx.AsyncClient, services: FakeServices, body: Any, *, status: int, param: str, named: list[str]
) -> None:
    """The problem names field, value and limit; nothing is computed."""
    response = await client.post(URL, json=body)

    assert param == problem(response, status, None, *named)["error"]["param"]
    assert [] == services.classification.calls


async def test_one_label_with_multi_label(client: httpx.AsyncClient) -> None:
    """One label alone is fine where each label is scored by itself."""
    response = await client.post(URL, json={"input": "a", "labels": ["urgente"], "multi_label": True})

    assert 200 == response.status_code


@pytest.mark.parametrize(("count", "status"), [(1000, 200), (1001, 413)])
async def test_a_thousand_labels(count: int, status: int) -> None:
    """LIMIT_LABELS allows a thousand by default, and not one more."""
    async with connect(fake_services(limits=ApiLimits())) as client:
        response = await client.post(URL, json={"input": "a", "labels": [f"label {index}" for index in range(count)]})

    assert status == response.status_code
    if status == 413:
        problem(response, 413, "too_large", "1001", "1000", "LIMIT_LABELS")


async def test_a_text_of_a_megabyte() -> None:
    """LIMIT_TEXT_CHARS allows a million characters by default, and not one more."""
    services = fake_services(limits=ApiLimits())
    async with connect(services) as client:
        longest = await client.post(URL, json={"input": "ñ" * 1_000_000})
        too_long = await client.post(URL, json={"input": "ñ" * 1_000_001})

    assert 200 == longest.status_code
    assert ["ñ" * 1_000_000] == services.classification.calls[0][0]
    problem(too_long, 413, "too_large", "input characters", "1000001", "LIMIT_TEXT_CHARS")
