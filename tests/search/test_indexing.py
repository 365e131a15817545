"""Files of vector stores are read, cut, embedded and stored; faults end one attempt, and lose nothing."""

import asyncio
import logging
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from backend.errors import (
    InferenceFailed,
    NotInstalled,
    PasswordRequired,
    StorageCorrupt,
    TooLarge,
    Unavailable,
    UnreadableFile,
    WrongMediaType,
)
from backend.lanes.cache.store import Enter, cached_for, share_with_all
from backend.search.document_chunks import PASSAGE, identity_of
from backend.search.filters import Comparison, Compound
from backend.search.limits import SearchLimits
from backend.search.records import Chunking
from backend.search.stored_documents import StoredDocuments
from backend.search.vector_stores import NewFile, index_warnings
from tests.documents.conftest import DocumentsFixture
from tests.documents.test_service import DIGITAL
from tests.fakes import TEST_TIMEOUT_S
from tests.search.conftest import Open
from tests.search.samples import stored, wire_answer
from tests.search.search_stack import DOCUMENT, OTHER, OWNER, Paid, ScriptedDocuments, SearchStack, open_stack
from tests.text.service_stack import FailingVectorEngine, GatedVectorEngine

PROSE = "\n\n".join(
    f"La factura número {number} se pagó en marzo. El importe fue de {number},50 euros." for number in range(60)
)


async def test_a_text_is_indexed(search: SearchStack) -> None:
    """Its chunks are stretches of the text, with the vectors that passages have."""
    search.indexer()
    store = await search.store()

    file = await search.ended(store.id, file_id := await search.add(store.id, PROSE.encode()))

    chunks = [chunk async for chunk in search.stores.chunks(OWNER, store.id, file_id)]
    model = search.stack.catalog.embedding()
    embedded = await search.stack.service.embed([chunk.text for chunk in chunks], PASSAGE)
    kept = await search.stores.find(OWNER, store.id)
    nearest = [(await search.storage.nearest(kept, vector, None, 1))[0] for vector in embedded.vectors]
    await search.settled()
    assert ("completed", "es", ("es",)) == (file.status, file.language, file.found["language"])
    assert len(chunks) > 3
    assert all(PROSE[chunk.start : chunk.end] == chunk.text and chunk.tokens <= 254 for chunk in chunks)
    assert [chunk.id for chunk in chunks] == [hit.chunk_id for hit in nearest]
    assert [1.0] * len(chunks) == pytest.approx([hit.score for hit in nearest], abs=0.02)
    assert identity_of(model) == kept.encoder
    assert {"completed": 1} == {status: count for status, count in kept.counts.items() if count}
    assert 1 == search.stack.metric("indexed_files_total", outcome="completed")
    assert len(chunks) == search.stack.metric("indexed_chunks_total")


async def test_a_document_is_indexed_with_its_words_and_facts(documents: DocumentsFixture, tmp_path: Any) -> None:
    """Words have pages and boxes; what it says can be filtered by."""
    search = await open_stack(documents.stack, tmp_path, SearchLimits())
    search.documents = documents.service
    search.indexer()
    store = await search.store()
    where = Compound(
        "and",
        (
            Comparison("nif", "eq", "A58818501"),
            Comparison("amount", "gt", 1000.0),
            Comparison("date", "gte", "2024-03-01"),
        ),
    )

    file = await search.ended(store.id, file_id := await search.add(store.id, DIGITAL, "b.pdf"))

    [chunk] = [chunk async for chunk in search.stores.chunks(OWNER, store.id, file_id)]
    vector = (await documents.stack.service.embed([chunk.text], PASSAGE)).vectors[0]
    kept = await search.stores.find(OWNER, store.id)
    hits = [len(await search.storage.nearest(kept, vector, one, 5)) for one in (where, Comparison("amount", "lt", 9.0))]
    await search.close()
    assert "completed" == file.status
    assert [1, 2] == [page.number for page in file.pages]
    assert {1, 2} == {word.page for word in chunk.words}
    assert chunk.text.split() == [chunk.text[word.start : word.end] for word in chunk.words]
    assert (2.0,) == file.found["pages"]
    assert ("ES9121000418450200051332",) == file.found["iban"]
    assert [1, 0] == hits


