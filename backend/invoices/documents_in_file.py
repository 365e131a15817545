"""Cuts a file into documents: where another invoice begins, by what its pages say."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from stdnum.es import nif
from stdnum.eu import vat

from backend.files.page_ranges import split_ranges
from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import evidence_of
from backend.invoices.learned.read import PageReader

_BEGINS = 2.5  # points with which a page begins a document
_LOOKS = 4.0  # points for what its page looks like, either way
_LINES = 250  # words of a page without a head that is looked at: of more, which are lines, it takes long
_INVOICE = 0.5  # probability with which a page is taken for an invoice's
_MARK = re.compile(
    r"(?i)\b(?:p[áa]g(?:ina)?|page|seite|hoja|folha|feuille|full|fulla)\b\.?\s*:?\s*(\d{1,3})\s*(?:de|of|von|sur|di|/)\s*(\d{1,3})\b"
)
_TAX_ID = re.compile(r"\b(?:[A-Z]{2}[ -]?)?(?:[A-Z][ -]?)?\d[\d.\- ]{5,14}[A-Z0-9]\b")


@dataclass(slots=True)
class _Said:
    """What pages say of the document they are of."""

    number: str = ""
    ids: set[str] = field(default_factory=set)
    has_total: bool = False
    titled: bool = False
    mark: tuple[int, int] | None = None  # this page and how many there are

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


def documents_in(pages: Sequence[PageRows], reader: PageReader) -> list[Sequence[PageRows]]:
    """The pages of each document, in order; one without pages where there are none. An attached file begins one."""
    files = [list(file) for _, file in groupby(pages, key=lambda page: page.page.attachment)]
    return [document for file in files or [[]] for document in _documents_of_file(file, reader)]


def _documents_of_file(pages: Sequence[PageRows], reader: PageReader) -> list[Sequence[PageRows]]:
    if len(pages) < 2:
        return [pages]
    starts, said = [0], _said(pages[0], reader)
    for index, page in enumerate(pages[1:], 1):
        own = _said(page, reader)
        if _begins(own, said, page, reader):
            starts.append(index)
            said = own
        else:
            said.add(own)
    ends = pairwise([*starts, len(pages)])
    return [[replace(pages[start], is_first=True), *pages[start + 1 : end]] for start, end in ends]


def _said(page: PageRows, reader: PageReader) -> _Said:
    reasons = evidence_of([page]).reasons
    titled, has_total = any(reason.startswith("title") for reason in reasons), "total" in reasons
    looks = titled or has_total or page.is_first  # a page of lines has no number, and looking takes long
    number = reader.number(page) if looks else ""
    mark = _MARK.search(page.page.text)
    return _Said(number, _tax_ids(page.page.text), has_total, titled, (int(mark[1]), int(mark[2])) if mark else None)


def _tax_ids(text: str) -> set[str]:
    """The ids with right check digits, without their country."""
    found: set[str] = set()
    for match in _TAX_ID.finditer(text):
        number = re.sub(r"[ .\-]", "", match[0])
        if nif.is_valid(number) or (number[:2].isalpha() and vat.is_valid(number)):
            found.add(number[2:] if number[:2].isalpha() else number)
    return found


def _begins(page: _Said, before: _Said, rows: PageRows, reader: PageReader) -> bool:
    """Whether a page begins a document, after the pages of another one."""
    if page.mark is not None and before.mark is not None and before.mark[0] < before.mark[1] == page.mark[1]:
        return False
    another = bool(page.number and before.number and page.number != before.number)
    if not another and before.number in {word.text.strip(".,:;()#") for word in rows.page.words} - {""}:
        return False
    points = 1.0 if before.has_total else -1.5
    points += 2.0 * another
    points += 1.5 * (before.mark is not None and before.mark[0] == before.mark[1])
    points += 0.0 if page.mark is None else 1.5 if page.mark[0] == 1 else -3.0
    points += 1.0 * page.titled + 0.5 * page.has_total
    if page.ids and before.ids:
        points += -1.0 if page.ids & before.ids else 2.0
    may_begin = page.titled or page.number or page.ids or page.mark or len(rows.page.words) <= _LINES
    opens = reader.opens(rows) if may_begin and _BEGINS - _LOOKS < points < _BEGINS + _LOOKS else None
    if opens is None:
        return points >= _BEGINS
    if page.ids & before.ids and reader.kinds(rows)["fields"] < _INVOICE:
        return False  # a delivery note behind its invoice
    return points + _LOOKS * (2 * opens - 1) >= _BEGINS
