"""Which label each number and date of a page belongs to.

Every label claims the values in its places; the surest claim wins, and a value has one label. So the date below
"Delivery date" is not the invoice's, even where "Date" stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date as calendar_date
from itertools import islice, pairwise

from backend.files.pages import Word
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.dates import PrintedDate, dates_in
from backend.invoices.header.labels import STRENGTH
from backend.invoices.header.places import LabelledPage, Place, label_before
from backend.invoices.label_match import LabelMatch
from backend.text.id_formats import formats_of_length
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.dates import LONG_MONTHS
from backend.text.patterns.folding import fold

_MARK = re.compile(
    r"(?:n|no|nr|num|núm|nro|número|numero|number|nummer|n\.?o|id|:|#|-|\N{EN DASH}|=|\.|º|°|№|\()[.:ºª°#]*",
    re.IGNORECASE,
)
_MOST_MARKS = 3
_DAY_OR_COUNT = 3  # digits
_ID = re.compile(r"[#(\[]?(?P<id>[A-Za-z0-9Ñ][\w/.\-\N{EN DASH}_·:]{0,39}?)[)\]]?[.,;:]*")
_PREFIX = re.compile(r"[A-ZÑ]{1,6}[-/.]?")
_DATE = re.compile(r"\d{1,2}([/.-])\d{1,2}\1(?:\d{4}|\d\d)|(?:19|20)\d\d-\d\d-\d\d")
_AMOUNT = re.compile(r"\d{1,3}(?:[.,]\d{3}){0,8}[.,]\d\d|\d{1,24}[.,]\d\d")
_TIME = re.compile(r"\d{1,2}:\d\d(?::\d\d)?")
_SEPARATOR = re.compile(r"[/\-\N{EN DASH}]")
_UNIT_AFTER_NUMBER = re.compile(
    r"(?:€|\$|£|%|eur|euros?|días|dias|days|unidades|uds?|kg|pages?|páginas)\.?", re.IGNORECASE
)
_MONTH_NAME = re.compile(
    r"(?:ene|jan|feb|f[eé]v|mar|m[aä]r|abr|apr|avr|may|mai|jun|jul|ago|aug|ao[uû]|sep|set|oct|okt|out|ott|nov|dic|dec|dez|d[eé]c)\w{0,7}\.?",
    re.IGNORECASE,
)
_MISREAD = str.maketrans("OoIl|", "00111")
_DIGIT_RUN = re.compile(r"(?<![A-Za-z0-9|])[\dOoIl|]{3,}(?![A-Za-z0-9|])")
_TAX_IDS = ("NIF", "NIE", "CIF", "VAT", "IBAN")
_WORD_OF_PROSE = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class PrintedId:
    """A document's number as printed."""

    value: str
    words: tuple[Word, ...]
    rest: tuple[Word, ...]  # the words behind it

    @property
    def is_alone(self) -> bool:
        """Whether no other words than a date's follow."""
        head = self.rest[0].text.strip(".,;:").lower() if self.rest else ""
        return not self.rest or head in _CONNECTORS or bool(_DATE.match(head)) or not any(map(str.isalnum, head))


_CONNECTORS = {"de", "del", "vom", "du", "of", "dated", "fecha", "date", "le", "em", "en", "issued"}


def id_in(words: Sequence[Word], *, is_ocr: bool) -> PrintedId | None:
    """The number at the beginning of some words; None where they begin with something else.

    Args:
        is_ocr: letters like O and I among digits are misread ("A-740II" is A-74011).
    """
    first = 0
    while first < min(_MOST_MARKS, len(words)) and _MARK.fullmatch(words[first].text):
        first += 1
    last = _length(words[first : first + 4])
    if last == 0:
        return None
    chosen = words[first : first + last]
    value = _joined([word.text for word in chosen])
    if value.isdecimal() and len(value) <= _DAY_OR_COUNT and _counts(words[first + last :]):
        return None
    if is_ocr:
        value = _DIGIT_RUN.sub(_read_digits, value)
    return PrintedId(value, tuple(chosen), tuple(words[first + last :]))


def _counts(rest: Sequence[Word]) -> bool:
    """Whether a number before these words is an amount, a quantity or the day of a date: "12 de marzo", "3 días"."""
    texts = [word.text for word in rest[:2] if word.text.lower() != "de"]
    return bool(texts and (_UNIT_AFTER_NUMBER.fullmatch(texts[0]) or _MONTH_NAME.fullmatch(texts[0])))


def _length(words: Sequence[Word]) -> int:
    """How many of the first words are the number; 0 where they are none."""
    if not words:
        return 0
    texts = [word.text for word in words]
    head = texts[0].rstrip(",;:.")
    if _is_number(texts[0]):
        if len(texts) > 2 and texts[1] in ("/", "-", "\N{EN DASH}") and _is_number(texts[2]):
            return 3
        if (
            len(texts) > 1
            and _is_number(texts[1])
            and (_SEPARATOR.match(texts[0][-1]) or _SEPARATOR.match(texts[1][0]))
        ):
            return 2
        return 1
    if len(texts) > 1 and _PREFIX.fullmatch(head) and texts[0] == head:
        if _is_number(texts[1]):
            return 2
        if len(texts) > 2 and texts[1] in ("/", "-", "\N{EN DASH}") and _is_number(texts[2]):
            return 3
    return 0


