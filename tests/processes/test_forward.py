"""What a client sees when the service process goes while it answers."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from backend.processes.forward import MAX_IDLE, ForwardingApp, ServiceConnections

ORIGIN = "https://app.example"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def never(*_arguments: Any) -> None:
    raise AssertionError("the request is no local one")


@pytest.fixture
async def forward(tmp_path: Path) -> AsyncIterator[Callable[[Answer], Awaitable[list[Any]]]]:
    """Forward one request to a service process that does what the test says; the messages of its answer."""
    servers: list[asyncio.Server] = []

    async def forward(answer: Answer) -> list[Any]:
        path, sent = tmp_path / "service.sock", []
        servers.append(await asyncio.start_unix_server(answer, path))
        requests = [{"type": "http.request", "body": b""}]
        headers = [(b"origin", ORIGIN.encode())]
        scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": headers}

        async def receive() -> Any:
            return requests.pop() if requests else await asyncio.Future()

        async def send(message: Any) -> None:
            sent.append(message)

        connections = ServiceConnections(str(path))
        async with asyncio.timeout(10):
            await ForwardingApp(never, (), connections, cors_origins=(ORIGIN,))(scope, receive, send)
        connections.close()
        return sent

    yield forward
    for server in servers:
        server.close()


async def _ignore(_message: Any) -> None: ...


async def _reset(writer: asyncio.StreamWriter) -> None:
    """As the kernel does for a killed process that has not read everything."""
    writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    writer.close()


async def test_an_answer_that_breaks_off_is_one_line_of_the_log(forward, caplog):
    """Not a traceback; the server closes the client's connection, as the message was never finished."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        await _reset(writer)

    with caplog.at_level(logging.ERROR):
        sent = await forward(answer)

    assert [b"half"] == [message["body"] for message in sent if message["type"] == "http.response.body"]
    assert ["a forwarded answer broke off"] == [record.message.split(" path=")[0] for record in caplog.records]


async def test_a_service_process_that_never_answers(forward):
    """503 with Retry-After: nothing was promised yet."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _reset(writer)  # with the request unread

    start, body = await forward(answer)

    assert 503 == start["status"]
    headers = dict(start["headers"])
    assert b"1" == headers[b"retry-after"]
    assert ORIGIN.encode() == headers[b"access-control-allow-origin"]  # or a page could not tell it from a lost network
    assert b"Retry-After" in headers[b"access-control-expose-headers"]
    assert "unavailable" == json.loads(body["body"])["code"]


async def test_a_request_that_the_server_cancels_at_its_end(forward):
    """503, so that its client asks elsewhere; it was a plain 500 (found by `make soak` on a busy machine)."""
    asked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    forwarding = asyncio.create_task(forward(answer))
    await asked.wait()
    forwarding.cancel()

    start, body = await forwarding

    assert 503 == start["status"]
    assert "shutting down" in json.loads(body["body"])["detail"]


@pytest.mark.parametrize("idle_s", [60.0, 0.01], ids=["at-once", "at-rest"])
async def test_a_crowd_leaves_few_connections(tmp_path, idle_s):
    """Each is two open files: those of the busiest second would stay for ever. At rest none stays."""
    crowd, arrived, left = MAX_IDLE + 20, asyncio.Barrier(MAX_IDLE + 20), asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await arrived.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.release()

    async def ask() -> None:
        requests = [{"type": "http.request", "body": b""}]

        async def receive() -> Any:
            return requests.pop() if requests else await asyncio.Future()

        await connections.forward(scope, receive, _ignore)

    path = str(tmp_path / "service.sock")
    connections = ServiceConnections(path, idle_s=idle_s)
    scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": []}
    async with asyncio.timeout(20), await asyncio.start_unix_server(answer, path):
        await asyncio.gather(*(ask() for _ in range(crowd)))
        for _ in range(crowd - MAX_IDLE):
            await left.acquire()
        if idle_s > 1:
            assert left.locked()
            connections.close()
        for _ in range(MAX_IDLE):
            await left.acquire()
