"""Server-sent events: a response that sends events until they end or its client disconnects.

A WebSocket is one more way to read them: the handshake is a GET, each event's data a text message. So keys, quotas,
deadlines and the places of clients that wait are those of the route, over any number of processes, and the connection
stays one of `http_protocol.GuardedProtocol`, with its limits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from backend.abandoned import end_tasks
from backend.errors import FinanciaError
from backend.telemetry import log_event

if TYPE_CHECKING:
    from websockets.http11 import Response as HandshakeResponse
    from websockets.server import ServerProtocol

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 15.0  # proxies close silent connections, most after 60 s
_RETRY = b"retry: 2000\n\n"  # milliseconds before a browser connects again
_HEARTBEAT = b": still here\n\n"
_log = logging.getLogger(__name__)


class ServerEvent(NamedTuple):
    """One event; ``data`` is one line. An empty id or name is left out."""

    id: str
    name: str
    data: bytes


class OpenStreams:
    """The event streams of this process, which it ends when it stops: none of them ends in time by itself."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def end(self) -> None:
        """End all streams, those that start later at once; their clients reconnect to another replica."""
        self.ended.set()


class EventStream(Response):
    """Sends each event at once, and a comment when none came for ``heartbeat_s``.

    It ends with its events, when the client disconnects, when the process stops, and when the source of the events
    fails: a client then reconnects, and its Last-Event-ID says where to go on.

    Args:
        resumes: tell browsers when to connect again; OpenAI's clients take an answer to that for an event.
        on_end: called last, however it ends, also before the first event was asked for.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None],
        streams: OpenStreams,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        resumes: bool = True,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events, self._streams, self._heartbeat_s, self._on_end = events, streams, heartbeat_s, on_end
        self._opening = _RETRY if resumes else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Serve one client."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._opening, "more_body": True})
            await self._send_events(receive, send)
        finally:
            await self._events.aclose()
            if self._on_end is not None:
                await self._on_end()

    async def _send_events(self, receive: Receive, send: Send) -> None:
        ends = {asyncio.create_task(_disconnected(receive)), asyncio.create_task(_ended(self._streams))}
        next_event = asyncio.create_task(self._next())
        try:
            while True:
                await asyncio.wait({next_event, *ends}, timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
                if any(end.done() for end in ends):
                    break
                if not next_event.done():
                    await send({"type": "http.response.body", "body": _HEARTBEAT, "more_body": True})
                    continue
                event = next_event.result()
                if event is None:
                    break
                await send({"type": "http.response.body", "body": _encoded(event), "more_body": True})
                next_event = asyncio.create_task(self._next())
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await end_tasks(next_event, *ends)

    async def _next(self) -> ServerEvent | None:
        try:
            return await anext(self._events, None)
        except FinanciaError as error:
            log_event(_log, logging.INFO, "event stream ended early", error=str(error))
            return None


def _encoded(event: ServerEvent) -> bytes:
    lines = ((b"id", event.id.encode()), (b"event", event.name.encode()), (b"data", event.data))
    return b"".join(b"%b: %b\n" % (name, value) for name, value in lines if value) + b"\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # the rest of the request's body


async def _ended(streams: OpenStreams) -> None:
    await streams.ended.wait()


EVENTS = f"{MEDIA_TYPE}; charset=utf-8".encode()  # as `sse.EventStream` sends them
_MAX_BYTES = 1024  # of a message from the client, which has nothing to say but "again"
# That it may send at once, and then in a second: 43,000 frames of six bytes, read together, hold up everybody.
_AT_ONCE_BYTES, _PER_S_BYTES = 16 * 1024, 1024
_MAX_UNREAD_BYTES = 64 * 1024  # that wait for a client which goes on sending: answers to its pings, and events
_log.setLevel(logging.WARNING)  # the library tells of each connection


class EventSocket:
    """The ASGI app for one request whose client reads its events over a WebSocket.

    Any other answer than an event stream is sent as it is, and refuses the handshake.
    """

    cycle: RequestResponseCycle  # of the request; whose connection it is sets it before the app runs

    def __init__(
        self, app: Any, transport: asyncio.Transport, connection: ServerProtocol, handshake: HandshakeResponse
    ) -> None:
        self._app, self._transport = app, transport
        self._connection, self._handshake = connection, handshake
        self._is_open = False
        self._unread = b""  # of the stream: what has no end yet
        self._last = b""  # message
        self._left_bytes, self._since_s = float(_AT_ONCE_BYTES), time.monotonic()  # that may be sent, and since when

    @classmethod
    def of(cls, app: Any, transport: asyncio.Transport, head: bytes, host: bytes) -> EventSocket | None:
        """Read a handshake. None where it is none, or comes from a page of another site: browsers let any page ask.

        Args:
            head: the request line and headers.
        """
        from websockets.server import ServerProtocol  # few processes ever serve one, and it takes a while

        name = host.decode("latin-1")
        origins: list[Any] = [None, f"http://{name}", f"https://{name}"]
        connection = ServerProtocol(origins=origins, max_size=_MAX_BYTES, logger=_log)
        connection.receive_data(head)
        for request in connection.events_received():
            handshake = connection.accept(request)  # type: ignore[arg-type]  # the first event is the request
            if handshake.status_code == 101:
                return cls(app, transport, connection, handshake)
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the one request; the connection ends with it."""
        cycle = self.cycle
        cycle.keep_alive = False

        async def send_events(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_stream(message):
                cycle.response_started = True
                self._open(message["headers"])
            elif not self._is_open:
                await send(message)
            else:
                await cycle.flow.drain()
                self._send(message.get("body", b""))

        await self._app(scope, receive, send_events)
        if self._is_open:
            cycle.response_complete = True
            self._close()

    def receive(self, data: bytes) -> None:
        """Take bytes of the client: any text asks for the last message again."""
        if self._transport.is_closing():
            return  # it says goodbye in turn
        is_patient = self._is_open and self._has_left(len(data))
        if not is_patient or self._transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._transport.abort()
            return
        self._connection.receive_data(data)
        is_asked = any(getattr(event, "opcode", 0) == 1 for event in self._connection.events_received())
        if is_asked and self._last and not self._has_ended():
            self._connection.send_text(self._last)
        self._write()
        if self._has_ended():  # by a goodbye, or by what is no WebSocket's
            self._transport.close()

    def _has_left(self, sent_bytes: int) -> bool:
        """Whether the client may send so much by now."""
        now_s = time.monotonic()
        spared = self._left_bytes + (now_s - self._since_s) * _PER_S_BYTES
        self._left_bytes, self._since_s = min(_AT_ONCE_BYTES, spared) - sent_bytes, now_s
        return self._left_bytes >= 0

    def _open(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name != b"content-type":
                self._handshake.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._connection.send_response(self._handshake)
        self._write()
        self._is_open = True

    def _send(self, events: bytes) -> None:
        *whole, self._unread = (self._unread + events).split(b"\n\n")
        if self._has_ended():
            return
        for event in whole:
            if event.startswith(b":"):
                self._connection.send_ping(b"")  # the stream's sign of life
            for line in event.split(b"\n"):
                if line.startswith(b"data: "):
                    self._last = line.removeprefix(b"data: ")
                    self._connection.send_text(self._last)
        self._write()

    def _close(self) -> None:
        if not self._has_ended():
            self._connection.send_close(1000)
            self._write()
        self._transport.lingers = True  # type: ignore[attr-defined]  # the client still says goodbye
        self._transport.close()

    def _has_ended(self) -> bool:
        """Whether either side has closed the WebSocket."""
        return self._connection.close_sent is not None

    def _write(self) -> None:
        self._transport.write(b"".join(self._connection.data_to_send()))


def _is_stream(start: Message) -> bool:
    return start["status"] == 200 and (b"content-type", EVENTS) in start["headers"]
