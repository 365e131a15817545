"""The wire protocol between the service and a worker: frames of a JSON header and a binary payload over a socket.

No pickle: the service reads only JSON and numbers from a worker, which a hostile file may have taken over.
Files are not sent; the worker gets a descriptor of them (SCM_RIGHTS).
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

_PREFIX = struct.Struct(">4sIQ")  # magic, bytes of the header, bytes of the payload
_MAGIC = b"fin1"
MAX_HEADER_BYTES = 64 * 2**20  # the words of a page of a million characters take about 20 MB
_BUFFER_BYTES = 2**20  # of the socket; the usual 200 KiB need three times as many wake-ups for a page's image


class BadFrame(Exception):
    """The bytes received are no frame of this protocol: the sender is broken."""


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    payload: bytearray
    fds: tuple[int, ...] = ()


def enlarge_buffers(connection: socket.socket) -> None:
    """Set buffer sizes that suit large payloads."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def send(
    connection: socket.socket, header: Mapping[str, Any], payload: bytes | memoryview = b"", *, fds: Sequence[int] = ()
) -> None:
    """Write one frame. Raises: OSError when the other side is gone, TimeoutError under the socket's own timeout."""
    head = orjson.dumps(header)
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    start = _PREFIX.pack(_MAGIC, len(head), size)
    if fds:  # they travel with the first byte that is sent with them
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = connection.sendmsg([start], rights)
        start = start[sent:]
    connection.sendall(start + head)
    if size:
        connection.sendall(payload)


def receive(
    connection: socket.socket, *, max_payload_bytes: int, before_read: Callable[[], None] | None = None
) -> Frame:
    """Read one frame.

    Args:
        before_read: called before each read; the place to set the socket's timeout from a deadline.

    Raises:
        EOFError: the other side is gone.
        BadFrame: no frame, or one that is larger than allowed.
        TimeoutError: of the socket.
    """
    fds: list[int] = []
    start = bytearray()
    while len(start) < _PREFIX.size:
        if before_read:
            before_read()
        chunk, received, _, _ = socket.recv_fds(connection, _PREFIX.size - len(start), 1)
        fds += received
        if not chunk:
            raise EOFError
        start += chunk
    magic, head_bytes, payload_bytes = _PREFIX.unpack(start)
    if magic != _MAGIC or head_bytes > MAX_HEADER_BYTES or payload_bytes > max_payload_bytes:
        for fd in fds:
            os.close(fd)
        raise BadFrame(f"mark {magic!r}, {head_bytes} bytes of header, {payload_bytes} of payload")
    header = _parse_header(_read(connection, head_bytes, before_read))
    return Frame(header, _read(connection, payload_bytes, before_read), tuple(fds))


def _parse_header(text: bytearray) -> dict[str, Any]:
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadFrame(f"header: {error}") from error
    if not isinstance(header, dict):
        raise BadFrame("header: not an object")
    return header


def _read(connection: socket.socket, size: int, before_read: Callable[[], None] | None) -> bytearray:
    buffer = bytearray(size)
    left = memoryview(buffer)
    while left:
        if before_read:
            before_read()
        count = connection.recv_into(left)
        if not count:
            raise EOFError
        left = left[count:]
    return buffer