def _is_number(text: str) -> bool:
    match = _ID.fullmatch(text)
    if match is None or not any(map(str.isdecimal, text)):
        return False
    core = match["id"]
    return not (_DATE.fullmatch(core) or _AMOUNT.fullmatch(core) or _TIME.fullmatch(core))


def _joined(texts: Sequence[str]) -> str:
    """Joined as printed: a separator between blanks stands without them, other words with one blank."""
    value = " ".join(texts)
    value = re.sub(r" ?([/\N{EN DASH}-]) ?", r"\1", value) if len(texts) > 1 else value
    return value.strip("#()[].,;: ").rstrip("/-\N{EN DASH}_")


def _read_digits(match: re.Match[str]) -> str:
    read = match[0]
    return read.translate(_MISREAD) if sum(map(str.isdecimal, read)) * 2 > len(read) else read


def is_tax_id(value: str) -> bool:
    """Whether it is a valid tax number or account: no document's number."""
    bare = "".join(filter(str.isalnum, value)).upper()
    return any(form.is_valid(bare) for kind in _TAX_IDS for form in formats_of_length(kind, len(bare)))


def is_short(value: str) -> bool:
    """Fewer than three characters, or a year: as often a page, a quantity or a part of a date."""
    return len(value) < 3 or is_year(value)


def is_year(value: str) -> bool:
    """Whether it may be a year of our time."""
    return bool(re.fullmatch(r"(?:19|20)\d\d", value))


_DAY, _MONTH, _YEAR = "day", "month", "year"
_HEADINGS = {
    **dict.fromkeys(("dia", "day", "tag", "jour", "giorno", "dd", "d"), _DAY),
    **dict.fromkeys(("mes", "month", "monat", "mois", "mese", "mm", "m"), _MONTH),
    **dict.fromkeys(("ano", "any", "year", "jahr", "annee", "anno", "aa", "aaaa", "yy", "yyyy", "jjjj", "a"), _YEAR),
}
_ROWS_BELOW = 2
_MOST_WORDS = 60  # of a row; more are no form
_MOST_DATES = 4  # of a page
_YEARS = range(1970, 2100)
_SHORT_YEARS = 100


@dataclass(frozen=True, slots=True)
class BoxedDate:
    """A day of the calendar in three boxes."""

    value: str  # ISO 8601
    words: tuple[Word, ...]  # of the three, left to right
    heading: Word  # the first of the headings
    heading_row: int  # index of the row of the headings
    row: int  # index of the row of the values


def boxed_dates(page: PageRows) -> Iterator[BoxedDate]:
    """The first dates of a page whose day, month and year stand behind, or below, headings that say so."""
    return islice(_boxed_dates(page), _MOST_DATES)


def _boxed_dates(page: PageRows) -> Iterator[BoxedDate]:
    for row in page.rows:
        words = [word for word in row.words[: _MOST_WORDS + 1] if any(map(str.isalnum, word.text))]
        if not 3 <= len(words) <= _MOST_WORDS:
            continue
        kinds = [_HEADINGS.get(_plain(word), "") for word in words]
        for first in range(len(words) - 2):
            for step, rows in ((2, (row,)), (1, page.rows[row.index + 1 : row.index + 1 + _ROWS_BELOW])):
                indexes = range(first, min(len(words), first + 3 * step), step)
                if {kinds[index] for index in indexes} != {_DAY, _MONTH, _YEAR}:
                    continue
                for other in rows:
                    headings = [words[index] for index in indexes]
                    values = words[first + 1 : first + 6 : 2] if step == 2 else _below(headings, other.words)
                    value = _value([kinds[index] for index in indexes], values)
                    if value is not None:
                        yield BoxedDate(value, tuple(values), headings[0], row.index, other.index)
                        break


def _below(headings: Sequence[Word], words: Sequence[Word]) -> list[Word]:
    """The words whose middles are nearest to those of the headings; empty where one has none near it."""
    middles = [_middle(word) for word in headings]
    reach = max(second - first for first, second in pairwise(middles)) / 2
    numbers = [word for word in words[:_MOST_WORDS] if any(map(str.isalnum, word.text))]
    nearest = [min(numbers, key=lambda word: abs(_middle(word) - middle), default=None) for middle in middles]
    found = [
        word
        for word, middle in zip(nearest, middles, strict=True)
        if word is not None and abs(_middle(word) - middle) <= reach
    ]
    return found if len({word.start for word in found}) == len(headings) else []


def _value(kinds: Sequence[str], words: Sequence[Word]) -> str | None:
    """The day of the calendar that the words say, ISO 8601; None where they are none."""
    if len(words) != len(kinds):
        return None
    texts = dict(zip(kinds, map(_plain, words), strict=True))
    month = texts[_MONTH] if texts[_MONTH].isdecimal() else str(LONG_MONTHS.get(texts[_MONTH], ""))
    if not all(text.isdecimal() and len(text) <= 4 for text in (texts[_DAY], month, texts[_YEAR])):
        return None
    year = int(texts[_YEAR])
    if year < _SHORT_YEARS and len(texts[_YEAR]) == 2:
        year += 2000
    try:
        return calendar_date(year, int(month), int(texts[_DAY])).isoformat() if year in _YEARS else None
    except ValueError:
        return None


def _plain(word: Word) -> str:
    return fold(word.text).text.lower().strip(" :./-|")


def _middle(word: Word) -> float:
    return (word.box.left + word.box.right) / 2


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
    return score * (1.0 if page.page.is_first else _LATER_PAGE) - _LOWER * share
