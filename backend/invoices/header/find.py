"""Numbers and dates of a document: its id, when it was issued and is due, orders, terms and accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date

from stdnum.iso7064 import mod_97_10

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.claims import Claim, cued_due_date, date_claims, id_claims, settle
from backend.invoices.header.dates import PrintedTime, dates_in, time_in
from backend.invoices.header.places import LabelledPage, labelled_page
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import Vocabulary
from backend.invoices.ocr_confusions import suggest_repairs
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field
from backend.text.patterns import find_patterns
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import order_of
from backend.text.patterns.folding import fold

_HEAD = re.compile(r"(?<![^\W_])[A-Za-z]{2}[ -]?[\dOoQIlSBZ]{2}[ .-]?[A-Z0-9]{2}")
# Behind its label, of whatever length: a wrong account is printed all the same.
_LABELLED = re.compile(
    r"IBAN[ :.]{1,3}(?P<number>[A-Z]{2}\d\d(?:(?: ?[A-Z0-9]{1,4}(?![*A-Za-z0-9])){3,8}|[A-Z0-9]{11,30}(?![*\w])))"
)
# What says that an account is the customer's, which is debited.
_DEBITED = re.compile(
    r"domicilia|adeud|cargo en|cargar|su cuenta|titular|debit|debited|mandat|lastschrift|abbuch|prelev|addebit|abbiam",
    re.IGNORECASE,
)
_PAID_TO = re.compile(
    r"transfer|ingres|abon|nuestra cuenta|bank details|pay (?:to|by)|remit|uberweis|virement|bonifico|our account"
    r"|reembols|bankverbindung|coordonnees|datos bancarios|cuenta bancaria",
    re.IGNORECASE,
)
_UNLABELLED = 0.6  # score of the pattern for a number without a label and with wrong check digits
_NEAR = 160  # characters before an account that say whose it is


def find_iban(pages: Sequence[LabelledPage]) -> Field | None:
    """The IBAN to pay to; of several the vendor's before the customer's, and a valid one before a wrong one."""
    found = [candidate for page in pages for candidate in _ibans(page)]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _ibans(page: LabelledPage) -> list[tuple[float, Field]]:
    """Accounts with how well each suits."""
    text = page.page.page.text
    if not _HEAD.search(fold(text).text):
        return []
    found: list[tuple[float, Field]] = []
    for entity in find_patterns(text, ["IBAN"]):
        if entity.value is None:
            continue
        # The country's own check digits inside, which the pattern asks for too, are wrong on real invoices as well.
        valid = mod_97_10.is_valid(entity.value[4:] + entity.value[:4])
        if valid or entity.score > _UNLABELLED:
            suits = 1.0 if entity.valid else 0.9 if valid else 0.5
            found.append(_candidate(page, (entity.start, entity.end), entity.value, suits, valid=valid))
    if not found and page.page.page.source == "ocr":
        for row in page.page.rows:
            if _HEAD.search(fold(row.text).text):
                found += _repaired(page, row.words)
    return found or list(_of_wrong_length(page))


def _of_wrong_length(page: LabelledPage) -> Iterator[tuple[float, Field]]:
    """Numbers behind the label "IBAN" that have no country's length."""
    folded = fold(page.page.page.text)
    for match in _LABELLED.finditer(folded.text):
        value = "".join(filter(str.isalnum, match["number"]))
        if sum(map(str.isdecimal, value)) * 2 > len(value):
            yield _candidate(page, folded.span(*match.span("number")), value, 0.4, valid=False)


def _repaired(page: LabelledPage, words: Sequence[Word]) -> list[tuple[float, Field]]:
    """Accounts with letters where only digits can stand: they are read as the digits, if the check digits agree."""
    text = " ".join(word.text for word in words)
    found = []
    for suggestion in suggest_repairs(text):
        if suggestion.type == "IBAN":
            offset, chosen = 0, []
            for word in words:
                if offset < suggestion.end and suggestion.start < offset + len(word.text):
                    chosen.append(word)
                offset += len(word.text) + 1
            span = (chosen[0].start, chosen[-1].end)
            found.append(_candidate(page, span, suggestion.repair.value, 0.9, valid=True, words=chosen))
    return found


