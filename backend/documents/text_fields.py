"""The fields of a plain text, such as another program has read from an invoice."""

from __future__ import annotations

import time
from functools import partial

from backend.documents.records import DocumentAnswer, DocumentOptions, ExtractedDocument, Understood
from backend.files.text_files import document_of_text
from backend.invoices.structure import fields_of
from backend.lanes.text_work import TextWork

_OPTIONS = DocumentOptions(features=frozenset({"fields"}))


async def find_text_fields(text_work: TextWork, text: str) -> DocumentAnswer:
    """The text as a document of one page, with its fields. On a thread: a millisecond for a page's worth.

    A caller that is cancelled, at its deadline or because it left, ends the thread's work too.

    Raises: InferenceFailed for a fault of ours.
    """
    return await text_work.run_long(partial(_answer, text))


def _answer(text: str) -> DocumentAnswer:
    started_s = time.perf_counter()
    document = document_of_text(text)
    fields = fields_of(document)
    spent_s = time.perf_counter() - started_s
    extraction = ExtractedDocument(document, (), ocr_pages=0, open_s=0.0, read_s=0.0, ocr_s=0.0)
    return DocumentAnswer(extraction, text, Understood(fields=fields), _OPTIONS, "cpu", spent_s, spent_s)
