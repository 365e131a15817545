"""What every SearchStorage must do: imported by the tests of each storage, which give three fixtures.

``storage``: an open storage with nothing in it; ``reopen``: closes it and opens another over the same data; ``clock``:
what the storage reads for leases, a `ManualClock`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from backend.errors import BadInput, NotFound, WrongEncoder
from backend.search.filters import Comparison, Compound, Filter
from backend.search.keywords import K1, B, idf, query_terms, text_terms
from backend.search.records import (
    EncoderIdentity,
    IndexFailure,
    KeywordQuery,
    ListRange,
    PageSize,
    Position,
    Progress,
    Scalar,
    StoredUsage,
    StoreFile,
)
from backend.search.storage import SearchStorage
from tests.fakes import ManualClock
from tests.search.samples import (
    ENCODER,
    LEASE_S,
    OTHER_ENCODER,
    WIDTH,
    add_indexed,
    current,
    indexed,
    placed_words,
    store_file,
    unit_vectors,
    upload,
    vector_store,
)

Reopen = Callable[[], Awaitable[SearchStorage]]
# Where the files of `test_list_pages` stand: 3 to 5 are of one time.
_AT = {number: Position(4.0 if number in {3, 4, 5} else float(number), f"file-{number}") for number in range(1, 8)}
UNICODE_NAME = "Factura nº 1 — «año» 漢字 🧾 \u202e\u0301'\"%_\\.pdf"


class TestFiles:
    async def test_a_file_is_read_back(self, storage: SearchStorage, reopen: Reopen):
        """Record and bytes are there, also after the storage was opened again."""
        content = bytes(range(256)) * 5000
        record = await upload(storage, "file-1", content, name=UNICODE_NAME, expires_s=900.0)

        async for opened in _before_and_after(storage, reopen):
            copy = await opened.content("file-1")

            assert record == await opened.file("ana", "file-1")
            assert content == copy.content()
            copy.close()

    async def test_a_file_of_somebody_else_is_not_there(self, storage: SearchStorage):
        """Neither found, listed nor deleted by another owner."""
        record = await upload(storage, "file-1")

        assert await storage.file("eva", "file-1") is None
        assert [] == await storage.files("eva", ListRange())
        assert not await storage.delete_file("eva", "file-1")
        assert [record] == await storage.files("ana", ListRange())

    async def test_an_id_that_is_taken(self, storage: SearchStorage):
        """Is refused, also of another owner's row, which stays as it was."""
        await upload(storage, "file-1", b"of ana")
        await storage.add_store(vector_store())

        with pytest.raises(BadInput, match="file-1"):
            await upload(storage, "file-1", b"of eva", owner="eva")
        with pytest.raises(BadInput, match="vs_1"):
            await storage.add_store(vector_store(owner="eva"))
        content = await storage.content("file-1")
        assert b"of ana" == content.content()
        content.close()
        assert await storage.file("eva", "file-1") is None
        assert await storage.store("eva", "vs_1") is None

    async def test_an_unknown_file(self, storage: SearchStorage):
        """Absence is no error."""
        assert await storage.file("ana", "file-0") is None
        assert await storage.content("file-0") is None
        assert not await storage.delete_file("ana", "file-0")
        assert () == await storage.file_pages("file-0")

    async def test_deleting_a_file_takes_it_out_of_every_store(self, storage: SearchStorage):
        """Its bytes, its rows in stores and its chunks are gone; other files stay."""
        for store_id in ("vs_1", "vs_2"):
            await storage.add_store(vector_store(store_id))
            await add_indexed(storage, "file-1", ["alpha"], store_id=store_id)
            await add_indexed(storage, "file-2", ["alpha"], store_id=store_id)

        assert await storage.delete_file("ana", "file-1")
        assert await storage.content("file-1") is None
        assert await storage.file("ana", "file-1") is None
        for store_id in ("vs_1", "vs_2"):
            store = await current(storage, store_id)

            assert await storage.store_file(store_id, "file-1") is None
            assert 1 == store.chunks
            assert 1 == len(await storage.nearest(store, unit_vectors(1)[0], None, 10))
            assert 1 == len(await storage.matching(store, KeywordQuery(_terms("alpha")), None, 10))

    async def test_lists_by_purpose(self, storage: SearchStorage):
        """Only the files of the purpose that was asked for."""
        await upload(storage, "file-1", purpose="assistants")
        second = await upload(storage, "file-2", purpose="user_data")

        assert [second] == await storage.files("ana", ListRange(), purpose="user_data")
        assert [] == await storage.files("ana", ListRange(), purpose="vision")
        assert [] == await storage.files("ana", ListRange(after=Position(1.0, "file-1")), purpose="user_data")

    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            pytest.param(ListRange(), "7654321", id="newest-first"),
            pytest.param(ListRange(order="asc"), "1234567", id="oldest-first"),
            pytest.param(ListRange(limit=3), "765", id="the-first-page"),
            pytest.param(ListRange(limit=3, after=_AT[5]), "432", id="the-page-behind"),
            pytest.param(ListRange(limit=3, after=_AT[2]), "1", id="the-last-page"),
            pytest.param(ListRange(limit=3, after=_AT[1]), "", id="behind-the-last"),
            pytest.param(ListRange(limit=2, before=_AT[3]), "54", id="the-page-before"),
            pytest.param(ListRange(limit=2, order="asc", before=_AT[5]), "34", id="the-page-before-ascending"),
            pytest.param(ListRange(limit=9, before=_AT[6]), "7", id="before-the-second"),
            pytest.param(ListRange(limit=2, after=_AT[6], before=_AT[2]), "54", id="between"),
            pytest.param(ListRange(limit=3, after=Position(4.0, "file-4~")), "432", id="behind-a-row-that-is-gone"),
        ],
    )
    async def test_list_pages(self, storage: SearchStorage, part: ListRange, expected: str):
        """By creation time, then id, whatever the order they were added in."""
        for number in (3, 1, 2, 7, 6, 5, 4):
            await upload(storage, f"file-{number}", created_s=_AT[number].created_s)

        assert expected == "".join(file.id[-1] for file in await storage.files("ana", part))

    async def test_positions_of_deleted_rows(self, storage: SearchStorage, reopen: Reopen):
        """Are known on, so that whoever lists and deletes page by page sees every row; others' are not."""
        await storage.add_store(vector_store(created_s=7.0))
        await storage.add_store(vector_store("vs_2"))
        for number in (1, 2):
            await upload(storage, f"file-{number}", created_s=float(number))
            await storage.attach([store_file(f"file-{number}", created_s=10.0 + number)])
        positions = {
            ("file", "ana", "file-1"): 1.0,
            ("store_file", "vs_1", "file-1"): 11.0,
            ("store_file", "vs_1", "file-2"): 12.0,
            ("store", "ana", "vs_1"): 7.0,
            ("store_file", "vs_2", "file-1"): None,
            ("file", "eva", "file-1"): None,
            ("store", "ana", "vs_0"): None,
        }

        async def known(opened: SearchStorage) -> dict[tuple[str, str, str], float | None]:
            found = {key: await opened.position(*key) for key in positions}
            return {key: position and position.created_s for key, position in found.items()}

        assert positions == await known(storage)
        await storage.detach("vs_1", "file-2")
        await storage.delete_file("ana", "file-1")
        assert positions == await known(storage)
        await storage.delete_store("ana", "vs_1")
        await storage.swept()
        assert positions == await known(await reopen())

    async def test_expired_files_of_all_owners(self, storage: SearchStorage):
        """Those whose time is over, and no file without one."""
        await upload(storage, "file-1", expires_s=100.0)
        await upload(storage, "file-2", expires_s=101.0, owner="eva")
        await upload(storage, "file-3", expires_s=102.0)
        await upload(storage, "file-4")

        assert {"file-1", "file-2"} == {file.id for file in await storage.expired_files(101.0)}

    async def test_usage(self, storage: SearchStorage):
        """Counts what one owner has, and what all have."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        await upload(storage, "file-2", b"12345", owner="eva")
        stored = await storage.store_file("vs_1", "file-1")

        assert stored.usage_bytes > 2 * len("alpha" + "beta") + 2 * WIDTH  # the texts, and the terms of the postings
        assert StoredUsage(1, 5 + stored.usage_bytes, 2, 1) == await storage.usage("ana")
        assert StoredUsage(1, 5, 0, 0) == await storage.usage("eva")
        assert StoredUsage(0, 0, 0, 0) == await storage.usage("nobody")
        assert StoredUsage(2, 10 + stored.usage_bytes, 2, 1) == await storage.totals()


class TestStores:
    async def test_a_store_is_read_back(self, storage: SearchStorage, reopen: Reopen):
        """As it was added."""
        store = vector_store(
            name=UNICODE_NAME, description="A\nB", metadata={"año": "2024", "": UNICODE_NAME}, expires_after_days=7
        )
        await storage.add_store(store)

        assert store == await storage.store("ana", "vs_1")
        assert store == await (await reopen()).store("ana", "vs_1")

    async def test_a_store_of_somebody_else_is_not_there(self, storage: SearchStorage):
        """Neither found, listed nor deleted by another owner."""
        await storage.add_store(vector_store())

        assert await storage.store("eva", "vs_1") is None
        assert [] == await storage.stores("eva", ListRange())
        assert not await storage.delete_store("eva", "vs_1")
        assert await storage.store("ana", "vs_1") is not None

    async def test_stores_are_listed(self, storage: SearchStorage):
        """In pages by creation time, then id."""
        for number in (2, 1, 3):
            await storage.add_store(vector_store(f"vs_{number}", created_s=5.0))

        assert ["vs_3", "vs_2", "vs_1"] == [store.id for store in await storage.stores("ana", ListRange())]
        assert ["vs_1"] == [store.id for store in await storage.stores("ana", ListRange(after=Position(5.0, "vs_2")))]
        assert ["vs_2"] == [
            store.id for store in await storage.stores("ana", ListRange(limit=1, before=Position(5.0, "vs_1")))
        ]

    async def test_update(self, storage: SearchStorage):
        """Changes the fields a caller may change; false where the store is gone."""
        await storage.add_store(vector_store())
        changed = vector_store(name="B", description="C", metadata={"k": "v"}, expires_after_days=1, last_active_s=20.0)

        assert await storage.update_store(changed)
        assert changed == await storage.store("ana", "vs_1")
        assert not await storage.update_store(vector_store("vs_2"))

    async def test_touch_only_moves_forward(self, storage: SearchStorage):
        """A search that ends late does not take the last activity back, nor anything else."""
        await storage.add_store(vector_store())
        await storage.touch_store("vs_1", 30.0)
        await storage.touch_store("vs_1", 20.0)
        await storage.touch_store("vs_2", 20.0)

        assert vector_store(last_active_s=30.0) == await storage.store("ana", "vs_1")

    async def test_expired_stores(self, storage: SearchStorage):
        """Those that have been inactive for their days, of all owners."""
        day_s = 86_400.0
        await storage.add_store(vector_store("vs_1", expires_after_days=1, last_active_s=0.0))
        await storage.add_store(vector_store("vs_2", expires_after_days=2, last_active_s=0.0, owner="eva"))
        await storage.add_store(vector_store("vs_3", last_active_s=0.0))

        assert [] == await storage.expired_stores(day_s - 1)
        assert ["vs_1"] == [store.id for store in await storage.expired_stores(day_s)]
        assert {"vs_1", "vs_2"} == {store.id for store in await storage.expired_stores(2 * day_s)}

    async def test_deleting_a_store(self, storage: SearchStorage):
        """Its files, chunks and attributes are gone; the uploads and other stores stay."""
        for store_id in ("vs_1", "vs_2"):
            await storage.add_store(vector_store(store_id))
            await add_indexed(storage, "file-1", ["alpha"], store_id=store_id, attributes={"kind": "a"})
        ids = [chunk.id for chunk in await _chunks(storage, "vs_1", "file-1")]

        assert await storage.delete_store("ana", "vs_1")
        assert not await storage.delete_store("ana", "vs_1")
        assert await storage.store("ana", "vs_1") is None
        assert [] == await storage.store_files("vs_1", ListRange())
        assert [] == await storage.chunks("vs_1", ids)
        assert [] == await storage.attribute_keys("vs_1")
        assert await storage.file("ana", "file-1") is not None
        assert 1 == (await storage.usage("ana")).chunks
        assert 1 == len(await storage.nearest(await current(storage, "vs_2"), unit_vectors(1)[0], None, 10))

    async def test_a_deleted_store_is_not_searched(self, storage: SearchStorage):
        """A search that began before its store was deleted finds no store, not the chunks of another."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        store = await current(storage)
        await storage.delete_store("ana", "vs_1")

        with pytest.raises(NotFound):
            await storage.nearest(store, unit_vectors(1)[0], None, 10)
        with pytest.raises(NotFound):
            await storage.matching(store, KeywordQuery(_terms("alpha")), None, 10)


