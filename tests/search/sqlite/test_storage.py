"""What only the embedded storage promises: crashes, broken files, a full disk, several processes, little memory."""

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from backend.errors import SetupError, StorageCorrupt, TooLarge, Unavailable
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile
from backend.models import device_matrix
from backend.models.device_matrix import DeviceMatrix
from backend.search.filters import Comparison
from backend.search.keywords import TERMS_VERSION
from backend.search.records import KeywordQuery, ListRange
from backend.search.sqlite import pending_deletes, postings, store_files
from backend.search.sqlite.contents import Contents
from backend.search.sqlite.database import Database, Transaction
from backend.search.sqlite.schema import STEPS, VERSION
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.sqlite.vector_matrix import DeviceVectors, VectorMatrix
from tests.fakes import TEST_TIMEOUT_S
from tests.search.document_contract import Documents
from tests.search.samples import (
    ENCODER,
    LEASE_S,
    OTHER_ENCODER,
    WIDTH,
    add_indexed,
    current,
    file_record,
    indexed,
    running,
    store_file,
    unit_vectors,
    upload,
    vector_store,
)
from tests.search.storage_contract import TestSearch as ContractOfSearch

ALPHA = KeywordQuery(("alpha",))
Reopen = Callable[[], Awaitable[SqliteStorage]]
ROOT = Path(__file__).resolve().parents[3]


