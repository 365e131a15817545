"""Images in ``/v1/classify``: every way to send them, what they cost, and what is refused. Without any model."""

import base64
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.callers.callers import Quotas
from backend.errors import WrongMediaType
from tests.api.checks import problem
from tests.api.conftest import connect
from tests.api.fakes import FakeServices

PATH = "/v1/classify"
FILE = b"\x89PNG of a page"
ENCODED = base64.b64encode(FILE).decode()


async def test_a_form(services: FakeServices, client: httpx.AsyncClient) -> None:
    """The pages that it names, in order; a damaged one says so."""
    answer = await client.post(PATH, files={"file": FILE}, data={"pages": "1,2,3", "top_k": "1", "password": "x"})
    content, choice, _, top_k, min_score = services.images.calls[0]

    assert 200 == answer.status_code
    assert {
        "object": "list",
        "data": [
            {"object": "classification", "index": 0, "prediction": "form", "score": 0.75,
             "predictions": [{"label": "form", "score": 0.75}], "page": 1},
            {"object": "classification", "index": 1, "prediction": "invoice", "score": 0.75,
             "predictions": [{"label": "invoice", "score": 0.75}], "page": 2},
            {"object": "classification", "index": 2, "prediction": "form", "score": 0.75,
             "predictions": [{"label": "form", "score": 0.75}], "page": 3, "incomplete": "the file is cut off"},
        ],
        "model": "owner/page-kinds",
        "usage": {"prompt_tokens": 0, "total_tokens": 0, "pages": 3},
    } == answer.json()  # fmt: skip
    assert (FILE, "1,2,3", "x", 1, None) == (content, choice.pages, choice.password, top_k, min_score)
    assert "decode;dur=250" in answer.headers["server-timing"]


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({"image": ENCODED}, id="base64"),
        pytest.param({"image": f"data:image/png;base64,{ENCODED}"}, id="data-url"),
        pytest.param({"image": ENCODED.replace("+", "-").replace("/", "_")}, id="url-safe"),
        pytest.param({"image": f"{ENCODED[:8]}\r\n{ENCODED[8:]}"}, id="in-lines"),
        pytest.param([{"image": ENCODED}], id="a-list"),
    ],
)
async def test_json(services: FakeServices, client: httpx.AsyncClient, item: Any) -> None:
    """As Jina's clients send images, alone or in a list."""
    answer = await client.post(PATH, json={"input": item, "model": "page-kinds", "min_score": 0.5})

    assert ["form"] == [row["prediction"] for row in answer.json()["data"]]
    assert (FILE, 0.5) == (services.images.calls[0][0], services.images.calls[0][4])


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        pytest.param({"input": ["a", {"image": ENCODED}]}, 422, "invalid_field", "input[0]: is no image", id="mixed"),
        pytest.param({"input": {"image": 7}}, 422, "invalid_field", "input[0].image", id="a-number"),
        pytest.param({"input": {"image": ""}}, 400, "bad_input", "must not be empty", id="empty"),
        pytest.param({"input": {"image": "data:image/png;base64,"}}, 400, "bad_input", "must not be empty", id="head"),
        pytest.param({"input": {"image": "data:image/png,abc"}}, 422, "invalid_field", "base64", id="not-base64-url"),
        pytest.param({"input": {"image": "abc!"}}, 422, "invalid_field", "no base64", id="not-base64"),
        pytest.param({"input": {"image": "https://x.org/a.png"}}, 422, "invalid_field", "fetches nothing", id="url"),
        pytest.param(
            {"input": [{"image": ENCODED}, {"image": "AAAA"}]}, 415, "wrong_media_type", "input[1]:", id="2nd"
        ),
        pytest.param({"input": {"image": ENCODED}, "labels": ["a", "b"]}, 422, "invalid_field", "labels", id="labels"),
        pytest.param({"input": {"image": ENCODED}, "multi_label": True}, 422, "invalid_field", "learnt", id="multi"),
        pytest.param({"input": {"image": ENCODED}, "model": "x"}, 404, "model_not_found", "page-kinds", id="model"),
        pytest.param({"input": [{"image": ENCODED}] * 101}, 413, "too_large", "LIMIT_INPUTS", id="too-many"),
    ],
)
async def test_refused(client: httpx.AsyncClient, body: Any, status: int, code: str, words: str) -> None:
    """What is wrong, and with which of several images."""
    problem(await client.post(PATH, json=body), status, code, words)


async def test_an_error_that_requests_share(
    monkeypatch: pytest.MonkeyPatch, services: FakeServices, client: httpx.AsyncClient
) -> None:
    """Equal images are one call with one error: each answer names its own place alone."""
    error = WrongMediaType("file: it looks like nothing at all", param="file")

    async def classify(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(services.images, "classify", classify)
    for _ in range(2):
        told = problem(await client.post(PATH, json={"input": [{"image": ENCODED}] * 3}), 415, "wrong_media_type")
        assert "input[0]: file: it looks like nothing at all" == told["detail"]
        assert "input" == told["error"]["param"]
    assert ("file: it looks like nothing at all", "file") == (str(error), error.param)


async def test_without_a_model(services: FakeServices, client: httpx.AsyncClient) -> None:
    """The error names the setting, however the image comes."""
    services.images.names = ()

    problem(await client.post(PATH, files={"file": FILE}), 422, "invalid_field", "IMAGE_MODEL")
    problem(await client.post(PATH, json={"input": {"image": ENCODED}}), 422, "invalid_field", "IMAGE_MODEL")
    assert all(card["task"] != "images" for card in (await client.get("/v1/models")).json()["data"])


async def test_its_card(client: httpx.AsyncClient) -> None:
    """In OpenAI's list, and by each of its names."""
    [card] = [card for card in (await client.get("/v1/models")).json()["data"] if card["task"] == "images"]

    assert ("owner/page-kinds", ["form", "invoice"], 224, 160) == tuple(
        card[name] for name in ("id", "labels", "height", "width_px")
    )
    for name in ("owner/page-kinds", "page-kinds"):
        assert card | {"id": name} == (await client.get(f"/v1/models/{name}")).json()


async def test_an_image_costs_a_page(services: FakeServices) -> None:
    """Each page that was looked at; who has none left is refused."""
    options = ApiOptions(api_keys=("team=mine",), quotas=Quotas(pages_per_minute=3))
    key = {"authorization": "Bearer mine"}
    async with connect(services, options) as client:
        await client.post(PATH, files={"file": FILE}, data={"pages": "1,2"}, headers=key)
        answer = await client.post(PATH, json={"input": [{"image": ENCODED}] * 2}, headers=key)
        refused = await client.post(PATH, json={"input": {"image": ENCODED}}, headers=key)

    assert '"pages";r=0' in answer.headers["ratelimit"]
    problem(refused, 429, "quota_exceeded", "QUOTA_PAGES_PER_MINUTE")
