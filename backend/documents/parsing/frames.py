"""What travels between service and worker over a socket: a length-prefixed header in JSON, and raw bytes behind it.

No pickle: whatever a hostile file made of the worker, the service only reads JSON and numbers from it.
Files themselves do not travel: the worker gets a descriptor of them (SCM_RIGHTS).
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

_PREFIX = struct.Struct(">4sIQ")  # mark, bytes of the header, bytes of the payload
_MARK = b"fin1"
MAX_HEADER_BYTES = 64 * 2**20  # the words of a page of a million characters take about 20 MB
_BUFFER_BYTES = 2**20  # of the socket; with the usual 200 KiB a page's image takes three times as many wake-ups


class BadFrame(Exception):
    """Not a frame of ours: the other side is broken."""


class Frame(NamedTuple):
    """One message."""

    header: dict[str, Any]
    payload: bytearray
    fds: tuple[int, ...] = ()


def widen(link: socket.socket) -> None:
    """Give a socket room for large payloads."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        link.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def send(
    link: socket.socket, header: Mapping[str, Any], payload: bytes | memoryview = b"", *, fds: Sequence[int] = ()
) -> None:
    """Write one frame. Raises: OSError when the other side is gone, TimeoutError under the socket's own timeout."""
    head = orjson.dumps(header)
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    start = _PREFIX.pack(_MARK, len(head), size)
    if fds:  # they belong to the first byte that is sent with them
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        sent = link.sendmsg([start], rights)
        start = start[sent:]
    link.sendall(start + head)
    if size:
        link.sendall(payload)


def receive(link: socket.socket, *, max_payload_bytes: int, wait: Callable[[], None] | None = None) -> Frame:
    """Read one frame.

    Args:
        wait: called before each read; the place to set the socket's timeout from a deadline.

    Raises:
        EOFError: the other side is gone.
        BadFrame: not a frame, or a larger one than can be right.
        TimeoutError: of the socket.
    """
    fds: list[int] = []
    start = bytearray()
    while len(start) < _PREFIX.size:
        if wait:
            wait()
        part, received, _, _ = socket.recv_fds(link, _PREFIX.size - len(start), 1)
        fds += received
        if not part:
            raise EOFError
        start += part
    mark, head_bytes, payload_bytes = _PREFIX.unpack(start)
    if mark != _MARK or head_bytes > MAX_HEADER_BYTES or payload_bytes > max_payload_bytes:
        for fd in fds:
            os.close(fd)
        raise BadFrame(f"mark {mark!r}, {head_bytes} bytes of header, {payload_bytes} of payload")
    header = _header(_read(link, head_bytes, wait))
    return Frame(header, _read(link, payload_bytes, wait), tuple(fds))


def _header(text: bytearray) -> dict[str, Any]:
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadFrame(f"header: {error}") from error
    if not isinstance(header, dict):
        raise BadFrame("header: not an object")
    return header


def _read(link: socket.socket, size: int, wait: Callable[[], None] | None) -> bytearray:
    whole = bytearray(size)
    rest = memoryview(whole)
    while rest:
        if wait:
            wait()
        count = link.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return whole