class TestSegments:
    """Terms in segments: the same answers as from new chunks."""

    @pytest.fixture(autouse=True)
    def _small_segments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(postings, "FRESH_CHUNKS", 3)
        monkeypatch.setattr(postings, "FAN_IN", 2)

    async def test_matching_equals_brute_force(self, storage: SqliteStorage, reopen: Reopen):
        """While segments are made, joined, and made anew without removed chunks."""
        await ContractOfSearch().test_matching_equals_brute_force(storage, reopen)

    async def test_prefixes(self, storage: SqliteStorage):
        """A beginning is looked up in every segment."""
        await ContractOfSearch().test_prefixes(storage)

    async def test_searches_while_files_are_added(self, storage: SqliteStorage):
        """No search falls between the new chunks and the segment that they move to."""
        await ContractOfSearch().test_searches_while_files_are_added(storage)

    @pytest.mark.parametrize("way", ["detached", "deleted", "attached anew"])
    async def test_words_of_removed_files_do_not_stay(self, storage: SqliteStorage, tmp_path: Path, way: str):
        """Not one, of one file among many: neither in a row, nor in a free page, nor in the write-ahead log."""
        await storage.add_store(vector_store())
        for number in range(8):
            await add_indexed(storage, f"file-{number}", ["alpha", f"alpha secret{number} {_tax_id(number)}"])
        if way == "deleted":
            await storage.delete_file("ana", "file-5")
        elif way == "detached":
            await storage.detach("vs_1", "file-5")
        else:
            await storage.attach([store_file("file-5")])
        await storage.swept()

        terms = {term for (term,) in _rows(tmp_path, "SELECT term FROM postings UNION SELECT terms FROM fresh_terms")}
        on_disk = b"".join(path.read_bytes() for path in (tmp_path / "search").glob("search.db*"))
        assert {"alpha", *(f"secret{number}" for number in range(8) if number != 5)} <= {
            word for term in terms for word in term.split("\n")
        }
        assert not any("secret5" in term for term in terms)
        assert _tax_id(4).encode() in on_disk
        assert _tax_id(5).encode() not in on_disk
        assert 14 == len(await storage.matching(await current(storage), ALPHA, None, 100))

    async def test_files_that_go_while_a_segment_is_rewritten(
        self, storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Their words go as well, also those in terms that had been rewritten by then."""
        monkeypatch.setattr(pending_deletes, "ROWS_AT_ONCE", 1)
        await storage.add_store(vector_store())
        for number in range(8):
            await add_indexed(storage, f"file-{number}", ["alpha", f"alpha secret{number}"])
        sweep, slices = pending_deletes.sweep, 0

        def counted(connection: sqlite3.Connection) -> bool:
            nonlocal slices
            slices += 1
            if slices == 6:  # a segment is half rewritten
                store_files.detach(connection, "vs_1", "file-0")
            return sweep(connection)

        monkeypatch.setattr(pending_deletes, "sweep", counted)
        await storage.detach("vs_1", "file-1")
        await storage.swept()

        kept = _rows(tmp_path, "SELECT term FROM postings UNION SELECT terms FROM fresh_terms")
        assert not {"secret0", "secret1"} & {word for (term,) in kept for word in term.split("\n")}

    async def test_broken_postings_are_made_anew(self, storage: SqliteStorage, tmp_path: Path):
        """From the texts, and the search that found them broken is answered."""
        await storage.add_store(vector_store())
        for number in range(4):
            await add_indexed(storage, f"file-{number}", ["alpha beta"])
        before = await storage.matching(await current(storage), ALPHA, None, 10)
        _execute(tmp_path, "UPDATE postings SET packed = zeroblob(10)")

        assert before == await storage.matching(await current(storage), ALPHA, None, 10)
        assert 4 == len(before)

    async def test_postings_of_another_release_are_made_anew(
        self, storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Its stems may be others: a search would miss words. Once, however many search."""
        rebuilt: list[str] = []
        begin = postings.begin_rebuild

        def begin_rebuild(connection: sqlite3.Connection, store_id: str) -> int | None:
            rebuilt.append(store_id)
            return begin(connection, store_id)

        monkeypatch.setattr(postings, "begin_rebuild", begin_rebuild)
        await storage.add_store(vector_store())
        for number in range(4):
            await add_indexed(storage, f"file-{number}", ["alpha beta"])
        _execute(tmp_path, "UPDATE stores SET terms = '0'")
        _execute(tmp_path, "DELETE FROM postings")
        _execute(tmp_path, "UPDATE fresh_terms SET terms = 'alphabet'")

        store = await current(storage)
        hits = await asyncio.gather(*(storage.matching(store, ALPHA, None, 10) for _ in range(4)))

        assert ["vs_1"] == rebuilt
        assert [4] * 4 == [len(found) for found in hits]
        assert [(TERMS_VERSION,)] == _rows(tmp_path, "SELECT terms FROM stores")


class TestDeletion:
    """What is deleted is gone at once; its rows leave in slices, between which others write."""

    @pytest.fixture(autouse=True)
    def _small_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pending_deletes, "ROWS_AT_ONCE", 10)

    @pytest.fixture
    def unswept(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
        """As if the process ended between a deletion and its slices; undone when called."""
        with monkeypatch.context() as patch:
            patch.setattr(pending_deletes, "sweep", lambda _: False)
            yield patch.undo

    @pytest.mark.parametrize("memory_bytes", [0, 2**30])
    async def test_nothing_that_is_left_is_found(
        self, tmp_path: Path, unswept: Callable[[], None], memory_bytes: int, monkeypatch: pytest.MonkeyPatch
    ):
        """Rankings are exact before a slice was removed, in memory and from the disk."""
        monkeypatch.setattr(postings, "FRESH_CHUNKS", 3)
        for check in ("test_nearest_equals_brute_force", "test_matching_equals_brute_force"):
            opened = [SqliteStorage(SqliteOptions(tmp_path / check, memory_bytes=memory_bytes))]
            await opened[0].start()

            async def reopen(opened: list[SqliteStorage] = opened, check: str = check) -> SqliteStorage:
                await opened[-1].close()
                opened.append(SqliteStorage(SqliteOptions(tmp_path / check, memory_bytes=memory_bytes)))
                await opened[-1].start()
                return opened[-1]

            await getattr(ContractOfSearch(), check)(opened[0], reopen)
            await opened[-1].close()
            connection = sqlite3.connect(tmp_path / check / "search.db")
            (left,) = connection.execute("SELECT count(*) FROM pending_deletes").fetchone()
            connection.close()

            assert left > 0

    @pytest.mark.parametrize("what", ["file of a store", "file", "store", "encoder"])
    async def test_the_next_start_removes_what_a_crash_left(
        self, storage: SqliteStorage, reopen: Reopen, unswept: Callable[[], None], tmp_path: Path, what: str
    ):
        """Nobody sees a half of it meanwhile, and its ids are free."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", [f"alpha {n}" for n in range(35)], attributes={"a": 1.0})
        await add_indexed(storage, "file-2", ["alpha"])
        if what == "store":
            await upload(storage, "file-3")
            await storage.attach([store_file("file-3")])
            assert await storage.delete_store("ana", "vs_1")
        elif what == "encoder":
            await storage.begin_reembedding("vs_1", OTHER_ENCODER)
            ids = [chunk_id for chunk_id, _ in await storage.unembedded("vs_1", OTHER_ENCODER, 100)]
            vectors = unit_vectors(36, width=OTHER_ENCODER.width)
            await storage.put_vectors("vs_1", OTHER_ENCODER, ids, vectors)
            assert await storage.switch_encoder("vs_1", OTHER_ENCODER)
        else:
            assert await (storage.detach("vs_1", "file-1") if what != "file" else storage.delete_file("ana", "file-1"))
        kept = {"store": (0, 0), "encoder": (36, 36)}.get(what, (1, 1))
        seen = await self._seen(storage)
        rows = _rows(tmp_path, "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM vectors)")
        unswept()
        storage = await reopen()
        await storage.swept()

        assert [(36, 72 if what == "encoder" else 36)] == rows
        assert kept[0] == seen[0]
        assert seen == await self._seen(storage)
        assert [kept] == _rows(tmp_path, "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM vectors)")
        assert [(0, kept[0])] == _rows(
            tmp_path,
            "SELECT (SELECT count(*) FROM pending_deletes) + (SELECT count(*) FROM stores WHERE is_deleted), "
            "(SELECT count(*) FROM fresh_terms)",
        )

    async def test_others_write_in_between(self, storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch):
        """No write of a deletion, or of a rebuild, is larger than a slice."""
        changes: list[int] = []
        write = Database.write

        async def counted(self: Database, work: Callable, *, frees: bool = False) -> object:
            def run(connection: sqlite3.Connection) -> object:
                before = connection.total_changes
                result = work(connection)
                changes.append(connection.total_changes - before)
                return result

            return await write(self, run, frees=frees)

        await storage.add_store(vector_store())
        for number in range(3):
            await add_indexed(storage, f"file-{number}", [f"alpha {n}" for n in range(200)])
        monkeypatch.setattr(Database, "write", counted)
        await storage._write(postings.begin_rebuild, "vs_1")
        assert 600 == len(await storage.matching(await current(storage), ALPHA, None, 1000))
        rebuilding = len(changes)
        await storage.delete_file("ana", "file-0")
        await storage.delete_store("ana", "vs_1")
        await storage.swept()

        assert rebuilding > 2 * 600 / 10
        assert len(changes) - rebuilding > 600 / 10
        assert max(changes) <= 4 * 10

    async def _seen(self, storage: SqliteStorage) -> tuple[int, int, int, int]:
        store = await storage.store("ana", "vs_1")
        usage, waiting = await storage.totals(), await storage.waiting()
        if store is None:
            assert await storage.claim(ENCODER, LEASE_S) is None
            return (usage.chunks, 0, usage.stores, waiting)
        query = unit_vectors(1, width=(store.encoder or ENCODER).width)[0]
        near = len(await storage.nearest(store, query, None, 100))
        assert near == len(await storage.matching(store, ALPHA, None, 100)) == store.chunks
        return (usage.chunks, near, usage.stores, waiting)


async def test_more_values_than_a_query_takes(storage: SqliteStorage):
    """Refused with both numbers, the name counted; the next search goes on."""
    await storage.add_store(vector_store())
    await add_indexed(storage, "file-1", ["alpha"], attributes={"n": 7.0})
    store = await current(storage)
    most = sqlite3.connect(":memory:").getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - 1
    too_many = Comparison("n", "in", tuple(map(float, range(most))))

    with pytest.raises(TooLarge, match=f"{most + 1} is over the limit of {most}"):
        await storage.nearest(store, unit_vectors(1)[0], too_many, 10)
    with pytest.raises(TooLarge):
        await storage.matching(store, ALPHA, too_many, 10)
    where = Comparison("n", "in", tuple(map(float, range(most - 1))))
    assert 1 == len(await storage.nearest(store, unit_vectors(1)[0], where, 10))


class TestMemory:
    @pytest.mark.parametrize("memory_bytes", [0, 5000])
    async def test_stores_over_the_limit(self, tmp_path: Path, memory_bytes: int):
        """Are answered from the disk, with the same hits; nothing stays in memory."""
        async with running(tmp_path / "search", memory_bytes=memory_bytes) as storage:
            for store_id in ("vs_1", "vs_2"):
                await storage.add_store(vector_store(store_id))
                await add_indexed(storage, "file-1", [f"alpha {n}" for n in range(200)], store_id=store_id)
            vectors = unit_vectors(200)
            for store_id in ("vs_1", "vs_2", "vs_1"):
                store = await current(storage, store_id)
                hits = await storage.nearest(store, vectors[7], None, 5)
                chunks = await storage.chunks(store_id, [hit.chunk_id for hit in hits])

                assert np.argsort(-(vectors @ vectors[7]))[:5].tolist() == [chunk.index for chunk in chunks]
                assert 200 == len(await storage.matching(store, ALPHA, None, 1000))
                assert storage.report()["memory_bytes"] <= memory_bytes

    @pytest.mark.parametrize("at_once", [1, 2])
    async def test_room_is_reserved_before_a_store_is_loaded(
        self, tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
    ):
        """All stores together never take more than the limit: not while one is loaded, nor while two are."""
        alive: weakref.WeakSet[VectorMatrix] = weakref.WeakSet()
        most_bytes = 0
        loading, add = threading.Barrier(at_once), VectorMatrix.add

        def watched(self: VectorMatrix, rows: np.ndarray) -> None:
            nonlocal most_bytes
            alive.add(self)
            add(self, rows)
            with suppress(threading.BrokenBarrierError):  # the other one reads from the disk
                loading.wait(0.3)
            most_bytes = max(most_bytes, sum(matrix.memory_bytes + 16 * matrix.rows for matrix in alive))

        limit = 3 * 200 * (WIDTH + 4 + 16) // 2
        async with running(tmp_path / "search", memory_bytes=limit) as storage:
            vectors, stores = unit_vectors(200), []
            for store_id in ("vs_1", "vs_2"):
                await storage.add_store(vector_store(store_id))
                await add_indexed(storage, "file-1", ["alpha"] * 200, store_id=store_id)
                stores.append(await current(storage, store_id))
            monkeypatch.setattr(VectorMatrix, "add", watched)
            if at_once == 2:
                found = await asyncio.gather(*(storage.nearest(store, vectors[7], None, 5) for store in stores))
            else:
                found = [await storage.nearest(store, vectors[7], None, 5) for store in stores]

            assert [5, 5] == [len(hits) for hits in found]
            assert 0 < most_bytes <= limit

    @pytest.mark.parametrize("fault", ["none", "add", "second add", "scan"])
    async def test_a_device_scans_as_the_processor_does(
        self, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
    ):
        """The same hits with any filter; also where it runs out of memory, which is logged once."""
        device = DeviceVectors(partial(_FaultyMatrix, fault), device_matrix.bytes_for, 2**30, least_chunks=0)
        found = {}
        for name, on_device in (("device", device), ("processor", None)):
            async with running(tmp_path / name, device=on_device) as storage:
                await storage.add_store(vector_store())
                queries, where = unit_vectors(4, seed=9), Comparison("n", "gte", 1.0)
                found[name] = []
                for n in range(3):
                    vectors = unit_vectors(150, seed=n)
                    await add_indexed(
                        storage, f"file-{n}", ["alpha"] * 150, vectors=vectors, attributes={"n": float(n)}
                    )
                    store = await current(storage)
                    found[name] += [await storage.nearest(store, query, None, 20) for query in queries]
                    found[name] += [await storage.nearest(store, query, where, 1000) for query in queries]
                report = storage.report()
            if on_device is not None:
                assert report["device_bytes"] == (device_matrix.bytes_for(450, WIDTH) if fault == "none" else 0)

        assert found["processor"] == found["device"]
        told = [record for record in caplog.records if "do not fit the device" in record.getMessage()]
        assert (fault != "none") == len(told)

    async def test_stores_make_room_on_the_device(self, tmp_path: Path):
        """What the device keeps for vectors is never exceeded: the store used longest ago leaves it."""
        block = device_matrix.bytes_for(1, WIDTH)
        device = DeviceVectors(partial(_FaultyMatrix, "none"), device_matrix.bytes_for, 2 * block, least_chunks=2)
        async with running(tmp_path / "search", device=device) as storage:
            held = []
            for number, chunks in enumerate((3, 3, 3, 1)):
                await storage.add_store(vector_store(f"vs_{number}"))
                await add_indexed(storage, f"file-{number}", ["alpha"] * chunks, store_id=f"vs_{number}")
                store = await current(storage, f"vs_{number}")
                assert chunks == len(await storage.nearest(store, unit_vectors(1)[0], None, 5))
                held.append(storage.report()["device_bytes"] // block)

            assert [1, 2, 2, 2] == held

    async def test_only_what_changed_is_read_again(self, storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch):
        """A file that is added costs its own vectors, not the store's."""
        added: list[int] = []
        add = VectorMatrix.add
        monkeypatch.setattr(VectorMatrix, "add", lambda self, rows: (added.append(len(rows)), add(self, rows)))
        await storage.add_store(vector_store())
        for count in (40, 3, 2):
            await add_indexed(storage, f"file-{count}", ["alpha"] * count)
            await storage.nearest(await current(storage), unit_vectors(1)[0], None, 5)
        await storage.detach("vs_1", "file-3")
        await storage.nearest(await current(storage), unit_vectors(1)[0], None, 5)

        assert [40, 3, 2] == added


class _FaultyMatrix(DeviceMatrix):
    """A matrix whose device runs out of memory, as torch tells it."""

    def __init__(self, fault: str, width: int) -> None:
        super().__init__(width, "cpu")
        self._fault = fault

    def add(self, vectors: np.ndarray) -> None:
        is_first = self.rows == 0
        if self._fault == ("add" if is_first else "second add"):
            with self._room():
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 50.00 MiB.")
        super().add(vectors)

    def scan(self, query: np.ndarray, rows: int, threads: Executor) -> np.ndarray:
        if self._fault == "scan":
            with self._room():
                raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        return super().scan(query, rows, threads)


class TestProcesses:
    async def test_a_second_process_reads_and_searches(self, storage: SqliteStorage, tmp_path: Path):
        """It sees what the first one writes, refuses to write, and says who does and what to set."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        async with running(tmp_path / "search") as second:
            assert 1 == len(await second.nearest(await current(second), unit_vectors(1)[0], None, 10))
            await add_indexed(storage, "file-2", ["alpha"])
            await storage.detach("vs_1", "file-1")
            hits = await second.matching(await current(second), ALPHA, None, 10)

            assert ["file-2"] == [chunk.file_id for chunk in await second.chunks("vs_1", [hits[0].chunk_id])]
            assert (True, False) == (storage.report()["writes"], second.report()["writes"])
            for write in (second.add_store(vector_store("vs_2")), upload(second, "file-3"), second.claim(ENCODER, 1.0)):
                with pytest.raises(Unavailable, match=r"another process .* SEARCH_URL=postgresql://") as told:
                    await write

                assert str(os.getpid()) not in str(told.value)
            assert f"process {os.getpid()}" in second.report()["writer"]

    async def test_the_second_takes_over_when_the_first_ends(self, storage: SqliteStorage, tmp_path: Path, reopen):
        """With its next write; what the first one was indexing is indexed again, and the attempt counts."""
        await storage.add_store(vector_store())
        await upload(storage, "file-1")
        await storage.attach([store_file("file-1")])
        assert await storage.claim(ENCODER, LEASE_S) is not None
        async with running(tmp_path / "search") as second:
            await storage.close()
            claim = await second.claim(ENCODER, LEASE_S)

            assert 2 == claim.attempts
            assert second.report()["writes"]

    async def test_after_close(self, storage: SqliteStorage, reopen: Reopen):
        """Calls are refused, not left hanging."""
        await reopen()

        with pytest.raises(Unavailable):
            await storage.stores("ana", ListRange())

    async def test_tables_of_a_newer_release(self, storage: SqliteStorage, tmp_path: Path):
        """Are left alone."""
        await storage.close()
        _execute(tmp_path, f"PRAGMA user_version = {VERSION + 1}")

        with pytest.raises(SetupError, match="newer release"):
            await SqliteStorage(SqliteOptions(tmp_path / "search")).start()
        _execute(tmp_path, f"PRAGMA user_version = {VERSION}")


class TestUpgrade:
    async def test_a_database_of_the_first_release(self, storage: SqliteStorage, tmp_path: Path):
        """Answers as before, with what it has of a re-embedding counted, and takes new files."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        ids = [chunk_id for chunk_id, _ in await storage.unembedded("vs_1", OTHER_ENCODER, 1)]
        await storage.put_vectors("vs_1", OTHER_ENCODER, ids, unit_vectors(1, width=OTHER_ENCODER.width))
        before = await current(storage)
        await storage.close()
        _as_of_the_first_release(tmp_path / "search" / "search.db")
        async with running(tmp_path / "search") as upgraded:
            assert before == await current(upgraded)
            assert 1 == before.reembedding.chunks_done
            assert 2 == len(await upgraded.nearest(before, unit_vectors(1)[0], None, 10))
            await add_indexed(upgraded, "file-2", ["alpha"])
            assert 2 == len(await upgraded.matching(before, ALPHA, None, 10))
            assert await upgraded.delete_store("ana", "vs_1")


class TestCrash:
    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    async def test_kill_while_adding(self, tmp_path: Path, seed: int):
        """Whatever a killed process had acknowledged is there, whole; what it had not is whole or absent."""
        folder, chosen = tmp_path / "search", random.Random(seed)
        acknowledged: list[str] = []
        for _ in range(3):
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
                [sys.executable, "-m", "tests.search.sqlite.adding_process", str(folder)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            acknowledged += [process.stdout.readline().strip() for _ in range(chosen.randint(2, 20))]
            await asyncio.sleep(chosen.random() / 50)  # any moment of the next file
            process.kill()
            acknowledged += process.stdout.read().split()
            process.communicate()
        async with running(folder) as storage:
            files = {file.file_id: file for file in await storage.store_files("vs_1", ListRange(limit=10_000))}
            store = await current(storage)
            hits = await storage.matching(store, ALPHA, None, 10_000)
            near = await storage.nearest(store, unit_vectors(1)[0], None, 10_000)
            names = {line.removesuffix(".") for line in acknowledged if line.endswith(".")}

            assert {"ok"} == {row[0] for row in _rows(tmp_path, "PRAGMA integrity_check")}
            assert [] == _rows(tmp_path, "PRAGMA foreign_key_check")
            assert names <= {name for name, file in files.items() if file.status == "completed"}
            assert {file.status for file in files.values()} <= {"completed", "in_progress"}
            assert all(file.chunks == (5 if file.status == "completed" else 0) for file in files.values())
            assert store.chunks == len(hits) == len(near)
            for name in names:
                content = await storage.content(name)
                content.close()
            stored = {row[0] for row in _rows(tmp_path, "SELECT id FROM files")}
            assert len(stored) == sum(1 for path in (folder / "files").glob("??/*"))

    @pytest.mark.slow
    async def test_kill_while_correcting(self, tmp_path: Path):
        """Whatever was acknowledged of a document is there: file, correction, confirmation, lesson."""
        folder, chosen, acknowledged = tmp_path / "search", random.Random(0), dict[str, int]()
        for _ in range(3):
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
                [sys.executable, "-m", "tests.search.sqlite.correcting_process", str(folder)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
            lines = [process.stdout.readline() for _ in range(chosen.randint(2, 20))]
            await asyncio.sleep(chosen.random() / 50)  # any moment of the next step
            process.kill()
            lines += process.communicate()[0].splitlines()
            acknowledged |= {line.split()[0]: int(line.split()[1][0]) for line in lines if line.strip().endswith(".")}
        async with running(folder) as storage:
            service = Documents(storage).service
            kept = {stored.id: stored async for stored in service.each("ana")}
            taught = {lesson.file_id for lesson in await storage.lessons("ana", ["nif"], limit=1000)}

            assert all(revision <= kept[file_id].revision for file_id, revision in acknowledged.items())
            assert taught == {file_id for file_id, stored in kept.items() if stored.state == "confirmed"}
            assert len(acknowledged) > 3
            for stored in kept.values():
                _, content = await service.original("ana", stored.id)
                content.close()

    @pytest.mark.parametrize("step", ["bytes", "row"])
    async def test_an_upload_that_is_cancelled(self, storage: SqliteStorage, tmp_path: Path, step: str):
        """Is kept whole or not at all: no row without its bytes, no bytes without their row."""
        entered, go_on = threading.Event(), threading.Event()
        with _paused(step, entered, go_on):
            adding = asyncio.create_task(upload(storage, "file-1", b"kept"))
            await asyncio.to_thread(entered.wait, TEST_TIMEOUT_S)
            adding.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await adding
            await storage.waiting()

        rows = await storage.files("ana", ListRange())
        contents = [path.name for path in (tmp_path / "search" / "files").glob("??/*")]
        assert len(rows) == len(contents) == (0 if step == "bytes" else 1)
        for row in rows:
            content = await storage.content(row.id)
            content.close()

    async def test_bytes_without_a_row_are_set_aside_at_the_start(self, storage: SqliteStorage, tmp_path, reopen):
        """Uploads that were cut short are deleted; all other bytes are kept for a week."""
        folder = tmp_path / "search"
        await upload(storage, "file-1", b"kept")
        for name in ("ab" + "0" * 62, "ab" + "1" * 62 + ".part"):
            (folder / "files" / "ab").mkdir(exist_ok=True)
            (folder / "files" / "ab" / name).write_bytes(b"unknown")

        assert b"kept" == await _content(await reopen(), "file-1")
        assert 1 == len(list((folder / "files").glob("??/*")))
        (path,) = (folder / "lost").iterdir()
        assert b"unknown" == path.read_bytes()
        week_ago_s = path.stat().st_mtime - 7 * 86_400 - 1
        os.utime(path, (week_ago_s, week_ago_s))
        await reopen()
        assert [] == list((folder / "lost").iterdir())

    @pytest.mark.parametrize("state", ["missing", "empty", "without tables"])
    async def test_a_database_that_is_gone_beside_uploads(self, storage: SqliteStorage, tmp_path: Path, state: str):
        """The start is refused with what to do, again and again, and no upload is touched."""
        await upload(storage, "file-1", b"kept")
        await storage.close()
        folder = tmp_path / "search"
        (folder / "search.db").rename(tmp_path / "kept.db")
        if state != "missing":
            (folder / "search.db").touch()
        if state == "without tables":
            connection = sqlite3.connect(folder / "search.db")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
        for _ in range(2):
            refused = SqliteStorage(SqliteOptions(folder))
            with pytest.raises(SetupError, match=r"Put search\.db back"):
                await refused.start()
            await refused.close()
        (tmp_path / "kept.db").replace(folder / "search.db")
        async with running(folder) as again:
            assert b"kept" == await _content(again, "file-1")

    async def test_an_older_database(self, storage: SqliteStorage, tmp_path: Path, reopen):
        """Uploads that it does not know are set aside, and are there again with the newer one; deleted ones are not."""
        folder = tmp_path / "search"
        for number in range(2):
            await upload(storage, f"file-{number}", f"bytes {number}".encode())
        older, newer = sqlite3.connect(tmp_path / "older.db"), sqlite3.connect(folder / "search.db")
        newer.backup(older)
        await upload(storage, "file-2", b"bytes 2")
        await storage.delete_file("ana", "file-0")
        await storage.swept()
        newer.close()
        older.close()
        await storage.close()
        (folder / "search.db").rename(tmp_path / "newer.db")
        (tmp_path / "older.db").rename(folder / "search.db")

        storage = await reopen()
        assert b"bytes 1" == await _content(storage, "file-1")
        assert await storage.file("ana", "file-2") is None
        await storage.close()
        (tmp_path / "newer.db").replace(folder / "search.db")
        storage = await reopen()
        assert b"bytes 2" == await _content(storage, "file-2")
        assert [] == list((folder / "lost").iterdir())

    async def test_bytes_that_a_crash_left_of_a_deleted_file(
        self, storage: SqliteStorage, tmp_path: Path, reopen, monkeypatch: pytest.MonkeyPatch
    ):
        """Are deleted after the next start, not set aside; one with this id that was added again stays."""
        with monkeypatch.context() as patch:
            patch.setattr(Contents, "delete", lambda *_: False)
            for file_id in ("file-1", "file-2"):
                await upload(storage, file_id, b"deleted")
                await storage.delete_file("ana", file_id)
            await storage.swept()
        await upload(storage, "file-2", b"added again")
        storage = await reopen()
        await storage.swept()

        assert b"added again" == await _content(storage, "file-2")
        assert 1 == len(list((tmp_path / "search" / "files").glob("??/*")))
        assert not (tmp_path / "search" / "lost").exists()

    async def test_backup_by_copying(self, storage: SqliteStorage, tmp_path: Path):
        """SQLite's backup of the database, then the files: opened elsewhere, it answers as the original did."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        folder, copy = tmp_path / "search", tmp_path / "copy"
        copy.mkdir()
        source, target = sqlite3.connect(folder / "search.db"), sqlite3.connect(copy / "search.db")
        source.backup(target)
        source.close()
        target.close()
        await add_indexed(storage, "file-2", ["alpha"])
        shutil.copytree(folder / "files", copy / "files")
        async with running(copy) as restored:
            content = await restored.content("file-1")
            content.close()
            assert 1 == len(await restored.matching(await current(restored), ALPHA, None, 10))
            assert 1 == len(list((copy / "files").glob("??/*")))  # the bytes of file-2 came after the database


class TestBrokenFiles:
    async def test_not_a_database(self, tmp_path: Path):
        """The storage starts, says what is broken and how to recover, and every call is refused, without the folder."""
        (tmp_path / "search").mkdir()
        (tmp_path / "search" / "search.db").write_bytes(b"no database" * 1000)
        async with running(tmp_path / "search") as storage:
            for call in (storage.stores("ana", ListRange()), storage.add_store(vector_store()), upload(storage, "f")):
                with pytest.raises(StorageCorrupt, match=r"the database is broken.*backup") as told:
                    await call

                assert str(tmp_path) not in str(told.value)
            assert "the database is broken" in storage.report()["fault"]
            assert not storage.report()["writes"]

    async def test_a_broken_page_is_found_at_the_start(self, storage: SqliteStorage, tmp_path: Path):
        """In a database that is small enough to be checked then."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha " * 200] * 100)
        await storage.close()
        path = tmp_path / "search" / "search.db"
        with path.open("r+b") as file:
            for page in range(5, path.stat().st_size // 8192):
                file.seek(8192 * page)
                file.write(b"\xff" * 64)

        async with running(tmp_path / "search") as broken:
            with pytest.raises(StorageCorrupt) as told:
                await broken.stores("ana", ListRange())

            assert "\n" not in str(told.value)
            assert "***" not in str(told.value)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param("UPDATE vectors SET vector = zeroblob(length(vector))", id="vector"),
            pytest.param("UPDATE vectors SET vector = x'00'", id="short-vector"),
            pytest.param("UPDATE vectors SET chunk = chunk + 100", id="vector-of-another-chunk"),
            pytest.param("UPDATE store_files SET lengths = x'00000000'", id="lengths"),
        ],
    )
    async def test_broken_vectors_are_no_hits(self, storage: SqliteStorage, tmp_path: Path, change: str):
        """The search is refused, and so is the next one."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        _execute(tmp_path, change)

        for _ in range(2):
            with pytest.raises(StorageCorrupt, match="backup"):
                await storage.nearest(await current(storage), unit_vectors(1)[0], None, 10)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param("UPDATE chunks SET text = 'beta'", id="text"),
            pytest.param("UPDATE chunks SET words = x'0102'", id="words"),
            pytest.param("UPDATE chunks SET text = CAST(x'ff' AS TEXT)", id="not-utf-8"),
        ],
    )
    async def test_broken_chunks_are_not_shown(self, storage: SqliteStorage, tmp_path: Path, change: str):
        """A text that is not the one that was stored is no answer."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        (hit,) = await storage.matching(await current(storage), ALPHA, None, 10)
        _execute(tmp_path, change)

        with pytest.raises(StorageCorrupt):
            await storage.chunks("vs_1", [hit.chunk_id])

    @pytest.mark.parametrize("is_gone", [True, False])
    async def test_broken_bytes_of_a_file(self, storage: SqliteStorage, tmp_path: Path, is_gone: bool):
        """Bytes that are not those that were uploaded are no answer."""
        await upload(storage, "file-1", b"content")
        (path,) = (tmp_path / "search" / "files").glob("??/*")
        path.unlink() if is_gone else path.write_bytes(b"changed")

        with pytest.raises(StorageCorrupt, match="file-1"):
            await storage.content("file-1")
        assert "some data are broken" in storage.report()["fault"]


