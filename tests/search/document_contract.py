"""What stored documents do over every storage: imported by the tests of each, as `storage_contract`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from backend.errors import Conflict, FinanciaError, InvalidField, NotFound, QuotaExceeded, TooLarge
from backend.search.corrected_answer import corrected_answer, fits, values_of
from backend.search.document_sql import position_of
from backend.search.files import FileService
from backend.search.limits import SearchLimits
from backend.search.records import ConfirmedDocument, DocumentQuery, ListPage, StoredDocument
from backend.search.storage import SearchStorage
from backend.search.stored_documents import LessonOf, StoredDocuments
from tests.fakes import ManualClock
from tests.search.samples import INVOICE, wire_answer, wire_document
from tests.search.samples import stored as stored_bytes
from tests.search.storage_contract import Reopen

_FIRST = ListPage()


class Documents:
    """Stored documents over a storage, with short words for what tests do."""

    def __init__(
        self,
        storage: SearchStorage,
        *,
        limits: SearchLimits | None = None,
        lesson_of: LessonOf = lambda _: None,
        quota: int | None = None,
    ) -> None:
        self.storage, self.clock = storage, ManualClock()
        self.files = FileService(
            storage, limits or SearchLimits(), render_page=_no_page, now=self.clock, bytes_of=lambda _owner: quota
        )
        self.service = StoredDocuments(storage, self.files, lesson_of=lesson_of)

    async def add(
        self,
        *documents: Mapping[str, Any],
        owner: str = "ana",
        content: bytes = b"%PDF",
        expires_after_s: float | None = None,
        pages: int = 2,
        **head: Any,
    ) -> StoredDocument:
        """Keep a file. Args: pages, how many were read; head, further members of the answer."""
        self.clock.advance(1.0)
        answer = {**wire_answer(*documents, pages=pages), **head}
        with stored_bytes(content) as kept:
            return await self.service.add(owner, kept, "factura.pdf", answer, expires_after_s=expires_after_s)

    async def correct(
        self, stored: StoredDocument, by: str = "eva", document: int = 0, **fields: Any
    ) -> StoredDocument:
        revision = stored.revision
        return await self.service.correct("ana", by, stored.id, document, fields, revision=revision)

    async def ids(self, page: ListPage = _FIRST, **query: Any) -> list[str]:
        listed, _ = await self.service.list_documents("ana", DocumentQuery(**query), page)
        return [one.id for one in listed]


async def _no_page(*_arguments: Any, **_options: Any) -> bytes:
    return b""


@pytest.fixture
def documents(storage: SearchStorage) -> Documents:
    return Documents(storage)


def _fields(stored: StoredDocument, document: int = 0) -> dict[str, str]:
    fields = corrected_answer(stored)["documents"][document]["fields"]
    return {name: field["value"] for name, field in fields.items()}


class TestStoredDocuments:
    async def test_is_read_back(self, documents: Documents, reopen: Reopen):
        """Record, pages and corrections are there after a restart; vectors are not kept."""
        stored = await documents.add(expires_after_s=9e9)
        changed = await documents.correct(stored, InvoiceId="2026/018")

        again = Documents(await reopen())
        read = await again.service.get("ana", stored.id)

        assert changed == read
        assert (2, "to_review", {**INVOICE, "InvoiceId": "2026/018"}) == (read.revision, read.state, _fields(read))
        assert "FACTURA" == (await again.service.pages("ana", stored.id))[0]["words"][0]["text"]
        assert not {"vector", "chunks", "pages"} & read.answer.keys()

    async def test_somebody_elses_is_not_there(self, documents: Documents):
        """For no call; the message tells nothing of it."""
        stored = await documents.add()
        service, said = documents.service, set()

        for call in (
            service.get("eva", stored.id),
            service.pages("eva", stored.id),
            service.correct("eva", "eva", stored.id, 0, {"InvoiceId": "1"}, revision=1),
            service.confirm("eva", "eva", stored.id),
            service.delete("eva", stored.id),
        ):
            with pytest.raises(NotFound) as refused:
                await call
            said.add(str(refused.value))

        assert {f"id: there is no document '{stored.id}'"} == said
        assert ([], False) == await service.list_documents("eva", DocumentQuery(), ListPage())
        assert stored == await service.get("ana", stored.id)

    async def test_deleted_is_gone_with_all_of_it(self, documents: Documents):
        """File, record and lessons; whoever edits it is told that it was deleted."""
        taught = Documents(documents.storage, lesson_of=lambda _: (["nif"], {}))
        stored = await taught.add()
        await taught.service.confirm("ana", "eva", stored.id)
        before = await documents.storage.usage("ana")

        await documents.files.delete("ana", stored.id)

        with pytest.raises(NotFound, match="was deleted; what was changed in it is gone"):
            await documents.correct(stored, InvoiceId="1")
        assert [] == await taught.storage.lessons("ana", ["nif"], limit=20)
        assert before.bytes > 4
        assert (0, 0) == ((await documents.storage.usage("ana")).files, (await documents.storage.usage("ana")).bytes)

    async def test_an_expired_one_is_not_there(self, documents: Documents):
        """Also before anybody has deleted it."""
        stored = await documents.add(expires_after_s=3600.0)
        documents.clock.advance(3600.0)

        with pytest.raises(NotFound):
            await documents.service.get("ana", stored.id)
        assert [] == await documents.ids()
        assert [] == [one async for one in documents.service.each("ana")]

    @pytest.mark.parametrize(
        ("limits", "quota", "error"),
        [
            pytest.param(SearchLimits(stored_files=1), None, TooLarge, id="files"),
            pytest.param(SearchLimits(stored_bytes=1000), None, TooLarge, id="bytes-with-those-of-the-record"),
            pytest.param(SearchLimits(), 1000, QuotaExceeded, id="quota-of-the-key"),
        ],
    )
    async def test_quotas_count_the_record(
        self, storage: SearchStorage, limits: SearchLimits, quota: int | None, error: type[FinanciaError]
    ):
        """A document counts as a file and by the bytes of file and record; what is refused leaves nothing."""
        documents = Documents(storage, limits=limits, quota=quota)
        first = await documents.add()

        with pytest.raises(error):
            await documents.add()

        assert [first.id] == await documents.ids()
        assert 1 == (await storage.usage("ana")).files

    async def test_corrections_count_too(self, storage: SearchStorage):
        """A correction over the quota changes nothing."""
        roomy = Documents(storage)
        stored = await roomy.add()
        tight = Documents(storage, quota=(await storage.usage("ana")).bytes + 20)

        with pytest.raises(QuotaExceeded):
            await tight.correct(stored, PaymentTerm="transferencia a sesenta días, fecha de factura, en 2 plazos")

        assert stored == await roomy.service.get("ana", stored.id)


class TestCorrections:
    async def test_a_value_with_its_place(self, documents: Documents):
        """Who, when, what stood there before; without a place it stands where it was read."""
        stored = await documents.add()
        box = [[10, 20, 30.5, 40]]

        changed = await documents.correct(
            stored, InvoiceId="2026/018", DueDate={"value": "2026-04-12", "page": 2.0, "boxes": box}
        )

        fields = corrected_answer(changed)["fields"]
        at_s = changed.updated_s
        assert {"by": "eva", "at": at_s, "read": "2026/017"} == fields["InvoiceId"]["corrected"]
        assert ("person", 1, [[1.0, 2.0, 3.0, 4.0]]) == tuple(
            fields["InvoiceId"][k] for k in ("source", "page", "boxes")
        )
        assert ("2026-04-12", 2, box) == tuple(fields["DueDate"][k] for k in ("value", "page", "boxes"))
        assert ("2026/017", "read") == (stored.answer["documents"][0]["fields"]["InvoiceId"]["value"], "read")

    async def test_lists_kinds_and_what_is_not_there(self, documents: Documents):
        """Rows are replaced as a whole; null takes a field away."""
        stored = await documents.add()
        rows = [{"Type": "IVA", "Rate": "21", "Base": "100.00", "Amount": {"value": "21.00", "page": 1}}]

        changed = await documents.correct(stored, TaxDetails=rows, VendorName=None, kind="receipt")

        document = corrected_answer(changed)["documents"][0]
        assert ["21.00"] == [row["Amount"]["value"] for row in document["fields"]["TaxDetails"]["value"]]
        assert ("receipt", False) == (document["kind"], "VendorName" in document["fields"])

    async def test_the_second_person_is_told(self, documents: Documents):
        """Who changed what since; nothing is written over, and of two at once one is told."""
        stored = await documents.add()
        changes = [documents.correct(stored, by, InvoiceId=f"F/{by}") for by in ("eva", "leo")]

        won, told = sorted(
            await asyncio.gather(*changes, return_exceptions=True), key=lambda r: isinstance(r, Conflict)
        )

        assert isinstance(won, StoredDocument)
        assert isinstance(told, Conflict)
        assert won == await documents.service.get("ana", stored.id)
        assert f"is at 2, you have seen 1: {won.changes[0].by} corrected InvoiceId" in str(told)

    async def test_many_at_once_without_a_revision(self, documents: Documents):
        """None is lost: each is written behind the one before."""
        stored = await documents.add()
        fields = ("InvoiceId", "DueDate", "VendorName")
        values = ("1", "2026-05-01", "Eva")

        await asyncio.gather(
            *(
                documents.service.correct("ana", "eva", stored.id, 0, {name: value}, revision=None)
                for name, value in zip(fields, values, strict=True)
            )
        )

        read = await documents.service.get("ana", stored.id)
        assert 4 == read.revision
        assert values == tuple(_fields(read)[name] for name in fields)

    @pytest.mark.parametrize(
        ("fields", "problems"),
        [
            pytest.param({"VendorTaxId": "B12345675"}, [("check_digits", "B12345675")], id="tax-id"),
            pytest.param({"IBAN": "ES00 2100-0418"}, [("check_digits", "ES0021000418")], id="iban"),
            pytest.param({"VendorTaxId": "b-12345674"}, [], id="right-id"),
            pytest.param({"InvoiceTotal": "122.00"}, [("arithmetic", "122.00")], id="total"),
            pytest.param({"InvoiceTotal": "122.00", "TotalTax": "22.00"}, [], id="adds-up-again"),
            pytest.param({"WithholdingAmount": "15.00", "InvoiceTotal": "106.00"}, [], id="less-withholding"),
            pytest.param(
                {"TaxDetails": [{"Rate": "21", "Base": "100.00", "Amount": "20.00"}]},
                [("arithmetic", "20.00"), ("arithmetic", "21.00")],
                id="rates",
            ),
        ],
    )  # fmt: skip
    async def test_what_contradicts_itself_is_kept_and_marked(
        self, documents: Documents, fields: dict[str, Any], problems: list[tuple[str, str]]
    ):
        """The person is right; what does not fit is given back as codes."""
        changed = await documents.correct(await documents.add(), **fields)

        [checked] = await documents.service.checked("ana", [changed])

        assert problems == [(one["code"], one.get("value", one.get("printed"))) for one in checked.problems]
        assert (not problems or problems[0][0] != "arithmetic") == corrected_answer(changed)["valid"]["totals"]

    async def test_a_charge_that_is_no_field_stays_right(self, documents: Documents):
        """Where the read amounts add up by a charge that has no name here, they do after a correction beside it."""
        invoice = {**INVOICE, "InvoiceTotal": "123.00"}
        stored = await documents.add(wire_document(**invoice))

        changed = await documents.correct(stored, SubTotal="100.00")

        assert corrected_answer(changed)["valid"]["totals"] is True

    async def test_bytes_of_changes(self, documents: Documents):
        """Each answer is made of all changes, so that they are bounded together, not each."""
        stored = await documents.add()
        rows = [{"Description": "x" * 1_900}] * 1_000
        for _ in range(2):
            stored = await documents.correct(stored, Items=rows)

        with pytest.raises(TooLarge, match=r"bytes of changes: \d+ is over the limit of 4194304"):
            await documents.correct(stored, Items=rows)
        assert stored == await documents.service.get("ana", stored.id)

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            pytest.param({"InvoiceDate": "12/03/2026"}, "a date such as 2026-03-12", id="date"),
            pytest.param({"InvoiceDate": "2026-02-30"}, "a date such as", id="no-such-day"),
            pytest.param({"InvoiceTotal": "1.284,50"}, "a decimal such as", id="number"),
            pytest.param({"InvoiceTotal": "1e9"}, "a decimal such as", id="exponent"),
            pytest.param({"InvoiceTotal": "١٢"}, "a decimal such as", id="other-digits"),
            pytest.param({"CurrencyCode": "€"}, "ISO 4217", id="currency"),
            pytest.param({"VendorTaxId": "---"}, "an id of at most 64", id="id"),
            pytest.param({"TransactionTime": "25:00"}, "a time of day", id="time"),
            pytest.param({"VendorName": " "}, "is empty; send null", id="empty"),
            pytest.param({"VendorName": "a\x00b"}, "U\\+0000", id="control"),
            pytest.param({"VendorName": "x" * 10_000}, "10000 is over the limit of 2000", id="long"),
            pytest.param({"VendorName": 5}, "must be a text, or an object", id="type"),
            pytest.param({"Total": {"value": "1", "boxes": [[1, 2]]}}, "boxes of four numbers", id="box"),
            pytest.param({"Total": {"value": "1", "boxes": [[1, 2, 3, float("nan")]]}}, "four numbers", id="nan"),
            pytest.param({"Total": {"value": "1", "page": -1}}, "whole number from 0", id="page"),
            pytest.param({"Total": {"value": "1", "end": 1.5}}, "whole number from 0", id="end"),
            pytest.param({"Nombre": "x"}, "is no field; there are", id="unknown"),
            pytest.param({"Items": "x"}, "list of objects of Description", id="list"),
            pytest.param({"Items": [{"Price": "1"}]}, r"Items\[0\].Price: is no column", id="column"),
            pytest.param({"Items": [{"Amount": "x"}]}, r"Items\[0\].Amount: must be a decimal", id="cell"),
            pytest.param({"Items": [{}] * 1001}, "1001 is over the limit of 1000", id="rows"),
            pytest.param({"kind": "letter"}, "one of invoice, credit_note", id="kind"),
            pytest.param({}, "name at least one", id="nothing"),
        ],
    )
    async def test_refused(self, documents: Documents, fields: dict[str, Any], said: str):
        """What, how much, the limit and what to send instead; nothing has changed."""
        stored = await documents.add()

        with pytest.raises((InvalidField, TooLarge), match=said):
            await documents.correct(stored, **fields)

        assert stored == await documents.service.get("ana", stored.id)


class TestCut:
    """A file that is cut into documents by hand."""

    @staticmethod
    async def _cut(
        documents: Documents, stored: StoredDocument, *cut: str, revision: int | None = None
    ) -> StoredDocument:
        async def read(
            _stored: StoredDocument, _content: Mapping[str, Any], parts: Sequence[Sequence[int]]
        ) -> list[dict[str, Any]]:
            names = [f"read {part[0]}-{part[-1]}" for part in parts]
            made = [wire_document(part, InvoiceId=name) for part, name in zip(parts, names, strict=True)]
            return [{key: value for key, value in one.items() if key != "tables"} for one in made]

        return await documents.service.split("ana", "eva", stored.id, cut, read, revision=revision)

    async def test_what_stays_keeps_what_people_did(self, documents: Documents, reopen: Reopen):
        """Documents whose pages change are read anew; others keep corrections and confirmation, wherever they stand."""
        stored = await documents.add(wire_document((1,), **INVOICE), wire_document((2,), **INVOICE), pages=4)
        stored = await documents.correct(stored, document=1, InvoiceId="mine")
        stored = await documents.service.confirm("ana", "eva", stored.id, 1)
        stored = await self._cut(documents, stored, "1,3", "4", "2", revision=stored.revision)

        kept = await Documents(await reopen()).service.get("ana", stored.id)

        assert (4, (False, False, True)) == (kept.revision, kept.confirmed)
        assert ["read 1-3", "read 4-4", "mine"] == [_fields(kept, index)["InvoiceId"] for index in range(3)]
        assert [[1, 3], [4], [2]] == [list(one["pages"]) for one in corrected_answer(kept)["documents"]]

    async def test_lists_and_corrections_follow(self, documents: Documents):
        """Filters find the new documents alone, and later changes are of these."""
        stored = await documents.add(wire_document((1, 2), **INVOICE))
        stored = await documents.correct(stored, InvoiceId="gone")
        stored = await self._cut(documents, stored, "1", "2")
        stored = await documents.correct(stored, document=1, InvoiceId="mine")

        assert [[], [stored.id], [stored.id]] == [
            await documents.ids(number=number) for number in ("gone", "read 1-1", "mine")
        ]
        assert ["read 1-1", "mine"] == [_fields(stored, index)["InvoiceId"] for index in range(2)]
        joined = await self._cut(documents, stored, "1-2")
        assert ["read 1-2"] == [_fields(joined)["InvoiceId"]]
        assert ["correct", "split", "correct", "split"] == [change.action for change in joined.changes]

    async def test_as_it_is(self, documents: Documents):
        """A cut that is there already changes nothing, so that it may be sent again."""
        stored = await documents.add()

        assert stored == await self._cut(documents, stored, "1") == await documents.service.get("ana", stored.id)

    @pytest.mark.parametrize(
        ("cut", "said"),
        [
            pytest.param(("1", "1-2"), "page 1 is in documents.0., too", id="a-page-twice"),
            pytest.param(("1", "7"), r"documents.1..pages: '7' .* the file has 4", id="a-page-that-is-not-there"),
            pytest.param(("3",), "page 3 was not read", id="a-page-that-was-not-read"),
            pytest.param(("2-1",), "did you mean 1-2", id="backwards"),
            pytest.param((" ",), "is empty", id="no-page"),
        ],
    )
    async def test_refused(self, documents: Documents, cut: Sequence[str], said: str):
        """The message says which pages; nothing changes."""
        stored = await documents.add(wire_document((1,), **INVOICE), page_count=4)

        with pytest.raises(InvalidField, match=said):
            await self._cut(documents, stored, *cut)

        assert stored == await documents.service.get("ana", stored.id)

    async def test_not_of_what_others_changed(self, documents: Documents):
        """With the revision of before it is refused, and says who was faster."""
        stored = await documents.add()
        await documents.correct(stored, InvoiceId="9")

        with pytest.raises(Conflict, match="eva corrected InvoiceId"):
            await self._cut(documents, stored, "1", "2", revision=1)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [({"kind": "audio"}, "a recording"), ({"source": "xml"}, "electronic invoice in the file is of the whole")],
    )
    async def test_not_divisible(self, documents: Documents, changes: Mapping[str, str], said: str):
        """Recordings have no documents, and data in a file is of the whole file."""
        document = wire_document((1, 2), **INVOICE)
        document["fields"]["InvoiceId"]["source"] = changes.get("source", "text")
        stored = await documents.add(document, kind=changes.get("kind", "pdf"))

        with pytest.raises(InvalidField, match=said):
            await self._cut(documents, stored, "1", "2")


class TestReview:
    async def test_each_document_of_a_file(self, documents: Documents):
        """A file is confirmed once all its documents are; a correction opens its document again."""
        stored = await documents.add(wire_document((1,), **INVOICE), wire_document((2,), **INVOICE))
        states = []

        for document in (0, 1):
            stored = await documents.service.confirm("ana", "eva", stored.id, document, revision=stored.revision)
            states.append((stored.state, stored.confirmed))
        stored = await documents.correct(stored, document=1, InvoiceId="9")
        states.append((stored.state, stored.confirmed))
        await documents.service.confirm("ana", "eva", stored.id)
        stored = await documents.service.reopen("ana", "eva", stored.id, 0)
        states.append((stored.state, stored.confirmed))

        partly, whole = ("to_review", (True, False)), ("confirmed", (True, True))
        assert [partly, whole, partly, ("to_review", (False, True))] == states
        assert ["9"] == [_fields(one, 1)["InvoiceId"] for one in [await documents.service.get("ana", stored.id)]]

    async def test_lessons(self, storage: SearchStorage):
        """Are made of a document as it is corrected, with its pages; its owner finds them by any key, newest first."""
        seen: list[ConfirmedDocument] = []

        def lesson_of(confirmed: ConfirmedDocument) -> tuple[list[str], dict[str, Any]]:
            seen.append(confirmed)
            return ["nif:1", "name:a"], {"number": confirmed.fields["InvoiceId"]["value"]}

        documents = Documents(storage, lesson_of=lesson_of)
        first, second = await documents.add(), await documents.add()
        await documents.service.confirm("ana", "eva", (await documents.correct(first, InvoiceId="F1")).id)
        documents.clock.advance(5.0)
        await documents.service.confirm("ana", "eva", second.id)

        found = await documents.storage.lessons("ana", ["name:a", "nif:1"], limit=20)
        await documents.service.reopen("ana", "eva", second.id)

        assert [(second.id, "2026/017"), (first.id, "F1")] == [(one.file_id, one.lesson["number"]) for one in found]
        assert "FACTURA" == seen[0].pages[0]["text"]
        assert [first.id] == [one.file_id for one in await documents.storage.lessons("ana", ["nif:1"], limit=20)]
        assert [] == await documents.storage.lessons("eva", ["nif:1"], limit=20)
        assert [] == await documents.storage.lessons("ana", [], limit=20)


class TestLists:
    @pytest.fixture
    async def several(self, documents: Documents) -> list[str]:
        """Three invoices and a receipt without fields."""
        made = [
            ("Aceros 100%", "B12345674", "A/1", "2026-01-31", "50.00"),
            ("Óptica_Sol", "A58818501", "A/2", "2026-03-01", "1000.00"),
            ("aceros del sur", "B12345674", "A/3", "2026-02-01", "-7.50"),
        ]
        names = ("VendorName", "VendorTaxId", "InvoiceId", "InvoiceDate", "InvoiceTotal")
        stored = [
            await documents.add(wire_document(**dict(zip(names, values, strict=True))), content=values[2].encode())
            for values in made
        ]
        stored.append(await documents.add(wire_document(kind="receipt"), content=b"r"))
        await documents.service.confirm("ana", "eva", stored[0].id)
        return [one.id for one in stored]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            pytest.param({"state": "confirmed"}, [0], id="state"),
            pytest.param({"kind": "receipt"}, [3], id="kind"),
            pytest.param({"supplier": "ACEROS"}, [0, 2], id="part-of-a-name"),
            pytest.param({"supplier": "óptica_"}, [1], id="no-wildcard"),
            pytest.param({"supplier": "0%"}, [0], id="percent"),
            pytest.param({"supplier": "a-58818501"}, [1], id="tax-id-as-supplier"),
            pytest.param({"supplier_tax_id": "B12345674"}, [0, 2], id="tax-id"),
            pytest.param({"supplier_tax_id": "ES-B12345674"}, [0, 2], id="VAT-number"),
            pytest.param({"number": "a-2"}, [1], id="number"),
            pytest.param({"date_from": "2026-02-01", "date_to": "2026-03-01"}, [1, 2], id="dates"),
            pytest.param({"total_from": Decimal(-10), "total_to": Decimal(50)}, [0, 2], id="amounts"),
            pytest.param({"supplier": "aceros", "total_from": Decimal(0)}, [0], id="of-one-and-the-same"),
            pytest.param({"ids": ()}, [], id="none-selected"),
        ],
    )
    async def test_filters(self, documents: Documents, several: list[str], query: dict[str, Any], expected: list[int]):
        """By what the documents say as they are corrected; `fits` says the same of one at hand."""
        assert [several[index] for index in expected] == await documents.ids(ListPage(order="asc"), **query)
        if not query.keys() & {"state", "ids"}:
            answers = [corrected_answer(await documents.service.get("ana", file_id)) for file_id in several]
            fitting = [any(fits(DocumentQuery(**query), one) for one in values_of(answer)) for answer in answers]
            assert expected == [index for index, it_fits in enumerate(fitting) if it_fits]

    @pytest.mark.parametrize(
        ("sort", "expected"),
        [
            pytest.param("created_at", [0, 1, 2, 3], id="created"),
            pytest.param("date", [3, 0, 2, 1], id="date"),
            pytest.param("total", [3, 2, 0, 1], id="total"),
            pytest.param("supplier", [3, 0, 2, 1], id="supplier"),
            pytest.param("number", [3, 0, 1, 2], id="number"),
        ],
    )  # fmt: skip
    async def test_sorted_page_by_page(self, documents: Documents, several: list[str], sort: Any, expected: list[int]):
        """Forwards and backwards, by cursors and as a walk through all; those without a value are the lowest."""
        wanted, walked = [several[index] for index in expected], list[str]()
        for order, along in (("asc", wanted), ("desc", wanted[::-1])):
            cursor = None
            walked = []
            while page := await documents.ids(ListPage(2, order, cursor), sort=sort):  # type: ignore[arg-type]
                walked += page
                cursor = page[-1]
            assert along == walked
        assert wanted[1:3] == await documents.ids(ListPage(2, "asc", before=wanted[3]), sort=sort)
        assert wanted == [one.id async for one in documents.service.each("ana", DocumentQuery(sort=sort))]

    @pytest.mark.parametrize("sort", ["date", "due_date", "supplier", "number", "base", "total"])
    async def test_a_cursor_of_a_deleted_document(self, documents: Documents, several: list[str], sort: Any):
        """The list goes on behind it, and before it; by a field its id alone does not tell where that is."""
        wanted = await documents.ids(ListPage(order="asc"), sort=sort)
        stood = position_of(await documents.service.get("ana", wanted[1]), sort)
        await documents.service.delete("ana", wanted[1])

        assert wanted[2:] == await documents.ids(ListPage(order="asc", after=stood), sort=sort)
        assert wanted[:1] == await documents.ids(ListPage(order="asc", before=stood), sort=sort)
        behind = several[several.index(wanted[1]) + 1 :]
        assert behind == await documents.ids(ListPage(order="asc", after=wanted[1]))
        with pytest.raises(InvalidField, match="after: there is no document"):
            await documents.ids(ListPage(order="asc", after=wanted[1]), sort=sort)

    async def test_a_walk_while_documents_are_deleted(self, documents: Documents, several: list[str]):
        """Ends, and leaves nothing out that stays."""
        walked = []
        async for one in documents.service.each("ana", DocumentQuery(sort="total")):
            walked.append(one.id)
            await documents.service.delete("ana", one.id)

        assert set(several) == set(walked)

    @pytest.mark.parametrize("ends", [{"order": "asc"}, {"order": "desc"}])
    async def test_large_ones_come_few_at_a_time(self, documents: Documents, ends: dict[str, Any]):
        """A list holds a bounded number of bytes whatever its limit, says that there are more, and leaves none out."""
        wanted = [(await documents.add(note=f"{number}" * 6 * 2**20)).id for number in range(5)]
        page, has_more, pages = ListPage(100, **ends), True, list[list[str]]()
        while has_more:
            listed, has_more = await documents.service.list_documents("ana", DocumentQuery(), page)
            pages.append([one.id for one in listed])
            page = page._replace(after=pages[-1][-1])

        assert [3, 2] == [len(one) for one in pages]
        assert wanted == sorted((file_id for ids in pages for file_id in ids), key=wanted.index)
        assert wanted == [one.id async for one in documents.service.each("ana")]

    async def test_duplicates(self, documents: Documents, several: list[str]):
        """The same supplier, number and total; the same file; of the owner's own documents only."""
        first = await documents.add(content=b"one")
        second = await documents.add(content=b"two")
        third = await documents.add(wire_document(), content=b"two")
        await documents.add(owner="eva", content=b"one")
        moved = await documents.correct(second, InvoiceTotal="121.00", InvoiceId=" 2026-017")

        checked = await documents.service.checked("ana", [first, moved, third, replace(moved, changes=())])

        found = {one.stored.id: one.problems for one in checked}
        assert [{"code": "duplicate", "document": 0, "other": second.id, "others": 1}] == found[first.id]
        assert {"code": "same_file", "other": third.id, "others": 1} in found[second.id]
        assert [{"code": "same_file", "other": second.id, "others": 1}] == found[third.id]


