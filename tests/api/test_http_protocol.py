"""Heads of responses go out with their bodies. tests/api/test_connections.py tests the limits over sockets."""

import asyncio
from typing import Any, cast

import pytest

from backend.api.http_protocol import JoinedWrites

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class RecordingTransport:
    """Records each system call as one entry of ``sent``."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: Any) -> None:
        self.sent.append(b"".join(parts))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture
async def pair() -> tuple[JoinedWrites, RecordingTransport]:
    """The joined transport and the transport below it."""
    below = RecordingTransport()
    joined = JoinedWrites(cast("asyncio.Transport", below), asyncio.get_running_loop(), 60.0, lambda: None)
    return joined, below


async def test_head_and_body_are_one_write(pair: tuple[JoinedWrites, RecordingTransport]) -> None:
    """A plain response takes one system call."""
    joined, below = pair
    joined.write(HEAD)
    joined.write(b"{}")
    await asyncio.sleep(0)

    assert [HEAD + b"{}"] == below.sent


async def test_a_head_alone_is_sent_at_the_next_step(pair: tuple[JoinedWrites, RecordingTransport]) -> None:
    """The head does not wait for a body that comes later, such as a stream's."""
    joined, below = pair
    joined.write(HEAD)
    assert [] == below.sent
    await asyncio.sleep(0)
    joined.write(b"{}")

    assert [HEAD, b"{}"] == below.sent


async def test_closing_sends_the_held_head(pair: tuple[JoinedWrites, RecordingTransport]) -> None:
    """uvicorn closes right after refusing a request that it cannot parse."""
    joined, below = pair
    joined.write(HEAD)
    joined.close()
    await asyncio.sleep(0)

    assert [HEAD] == below.sent
    assert joined.is_closing()


async def test_bodies_pass_at_once(pair: tuple[JoinedWrites, RecordingTransport]) -> None:
    """Chunks of a stream are not held, whatever they end in."""
    joined, below = pair
    joined.write(b"5\r\nhello\r\n")
    joined.write(b"0\r\n\r\n")

    assert [b"5\r\nhello\r\n", b"0\r\n\r\n"] == below.sent
