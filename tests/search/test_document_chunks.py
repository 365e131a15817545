"""Chunks of a document: their texts against the places that they name."""

from __future__ import annotations

import numpy as np

from backend.search.document_chunks import cut_chunks


def test_a_form_feed_is_a_line_break() -> None:
    """Between two pages; places in the file's text hold, as it is one character for another."""
    text = "uno\n\fdos"
    [chunk] = cut_chunks(text, np.array([0, 5]), (10, 0), (), None)

    assert "uno\n\ndos" == chunk.text
    assert (0, len(text)) == (chunk.start, chunk.end)
