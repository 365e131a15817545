"""Text: the document's own."""

from __future__ import annotations

from hypothesis import given

from backend.documents.formats.plain_text import text_parts
from tests.documents.drawn import documents


@given(documents())
def test_the_text_is_the_documents_own(document):
    """Parts put together are `Document.text`, so offsets of other answers hold in it."""
    assert document.text == b"".join(text_parts(document)).decode()
