"""Which label each number and date of a page belongs to.

Every label claims the values in its places; the surest claim wins, and a value has one label. So the date below
"Delivery date" is not the invoice's, even where "Date" stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from backend.files.pages import Word
from backend.files.visual_rows import Cell
from backend.invoices.header.boxed_dates import BoxedDate, boxed_dates
from backend.invoices.header.dates import PrintedDate, dates_in
from backend.invoices.header.ids import PrintedId, id_in, is_short, is_tax_id, is_year
from backend.invoices.header.labels import STRENGTH
from backend.invoices.header.places import LabelledPage, Place, label_before
from backend.invoices.label_match import LabelMatch
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.folding import fold

_DATE_FIELDS = {"date": "InvoiceDate", "plain_date": "InvoiceDate", "due": "DueDate", "operation_date": "OperationDate"}
_ID_FIELDS = {
    "id": "InvoiceId", "number": "InvoiceId", "reference": "InvoiceId", "title": "InvoiceId",
    "series": "Series", "order": "PurchaseOrder", "rectified": "RectifiedInvoiceId", "other_id": "",
}  # fmt: skip
_NUMBERED = ("id", "title")  # labels of numbers whose date may follow: "Factura nº 23 de 3 de mayo"
_UNSURE = ("number", "reference", "title")  # their numbers stand alone
_OTHERS = ("order", "other_id", "rectified", "other_date")  # labels whose date is not the invoice's
_DATE_WITHIN = 4  # words between a label and its date: "por favor, antes del"
_DATE_AFTER_NUMBER = 8
_AFTER_NUMBER = 0.85
_OTHERS_DATE = 0.95
_BOXED = 0.85
_ABOVE_BOXES = 2  # rows above the headings "Day", "Month", "Year" in which a label says what date it is
_PROSE = 14  # words of a cell that is a sentence: labels within it are trusted less
_IN_PROSE = 0.7
_WITHIN = 0.85  # behind other words
_LATER_PAGE = 0.9
_LOWER = 0.06  # from the top of a page to its end
_UNTIL = ("hasta", "until")
_CUED = 0.55
_BARE = 0.5  # less sure claims give way to a date that words of paying stand before
_LONG_ID = 4  # digits
_MARK_LENGTH = 9  # characters between a title and its number: ", número "
_CUE_WORDS = 9  # before a date
_SENTENCES = 60  # words of a cell that is searched for words of paying
_DUE_WORDS = re.compile(
    r"(?<![^\W_])(?:venc|vto|vence|seran? [a-z]{4,10}ad[oa]s?(?![a-z])|pag(?:ar|o|ue|uese|adero|adera|aremos)(?![^\W_])"
    r"|carg(?:o|ar)|carrec|adeud|domicilia|cobr|limite|abon(?:ar|e|en|able|ara)(?![^\W_])|satisf|exigible|ingres(?:ar|e|en)(?![^\W_])|due(?![^\W_])"
    r"|liquid(?:ar|e|en)(?![^\W_])|transfi?er(?:ir|a|an)(?![^\W_])"
    r"|pay(?:able|ment)?(?![^\W_])|debit|collect|remit|settle|fallig|faellig|zahl|abbuch|uberweis"
    r"|echeance|payer|regler|reglement|prelev|scad|pagare|entro)",
    re.IGNORECASE,
)
_PAID_WORDS = re.compile(
    r"(?<![^\W_])(?<!sera )(?<!seran )(?:(?:pagad|recibid|cobrad|cargad)[oa]s?|paid|received|bezahlt|paye|regle|desde"
    r"|since|pagato)(?![^\W_])",
    re.IGNORECASE,
)
_OTHER_WORDS = re.compile(
    r"(?<![^\W_])(?:entrega|pedido|albaran|valor|nacim|impres|alta|baja|inicio|fin|lectura|entrada|salida|llegada|envio|contrat"
    r"|servicio|operaci|order|deliver|ship|print|birth|start|end|expir|arriv|depart|period|read|liefer|bestell|leistung"
    r"|livraison|commande|consegna|ordine|recepc|validez|caduc|firm|registro|cierre|proxim|anterior|ultim|rectificada)",
    re.IGNORECASE,
)
_TITLE_AND_NUMBER = 1.3  # "Invoice INV-7" against a title with a number below it
_NEAR_TITLE = 5  # rows around a title in which a bare "Nº" is the document's
_FAR_FROM_TITLE = 0.6
_RANGE_WORDS = frozenset(
    (
        "a",
        "al",
        "to",
        "bis",
        "au",
        "hasta",
        "until",
        "till",
        "through",
        "y",
        "and",
        "ate",
        "até",
        "fins",
        "-",
        "\N{EN DASH}",
        "\N{EM DASH}",
    )
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A label's claim to a value."""

    field: str  # a field's name; "Series", "OperationDate"; empty for what is no field
    value: str
    words: tuple[Word, ...]
    score: float  # 0 to 1
    page: LabelledPage
    row: int
    label: LabelMatch | None
    position: str  # of the value: "behind", "beside", "below" its label; "columns" of day, month, year
    ambiguous: bool = False

    @property
    def why(self) -> str:
        """One sentence: by what it was found."""
        if self.position == "columns":
            return "in the boxes of day, month and year"
        if self.label is None:
            place = "behind words of paying" if self.field == "DueDate" else "without a label at the head of the page"
            return f"a date {place}"
        printed = " ".join(word.text for word in self.label.words).strip(" :.#")
        return f"{self.position} the label “{printed}”"


