"""Cuts a file into documents: where another invoice begins, by what its pages say."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from math import exp

from stdnum.es import nif
from stdnum.eu import vat

from backend.files.einvoice.xml_tree import compact_id
from backend.files.page_ranges import split_ranges
from backend.files.pages import Word
from backend.files.visual_rows import MAX_ROW_WORDS, PageRows, page_rows
from backend.invoices.document_kind import evidence_of, says_no_invoice
from backend.invoices.learned.read import PageReader

_BEGINS = 0.6  # probability: an annex that is told alone loses its invoice more than it gains
_LINES = 250  # words of a page without a head that is looked at: of more, which are lines, it takes long
_MAX_SIDES, _LEAST_WORDS = 600, 10  # words of a page with papers side by side, and of each of them
_LEANS = (-0.08, -0.04, 0.0, 0.04, 0.08)  # sideways by downwards, of what is between two papers
_GAP = 1.5  # heights of a line, at least
_COPY = 0.95  # of the words of two pages that are one again
_FIRST_ROWS = 3
_ANNEX = re.compile(
    r"(?i)\W{0,20}(?:(?:ane[jx]os?|annexe?s?|appendix|anlage|anhang|allegato)\b|condici\w+ general|terms (?:and|&) cond"
    r"|allgemeine gesch|conditions g[ée]n[ée]rales|condizioni generali|condi[çc][õo]es gerais|general terms"
    r"|(?:detalle|detall|detalhe|d[ée]tail|dettaglio|desglose|desglossament|itemi[sz]ed|breakdown|relaci[óo]n de)\b)"
)
_MARK = re.compile(
    r"(?i)\b(?:p[áàa]g(?:ina)?|page|seite|hoja|fol[hl]a|foglio|feuille|full|fulla)\b\.?\s*:?\s*(\d{1,3})\s*(?:de|of|von|sur|di|/)\s*(\d{1,3})\b"
)
_TAX_ID = re.compile(r"\b(?:[A-Z]{2}[ -]?)?(?:[A-Z][ -]?)?\d[\d.\- ]{5,14}[A-Z0-9]\b")
# Of log odds: fitted on files joined of papers of strangers, of tests and of the generator. Fitted again on 1,600 files
# with suppliers' statements, quotes and letters among their invoices they are no better: 487 of 500 others, not 492.
_WEIGHTS = {
    "always": 2.1, "another number": 4.9, "a number": 1.4, "same number": -4.0, "copy": -8.0, "other ids": 2.4,
    "no total before": -2.4, "last page before": 1.5, "more pages before": -1.9, "first page": 2.5, "later page": -1.5,
    "next page": -6.0, "titled": 0.8, "total": 1.0, "other title": 6.0, "annex": -4.9,
    "looks first": 0.7, "looks fields": -3.3, "looks contract": -4.7, "looks letter": -1.3,
    "before, looks fields": -4.0,
}  # fmt: skip


@dataclass(slots=True)
class _Said:
    """What pages say of the document they are of."""

    number: str
    words: set[str]  # of its first page
    ids: set[str]
    has_total: bool = False
    titled: bool = False
    is_other: bool = False  # titled as what is no invoice, or a statement, or it says so
    is_annex: bool = False
    mark: tuple[int, int] | None = None  # this page and how many there are
    looks: Mapping[str, float] = field(default_factory=dict)  # as of `PageReader.looks`

    def add(self, page: _Said) -> None:
        """What another page of it says."""
        self.number = self.number or page.number
        self.ids |= page.ids
        self.has_total |= page.has_total
        self.mark = page.mark


def documents_by(pages: Sequence[PageRows], split: str, reader: PageReader) -> list[Sequence[PageRows]]:
    """The pages of each document as a caller wants them; as `documents_in` finds them where he leaves it to us.

    Args:
        split: as of `split_ranges`. Pages that it does not name are of no document.
    """
    if split == "auto":
        return documents_in(pages, reader)
    spans = split_ranges(split) or ([(page.page.number,) * 2 for page in pages] if split == "pages" else [])
    return documents_of(pages, [range(first, last + 1) for first, last in spans]) if spans else [pages]


def documents_of(pages: Sequence[PageRows], parts: Iterable[Container[int]]) -> list[Sequence[PageRows]]:
    """The pages of each document that somebody has told apart by their numbers; one without pages where none is."""
    found = [[page for page in pages if page.page.number in numbers] for numbers in parts]
    return [[replace(part[0], is_first=True), *part[1:]] for part in found if part] or [[]]


def documents_beside(parts: Sequence[Sequence[PageRows]], number: str, reader: PageReader) -> list[Sequence[PageRows]]:
    """The documents of a file with one's data: those that print another number, and all other pages as the data's own.

    Args:
        number: the data's, as `compact_id`; where no page prints it, all pages are its own.
    """
    numbers = [_number_on(part, reader) for part in parts]
    if not number or number not in numbers:
        return [[page for part in parts for page in part]]
    others = [part for part, other in zip(parts, numbers, strict=True) if other not in ("", number)]
    own = [page for part, other in zip(parts, numbers, strict=True) if other in ("", number) for page in part]
    return [own, *others]


def owner_of(parts: Sequence[Sequence[PageRows]], number: str, reader: PageReader) -> Sequence[PageRows]:
    """The document that prints a number, as `compact_id`; the first where none does."""
    return next((part for part in parts if number and _number_on(part, reader) == number), parts[0])


def _number_on(pages: Sequence[PageRows], reader: PageReader) -> str:
    return next((compact_id(number) for page in pages if (number := reader.printed(page, "InvoiceId"))), "")


def without_annexes(pages: Sequence[PageRows]) -> Sequence[PageRows]:
    """The pages of a document without those that are headed as annexes or terms."""
    return [page for index, page in enumerate(pages) if not index or not _is_annex(page)]


def documents_in(pages: Sequence[PageRows], reader: PageReader) -> list[Sequence[PageRows]]:
    """The pages of each document, in order; one without pages where there are none. An attached file begins one."""
    parts = (part for page in pages for part in _papers_on(page, reader))
    files = [list(file) for _, file in groupby(parts, key=lambda page: page.page.attachment)]
    return [document for file in files or [[]] for document in _documents_of_file(file, reader)]


def _papers_on(page: PageRows, reader: PageReader) -> list[PageRows]:
    """The papers that lie side by side on a photo or scan, each as a page; the page itself where it is one.

    Words of a part keep their places, and their spans in the page's text, which is blank between them.
    """
    if page.page.source != "ocr" or len(page.page.words) > _MAX_SIDES:
        return [page]
    sides = _sides(page)
    if not sides or not all(
        "total" in evidence_of([side]).reasons and len(side.page.words) >= _LEAST_WORDS for side in sides
    ):
        return [page]
    looks = [reader.looks(side) for side in sides]
    if not all(look and look["first"] > 0 and look["fields"] > _BEGINS for look in looks):
        return [page]
    left, right = (_said(side, reader) for side in sides)
    return sides if chance_of_beginning(right, left) >= _BEGINS else [page]


def _sides(page: PageRows) -> list[PageRows]:
    """What stands left and right of the widest gap from the first row to the last, which may lean; else nothing."""
    boxes = [word.box for word in page.page.words]
    best = 0.0, 0.0, 0.0  # width of the gap, its place, how much it leans
    for lean in _LEANS:
        spans = sorted((box.left + lean * box.top, box.right + lean * box.top) for box in boxes)
        reached = spans[0][1] if spans else 0.0
        for left, right in spans:
            best = max(best, (left - reached, (left + reached) / 2, lean))
            reached = max(reached, right)
    gap, place, lean = best
    if gap < _GAP * page.line_height:
        return []
    sides: tuple[list[Word], list[Word]] = [], []
    for word in page.page.words:
        sides[word.box.left + lean * word.box.top > place].append(word)
    return [_part(page, words) for words in sides]


def _part(page: PageRows, words: Sequence[Word]) -> PageRows:
    pieces, end = list[str](), 0
    for word in words:
        pieces += [" " * (word.start - end), page.page.text[word.start : word.end]]
        end = word.end
    part = replace(page.page, words=tuple(words), text="".join(pieces))
    return page_rows(part, page.start, MAX_ROW_WORDS)


def _documents_of_file(pages: Sequence[PageRows], reader: PageReader) -> list[Sequence[PageRows]]:
    if len(pages) < 2:
        return [pages]
    starts, said = [0], _said(pages[0], reader)
    for index, page in enumerate(pages[1:], 1):
        own = _said(page, reader)
        if page.is_first or chance_of_beginning(own, said) >= _BEGINS:
            starts.append(index)
            said = own
        else:
            said.add(own)
    ends = pairwise([*starts, len(pages)])
    return [[replace(pages[start], is_first=True), *pages[start + 1 : end]] for start, end in ends]


def _said(page: PageRows, reader: PageReader) -> _Said:
    evidence = evidence_of([replace(page, is_first=True)])
    text, words = page.page.text, {word.text.strip(".,:;()#") for word in page.page.words}
    said = _Said("", words, _tax_ids(text))
    said.has_total, said.titled = "total" in evidence.reasons, evidence.titled
    said.is_other = bool(evidence.other) or evidence.kind == "bank_statement" or says_no_invoice(page)
    said.is_annex = _is_annex(page)
    if mark := _MARK.search(text):
        said.mark = int(mark[1]), int(mark[2])
    has_head = said.titled or said.has_total or said.is_other or said.ids or said.mark or page.is_first
    if has_head or len(page.page.words) <= _LINES:
        said.number, said.looks = reader.printed(page, "InvoiceId"), reader.looks(page)
    return said


def _is_annex(page: PageRows) -> bool:
    return any(_ANNEX.match(row.text) for row in page.rows[:_FIRST_ROWS])


def _tax_ids(text: str) -> set[str]:
    """The ids with right check digits, without their country."""
    found: set[str] = set()
    for match in _TAX_ID.finditer(text):
        number = re.sub(r"[ .\-]", "", match[0])
        if nif.is_valid(number) or (number[:2].isalpha() and vat.is_valid(number)):
            found.add(number[2:] if number[:2].isalpha() else number)
    return found


def chance_of_beginning(page: _Said, before: _Said) -> float:
    """The probability that a page begins a document, after the pages of another one."""
    said = evidence_that_it_begins(page, before)
    return 1 / (1 + exp(-sum(value * _WEIGHTS[name] for name, value in said.items())))


def evidence_that_it_begins(page: _Said, before: _Said) -> dict[str, float]:
    """What is told of a page after others, by the names of `_WEIGHTS`."""
    goes_on = page.mark is not None and before.mark is not None and page.mark == (before.mark[0] + 1, before.mark[1])
    is_another = bool(page.number and before.number) and page.number != before.number
    said = {
        "always": 1.0,
        "another number": float(is_another),
        "a number": float(bool(page.number) and not before.number),
        "same number": float(bool(before.number) and page.number == before.number),
        "copy": float(len(page.words & before.words) > _COPY * len(page.words | before.words)),
        "other ids": float(bool(page.ids and before.ids) and page.ids.isdisjoint(before.ids)),
        "no total before": float(not before.has_total),
        "last page before": float(before.mark is not None and before.mark[0] == before.mark[1]),
        "more pages before": float(before.mark is not None and before.mark[0] < before.mark[1]),
        "first page": float(page.mark is not None and page.mark[0] == 1),
        "later page": float(page.mark is not None and page.mark[0] > 1),
        "next page": float(goes_on),
        "titled": float(page.titled),
        "total": float(page.has_total),
        "other title": float(page.is_other),
        "annex": float(page.is_annex),
    }
    said |= {f"looks {name}": value for name, value in page.looks.items()}
    said["before, looks fields"] = before.looks.get("fields", 0.0)
    return said
