"""A document as an answer in another format than JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from backend.api.deps import exchange_of
from backend.api.service_call import Work, ask
from backend.documents.formats import Format
from backend.documents.pages import Document

Made = TypeVar("Made")
_INLINE_WORDS = 500  # a page: about a millisecond's work


async def document_answer(
    request: Request, document: Document, form: Format, headers: Mapping[str, str], searchable_pdf: Work[bytes]
) -> Response:
    """The document in this format.

    Args:
        searchable_pdf: makes it of the file itself, where that is the format.
    """
    if form.stream is None:
        body = await ask(request, searchable_pdf)
    else:
        stream = form.stream
        body = await written_off_loop(document, lambda: b"".join(stream(document)))
    named = {"Content-Disposition": f'inline; filename="document.{form.extension}"'}
    return Response(body, media_type=form.content_type, headers={**named, **headers})


async def written_off_loop(document: Document, write: Callable[[], Made]) -> Made:
    """Writing here where it is short, on a thread where it would hold the loop."""
    words = sum(len(page.words) for page in document.pages)
    return write() if words <= _INLINE_WORDS else await asyncio.to_thread(write)


def accepted(request: Request) -> str | None:
    """The Accept header; None where there is none."""
    accept = exchange_of(request).headers.get(b"accept")
    return None if accept is None else accept.decode("latin-1")
