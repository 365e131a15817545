"""Dates, terms and the account of a document, by labels, patterns and check digits. Numbers are the network's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import NamedTuple

from stdnum.iso7064 import mod_97_10

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.dates import PrintedDate, PrintedTime, dates_in, time_in
from backend.invoices.header.labels import LABELS
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import LabelMatch, Vocabulary
from backend.invoices.ocr_confusions import suggest_repairs
from backend.invoices.records import Field, printed_field, words_at
from backend.reasons import because
from backend.text.patterns import find_patterns
from backend.text.patterns.dates import DateOrder, order_of
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
_MASKS = ("*", "•", "xx", "··", "..", "…")  # for the rest of an account that is not told


def find_iban(pages: Sequence[PageRows]) -> Field | None:
    """The IBAN to pay to; of several the vendor's before the customer's, and a valid one before a wrong one."""
    found = [candidate for page in pages for candidate in _ibans(page)]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _ibans(page: PageRows) -> list[tuple[float, Field]]:
    """Accounts with how well each suits."""
    text = page.page.text
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
    if not found and page.page.source == "ocr":
        for row in page.rows:
            if _HEAD.search(fold(row.text).text):
                found += _repaired(page, row.words)
    return found or list(_of_wrong_length(page))


def _of_wrong_length(page: PageRows) -> Iterator[tuple[float, Field]]:
    """Numbers behind the label "IBAN" that have no country's length."""
    folded = fold(page.page.text)
    for match in _LABELLED.finditer(folded.text):
        value = "".join(filter(str.isalnum, match["number"]))
        is_masked = folded.text[match.end("number") :].lstrip().startswith(_MASKS)
        if sum(map(str.isdecimal, value)) * 2 > len(value) and not is_masked:
            yield _candidate(page, folded.span(*match.span("number")), value, 0.4, valid=False)


def _repaired(page: PageRows, words: Sequence[Word]) -> list[tuple[float, Field]]:
    """Accounts with letters where only digits can stand: they are read as the digits, if the check digits agree."""
    text = " ".join(word.text for word in words)
    found = []
    for suggestion in suggest_repairs(text):
        if suggestion.type == "IBAN":
            chosen = words_at(words, suggestion.start, suggestion.end)
            span = (chosen[0].start, chosen[-1].end)
            found.append(_candidate(page, span, suggestion.repair.value, 0.9, valid=True, words=chosen))
    return found


def _candidate(
    page: PageRows,
    span: tuple[int, int],
    value: str,
    suits: float,
    *,
    valid: bool | None,
    words: Sequence[Word] = (),
) -> tuple[float, Field]:
    start, end = span
    text = page.page.text
    before = fold(text[max(0, start - _NEAR) : start]).text
    debited, paid = _last(_DEBITED, before), _last(_PAID_TO, before)
    suits += 0.1 if paid > debited else -0.1 if debited > paid else 0.0
    printed = words or [word for word in page.page.words if word.start < end and start < word.end]
    why = because("account_number") if valid else because("wrong_account_number")
    score = 0.97 if valid else 0.6
    return suits, printed_field("IBAN", value, printed, page, score=score, why=why, valid=valid)


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
# In a sentence: "This bill is payable within 28 days of the date hereof", "Zahlbar innerhalb von 14 Tagen ohne Abzug".
_SPOKEN = re.compile(
    r"(?<![^\W_])(?:(?:payable|due|settled?|payment) within|(?:re)?pay(?:ment|able)?|zahlbar|zahlung|pagable"
    r"|pagar[ae]?|pago|giro|confirming|recibo|ri\.?ba\.?|paiement|reglement|pagamento|bonifico)"
    r"(?![^\W_])[^.;:\d]{0,25}?(?:\d{1,3}|siete|quince|treinta|sesenta|noventa)"
    r" ?(?:days|dias|tagen?|jours|giorni|gg|dies|d/f)(?![^\W_])(?:[^.;,:]|\.(?=\S)){0,40}",
    re.IGNORECASE,
)
_MAX_WORDS = 14
_MAX_ALONE = 8


class _Candidate(NamedTuple):
    """Words in which a label's value may stand."""

    words: Sequence[Word]
    trust: float  # how usual a value is there
    position: str
    row: int


