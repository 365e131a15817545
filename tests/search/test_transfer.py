"""Vector stores from one storage to another by a file: the same hits to the bit, nothing of a file that is broken."""

import asyncio
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend import transfer_stores
from backend.callers.callers import ANYBODY
from backend.errors import BadInput, NotFound, Unavailable
from backend.files.limits import FileLimits
from backend.search import transfer
from backend.search.filters import Comparison
from backend.search.keywords import query_terms
from backend.search.postgres.storage import PostgresSearchStorage
from backend.search.records import DocumentQuery, IndexFailure, ListPage, ListRange, StoreFile
from backend.search.sqlite.storage import SqliteOptions, SqliteStorage
from backend.search.storage import SearchStorage
from backend.search.transfer import Transferred, check_archive, export_stores, import_stores
from tests.search.document_contract import Documents
from tests.search.postgres.server import PostgresServer
from tests.search.samples import ENCODER, OTHER_ENCODER, add_indexed, running, store_file, unit_vectors, upload
from tests.search.samples import vector_store as new_store

OWNER, OTHER_OWNER = "ana", "eva"
BY_NUMBER = DocumentQuery(number="9")
LIMITS = FileLimits()
TEXTS = ["Factura de marzo\x00 por 1.000 €", "Invoice B12345678 for alpha", "alpha beta", "nothing in common"]
NewStorage = Callable[[str], Awaitable[SearchStorage]]


@pytest.fixture
async def new_storage(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[[str], Awaitable[SearchStorage]]]:
    """Opens an empty storage of a kind."""
    opened: list[SearchStorage] = []

    async def open_new(kind: str) -> SearchStorage:
        storage: SearchStorage
        if kind == "sqlite":
            storage = SqliteStorage(SqliteOptions(tmp_path / f"search{len(opened)}"))
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            name = f"transfer_{tmp_path.name.rpartition('_')[2]}_{id(opened)}_{len(opened)}"
            storage = PostgresSearchStorage(await server.create_database(name), LIMITS)
        await storage.start()
        opened.append(storage)
        return storage

    yield open_new
    for storage in opened:
        await storage.close()


async def fill(storage: SearchStorage) -> None:
    """Two stores that share a file, one file that waits, and the store of somebody else."""
    await storage.add_store(new_store("vs_1", metadata={"a": "b"}))
    await storage.add_store(new_store("vs_2", created_s=11.0))
    await storage.add_store(new_store("vs_3", owner=OTHER_OWNER))
    found = {"vendor": ["Año S.L.", "B12345678"]}
    await add_indexed(storage, "file-1", TEXTS, vectors=unit_vectors(4, seed=3), attributes={"n": 1.5}, found=found)
    await add_indexed(
        storage, "file-2", TEXTS[::-1], vectors=unit_vectors(4, seed=4), attributes={"n": 2.5, "ok": True}
    )
    await add_indexed(storage, "file-1", TEXTS[:2], store_id="vs_2", encoder=OTHER_ENCODER)
    await upload(storage, "file-3", b"waits")
    await storage.attach([store_file("file-3", attributes={"later": "x"})])


async def searched(storage: SearchStorage, owner: str) -> list[object]:
    """What a caller sees of its stores: records, chunks, and the rankings with their scores."""
    seen: list[object] = []
    for store in await storage.stores(owner, ListRange(order="asc")):
        query = unit_vectors(1, seed=9, width=store.encoder.width)[0]
        for where in (None, Comparison("n", "gt", 2.0), Comparison("vendor", "eq", "B12345678")):
            for hits in (
                await storage.nearest(store, query, where, 50),
                await storage.matching(store, query_terms("factura alpha B1234"), where, 50),
            ):
                chunks = await storage.chunks(store.id, [hit.chunk_id for hit in hits])
                seen.append([(replace(chunk, id=0), hit.score) for chunk, hit in zip(chunks, hits, strict=True)])
        files = await storage.store_files(store.id, ListRange(order="asc"))
        seen += [replace(store, owner="", usage_bytes=0), [replace(file, usage_bytes=0) for file in files]]
    return seen


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")],
)
async def test_there_and_back_again(new_storage: NewStorage, tmp_path: Path, source: str, target: str):
    """Through another storage and back to one of the first kind every hit and every score is the same."""
    first, second, third = [await new_storage(kind) for kind in (source, target, source)]
    await fill(first)
    there = await export_stores(first, OWNER, tmp_path / "there.tar")
    await import_stores(second, OTHER_OWNER, tmp_path / "there.tar", LIMITS)
    back = await export_stores(second, OTHER_OWNER, tmp_path / "back.tar")
    await import_stores(third, OWNER, tmp_path / "back.tar", LIMITS)

    assert Transferred(2, 4, 10, waiting=1) == there == back
    assert await searched(first, OWNER) == await searched(third, OWNER)
    content = await second.content("file-3")
    assert b"waits" == content.content()
    content.close()
    assert 1 == await second.waiting()
    assert [] == await second.stores(OWNER, ListRange())
    assert {"there.tar", "back.tar"} == _archives(tmp_path)


