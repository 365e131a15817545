"""The fields of a plain text, such as another program has read from an invoice."""

from __future__ import annotations

import asyncio
import time

from backend.documents.records import DocumentAnswer, DocumentOptions, ExtractedDocument, Understood
from backend.files.text_files import document_of_text
from backend.invoices.structure import fields_of

_OPTIONS = DocumentOptions(features=frozenset({"fields"}))


async def find_text_fields(text: str, *, deadline_s: float) -> DocumentAnswer:
    """The text as a document of one page, with its fields. On a thread: a millisecond for a page's worth.

    Args:
        deadline_s: on the monotonic clock; whoever calls is told when it passes, the thread ends its text.

    Raises: InferenceFailed for a fault of ours.
    """
    del deadline_s
    return await asyncio.to_thread(_answer, text)


def _answer(text: str) -> DocumentAnswer:
    started_s = time.perf_counter()
    document = document_of_text(text)
    fields = fields_of(document)
    spent_s = time.perf_counter() - started_s
    extraction = ExtractedDocument(document, (), ocr_pages=0, open_s=0.0, read_s=0.0, ocr_s=0.0)
    return DocumentAnswer(extraction, text, Understood(fields=fields), _OPTIONS, "cpu", spent_s, spent_s)
