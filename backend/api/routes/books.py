"""``/v1/documents/ledger`` and ``/v1/documents/export``: stored documents as books."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, BinaryIO, Literal, cast

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from backend.api.json_io import answer_of, validate_query, written_json
from backend.api.request_context import Handle, call_within_limit, owner_of
from backend.api.request_fields import OrAbsent, one_of
from backend.api.routes.files import FILE_ID, content_disposition
from backend.api.routes.stored_documents import DocumentConditions, in_turn
from backend.api.routing import JSON, REQUEST_TIMEOUT, described, get, query_parameters
from backend.books.exports import MEDIA_TYPES, BookExport, ExportFormat, ExportOptions, file_name
from backend.books.ledger import (
    AMOUNTS,
    BookedFile,
    DocumentRef,
    LedgerRow,
    MissingNumbers,
    Sums,
    TaxLine,
    ledger_rows,
    mark_duplicates,
    missing_numbers,
    sums_by_currency,
)
from backend.books.views import VIEWS, Locale, ViewName
from backend.errors import InvalidField, TooLarge
from backend.search.corrected_answer import corrected_answer, fits, values_of
from backend.search.records import DocumentQuery, StoredDocument
from backend.search.stored_documents import StoredDocuments

_documents_of: Handle[StoredDocuments] = Handle("stored_documents")

MAX_DOCUMENTS = 20_000  # of one answer: their rows are in memory, a few kilobytes each
_AT_ONCE = 50  # files that are booked on a thread before the loop reads on
_PIECE_BYTES = 2**18
_CHOSEN = re.compile(r"([A-Za-z0-9_-]{1,80})(?::([0-9]{1,4}))?")
_IDS = "^ *([A-Za-z0-9_-]{1,80}(:[0-9]{1,4})? *(, *[A-Za-z0-9_-]{1,80}(:[0-9]{1,4})? *)*)?$"  # of a selection
SortName = Literal[
    "created_at", "state", "kind", "date", "due_date", "number", "supplier", "tax_id", "currency", "base", "tax",
    "withholding", "total", "amount_due",
]  # fmt: skip


class BookQuery(DocumentConditions):
    """Which stored documents."""

    model_config = ConfigDict(extra="ignore")

    ids: str = Field(
        "",
        max_length=60_000,
        json_schema_extra={"pattern": _IDS},
        description="Of files, with commas between; file-…:2 is the third document of one. Empty: all.",
    )

    def chosen(self) -> dict[str, frozenset[int] | None] | None:
        """The documents of each file that are meant, None for all of it; None for all files. Raises: InvalidField."""
        if not self.ids.strip():
            return None
        chosen: dict[str, set[int] | None] = defaultdict(set)
        for part in self.ids.split(","):
            match = _CHOSEN.fullmatch(part.strip())
            if match is None:
                raise InvalidField(f"ids: '{part[:60]}' is no id such as {FILE_ID} or {FILE_ID}:2")
            file_id, index = match.groups()
            indices = chosen[file_id]
            if index is None:
                chosen[file_id] = None
            elif indices is not None:
                indices.add(int(index))
        return {file_id: None if indices is None else frozenset(indices) for file_id, indices in chosen.items()}

    def stored(self) -> DocumentQuery:
        """Raises: InvalidField."""
        chosen = self.chosen()
        return DocumentQuery(
            state="to_review" if self.state == "to_review" else None,  # a file is confirmed when all its documents are
            kind=self.kind,
            supplier=self.supplier,
            date_from=self.date_from,
            date_to=self.date_to,
            ids=None if chosen is None else tuple(chosen),
        )

    def matching(self, file: BookedFile) -> frozenset[int]:
        """Which documents of a file are meant: the storage finds a file where one of its documents is."""
        query, values = self.stored(), values_of({"documents": file.documents})
        return frozenset(
            index
            for index, (document, one) in enumerate(zip(file.documents, values, strict=True))
            if (file.chosen is None or index in file.chosen)
            and self.state in (None, "confirmed" if document["confirmed"] else "to_review")
            and fits(query, one)
        )


class LedgerQuery(BookQuery):
    """`GET /v1/documents/ledger`."""

    sort: SortName = Field("created_at", description="What is absent comes last, whatever the order.")
    order: Literal["asc", "desc"] = "desc"
    limit: int = Field(1000, ge=1, le=MAX_DOCUMENTS, description="Rows to answer with; sums are of all.")
    offset: int = Field(0, ge=0, le=MAX_DOCUMENTS, description="Rows to leave out before.")


class ExportQuery(BookQuery):
    """`GET /v1/documents/export`."""

    format: ExportFormat = "xlsx"
    view: Annotated[OrAbsent[ViewName], one_of(VIEWS)] = Field(
        None, description="One table; unset: all of them as sheets of a workbook, else the ledger."
    )
    locale: Locale = Field("en", description="Of headers, and of separators and decimals of CSV.")


class PlaceAnswer(TypedDict):
    """A document of a stored file."""

    document_id: str
    index: Annotated[int, Field(description="From 0, in the file.")]
    filename: str
    pages: list[int]


class TaxLineAnswer(TypedDict):
    """One rate of tax; amounts are decimals."""

    type: str | None
    rate: str | None
    base: str | None
    amount: str | None
    surcharge_rate: str | None
    surcharge: str | None


class LedgerRowAnswer(PlaceAnswer):
    """One document; dates are ISO 8601, amounts decimals, what it does not say is null."""

    state: Literal["to_review", "confirmed"]
    kind: str | None
    date: str | None
    due_date: str | None
    number: str | None
    supplier: str | None
    tax_id: str | None
    customer: str | None
    customer_tax_id: str | None
    currency: str | None
    base: str | None
    taxes: list[TaxLineAnswer]
    tax: Annotated[str | None, Field(description="Of all rates, with the equivalence surcharge.")]
    surcharge: str | None
    withholding_rate: str | None
    withholding: str | None
    total: str | None
    amount_due: str | None
    totals_agree: bool | None
    duplicates: Annotated[int, Field(description="Other rows with its supplier, number and total.")]
    duplicate_of: Annotated[PlaceAnswer | None, Field(description="The first of them; null for itself.")]


class SumsAnswer(TypedDict):
    """What the rows in one currency come to; statements are not among them."""

    currency: str | None
    documents: int
    base: str
    tax: str
    surcharge: str
    withholding: str
    total: str
    amount_due: str
    taxes: list[TaxLineAnswer]


class MissingNumbersAnswer(TypedDict):
    """Numbers that a supplier's series leaves out."""

    supplier: str | None
    tax_id: str | None
    first: Annotated[str, Field(description="Of the run of numbers that are there.")]
    last: str
    missing: list[str]


