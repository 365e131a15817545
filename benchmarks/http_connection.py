"""A minimal keep-alive HTTP/1.1 client connection that only finds the end of each response.

A general client costs more CPU than a fast service's response; on a shared machine it would be the thing
measured. This one discards headers and body; httptools, uvicorn's parser, reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

LOST = 0  # status of a response that the end of the connection cut off


def request_bytes(path: str, body: bytes) -> bytes:
    """A POST request with a JSON body, built once and sent many times."""
    head = (
        f"POST {path} HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\n"
        "Accept: */*\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


class Connection(asyncio.Protocol):
    """Sends one request at a time and calls ``on_response`` when its response is complete or lost."""

    __slots__ = ("_on_response", "_parser", "_transport", "busy", "is_open", "since_s")

    def __init__(self, on_response: Callable[[Connection, int], None]) -> None:
        self._on_response = on_response
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self.busy = False
        self.is_open = False
        self.since_s = 0.0  # start of the current request's latency; set by the sender

    def send(self, request: bytes, since_s: float) -> None:
        """Send one request; the previous one must have its response."""
        if self._transport is None:
            raise RuntimeError("send before the connection was made")
        self.busy = True
        self.since_s = since_s
        self._transport.write(request)

    def close(self) -> None:
        """Drop the connection; a request in flight gets no callback."""
        self.busy = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.connection_lost(None)
            self.close()

    def on_message_complete(self) -> None:
        """Called by the parser. Nothing follows a response, since nothing is pipelined."""
        self.busy = False
        if not self._parser.should_keep_alive():
            self.is_open = False
            self.close()
        self._on_response(self, self._parser.get_status_code())

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_open = False
        if self.busy:
            self.busy = False
            self._on_response(self, LOST)


async def connect(port: int, on_response: Callable[[Connection, int], None]) -> Connection:
    """Connect to a server on this machine; raises ``OSError`` when nothing listens."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(on_response), "127.0.0.1", port)
    return connection
