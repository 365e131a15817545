"""Fields and tables of a document: of a bounded part of it, and such that a fault in finding them is told apart.

Both are read by many rules from whatever files hold: a rule that fails costs them, and not the document.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from traceback import extract_tb
from typing import TypeVar

from backend.errors import CallerGone, InferenceFailed
from backend.files.pages import Document, Page, Word
from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import Kind
from backend.invoices.extract import extract_fields, extract_parts, with_electronic
from backend.invoices.records import ExtractedFields, Field, Validity
from backend.invoices.taught.examples import SupplierExample, remember
from backend.reasons import because
from backend.tables.find import find_tables
from backend.tables.records import Table
from backend.telemetry import log_event

Found = TypeVar("Found")

_log = logging.getLogger(__name__)
# Words that are looked at: 0.2 ms each at worst, on one core. A dense page has 1,000, 200 pages of lines have 80,000.
MAX_WORDS, MAX_PAGE_WORDS = 100_000, 20_000
MAX_PAGE_CHARS = 10 * MAX_PAGE_WORDS  # with blanks; texts of pages are searched and folded as a whole


def fields_of(
    document: Document,
    document_type: str | None = None,
    examples: Sequence[SupplierExample] = (),
    split: str = "auto",
) -> ExtractedFields:
    """The fields of a document; arguments as of `extract_fields`.

    Raises: InferenceFailed for a fault of ours, unless there is an electronic invoice: that is answered with alone.
    """
    part = _first_part(document)
    try:
        found = _guarded("fields", lambda: extract_fields(part, document_type, examples, split))
    except InferenceFailed as error:
        if document.einvoice is None:
            raise
        return with_electronic(ExtractedFields((), Validity(), str(error)), document.einvoice)
    if part is document:
        return found
    words = sum(len(page.words) for page in part.pages)
    return replace(found, why=f"{found.why}; {because('first_words_only', words=words)}")


def fields_of_parts(
    document: Document, parts: Sequence[Sequence[int]], examples: Sequence[SupplierExample] = ()
) -> ExtractedFields:
    """The fields of documents that a person cut out of a file; arguments as of `extract_parts`.

    Raises: InferenceFailed for a fault of ours.
    """
    return _guarded("fields", lambda: extract_parts(document, parts, examples))


def example_of(
    pages: Sequence[PageRows], kind: Kind, read: Mapping[str, Field], confirmed: Mapping[str, Field]
) -> SupplierExample | None:
    """What a confirmed document teaches, as `remember`; None for a fault of ours, too: nobody confirms in vain."""
    try:
        return _guarded("examples", lambda: remember(pages, kind, read, confirmed))
    except InferenceFailed:  # logged
        return None


def tables_of(document: Document) -> tuple[Table, ...]:
    """The tables of a document. Raises: InferenceFailed for a fault of ours."""
    part = _first_part(document)
    return _guarded("tables", lambda: find_tables(part))


def tables_or_none(document: Document, found: Sequence[Table] | None = None) -> Sequence[Table]:
    """The tables of a document, for formats that can do without; none where finding them fails.

    Args:
        found: the document's, where they were found before.
    """
    if found is not None:
        return found
    try:
        return tables_of(document)
    except InferenceFailed:  # logged
        return ()


def _guarded(what: str, find: Callable[[], Found]) -> Found:
    try:
        return find()
    except CallerGone:
        raise
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]  # and not its message, which may quote the document
        fault, at = type(error).__name__, f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        log_event(_log, logging.ERROR, "fields or tables could not be read", what=what, fault=fault, at=at)
        raise InferenceFailed(because("reading_failed", what=what, fault=type(error).__name__)) from error


def _first_part(document: Document) -> Document:
    """The pages up to the first with which there is too much, which is cut; the document where there is not."""
    pages: list[Page] = []
    left = MAX_WORDS
    for page in document.pages:
        most = min(left, MAX_PAGE_WORDS, bisect_right(page.words, MAX_PAGE_CHARS, key=_end))
        if len(page.words) > most:  # the last one: texts of later pages would begin elsewhere
            words = page.words[:most]
            pages.append(replace(page, words=words, text=page.text[: words[-1].end] if words else ""))
            return replace(document, pages=tuple(pages))
        pages.append(page)
        left -= len(page.words)
    return document


def _end(word: Word) -> int:
    return word.end