@dataclass(frozen=True)
class _Labelled:
    """A page with the labels on it; rows of goods have none."""

    page: PageRows
    labels: Sequence[LabelMatch]

    def of(self, cell: Cell) -> list[LabelMatch]:
        return self._by_cell.get(id(cell), [])

    @cached_property
    def _by_cell(self) -> dict[int, list[LabelMatch]]:
        by_cell: defaultdict[int, list[LabelMatch]] = defaultdict(list)
        for label in self.labels:
            by_cell[id(label.cell)].append(label)
        return by_cell

    def candidates(self, label: LabelMatch) -> Iterator[_Candidate]:
        """Behind a label, in the next cell, and below it; none goes on behind another label."""
        behind = self._before_label(label.cell, label.last)
        yield _Candidate(behind, 1.0, "behind", label.cell.row)
        if not any(map(str.isdecimal, "".join(word.text for word in behind))):
            cells = self.page.rows[label.cell.row].cells
            following = next((cell for cell in cells if cell.box.left >= label.cell.box.right), None)
            if following is not None and label.last == self.of(label.cell)[-1].last:
                yield _Candidate(self._before_label(following, 0), 0.95, "beside", label.cell.row)
        yield from self._below(label)

    def _before_label(self, cell: Cell, first: int) -> Sequence[Word]:
        stops = [other.first for other in self.of(cell) if other.first >= first]
        words = cell.words[first : min(stops, default=first + _LONG_CELL)]
        is_begun = first and not stops and any(word.text[:1].isdecimal() for word in words)
        return _wrapped(self.page, cell, first) if is_begun else words

    def _below(self, label: LabelMatch) -> Iterator[_Candidate]:
        left, right = label.words[0].box.left, label.words[-1].box.right
        height = self.page.line_height
        for step, row in enumerate(self.page.rows[label.cell.row + 1 :][:_MAX_BELOW]):
            if row.box.top - label.cell.box.bottom > _MAX_DROP * height:
                return
            under = [cell for cell in row.cells if cell.box.left < right + height and left - height < cell.box.right]
            if any(map(self.of, under)):
                return
            for cell in under:
                words = [word for word in cell.words if word.box.left < right + height]
                yield _Candidate(words, 0.88 - 0.06 * step, "below", row.index)


def _wrapped(page: PageRows, cell: Cell, first: int = 0) -> Sequence[Word]:
    """The words of a cell from one on, and how the line below goes on, where a date may be broken over both."""
    below = page.rows[cell.row + 1].cells if cell.row + 1 < len(page.rows) else ()
    under = (other for other in below if abs(other.box.left - cell.box.left) < page.line_height)
    further = next(under, None)
    own = cell.words[first : first + _LONG_CELL]
    return own if further is None or not own else (*own, *further.words[:_LONGEST_REST])


def find_payment_term(pages: Sequence[_Labelled]) -> Field | None:
    """When an invoice is to be paid, in its own words; how (by transfer, by card) alone is no term."""
    for page in pages:
        for label in page.labels:
            for candidate in page.candidates(label) if label.label == "term" else ():
                words = _sentence(label.rest if candidate.position == "behind" else candidate.words)
                if _TERM.search(fold(_text(words)).text):
                    return _term(page.page, words, 0.85, because("its_label", position=candidate.position))
    for page in pages:
        for cell in page.page.cells:
            if len(cell.words) <= _MAX_ALONE and _ALONE.fullmatch(fold(cell.text).text):
                return _term(page.page, cell.words, 0.6, because("payment_words"))
    return next((term for page in pages for cell in page.page.cells if (term := _spoken(page.page, cell))), None)


def _spoken(page: PageRows, cell: Cell) -> Field | None:
    """The term that a sentence of a cell tells."""
    words = cell.words[:_LONG_CELL]
    folded = fold(_text(words))
    match = _SPOKEN.search(folded.text)
    if match is None:
        return None
    return _term(page, words_at(words, *folded.span(*match.span())), 0.6, because("payment_words"))


