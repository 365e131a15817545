"""A minimal keep-alive HTTP/1.1 client connection that only finds the end of each response.

A general client costs more CPU than a fast service's response; on a shared machine it would be the thing
measured. This one discards headers and body and understands Content-Length and chunked encoding only.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import cast

LOST = 0  # status of a response that the end of the connection cut off

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_NO_BODY = (204, 304)


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


class ResponseParser:
    """Finds the end of one response in the bytes fed to it; nothing may follow, since nothing is pipelined."""

    __slots__ = ("_chunked", "_head", "_left_bytes", "_started", "closes", "status")

    def __init__(self) -> None:
        self.status = LOST
        self.closes = False  # the server closes the connection after this response
        self._head = b""
        self._started = False  # the head is complete
        self._left_bytes = 0  # of the body, or of the current chunk and its line end
        self._chunked = False

    def feed(self, data: bytes) -> bool:
        """Take the next bytes; true once the response is complete."""
        if not self._started:
            data = self._head + data
            end = data.find(_HEAD_END)
            if end < 0:
                self._head = data
                return False
            self._read_head(data[:end])
            data = data[end + len(_HEAD_END) :]
        if self._chunked:
            return self._feed_chunks(data)
        self._left_bytes -= len(data)
        return self._left_bytes <= 0

    def _read_head(self, head: bytes) -> None:
        self._started = True
        self._head = b""
        self.status = int(head[9:12])
        lower = head.lower()
        self.closes = b"connection: close" in lower
        start = lower.find(_LENGTH)
        if start >= 0:
            self._left_bytes = int(lower[start + len(_LENGTH) :].split(b"\r\n", 1)[0])
            return
        self._chunked = b"transfer-encoding: chunked" in lower
        if not self._chunked and self.status not in _NO_BODY:
            self._left_bytes = sys.maxsize  # ends with the connection: such a response counts as lost

    def _feed_chunks(self, data: bytes) -> bool:
        data, self._head = self._head + data, b""
        while True:
            if self._left_bytes >= len(data):
                self._left_bytes -= len(data)
                return False
            data, self._left_bytes = data[self._left_bytes :], 0
            line_end = data.find(b"\r\n")
            if line_end < 0 or (data.startswith(b"0") and len(data) < line_end + 4):
                self._head = data
                return False
            size_bytes = int(data[:line_end].split(b";")[0], 16)
            if size_bytes == 0:
                return True
            data, self._left_bytes = data[line_end + 2 :], size_bytes + 2


class Connection(asyncio.Protocol):
    """Sends one request at a time and calls ``on_response`` when its response is complete or lost."""

    __slots__ = ("_on_response", "_parser", "_transport", "busy", "is_open", "since_s")

    def __init__(self, on_response: Callable[[Connection, int], None]) -> None:
        self._on_response = on_response
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self.busy = False
        self.is_open = False
        self.since_s = 0.0  # start of the current request's latency; set by the sender

    def send(self, request: bytes, since_s: float) -> None:
        """Send one request; the previous one must have its response."""
        if self._transport is None:
            raise RuntimeError("send before the connection was made")
        self._parser = ResponseParser()
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
        if not self._parser.feed(data):
            return
        self.busy = False
        if self._parser.closes:
            self.is_open = False
            self.close()
        self._on_response(self, self._parser.status)

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