class LedgerAnswer(TypedDict):
    """Stored documents as rows of a ledger. Sums and missing numbers are of all that were asked for."""

    object: Literal["list"]
    data: list[LedgerRowAnswer]
    total: Annotated[int, Field(description="Rows there are, of which `data` has a part.")]
    has_more: bool
    sums: list[SumsAnswer]
    missing_numbers: list[MissingNumbersAnswer]


async def retrieve_ledger(request: Request) -> Response:
    """Stored documents as rows of a ledger: what to book, what stands twice, what is missing of a series, sums.

    A row is one document of a file, as it was corrected. Duplicates and missing numbers are told among those asked for.
    """
    query = validate_query(LedgerQuery, request)
    async with in_turn(request):
        rows = await call_within_limit(request, _ledger(request, query))
        return await written_json(lambda: _ledger_answer(rows, query), len(rows))


async def _ledger(request: Request, query: LedgerQuery) -> list[LedgerRow]:
    rows: list[LedgerRow] = []

    def take(files: Sequence[BookedFile]) -> None:
        rows.extend(row for file in files for row in ledger_rows(file))

    await _book_all(request, query, take)
    return rows


async def _book_all(request: Request, query: BookQuery, take: Callable[[Sequence[BookedFile]], None]) -> None:
    """Call ``take`` on threads with all that the query names, a few files at a time. Raises: TooLarge."""
    chosen, count, files = query.chosen() or {}, 0, list[StoredDocument]()

    def book() -> None:
        booked = (
            BookedFile(one.id, one.file.name, corrected_answer(one)["documents"], chosen.get(one.id)) for one in files
        )
        take([replace(file, chosen=query.matching(file)) for file in booked])

    stored = _documents_of(request).each(owner_of(request), query.stored())
    async with aclosing(stored) as each:  # type: ignore[type-var]
        async for one in each:
            files.append(one)
            count += len(one.parts)
            if count > MAX_DOCUMENTS:
                advice = "Ask for fewer: by state, date_from and date_to, supplier or ids."
                raise TooLarge("documents", count, MAX_DOCUMENTS, "of one answer", advice=advice)
            if len(files) == _AT_ONCE:
                await asyncio.to_thread(book)
                files.clear()
    await asyncio.to_thread(book)