class TestStoreFiles:
    async def test_an_attached_file_waits(self, storage: SearchStorage, reopen: Reopen):
        """All that was given is read back, also after the storage was opened again."""
        await storage.add_store(vector_store())
        await upload(storage, "file-1", name=UNICODE_NAME)
        file = store_file(
            "file-1", name=UNICODE_NAME, attributes={"año": "x", "n": 1.5, "flag": True, "": ""}, batch_id="vsfb_1"
        )
        file = replace(file, usage_bytes=len("año".encode()) + 1 + 1 + 8 + 4 + 8)
        await storage.attach([file])

        async for opened in _before_and_after(storage, reopen):
            assert file == await opened.store_file("vs_1", "file-1")
            assert {"in_progress": 1} == (await current(opened)).counts
            assert 1 == await opened.waiting()

    async def test_attach_is_all_or_none(self, storage: SearchStorage):
        """One unknown file, or an unknown store, and nothing is attached."""
        await storage.add_store(vector_store())
        await upload(storage, "file-1")

        with pytest.raises(NotFound):
            await storage.attach([store_file("file-1"), store_file("file-0")])
        with pytest.raises(NotFound):
            await storage.attach([store_file("file-1"), store_file("file-1", "vs_0")])
        assert [] == await storage.store_files("vs_1", ListRange())
        assert 0 == await storage.waiting()

    async def test_files_of_a_store_are_listed(self, storage: SearchStorage):
        """In pages, by state and by batch."""
        await storage.add_store(vector_store())
        for number in range(1, 5):
            await upload(storage, f"file-{number}")
            batch = "vsfb_1" if number % 2 else None
            await storage.attach([store_file(f"file-{number}", created_s=float(number), batch_id=batch)])
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        await storage.finish(claim, indexed(["alpha"]))

        assert "4321" == _last(await storage.store_files("vs_1", ListRange()))
        assert "43" == _last(await storage.store_files("vs_1", ListRange(limit=2)))
        assert "21" == _last(await storage.store_files("vs_1", ListRange(after=Position(3.0, "file-3"))))
        assert "3" == _last(await storage.store_files("vs_1", ListRange(limit=1, before=Position(2.0, "file-2"))))
        assert "1" == _last(await storage.store_files("vs_1", ListRange(), status="completed"))
        assert "432" == _last(await storage.store_files("vs_1", ListRange(), status="in_progress"))
        assert "31" == _last(await storage.store_files("vs_1", ListRange(), batch_id="vsfb_1"))
        assert "3" == _last(await storage.store_files("vs_1", ListRange(), status="in_progress", batch_id="vsfb_1"))
        assert [] == await storage.store_files("vs_0", ListRange())

    async def test_attributes_are_replaced(self, storage: SearchStorage):
        """What was not given again is gone, and filters see it at once."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"], attributes={"a": 1.0, "b": "x"}, found={"c": ["y"]})
        changed = await storage.set_attributes("vs_1", "file-1", {"a": 2.0, "c": "z"})

        assert changed == await storage.store_file("vs_1", "file-1")
        assert {"a": 2.0, "c": "z"} == changed.attributes
        assert ["a", "c"] == await storage.attribute_keys("vs_1")
        assert 1 == len(await _filtered(storage, Comparison("a", "eq", 2.0)))
        assert [] == await _filtered(storage, Comparison("a", "eq", 1.0))
        assert [] == await _filtered(storage, Comparison("c", "eq", "y"))
        assert await storage.set_attributes("vs_1", "file-0", {}) is None

    async def test_found_attributes_come_back_with_the_callers_removed(self, storage: SearchStorage):
        """The caller's attribute hides a found one of its name; both are kept."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"], attributes={"kind": "mine"}, found={"kind": ["a", "b"]})

        assert [] == await _filtered(storage, Comparison("kind", "eq", "a"))
        await storage.set_attributes("vs_1", "file-1", {})
        assert 1 == len(await _filtered(storage, Comparison("kind", "eq", "b")))

    async def test_many_attributes_of_any_name(self, storage: SearchStorage):
        """10,000 attributes with odd names and long values."""
        attributes: dict[str, Scalar] = {f"{UNICODE_NAME} {number}": "x" * 512 for number in range(10_000)}
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"], attributes=attributes)

        stored = await storage.store_file("vs_1", "file-1")
        assert attributes == stored.attributes
        assert sorted(attributes)[:5] == await storage.attribute_keys("vs_1", 5)
        assert 1 == len(await _filtered(storage, Comparison(f"{UNICODE_NAME} 9999", "eq", "x" * 512)))

    async def test_detach(self, storage: SearchStorage):
        """The file leaves the store and is still there to be attached again."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])

        assert await storage.detach("vs_1", "file-1")
        assert not await storage.detach("vs_1", "file-1")
        assert await storage.store_file("vs_1", "file-1") is None
        assert vector_store() == await storage.store("ana", "vs_1")  # without files: no encoder
        await add_indexed(storage, "file-1", ["beta"])
        assert [] == await storage.matching(await current(storage), KeywordQuery(_terms("alpha")), None, 10)

    async def test_a_file_that_is_there_is_indexed_anew(self, storage: SearchStorage):
        """Its state is that of a new file, the old chunks do not answer, the new ones do."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "alpha two"], attributes={"a": 1.0})
        await storage.attach([store_file("file-1", attributes={"a": 2.0})])

        assert store_file("file-1", attributes={"a": 2.0}, usage_bytes=9) == await storage.store_file("vs_1", "file-1")
        store = await current(storage)
        assert [] == await storage.matching(store, KeywordQuery(_terms("alpha")), None, 10)
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        assert await storage.finish(claim, indexed(["alpha three"]))
        (chunk,) = await _chunks(storage, "vs_1", "file-1")
        assert "alpha three" == chunk.text
        store = await current(storage)
        assert [chunk.id] == [
            hit.chunk_id for hit in await storage.matching(store, KeywordQuery(_terms("alpha")), None, 10)
        ]
        assert [chunk.id] == [hit.chunk_id for hit in await storage.nearest(store, unit_vectors(1)[0], None, 10)]

    async def test_batches(self, storage: SearchStorage):
        """Counted by state; what has not ended can be cancelled."""
        await storage.add_store(vector_store())
        for number in range(4):
            await upload(storage, f"file-{number}")
        await storage.attach([store_file(f"file-{number}", batch_id="vsfb_1") for number in range(3)])
        await storage.attach([store_file("file-3", batch_id="vsfb_2")])
        first, second = await storage.claim(ENCODER, LEASE_S), await storage.claim(ENCODER, LEASE_S)
        assert first is not None
        assert second is not None
        assert await storage.finish(first, indexed(["alpha"]))

        assert {"completed": 1, "in_progress": 2} == await storage.batch_counts("vs_1", "vsfb_1")
        assert 2 == await storage.cancel_batch("vs_1", "vsfb_1")
        assert 0 == await storage.cancel_batch("vs_1", "vsfb_1")
        assert {"completed": 1, "cancelled": 2} == await storage.batch_counts("vs_1", "vsfb_1")
        assert {"in_progress": 1} == await storage.batch_counts("vs_1", "vsfb_2")
        assert await storage.batch_counts("vs_1", "vsfb_0") is None
        await storage.attach([store_file("file-3", batch_id="vsfb_3")])
        assert {} == await storage.batch_counts("vs_1", "vsfb_2")
        await storage.detach("vs_1", "file-3")
        assert {} == await storage.batch_counts("vs_1", "vsfb_3")
        await storage.attach([store_file("file-3", batch_id="vsfb_2")])
        assert not await storage.finish(second, indexed(["alpha"]))
        assert not await storage.renew(second, Progress(), LEASE_S)
        assert 1 == await storage.waiting()

    async def test_chunks_are_read_back(self, storage: SearchStorage, reopen: Reopen):
        """Text, offsets and places of words, in order; by id in the order that was asked for."""
        texts = ["Factura 12 de año", "🧾 total 1.000,00 €", "a\x00b \ufffd", ""] + [f"part {n}" for n in range(600)]
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", texts)
        storage = await reopen()
        chunks = await _chunks(storage, "vs_1", "file-1")

        assert texts == [chunk.text for chunk in chunks]
        assert list(range(len(texts))) == [chunk.index for chunk in chunks]
        assert [placed_words(text) for text in texts] == [chunk.words for chunk in chunks]
        assert all(len(chunk.text) == chunk.end - chunk.start for chunk in chunks)
        assert {"file-1"} == {chunk.file_id for chunk in chunks}
        ids = [chunk.id for chunk in chunks]
        assert len(texts) == len(set(ids))
        assert [chunks[5], chunks[0]] == await storage.chunks("vs_1", [ids[5], -1, ids[0], 10**12])
        assert [] == await storage.chunks("vs_0", ids)
        assert [] == await _chunks(storage, "vs_1", "file-0")

    async def test_pages_of_a_file(self, storage: SearchStorage):
        """Those of the store that indexed it last."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])

        assert (PageSize(1, 595.0, 842.0, 0, "Hoja 1"),) == await storage.file_pages("file-1")


class TestIndexing:
    async def test_claims_in_the_order_of_waiting(self, storage: SearchStorage):
        """Each file once; nothing where nothing waits."""
        await _attached(storage, 3)
        claims = [await storage.claim(ENCODER, LEASE_S) for _ in range(4)]

        assert ["file-0", "file-1", "file-2", None] == [claim and claim.file.file_id for claim in claims]
        assert [1, 1, 1] == [claim.attempts for claim in claims if claim]
        assert {"ana"} == {claim.owner for claim in claims if claim}

    async def test_owners_take_turns(self, storage: SearchStorage, clock: ManualClock):
        """Of the owner with the fewest running files, then of the one whose last claim is the longest ago."""
        await _waiting(storage, {"ana": 6, "eva": 2, "leo": 1})
        claims = [await storage.claim(ENCODER, LEASE_S) for _ in range(5)]
        running = [claim for claim in claims if claim]

        assert ["ana-0", "eva-0", "leo-0", "ana-1", "eva-1"] == [claim.file.file_id for claim in running]
        for claim in running[:4]:  # eva's second one is still running
            assert await storage.finish(claim, indexed(["alpha"]))
        await _waiting(storage, {"leo": 2, "eva": 3}, store="more")
        later = [await storage.claim(ENCODER, LEASE_S) for _ in range(5)]
        assert ["more-leo-0", "ana-2", "eva", "more-leo-1", "ana-3"] == [
            claim and (claim.file.file_id if claim.owner != "eva" else "eva") for claim in later
        ]
        clock.advance(LEASE_S + 1)  # nobody runs any more: the longest without a claim
        again = await storage.claim(ENCODER, LEASE_S)
        assert "eva" == again.owner

    async def test_a_store_of_another_encoder_does_not_hold_up_its_owner(self, storage: SearchStorage):
        """The next store's file is claimed, as if there were no other."""
        await storage.add_store(vector_store("vs_other", encoder=OTHER_ENCODER))
        await upload(storage, "file-x")
        await storage.attach([store_file("file-x", "vs_other", created_s=0.0)])
        await _attached(storage, 1)
        claims = [await storage.claim(ENCODER, LEASE_S) for _ in range(2)]

        assert ["file-0", None] == [claim and claim.file.file_id for claim in claims]

    async def test_concurrent_claims_are_of_different_files(self, storage: SearchStorage):
        """However many ask at once."""
        await _attached(storage, 8)
        claims = await asyncio.gather(*(storage.claim(ENCODER, LEASE_S) for _ in range(12)))

        assert sorted(f"file-{n}" for n in range(8)) == sorted(claim.file.file_id for claim in claims if claim)

    async def test_a_claim_that_ran_out(self, storage: SearchStorage, clock: ManualClock):
        """Is given to the next who asks, who counts it; the one before has lost it."""
        await _attached(storage, 1)
        lost = await storage.claim(ENCODER, LEASE_S)
        clock.advance(LEASE_S - 1)
        assert lost is not None
        assert await storage.claim(ENCODER, LEASE_S) is None
        assert await storage.renew(lost, Progress("embedding", 3, 7), LEASE_S)
        clock.advance(LEASE_S - 1)
        assert await storage.claim(ENCODER, LEASE_S) is None
        clock.advance(2)
        claim = await storage.claim(ENCODER, LEASE_S)

        assert 2 == claim.attempts
        assert not await storage.renew(lost, Progress(), LEASE_S)
        assert not await storage.finish(lost, indexed(["lost"]))
        assert not await storage.fail(lost, IndexFailure("server_error", "lost"))
        await storage.release(lost)
        assert await storage.finish(claim, indexed(["kept"]))
        assert ["kept"] == [chunk.text for chunk in await _chunks(storage, "vs_1", "file-0")]

    async def test_progress_is_kept(self, storage: SearchStorage):
        """For who asks about the file."""
        await _attached(storage, 1)
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        await storage.renew(claim, Progress("reading", 2, 9), LEASE_S)
        file = await storage.store_file("vs_1", "file-0")

        assert Progress("reading", 2, 9) == file.progress

    async def test_release(self, storage: SearchStorage):
        """The file waits again, and the attempt does not count; what was read of it is known, and charged once."""
        await _attached(storage, 1)
        claim = await storage.claim(ENCODER, LEASE_S)
        await storage.renew(claim, Progress("reading", 2, 9), LEASE_S)
        await storage.release(claim)
        again = await storage.claim(ENCODER, LEASE_S)

        assert 1 == again.attempts
        assert Progress("reading", 2, 9) == again.file.progress
        assert claim.token != again.token

    async def test_finish(self, storage: SearchStorage, reopen: Reopen):
        """All of it is there at once: state, chunks, attributes, pages, the store's encoder and its counts."""
        await _attached(storage, 1)
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        found = {"document_type": ("invoice",), "invoice_total": (1210.0, 1.0), "paid": (True,)}
        assert await storage.finish(claim, indexed(["alpha", "beta"], found=found))
        assert not await storage.finish(claim, indexed(["alpha", "beta"]))

        async for opened in _before_and_after(storage, reopen):
            file, store = await opened.store_file("vs_1", "file-0"), await current(opened)
            assert ("completed", "done", 2, "en") == (file.status, file.progress.stage, file.chunks, file.language)
            assert found == {name: tuple(values) for name, values in file.found.items()}
            assert (PageSize(1, 595.0, 842.0, 0, "Hoja 1"),) == file.pages
            assert (ENCODER, 2, {"completed": 1}) == (store.encoder, store.chunks, store.counts)
            assert file.usage_bytes == store.usage_bytes
            assert await opened.claim(ENCODER, LEASE_S) is None

    async def test_finish_without_chunks(self, storage: SearchStorage):
        """A document without text is completed; the store has no encoder yet."""
        await _attached(storage, 1)
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        assert await storage.finish(claim, indexed([]))

        file = await storage.store_file("vs_1", "file-0")
        assert ("completed", 0) == (file.status, file.chunks)

    async def test_fail(self, storage: SearchStorage):
        """The reason is kept, and the store goes on."""
        await _attached(storage, 2)
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        failure = IndexFailure("invalid_file", UNICODE_NAME)
        assert await storage.fail(claim, failure)
        assert not await storage.fail(claim, failure)
        file, following = await storage.store_file("vs_1", "file-0"), await storage.claim(ENCODER, LEASE_S)

        assert ("failed", failure, "reading") == (file.status, file.failure, file.progress.stage)
        assert "file-1" == following.file.file_id

    @pytest.mark.parametrize("removal", ["detach", "delete_file", "delete_store", "attach", "cancel"])
    async def test_what_is_removed_meanwhile_is_not_stored(self, storage: SearchStorage, removal: str):
        """The claim is lost."""
        await storage.add_store(vector_store())
        await upload(storage, "file-0")
        await storage.attach([store_file("file-0", batch_id="vsfb_1")])
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        if removal == "detach":
            await storage.detach("vs_1", "file-0")
        elif removal == "delete_file":
            await storage.delete_file("ana", "file-0")
        elif removal == "delete_store":
            await storage.delete_store("ana", "vs_1")
        elif removal == "attach":
            await storage.attach([store_file("file-0")])
        else:
            await storage.cancel_batch("vs_1", "vsfb_1")

        assert not await storage.renew(claim, Progress(), LEASE_S)
        assert not await storage.finish(claim, indexed(["alpha"]))
        assert 0 == (await storage.usage("ana")).chunks

    async def test_the_encoder_of_a_store_claims_its_files(self, storage: SearchStorage):
        """Another model's process does not get them, and cannot store its vectors."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        await upload(storage, "file-2")
        await storage.attach([store_file("file-2")])

        assert await storage.claim(OTHER_ENCODER, LEASE_S) is None
        claim = await storage.claim(ENCODER, LEASE_S)
        assert claim is not None
        assert not await storage.finish(claim, indexed(["beta"], encoder=OTHER_ENCODER))
        again = await storage.claim(ENCODER, LEASE_S)
        assert "file-2" == again.file.file_id


class TestSearch:
    async def test_an_empty_store(self, storage: SearchStorage):
        """Has no hits, and no attributes."""
        await storage.add_store(vector_store())
        store = await current(storage)

        assert [] == await storage.nearest(store, unit_vectors(1)[0], None, 10)
        assert [] == await storage.matching(store, KeywordQuery(("alpha",), ("al",)), None, 10)
        assert [] == await storage.attribute_keys("vs_1")

    async def test_nearest_equals_brute_force(self, storage: SearchStorage, reopen: Reopen):
        """Order and scores of the exact product, for any limit, while files come and go and after a start."""
        await storage.add_store(vector_store())
        vectors = unit_vectors(60, seed=1)
        kept: dict[tuple[str, int], int] = {}
        for number in range(6):
            part = slice(10 * number, 10 * number + 10)
            await add_indexed(storage, f"file-{number}", [f"text {n}" for n in range(10)], vectors=vectors[part])
            kept |= {(f"file-{number}", n): 10 * number + n for n in range(10)}
            if number in {2, 4}:
                await storage.detach("vs_1", f"file-{number - 1}")
                kept = {key: row for key, row in kept.items() if key[0] != f"file-{number - 1}"}
            await _check_nearest(storage, vectors, kept)
        await _check_nearest(await reopen(), vectors, kept)

    async def test_matching_equals_brute_force(self, storage: SearchStorage, reopen: Reopen):
        """BM25 with the statistics of this store alone, while files come and go and after a start."""
        words = [f"palabra{n}" for n in range(30)]
        chosen = random.Random(7)
        await storage.add_store(vector_store())
        await storage.add_store(vector_store("vs_2"))
        await add_indexed(storage, "file-x", ["palabra1 " * 50], store_id="vs_2")
        kept: dict[tuple[str, int], str] = {}
        for number in range(6):
            texts = [" ".join(chosen.choices(words, k=chosen.randint(1, 40))) for _ in range(8)]
            await add_indexed(storage, f"file-{number}", texts)
            kept |= {(f"file-{number}", n): text for n, text in enumerate(texts)}
            if number in {2, 4}:
                await storage.detach("vs_1", f"file-{number - 1}")
                kept = {key: text for key, text in kept.items() if key[0] != f"file-{number - 1}"}
            await _check_matching(storage, kept)
        await _check_matching(await reopen(), kept)

    async def test_exact_under_any_filter(self, storage: SearchStorage):
        """Vectors and keywords give exactly the chunks of the files that fit, never fewer than there are."""
        chosen = random.Random(11)
        await storage.add_store(vector_store())
        files: dict[str, tuple[dict[str, Scalar], dict[str, list[Scalar]]]] = {}
        for number in range(40):
            attributes = {name: _value(chosen) for name in ("a", "b", "c") if chosen.random() < 0.5}
            found = {n: [_value(chosen) for _ in range(3)] for n in ("a", "b", "d") if chosen.random() < 0.5}
            await add_indexed(
                storage,
                f"file-{number}",
                ["alpha one", "alpha two"],
                vectors=unit_vectors(2, seed=number),
                attributes=attributes,
                found=found,
            )
            files[f"file-{number}"] = attributes, found
        store = await current(storage)
        for _ in range(150):
            where = _filter(chosen, depth=2)
            expected = sorted(2 * [file for file, values in files.items() if _fits(where, *values)])
            by_vector = await storage.nearest(store, unit_vectors(1, seed=99)[0], where, 1000)
            by_keyword = await storage.matching(store, KeywordQuery(_terms("alpha")), where, 1000)

            assert expected == await _files_of(storage, by_vector), where
            assert expected == await _files_of(storage, by_keyword), where
            few = await storage.nearest(store, unit_vectors(1, seed=99)[0], where, 3)
            assert by_vector[:3] == few

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            pytest.param(Comparison("n", "eq", 1.0), "1", id="number"),
            pytest.param(Comparison("n", "eq", True), "4", id="true-is-not-one"),
            pytest.param(Comparison("n", "eq", "1"), "5", id="a-string-is-no-number"),
            pytest.param(Comparison("n", "ne", 1.0), "02345", id="ne-with-absent-ones"),
            pytest.param(Comparison("n", "gt", 1.0), "2", id="gt"),
            pytest.param(Comparison("n", "gte", 1.0), "12", id="gte"),
            pytest.param(Comparison("n", "lt", 2.0), "13", id="lt"),
            pytest.param(Comparison("n", "lte", 2.0), "123", id="lte"),
            pytest.param(Comparison("n", "gt", "0"), "5", id="strings-by-code-point"),
            pytest.param(Comparison("n", "in", (1.0, "1")), "15", id="in-of-mixed-types"),
            pytest.param(Comparison("n", "in", ()), "", id="in-nothing"),
            pytest.param(Comparison("n", "nin", ()), "012345", id="nin-nothing"),
            pytest.param(Comparison("n", "nin", (1.0, 2.0, -1.5)), "045", id="nin"),
            pytest.param(Comparison("n", "gt", False), "", id="flags-have-no-order"),
            pytest.param(Comparison("unknown", "eq", 1.0), "", id="an-unknown-attribute"),
            pytest.param(Comparison("unknown", "nin", (1.0,)), "012345", id="nin-of-an-unknown-attribute"),
            pytest.param(Comparison("n", "in", tuple(float(n) for n in range(5000))), "12", id="a-long-list"),
            pytest.param(
                Compound("and", (Comparison("n", "gte", 1.0), Comparison("n", "lte", 1.5))), "1", id="a-range"
            ),
            pytest.param(Compound("or", (Comparison("n", "eq", 1.0), Comparison("n", "eq", "1"))), "15", id="or"),
        ],
    )
    async def test_filters(self, storage: SearchStorage, where: Filter, expected: str):
        """By type and value; what is absent equals nothing."""
        values: list[Scalar | None] = [None, 1.0, 2.0, -1.5, True, "1"]
        await storage.add_store(vector_store())
        for number, value in enumerate(values):
            await add_indexed(storage, f"file-{number}", ["alpha"], attributes={} if value is None else {"n": value})

        assert expected == "".join(file[-1] for file in await _filtered(storage, where))

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            pytest.param(Comparison("d", "lt", "2024-03-01"), ["file-0"], id="dates"),
            pytest.param(Comparison("d", "gt", "2024-03-02"), ["file-2", "file-3"], id="non-latin-behind-latin"),
            pytest.param(Comparison("d", "gt", "\uffff"), ["file-3"], id="by-code-point-not-by-utf-16"),
            pytest.param(Comparison("d", "eq", "AÑO"), [], id="case-counts"),
        ],
    )
    async def test_strings_are_ordered_by_code_point(self, storage: SearchStorage, where: Filter, expected: list[str]):
        """No locale folds or reorders them."""
        await storage.add_store(vector_store())
        for number, value in enumerate(["2024-02-28", "2024-03-01", "año", "\U0001f9fe"]):
            await add_indexed(storage, f"file-{number}", ["alpha"], attributes={"d": value})

        assert expected == await _filtered(storage, where)

    async def test_one_of_several_values_is_enough(self, storage: SearchStorage):
        """And ``ne`` is the opposite of ``eq``: none of them."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-0", ["alpha"], found={"person": ["Ana", "Eva"], "total": [10.0, 500.0]})
        await add_indexed(storage, "file-1", ["alpha"], found={"person": ["Eva"], "total": [10.0]})

        assert ["file-0"] == await _filtered(storage, Comparison("person", "eq", "Ana"))
        assert ["file-1"] == await _filtered(storage, Comparison("person", "ne", "Ana"))
        assert ["file-0", "file-1"] == await _filtered(storage, Comparison("person", "in", ("Eva", "Ana")))
        assert [] == await _filtered(storage, Comparison("person", "nin", ("Eva",)))
        assert ["file-0"] == await _filtered(storage, Comparison("total", "gt", 100.0))

    async def test_a_range_holds_for_one_value(self, storage: SearchStorage):
        """Two orders of one attribute in one ``and`` are not met by two of its values; elsewhere they may be."""
        await storage.add_store(vector_store())
        issued_and_due = [["2026-02-20", "2026-05-20"], ["2026-03-05", "2026-05-04"], ["2026-04-01"]]
        for number, dates in enumerate(issued_and_due):
            await add_indexed(storage, f"file-{number}", ["alpha"], found={"date": dates, "total": [10.0, 500.0, "x"]})
        bounds = Comparison("date", "gte", "2026-03-01"), Comparison("date", "lt", "2026-04-01")

        assert ["file-1"] == await _filtered(storage, Compound("and", bounds))
        nested = Compound("and", (Compound("and", bounds[:1]), Comparison("total", "gt", 100.0), *bounds[1:]))
        assert ["file-1"] == await _filtered(storage, nested)
        apart = Compound("and", (Compound("or", bounds[:1]), *bounds[1:]))
        assert ["file-0", "file-1"] == await _filtered(storage, apart)
        mixed = Comparison("total", "gt", 100.0), Comparison("total", "gt", "a")
        assert [] == await _filtered(storage, Compound("and", mixed))
        assert [] == await _filtered(storage, Compound("and", (mixed[0], Comparison("total", "lt", 400.0))))

    async def test_types_of_attributes(self, storage: SearchStorage):
        """Of each name those that its values have; none of a name or a store that is not there."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-0", ["alpha"], attributes={"a": 1.0, "b": True}, found={"c": ["x", 2.0]})
        await add_indexed(storage, "file-1", ["alpha"], attributes={"a": "x"})
        types = await storage.attribute_types("vs_1", ["a", "b", "c", "d"])

        assert {"a": {"numbers", "texts"}, "b": {"booleans"}, "c": {"numbers", "texts"}, "d": set()} == types
        assert {"a": set()} == await storage.attribute_types("vs_0", ["a"])
        assert {} == await storage.attribute_types("vs_1", [])

    async def test_equal_scores_are_ordered_by_chunk(self, storage: SearchStorage):
        """The same query gives the same page every time."""
        await storage.add_store(vector_store())
        vectors = np.repeat(unit_vectors(1), 30, axis=0)
        await add_indexed(storage, "file-1", ["alpha"] * 30, vectors=vectors)
        store, ids = await current(storage), [chunk.id for chunk in await _chunks(storage, "vs_1", "file-1")]

        assert ids[:7] == [hit.chunk_id for hit in await storage.nearest(store, vectors[0], None, 7)]
        hits = await storage.matching(store, KeywordQuery(_terms("alpha")), None, 7)
        assert ids[:7] == [hit.chunk_id for hit in hits]

    async def test_prefixes(self, storage: SearchStorage):
        """A chunk matches a beginning of its terms; a prefix's characters mean themselves."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["FA20240017", "FA20240018 FA20240017", "FB1"])
        store, ids = await current(storage), [chunk.id for chunk in await _chunks(storage, "vs_1", "file-1")]

        async def matching(*prefixes: str) -> set[int]:
            return {hit.chunk_id for hit in await storage.matching(store, KeywordQuery((), prefixes), None, 10)}

        assert set(ids[:2]) == await matching("fa2024")
        assert {ids[1]} == await matching("fa20240018")
        assert set() == await matching("fa2024%")
        assert set() == await matching("f_2024")

    @pytest.mark.parametrize("query", ["5 de marzo", "March 5", "05/03/2026", "2026-03-05", "5 marzo 2026"])
    async def test_days(self, storage: SearchStorage, query: str):
        """A day is found in every spelling, and its number alone by none; terms are kept with their capital."""
        await storage.add_store(vector_store())
        days = ["due 05/03/2026", "due 2026-03-05", "el 5 de marzo", "on March 5, 2026"]
        await add_indexed(storage, "file-1", [*days, "5 pieces, d0305", "due 2026-05-03", "on April 5"])

        store, chunks = await current(storage), await _chunks(storage, "vs_1", "file-1")
        hits = {hit.chunk_id for hit in await storage.matching(store, query_terms(query), None, 10)}
        found = {chunk.text for chunk in chunks if chunk.id in hits}

        assert set(days) <= found
        assert not found & {"5 pieces, d0305", "on April 5"}

    async def test_two_stores_are_two_worlds(self, storage: SearchStorage):
        """A store's search gives its own chunks, with scores that no other store moves."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        before = await storage.matching(await current(storage), KeywordQuery(_terms("alpha")), None, 10)
        await storage.add_store(vector_store("vs_2", owner="eva"))
        await add_indexed(storage, "file-2", ["alpha"] * 20, store_id="vs_2", owner="eva")
        after = await storage.matching(await current(storage), KeywordQuery(_terms("alpha")), None, 10)

        assert before == after
        assert 2 == len(await storage.nearest(await current(storage), unit_vectors(1)[0], None, 50))
        assert 20 == len(await storage.nearest(await current(storage, "vs_2", "eva"), unit_vectors(1)[0], None, 50))

    async def test_searches_while_files_are_added(self, storage: SearchStorage):
        """Each search sees whole files only, and no less than was acknowledged before it began."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-x", ["alpha"] * 3, vectors=unit_vectors(3))
        acknowledged = 3

        async def search() -> None:
            least = acknowledged
            hits = await storage.nearest(await current(storage), unit_vectors(1)[0], None, 1000)
            words = await storage.matching(await current(storage), KeywordQuery(_terms("alpha")), None, 1000)

            assert len(hits) >= least
            assert 0 == len(hits) % 3
            assert len(words) >= least
            assert 0 == len(words) % 3

        for number in range(10):
            searches = [asyncio.create_task(search()) for _ in range(4)]
            await add_indexed(storage, f"file-{number}", ["alpha"] * 3, vectors=unit_vectors(3, seed=number))
            acknowledged += 3
            await asyncio.gather(*searches)


