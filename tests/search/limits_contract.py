"""What every SearchStorage must do about limits, whoever adds at the same time: imported by the tests of each."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from backend.errors import BadInput, FinanciaError, NotFound, QuotaExceeded, TooLarge
from backend.search.limits import SearchLimits
from backend.search.records import ListRange, StoredUsage
from backend.search.storage import SearchStorage
from tests.search.samples import (
    ENCODER,
    LEASE_S,
    add_indexed,
    current,
    file_record,
    indexed,
    store_file,
    stored,
    unit_vectors,
    upload,
    vector_store,
)


class TestLimits:
    async def test_stores_made_at_the_same_time(self, storage: SearchStorage):
        """As many as the limit allows are there; another owner's are not counted."""
        limits = SearchLimits(vector_stores=3)
        await storage.add_store(vector_store("vs_eva", owner="eva"), limits=limits)

        refused = await _refused(storage.add_store(vector_store(f"vs_{n}"), limits=limits) for n in range(8))

        assert {TooLarge: 5} == refused
        assert 3 == (await storage.usage("ana")).stores

    @pytest.mark.parametrize(
        "limits", [SearchLimits(stored_files=3), SearchLimits(stored_bytes=15)], ids=["n", "bytes"]
    )
    async def test_files_sent_at_the_same_time(self, storage: SearchStorage, limits: SearchLimits):
        """As many as the limit allows are kept, and nothing is left of the others."""
        with stored(b"bytes") as content:
            refused = await _refused(
                storage.add_file(file_record(f"file-{n}"), content, limits=limits) for n in range(8)
            )

        assert {TooLarge: 5} == refused
        assert StoredUsage(3, 15, 0, 0) == await storage.usage("ana")
        assert 3 == len(await storage.files("ana", ListRange()))

    async def test_an_owners_own_quota_of_bytes(self, storage: SearchStorage):
        """Takes the place of LIMIT_STORED_BYTES, less or more than it, and is refused as a quota: 429."""
        limits = SearchLimits(stored_bytes=10)
        with stored(b"bytes") as content:
            refused = await _refused(
                storage.add_file(file_record(f"file-{n}"), content, limits=limits.of_owner(15)) for n in range(8)
            )
            for n in (8, 9):
                await storage.add_file(file_record(f"file-{n}", owner="eva"), content, limits=limits.of_owner(None))
            with pytest.raises(TooLarge):
                await storage.add_file(file_record("file-10", owner="eva"), content, limits=limits.of_owner(None))
            with pytest.raises(QuotaExceeded, match=r"20 of this key would be kept, its quota is 15 \(stored_bytes"):
                await storage.add_file(file_record("file-11"), content, limits=limits.of_owner(15))
        await storage.add_store(vector_store("vs_1"))
        kept = [file.id for file in await storage.files("ana", ListRange())]
        with pytest.raises(QuotaExceeded, match="stored_bytes"):
            await storage.attach([store_file(kept[0], "vs_1")], limits=limits.of_owner(15))

        assert {QuotaExceeded: 5} == refused
        assert 15 == (await storage.usage("ana")).bytes

    async def test_attributes_take_of_the_quota(self, storage: SearchStorage):
        """Of files that wait, too; what a caller sets again, or less, is never refused."""
        limits = SearchLimits().of_owner(100)
        await storage.add_store(vector_store())
        await upload(storage, "file-1", b"bytes")
        long, short = {"name": "x" * 200}, {"name": "y" * 20}

        with pytest.raises(QuotaExceeded, match="stored_bytes"):
            await storage.attach([store_file("file-1", attributes=long)], limits=limits)
        assert await storage.store_file("vs_1", "file-1") is None
        await storage.attach([store_file("file-1", attributes=short)], limits=limits)
        assert 5 + 24 == (await storage.usage("ana")).bytes
        with pytest.raises(QuotaExceeded, match="stored_bytes"):
            await storage.set_attributes("vs_1", "file-1", long, limits=limits)
        file = await storage.store_file("vs_1", "file-1")
        assert short == file.attributes
        await storage.set_attributes("vs_1", "file-1", long)
        await storage.set_attributes("vs_1", "file-1", {"name": "z" * 190}, limits=limits)
        assert 5 + 194 == (await storage.usage("ana")).bytes
        await storage.detach("vs_1", "file-1")
        assert 5 == (await storage.usage("ana")).bytes

    async def test_files_that_wait(self, storage: SearchStorage):
        """Are limited over all stores of an owner, whoever adds at the same time; what is indexed waits no more."""
        limits = SearchLimits(waiting_files=4)
        for n in range(6):
            await upload(storage, f"file-{n}")
        for n in range(3):
            await storage.add_store(vector_store(f"vs_{n}"))

        refused = await _refused(
            storage.attach([store_file(f"file-{n}", f"vs_{n}"), store_file(f"file-{n + 3}", f"vs_{n}")], limits=limits)
            for n in range(3)
        )
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        await storage.finish(claim, indexed(["alpha"]))
        waiting = (await storage.usage("ana")).waiting
        await storage.add_store(vector_store("vs_9"), [store_file("file-0", "vs_9")], limits=limits)

        assert {QuotaExceeded: 1} == refused
        assert 3 == waiting
        assert 4 == (await storage.usage("ana")).waiting

    async def test_a_file_that_waits_is_added_again(self, storage: SearchStorage):
        """It takes no more room than before; more at once than may ever wait is a fault of the request."""
        limits = SearchLimits(waiting_files=1)
        await storage.add_store(vector_store())
        for n in range(2):
            await upload(storage, f"file-{n}")

        for _ in range(2):
            await storage.attach([store_file("file-0")], limits=limits)

        with pytest.raises(TooLarge, match=r"files to be indexed: 2 is over the limit of 1 \(LIMIT_WAITING_FILES\)"):
            await storage.attach([store_file("file-0"), store_file("file-1")], limits=limits)
        with pytest.raises(QuotaExceeded, match=r"1 wait to be indexed, and 1 more .* limit of 1 "):
            await storage.attach([store_file("file-1")], limits=limits)
        assert ["file-0"] == [file.file_id for file in await storage.store_files("vs_1", ListRange())]

    async def test_no_room_for_another_chunk(self, storage: SearchStorage):
        """Nothing more is attached, and no store is made with files."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        limits = SearchLimits(stored_chunks=2)

        refused = await _refused(
            [
                storage.attach([store_file("file-1")], limits=limits),
                storage.add_store(vector_store("vs_2"), [store_file("file-1", "vs_2")], limits=limits),
                storage.add_store(vector_store("vs_3"), limits=limits),
            ]
        )

        assert {TooLarge: 2} == refused
        assert {"vs_1", "vs_3"} == {store.id for store in await storage.stores("ana", ListRange())}

    async def test_a_store_comes_with_its_files_or_not_at_all(self, storage: SearchStorage):
        """An unknown file, or an id that is taken, and neither store nor files are there."""
        await upload(storage, "file-1")
        await storage.add_store(vector_store("vs_1"))

        with pytest.raises(NotFound):
            await storage.add_store(vector_store("vs_2"), [store_file("file-1", "vs_2"), store_file("file-0", "vs_2")])
        with pytest.raises(BadInput, match="vs_1"):
            await storage.add_store(vector_store("vs_1"), [store_file("file-1", "vs_1")])
        await storage.add_store(vector_store("vs_3"), [store_file("file-1", "vs_3")])

        assert {"vs_1", "vs_3"} == {store.id for store in await storage.stores("ana", ListRange())}
        assert [] == await storage.store_files("vs_1", ListRange())
        assert ["file-1"] == [file.file_id for file in await storage.store_files("vs_3", ListRange())]

    async def test_many_files_are_read_at_once(self, storage: SearchStorage):
        """Those that are there and the owner's."""
        records = [await upload(storage, f"file-{n}") for n in range(3)]
        await upload(storage, "file-eva", owner="eva")

        found = await storage.files_of("ana", ["file-2", "file-0", "file-eva", "file-absent", "file-0"])

        assert {records[0], records[2]} == set(found)
        assert [] == await storage.files_of("ana", [])


