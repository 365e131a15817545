"""``/v1/vector_stores``, their files and batches."""

from typing import Any

import httpx
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes.store_files import (
    FileBatchAnswer,
    FileContentAnswer,
    StoreFileAnswer,
    store_file_answer,
)
from backend.api.routes.vector_stores import VectorStoreAnswer
from backend.search.records import EncoderIdentity, IndexFailure
from tests.api.checks import problem, require_list, require_schema
from tests.api.conftest import connect
from tests.api.fakes import FakeServices
from tests.search.samples import store_file

STORES = "/v1/vector_stores"
ABSENT = "file-99"


async def _file(client: httpx.AsyncClient, name: str = "a.txt") -> str:
    answer = await client.post("/v1/files", files={"file": (name, b"a")}, data={"purpose": "assistants"})
    return str(answer.json()["id"])


async def _store(client: httpx.AsyncClient, **fields: Any) -> str:
    answer = await client.post(STORES, json=fields)
    assert 200 == answer.status_code, answer.text
    return f"{STORES}/{answer.json()['id']}"


async def test_a_store(client: httpx.AsyncClient) -> None:
    """OpenAI's fields, and ours: the encoder and what is done of a change of it."""
    expiry = {"anchor": "last_active_at", "days": 10_000}
    problem(await client.post(STORES, json={"expires_after": expiry}), 422, "invalid_field", "expires_after.days")
    expiry["days"] = 365
    created = await client.post(
        STORES, json={"name": "Facturas ñ", "description": "d", "metadata": {"a": "b"}, "expires_after": expiry}
    )
    asked = await client.get(f"{STORES}/{created.json()['id']}")

    require_schema(VectorStoreAnswer, created.json())
    assert created.json() == asked.json()
    assert {
        "object": "vector_store",
        "name": "Facturas ñ",
        "description": "d",
        "metadata": {"a": "b"},
        "expires_after": expiry,
        "expires_at": 1767225600 + 365 * 86400,
        "file_counts": {"in_progress": 0, "completed": 0, "cancelled": 0, "failed": 0, "total": 0},
        "encoder": None,
        "reembedding": None,
    }.items() <= asked.json().items()


async def test_a_store_with_files(client: httpx.AsyncClient, services: FakeServices) -> None:
    """They are added at once, cut as asked for; the first one's vectors are of the store's encoder."""
    sizes = {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 50}
    path = await _store(client, file_ids=[await _file(client)], chunking_strategy={"type": "static", "static": sizes})
    listed = (await client.get(f"{path}/files")).json()

    assert [{"type": "static", "static": sizes}] == [file["chunking_strategy"] for file in listed["data"]]
    store = (await client.get(path)).json()
    assert 1 == store["file_counts"]["completed"]
    assert {"name": "fake-model", "width": 16, "fingerprint": "f1"} == store["encoder"]


async def test_whoever_polls_is_told_when_to_ask_again(client: httpx.AsyncClient, services: FakeServices) -> None:
    """While a file or a batch goes on, in the header that OpenAI's clients obey."""
    services.storage.indexes = False
    store, file_id = await _store(client), await _file(client)
    batch = (await client.post(f"{store}/file_batches", json={"file_ids": [file_id]})).json()["id"]
    paths, headers = (f"{store}/files/{file_id}", f"{store}/file_batches/{batch}"), []
    for services.storage.indexes in (False, True):
        headers.append([(await client.get(path)).headers.get("openai-poll-after-ms") for path in paths])

    assert [["300", "300"], [None, None]] == headers


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, {"name": "a", "metadata": {"k": "v"}, "days": 3}, id="nothing"),
        pytest.param({"name": "b"}, {"name": "b", "metadata": {"k": "v"}, "days": 3}, id="name"),
        pytest.param({"name": None, "metadata": {}}, {"name": "a", "metadata": {}, "days": 3}, id="metadata"),
        pytest.param({"expires_after": None}, {"name": "a", "metadata": {"k": "v"}, "days": None}, id="for-good"),
    ],
)
async def test_changes(client: httpx.AsyncClient, change: dict[str, Any], expected: dict[str, Any]) -> None:
    """What is absent stays."""
    path = await _store(client, name="a", metadata={"k": "v"}, expires_after={"anchor": "last_active_at", "days": 3})
    answer = (await client.post(path, json=change)).json()

    days = answer["expires_after"] and answer["expires_after"]["days"]
    assert expected == {"name": answer["name"], "metadata": answer["metadata"], "days": days}