def settle(claims: Sequence[Claim]) -> list[Claim]:
    """The claims that win, the surest first: one for each value, one for each label."""
    used: set[int] = set()
    taken: set[tuple[int, int]] = set()
    won: list[Claim] = []
    for claim in sorted(claims, key=lambda c: (-c.score, c.page.page.page.number, c.row, c.words[0].box.left)):
        places = {(claim.page.page.page.number, word.start) for word in claim.words}
        if places & taken or (claim.label is not None and claim.field and id(claim.label) in used):
            continue
        taken |= places
        if claim.label is not None:
            used.add(id(claim.label))
        won.append(claim)
    return won


def date_claims(page: LabelledPage, order: DateOrder) -> Iterator[Claim]:
    """The dates that the labels of a page claim; those of no field have an empty one."""
    for label in page.labels:
        kind = _date_kind(page, label)
        for place in page.places(label):
            if place.position != "behind" and kind not in _DATE_FIELDS and kind != "other_date":
                break
            for date in dates_in(place.words, order, is_ocr=page.page.page.source == "ocr"):
                trusted = _trusted_date(page, label, place, kind, date)
                if trusted is not None:
                    row, score = place.cell.row, _placed(page, label.cell.row, trusted[1])
                    yield Claim(
                        trusted[0], date.value, date.words, score, page, row, label, place.position, date.ambiguous
                    )
                if kind != "other_date":
                    break
    for boxed in boxed_dates(page.page):
        yield Claim(_boxed_field(page, boxed), boxed.value, boxed.words, _BOXED, page, boxed.row, None, "columns")
    for cell in page.page.cells:
        yield from _ranges(page, cell.words, cell.row, order)


def _boxed_field(page: LabelledPage, boxed: BoxedDate) -> str:
    """The field of a date in three boxes, by the nearest label of a date beside or above their headings."""
    near = [
        (abs(label.words[0].box.left - boxed.heading.box.left), kind)
        for label in page.labels
        if boxed.heading_row - _ABOVE_BOXES <= label.cell.row <= boxed.heading_row
        and label.words[0].box.left < boxed.words[-1].box.right
        and ((kind := _date_kind(page, label)) in _DATE_FIELDS or kind == "other_date")
    ]
    return _DATE_FIELDS.get(min(near)[1], "") if near else "InvoiceDate"


