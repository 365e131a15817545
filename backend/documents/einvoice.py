"""The electronic invoice of an upload: XML beside the file, in it, or the tax QR code on a page."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from backend.errors import BadInput, InferenceFailed, InvalidField, UnreadableFile, WrongMediaType
from backend.files.einvoice.fiscal_qr import MENTION, read_fiscal_qr
from backend.files.einvoice.records import EInvoice
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import FileType
from backend.files.pages import Page
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_ENCODING = re.compile(r"""(<\?xml[^>]{0,200}?\sencoding\s*=\s*["'])[\w.-]{1,40}""")  # of the declaration
_MOST_PAGES = 3  # with a mention of a code that are searched for one: 20 ms each


def read_einvoice(
    readers: FileReaders, file: OpenFile, pages: Iterable[Page], *, until: float | None
) -> EInvoice | None:
    """What XML in the file, or a code on its pages says as data; None where nothing does. Blocks: call it on a thread.

    Args:
        pages: of the file, as they were read.

    Raises: what `FileReaders` raises but for the contents.
    """
    return _inside(readers, file, until) or _printed(readers, file, pages, until)


def read_beside(readers: FileReaders, xml: str, *, until: float | None) -> EInvoice:
    """The electronic invoice that came beside a file. Blocks: call it on a thread.

    Raises: InvalidField for what is none, and what `FileReaders` raises.
    """
    # It is a text by now, whatever bytes it came in: its declaration would have it decoded once more.
    data = _ENCODING.sub(r"\g<1>UTF-8", xml.lstrip("\ufeff \r\n\t"), count=1).encode("utf-8", "replace")
    try:
        with readers.open(data, until=until) as file:
            invoice = readers.einvoice(file, until=until) if file.kind is FileType.XML else None
    except (UnreadableFile, WrongMediaType) as error:
        raise InvalidField(f"xml: {error}", param="xml") from error
    if invoice is None:
        raise InvalidField("xml: it is a file of another kind, and no electronic invoice", param="xml")
    return invoice


def _inside(readers: FileReaders, file: OpenFile, until: float | None) -> EInvoice | None:
    """What the file is or has attached. An attachment that cannot be read costs a PDF nothing but itself."""
    try:
        return readers.einvoice(file, until=until)
    except (BadInput, InferenceFailed) as error:  # too large, too slow, or its reader died of it
        if file.kind is FileType.XML:
            raise
        log_event(_log, logging.WARNING, "attachments could not be read", fault=type(error).__name__)
        return None


def _printed(readers: FileReaders, file: OpenFile, pages: Iterable[Page], until: float | None) -> EInvoice | None:
    for page in islice(filter(_mentions_code, pages), _MOST_PAGES):
        try:
            codes = readers.qr_codes(file, page.number, turn=page.rotation, until=until)
        except (BadInput, InferenceFailed):  # the page was read; that no code could be looked for costs nothing else
            continue
        for content, box in codes:
            if (invoice := read_fiscal_qr(content)) is not None:
                return replace(invoice, page=page.number, box=(*box,))
    return None


def _mentions_code(page: Page) -> bool:
    return MENTION.search(page.text) is not None
