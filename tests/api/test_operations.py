"""Models, system, probes and metrics."""

from types import SimpleNamespace
from urllib.parse import unquote

import httpx
import pytest
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from backend.api.app import create_app
from tests.api.checks import problem
from tests.api.fakes import FakeServices, fake_model

PROMETHEUS_ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.3"


async def test_models(client: httpx.AsyncClient) -> None:
    """OpenAI's list, with what runs the model."""
    body = (await client.get("/v1/models")).json()

    card, _images, _speech = body["data"]
    assert ("list", "model", "fake-model", 1767225600) == (body["object"], card["object"], card["id"], card["created"])
    assert ("cpu", "int8", "onnx", 256, 16) == tuple(
        card[name] for name in ("device", "dtype", "runtime", "max_tokens", "width")
    )
    assert ["query"] == card["prompts"]


async def test_models_tell_what_they_do(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Which entry embeds, tags, classifies, ranks, summarizes and hears; by its name, too."""
    tasks = ("embeddings", "ner", "classifier", "reranker", "summaries")
    models = [SimpleNamespace(**{**vars(fake_model()), "task": task, "names": (task,)}) for task in tasks]
    services.catalog = SimpleNamespace(
        models=lambda: models,
        embedding=lambda _name: models[0],
        find=lambda name: next(model for model in models if name in model.names),
    )
    cards = (await client.get("/v1/models")).json()["data"]

    assert {
        "embeddings": (["embed", "rerank", "classify"], "embedding"),
        "ner": (["tag"], "flexible"),
        "classifier": (["classify"], "flexible"),
        "reranker": (["rerank"], "rerank"),
        "summaries": (["summarize"], "flexible"),
        "images": (["classify"], "image"),
        "speech": (["transcribe"], "audio"),
    } == {card["task"]: ([*card["capabilities"]], card["model_type"]) for card in cards}
    for card in cards:
        assert card == (await client.get(f"/v1/models/{card['id']}")).json()


@pytest.mark.parametrize("name", ["bundled", "alias/with-slash", "alias%2Fwith-slash"])
async def test_a_model_by_its_names(client: httpx.AsyncClient, name: str) -> None:
    """A model is found by any of its names, hub ids with a slash too; clients look for the one they asked for."""
    card = (await client.get(f"/v1/models/{name}")).json()

    assert (unquote(name), "fake-model") == (card["id"], card["names"][0])


async def test_models_for_cohere(client: httpx.AsyncClient) -> None:
    """Their client reads a model's name and what it does, and asks for those that do one thing."""
    card = (await client.get("/v1/models/bundled")).json()
    embed, chat = [
        (await client.get("/v1/models", params={"endpoint": endpoint})).json()["models"]
        for endpoint in ("embed", "chat")
    ]

    assert ("bundled", "fake-model", True) == (card["id"], card["name"], "embed" in card["endpoints"])
    assert embed
    assert all("embed" in model["endpoints"] for model in embed)
    assert [] == chat


async def test_unknown_model(client: httpx.AsyncClient) -> None:
    """An unknown model is 404 with the names of those that are loaded."""
    problem(await client.get("/v1/models/gpt-4"), 404, "model_not_found", "gpt-4", "fake-model")


async def test_system(client: httpx.AsyncClient) -> None:
    """The report of the services is answered as it is."""
    assert ["automatic: no GPU"] == (await client.get("/v1/system")).json()["device"]["why"]


async def test_ready(client: httpx.AsyncClient) -> None:
    """A working service is alive, ready and healthy."""
    answers = [(await client.get(f"/health{path}")) for path in ("", "/live", "/ready")]

    assert [200] * 3 == [answer.status_code for answer in answers]
    assert ["ready", "alive", "ready"] == [answer.json()["status"] for answer in answers]
    assert ["fake-model"] == [model["name"] for model in answers[0].json()["models"]]


async def test_degraded_is_ready(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Traffic is sent: requests are answered; what fails beside them is told by both probes."""
    services.health.failing = ("the model for embeddings (owner/model) is not loaded",)
    answers = [(await client.get(f"/health{path}")) for path in ("", "/ready")]

    assert [(200, "ready")] * 2 == [(answer.status_code, answer.json()["status"]) for answer in answers]
    assert [[*services.health.failing]] * 2 == [answer.json()["degraded"] for answer in answers]


async def test_not_ready(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A failing device makes it not ready, with reasons, but alive: restarting is the supervisor's own decision."""
    services.health.reasons = ("lane 0 is dead", "the last forward failed")

    ready, health, live = [(await client.get(f"/health{path}")) for path in ("/ready", "", "/live")]

    body = problem(ready, 503, "unavailable", "lane 0 is dead")
    assert ["lane 0 is dead", "the last forward failed"] == body["reasons"]
    assert "1" == ready.headers["retry-after"]
    assert (503, "unavailable") == (health.status_code, health.json()["status"])
    assert 200 == live.status_code


async def test_draining_is_not_ready(services: FakeServices) -> None:
    """A service that is stopping is not ready, so that load balancers drop it, but alive."""
    app = create_app(services)
    app.state.draining = True
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        body = problem(await client.get("/health/ready"), 503, "unavailable", "draining")
        live = await client.get("/health/live")

    assert 1 == len(body["reasons"])
    assert 200 == live.status_code


async def test_metrics(client: httpx.AsyncClient) -> None:
    """Prometheus' text format, which its own parser reads."""
    response = await client.get("/metrics")

    assert CONTENT_TYPE_LATEST == response.headers["content-type"]
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert {"financia_requests", "financia_request_duration_seconds", "financia_queue_jobs"} <= names


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("text/html,application/xhtml+xml,*/*;q=0.8", "application/json", id="browser"),
        pytest.param("application/json, text/plain, */*", "application/json", id="axios-names-both"),
        pytest.param(PROMETHEUS_ACCEPT, "text/plain", id="prometheus"),
        pytest.param("text/plain", "text/plain", id="text"),
    ],
)
async def test_gpu_metrics(client: httpx.AsyncClient, accept: str, expected: str) -> None:
    """JSON by default, text for a scraper; typed without a GPU too."""
    response = await client.get("/metrics/gpu", headers={"Accept": accept})

    assert 200 == response.status_code
    assert expected == response.headers["content-type"].partition(";")[0]
    if expected == "application/json":
        assert ("cpu", False, []) == tuple(response.json()[name] for name in ("device", "available", "gpus"))
    else:
        assert 'financia_gpu_available{device="cpu",uuid=""} 0.0' in response.text