def _ledger_answer(rows: list[LedgerRow], query: LedgerQuery) -> LedgerAnswer:
    marked = mark_duplicates(rows)
    data = _sorted(marked, query)[query.offset : query.offset + query.limit]
    return {
        "object": "list",
        "data": [_row_answer(row) for row in data],
        "total": len(rows),
        "has_more": query.offset + len(data) < len(rows),
        "sums": [_sums_answer(sums) for sums in sums_by_currency(rows)],
        "missing_numbers": [_missing_answer(run) for run in missing_numbers(rows)],
    }


def _sorted(rows: list[LedgerRow], query: LedgerQuery) -> list[LedgerRow]:
    """As asked for; rows come in the order of their creation."""
    is_falling = query.order == "desc"
    if query.sort == "created_at":
        return rows[::-1] if is_falling else rows
    known = [row for row in rows if getattr(row, query.sort) is not None]
    known.sort(key=lambda row: _sort_key(getattr(row, query.sort)), reverse=is_falling)
    return known + [row for row in rows if getattr(row, query.sort) is None]


def _sort_key(value: str | Decimal) -> str | Decimal:
    return value.casefold() if isinstance(value, str) else value


def _row_answer(row: LedgerRow) -> LedgerRowAnswer:
    return answer_of(
        LedgerRowAnswer,
        row,
        **_place_answer(row.source),
        **{name: _decimal(getattr(row, name)) for name in (*AMOUNTS, "withholding_rate")},
        state="confirmed" if row.state == "confirmed" else "to_review",
        taxes=[_tax_answer(line) for line in row.taxes],
        duplicate_of=None if row.duplicate_of is None else _place_answer(row.duplicate_of),
    )


def _place_answer(source: DocumentRef) -> PlaceAnswer:
    return answer_of(PlaceAnswer, source, pages=list(source.pages))


def _tax_answer(line: TaxLine) -> TaxLineAnswer:
    decimals = ("rate", "base", "amount", "surcharge_rate", "surcharge")
    return answer_of(TaxLineAnswer, line, **{name: _decimal(getattr(line, name)) for name in decimals})


def _sums_answer(sums: Sums) -> SumsAnswer:
    amounts = {name: f"{sums.amounts[name]:f}" for name in AMOUNTS}
    rest = {"currency": sums.currency, "documents": sums.documents, "taxes": [_tax_answer(line) for line in sums.taxes]}
    return cast("SumsAnswer", {**amounts, **rest})


def _missing_answer(run: MissingNumbers) -> MissingNumbersAnswer:
    return answer_of(MissingNumbersAnswer, run, missing=list(run.missing))


