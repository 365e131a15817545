"""POST /v1/rerank and /v2/rerank: the shapes of Jina and Cohere."""

import json
import time
from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiLimits
from backend.api.routes.rerank import RankingAnswer, RerankAnswer
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices

URL = "/v1/rerank"
BODY = {"query": "q", "documents": ["ab", "abcd", "a"]}
API_LIMITS = ApiLimits(inputs=5, text_chars=100, body_bytes=10_000)


async def test_the_shape(client: httpx.AsyncClient) -> None:
    """The answer has Jina's fields and Cohere's, no others, the best result first."""
    response = await client.post(URL, json=BODY, headers={"X-Request-Id": "r-1"})

    assert 200 == response.status_code
    assert {
        "id": "r-1",
        "object": "list",
        "model": "tiny/reranker",
        "results": [
            {"index": 1, "relevance_score": 1.0, "document": {"text": "abcd"}},
            {"index": 0, "relevance_score": 0.5, "document": {"text": "ab"}},
            {"index": 2, "relevance_score": 0.25, "document": {"text": "a"}},
        ],
        "usage": {"prompt_tokens": 10, "total_tokens": 10},
        "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}, "tokens": {"input_tokens": 10}},
    } == response.json()
    require_schema(RerankAnswer, response.json())


@pytest.mark.parametrize(
    ("path", "field", "expected"),
    [
        pytest.param("/v1/rerank", {}, True, id="jina's-default"),
        pytest.param("/v1/rerank", {"return_documents": None}, True, id="null-is-the-default"),
        pytest.param("/v1/rerank", {"return_documents": False}, False, id="left-out"),
        pytest.param("/v2/rerank", {}, False, id="cohere's-default"),
        pytest.param("/v2/rerank", {"return_documents": True}, True, id="asked-for"),
    ],
)
async def test_return_documents(client: httpx.AsyncClient, path: str, field: dict[str, Any], expected: bool) -> None:
    """Each API has its own default; both obey the field."""
    body = (await client.post(path, json={**BODY, **field})).json()

    assert [expected] * 3 == ["document" in result for result in body["results"]]
    assert path[2] == body["meta"]["api_version"]["version"]
    require_schema(RerankAnswer, body)


@pytest.mark.parametrize(("top_n", "expected"), [(1, [1]), (2, [1, 0]), (50, [1, 0, 2]), (None, [1, 0, 2])])
async def test_top_n(client: httpx.AsyncClient, top_n: int | None, expected: list[int]) -> None:
    """The best ``top_n``; all where there are fewer."""
    body = (await client.post(URL, json={**BODY, "top_n": top_n})).json()

    assert expected == [result["index"] for result in body["results"]]


