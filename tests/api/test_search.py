"""``POST /v1/vector_stores/{id}/search`` over hits that are easy to predict."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from backend.api.routes.search import SearchPageAnswer, search_answer
from backend.errors import WrongEncoder
from backend.files.pages import Box
from backend.search.filters import Comparison, Compound
from backend.search.records import StoreFile, VectorStore
from backend.search.retrieval import Highlight, PageBox, SearchAnswer, SearchOptions
from tests.api.checks import problem, require_schema
from tests.api.fakes import FakeServices
from tests.api.search_services import hit

_BOX = Box(10, 20, 40, 30)
_TWO_PAGES = replace(
    hit(StoreFile("vs_1", "file-1", "a.pdf", 0.0)),
    pages=(4, 5),
    places=(PageBox(4, _BOX), PageBox(5, _BOX)),
    highlights=(),
)


@pytest.fixture
async def path(client: httpx.AsyncClient) -> str:
    """The route of a store with two files."""
    ids = []
    for name in ("factura.pdf", "b.txt"):
        form = {"purpose": "assistants"}
        ids.append((await client.post("/v1/files", files={"file": (name, b"a")}, data=form)).json()["id"])
    files = [{"file_id": ids[0], "attributes": {"year": 2026}}, {"file_id": ids[1]}]
    store = (await client.post("/v1/vector_stores", json={})).json()["id"]
    await client.post(f"/v1/vector_stores/{store}/file_batches", json={"files": files})
    return f"/v1/vector_stores/{store}/search"


async def test_hits(client: httpx.AsyncClient, path: str) -> None:
    """OpenAI's fields, and where the hit stands on paper."""
    answer = (await client.post(path, json={"query": "¿Total?"})).json()

    require_schema(SearchPageAnswer, answer)
    assert ("vector_store.search_results.page", ["¿Total?"]) == (answer["object"], answer["search_query"])
    assert (False, None, ["a warning"]) == (answer["has_more"], answer["next_page"], answer["warnings"])
    assert {"prompt_tokens": 7, "total_tokens": 7} == answer["usage"]
    first, second = answer["data"]
    assert first["file_id"].startswith("file-")
    assert {
        "filename": "factura.pdf",
        "score": 0.75,
        "attributes": {"year": 2026},
        "content": [{"type": "text", "text": "Total 1.284"}],
        "chunk_id": "7",
        "chunk_index": 0,
        "start": 0,
        "end": 11,
        "page": 2,
        "pages": [2],
        "part": "Hoja 2",
        "start_s": None,
        "end_s": None,
        "boxes": [{"page": 2, "box": [10, 20, 40.13, 30]}],
        "highlights": [{"start": 0, "end": 5, "boxes": [{"page": 2, "box": [10, 20, 40, 30]}]}],
        "scores": {"vector": 0.812346, "keyword": 3.5, "rerank": None},
        "duplicates": ["file-copy"],
        "page_sizes": [{"page": 2, "width": 842.0, "height": 595.0, "rotation": 90, "part": "Hoja 2"}],
    }.items() <= first.items()
    assert {} == second["attributes"]