def _sentence(words: Sequence[Word]) -> Sequence[Word]:
    """The words up to the end of their first sentence."""
    for index, word in enumerate(words[:_MAX_WORDS]):
        if word.text.endswith((".", ";")) and len(word.text) > 3:  # not an abbreviation
            return words[: index + 1]
    return words[:_MAX_WORDS]


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def _term(page: PageRows, words: Sequence[Word], score: float, why: str) -> Field:
    return printed_field("PaymentTerm", _text(words).strip(" .:;,-"), words, page, score=score, why=why)


_FIRST_PAGES = 3  # besides the last one: heads stand on the first, terms and accounts on the last
_LONGEST_TERM_DAYS = 185
_MAX_BELOW, _MAX_DROP = 3, 4.5  # rows and line heights from a label to a value below it
_WITHIN = 4  # words between a label and its date: "por favor, antes del"
_RECEIPT = Vocabulary(
    {
        "receipt": (
            "factura simplificada", "ticket", "tique", "tiquet", "receipt", "efectivo", "cambio", "entregado", "cash",
            "change", "kassenbon", "bar", "ruckgeld", "ticket de caisse", "scontrino", "cash bill", "cashier", "cajero",
            "caja", "le atendio", "tendered", "gracias por su visita", "mesa", "tarjeta", "visa", "mastercard",
        )
    }
)  # fmt: skip
_RECEIPT_WORDS = 6  # of a cell that may say so: no prose
_LONGEST_REST = 5  # words of a date on the next line
_LONG_CELL = 40  # words: prose, whose dates are none of the document's
_FIELDS = {"date": ("InvoiceDate", 1.0), "plain_date": ("InvoiceDate", 0.85), "due": ("DueDate", 1.0)}


class _Dated(NamedTuple):
    """A date that may be a field's."""

    field: str
    date: PrintedDate
    score: float
    page: PageRows
    row: int
    why: str


def find_header(pages: Sequence[PageRows], items: ItemLines | None) -> tuple[Field, ...]:
    """Dates, terms and the account of an invoice; date and time of a receipt too. What is not found is left out."""
    chosen = [*pages[:_FIRST_PAGES], *pages[_FIRST_PAGES:][-1:]]
    labelled = [_labelled(page, items) for page in chosen]
    dates = _dates(labelled, items)
    fields = [_date_field(name, found) for name, found in dates.items()]
    fields += [field for field in (find_payment_term(labelled), find_iban(chosen)) if field is not None]
    issued = dates.get("InvoiceDate")
    return (*fields, *(_transaction(issued, labelled) if issued is not None else ()))


def _labelled(page: PageRows, items: ItemLines | None) -> _Labelled:
    cells = [cell for cell in page.cells if items is None or not items.contains(cell.page, cell.middle)]
    return _Labelled(page, [label for cell in cells for label in LABELS.find(cell)])


def _dates(pages: Sequence[_Labelled], items: ItemLines | None) -> dict[str, _Dated]:
    """The dates in the order that suits them: due follows issued."""
    order = order_of(fold("\n".join(page.page.page.text for page in pages)).text)
    dates = _in_order(pages, items, order)
    if order.settled or not any(found.date.ambiguous for found in dates.values()):
        return dates
    others = _in_order(pages, items, DateOrder(not order.month_first, settled=True))
    if _is_plausible(others) and not _is_plausible(dates):
        return others
    if _is_plausible(dates) and _is_plausible(others) is False:
        return _in_order(pages, items, DateOrder(order.month_first, settled=True))
    return dates


def _is_plausible(dates: dict[str, _Dated]) -> bool | None:
    """Whether the invoice is due after it was issued, within months; None where one of the dates is missing."""
    if len(dates) < len(("InvoiceDate", "DueDate")):
        return None
    issued, due = (date.fromisoformat(dates[name].date.value) for name in ("InvoiceDate", "DueDate"))
    return 0 <= (due - issued).days <= _LONGEST_TERM_DAYS