def _candidate(
    page: LabelledPage,
    span: tuple[int, int],
    value: str,
    suits: float,
    *,
    valid: bool | None,
    words: Sequence[Word] = (),
) -> tuple[float, Field]:
    start, end = span
    text = page.page.page.text
    before = fold(text[max(0, start - _NEAR) : start]).text
    debited, paid = _last(_DEBITED, before), _last(_PAID_TO, before)
    suits += 0.1 if paid > debited else -0.1 if debited > paid else 0.0
    printed = words or [word for word in page.page.page.words if word.start < end and start < word.end]
    why = "an account number with right check digits" if valid else "an account number with wrong check digits"
    score = 0.97 if valid else 0.6
    return suits, printed_field("IBAN", value, printed, page.page, score=score, why=why, valid=valid)


def _last(regex: re.Pattern[str], text: str) -> int:
    """Where its last match begins; -1 where there is none."""
    return max((match.start() for match in regex.finditer(text)), default=-1)


_TERM = re.compile(
    r"(?<!\w)(?:\d{1,3} ?[-/]?(?:\d{1,3} ?[-/]?){0,2} ?(?:dias|d\.?f\.?f|days?|tagen?|jours|giorni|dies|d\.)"
    r"|net ?\d{1,3}|contado|a la vista|(?:due )?(?:up)?on receipt|immediate(?:ly)?|sofort|comptant|a reception"
    r"|cash on delivery|end of month|eom|fin de mes|contra reembolso|anticipad[oa]|prepaid|in advance|pronto pago"
    r"|rimessa diretta|a vista)(?!\w)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"(?:payment )?(?:terms:? )?net ?\d{1,3}(?: days)?\.?"
    r"|(?:pago a |a )?\d{1,3}(?:[-/ ,y]{1,3}\d{1,3}){0,2} dias"
    r"(?: (?:de )?(?:la )?(?:fecha|f\.?)(?: de)?(?: la)? ?(?:factura|f\.?|fra\.?))?\.?"
    r"|\d{1,3} (?:days|tage|jours|giorni)(?: (?:net|netto|nets|from invoice date|date de facture|fin de mois))?\.?",
    re.IGNORECASE,
)
_ENDS = ("due", "term", "other_id", "other")  # labels that end a term; "30 días fecha factura" goes on
_MOST_WORDS = 14
_MOST_ALONE = 8


def find_payment_term(pages: Sequence[LabelledPage]) -> Field | None:
    """When an invoice is to be paid, in its own words; how (by transfer, by card) alone is no term."""
    for page in pages:
        for label in page.labels:
            if label.label == "term":
                for place in page.places(label):
                    words = _sentence(page.until(place, _ENDS) if place.position == "behind" else place.words)
                    if words and _TERM.search(fold(_text(words)).text):
                        return _field(page, words, 0.85, f"{place.position} its label")
    for page in pages:
        for cell in page.page.cells:
            if len(cell.words) <= _MOST_ALONE and _ALONE.fullmatch(fold(cell.text).text):
                return _field(page, cell.words, 0.6, "words of a term of payment")
    return None


def _sentence(words: Sequence[Word]) -> Sequence[Word]:
    """The words up to the end of their first sentence."""
    for index, word in enumerate(words[:_MOST_WORDS]):
        if word.text.endswith((".", ";")) and len(word.text) > 3:  # not an abbreviation
            return words[: index + 1]
    return words[:_MOST_WORDS]


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def _field(page: LabelledPage, words: Sequence[Word], score: float, why: str) -> Field:
    value = _text(words).strip(" .:;,-")
    return printed_field("PaymentTerm", value, words, page.page, score=score, why=why)


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
