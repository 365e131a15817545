"""A plain text as a document, so that what reads pages reads texts: its lines on a grid, as a typewriter sets them."""

from __future__ import annotations

import re
from hashlib import sha256

from backend.files.pages import Box, Document, Page, Word

# In points of a 12-point typewriter face: a column is 10 to the inch, a line 6 to the inch.
_COLUMN, _LINE, _HEIGHT = 7.2, 12.0, 10.0
_TABULATOR = 8  # columns
_WORD = re.compile(r"\S+")


def document_of_text(text: str) -> Document:
    """One page that holds the text as it stands; words keep their offsets. Two spaces or a tabulator part columns."""
    words: list[Word] = []
    block, was_blank, offset = 0, True, 0
    for index, line in enumerate(text.split("\n")):
        found = list(_WORD.finditer(line))
        if not found:
            was_blank = True
        elif was_blank:
            block, was_blank = block + bool(words), False
        for match in found:
            left, right = (_column(line, place) * _COLUMN for place in match.span())
            box = Box(left, index * _LINE, right, index * _LINE + _HEIGHT)
            words.append(Word(match.group(), box, 1.0, offset + match.start(), offset + match.end(), index, block))
        offset += len(line) + 1
    width = max((word.box.right for word in words), default=0.0)
    height = _LINE * (text.count("\n") + 1)
    page = Page(1, width, height, 72.0, 0, text, tuple(words), "text_layer", "a text", "text")
    return Document("text", (page,), 1, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _column(line: str, place: int) -> int:
    if "\t" not in line:
        return place
    return len(line[:place].expandtabs(_TABULATOR))