class TestCopies:
    async def test_a_file_is_restored(self, storage: SearchStorage):
        """With the vectors it was read with: the copy answers as the original does, and nobody indexes it."""
        await storage.add_store(vector_store())
        await storage.add_store(vector_store("vs_2"))
        vectors = unit_vectors(3, seed=4)
        await add_indexed(storage, "file-1", ["alpha", "beta", "alpha gamma"], vectors=vectors, attributes={"a": 1.0})
        copied = await storage.file_vectors("vs_1", "file-1")
        original = await storage.store_file("vs_1", "file-1")
        assert original is not None
        copy = replace(original, store_id="vs_2", batch_id="vsfb_1", created_s=77.0)
        await storage.restore(copy, indexed(["alpha", "beta", "alpha gamma"], copied, found={"kind": ("x",)}))

        assert (3, WIDTH) == copied.shape
        assert np.abs(copied - vectors).max() < 1e-3
        restored = await storage.store_file("vs_2", "file-1")
        assert ("completed", 77.0, "vsfb_1", {"a": 1.0}) == (
            restored.status,
            restored.created_s,
            restored.batch_id,
            restored.attributes,
        )
        assert np.array_equal(copied, await storage.file_vectors("vs_2", "file-1"))
        assert await storage.claim(ENCODER, LEASE_S) is None
        for query in (KeywordQuery(_terms("alpha")), KeywordQuery(_terms("gamma"))):
            scores = [
                [hit.score for hit in await storage.matching(await current(storage, store), query, None, 9)]
                for store in ("vs_1", "vs_2")
            ]
            assert scores[0] == scores[1]
        where = Compound("and", (Comparison("kind", "eq", "x"), Comparison("a", "eq", 1.0)))
        assert 3 == len(await storage.nearest(await current(storage, "vs_2"), vectors[0], where, 9))

    async def test_what_cannot_be_restored(self, storage: SearchStorage):
        """Nothing of it is stored."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        await upload(storage, "file-2")

        with pytest.raises(WrongEncoder):
            await storage.restore(store_file("file-2"), indexed(["beta"], encoder=OTHER_ENCODER))
        with pytest.raises(NotFound):
            await storage.restore(store_file("file-0"), indexed(["beta"]))
        with pytest.raises(NotFound):
            await storage.restore(store_file("file-2", "vs_0"), indexed(["beta"]))
        assert await storage.store_file("vs_1", "file-2") is None
        assert 1 == (await current(storage)).chunks

    async def test_no_vectors(self, storage: SearchStorage):
        """Of a file that is not there, or not indexed."""
        await storage.add_store(vector_store())
        await upload(storage, "file-1")
        await storage.attach([store_file("file-1")])

        assert (0, 0) == (await storage.file_vectors("vs_1", "file-1")).shape
        assert (0, 0) == (await storage.file_vectors("vs_1", "file-0")).shape


class TestReembedding:
    async def test_the_old_vectors_answer_until_the_switch(self, storage: SearchStorage, reopen: Reopen):
        """Begun, stopped half-way, gone on with after a start, and switched; nothing is computed twice."""
        await storage.add_store(vector_store())
        old, new = unit_vectors(5, seed=1), unit_vectors(5, seed=2, width=OTHER_ENCODER.width)
        await add_indexed(storage, "file-1", [f"text {n}" for n in range(5)], vectors=old)
        ids = [chunk.id for chunk in await _chunks(storage, "vs_1", "file-1")]
        assert await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        first = await storage.unembedded("vs_1", OTHER_ENCODER, 2)
        assert [(ids[0], "text 0"), (ids[1], "text 1")] == first
        await storage.put_vectors("vs_1", OTHER_ENCODER, [*ids[:2], 10**9], np.vstack([new[:2], new[:1]]))

        storage = await reopen()
        store = await current(storage)
        assert ENCODER == store.encoder
        assert (OTHER_ENCODER, 2, 5) == (
            store.reembedding.encoder,
            store.reembedding.chunks_done,
            store.reembedding.chunks_total,
        )
        assert [store] == await storage.reembedding_stores(OTHER_ENCODER)
        assert [] == await storage.reembedding_stores(ENCODER)
        assert ids[3] == (await storage.nearest(store, old[3], None, 1))[0].chunk_id
        assert not await storage.switch_encoder("vs_1", OTHER_ENCODER)
        rest = await storage.unembedded("vs_1", OTHER_ENCODER, 100)
        assert ids[2:] == [chunk_id for chunk_id, _ in rest]
        await storage.put_vectors("vs_1", OTHER_ENCODER, ids[2:], new[2:])
        assert await storage.switch_encoder("vs_1", OTHER_ENCODER)

        switched = await current(storage)
        assert (OTHER_ENCODER, None) == (switched.encoder, switched.reembedding)
        assert [] == await storage.reembedding_stores(OTHER_ENCODER)
        hits = await storage.nearest(switched, new[3], None, 5)
        assert ids[3] == hits[0].chunk_id
        assert 1.0 == pytest.approx(hits[0].score, abs=1e-3)
        assert 5 == len(hits)
        with pytest.raises(WrongEncoder):
            await storage.nearest(store, old[3], None, 1)

    async def test_batches_begin_behind_the_last_one(self, storage: SearchStorage):
        """Over files and stores; what has a vector already is left out."""
        await storage.add_store(vector_store())
        await storage.add_store(vector_store("vs_2"))
        for number in range(4):
            await add_indexed(storage, f"file-{number}", ["alpha", "beta", "gamma"])
            await add_indexed(storage, f"file-{number}", ["other"], store_id="vs_2")
        ids: list[int] = []
        for number in range(4):
            ids += [chunk.id for chunk in await _chunks(storage, "vs_1", f"file-{number}")]
        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        await storage.put_vectors("vs_1", OTHER_ENCODER, ids[4:6], unit_vectors(2, width=OTHER_ENCODER.width))
        batches, behind = [], 0
        while batch := await storage.unembedded("vs_1", OTHER_ENCODER, 3, behind=behind):
            batches.append([chunk_id for chunk_id, _ in batch])
            behind = batches[-1][-1]

        assert [ids[:3], [ids[3], *ids[6:8]], ids[8:11], ids[11:]] == batches

    async def test_files_that_come_meanwhile_are_of_the_coming_encoder(self, storage: SearchStorage):
        """They need no second pass, and the switch includes them."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        await add_indexed(storage, "file-2", ["beta"], encoder=OTHER_ENCODER)
        waiting = await storage.unembedded("vs_1", OTHER_ENCODER, 10)

        assert ["alpha"] == [text for _, text in waiting]
        await storage.put_vectors("vs_1", OTHER_ENCODER, [waiting[0][0]], unit_vectors(1, width=OTHER_ENCODER.width))
        assert await storage.switch_encoder("vs_1", OTHER_ENCODER)
        query = unit_vectors(1, width=OTHER_ENCODER.width)[0]
        assert 2 == len(await storage.nearest(await current(storage), query, None, 10))

    async def test_what_is_done_is_counted(self, storage: SearchStorage):
        """While vectors come, twice too, and files come and go."""
        await storage.add_store(vector_store())
        for number in range(3):
            await add_indexed(storage, f"file-{number}", ["alpha", "beta"])
        ids = [chunk_id for chunk_id, _ in await storage.unembedded("vs_1", OTHER_ENCODER, 10)]
        vectors = unit_vectors(6, width=OTHER_ENCODER.width)
        done = []

        async def count() -> None:
            reembedding = (await current(storage)).reembedding
            done.append((reembedding.chunks_done, reembedding.chunks_total))

        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        await count()
        for part in (slice(0, 3), slice(1, 4)):
            await storage.put_vectors("vs_1", OTHER_ENCODER, ids[part], vectors[part])
            await count()
        await storage.detach("vs_1", "file-1")
        await count()
        await add_indexed(storage, "file-3", ["gamma"], encoder=OTHER_ENCODER)
        await count()
        await storage.delete_file("ana", "file-2")
        await count()

        assert [(0, 6), (3, 6), (4, 6), (2, 4), (3, 5), (3, 3)] == done
        assert await storage.switch_encoder("vs_1", OTHER_ENCODER)

    async def test_an_encoder_that_comes_back(self, storage: SearchStorage):
        """Its new vectors are not taken for the old ones that were dropped."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha", "beta"])
        for encoder in (OTHER_ENCODER, ENCODER, OTHER_ENCODER):
            await storage.begin_reembedding("vs_1", encoder)
            ids = [chunk_id for chunk_id, _ in await storage.unembedded("vs_1", encoder, 10)]
            vectors = unit_vectors(len(ids), width=encoder.width)
            await storage.put_vectors("vs_1", encoder, ids, vectors)
            assert await storage.switch_encoder("vs_1", encoder)
            await storage.swept()
            hits = await storage.nearest(await current(storage), unit_vectors(1, width=encoder.width)[0], None, 10)

            assert 2 == len(ids)
            assert 2 == len(hits)

    async def test_a_third_encoder_takes_over(self, storage: SearchStorage):
        """What was computed for the second is dropped; the first still answers."""
        third = EncoderIdentity("fingerprint-c", "encoder-c", 8)
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        (chunk,) = await _chunks(storage, "vs_1", "file-1")
        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        await storage.put_vectors("vs_1", OTHER_ENCODER, [chunk.id], unit_vectors(1, width=OTHER_ENCODER.width))
        await storage.begin_reembedding("vs_1", third)

        assert not await storage.switch_encoder("vs_1", OTHER_ENCODER)
        assert [chunk.id] == [chunk_id for chunk_id, _ in await storage.unembedded("vs_1", third, 10)]
        assert 1 == len(await storage.nearest(await current(storage), unit_vectors(1)[0], None, 10))

    async def test_to_begin_with_its_own_encoder_is_to_stop(self, storage: SearchStorage):
        """The store is as it was."""
        await storage.add_store(vector_store())
        await add_indexed(storage, "file-1", ["alpha"])
        before = await current(storage)
        await storage.begin_reembedding("vs_1", OTHER_ENCODER)
        await storage.begin_reembedding("vs_1", ENCODER)

        assert before == await current(storage)

    async def test_a_store_that_is_gone(self, storage: SearchStorage):
        """Nothing happens."""
        assert not await storage.begin_reembedding("vs_0", ENCODER)
        assert not await storage.switch_encoder("vs_0", ENCODER)
        assert [] == await storage.unembedded("vs_0", ENCODER, 10)
        await storage.put_vectors("vs_0", ENCODER, [1], unit_vectors(1))


async def _before_and_after(storage: SearchStorage, reopen: Reopen) -> AsyncIterator[SearchStorage]:
    """The storage, then another over the same data."""
    yield storage
    yield await reopen()


def _terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text_terms(text, "en")))


def _last(files: Sequence[StoreFile]) -> str:
    return "".join(file.file_id[-1] for file in files)


async def _chunks(storage: SearchStorage, store_id: str, file_id: str) -> list:
    return [chunk async for chunk in storage.file_chunks(store_id, file_id)]


async def _attached(storage: SearchStorage, count: int) -> None:
    await storage.add_store(vector_store())
    for number in range(count):
        await upload(storage, f"file-{number}")
        await storage.attach([store_file(f"file-{number}", created_s=float(number))])


async def _waiting(storage: SearchStorage, owners: Mapping[str, int], *, store: str = "") -> None:
    """Files of several owners, each in a store of its own; those of the first have waited longest."""
    created_s = 0.0
    for owner, count in owners.items():
        prefix = f"{store}-{owner}" if store else owner
        await storage.add_store(vector_store(f"vs_{prefix}", owner=owner))
        for number in range(count):
            await upload(storage, f"{prefix}-{number}", owner=owner)
            created_s += 1.0
            await storage.attach([store_file(f"{prefix}-{number}", f"vs_{prefix}", created_s=created_s)])


async def _files_of(storage: SearchStorage, hits: Sequence) -> list[str]:
    return sorted(chunk.file_id for chunk in await storage.chunks("vs_1", [hit.chunk_id for hit in hits]))


async def _filtered(storage: SearchStorage, where: Filter) -> list[str]:
    """The files that a filter lets through, by both searches."""
    store = await current(storage)
    by_vector = await storage.nearest(store, unit_vectors(1)[0], where, 100)
    by_keyword = await storage.matching(store, KeywordQuery(_terms("alpha")), where, 100)
    files = await _files_of(storage, by_vector)

    assert files == await _files_of(storage, by_keyword)
    return files


async def _check_nearest(storage: SearchStorage, vectors: np.ndarray, kept: Mapping[tuple[str, int], int]) -> None:
    store, query = await current(storage), unit_vectors(1, seed=50)[0]
    for limit in (1, 7, 1000):
        hits = await storage.nearest(store, query, None, limit)
        chunks = await storage.chunks("vs_1", [hit.chunk_id for hit in hits])
        expected = sorted(kept, key=lambda key: -float(vectors[kept[key]] @ query))[:limit]

        assert expected == [(chunk.file_id, chunk.index) for chunk in chunks]
        for key, hit in zip(expected, hits, strict=True):
            assert float(vectors[kept[key]] @ query) == pytest.approx(hit.score, abs=2e-3)  # float16


async def _check_matching(storage: SearchStorage, kept: Mapping[tuple[str, int], str]) -> None:
    store = await current(storage)
    words = {key: text_terms(text, "en") for key, text in kept.items()}
    query = KeywordQuery((*_terms("palabra3 palabra7 palabra11"), "absent", *_terms("palabra3")), ("palabra2",))
    average = sum(map(len, words.values())) / len(words)
    scores = dict.fromkeys(words, 0.0)
    phrases = [lambda term, wanted=wanted: term == wanted for wanted in dict.fromkeys(query.terms)]
    phrases += [lambda term, prefix=prefix: term.startswith(prefix) for prefix in query.prefixes]
    for phrase in phrases:
        times = {key: sum(map(phrase, terms)) for key, terms in words.items()}
        weight = idf(len(words), sum(count > 0 for count in times.values()))
        for key, count in times.items():
            norm = K1 * (1 - B + B * len(words[key]) / average)
            scores[key] += weight * count * (K1 + 1) / (count + norm)
    for limit in (3, 1000):
        hits = await storage.matching(store, query, None, limit)
        chunks = await storage.chunks("vs_1", [hit.chunk_id for hit in hits])
        expected = sorted((score for score in scores.values() if score > 0), reverse=True)[:limit]

        assert expected == pytest.approx([hit.score for hit in hits], rel=1e-4)
        found = [scores[chunk.file_id, chunk.index] for chunk in chunks]
        assert expected == pytest.approx(found, rel=1e-4)


def _value(chosen: random.Random) -> Scalar:
    return chosen.choice([0.0, 1.0, 2.0, -1.5, "x", "y", "1", "año", True, False])


def _filter(chosen: random.Random, depth: int) -> Filter:
    if depth and chosen.random() < 0.5:
        parts = tuple(_filter(chosen, depth - 1) for _ in range(chosen.randint(1, 3)))
        return Compound(chosen.choice(["and", "or"]), parts)
    kind = chosen.choice(["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"])
    value = tuple(_value(chosen) for _ in range(chosen.randint(0, 3))) if kind in {"in", "nin"} else _value(chosen)
    return Comparison(chosen.choice("abcde"), kind, value)


def _fits(where: Filter, attributes: Mapping[str, Scalar], found: Mapping[str, Sequence[Scalar]]) -> bool:
    """The truth about a filter, in plain Python."""
    if isinstance(where, Compound):
        if where.type == "or":
            return any(_fits(part, attributes, found) for part in where.filters)
        parts = _and_parts(where)
        orders = [part for part in parts if isinstance(part, Comparison) and part.type in {"gt", "gte", "lt", "lte"}]
        rest = [part for part in parts if part not in orders]
        return all(_fits(part, attributes, found) for part in rest) and all(
            any(
                all(_fits(order, {key: value}, {}) for order in orders if order.key == key)
                for value in _values_of(key, attributes, found)
            )
            for key in {order.key for order in orders}
        )
    values = _values_of(where.key, attributes, found)
    wanted = where.value if isinstance(where.value, tuple) else (where.value,)

    def kind(value: Scalar) -> type:
        return type(value) if isinstance(value, bool | str) else float

    pairs = [(a, b) for a in values for b in wanted if kind(a) is kind(b)]
    if where.type in {"eq", "in", "ne", "nin"}:
        return any(a == b for a, b in pairs) == (where.type in {"eq", "in"})
    pairs = [(a, b) for a, b in pairs if not isinstance(b, bool)]
    return any(
        {"gt": a > b, "gte": a >= b, "lt": a < b, "lte": a <= b}[where.type]  # type: ignore[operator]
        for a, b in pairs
    )


def _and_parts(where: Compound) -> list[Filter]:
    """What an ``and`` joins, with what an ``and`` in it joins."""
    parts: list[Filter] = []
    for part in where.filters:
        parts += _and_parts(part) if isinstance(part, Compound) and part.type == "and" else [part]
    return parts


def _values_of(key: str, attributes: Mapping[str, Scalar], found: Mapping[str, Sequence[Scalar]]) -> list[Scalar]:
    return [attributes[key]] if key in attributes else list(found.get(key, ()))