@pytest.mark.parametrize(("source", "target"), [("sqlite", "postgres"), ("postgres", "sqlite")])
async def test_stored_documents(new_storage: NewStorage, tmp_path: Path, source: str, target: str):
    """Come along with corrections, lessons and pages, once where they are in a store, too; with one store none do."""
    first, second = await new_storage(source), await new_storage(target)
    documents = Documents(first, lesson_of=lambda _: (["nif"], {"a": 1}))
    kept = await documents.add(content=b"paper")
    kept = await documents.service.confirm(OWNER, "eva", (await documents.correct(kept, InvoiceId="9")).id)
    await first.add_store(new_store("vs_1"))
    await add_indexed(first, kept.id, TEXTS)
    done = await export_stores(first, OWNER, tmp_path / "all.tar")
    one = await export_stores(first, OWNER, tmp_path / "one.tar", ["vs_1"])
    await import_stores(second, OTHER_OWNER, tmp_path / "all.tar", LIMITS)
    again = Documents(second).service

    assert Transferred(1, 1, 4, documents=1) == done
    assert 0 == one.documents
    assert replace(kept, file=replace(kept.file, owner=OTHER_OWNER)) == await again.get(OTHER_OWNER, kept.id)
    assert await documents.service.pages(OWNER, kept.id) == await again.pages(OTHER_OWNER, kept.id)
    assert await first.lessons(OWNER, ["nif"], limit=20) == await second.lessons(OTHER_OWNER, ["nif"], limit=20)
    assert [kept.id] == [found.id for found in (await again.list_documents(OTHER_OWNER, BY_NUMBER, ListPage()))[0]]
    with pytest.raises(BadInput, match=r"the document 'file-.*' is there already; delete it first"):
        await import_stores(second, OTHER_OWNER, tmp_path / "all.tar", LIMITS)
    assert 1 == (await second.usage(OTHER_OWNER)).files


async def test_one_store(new_storage: NewStorage, tmp_path: Path):
    """Only what was asked for is written; an unknown one, or somebody else's, is refused."""
    first, second = await new_storage("sqlite"), await new_storage("sqlite")
    await fill(first)
    await export_stores(first, OWNER, tmp_path / "one.tar", ["vs_2"])
    await import_stores(second, OWNER, tmp_path / "one.tar", LIMITS)

    assert ["vs_2"] == [store.id for store in await second.stores(OWNER, ListRange())]
    with pytest.raises(NotFound, match="vs_3"):
        await export_stores(first, OWNER, tmp_path / "none.tar", ["vs_3"])
    assert not (tmp_path / "none.tar").exists()