FAULTS = [
    pytest.param(WrongMediaType("file: of no kind"), "wrong_media_type", "of no kind", id="type"),
    pytest.param(UnreadableFile("file: cut off"), "unreadable_file", "cut off", id="broken"),
    pytest.param(TooLarge("pages", 300, 200, "LIMIT_PAGES"), "too_large", "LIMIT_PAGES", id="over-a-limit"),
    pytest.param(PasswordRequired(), "password_required", "encrypted", id="encrypted"),
    pytest.param(InferenceFailed("page 1: not finite"), "inference_failed", "not finite", id="ours"),
    pytest.param(RuntimeError("a secret"), "internal_error", "log tells why", id="unexpected"),
]


@pytest.mark.parametrize(("error", "code", "words"), FAULTS)
async def test_a_file_fails_with_its_reason(
    search: SearchStack, error: Exception, code: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And the store goes on with the next one."""
    search.documents = ScriptedDocuments([error])
    search.indexer()
    store = await search.store()

    with caplog.at_level(logging.CRITICAL):
        failed = await search.ended(store.id, await search.add(store.id, DOCUMENT))
        good = await search.ended(store.id, await search.add(store.id))
        await search.settled()

    assert ("failed", code) == (failed.status, failed.failure.code)
    assert words in failed.failure.message
    assert "secret" not in failed.failure.message
    assert "completed" == good.status
    assert 1 == search.stack.metric("indexed_files_total", outcome="failed")


async def test_a_locked_document_is_indexed_as_it_was_read(search: SearchStack) -> None:
    """Nobody keeps its password; what was read with it was kept."""
    search.documents = ScriptedDocuments([PasswordRequired()])
    search.indexer()
    with stored(DOCUMENT) as content:
        document = await StoredDocuments(search.storage, search.files).add(OWNER, content, "a.pdf", wire_answer())
    store = await search.store()
    await search.stores.add_files(OWNER, store.id, [NewFile(document.id)])

    file = await search.ended(store.id, document.id)

    assert ("completed", [1, 2]) == (file.status, [page.number for page in file.pages])
    [chunk] = [chunk async for chunk in search.stores.chunks(OWNER, store.id, document.id)]
    assert ["FACTURA", "FACTURA"] == chunk.text.split()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(bytes(range(256)) * 20, "wrong_media_type", id="binary"),
        pytest.param(b"{\\rtf1 text}", "wrong_media_type", id="rtf"),
        pytest.param(b"", "unreadable_file", id="empty"),
    ],
)
async def test_what_is_no_text_fails(search: SearchStack, content: bytes, code: str) -> None:
    search.indexer()
    store = await search.store()

    failed = await search.ended(store.id, await search.add(store.id, content))

    assert code == failed.failure.code


async def test_an_engine_that_fails_costs_its_file(open_search: Open) -> None:
    search = await open_search(FailingVectorEngine())
    search.indexer()
    store = await search.store()

    file = await search.ended(store.id, await search.add(store.id))

    assert ("failed", "inference_failed") == (file.status, file.failure.code)


@pytest.mark.parametrize("way", ["removed", "file deleted", "store deleted", "batch cancelled"])
async def test_what_is_taken_away_is_not_worked_on(search: SearchStack, way: str) -> None:
    """Reading ends as soon as the claim is looked at again."""
    search.documents = ScriptedDocuments(gate=asyncio.Event())
    search.indexer()
    store = await search.store()
    file_id = await search.upload(DOCUMENT)
    batch = await search.stores.add_batch(OWNER, store.id, [NewFile(file_id)])
    await asyncio.wait_for(search.documents.entered.wait(), TEST_TIMEOUT_S)

    match way:
        case "removed":
            await search.stores.remove_file(OWNER, store.id, file_id)
        case "file deleted":
            await search.files.delete(OWNER, file_id)
        case "store deleted":
            await search.stores.delete(OWNER, store.id)
        case _:
            batch = await search.stores.cancel_batch(OWNER, store.id, batch.id)
    search.documents.tell_page()

    await asyncio.wait_for(search.documents.cancelled.wait(), TEST_TIMEOUT_S)
    assert 0 == search.storage.calls["finish"] + search.storage.calls["fail"]
    assert way != "batch cancelled" or batch.status == "cancelled"


async def test_progress_is_seen(search: SearchStack) -> None:
    search.documents = ScriptedDocuments(gate=asyncio.Event())
    search.indexer()
    store = await search.store()
    file_id = await search.add(store.id, DOCUMENT)

    await search.storage.when("renew")

    file = await search.stores.file(OWNER, store.id, file_id)
    assert ("in_progress", "reading", 1, 2) == (file.status, *file_progress(file))


def file_progress(file: Any) -> tuple[Any, ...]:
    return file.progress.stage, file.progress.done, file.progress.total


async def test_draining_gives_the_file_back(search: SearchStack) -> None:
    """Another worker takes it at once, and the attempt does not count."""
    search.documents = ScriptedDocuments(gate=asyncio.Event())
    first = search.indexer()
    store = await search.store()
    file_id = await search.add(store.id, DOCUMENT)
    await asyncio.wait_for(search.documents.entered.wait(), TEST_TIMEOUT_S)

    await asyncio.wait_for(first.close(), TEST_TIMEOUT_S)

    claim = await search.storage.claim(identity_of(search.stack.catalog.embedding()), 30.0)
    assert (file_id, 1) == (claim.file.file_id, claim.attempts)
    assert search.documents.cancelled.is_set()
    assert first.degraded()


async def test_a_file_whose_worker_dies_again_and_again_is_given_up(search: SearchStack) -> None:
    """Claims that ran out count."""
    store = await search.store()
    file_id = await search.add(store.id)
    encoder = identity_of(search.stack.catalog.embedding())
    for _ in range(3):
        assert await search.storage.claim(encoder, 0.0) is not None

    search.indexer()
    file = await search.ended(store.id, file_id)

    assert "inference_failed" == file.failure.code
    assert "3 times" in file.failure.message


async def test_two_workers_index_each_file_once(search: SearchStack) -> None:
    workers = [search.indexer(workers=2), search.indexer(workers=2)]
    store = await search.store()

    file_ids = [await search.add(store.id, f"Texto número {number}.".encode()) for number in range(12)]

    assert Counter(completed=12) == Counter([(await search.ended(store.id, file_id)).status for file_id in file_ids])
    assert not any(worker.degraded() for worker in workers)
    await asyncio.gather(*(worker.close() for worker in workers))  # a file is seen as completed before its call returns
    assert 12 == search.storage.calls["finish"] == search.stack.metric("indexed_files_total", outcome="completed")


async def test_small_files_are_worked_on_side_by_side(search: SearchStack) -> None:
    """One worker has several; a large one is taken alone, and nothing behind it is claimed meanwhile."""
    search.documents = ScriptedDocuments(gate=asyncio.Event())
    indexer = search.indexer()
    store = await search.store()
    small = [await search.add(store.id, DOCUMENT + str(number).encode()) for number in range(3)]
    await search.storage.when("content", 3)
    assert 3 == indexer.running

    large = await search.add(store.id, DOCUMENT + bytes(70_000))
    behind = await search.add(store.id, DOCUMENT + b"behind")
    await search.storage.when("content", 4)
    assert 4 == indexer.running

    search.documents.gate.set()
    ended = [await search.ended(store.id, file_id) for file_id in (*small, large, behind)]
    assert ["failed"] * 5 == [file.status for file in ended]  # scripted documents are of no kind


async def test_prose_has_names_of_patterns_only(search: SearchStack) -> None:
    search.indexer()
    store = await search.store()

    prose = await search.ended(store.id, await search.add(store.id, b"Ana Ruiz came on 3 March 2024."))

    assert "person" not in prose.found
    assert ("2024-03-03",) == prose.found["date"]


@pytest.mark.parametrize("call", ["content", "usage", "finish"])
async def test_a_storage_that_is_away_for_a_moment_loses_nothing(search: SearchStack, call: str) -> None:
    """The work is not done again."""
    store = await search.store()
    file_id = await search.add(store.id)
    search.storage.errors[call] = [Unavailable("away"), Unavailable("away")]

    search.indexer()
    file = await search.ended(store.id, file_id)

    assert "completed" == file.status
    assert 1 == len(search.stack.computed)


async def test_a_full_disk_keeps_the_file_waiting(search: SearchStack) -> None:
    """It is told, and indexed once there is room."""
    store = await search.store()
    file_id = await search.add(store.id)
    search.storage.errors["finish"] = [Unavailable("the disk is full") for _ in range(8)]

    indexer = search.indexer()
    await search.storage.when("release")
    told = indexer.degraded()
    file = await search.ended(store.id, file_id)

    assert "the disk is full" in told[0]
    assert "completed" == file.status


@pytest.mark.parametrize("error", [Unavailable("away"), StorageCorrupt("broken")])
async def test_a_storage_that_fails_at_the_claim_is_told(search: SearchStack, error: Exception) -> None:
    """Until it answers again; no task dies of it."""
    search.storage.errors["claim"] = [error] * 3
    indexer = search.indexer()
    await search.storage.when("claim failed")
    told = indexer.degraded()

    store = await search.store()
    file = await search.ended(store.id, await search.add(store.id))

    assert str(error) in told[0]
    assert not indexer.degraded()
    assert "completed" == file.status
    assert 0 == search.stack.metric("background_failures_total", task="index_files")


@pytest.mark.parametrize("call", ["content", "usage", "finish"])
async def test_a_file_that_is_broken_in_its_storage_fails_alone(search: SearchStack, call: str) -> None:
    """It is not claimed again and again before all others."""
    store = await search.store()
    file_ids = [await search.add(store.id, text) for text in (b"Hola.", b"Adios.")]
    search.storage.errors[call] = [StorageCorrupt("/var/lib/x: broken")]
    search.indexer()

    ended = sorted([await search.ended(store.id, file_id) for file_id in file_ids], key=lambda file: file.status)

    assert ["completed", "failed"] == [file.status for file in ended]
    failure = ended[1].failure
    assert "upload it again" in failure.message
    assert "/var" not in failure.message


async def test_a_lost_device_leaves_files_to_others(search: SearchStack) -> None:
    search.documents = ScriptedDocuments([Unavailable("the device is lost", kind="for_good")])
    indexer = search.indexer()
    store = await search.store()
    await search.add(store.id, DOCUMENT)

    await search.storage.when("release")

    assert "the device is lost" in indexer.degraded()[0]
    assert await search.storage.claim(identity_of(search.stack.catalog.embedding()), 30.0) is not None


async def test_a_file_that_cannot_be_read_here_fails_alone(search: SearchStack) -> None:
    """A recording where there is no speech model: the next file is indexed."""
    search.documents = ScriptedDocuments([NotInstalled("no speech model: install it")])
    indexer = search.indexer()
    store = await search.store()

    failed = await search.ended(store.id, await search.add(store.id, DOCUMENT))
    other = await search.ended(store.id, await search.add(store.id, PROSE.encode()))

    assert ("not_installed", "no speech model: install it") == (failed.failure.code, failed.failure.message)
    assert ("completed", ()) == (other.status, tuple(indexer.degraded()))


async def test_a_file_that_takes_too_long_fails(search: SearchStack) -> None:
    search.documents = ScriptedDocuments(gate=asyncio.Event())
    search.indexer(limit_s=0.05)
    store = await search.store()

    file = await search.ended(store.id, await search.add(store.id, DOCUMENT))

    assert "LIMIT_JOB_S" in file.failure.message


async def test_chunks_over_the_limit_fail_the_file(open_search: Open) -> None:
    search = await open_search(limits=SearchLimits(stored_chunks=2))
    search.indexer()
    store = await search.store()

    file = await search.ended(store.id, await search.add(store.id, PROSE.encode()))

    assert "too_large" == file.failure.code
    assert "LIMIT_STORED_CHUNKS" in file.failure.message


async def test_pages_and_tokens_are_charged(search: SearchStack) -> None:
    search.meter = paid = Paid()
    search.documents = ScriptedDocuments([UnreadableFile("cut off")])
    search.indexer()
    store = await search.store()
    await search.ended(store.id, await search.add(store.id, DOCUMENT))
    await search.ended(store.id, await search.add(store.id))

    assert 1 == paid.units["pages"]
    assert paid.units["tokens"] >= sum(map(len, search.stack.computed))


async def test_what_a_lane_began_for_a_file_that_is_taken_away_is_charged(open_search: Open) -> None:
    """Else whoever removes each file before it is indexed computes for nothing."""
    engine = GatedVectorEngine()
    search = await open_search(engine)
    search.meter = Paid()
    search.indexer(lease_s=0.3)
    store = await search.store()
    file_id = await search.add(store.id)
    await search.stack.entered()
    await search.stores.remove_file(OWNER, store.id, file_id)
    tokens = await search.meter.next_tokens()
    engine.gate.set()

    assert tokens == sum(map(len, search.stack.computed))


async def test_chunks_as_the_client_asks(search: SearchStack) -> None:
    """Static sizes hold, and neighbours overlap."""
    search.indexer()
    store = await search.store()
    chunking = Chunking(100, 40, is_auto=False)

    file_id = await search.add(store.id, PROSE.encode(), chunking=chunking)
    await search.ended(store.id, file_id)

    chunks = [chunk async for chunk in search.stores.chunks(OWNER, store.id, file_id)]
    assert all(chunk.tokens <= 100 for chunk in chunks)
    assert all(later.start < earlier.end for earlier, later in pairwise(chunks))
    assert np.all(np.diff([chunk.start for chunk in chunks]) > 0)


@pytest.mark.parametrize(("content", "chunks"), [(b" \n\t ", 0), (b"Hola mundo.", 1)], ids=["blank", "text"])
async def test_a_blank_file_says_that_nothing_was_indexed(search: SearchStack, content: bytes, chunks: int) -> None:
    """It is completed, as nothing is wrong with it; others have no warning."""
    search.indexer()
    store = await search.store()

    file = await search.ended(store.id, await search.add(store.id, content))

    assert ("completed", chunks) == (file.status, file.chunks)
    assert [True] * (not chunks) == ["no text" in warning for warning in index_warnings(file)]


async def test_added_again_it_is_indexed_anew(search: SearchStack) -> None:
    search.indexer()
    store = await search.store()
    file_id = await search.add(store.id, attributes={"year": 2023})
    await search.ended(store.id, file_id)

    await search.stores.add_files(OWNER, store.id, [NewFile(file_id, {"year": 2024})])
    file = await search.ended(store.id, file_id)
    await search.settled()

    assert {"year": 2024.0} == dict(file.attributes)
    assert 2 == search.storage.calls["finish"]
    assert 1 == (await search.stores.find(OWNER, store.id)).chunks


@pytest.mark.parametrize(
    ("enter", "expected"), [(cached_for, [True, True, False]), (share_with_all, [True, False, False])]
)
async def test_whose_cache_a_file_uses(search: SearchStack, enter: Enter, expected: list[bool]) -> None:
    """With CACHE_SCOPE=key its owner's alone: what another has indexed is computed again."""
    search.enter = enter
    search.indexer()
    computed = [len(search.stack.computed)]
    for owner in (OWNER, OTHER, OWNER):
        await search.indexed(owner, b"La factura se pag\xc3\xb3 en marzo.")
        computed.append(len(search.stack.computed))

    assert expected == [after > before for before, after in pairwise(computed)]