async def test_an_empty_store(client: httpx.AsyncClient) -> None:
    """No hits and no error."""
    store = (await client.post("/v1/vector_stores", json={})).json()["id"]
    answer = await client.post(f"/v1/vector_stores/{store}/search", json={"query": "a"})

    assert (200, []) == (answer.status_code, answer.json()["data"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({}, SearchOptions(), id="usual"),
        pytest.param({"max_num_results": 50}, SearchOptions(limit=50), id="results"),
        pytest.param({"max_num_results": 2.0}, SearchOptions(limit=2), id="a-whole-float"),
        pytest.param({"rewrite_query": True, "filters": None, "ranking_options": None}, SearchOptions(), id="ignored"),
        pytest.param({"ranking_options": {"ranker": "none"}}, SearchOptions(ranker="none"), id="no-reranker"),
        pytest.param(
            {"ranking_options": {"ranker": "default-2024-11-15", "score_threshold": 0.5}},
            SearchOptions(score_threshold=0.5),
            id="a-ranker-of-openai",
        ),
        pytest.param(
            {"ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 2}}},
            SearchOptions(vector_weight=0.0, keyword_weight=2.0),
            id="words-alone",
        ),
        pytest.param(
            {"filters": {"key": "a", "type": "eq", "value": 1}},
            SearchOptions(filters=Comparison("a", "eq", 1.0)),
            id="comparison",
        ),
        pytest.param(
            {"filters": {"key": "a", "type": "nin", "value": ["x", 1, True]}},
            SearchOptions(filters=Comparison("a", "nin", ("x", 1.0, True))),
            id="several-values",
        ),
        pytest.param(
            {
                "filters": {
                    "type": "or",
                    "filters": [
                        {"key": "a", "type": "ne", "value": False},
                        {"type": "and", "filters": [{"key": "b", "type": "lte", "value": "2026-03-31"}]},
                    ],
                }
            },
            SearchOptions(
                filters=Compound(
                    "or", (Comparison("a", "ne", False), Compound("and", (Comparison("b", "lte", "2026-03-31"),)))
                )
            ),
            id="nested",
        ),
    ],
)
async def test_options(
    client: httpx.AsyncClient, services: FakeServices, path: str, body: dict[str, Any], expected: SearchOptions
) -> None:
    """What the service is asked for."""
    answer = await client.post(path, json={"query": "a", **body})

    assert 200 == answer.status_code, answer.text
    assert expected == services.search.options
    if services.search.options.filters is not None:
        assert repr(expected.filters) == repr(services.search.options.filters)  # 1 == True


async def test_more_than_was_asked_for(client: httpx.AsyncClient, path: str) -> None:
    answer = (await client.post(path, json={"query": "a", "max_num_results": 1})).json()

    assert (1, True) == (len(answer["data"]), answer["has_more"])


async def test_several_queries(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """All are searched and echoed."""
    answer = (await client.post(path, json={"query": ["a", "b"]})).json()

    assert ["a", "b"] == answer["search_query"]
    assert ["a", "b"] == services.search.calls[-1][2]


def _eq(key: Any = "a", value: Any = 1) -> dict[str, Any]:
    return {"key": key, "type": "eq", "value": value}


def _all_of(*filters: Any) -> dict[str, Any]:
    return {"type": "and", "filters": list(filters)}


def _deep(levels: int) -> Any:
    return _all_of(_deep(levels - 1)) if levels > 1 else _eq()


@pytest.mark.parametrize(
    ("filters", "status", "named"),
    [
        pytest.param([], 422, ["filters:", "an object"], id="list"),
        pytest.param({}, 422, ["filters.type", "nothing"], id="empty"),
        pytest.param({"type": "like"}, 422, ["filters.type", "eq, ne, gt", "and, or", "'like'"], id="unknown"),
        pytest.param(_all_of(), 422, ["filters.filters", "one"], id="none-within"),
        pytest.param({"type": "and"}, 422, ["filters.filters", "a list", "null"], id="no-filters"),
        pytest.param(_all_of(_eq(), {"key": "a", "type": "eq"}), 422, ["filters.filters[1].value: is"], id="no-value"),
        pytest.param(_all_of(_eq(), _eq(value=None)), 422, ["filters.filters[1].value", "null"], id="null"),
        pytest.param(_all_of(_eq(), _eq(value={})), 422, ["filters.filters[1].value", "an object"], id="object"),
        pytest.param(_eq(value=[1]), 422, ["filters.value", "'in'"], id="several-for-eq"),
        pytest.param(_eq(key=7), 422, ["filters.key", "a number"], id="key"),
        pytest.param(_eq(key=""), 422, ["filters.key", "empty"], id="no-key"),
        pytest.param(_eq(value=2**53 + 1), 422, ["filters.value", "as a text"], id="inexact"),
        pytest.param(_eq(value=float("nan")), 422, ["filters.value", "finite"], id="nan"),
        pytest.param({"key": "a", "type": "in", "value": 1}, 422, ["filters.value", "a list"], id="one-for-in"),
        pytest.param({"key": "a", "type": "in", "value": [1, None]}, 422, ["filters.value[1]"], id="null-in"),
        pytest.param({"key": "a", "type": "in", "value": [1] * 1001}, 413, ["1001", "1000"], id="long-in"),
        pytest.param({"key": "a", "type": "gt", "value": True}, 422, ["filters.value", "by order"], id="gt-true"),
        pytest.param(_all_of(*[_eq()] * 101), 413, ["101", "100"], id="too-many"),
        pytest.param(_deep(17), 413, ["17", "16"], id="too-deep"),
    ],
)
async def test_bad_filters(client: httpx.AsyncClient, path: str, filters: Any, status: int, named: list[str]) -> None:
    """The message has the place within the filter; the parameter is the request's field."""
    body = json.dumps({"query": "a", "filters": filters}).encode()
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    assert "filters" == problem(answer, status, None, *named)["error"]["param"]


@pytest.mark.parametrize("levels", [100, 1_000, 40_000])
async def test_filters_deeper_than_a_parser(client: httpx.AsyncClient, path: str, levels: int) -> None:
    """A 4xx, and no exhausted stack."""
    filters = '{"type":"and","filters":[' * levels + '{"key":"a","type":"eq","value":1}' + "]}" * levels
    body = f'{{"query": "a", "filters": {filters}}}'.encode()
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    problem(answer, answer.status_code)
    assert answer.status_code in (400, 413)


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({}, 422, ["query", "required"], id="no-query"),
        pytest.param({"query": ""}, 400, ["query", "empty"], id="empty"),
        pytest.param({"query": " \n"}, 400, ["query", "empty"], id="blank"),
        pytest.param({"query": ["a", ""]}, 400, ["query[1]", "empty"], id="one-empty"),
        pytest.param({"query": ["a", 1]}, 422, ["query[1]"], id="a-number"),
        pytest.param({"query": None}, 422, ["query", "null"], id="null"),
        pytest.param({"query": ["a"] * 17}, 413, ["17", "16"], id="too-many"),
        pytest.param({"query": "a" * 200_001}, 413, ["LIMIT_TEXT_CHARS"], id="too-long"),
        pytest.param({"query": "a", "max_num_results": 51}, 422, ["max_num_results", "50"], id="51-results"),
        pytest.param({"query": "a", "filter": {}}, 422, ["filter:", "'filters'"], id="a-typo"),
        pytest.param(
            {"query": "a", "ranking_options": {"score_treshold": 0.5}},
            422,
            ["ranking_options.score_treshold", "'score_threshold'"],
            id="a-typo-of-an-option",
        ),
        pytest.param(
            {"query": "a", "ranking_options": {"hybrid_search": {"text_weigth": 0.5}}},
            422,
            ["ranking_options.hybrid_search.text_weigth", "'text_weight'"],
            id="a-typo-of-a-weight",
        ),
        pytest.param({"query": "a", "ranking_options": []}, 422, ["ranking_options"], id="options"),
        pytest.param(
            {"query": "a", "ranking_options": {"ranker": "bm25"}}, 422, ["ranking_options.ranker", "auto"], id="ranker"
        ),
        pytest.param(
            {"query": "a", "ranking_options": {"score_threshold": 1.1}}, 422, ["score_threshold", "0 to 1"], id="score"
        ),
        pytest.param(
            {"query": "a", "ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}}},
            422,
            ["hybrid_search", "more than 0"],
            id="no-weights",
        ),
    ],
)
async def test_bad_requests(client: httpx.AsyncClient, path: str, body: Any, status: int, named: list[str]) -> None:
    problem(await client.post(path, json=body), status, None, *named)


async def test_unknown_members(client: httpx.AsyncClient, path: str) -> None:
    """They are ignored, and the answer says so; not each of very many."""
    hybrid = {"rrf_k": 60}
    body = {"query": "a", "depth": 3, "ranking_options": {"mode": "x", "hybrid_search": hybrid}}
    some = (await client.post(path, json=body)).json()["warnings"]
    many = (await client.post(path, json={"query": "a"} | {f"member_{n}": n for n in range(50)})).json()["warnings"]

    assert [
        "depth: is not a member, and was ignored",
        "ranking_options.mode: is not a member, and was ignored",
        "ranking_options.hybrid_search.rrf_k: is not a member, and was ignored",
        "a warning",
    ] == some
    assert 22 == len(many)
    assert "body: 30 more unknown members were ignored" in many


async def test_the_page_is_that_of_the_words() -> None:
    """Not where the chunk begins; without words on paper it is that, and null for plain text."""
    of_words = replace(_TWO_PAGES, highlights=(Highlight(0, 5, ()), Highlight(6, 11, (PageBox(5, _BOX),))))
    no_paper = replace(_TWO_PAGES, pages=(), places=(), highlights=(Highlight(0, 5, ()),))
    answers = search_answer(SearchAnswer(("a",), (_TWO_PAGES, of_words, no_paper), has_more=False, tokens=1))["data"]

    assert [4, 5, None] == [hit["page"] for hit in answers]
    assert [[4, 5], [4, 5], []] == [hit["pages"] for hit in answers]


async def test_a_form_feed_is_a_line_break() -> None:
    """It stands between two pages; nobody shows it, and offsets stay."""
    over = replace(_TWO_PAGES, chunk=replace(_TWO_PAGES.chunk, text="uno\n\fdos"))
    [found] = search_answer(SearchAnswer(("a",), (over,), has_more=False, tokens=1))["data"]

    assert [{"type": "text", "text": "uno\n\ndos"}] == found["content"]


async def test_files_still_being_read(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """The answer says that hits may be missing."""
    stores, waiting = services.vector_stores, {"in_progress": 0}
    find = stores.find

    async def found(owner: str, store_id: str) -> VectorStore:
        return replace(await find(owner, store_id), counts=waiting)

    stores.find = found  # type: ignore[method-assign]
    told = []
    for count in (0, 1, 2):
        waiting["in_progress"] = count
        told.append((await client.post(path, json={"query": "a"})).json()["warnings"][0])

    assert "a warning" == told[0]
    assert told[1].startswith("1 file of this store is still being read")
    assert told[2].startswith("2 files of this store are still being read")


async def test_a_store_of_another_encoder(client: httpx.AsyncClient, services: FakeServices, path: str) -> None:
    """409, which OpenAI's clients retry unless told not to."""
    services.search.error = WrongEncoder("the store holds the vectors of other/model; POST …/reembed")

    answer = await client.post(path, json={"query": "a"})
    body = problem(answer, 409, "wrong_encoder", "reembed")
    assert (False, "false") == (body["retryable"], answer.headers["x-should-retry"])
