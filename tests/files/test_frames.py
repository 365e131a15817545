"""The wire protocol between service and worker."""

import os
import socket
from collections.abc import Iterator

import pytest

from backend.files import frames


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        frames.enlarge_buffers(sender)
        receiver.settimeout(10)  # a wrong frame must not hang the test
        yield sender, receiver


def test_header_payload_and_descriptor(connection: tuple[socket.socket, socket.socket]):
    """All three arrive; the descriptor is a new one of the receiver."""
    reading, writing = os.pipe()
    frames.send(connection[0], {"call": "open", "n": [1, 2]}, b"abc", fds=(reading,))
    frame = frames.receive(connection[1], max_payload_bytes=3)
    os.write(writing, b"through")

    assert ({"call": "open", "n": [1, 2]}, b"abc") == (frame.header, bytes(frame.payload))
    assert os.read(frame.fds[0], 10) == b"through"
    assert frame.fds[0] != reading
    for fd in (reading, writing, *frame.fds):
        os.close(fd)


def test_consecutive_frames(connection: tuple[socket.socket, socket.socket]):
    """Each ends where the next begins."""
    frames.send(connection[0], {"a": 1}, b"xy")
    frames.send(connection[0], {"b": 2})

    assert {"a": 1} == frames.receive(connection[1], max_payload_bytes=2).header
    assert {"b": 2} == frames.receive(connection[1], max_payload_bytes=2).header


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="another-protocol"),
        pytest.param(b"fin1" + b"\xff\xff\xff\xff" + bytes(8), id="a-header-without-end"),
        pytest.param(b"fin1" + bytes(4) + (11).to_bytes(8, "big"), id="more-payload-than-was-asked-for"),
        pytest.param(b"fin1" + (3).to_bytes(4, "big") + bytes(8) + b"{a}", id="no-json"),
        pytest.param(b"fin1" + (2).to_bytes(4, "big") + bytes(8) + b"[]", id="no-object"),
    ],
)
def test_bad_frames(connection: tuple[socket.socket, socket.socket], sent: bytes):
    """They are rejected before anything is allocated for them."""
    connection[0].sendall(sent)

    with pytest.raises(frames.BadFrame):
        frames.receive(connection[1], max_payload_bytes=10)


@pytest.mark.parametrize("sent", [b"", b"fin1", b"fin1" + (9).to_bytes(4, "big") + bytes(8) + b"{"])
def test_connection_closed(connection: tuple[socket.socket, socket.socket], sent: bytes):
    """EOFError, wherever the sender stopped."""
    connection[0].sendall(sent)
    connection[0].close()

    with pytest.raises(EOFError):
        frames.receive(connection[1], max_payload_bytes=10)
