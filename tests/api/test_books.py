"""``/v1/documents/ledger`` and ``/v1/documents/export`` over a real storage."""

import asyncio
import contextlib
import csv
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openpyxl
import pytest

from backend.api.request_context import ApiOptions
from backend.api.routes import books
from backend.api.routes.books import LedgerAnswer
from backend.callers.callers import ANYBODY, owner_digest
from backend.files.stored_file import StoredFile
from tests.api.checks import problem, require_schema
from tests.api.conftest import connect
from tests.api.document_fakes import FILE_LIMITS
from tests.api.fakes import FakeServices
from tests.books.booked import document, invoice, statement
from tests.books.books_services import books_services

OWNER = ANYBODY.owner  # of a service without keys


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Any]:
    async with books_services(tmp_path) as services:
        yield services


async def keep(services: Any, *documents: dict[str, Any], name: str = "factura.pdf", owner: str = OWNER) -> str:
    """Store a file that holds these documents; its id."""
    wire = [
        {**one, "fields_why": "", "fields": {key: _whole(field) for key, field in one["fields"].items()}}
        for one in documents
    ]
    first = {key: wire[0][key] for key in ("fields", "fields_why", "valid")}
    answer = {"kind": "pdf", "page_count": 1, "sha256": "0" * 64, "pages": [], **first, "documents": wire}
    with contextlib.closing(StoredFile.of(name.encode(), FILE_LIMITS)) as content:
        stored = await services.stored_documents.add(owner, content, name, answer)
    return str(stored.id)


def _whole(field: dict[str, Any]) -> dict[str, Any]:
    rest = {"start": None, "end": None, "source": "text", "why": "", "valid": None, "repair": None, "ambiguous": False}
    return field if isinstance(field["value"], list) else {**field, **rest}


async def ledger(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get("/v1/documents/ledger", params=query)
    assert 200 == answer.status_code, answer.text
    require_schema(LedgerAnswer, answer.json())
    return dict(answer.json())


def numbers(answer: dict[str, Any]) -> list[str]:
    return [row["number"] for row in answer["data"]]


async def test_a_ledger(client: httpx.AsyncClient, services: Any) -> None:
    """Each document of each file is a row, as it was corrected, the newest first; sums are of all."""
    first = await keep(services, invoice("F-1"), invoice("F-2", "100.00"), name="dos.pdf")
    await keep(services, statement(), name="banco.pdf")
    await services.stored_documents.correct(OWNER, "ana", first, 1, {"InvoiceTotal": "200.00"}, revision=1)
    answer = await ledger(client)

    assert [None, "F-2", "F-1"] == numbers(answer)
    assert ["497.00", "200.00"] == [row["total"] for row in answer["data"][:0:-1]]
    assert [0, 1, 0] == [row["index"] for row in answer["data"]]
    [euros] = answer["sums"]
    assert (2, "697.00", "144.00") == (euros["documents"], euros["total"], euros["tax"])
    assert ["10", "21"] == [line["rate"] for line in euros["taxes"]]
    assert (3, False) == (answer["total"], answer["has_more"])


async def test_what_is_marked(client: httpx.AsyncClient, services: Any) -> None:
    """The same invoice twice, and a number that its series leaves out."""
    for number in ("F-1", "F-2", "F-4", "F-5", "F-2"):
        await keep(services, invoice(number), name=f"{number}.pdf")
    answer = await ledger(client, order="asc")

    assert [0, 1, 0, 0, 1] == [row["duplicates"] for row in answer["data"]]
    first, again = answer["data"][1], answer["data"][4]
    assert (None, first["document_id"]) == (first["duplicate_of"], again["duplicate_of"]["document_id"])
    assert [["F-3"]] == [run["missing"] for run in answer["missing_numbers"]]


async def test_statements_by_date(client: httpx.AsyncClient, services: Any) -> None:
    """A statement is of the date on which its period ends, as in lists of documents."""
    await keep(services, document("bank_statement", PeriodEnd="2026-03-31", ClosingBalance="1.00"))

    for query, count in (("date_from=2026-03-01&date_to=2026-03-31", 1), ("date_from=2026-04-01", 0)):
        booked = await client.get(f"/v1/documents/ledger?{query}")
        assert count == booked.json()["total"]


async def test_sorted_and_in_parts(client: httpx.AsyncClient, services: Any) -> None:
    """By a column, what is absent last in both orders; `offset` goes on where the part before ended."""
    for number, total in (("B-1", "10.00"), ("a-2", "9.00"), ("C-3", "-1.00")):
        await keep(services, invoice(number, total))
    await keep(services, document(InvoiceTotal="1.00"))

    assert ["a-2", "B-1", "C-3", None] == numbers(await ledger(client, sort="number", order="asc"))
    assert ["C-3", "B-1", "a-2", None] == numbers(await ledger(client, sort="number"))
    assert ["C-3", None, "a-2", "B-1"] == numbers(await ledger(client, sort="total", order="asc"))
    part = await ledger(client, sort="total", order="asc", limit=2, offset=1)
    assert ([None, "a-2"], True, 4) == (numbers(part), part["has_more"], part["total"])
    assert "18.00" == part["sums"][0]["total"]


async def test_only_what_is_asked_for(client: httpx.AsyncClient, services: Any) -> None:
    """Of a file whose documents differ only those that fit, each condition on the same one."""
    both = await keep(services, invoice("F-1"), invoice("F-2", InvoiceDate="2026-05-01", VendorName="Otra, S.A."))
    await services.stored_documents.confirm(OWNER, "ana", both, 1)

    assert ["F-2"] == numbers(await ledger(client, state="confirmed"))
    assert ["F-1"] == numbers(await ledger(client, state="to_review"))
    assert ["F-2"] == numbers(await ledger(client, date_from="2026-04-01"))
    assert ["F-1"] == numbers(await ledger(client, date_to="2026-04-01"))
    assert ["F-2"] == numbers(await ledger(client, supplier="otra"))
    assert ["F-2", "F-1"] == numbers(await ledger(client, supplier="A58818501"))
    assert ["F-2", "F-1"] == numbers(await ledger(client, supplier="ES-A58818501"))
    assert ["F-2"] == numbers(await ledger(client, ids=f"{both}:1"))
    assert ["F-2", "F-1"] == numbers(await ledger(client, ids=f" {both}:1, {both} "))
    assert [] == numbers(await ledger(client, ids="file-unknown", state=""))


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("ledger", "ids=a/b", "ids: 'a/b' is no id"),
        ("ledger", "sort=pages", "sort"),
        ("ledger", "kind=invoices", "kind"),
        ("ledger", "kind=&kind=invoice", "kind: is 2 times in the query"),
        ("ledger", "date_from=yesterday", "date_from"),
        ("export", "format=pdf", "format"),
        ("export", "view=page", "view"),
        ("export", "locale=fr", "locale"),
    ],
)
async def test_bad_queries(client: httpx.AsyncClient, services: Any, path: str, query: str, said: str) -> None:
    """Each says what is wrong with what."""
    answer = await client.get(f"/v1/documents/{path}?{query}")

    assert said in problem(answer, 422, "invalid_field")["detail"]


