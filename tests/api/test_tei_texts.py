"""text-embeddings-inference's /predict and /rerank."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from backend.api.deps import ApiLimits
from tests.api.checks import problem
from tests.api.fakes import FakeServices, fake_services

ROW = [{"score": 0.5, "label": "invoice"}, {"score": 1 / 3, "label": "receipt"}]
QUERY = {"query": "q", "texts": ["ab", "abcd", "a"]}


@pytest.fixture
def services() -> FakeServices:
    return fake_services(limits=ApiLimits(inputs=5, text_chars=100, body_bytes=10_000))


@pytest.mark.parametrize(
    ("inputs", "asked", "answer"),
    [
        pytest.param("a", ["a"], ROW, id="text"),
        pytest.param(["a"], ["a"], ROW, id="text-in-a-list"),
        pytest.param(["a", "b"], [("a", "b")], ROW, id="pair"),
        pytest.param([["a"]], ["a"], [ROW], id="batch-of-one"),
        pytest.param([["a"], ["b"]], ["a", "b"], [ROW, ROW], id="batch"),
        pytest.param([["a"], ["b", "c"], ["d"]], ["a", ("b", "c"), "d"], [ROW] * 3, id="texts-and-pairs"),
    ],
)
async def test_predict(
    client: httpx.AsyncClient, services: FakeServices, inputs: Any, asked: list[Any], answer: Any
) -> None:
    """One input gives a list, a batch a list of lists; two texts side by side are a pair."""
    response = await client.post("/predict", json={"inputs": inputs})

    assert answer == response.json()
    assert asked == services.classification.calls[0][0]
    assert str(sum(len("".join(one)) + 2 for one in asked)) == response.headers["x-compute-tokens"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, (False, "end"), id="defaults-are-tei's"),
        pytest.param({"raw_scores": None, "truncate": None}, (False, "end"), id="nulls"),
        pytest.param({"raw_scores": True, "truncate": False}, (True, "none"), id="logits-never-cut"),
        pytest.param({"truncate": True, "truncation_direction": "Left"}, (False, "start"), id="cut-left"),
        pytest.param({"parameters": {"top_k": 1}}, (False, "end"), id="huggingface-hub's-other-field"),
    ],
)
async def test_predict_options(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], expected: tuple[bool, str]
) -> None:
    """TEI's words become the service's."""
    await client.post("/predict", json={"inputs": "a", **fields})

    wishes = services.classification.calls[0][1]
    assert expected == (wishes["raw_scores"], wishes["truncate"])
    assert wishes["deadline_s"] > 0


async def test_cut_inputs_are_told_in_a_header(client: httpx.AsyncClient) -> None:
    """A bare list has no room for it."""
    predicted = await client.post("/predict", json={"inputs": [["a"], ["long text"]]})
    ranked = await client.post("/rerank", json={"query": "q", "texts": ["a", "b", "long text"]})

    assert ("1", "2") == (predicted.headers["x-truncated"], ranked.headers["x-truncated"])


@pytest.mark.parametrize(
    ("inputs", "status", "named"),
    [
        pytest.param([], 400, ["inputs", "empty list"], id="empty-list"),
        pytest.param("", 400, ["inputs", "empty"], id="empty-text"),
        pytest.param(["a", ""], 400, ["inputs", "empty"], id="half-a-pair"),
        pytest.param([["a"], [""]], 400, ["inputs[1]", "empty"], id="one-empty-text"),
        pytest.param([["a"], []], 422, ["inputs[1]", "0 texts"], id="an-empty-row"),
        pytest.param(["a", "b", "c"], 422, ["3 texts", '[["a"], ["b", "c"]]'], id="texts-that-want-to-be-a-batch"),
        pytest.param([["a", "b", "c"]], 422, ["inputs[0]", "3 texts"], id="three-texts-in-a-row"),
        pytest.param([["a"], "b"], 422, ["inputs[1]", "a text"], id="text-in-a-batch"),
        pytest.param(["a", ["b"]], 422, ["inputs[1]", "a list"], id="list-in-a-pair"),
        pytest.param([["a", 5]], 422, ["inputs[0][1]", "a number"], id="number-in-a-row"),
        pytest.param([5], 422, ["inputs[0]", "a number"], id="number"),
        pytest.param(None, 422, ["inputs", "null"], id="null"),
        pytest.param([["a"]] * 6, 413, ["6", "5", "LIMIT_INPUTS"], id="too-many"),
        pytest.param([["a"], ["b", "c" * 101]], 413, ["101", "LIMIT_TEXT_CHARS"], id="too-long"),
    ],
)
async def test_predict_faults(
    client: httpx.AsyncClient, services: FakeServices, inputs: Any, status: int, named: list[str]
) -> None:
    """What is wrong, where, and how a batch is written; and nothing is computed."""
    problem(await client.post("/predict", json={"inputs": inputs}), status, None, *named)

    assert [] == services.classification.calls


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [(1, 1.0), (0, 0.5), (2, 0.25)], id="scores"),
        pytest.param({"raw_scores": True}, [(1, 4.0), (0, 2.0), (2, 1.0)], id="raw-scores"),
        pytest.param({"raw_scores": None, "return_text": None}, [(1, 1.0), (0, 0.5), (2, 0.25)], id="nulls"),
    ],
)
async def test_rank(client: httpx.AsyncClient, fields: dict[str, Any], expected: list[tuple[int, float]]) -> None:
    """A bare list, best first, without texts."""
    response = await client.post("/rerank", json={**QUERY, **fields})

    assert [{"index": index, "score": score} for index, score in expected] == response.json()
    assert "10" == response.headers["x-compute-tokens"]
    assert "inference;dur=" in response.headers["server-timing"]


async def test_rank_returns_texts(client: httpx.AsyncClient) -> None:
    """Where asked for, each with its own."""
    response = await client.post("/rerank", json={**QUERY, "return_text": True})

    assert [(1, "abcd"), (0, "ab"), (2, "a")] == [(one["index"], one["text"]) for one in response.json()]


async def test_rank_options(client: httpx.AsyncClient, services: FakeServices) -> None:
    """TEI's two fields about cutting become the service's one."""
    for fields in ({}, {"truncate": False}, {"truncation_direction": "left"}):
        await client.post("/rerank", json={**QUERY, **fields})

    assert ["end", "none", "start"] == [asked["truncate"] for _, asked in services.reranking.calls]
    assert ("q", QUERY["texts"]) == services.reranking.calls[0][0]


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        pytest.param({"query": ""}, 400, ["query", "empty"], id="empty-query"),
        pytest.param({"query": 5}, 422, ["query"], id="number-as-query"),
        pytest.param({"texts": []}, 400, ["texts", "empty list"], id="no-texts"),
        pytest.param({"texts": "a"}, 422, ["texts", "a list"], id="text-for-list"),
        pytest.param({"texts": ["a", ""]}, 400, ["texts[1]"], id="empty-text"),
        pytest.param({"texts": ["a", {"text": "b"}]}, 422, ["texts[1]", "an object"], id="object"),
        pytest.param({"texts": ["a"] * 6}, 413, ["6", "5", "LIMIT_INPUTS"], id="too-many"),
        pytest.param({"texts": ["a" * 101]}, 413, ["101", "LIMIT_TEXT_CHARS"], id="too-long"),
        pytest.param({"query": "a" * 101}, 413, ["query", "101", "LIMIT_TEXT_CHARS"], id="long-query"),
        pytest.param({"return_text": "yes"}, 422, ["return_text"], id="a-text-as-wish"),
    ],
)
async def test_rank_faults(
    client: httpx.AsyncClient, services: FakeServices, fields: dict[str, Any], status: int, named: list[str]
) -> None:
    """What is wrong and where; and nothing is computed."""
    problem(await client.post("/rerank", json={**QUERY, **fields}), status, None, *named)

    assert [] == services.reranking.calls