async def test_a_store_that_changes_meanwhile(new_storage: NewStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that comes or goes between two pages is no shorter export that succeeds: none is left."""
    monkeypatch.setattr(transfer, "PAGE", 2)
    storage = await new_storage("sqlite")
    await storage.add_store(new_store())
    for number in range(5):
        await upload(storage, f"file-{number}")
        await storage.attach([store_file(f"file-{number}", created_s=float(number))])
    listed = storage.store_files

    async def then_removed(*arguments: Any, **options: Any) -> list[StoreFile]:
        files = await listed(*arguments, **options)
        await storage.detach("vs_1", "file-1")
        return files

    storage.store_files = then_removed  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="changed meanwhile"):
        await export_stores(storage, OWNER, tmp_path / "short.tar")
    assert set() == _archives(tmp_path)
    assert 4 == (await export_stores(storage, OWNER, tmp_path / "whole.tar")).files


async def test_a_store_that_is_being_re_embedded(new_storage: NewStorage, tmp_path: Path):
    """Its chunks are between two encoders: refused, and no file is left."""
    storage = await new_storage("sqlite")
    await fill(storage)
    await storage.begin_reembedding("vs_1", OTHER_ENCODER)

    with pytest.raises(BadInput, match="re-embedded"):
        await export_stores(storage, OWNER, tmp_path / "all.tar")
    assert set() == _archives(tmp_path)


async def test_what_is_there_already(new_storage: NewStorage, tmp_path: Path):
    """A second import changes nothing."""
    storage = await new_storage("sqlite")
    await fill(storage)
    await export_stores(storage, OWNER, tmp_path / "all.tar")
    before = await searched(storage, OWNER)

    with pytest.raises(BadInput, match="'vs_1' is there already"):
        await import_stores(storage, OWNER, tmp_path / "all.tar", LIMITS)
    assert before == await searched(storage, OWNER)


async def test_a_file_that_is_cut_off(new_storage: NewStorage, tmp_path: Path):
    """Wherever it ends, it is refused before anything is written."""
    first, second = await new_storage("sqlite"), await new_storage("sqlite")
    await fill(first)
    whole, cut = tmp_path / "whole.tar", tmp_path / "cut.tar"
    await export_stores(first, OWNER, whole)
    with tarfile.open(whole) as tar:
        end = next(member.offset for member in tar if member.name == "end.json")
    content = whole.read_bytes()
    for size in [*range(0, end, 1111), end]:
        cut.write_bytes(content[:size])
        with pytest.raises(BadInput, match=r"cut\.tar"):
            await import_stores(second, OWNER, cut, LIMITS)

    assert [] == await second.stores(OWNER, ListRange())
    assert [] == await second.files(OWNER, ListRange())


async def test_a_file_that_was_changed(new_storage: NewStorage, tmp_path: Path):
    """One bit in any member is enough."""
    storage = await new_storage("sqlite")
    await fill(storage)
    whole, changed = tmp_path / "whole.tar", tmp_path / "changed.tar"
    await export_stores(storage, OWNER, whole)
    with tarfile.open(whole) as tar:
        places = [member.offset_data + member.size // 2 for member in tar]
    for place in places:
        content = bytearray(whole.read_bytes())
        content[place] ^= 1
        changed.write_bytes(content)

        with pytest.raises(BadInput, match=r"changed\.tar"):
            check_archive(changed)
    check_archive(whole)


def _archives(folder: Path) -> set[str]:
    """Whole and half-written ones."""
    return {file.name for file in folder.iterdir() if ".tar" in file.name}


class Breaks:
    """A storage that is lost after so many files."""

    def __init__(self, storage: SearchStorage, files: int) -> None:
        self._storage = storage
        self._left = files

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    async def restore(self, *arguments: object) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unavailable("the storage is away")
        await self._storage.restore(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("files", [0, 1, 2])
async def test_nothing_is_half_imported(new_storage: NewStorage, tmp_path: Path, files: int):
    """What an import had added before the storage failed is taken back; files that were there stay."""
    first, second = await new_storage("sqlite"), await new_storage("sqlite")
    await fill(first)
    await export_stores(first, OWNER, tmp_path / "all.tar")
    kept = await upload(second, "file-2")

    with pytest.raises(Unavailable):
        await import_stores(Breaks(second, files), OWNER, tmp_path / "all.tar", LIMITS)  # type: ignore[arg-type]
    assert [] == await second.stores(OWNER, ListRange())
    assert [kept] == await second.files(OWNER, ListRange())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Exports from one folder and imports into another; a fault is one line and exit code 1."""

    async def prepare() -> None:
        async with running(tmp_path / "a" / "search") as storage:
            await storage.add_store(new_store("vs_1", owner=ANYBODY.owner))
            await add_indexed(storage, "file-1", ["alpha"], owner=ANYBODY.owner)

    asyncio.run(prepare())
    file = str(tmp_path / "stores.tar")
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "a"))
    assert 0 == transfer_stores.main(["export", file])
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "b"))
    assert 0 == transfer_stores.main(["import", file])
    assert 1 == transfer_stores.main(["import", file])

    told = capsys.readouterr()
    assert "imported 1 vector stores, 1 files, 1 chunks" in told.out
    assert "is there already" in told.err
    assert 1 == len(told.err.splitlines())


def test_what_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A failed file goes along; what stays behind, a file in the way, an unknown caller and no file are told."""

    async def prepare() -> None:
        async with running(tmp_path / "a" / "search") as storage:
            await storage.add_store(new_store("vs_1", owner=ANYBODY.owner))
            await add_indexed(storage, "file-1", ["alpha"], owner=ANYBODY.owner)
            for name in ("failed", "cancelled", "outside"):
                await upload(storage, name, owner=ANYBODY.owner)
            await storage.attach([store_file("failed")])
            await storage.fail(await storage.claim(ENCODER, 60.0), IndexFailure("invalid_file", "broken"))
            await storage.attach([store_file("cancelled", batch_id="batch")])
            await storage.cancel_batch("vs_1", "batch")

    asyncio.run(prepare())
    file, new = str(tmp_path / "stores.tar"), str(tmp_path / "new.tar")
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "a"))
    codes = [transfer_stores.main(["export", file])]
    told = capsys.readouterr()
    codes += [transfer_stores.main(arguments) for arguments in (["export", file], ["export", new, "--caller", "x"])]
    codes.append(transfer_stores.main(["import", new]))

    faults = capsys.readouterr().err.splitlines()
    assert [0, 1, 2, 1] == codes
    assert "1 vector stores, 2 files (1 of them" in told.out
    for stream in told:
        assert "1 files whose indexing was cancelled, 1 uploads" in stream
    assert ["is there already" in faults[0], "'x'" in faults[1], "is no file" in faults[2]] == [True] * 3
    assert not Path(new).exists()