def _decimal(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


async def export_documents(request: Request) -> Response:
    """Stored documents as an Excel workbook, CSV or JSON: a ledger with a row an invoice and rate, lines, suppliers.

    `locale=es` gives Spanish headers, and CSV with semicolons, decimal commas and a mark of UTF-8; else it is RFC 4180.
    What looks like a formula stays text. What is of a whole invoice (total, withholding) stands in its first row alone,
    so that columns add up.
    """
    query = validate_query(ExportQuery, request)
    options = ExportOptions(query.format, query.view, query.locale)
    target = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is sent
    try:
        async with in_turn(request):
            await call_within_limit(request, _write(request, query, options, target))
    except BaseException:
        target.close()
        raise
    headers = {
        "Content-Length": str(os.fstat(target.fileno()).st_size),
        "Content-Disposition": content_disposition(file_name(options)),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_pieces(target), media_type=MEDIA_TYPES[query.format], headers=headers)


async def _write(request: Request, query: ExportQuery, options: ExportOptions, target: BinaryIO) -> None:
    with BookExport(options, target) as export:

        def take(files: Sequence[BookedFile]) -> None:
            for file in files:
                export.add(file)

        await _book_all(request, query, take)
        await asyncio.to_thread(export.finish)
        target.flush()


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """The file from its begin, no faster than its client reads; it is closed at the end."""
    with file:
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece


_PLACE: PlaceAnswer = {"document_id": FILE_ID, "index": 0, "filename": "factura-017.pdf", "pages": [1]}
_TAX: TaxLineAnswer = {
    "type": "IVA", "rate": "21", "base": "1061.57", "amount": "222.93", "surcharge_rate": None, "surcharge": None,
}  # fmt: skip
_ROW: LedgerRowAnswer = {
    **_PLACE,
    "state": "to_review",
    "kind": "invoice",
    "date": "2026-03-12",
    "due_date": "2026-04-12",
    "number": "2026/017",
    "supplier": "Aceros del Norte, S.L.",
    "tax_id": "B12345674",
    "customer": None,
    "customer_tax_id": None,
    "currency": "EUR",
    "base": "1061.57",
    "taxes": [_TAX],
    "tax": "222.93",
    "surcharge": None,
    "withholding_rate": None,
    "withholding": None,
    "total": "1284.50",
    "amount_due": "1284.50",
    "totals_agree": True,
    "duplicates": 0,
    "duplicate_of": None,
}
_LEDGER: LedgerAnswer = {
    "object": "list",
    "data": [_ROW],
    "total": 1,
    "has_more": False,
    "sums": [
        {
            "currency": "EUR", "documents": 1, "base": "1061.57", "tax": "222.93", "surcharge": "0",
            "withholding": "0", "total": "1284.50", "amount_due": "1284.50", "taxes": [_TAX],
        }
    ],
    "missing_numbers": [],
}  # fmt: skip
_EXPORT = {
    MEDIA_TYPES["xlsx"]: {"schema": {"type": "string", "format": "binary"}, "example": "(the bytes of the file)"},
    "text/csv": {"schema": {"type": "string"}, "example": "Estado;Fecha;Serie-Número;Total factura\n"},
    JSON: {"schema": {"type": "object"}, "example": {"object": "list", "view": "ledger", "data": []}},
}
ROUTES = (
    get(
        "/v1/documents/ledger", retrieve_ledger, tag="documents", schema=LedgerAnswer, example=_LEDGER,
        errors=(413, 422, 504), parameters=(*query_parameters(LedgerQuery), REQUEST_TIMEOUT),
    ),
    get(
        "/v1/documents/export",
        export_documents,
        tag="documents",
        example=None,
        more={200: described(_EXPORT, ("Content-Disposition",))},
        errors=(413, 422, 504),
        parameters=(*query_parameters(ExportQuery), REQUEST_TIMEOUT),
    ),
)  # fmt: skip
