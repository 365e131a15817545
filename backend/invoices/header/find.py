"""Numbers and dates of a document: its id, when it was issued and is due, orders, terms and accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.accounts import find_iban
from backend.invoices.header.claims import Claim, cued_due_date, date_claims, id_claims, settle
from backend.invoices.header.dates import PrintedTime, dates_in, time_in
from backend.invoices.header.places import LabelledPage, labelled_page
from backend.invoices.header.terms import find_payment_term
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import Vocabulary
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import order_of
from backend.text.patterns.folding import fold

_FIRST_PAGES = 3  # besides the last one: heads stand on the first, terms and accounts on the last
_LEAST_SCORE = 0.4
_LONGEST_TERM_DAYS = 185
_RECEIPT = Vocabulary(
    {
        "receipt": (
            "factura simplificada", "ticket", "tique", "tiquet", "receipt", "efectivo", "cambio", "entregado", "cash",
            "change", "kassenbon", "bar", "ruckgeld", "ticket de caisse", "scontrino", "cash bill", "cashier", "cajero",
            "caja", "le atendio", "tendered", "gracias por su visita", "mesa", "tarjeta", "visa", "mastercard",
        )
    }
)  # fmt: skip
_LEAST_RECEIPT_WORDS = 1
_NEAR_ID = 2  # rows
_LONG_CELL = 40  # words: prose, whose dates are none of the document's


def find_header(pages: Sequence[PageRows], items: ItemLines | None) -> tuple[Field, ...]:
    """Ids, dates, terms and the account of an invoice; date and time of a receipt too.

    InvoiceId, InvoiceDate, DueDate, PurchaseOrder, RectifiedInvoiceId, PaymentTerm, IBAN; TransactionDate and
    TransactionTime. What is not found is left out.
    """
    chosen = [*pages[:_FIRST_PAGES], *pages[_FIRST_PAGES:][-1:]]
    labelled = [labelled_page(page, items) for page in chosen]
    ids = _best(settle([claim for page in labelled for claim in id_claims(page)]))
    dates = _dates(labelled, items, ids.get("InvoiceId"))
    fields = [*_id_fields(ids), *_date_fields(dates)]
    fields += [field for field in (find_payment_term(labelled), find_iban(labelled)) if field is not None]
    return (*fields, *_transaction(dates.get("InvoiceDate")))


def _best(claims: Sequence[Claim]) -> dict[str, Claim]:
    """The surest claim to each field."""
    best: dict[str, Claim] = {}
    for claim in claims:
        if claim.field and claim.score >= _LEAST_SCORE:
            best.setdefault(claim.field, claim)
    return best


def _id_fields(ids: dict[str, Claim]) -> Iterator[Field]:
    invoice, series = ids.get("InvoiceId"), ids.get("Series")
    for name in ("InvoiceId", "PurchaseOrder", "RectifiedInvoiceId"):
        claim = ids.get(name)
        if claim is None:
            continue
        value, words = claim.value, claim.words
        is_series = series is not None and claim is invoice and series.page is claim.page
        if is_series and series is not None and abs(series.row - claim.row) <= 1 and not value.startswith(series.value):
            value, words = f"{series.value}-{value}", (*series.words, *words)
        yield printed_field(name, value, words, claim.page.page, score=min(0.99, claim.score), why=claim.why)


def _dates(pages: Sequence[LabelledPage], items: ItemLines | None, invoice: Claim | None) -> dict[str, Claim]:
    """The dates in the order that suits them: due follows issued."""
    order = order_of(fold("\n".join(page.page.page.text for page in pages)).text)
    dates = _dates_in_order(pages, items, invoice, order)
    if order.settled or not any(claim.ambiguous for claim in dates.values()):
        return dates
    swapped = DateOrder(not order.month_first, settled=True)
    others = _dates_in_order(pages, items, invoice, swapped)
    if _is_plausible(others) and not _is_plausible(dates):
        return others
    if _is_plausible(dates) and _is_plausible(others) is False:
        return _dates_in_order(pages, items, invoice, DateOrder(order.month_first, settled=True))
    return dates


def _is_plausible(dates: dict[str, Claim]) -> bool | None:
    """Whether the invoice is due after it was issued, within months; None where one of the dates is missing."""
    issued, due = dates.get("InvoiceDate"), dates.get("DueDate")
    if issued is None or due is None:
        return None
    return 0 <= (date.fromisoformat(due.value) - date.fromisoformat(issued.value)).days <= _LONGEST_TERM_DAYS


def _dates_in_order(
    pages: Sequence[LabelledPage], items: ItemLines | None, invoice: Claim | None, order: DateOrder
) -> dict[str, Claim]:
    won = settle([claim for page in pages for claim in date_claims(page, order)])
    best = _best(won)
    if "DueDate" not in best:
        cued = next((claim for page in pages if (claim := cued_due_date(page, won, order)) is not None), None)
        if cued is not None:
            best["DueDate"] = cued
            won = [*won, cued]
    if "InvoiceDate" not in best and pages:
        bare = _bare_date(pages[0], items, invoice, won, order)
        if bare is not None:
            best["InvoiceDate"] = bare
        elif "OperationDate" in best:
            best["InvoiceDate"] = best["OperationDate"]
    return best


def _bare_date(
    page: LabelledPage, items: ItemLines | None, invoice: Claim | None, won: Sequence[Claim], order: DateOrder
) -> Claim | None:
    """The date without a label that is most likely the document's: with a time, alone, near its number, at the top."""
    taken = {word.start for claim in won if claim.page is page for word in claim.words}
    candidates: list[Claim] = []
    for cell in page.page.cells:
        if len(cell.words) > _LONG_CELL or (items is not None and items.contains(cell.page, cell.middle)):
            continue
        for found in dates_in(cell.words, order, is_ocr=page.page.page.source == "ocr"):
            if any(word.start in taken for word in found.words):
                continue
            score = _bare_score(page, cell, len(found.words))
            if invoice is not None and invoice.page is page and abs(invoice.row - cell.row) <= _NEAR_ID:
                score += 0.1
            words = found.words
            candidates.append(
                Claim("InvoiceDate", found.value, words, score, page, cell.row, None, "behind", found.ambiguous)
            )
    best = max(candidates, key=lambda claim: (claim.score, -claim.row), default=None)
    return best if best is not None and best.score >= _LEAST_SCORE else None