async def test_too_many_documents(client: httpx.AsyncClient, services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with how to ask for fewer."""
    monkeypatch.setattr(books, "MAX_DOCUMENTS", 2)
    await keep(services, invoice("1"), invoice("2"), invoice("3"))

    for path in ("ledger", "export"):
        answer = await client.get(f"/v1/documents/{path}")
        assert "documents: 3 is over the limit of 2" in problem(answer, 413, "too_large")["detail"]


async def test_an_export_of_a_choice(client: httpx.AsyncClient, services: Any) -> None:
    """A workbook with the rows that were chosen, to be saved under a name."""
    one = await keep(services, invoice("F-1"), invoice("F-2"))
    await keep(services, invoice("F-3"))
    answer = await client.get("/v1/documents/export", params={"ids": f"{one}:1", "locale": "es"})

    assert "spreadsheetml" in answer.headers["content-type"]
    assert 'filename="libro.xlsx"' in answer.headers["content-disposition"]
    assert str(len(answer.content)) == answer.headers["content-length"]
    book = openpyxl.load_workbook(io.BytesIO(answer.content))
    header, *rows = book["Facturas recibidas"].values
    assert ["F-2", "F-2"] == [row[header.index("Serie-Número")] for row in rows]
    assert 2 == len(list(book["Líneas"].values)) - 1


async def test_exports_as_csv_and_json(client: httpx.AsyncClient, services: Any) -> None:
    """One table each, by the names of its view."""
    await keep(services, invoice("F-1", VendorName="=1+1"))
    text = await client.get("/v1/documents/export?format=csv&locale=es")
    lines = await client.get("/v1/documents/export?format=json&view=lines")

    assert text.content.startswith(b"\xef\xbb\xbf")
    [first, _] = csv.DictReader(io.StringIO(text.content.decode("utf-8-sig")), delimiter=";")
    assert ("497,00", "'=1+1") == (first["Total factura"], first["Proveedor"])
    assert 'filename="facturas-recibidas.csv"' in text.headers["content-disposition"]
    assert "application/json" == lines.headers["content-type"]
    assert ["0017", "0018"] == [row["product_code"] for row in lines.json()["data"]]


async def test_tenants_see_their_own(services: FakeServices) -> None:
    """Neither by guessing ids nor by asking for all."""
    mine = await keep(services, invoice("F-1"), owner=owner_digest("key-a"))
    theirs = await keep(services, invoice("F-2"), owner=owner_digest("key-b"))
    async with connect(services, ApiOptions(api_keys=("key-a", "key-b"))) as client:
        headers = {"Authorization": "Bearer key-a"}
        answer = await client.get(f"/v1/documents/ledger?ids={mine},{theirs}", headers=headers)
        exported = await client.get("/v1/documents/export?format=json", headers=headers)

        assert ["F-1"] == numbers(answer.json())
        assert {"F-1"} == {row["number"] for row in exported.json()["data"]}
        assert 401 == (await client.get("/v1/documents/export")).status_code


@pytest.mark.parametrize("path", ["", "/ledger", "/export?format=csv", "/{id}", "/{id}/confirm"])
async def test_a_crowd_takes_turns(services: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one key few answers are made at once: each holds the documents that it is made of."""
    file_id, documents = await keep(services, invoice()), services.stored_documents
    most, running = 0, 0

    @contextlib.asynccontextmanager
    async def counted() -> AsyncIterator[None]:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        yield
        running -= 1

    async def call(*arguments: Any, **options: Any) -> Any:
        async with counted():
            return await found(*arguments, **options)

    async def each(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
        async with counted():
            async for one in found(*arguments, **options):
                yield one

    name = {"": "list_documents", "/{id}": "get", "/{id}/confirm": "confirm"}.get(path, "each")
    method = "POST" if name == "confirm" else "GET"
    found = getattr(documents, name)
    monkeypatch.setattr(documents, name, each if name == "each" else call)
    async with connect(services) as client:
        url = f"/v1/documents{path.format(id=file_id)}"
        answers = await asyncio.gather(*(client.request(method, url) for _ in range(12)))

    assert {200} == {answer.status_code for answer in answers}
    assert 1 < most <= 4