async def test_lists_of_stores(client: httpx.AsyncClient) -> None:
    """Part by part in both directions, the newest first."""
    paths = [await _store(client, name=str(number)) for number in range(3)]
    ids = [path.rpartition("/")[2] for path in paths]
    first = (await client.get(f"{STORES}?limit=2")).json()
    second = (await client.get(f"{STORES}?limit=2&after={first['last_id']}")).json()
    before = (await client.get(f"{STORES}?before={ids[0]}")).json()

    require_list(VectorStoreAnswer, first)
    assert ([ids[2], ids[1]], True) == ([store["id"] for store in first["data"]], first["has_more"])
    assert ([ids[0]], False) == ([store["id"] for store in second["data"]], second["has_more"])
    assert [ids[2], ids[1]] == [store["id"] for store in before["data"]]
    problem(await client.get(f"{STORES}?limit=101"), 422, "invalid_field", "limit")


async def test_deleting_a_store(client: httpx.AsyncClient) -> None:
    """Its files stay."""
    file_id = await _file(client)
    path = await _store(client, file_ids=[file_id])
    deleted = (await client.delete(path)).json()

    assert {"id": path.rpartition("/")[2], "object": "vector_store.deleted", "deleted": True} == deleted
    problem(await client.get(path), 404, "not_found")
    assert 200 == (await client.get(f"/v1/files/{file_id}")).status_code


async def test_reembedding(client: httpx.AsyncClient, services: FakeServices) -> None:
    """A request without a body; the store tells how far it is."""
    services.storage.encoder = EncoderIdentity("f2", "other", 8)
    path = await _store(client, file_ids=[await _file(client)])
    before = (await client.get(path)).json()
    answer = (await client.post(f"{path}/reembed")).json()

    require_schema(VectorStoreAnswer, answer)
    assert ("other", None) == (before["encoder"]["name"], before["reembedding"])
    assert (0, 2, "fake-model") == (
        answer["reembedding"]["chunks_done"],
        answer["reembedding"]["chunks_total"],
        answer["reembedding"]["encoder"]["name"],
    )


async def test_a_file_in_a_store(client: httpx.AsyncClient) -> None:
    """Its attributes as they were sent; those found in the document are apart; its pages only where it is asked for."""
    path, file_id = await _store(client), await _file(client, "factura.pdf")
    attributes = {"year": 2026, "price": 1.5, "paid": False, "ñ": "€", "large": 2**53, "exact": 2**64}
    added = (await client.post(f"{path}/files", json={"file_id": file_id, "attributes": attributes})).json()
    asked = (await client.get(f"{path}/files/{file_id}")).json()
    listed = (await client.get(f"{path}/files")).json()

    for answer in (added, asked):
        require_schema(StoreFileAnswer, answer)
    require_list(StoreFileAnswer, listed)
    assert [added] == listed["data"]
    assert attributes == added["attributes"]
    assert "2026" == repr(added["attributes"]["year"])
    assert {"document_type": ["invoice"], "invoice_total": [1284.5, 12]} == asked["found_attributes"]
    assert {"stage": "done", "done": 2, "total": 2} == asked["progress"]
    assert [
        {"page": 1, "width": 595.0, "height": 842.0, "rotation": 0},
        {"page": 2, "width": 842.0, "height": 595.0, "rotation": 90, "part": "Hoja 2"},
    ] == asked["pages"]
    assert ("factura.pdf", "es", 2, 2) == tuple(
        asked[name] for name in ("filename", "language", "chunks", "page_count")
    )


async def test_a_file_that_failed(client: httpx.AsyncClient) -> None:
    """Its status and error say so; the others are there."""
    path = await _store(client, file_ids=[await _file(client), await _file(client, "broken.pdf")])
    failed = (await client.get(f"{path}/files?filter=failed")).json()["data"]

    error = {"code": "invalid_file", "message": "it is cut off", "reason": "unreadable_file", "retryable": False}
    assert [("failed", error)] == [(file["status"], file["last_error"]) for file in failed]
    counts = (await client.get(path)).json()["file_counts"]
    assert (1, 1, 2) == (counts["completed"], counts["failed"], counts["total"])
    problem(await client.get(f"{path}/files?filter=tea"), 422, "invalid_field", "in_progress", "filter")


