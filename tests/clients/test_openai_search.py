"""The official OpenAI client uploads, indexes and searches unchanged; hits point at the paper."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import openai
import orjson
import pytest
from openai.types import VectorStore

from tests.clients.server import MARKS, LiveServer
from tests.end_to_end.invoices import ENGLISH, SCAN_DPI, SPANISH, Rectangle

pytestmark = MARKS
NOTE = "El plazo de entrega es de quince días.\nContacto: Ana Pérez.".encode()
POLL = {"poll_interval_ms": 200}
_LEEWAY = 4.0  # points between the ink of a word and its box


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key="not-needed", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def store(client: openai.OpenAI) -> VectorStore:
    """A store with a Spanish invoice as a PDF, an English one as a scan, and a note."""
    store = client.vector_stores.create(name="Facturas ñ", metadata={"team": "a"})
    invoice = client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id,
        file=("factura “ñ”.pdf", SPANISH.digital),
        attributes={"year": 2026, "paid": False},
        **POLL,
    )
    files = [("scan.png", ENGLISH.png), ("nota.txt", NOTE)]
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=files, **POLL)

    assert ("completed", None) == (invoice.status, invoice.last_error)
    assert ("completed", 2) == (batch.status, batch.file_counts.completed)
    return client.vector_stores.retrieve(store.id)


def test_a_file_in_parts(client: openai.OpenAI) -> None:
    """The client cuts a file itself, and gets it back whole."""
    content = bytes(range(256)) * 5_000
    upload = client.uploads.upload_file_chunked(
        file=content,
        filename="partes ñ.bin",
        bytes=len(content),
        mime_type="application/octet-stream",
        purpose="user_data",
        part_size=500_000,
    )
    cancelled = client.uploads.create(bytes=1, filename="a", mime_type="text/plain", purpose="batch")

    assert ("completed", len(content), "partes ñ.bin") == (upload.status, upload.file.bytes, upload.file.filename)
    assert content == client.files.content(upload.file.id).read()
    assert "cancelled" == client.uploads.cancel(cancelled.id).status
    assert upload.file.id in [file.id for file in client.files.list(purpose="user_data")]
    client.files.delete(upload.file.id)


def test_a_batch(client: openai.OpenAI) -> None:
    """Its answers are those of single requests, and one that cannot be answered is in the error file."""
    bodies = [{"model": "bundled", "input": "La factura vence."}, {"model": "none", "input": "a"}]
    lines = [
        orjson.dumps({"custom_id": str(index), "method": "POST", "url": "/v1/embeddings", "body": body})
        for index, body in enumerate(bodies)
    ]
    file = client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    with pytest.raises(openai.UnprocessableEntityError, match="/v1/embeddings only"):
        client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    for _ in range(600):
        if (batch := client.batches.retrieve(batch.id)).status not in ("validating", "in_progress", "finalizing"):
            break
        time.sleep(0.1)

    assert ("completed", 1, 1) == (batch.status, batch.request_counts.completed, batch.request_counts.failed)
    answer = orjson.loads(client.files.content(str(batch.output_file_id)).content)
    single = client.embeddings.create(**bodies[0], encoding_format="float")  # type: ignore[arg-type]
    answered = answer["response"]["body"]["data"][0]["embedding"]
    assert ("0", pytest.approx(single.data[0].embedding, abs=1e-6)) == (answer["custom_id"], answered)
    assert "model_not_found" in client.files.content(str(batch.error_file_id)).text
    assert batch.id in [listed.id for listed in client.batches.list(limit=1)]
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


def _search(client: openai.OpenAI, store: VectorStore, query: str, **options: Any) -> list[dict[str, Any]]:
    return [hit.model_dump() for hit in client.vector_stores.search(store.id, query=query, **options)]


def _highlighted(hit: dict[str, Any]) -> dict[str, list[float]]:
    """The first box of each highlight by its text."""
    text = hit["content"][0]["text"]
    return {text[mark["start"] : mark["end"]]: mark["boxes"][0]["box"] for mark in hit["highlights"]}


def _require_same_place(expected: Rectangle, box: list[float], unit: float) -> None:
    """The ink lies in the box, which is no larger than the line."""
    left, top, right, bottom = (side / unit for side in box)

    assert expected[0] - left < _LEEWAY * 2
    assert right - expected[2] < _LEEWAY * 2
    assert top - _LEEWAY < expected[1] < expected[3] < bottom + _LEEWAY
    assert bottom - top < 30


def test_store(store: VectorStore) -> None:
    """It is complete, and says whose vectors it has."""
    assert ("completed", 3, 3) == (store.status, store.file_counts.completed, store.file_counts.total)
    assert store.usage_bytes > 0
    assert "intfloat/multilingual-e5-small" == store.model_dump()["encoder"]["name"]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("la factura de 12345678Z", "factura “ñ”.pdf", "12345678Z", 1.0), id="pdf"),
        pytest.param(("wheat flour bags", "scan.png", "flour", SCAN_DPI / 72), id="scan"),
    ],
)
def test_hits_point_at_the_paper(
    client: openai.OpenAI, live_server: LiveServer, store: VectorStore, case: tuple[str, str, str, float]
) -> None:
    """The box of a word of the query is where its ink is, on the page that is drawn as large as the answer says."""
    query, filename, words, unit = case
    [hit, *_] = _search(client, store, query)
    box = next(box for text, box in _highlighted(hit).items() if words in text)
    invoice = SPANISH if unit == 1.0 else ENGLISH
    with live_server.client() as plain:
        page = plain.get(f"/v1/files/{hit['file_id']}/pages/{hit['page']}")

    assert (filename, 1, [1]) == (hit["filename"], hit["page"], hit["pages"])
    _require_same_place(invoice.place(words), box, unit)
    assert page.content.startswith(b"\x89PNG")
    assert [(1, 0)] == [(size["page"], size["rotation"]) for size in hit["page_sizes"]]


def test_plain_text(client: openai.OpenAI, store: VectorStore) -> None:
    """It has no page; offsets are those of its text."""
    [hit, *_] = _search(client, store, "¿Cuál es el plazo de entrega?")

    assert ("nota.txt", None, []) == (hit["filename"], hit["page"], hit["boxes"])
    assert {"plazo", "entrega"} <= _highlighted_words(hit)
    assert hit["content"][0]["text"] == NOTE.decode()[hit["start"] : hit["end"]]


def _highlighted_words(hit: dict[str, Any]) -> set[str]:
    text = hit["content"][0]["text"]
    return {text[mark["start"] : mark["end"]] for mark in hit["highlights"]}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        pytest.param({"key": "year", "type": "eq", "value": 2026}, {"factura “ñ”.pdf"}, id="own-number"),
        pytest.param({"key": "paid", "type": "ne", "value": False}, {"scan.png", "nota.txt"}, id="own-boolean"),
        pytest.param(
            {"key": "nif", "type": "eq", "value": "12345678Z"}, {"factura “ñ”.pdf", "scan.png"}, id="found-entity"
        ),
        pytest.param(
            {
                "type": "and",
                "filters": [
                    {"key": "document_type", "type": "eq", "value": "invoice"},
                    {"key": "invoice_total", "type": "gt", "value": 1000},
                    {"key": "language", "type": "in", "value": ["es", "ca"]},
                ],
            },
            {"factura “ñ”.pdf"},
            id="found-fields",
        ),
    ],
)
def test_filters(client: openai.OpenAI, store: VectorStore, filters: Any, expected: set[str]) -> None:
    """On the caller's attributes and on those found in the documents; hits carry the caller's own alone."""
    hits = _search(client, store, "total", filters=filters, max_num_results=50)

    assert expected == {hit["filename"] for hit in hits}
    assert all(hit["attributes"] in ({}, {"year": 2026, "paid": False}) for hit in hits)


def test_unknown_attribute(client: openai.OpenAI, store: VectorStore) -> None:
    """No hits, and a warning with the names there are."""
    page = client.vector_stores.search(store.id, query="total", filters={"key": "yaer", "type": "eq", "value": 2026})

    assert [] == page.data
    assert "yaer" in page.model_dump()["warnings"][0]


def test_ranking_options(client: openai.OpenAI, store: VectorStore) -> None:
    """Vectors or words alone; a threshold leaves weak hits out."""
    words_alone = {"hybrid_search": {"embedding_weight": 0, "text_weight": 1}}
    by_words = _search(client, store, "harina", extra_body={"ranking_options": words_alone})
    strong = _search(client, store, "harina", ranking_options={"ranker": "none", "score_threshold": 0.9})

    assert [("factura “ñ”.pdf", None)] == [(hit["filename"], hit["scores"]["vector"]) for hit in by_words]
    assert all(hit["score"] >= 0.9 for hit in strong)


def test_lists(client: openai.OpenAI, store: VectorStore) -> None:
    """Iterating follows the cursors."""
    in_store = [file.id for file in client.vector_stores.files.list(store.id, limit=1, order="asc")]
    back = [file.id for file in client.vector_stores.files.list(store.id, limit=2)]
    stores = [found.id for found in client.vector_stores.list(limit=1)]
    files = [file.id for file in client.files.list(limit=1, purpose="assistants")]

    assert 3 == len(in_store)
    assert in_store == back[::-1]
    assert store.id in stores
    assert set(in_store) <= set(files)


def test_files(client: openai.OpenAI) -> None:
    """Upload, wait, read back, expire, delete."""
    expiry = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(file=("契約.txt", NOTE), purpose="user_data", expires_after=expiry)  # type: ignore[arg-type]

    assert "processed" == client.files.wait_for_processing(file.id).status
    assert ("契約.txt", len(NOTE), 3600) == (file.filename, file.bytes, (file.expires_at or 0) - file.created_at)
    assert NOTE == client.files.content(file.id).read()
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError, match=file.id):
        client.files.retrieve(file.id)


def test_text_and_attributes_of_a_file(client: openai.OpenAI, store: VectorStore) -> None:
    """The text chunk by chunk; attributes change without indexing anew."""
    file = next(
        file for file in client.vector_stores.files.list(store.id) if file.model_dump()["filename"] == "nota.txt"
    )
    text = "".join(part.text or "" for part in client.vector_stores.files.content(file.id, vector_store_id=store.id))
    changed = client.vector_stores.files.update(file.id, vector_store_id=store.id, attributes={"kind": "note"})
    hits = _search(client, store, "plazo", filters={"key": "kind", "type": "eq", "value": "note"})

    assert "plazo de entrega" in text
    assert {"kind": "note"} == changed.attributes
    assert ["nota.txt"] == [hit["filename"] for hit in hits]
    client.vector_stores.files.update(file.id, vector_store_id=store.id, attributes={})


def test_a_file_that_cannot_be_read(client: openai.OpenAI) -> None:
    """It fails with the reason; the store goes on. It leaves with the store."""
    store = client.vector_stores.create(name="broken")
    files = [("a.pdf", b"%PDF-1.7 nothing"), ("b.txt", NOTE)]
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=files, **POLL)
    [failed] = client.vector_stores.files.list(store.id, filter="failed")

    assert (1, 1) == (batch.file_counts.failed, batch.file_counts.completed)
    assert "invalid_file" == failed.last_error.code
    assert ["b.txt"] == [hit["filename"] for hit in _search(client, store, "plazo")]
    assert client.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.search(store.id, query="plazo")


def test_errors(client: openai.OpenAI, store: VectorStore) -> None:
    """The client raises its own classes with our messages."""
    with pytest.raises(openai.UnprocessableEntityError, match=r"filters\.type: must be one of eq, ne"):
        client.vector_stores.search(store.id, query="a", filters={"key": "a", "type": "like", "value": 1})  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="query: must not be empty"):
        client.vector_stores.search(store.id, query="")
    with pytest.raises(openai.NotFoundError, match="file-none"):
        client.vector_stores.files.create(store.id, file_id="file-none")


async def test_async(live_server: LiveServer) -> None:
    """The async client, several stores at once."""

    async def found(client: openai.AsyncOpenAI, word: str) -> list[str]:
        store = await client.vector_stores.create(name=word)
        file = (f"{word}.txt", f"Este texto trata de {word}.".encode())
        await client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=file, **POLL)
        hits = await client.vector_stores.search(store.id, query=word)
        await client.vector_stores.delete(store.id)
        return [hit.filename for hit in hits.data]

    words = ["barcos", "trenes", "aviones"]
    async with openai.AsyncOpenAI(base_url=f"{live_server.url}/v1", api_key="not-needed", max_retries=0) as client:
        names = await asyncio.gather(*(found(client, word) for word in words))

    assert [[f"{word}.txt"] for word in words] == names
