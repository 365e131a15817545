"""The bytes of a file that is kept, sent piece by piece."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.files.stored_file import StoredFile

_PIECE_BYTES = 2**20
_ASCII_NAME = str.maketrans({'"': "'", "\\": "_", "%": "_"})


class StoredFileResponse(Response):
    """Sends a file no faster than its client reads, and closes it.

    Its type is always octet-stream, as OpenAI's: a browser must not show a caller's HTML as a page of this service.
    """

    media_type = "application/octet-stream"

    def __init__(self, stored: StoredFile, name: str) -> None:
        headers = {"Content-Length": str(stored.size_bytes), "Content-Disposition": content_disposition(name)}
        super().__init__(headers={**headers, "X-Content-Type-Options": "nosniff"})
        self._stored = stored

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send one piece after the other."""
        try:
            descriptor = self._stored.lend()
            try:
                await self._send(descriptor, send)
            finally:
                os.close(descriptor)
        finally:
            self._stored.close()

    async def _send(self, descriptor: int, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for offset in range(0, self._stored.size_bytes, _PIECE_BYTES):
            piece = await asyncio.to_thread(os.pread, descriptor, _PIECE_BYTES, offset)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def content_disposition(name: str) -> str:
    """The header for a download of any name: in ASCII for old clients, and whole as RFC 5987 writes it."""
    plain = "".join(character if " " <= character <= "~" else "_" for character in name).translate(_ASCII_NAME)
    return f"attachment; filename=\"{plain or 'file'}\"; filename*=UTF-8''{quote(name or 'file', safe='')}"