async def test_a_file_without_text(client: httpx.AsyncClient) -> None:
    """It is completed, and says that there was nothing to index; a file with chunks says nothing."""
    path = await _store(client, file_ids=[await _file(client), await _file(client, "blank.pdf")])
    blank, full = (await client.get(f"{path}/files")).json()["data"]

    assert [] == full["warnings"]
    assert "completed" == blank["status"]
    assert ["none of its 2 pages has text"] == [warning.partition(",")[0] for warning in blank["warnings"]]


async def test_changing_attributes(client: httpx.AsyncClient) -> None:
    """They take the place of all that were there; null takes them away."""
    file_id = await _file(client)
    path = f"{await _store(client, file_ids=[file_id])}/files/{file_id}"

    assert {"a": 1} == (await client.post(path, json={"attributes": {"a": 1}})).json()["attributes"]
    assert {} == (await client.post(path, json={"attributes": None})).json()["attributes"]
    problem(await client.post(path, json={}), 422, "invalid_field", "attributes", "required")


@pytest.mark.parametrize(
    ("attributes", "status", "named"),
    [
        pytest.param({"a": None}, 422, ["attributes.a", "null"], id="null"),
        pytest.param([1], 422, ["attributes", "an object"], id="no-object"),
        pytest.param({"": 1}, 422, ["must not be empty"], id="empty-name"),
        pytest.param({"n" * 65: 1}, 422, ["64", "65"], id="long-name"),
        pytest.param({"a\nb": 1}, 422, ["attributes"], id="name-of-two-lines"),
        pytest.param({"a": [1.0]}, 422, ["attributes.a"], id="list"),
        pytest.param({"a": "n" * 513}, 422, ["attributes.a", "512", "513"], id="long-value"),
        pytest.param({"a": "\0"}, 422, ["attributes.a", "U+0000"], id="nul"),
        pytest.param({"a": 2**53 + 1}, 422, ["attributes.a", "16 digits", "as a text"], id="inexact"),
        pytest.param({"a": 10**400}, 422, ["attributes.a", "finite"], id="beyond-float64"),
        pytest.param({str(number): 1 for number in range(10_000)}, 413, ["10000", "64"], id="too-many"),
    ],
)
async def test_bad_attributes(client: httpx.AsyncClient, attributes: Any, status: int, named: list[str]) -> None:
    """On each route that takes them, with their place."""
    file_id = await _file(client)
    path = await _store(client, file_ids=[file_id])

    for at, body in (
        ("files", {"file_id": file_id, "attributes": attributes}),
        (f"files/{file_id}", {"attributes": attributes}),
        ("file_batches", {"file_ids": [file_id], "attributes": attributes}),
    ):
        problem(await client.post(f"{path}/{at}", json=body), status, None, *named)
    inside = {"files": [{"file_id": "file-1"}, {"file_id": "file-2", "attributes": attributes}]}
    problem(await client.post(f"{path}/file_batches", json=inside), status, None, "files[1].attributes")


@pytest.mark.parametrize("number", ["NaN", "1e400"])
async def test_numbers_that_are_none(client: httpx.AsyncClient, number: str) -> None:
    """Python's parsers read them; they are refused with their place."""
    file_id = await _file(client)
    path = await _store(client)
    body = f'{{"file_id": "{file_id}", "attributes": {{"a": {number}}}}}'.encode()

    answer = await client.post(f"{path}/files", content=body, headers={"content-type": "application/json"})
    problem(answer, 422, "invalid_field", "attributes.a", "finite")


@pytest.mark.parametrize(
    ("chunking", "named"),
    [
        pytest.param({"type": "tea"}, ["chunking_strategy.type", "auto or static"], id="type"),
        pytest.param({"type": "static"}, ["chunking_strategy.static", "an object"], id="no-sizes"),
        pytest.param([], ["chunking_strategy", "an object"], id="list"),
        pytest.param(
            {"type": "static", "static": {"max_chunk_size_tokens": 5, "chunk_overlap_tokens": 0}}, ["100"], id="short"
        ),
        pytest.param(
            {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51}},
            ["chunk_overlap_tokens", "0 to 50", "51"],
            id="overlap",
        ),
        pytest.param(
            {"type": "static", "static": {"max_chunk_size_tokens": 1.5, "chunk_overlap_tokens": 0}},
            ["max_chunk_size_tokens", "whole number"],
            id="half-a-token",
        ),
    ],
)
async def test_bad_chunking(client: httpx.AsyncClient, chunking: Any, named: list[str]) -> None:
    body = {"file_id": await _file(client), "chunking_strategy": chunking}
    problem(await client.post(f"{await _store(client)}/files", json=body), 422, "invalid_field", *named)