class TestFullDisk:
    async def test_nothing_acknowledged_is_lost_and_the_service_goes_on(self, storage: SqliteStorage, tmp_path: Path):
        """Writes are refused while there is no room, reads and searches are not, and writes come back with room."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        await upload(storage, "file-2")
        await storage.attach([store_file("file-2")])
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        big = indexed([f"alpha {n} " + "x" * 2000 for n in range(2000)])
        largest = max(path.stat().st_size for path in (tmp_path / "search").glob("search.db*"))
        upload_bytes = StoredFile.of(b"x" * (largest + 200_000), FileLimits())
        with _file_size_limit(largest + 100_000):
            with pytest.raises(Unavailable, match="disk"):
                await storage.finish(claim, big)
            with pytest.raises(Unavailable):
                await storage.add_file(file_record("file-3"), upload_bytes)

            assert 1 == len(await storage.matching(await current(storage), ALPHA, None, 10))
            assert 1 == len(await storage.nearest(await current(storage), unit_vectors(1)[0], None, 10))
            assert await storage.file("ana", "file-3") is None

        upload_bytes.close()
        assert await storage.finish(claim, big)
        assert 2001 == len(await storage.matching(await current(storage), ALPHA, None, 10_000))
        assert {"ok"} == {row[0] for row in _rows(tmp_path, "PRAGMA integrity_check")}
        assert [] == list((tmp_path / "search" / "files").glob("??/*.part"))

    @pytest.mark.parametrize("small_disk", [24], indirect=True)
    async def test_deleting_makes_room(self, small_disk: Path):
        """On a disk without a free block files leave stores and are deleted, again and again, and uploads go on."""
        async with running(small_disk / "search") as storage:
            await storage.add_store(vector_store())
            for number in range(4):
                await add_indexed(storage, f"file-{number}", ["alpha " * 200] * 100)
            for number in range(3):
                _fill(small_disk / f"full-{number}")
                with pytest.raises(Unavailable, match="Delete files") as told:
                    await upload(storage, "file-9", b"x" * 100_000)

                assert str(small_disk) not in str(told.value)
                assert await storage.detach("vs_1", f"file-{number}")
                assert await storage.delete_file("ana", f"file-{number}")
                await storage.swept()
            assert await storage.delete_store("ana", "vs_1")
            (small_disk / "full-0").unlink()
            await upload(storage, "file-9", b"x" * 1000)
            assert (small_disk / "search" / "reserve").exists()


def _fill(path: Path) -> None:
    """Write until not a block is free."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


