"""Events over a WebSocket, as docling-serve's clients want them: real sockets, with a real client at the other end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from starlette.types import Receive, Scope, Send
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from backend.api.sse import EVENTS
from tests.api.test_connections import SLOW, WAIT_S, Client, EchoApp, Running, get

HANDSHAKE = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
PING = b"\x89\xfd" + bytes(4) + bytes(125)  # as long as it may be, masked with zeros
AGAIN, FIRST_PART, NEXT_PART = (opcode + b"\x80" + bytes(4) for opcode in (b"\x81", b"\x01", b"\x00"))  # empty ones


@dataclass
class Events(EchoApp):
    """Two events, cut anywhere, then more once ``gate`` is open; ``none`` is refused. Other paths as EchoApp's."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not path.startswith("/v1/status/ws/") or path.endswith("none"):
            await super().__call__(scope, receive, send)
            return
        self.requests.append(path)
        headers = [(b"content-type", EVENTS), (b"x-request-id", b"r1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in (b": still here\n\nevent: upd", b"ate\ndata: {", b'"n": 1}\n\ndata: 2\n\n'):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await self._wait(receive)
        await send({"type": "http.response.body", "body": b"data: 3\n\n", "more_body": True})
        await send({"type": "http.response.body"})
        self.ended.append(path)


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running(SLOW, 3600, app=Events())
    yield running
    running.stop()


@pytest.fixture
def raw(server: Running) -> Client:
    """A socket after its handshake."""
    client = server.sent(get("/v1/status/ws/a", *HANDSHAKE))
    server.until(lambda: bool(server.app.requests))
    return client


@pytest.fixture
def opened(server: Running) -> Iterator[Callable[..., ClientConnection]]:
    with ExitStack() as clients:

        def connected(path: str = "/v1/status/ws/a", origin: str | None = None) -> ClientConnection:
            address = f"ws://127.0.0.1:{server.port}{path}"
            return clients.enter_context(connect(address, origin=origin, open_timeout=WAIT_S))  # type: ignore[arg-type]

        yield connected


def test_events_are_messages(server: Running, opened: Callable[..., ClientConnection]) -> None:
    """Each event's data, whole; a text asks for the last one again; the end is a goodbye."""
    client = opened()
    first = [client.recv(WAIT_S) for _ in range(2)]
    client.send("again?")
    again = client.recv(WAIT_S)
    server.call(server.app.gate.set)

    assert (['{"n": 1}', "2"], "2", "3") == (first, again, client.recv(WAIT_S))
    with pytest.raises(ConnectionClosedOK):
        client.recv(WAIT_S)
    assert "r1" == client.response.headers["x-request-id"]  # type: ignore[union-attr]


def test_a_client_that_leaves(server: Running, opened: Callable[..., ClientConnection]) -> None:
    """The app learns of it, and the connection is none any more."""
    opened().close()
    server.until(lambda: bool(server.app.ended) and not server.connections)


def test_refusals_are_answers(server: Running, opened: Callable[..., ClientConnection]) -> None:
    """Of the app; and a page of another site gets no WebSocket, for a browser would let it read one."""
    with pytest.raises(InvalidStatus) as refused:
        opened("/v1/status/ws/none")
    foreign = server.sent(get("/v1/status/ws/a", *HANDSHAKE, "Origin: https://elsewhere.example"))
    own = opened(origin=f"http://127.0.0.1:{server.port}")

    assert b'"path": "/v1/status/ws/none"' in (refused.value.response.body or b"")
    assert b"HTTP/1.1 200" == foreign.socket.recv(12)
    assert '{"n": 1}' == own.recv(WAIT_S)


def test_other_paths_have_none(server: Running) -> None:
    """The offer is declined, and the request answered."""
    client = server.sent(get("/other", *HANDSHAKE))

    assert (200, "/other") == ((answer := client.answer()).status, answer.json["path"])


def test_what_is_no_websocket(server: Running, raw: Client) -> None:
    """Frames without a mask end it, as the standard demands."""
    raw.send(b"\x81\x02hi")

    assert b"\x88" in raw.rest()
    server.until(lambda: not server.connections)


def test_long_messages_are_refused(opened: Callable[..., ClientConnection]) -> None:
    client = opened()
    client.send("x" * 2000)

    with pytest.raises(ConnectionClosedError, match="1009"):
        list(iter(client.recv, None))


def test_a_client_that_sends_and_never_reads(server: Running, raw: Client) -> None:
    """It is cut off: what waits for it stays small."""
    sent = raw.send_until_refused(PING * 1000, 1000)

    assert sent < 1000
    server.until(lambda: not server.connections)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(AGAIN * 7000, id="asked-faster-than-anybody-reads"),
        pytest.param(FIRST_PART + NEXT_PART * 7000, id="a-message-that-never-ends"),
    ],
)
def test_thousands_of_tiny_frames(server: Running, raw: Client, frames: bytes) -> None:
    """A client that sends them is cut off, though it reads all answers."""
    raw.send_until_refused(frames, 1)

    raw.rest()
    server.until(lambda: not server.connections)


def test_frames_before_the_handshake(server: Running) -> None:
    """A client that does not wait for it is cut off."""
    client = server.sent(get("/v1/status/ws/a", *HANDSHAKE) + PING)

    assert b"" == client.rest()
    server.until(lambda: not server.connections)
