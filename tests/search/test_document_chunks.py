"""Chunks of a document: their texts against the places that they name."""

from dataclasses import replace

import numpy as np

from backend.files.pages import Document, make_page
from backend.search.document_chunks import cut_chunks, page_sizes
from backend.search.records import PageSize


def test_a_form_feed_is_a_line_break() -> None:
    """Between two pages; places in the file's text hold, as it is one character for another."""
    text = "uno\n\fdos"
    [chunk] = cut_chunks(text, np.array([0, 5]), (10, 0), (), None)

    assert "uno\n\ndos" == chunk.text
    assert (0, len(text)) == (chunk.start, chunk.end)


def test_pages_know_their_part() -> None:
    """Of a sheet, as storages keep it and read it; a page of paper is kept as before there were parts."""
    paper = make_page((), number=1, width=595.0, height=842.0, source="text_layer", why="", engine="")
    sizes = page_sizes(Document("xlsx", (paper, replace(paper, number=2, part="Hoja ñ")), 2, "ab", {}))

    assert [[1, 595.0, 842.0, 0], [2, 595.0, 842.0, 0, "Hoja ñ"]] == [size.packed() for size in sizes]
    assert list(sizes) == [PageSize(*size.packed()) for size in sizes]  # type: ignore[arg-type]