@contextmanager
def _file_size_limit(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow over this size: a write fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def _tax_id(number: int) -> str:
    """A word that stands in a file of the storage only where it was written."""
    return f"esb1234567{number}zz"


async def _content(storage: SqliteStorage, file_id: str) -> bytes:
    content = await storage.content(file_id)
    with closing(content):
        return content.content()


def _rows(tmp_path: Path, query: str) -> list:
    connection = sqlite3.connect(tmp_path / "search" / "search.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def _execute(tmp_path: Path, statement: str) -> None:
    connection = sqlite3.connect(tmp_path / "search" / "search.db", isolation_level=None)
    try:
        connection.execute(statement)
    finally:
        connection.close()


def _as_of_the_first_release(path: Path) -> None:
    """The same rows in the tables of version 1."""
    connection = sqlite3.connect(path, isolation_level=None)
    old = sqlite3.connect(path.with_suffix(".old"), isolation_level=None)
    old.executescript(STEPS[0])
    tables = [row[0] for row in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in [table for table in tables if table != "sqlite_sequence"] + ["sqlite_sequence"]:
        columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
        kept = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        values = ", ".join(column if column in kept else "0" for column in columns)
        rows = connection.execute(f"SELECT {values} FROM {table}").fetchall()
        old.execute(f"DELETE FROM {table}")
        old.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
    old.execute("PRAGMA user_version = 1")
    old.close()
    connection.close()
    path.with_suffix(".old").replace(path)


@contextmanager
def _paused(step: str, entered: threading.Event, go_on: threading.Event) -> Iterator[None]:
    """Holds uploads where they write their bytes, or their row."""
    owner, name = (Contents, "write") if step == "bytes" else (Transaction, "fetch")
    run = getattr(owner, name)

    def paused(*arguments: object) -> object:
        entered.set()
        assert go_on.wait(TEST_TIMEOUT_S)
        return run(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, paused)
        yield
