"""uvicorn's HTTP protocol, with the head and the body of a response sent in one write."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol over a transport that joins writes.

    uvicorn writes the head of a response, then its body: two system calls, and two wake-ups of the client. Joined,
    cached answers came 1.1 times as fast (docs/engine.md).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take over a new connection."""
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport, self.loop)))


class JoinedWrites:
    """A transport that holds the head of a response until its body is written in the same step of the event loop.

    A head whose body comes later, or never, is sent at the next step of the loop.
    """

    __slots__ = ("_flush", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._flush: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold a head; send anything else, together with the head that is held."""
        if self._head:
            self._transport.writelines((self._release(), data))
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._flush = self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send the head that is held, then close."""
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            self._transport.write(self._release())

    def _release(self) -> bytes:
        if self._flush is not None:
            self._flush.cancel()
        head, self._head, self._flush = self._head, b"", None
        return head