async def test_automatic_chunking(client: httpx.AsyncClient) -> None:
    """Also where a client says null for it."""
    path, file_id = await _store(client), await _file(client)
    for chunking in ({"type": "auto"}, None):
        answer = await client.post(f"{path}/files", json={"file_id": file_id, "chunking_strategy": chunking})

        assert 254 == answer.json()["chunking_strategy"]["static"]["max_chunk_size_tokens"]


async def test_the_text_of_a_file(client: httpx.AsyncClient) -> None:
    """OpenAI's objects of type text, with where each stands."""
    file_id = await _file(client)
    answer = await client.get(f"{await _store(client, file_ids=[file_id])}/files/{file_id}/content")

    require_schema(FileContentAnswer, answer.json())
    assert [
        {"type": "text", "text": "Total 1.284", "index": 0, "start": 0, "end": 11, "pages": [1, 2]},
        {"type": "text", "text": "plain text", "index": 1, "start": 20, "end": 30, "pages": []},
    ] == answer.json()["data"]


async def test_removing_a_file(client: httpx.AsyncClient) -> None:
    """It leaves the store and stays a file."""
    file_id = await _file(client)
    path = f"{await _store(client, file_ids=[file_id])}/files/{file_id}"
    removed = (await client.delete(path)).json()

    assert {"id": file_id, "object": "vector_store.file.deleted", "deleted": True} == removed
    for answer in (await client.get(path), await client.get(f"{path}/content"), await client.delete(path)):
        problem(answer, 404, "not_found")


async def test_batches(client: httpx.AsyncClient, services: FakeServices) -> None:
    """Files that share their attributes, or have their own; what waits can be cancelled."""
    services.storage.indexes = False
    ids = [await _file(client) for _ in range(3)]
    path = await _store(client)
    shared = await client.post(f"{path}/file_batches", json={"file_ids": ids[:2], "attributes": {"a": 1}})
    own = await client.post(f"{path}/file_batches", json={"files": [{"file_id": ids[2], "attributes": {"b": 2}}]})
    batch = f"{path}/file_batches/{shared.json()['id']}"
    files = (await client.get(f"{batch}/files?order=asc")).json()

    for answer in (shared, own, await client.get(batch)):
        require_schema(FileBatchAnswer, answer.json())
    assert ("vector_store.files_batch", 2, 1) == (
        own.json()["object"], shared.json()["file_counts"]["total"], own.json()["file_counts"]["total"],
    )  # fmt: skip
    assert [{"a": 1}, {"a": 1}] == [file["attributes"] for file in files["data"]]
    [listed] = (await client.get(f"{path}/file_batches/{own.json()['id']}/files")).json()["data"]
    assert {"b": 2} == listed["attributes"]
    assert "cancelled" == (await client.post(f"{batch}/cancel")).json()["status"]
    for absent in (await client.get(f"{path}/file_batches/vsfb_9"), await client.post(f"{path}/file_batches/9/cancel")):
        problem(absent, 404, "not_found")


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        pytest.param({}, 422, ["file_ids or files"], id="nothing"),
        pytest.param({"file_ids": ["a"], "files": [{"file_id": "a"}]}, 422, ["file_ids or files"], id="both"),
        pytest.param({"file_ids": []}, 400, ["file_ids", "empty"], id="empty"),
        pytest.param({"file_ids": ["file-1", "file-1"]}, 422, ["file_ids[1]", "twice"], id="twice"),
        pytest.param({"file_ids": ["file-1", 7]}, 422, ["file_ids[1]"], id="a-number"),
        pytest.param({"files": [{"file_id": "file-1"}, {}]}, 422, ["files[1].file_id"], id="no-id"),
        pytest.param({"files": ["file-1"]}, 422, ["files[0]", "an object"], id="an-id-in-files"),
        pytest.param({"file_ids": ["a"] * 2001}, 413, ["2001", "2000"], id="too-many"),
        pytest.param({"file_ids": [ABSENT]}, 404, [ABSENT], id="absent"),
    ],
)
async def test_bad_batches(client: httpx.AsyncClient, body: Any, status: int, named: list[str]) -> None:
    problem(await client.post(f"{await _store(client)}/file_batches", json=body), status, None, *named)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        pytest.param({"name": 7}, ["name", "a text"], id="name"),
        pytest.param({"name": "n" * 257}, ["name", "256"], id="long-name"),
        pytest.param({"metadata": {"a": 1}}, ["metadata.a", "a text"], id="metadata"),
        pytest.param({"expires_after": {"anchor": "created_at", "days": 1}}, ["last_active_at"], id="anchor"),
        pytest.param({"expires_after": {"anchor": "last_active_at"}}, ["expires_after.days"], id="days"),
        pytest.param({"expires_after": 3}, ["expires_after", "an object"], id="expiry"),
        pytest.param({"file_ids": "file-1"}, ["file_ids", "a list"], id="one-id"),
    ],
)
async def test_bad_stores(client: httpx.AsyncClient, body: Any, named: list[str]) -> None:
    problem(await client.post(STORES, json=body), 422, "invalid_field", *named)