async def test_events_of_changes_here_and_elsewhere(storage: SearchStorage):
    """As it is, then each change of this process and of another one, with what was seen before; last its deletion."""
    here, elsewhere = Documents(storage), Documents(storage)
    document = await here.add(wire_document(**INVOICE))
    watch = here.service.watch("ana", document.id)
    foreign = here.service.watch("eve", document.id, 7)

    async with asyncio.timeout(30):
        told = [await anext(watch)]
        document = await here.correct(document, InvoiceId="one")
        told.append(await anext(watch))
        await elsewhere.correct(document, InvoiceId="two")
        told.append(await anext(watch))
        await elsewhere.service.confirm("ana", "ana", document.id)
        told.append(await anext(here.service.watch("ana", document.id, 2)))
        await here.service.delete("ana", document.id)
        told += [event async for event in watch]
        gone = [event async for event in foreign]

    seen = [(event.stored and event.stored.revision, event.seen) for event in told]
    assert [(1, None), (2, 1), (3, 2), (4, 2)] == seen[:4]
    assert (None, 3) == seen[-1] or (None, 4) == seen[-1]
    assert [(None, 7)] == gone


async def test_events_end_at_their_limit(storage: SearchStorage):
    """Nothing changed meanwhile."""
    documents = Documents(storage)
    document = await documents.add(wire_document(**INVOICE))

    async with asyncio.timeout(30):
        told = [event async for event in documents.service.watch("ana", document.id, limit_s=0.05)]

    assert [document] == [event.stored for event in told]