async def _refused(calls: Any) -> dict[type[BaseException], int]:
    """How often which error came of calls that run at the same time; others than the service's are raised."""
    counts: dict[type[BaseException], int] = {}
    calls: list[Coroutine[Any, Any, Any]] = list(calls)
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, FinanciaError):
            counts[type(outcome)] = counts.get(type(outcome), 0) + 1
        elif isinstance(outcome, BaseException):
            raise outcome
    return counts


class TestEqualChunks:
    async def test_the_contents_of_chunks(self, storage: SearchStorage):
        """Those of files with the same bytes are equal where place and text are; other stores' are not there."""
        for store_id in ("vs_1", "vs_2"):
            await storage.add_store(vector_store(store_id))
        for n, texts in enumerate((["alpha", "beta"], ["alpha", "gamma"])):
            await add_indexed(storage, f"file-{n}", texts)
        await add_indexed(storage, "file-0", ["alpha"], store_id="vs_2")
        ids = [chunk.chunk_id for chunk in await storage.nearest(await current(storage), unit_vectors(1)[0], None, 9)]

        contents = {one.chunk_id: one for one in await storage.chunk_contents("vs_1", [*ids, 10_000])}
        chunks = await storage.chunks("vs_1", ids)

        assert set(ids) == set(contents)
        for chunk in chunks:
            content = contents[chunk.id]
            assert (chunk.file_id, chunk.start, chunk.end) == (content.file_id, content.start, content.end)
        alphas = [contents[chunk.id][2:] for chunk in chunks if chunk.text == "alpha"]
        others = [contents[chunk.id][2:] for chunk in chunks if chunk.text != "alpha"]
        assert (2, 1) == (len(alphas), len(set(alphas)))
        assert 2 == len(set(others))
        assert [] == await storage.chunk_contents("vs_2", ids)
