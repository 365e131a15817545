"""Which pages are of the first document, where a file holds several invoices one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import is_whole
from backend.invoices.header.find import find_header

_MOST_PAGES = 20  # that are compared: the second document begins early or not at all


class FirstDocument(NamedTuple):
    """The pages of the first document."""

    pages: Sequence[PageRows]
    why: str  # what follows it; empty where nothing does


def first_document(pages: Sequence[PageRows]) -> FirstDocument:
    """The pages before one that begins another document.

    A page begins another one where it is whole by itself (title, number, total), as an earlier one is, and its number
    is a different one. An invoice that repeats its head on each page has the same number on all.
    """
    if len(pages) < 2:
        return FirstDocument(pages, "")
    whole = [index for index, page in enumerate(pages[:_MOST_PAGES]) if is_whole(page)]
    if len(whole) < 2:
        return FirstDocument(pages, "")
    numbers = {index: _number(pages[index]) for index in whole}
    first = numbers[whole[0]]
    for index in whole[1:]:
        if first and numbers[index] and numbers[index] != first:
            page = pages[index].page.number
            return FirstDocument(
                pages[:index], f"another one, {numbers[index]}, begins on page {page}: ask with `pages`"
            )
    return FirstDocument(pages, "")


def _number(page: PageRows) -> str:
    return next((field.value for field in find_header([page], None) if field.name == "InvoiceId"), "")