def _bare_score(page: LabelledPage, cell: Cell, words: int) -> float:
    """0 to 1, by the cell it stands in and where that is."""
    others = len(cell.words) - words
    is_top = cell.row < len(page.page.rows) * 0.4
    has_time = time_in(page.page.rows[cell.row].words) is not None
    score = 0.5 + (0.1 if is_top else 0.0) + (0.15 if has_time else 0.0) + (0.1 if others == 0 else 0.0)
    return score - (0.25 if others > 8 else 0.05 if others > 4 else 0.0)  # words of a sentence


def _date_fields(dates: dict[str, Claim]) -> Iterator[Field]:
    for name in ("InvoiceDate", "DueDate"):
        claim = dates.get(name)
        if claim is not None:
            score = min(0.99, claim.score) * (0.6 if claim.ambiguous else 1.0)
            why = claim.why + ("; day and month could be the other way round" if claim.ambiguous else "")
            yield printed_field(
                name, claim.value, claim.words, claim.page.page, score=score, why=why, valid=True,
                ambiguous=claim.ambiguous,
            )  # fmt: skip


def _transaction(issued: Claim | None) -> Iterator[Field]:
    """Date and time of a receipt: where the words of one stand on the page, and a time beside the date."""
    if issued is None or not _is_receipt(issued.page):
        return
    page = issued.page.page
    score = min(0.99, issued.score)
    yield printed_field(
        "TransactionDate", issued.value, issued.words, page, score=score, why=issued.why, valid=True,
        ambiguous=issued.ambiguous,
    )  # fmt: skip
    time = _time(issued)
    if time is not None:
        why = "a time beside the date or its label"
        yield printed_field("TransactionTime", time.value, time.words, page, score=score, why=why, valid=True)


def _is_receipt(page: LabelledPage) -> bool:
    cells = (cell for cell in page.page.cells if len(cell.words) <= 6)  # no prose
    return sum(bool(_RECEIPT.find(cell)) for cell in cells) >= _LEAST_RECEIPT_WORDS


def _time(issued: Claim) -> PrintedTime | None:
    """The time in the date's row, or behind a label of its own."""
    page = issued.page
    dated = {word.start for word in issued.words}
    words = [word for word in page.page.rows[issued.row].words if word.start not in dated]
    found = time_in(words)
    if found is not None:
        return found
    for label in page.labels:
        if label.label == "time":
            for place in page.places(label):
                found = time_in(place.words)
                if found is not None:
                    return found
    return None
