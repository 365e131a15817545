"""The words of a page with labels and values apart: "Fecha:06/03/2026", "INV#0032" and "Nº123" are two words each."""

from __future__ import annotations

import re
from dataclasses import replace

from backend.files.pages import Box, Word
from backend.files.visual_rows import Cell, PageRows

_LABEL_AND_VALUE = re.compile(
    r"(?P<label>[^\W\d_]{1,24}(?:\.[^\W\d_]{1,12}){0,2}\.?[:#º°№=]+\.?|#|(?:n\.?o|nr|num|ref)\.|n\.?[º°]|[^\W\d_]{4,}(?=\d\d?[/.-]\d\d?[/.-]\d))"
    r"(?P<value>[^\W_].*|\(.*)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?:", re.IGNORECASE)


def with_labels_apart(page: PageRows) -> PageRows:
    """The page with such words split, each part with its share of the box."""
    rows = tuple(replace(row, cells=tuple(map(_separated, row.cells))) for row in page.rows)
    return PageRows(page.page, page.start, page.slope, rows)


def _separated(cell: Cell) -> Cell:
    words = tuple(part for word in cell.words for part in _parts(word))
    return cell if len(words) == len(cell.words) else replace(cell, words=words)


def _parts(word: Word) -> tuple[Word, ...]:
    match = None if word.text.isalpha() else _LABEL_AND_VALUE.fullmatch(word.text)
    if match is None or _ADDRESS.match(word.text):
        return (word,)
    cut = match.end("label")
    middle = word.box.left + word.box.width * cut / len(word.text)
    left = Box(word.box.left, word.box.top, middle, word.box.bottom)
    right = Box(middle, word.box.top, word.box.right, word.box.bottom)
    return (
        replace(word, text=word.text[:cut], box=left, end=word.start + cut),
        replace(word, text=word.text[cut:], box=right, start=word.start + cut),
    )
