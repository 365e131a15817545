"""Documents in other formats than JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from backend.api.dependencies import context_of
from backend.api.service_call import ServiceCall, call_service
from backend.documents.formats.registry import Format, stream_of
from backend.files.pages import Document

Result = TypeVar("Result")
_INLINE_WORDS = 500  # a page: about a millisecond's work


async def formatted_document(
    request: Request,
    document: Document,
    document_format: Format,
    headers: Mapping[str, str],
    searchable_pdf: ServiceCall[bytes],
) -> Response:
    """The document in this format.

    Args:
        searchable_pdf: makes the PDF from the file itself, where that is the format.
    """
    stream = stream_of(document_format, document)
    if stream is None:
        body = await call_service(request, searchable_pdf)
    else:
        body = await asyncio.to_thread(lambda: b"".join(stream(document)))  # finding tables takes milliseconds a page
    disposition = {"Content-Disposition": f'inline; filename="document.{document_format.extension}"'}
    return Response(body, media_type=document_format.content_type, headers={**disposition, **headers})


async def run_off_loop(document: Document, write: Callable[[], Result]) -> Result:
    """Call ``write`` here where the document is short, in a thread where it would block the event loop."""
    words = sum(len(page.words) for page in document.pages)
    return write() if words <= _INLINE_WORDS else await asyncio.to_thread(write)


def accept_header(request: Request) -> str | None:
    """The Accept header; None where there is none."""
    accept = context_of(request).headers.get(b"accept")
    return None if accept is None else accept.decode("latin-1")