def _trusted_date(
    page: LabelledPage, label: LabelMatch, place: Place, kind: str, date: PrintedDate
) -> tuple[str, float] | None:
    """The field of a date in a label's place, and how sure that is; None where it is not the label's."""
    if kind in _DATE_FIELDS:
        if date.first > _DATE_WITHIN:
            return None
        return _DATE_FIELDS[kind], STRENGTH.get(kind, 1.0) * place.trust * _prose_trust(page, label)
    if kind == "other_date":
        return "", place.trust
    if kind in _OTHERS:
        has_number = kind != "other_id" or id_in(place.words, is_ocr=False) is not None
        return ("", _OTHERS_DATE) if has_number else None
    if kind in _NUMBERED and date.first <= _DATE_AFTER_NUMBER:
        return "InvoiceDate", _AFTER_NUMBER * _prose_trust(page, label)
    return None


def _date_kind(page: LabelledPage, label: LabelMatch) -> str:
    """The kind of a label; of a bare "Fecha" by the words around it: "Albarán nº 12 de fecha", "Fecha de adeudo"."""
    if label.label == "other_date" and label.phrase in _UNTIL:
        return "due" if _says_due(label.cell.words[max(0, label.first - _DATE_WITHIN) : label.first]) else "other_date"
    if label.label != "plain_date":
        return label.label
    before = label_before(page, label)
    is_next_column = before is not None and before.last == label.first
    if before is not None and not is_next_column and before.label in (*_OTHERS, *_NUMBERED):
        return "date" if before.label in _NUMBERED else "other_date"
    if label.words[-1].text.endswith(":"):
        return label.label
    following = " ".join(word.text for word in label.rest[:_DATE_WITHIN] if not any(map(str.isdecimal, word.text)))
    qualifiers = fold(following).text
    if _DUE_WORDS.search(qualifiers):
        return "due"
    return "other_date" if _OTHER_WORDS.search(qualifiers) else label.label


def _ranges(page: LabelledPage, words: Sequence[Word], row: int, order: DateOrder) -> Iterator[Claim]:
    """Both ends of "11/02/2026 a 13/03/2026": a period, none of them the invoice's date."""
    if sum(any(map(str.isdecimal, word.text)) for word in words) < 2 or len(words) > 4 * _PROSE:
        return
    dates = dates_in(words, order, is_ocr=page.page.page.source == "ocr")
    for first, second in pairwise(dates):
        between = words[first.first + len(first.words) : second.first]
        if len(between) == 1 and between[0].text.lower().strip(".") in _RANGE_WORDS:
            for date in (first, second):
                yield Claim("", date.value, date.words, _OTHERS_DATE, page, row, None, "behind")


def cued_due_date(page: LabelledPage, won: Sequence[Claim], order: DateOrder) -> Claim | None:
    """A date that no label claims, behind or beside words of paying: "pasaremos al cobro el recibo el 5 de mayo"."""
    taken = {word.start for claim in won if claim.page is page and claim.score > _BARE for word in claim.words}
    for cell in page.page.cells:
        if len(cell.words) > _SENTENCES:
            continue
        for date in dates_in(cell.words, order, is_ocr=page.page.page.source == "ocr"):
            if any(word.start in taken for word in date.words):
                continue
            before = cell.words[max(0, date.first - _CUE_WORDS) : date.first]
            cues = (before,) if before else (_left_of(page, cell), _above(page, cell))
            if any(map(_says_due, cues)):
                return Claim("DueDate", date.value, date.words, _CUED, page, cell.row, None, "behind", date.ambiguous)
    return None


def _says_due(words: Sequence[Word]) -> bool:
    """Whether words speak of a payment that is still to come."""
    cue = fold(" ".join(word.text for word in words)).text
    return bool(_DUE_WORDS.search(cue)) and not _PAID_WORDS.search(cue)


def _above(page: LabelledPage, cell: Cell) -> tuple[Word, ...]:
    """The words of the cell over a cell that begins with a date, close above it: their sentence goes on in it."""
    rows = page.page.rows[max(0, cell.row - 1) : cell.row]
    over = [other for row in rows for other in row.cells if abs(other.box.left - cell.box.left) < page.height]
    return over[0].words[-_CUE_WORDS:] if over and cell.box.top - over[0].box.bottom < page.height else ()


def _left_of(page: LabelledPage, cell: Cell) -> tuple[Word, ...]:
    """The words of the cell to the left, if they are few enough for a label."""
    before = [other for other in page.page.rows[cell.row].cells if other.box.right <= cell.box.left]
    return before[-1].words if before and len(before[-1].words) <= _CUE_WORDS else ()


