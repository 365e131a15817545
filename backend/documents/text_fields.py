"""Plain texts: a file of one, and the fields of one, such as another program has read from an invoice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from backend.documents.own_fields import OwnFields
from backend.documents.records import DocumentAnswer, DocumentOptions, ExtractedDocument, Understood
from backend.documents.service import SupplierExamples
from backend.errors import WrongMediaType
from backend.files.file_types import FileType, sniff
from backend.files.limits import FileLimits
from backend.files.pages import Document
from backend.files.stored_file import StoredFile
from backend.files.text_files import document_of_text, read_text_file
from backend.invoices.structure import MAX_PAGE_WORDS, fields_of
from backend.invoices.taught.examples import SupplierExample
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork


def plain_text_of(stored: StoredFile, limits: FileLimits) -> str | None:
    """The text of a file of plain text as it stands; None for a file that is read as a document. Blocks.

    Raises: WrongMediaType for neither; TooLarge for more characters than LIMIT_DOCUMENT_CHARS.
    """
    refusal: WrongMediaType | None = None
    try:
        if sniff(stored.head) is not FileType.TEXT:
            return None
    except WrongMediaType as error:
        refusal = error
    text = read_text_file(stored.content(), limits)
    if text is None:
        said = refusal or "file: it begins as text does, and goes on in bytes that are none."
        raise WrongMediaType(f"{said} Plain text is read too, in UTF-8, UTF-16 or Windows-1252.") from refusal
    return text


_OPTIONS = DocumentOptions(features=frozenset({"fields"}))


async def find_text_fields(text_work: TextWork, text: str, examples: SupplierExamples, owner: str) -> DocumentAnswer:
    """The text as a document of one page, with its fields. On a thread: a millisecond for a page's worth.

    Args:
        examples: what the owner's confirmed documents teach.

    A caller that is cancelled, at its deadline or because it left, ends the thread's work too.

    Raises: InferenceFailed for a fault of ours.
    """
    characters = len(text)
    document = await text_work.run_long(partial(document_of_text, text, MAX_PAGE_WORDS + 1), characters)
    known = await examples.of(owner, document)
    return await text_work.run_long(partial(_answer, text, document, known), characters)


async def with_own_fields(
    answer: DocumentAnswer, own_fields: OwnFields, schema: str, lessons: str, urgency: Urgency
) -> DocumentAnswer:
    """The answer with what is asked for in the caller's words, too. Raises: as `OwnFields.find`.

    Args:
        schema, lessons: as in `DocumentOptions`.
    """
    custom, tokens = await own_fields.asked(answer.document, schema, lessons, urgency)
    understood = replace(answer.understood, custom=custom, tokens=tokens)
    return replace(answer, understood=understood, options=replace(_OPTIONS, schema=schema, lessons=lessons))


def _answer(text: str, document: Document, examples: Sequence[SupplierExample]) -> DocumentAnswer:
    started_s = time.perf_counter()
    fields = fields_of(document, examples=examples)
    spent_s = time.perf_counter() - started_s
    extraction = ExtractedDocument(document, (), ocr_pages=0, open_s=0.0, read_s=0.0, ocr_s=0.0)
    return DocumentAnswer(extraction, text, Understood(fields=fields), _OPTIONS, "cpu", spent_s, spent_s)