async def test_options_reach_the_service(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Absent and null fields leave the choice to the service; Cohere's other fields are accepted."""
    options = {"top_n": 2, "model": "tiny/reranker", "truncate": "none"}
    await client.post(URL, json={**BODY, **options})
    await client.post("/v2/rerank", json={**BODY, "max_tokens_per_doc": 512, "priority": 0, "truncate": None})

    (inputs, sent), (_, bare) = services.reranking.calls
    assert ("q", BODY["documents"]) == inputs
    assert sent.pop("urgency").deadline_s > 0
    assert options == sent
    assert (None, None, "end") == (bare["top_n"], bare["model"], bare["truncate"])


async def test_documents_as_objects(client: httpx.AsyncClient, services: FakeServices) -> None:
    """The text of objects is ranked; they come back as they were sent."""
    documents = [{"text": "ab", "id": 7}, "a"]

    body = (await client.post(URL, json={"query": "q", "documents": documents})).json()

    assert ["ab", "a"] == services.reranking.calls[0][0][1]
    assert [documents[0], {"text": "a"}] == [result["document"] for result in body["results"]]


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "9" * 4000, "1e308", "true"])
async def test_numbers_come_back_as_they_were_sent(client: httpx.AsyncClient, number: str) -> None:
    """Also integers beyond 64 bits, which snowflake ids and hashes are."""
    content = f'{{"query": "q", "documents": [{{"text": "NaN", "id": {number}, "more": [{{"id": {number}}}]}}]}}'

    response = await client.post(URL, content=content, headers={"Content-Type": "application/json"})

    assert 200 == response.status_code
    [result] = response.json()["results"]
    expected = json.loads(number)
    assert {"text": "NaN", "id": expected, "more": [{"id": expected}]} == result["document"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
async def test_what_json_cannot_say_is_refused(client: httpx.AsyncClient, services: FakeServices, number: str) -> None:
    """Before anything is computed, where it would be sent back; it came back as null before."""
    content = f'{{"query": "q", "documents": ["a", {{"text": "b", "more": [0, {{"id": {number}}}]}}]}}'
    headers = {"Content-Type": "application/json"}

    refused = problem(await client.post(URL, content=content, headers=headers), 422, None, "documents")

    assert "documents[1].more[1].id" in refused["detail"]
    assert [] == services.reranking.calls
    assert 200 == (await client.post("/v2/rerank", content=content, headers=headers)).status_code


async def test_rank_fields(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Fields are joined in their order; plain texts are ranked as they are, and absent fields skipped."""
    documents = [{"text": "no", "title": "b", "author": "a"}, {"title": "c"}, "d"]

    await client.post(URL, json={"query": "q", "documents": documents, "rank_fields": ["author", "title"]})

    assert ["a\nb", "c", "d"] == services.reranking.calls[0][0][1]


async def test_many_rank_fields_of_many_documents(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Time grows with the body, not with fields times documents: 600 million look-ups would take a minute."""
    services.limits = ApiLimits()
    fields = [str(number) for number in range(300_000)]
    started_s = time.perf_counter()
    response = await client.post(URL, json={"query": "q", "documents": [{"7": "a"}] * 2000, "rank_fields": fields})

    assert 200 == response.status_code
    assert time.perf_counter() - started_s < 5.0


async def test_cut_documents_are_listed(client: httpx.AsyncClient) -> None:
    """`truncated` has indices of the request, not of the results."""
    body = (await client.post(URL, json={"query": "q", "documents": ["a", "long document", "b"]})).json()

    assert [1] == body["truncated"]
    require_schema(RerankAnswer, body)


@pytest.mark.parametrize(("count", "units"), [(1, 1), (100, 1), (101, 2)])
async def test_search_units(services: FakeServices, client: httpx.AsyncClient, count: int, units: int) -> None:
    """A query with up to a hundred documents is one search unit, as Cohere counts."""
    services.limits = ApiLimits()

    body = (await client.post(URL, json={"query": "q", "documents": ["a"] * count})).json()

    assert units == body["meta"]["billed_units"]["search_units"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
@pytest.mark.parametrize(
    ("fields", "status", "param", "named"),
    [
        pytest.param({"query": ""}, 400, "query", ["must not be empty"], id="empty-query"),
        pytest.param({"query": None}, 422, "query", [], id="no-query"),
        pytest.param({"query": ["q"]}, 422, "query", [], id="queries"),
        pytest.param({"documents": []}, 400, "documents", ["empty list"], id="no-documents"),
        pytest.param({"documents": "a"}, 422, "documents", ["a list"], id="one-document-as-text"),
        pytest.param({"documents": None}, 422, "documents", ["null"], id="null"),
        pytest.param({"documents": ["a", ""]}, 400, "documents", ["documents[1]", "empty"], id="empty-document"),
        pytest.param({"documents": ["a", {"text": ""}]}, 400, "documents", ["documents[1]"], id="empty-object"),
        pytest.param({"documents": ["a", 5]}, 422, "documents", ["documents[1]", "a number"], id="number"),
        pytest.param({"documents": [{"title": "a"}]}, 422, "documents", ["documents[0]", "text"], id="no-text"),
        pytest.param({"documents": [{"text": 5}]}, 422, None, ["documents[0].text", "a number"], id="number-as-text"),
        pytest.param({"rank_fields": []}, 400, "rank_fields", ["empty"], id="no-fields"),
        pytest.param(
            {"documents": [{"text": "a"}], "rank_fields": ["title"]}, 422, "documents", ["rank_fields"], id="no-field"
        ),
        pytest.param({"top_n": 0}, 422, "top_n", ["0"], id="none"),
        pytest.param({"top_n": -3}, 422, "top_n", ["-3"], id="fewer-than-none"),
        pytest.param({"top_n": "2"}, 422, "top_n", [], id="number-as-text"),
        pytest.param({"truncate": "middle"}, 422, "truncate", ["middle"], id="truncate"),
        pytest.param({"return_documents": "yes"}, 422, "return_documents", [], id="a-text-as-wish"),
        pytest.param({"model": "gpt-4"}, 404, "model", ["gpt-4", "tiny/reranker"], id="unknown-model"),
        pytest.param({"documents": ["a"] * 6}, 413, "documents", ["6", "5", "LIMIT_INPUTS"], id="too-many"),
        pytest.param(
            {"documents": ["a", "a" * 101]}, 413, "documents", ["documents[1]", "LIMIT_TEXT_CHARS"], id="long"
        ),
        pytest.param({"query": "a" * 101}, 413, "query", ["query characters", "101"], id="long-query"),
    ],
)
async def test_bad_requests(
    client: httpx.AsyncClient, path: str, fields: Any, *, status: int, param: str | None, named: list[str]
) -> None:
    """The problem names field, value and limit."""
    body = problem(await client.post(path, json={**BODY, **fields}), status, None, *named)

    assert param is None or param == body["error"]["param"]


async def test_voyage(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Its client sends top_k and, always, truncation, and reads `data`, where a document is its text."""
    asked = {"query": "q", "documents": ["a", "bb"], "model": "tiny/reranker", "top_k": 1, "truncation": True}

    body = (await client.post("/v1/rerank", json={**asked, "return_documents": True})).json()
    await client.post("/v1/rerank", json={**asked, "truncation": False})

    [result] = body["data"]
    assert ["a", "bb"][result["index"]] == result["document"]
    assert body["results"][0]["relevance_score"] == result["relevance_score"]
    assert body["usage"]["total_tokens"] > 0
    assert ["end", "none"] == [options["truncate"] for _, options in services.reranking.calls]
    require_schema(RerankAnswer, body)


async def test_voyage_documents_as_objects(client: httpx.AsyncClient) -> None:
    """They stay as they were sent."""
    asked = {"query": "q", "documents": [{"text": "a", "n": 1}], "top_k": 1, "return_documents": True}

    body = (await client.post("/v1/rerank", json=asked)).json()

    assert [{"text": "a", "n": 1}] == [result["document"] for result in body["data"]]


async def test_xinference(client: httpx.AsyncClient) -> None:
    """Its client says a boolean in words."""
    asked = {"query": "q", "documents": ["a"], "model": "tiny/reranker", "return_documents": "true"}

    assert {"text": "a"} == (await client.post("/v1/rerank", json=asked)).json()["results"][0]["document"]


async def test_nvidia(client: httpx.AsyncClient) -> None:
    """Passages by the model's own scores, the best first."""
    asked = {"query": {"text": "q"}, "passages": [{"text": "a"}, {"text": "b"}, {"text": "q"}], "truncate": "END"}

    body = (await client.post("/v1/ranking", json=asked)).json()

    logits = [ranking["logit"] for ranking in body["rankings"]]
    assert {0, 1, 2} == {ranking["index"] for ranking in body["rankings"]}
    assert sorted(logits, reverse=True) == logits
    require_schema(RankingAnswer, body)


async def test_nvidia_by_the_path(client: httpx.AsyncClient) -> None:
    """The model's name in the path counts where there is none in the body; `top_k` are the best."""
    asked = {"query": {"text": "q"}, "passages": [{"text": "a"}, {"text": "qq"}], "top_k": 1}

    body = (await client.post("/v1/retrieval/tiny/reranker/reranking", json=asked)).json()

    assert [1] == [ranking["index"] for ranking in body["rankings"]]
    problem(await client.post("/v1/retrieval/nobody/reranking", json=asked), 404, "model_not_found", "nobody")
    assert 200 == (await client.post("/v1/retrieval/x/reranking", json=asked | {"model": "tiny/reranker"})).status_code