def id_claims(page: LabelledPage) -> Iterator[Claim]:
    """The numbers that the labels of a page claim."""
    titles = {label.cell.row for label in page.labels if label.label in (*_NUMBERED, "date", "due")}
    for label in page.labels:
        field = _ID_FIELDS.get(label.label)
        if field is None:
            continue
        for place in page.places(label):
            found = _series_in(place) if field == "Series" else None
            found = found or id_in(place.words, is_ocr=page.page.page.source == "ocr")
            if found is None or not _is_trusted(page, label, found, is_below=place.position == "below"):
                if label.label in _OTHERS and place.position != "below":
                    break
                continue
            score = STRENGTH.get(label.label, 1.0) * place.trust * _prose_trust(page, label)
            if label.label == "title" and place.position == "behind":
                score *= _TITLE_AND_NUMBER
            if label.label in ("number", "reference") and not any(
                abs(label.cell.row - row) <= _NEAR_TITLE for row in titles
            ):
                score *= _FAR_FROM_TITLE
            score = _placed(page, label.cell.row, score)
            yield Claim(field, found.value, found.words, score, page, place.cell.row, label, place.position)
            break


def _is_trusted(page: LabelledPage, label: LabelMatch, found: PrintedId, *, is_below: bool) -> bool:
    """A bare "Nº" or a title has only a number that stands alone and is no tax number beside it.

    In a sentence a date follows the number: "our invoice 2026/14 of 3 March"; or it is a long one right behind the
    title: "Here is invoice 30518 for the work".
    """
    if label.label not in _UNSURE:
        return True
    if is_tax_id(found.value):
        return False
    if label.label == "title" and not is_below and _is_in_sentence(label, found):
        return True
    if not found.is_alone:
        return False
    if is_short(found.value):  # "Factura 40" as a heading; "FACTURA" over a "40" says nothing
        ends_cell = found.words[-1] is label.cell.words[-1]
        return label.label == "title" and label.first == 0 and ends_cell and not is_year(found.value)
    before = label_before(page, label)
    if label.first == 0 or (
        before is not None and before.last == label.first and (is_below or before.label in _NUMBERED)
    ):
        return True
    if label.label == "number":  # "I invoice you (no. 9962 of 3 May) for"
        return before is not None and before.label in _NUMBERED
    end = next((index for index, word in enumerate(label.cell.words, 1) if word is found.words[-1]), 0)
    following = label.cell.words[end : end + _DATE_WITHIN] if end else ()
    return label.label == "title" and any(map(str.isdecimal, "".join(word.text for word in following)))


def _is_in_sentence(label: LabelMatch, found: PrintedId) -> bool:
    """Whether a long number stands right behind its title among other words."""
    is_long = sum(map(str.isdecimal, found.value)) >= _LONG_ID and not is_year(found.value)
    is_behind = label.last < len(label.cell.words) and found.words[0].start - label.words[-1].end <= _MARK_LENGTH
    follows = found.rest[0].text if found.rest else ""
    return is_long and is_behind and found.words[0] in label.cell.words and follows[:1] not in ("%", "€", "$", "£")


def _series_in(place: Place) -> PrintedId | None:
    """A series may have letters only: "Serie A"."""
    first = place.words[0]
    text = first.text.strip(":.,;-")
    if not text.isalnum() or not text.isupper() or len(text) > 6:
        return None
    return PrintedId(text, (first,), place.words[1:])


def _prose_trust(page: LabelledPage, label: LabelMatch) -> float:
    if label.first == 0 or label_before(page, label) is not None:
        return 1.0
    return _IN_PROSE if len(label.cell.words) > _PROSE else _WITHIN


def _placed(page: LabelledPage, row: int, score: float) -> float:
    """A score less what its place on the pages costs: the head of the first one is where these fields stand."""
    share = row / max(1, len(page.page.rows))
    return score * (1.0 if page.page.page.number == 1 else _LATER_PAGE) - _LOWER * share