def _in_order(pages: Sequence[_Labelled], items: ItemLines | None, order: DateOrder) -> dict[str, _Dated]:
    """The surest date of each field, of the first page one without a label where none has one."""
    found = [dated for page in pages for dated in _labelled_dates(page, order)]
    best: dict[str, _Dated] = {}
    taken: set[tuple[int, int]] = set()
    for dated in sorted(found, key=lambda dated: -dated.score):
        if dated.field not in best and not _places(dated) & taken:
            best[dated.field] = dated
            taken |= _places(dated)
    if "InvoiceDate" not in best and pages:
        bare = [dated for dated in _bare_dates(pages[0], items, order) if not _places(dated) & taken]
        if bare:
            best["InvoiceDate"] = max(bare, key=lambda dated: (dated.score, -dated.row))
    return best


def _places(dated: _Dated) -> set[tuple[int, int]]:
    return {(dated.page.page.number, word.start) for word in dated.date.words}


def _labelled_dates(page: _Labelled, order: DateOrder) -> Iterator[_Dated]:
    for label in page.labels:
        if label.label not in _FIELDS:
            continue
        name, strength = _FIELDS[label.label]
        printed = _text(label.words).strip(" :.#")
        for candidate in page.candidates(label):
            dates = dates_in(candidate.words, order, is_ocr=page.page.page.source == "ocr")[:1]
            for found in (found for found in dates if found.first <= _WITHIN):
                why = because("label", position=candidate.position, label=printed)
                yield _Dated(name, found, strength * candidate.trust, page.page, candidate.row, why)


def _bare_dates(page: _Labelled, items: ItemLines | None, order: DateOrder) -> Iterator[_Dated]:
    """Dates without a label, likelier with a time, alone, at the top."""
    for cell in page.page.cells:
        if len(cell.words) > _LONG_CELL or (items is not None and items.contains(cell.page, cell.middle)):
            continue
        dates = dates_in(_wrapped(page.page, cell), order, is_ocr=page.page.page.source == "ocr")
        for found in (found for found in dates if found.first < len(cell.words)):
            if fold(_text(cell.words[max(0, found.first - 2) : found.first])).text.casefold() == "sort code":
                continue  # of a British bank: 20-11-43
            score = _bare_score(page.page, cell, len(found.words))
            why = because("date_at_head")
            yield _Dated("InvoiceDate", found, score, page.page, cell.row, why)


def _bare_score(page: PageRows, cell: Cell, words: int) -> float:
    """0 to 1, by the cell it stands in and where that is."""
    others = len(cell.words) - words
    is_top = cell.row < len(page.rows) * 0.4
    has_time = time_in(page.rows[cell.row].words) is not None
    score = 0.5 + (0.1 if is_top else 0.0) + (0.15 if has_time else 0.0) + (0.1 if others == 0 else 0.0)
    return score - (0.1 if others > 8 else 0.05 if others > 4 else 0.0)  # words of a sentence


def _date_field(name: str, found: _Dated) -> Field:
    score = min(0.99, found.score) * (0.6 if found.date.ambiguous else 1.0)
    why = found.why + (f"; {because('day_or_month')}" if found.date.ambiguous else "")
    return printed_field(
        name, found.date.value, found.date.words, found.page, score=score, why=why, valid=True,
        ambiguous=found.date.ambiguous,
    )  # fmt: skip


def _transaction(issued: _Dated, pages: Sequence[_Labelled]) -> Iterator[Field]:
    """Date and time of a receipt: where the words of one stand on the page, and a time beside the date."""
    cells = (cell for cell in issued.page.cells if len(cell.words) <= _RECEIPT_WORDS)
    if not any(map(_RECEIPT.find, cells)):
        return
    yield _date_field("TransactionDate", issued)
    page = next(page for page in pages if page.page is issued.page)
    time = _time(issued, page)
    if time is not None:
        why = because("time_beside_date")
        score = min(0.99, issued.score)
        yield printed_field("TransactionTime", time.value, time.words, page.page, score=score, why=why, valid=True)


def _time(issued: _Dated, page: _Labelled) -> PrintedTime | None:
    """The time in the date's row, or behind a label of its own."""
    dated = {word.start for word in issued.date.words}
    found = time_in([word for word in page.page.rows[issued.row].words if word.start not in dated])
    labels = [label for label in page.labels if label.label == "time"]
    times = (time_in(candidate.words) for label in labels for candidate in page.candidates(label))
    return found or next((time for time in times if time is not None), None)