async def test_stores_of_another_key(services: FakeServices) -> None:
    """On every route they are not there."""
    mine, yours = ({"Authorization": f"Bearer {key}"} for key in ("team-a", "team-b"))
    async with connect(services, ApiOptions(api_keys=("team-a", "team-b"))) as client:
        made = await client.post("/v1/files", files={"file": b"a"}, data={"purpose": "batch"}, headers=mine)
        file_id = made.json()["id"]
        store = (await client.post(STORES, json={"file_ids": [file_id]}, headers=mine)).json()["id"]
        await client.post(f"{STORES}/{store}/file_batches", json={"file_ids": [file_id]}, headers=mine)
        requests: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("POST", "", {"name": "a"}),
            ("DELETE", "", None),
            ("POST", "/reembed", None),
            ("GET", "/files", None),
            ("POST", "/files", {"file_id": file_id}),
            ("GET", f"/files/{file_id}", None),
            ("POST", f"/files/{file_id}", {"attributes": {}}),
            ("DELETE", f"/files/{file_id}", None),
            ("GET", f"/files/{file_id}/content", None),
            ("POST", "/file_batches", {"file_ids": [file_id]}),
            ("GET", "/file_batches/vsfb_1", None),
            ("POST", "/file_batches/vsfb_1/cancel", None),
            ("GET", "/file_batches/vsfb_1/files", None),
            ("POST", "/search", {"query": "a"}),
        ]
        for method, path, body in requests:
            answer = await client.request(method, f"{STORES}/{store}{path}", json=body, headers=yours)
            problem(answer, 404, "not_found")
        other = (await client.post(STORES, json={}, headers=yours)).json()["id"]
        problem(
            await client.post(f"{STORES}/{other}/files", json={"file_id": file_id}, headers=yours), 404, "not_found"
        )

        assert [other] == [store["id"] for store in (await client.get(STORES, headers=yours)).json()["data"]]


def test_every_route_of_stores_is_asked_with_another_key(services: FakeServices) -> None:
    """A new route must be put into the test above: this fails until it is."""
    from backend.api.routes import search, store_files, vector_stores

    routes = (*vector_stores.ROUTES, *store_files.ROUTES, *search.ROUTES)

    assert 2 + 15 == len(routes)  # to make a store and to list them; those above


@pytest.mark.parametrize(
    ("reason", "code", "retryable"),
    [
        ("wrong_media_type", "unsupported_file", False),
        ("password_required", "invalid_file", False),
        ("deadline_exceeded", "server_error", True),
        ("internal_error", "server_error", True),
        ("invalid_file", "invalid_file", False),  # as earlier releases stored it, as the next
        ("server_error", "server_error", True),
    ],
)
def test_a_failure_in_openais_words_and_ours(reason: str, code: str, retryable: bool) -> None:
    """OpenAI has three codes; the reason and whether a second try may help are ours."""
    file = store_file("file-1", status="failed", failure=IndexFailure(reason, "so"))

    expected = {"code": code, "message": "so", "reason": reason, "retryable": retryable}
    assert expected == store_file_answer(file)["last_error"]
