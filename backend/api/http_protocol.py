"""uvicorn's HTTP protocol with limits on what a client may cost before, between and after its requests.

uvicorn bounds none of this, and none of it reaches the app, where keys and limits are checked: headers of any size, a
client that sends them byte by byte or never, requests in advance without end, and answers that nobody reads.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from backend.api.problems import problem_of, problem_response
from backend.api.sse import EventSocket
from backend.errors import BadInput, FinanciaError, HeadersTooLarge, HeadersTooLate, TooManyConnections

CONNECTION_KEY = "financia.connection"  # in the ASGI scope: the `GuardedProtocol` that a request came over
PROBE_PATHS = frozenset(("/health", "/health/live", "/health/ready", "/metrics", "/metrics/gpu"))
WEBSOCKET_PATHS = "/v1/status/ws/"  # docling-serve's; everywhere else an offer of WebSockets is declined
# Connections over the limit, for probes and for telling the others 503; beyond them: closed unheard. An address that
# has more than half of all connections gets half of these, so that it cannot keep the probes of another one out.
_RESERVED = 64
_LINGER_S = 2.0  # for a refused client to stop sending and read why; closing at once would reset what it has not read


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What the clients of one server may do with their connections."""

    connections: int = 2000  # open at once: LIMIT_CONNECTIONS
    header_bytes: int = 64 * 1024  # of a request line with its headers, and of anything else that is no body
    header_fields: int = 200
    header_s: float = 10.0  # to send them, from the first byte; on a new connection from its start
    idle_s: float = 5.0  # without a request, or with an unfinished head; then at the limit a new one takes its place
    stalled_s: float = 60.0  # in which a client reads nothing of the answer that waits for it
    pipelined: int = 100  # requests sent before the answer to the first


class UnreadAnswers(Protocol):
    """Counts the answers that clients have not read; `traffic.Traffic` bounds them."""

    def wait_for(self, reader: GuardedProtocol, unread_bytes: int) -> None: ...

    def was_read(self, reader: GuardedProtocol) -> None: ...


class _Uncounted:
    """Answers without a bound. A null object."""

    def wait_for(self, reader: GuardedProtocol, unread_bytes: int) -> None: ...

    def was_read(self, reader: GuardedProtocol) -> None: ...


class ConnectionGuard:
    """What the connections of one server share: limits, counts by address, unread answers, the count of refusals."""

    def __init__(
        self, limits: ConnectionLimits, count: Callable[[str], None], unread: UnreadAnswers | None = None
    ) -> None:
        self.limits = limits
        self.count = count  # called with the reason: an error's code, or "stalled"
        self.unread = unread or _Uncounted()
        self.addresses: Counter[str] = Counter()  # of clients: their open connections
        self._next_sweep_s = 0.0  # loop time

    def close_idle(self, connections: set[Any], newest: GuardedProtocol, now_s: float) -> bool:
        """Close the connections without a whole request for ``idle_s``; at most once a second, as it looks at each.

        Returns: whether there were any.
        """
        if now_s < self._next_sweep_s:
            return False
        self._next_sweep_s = now_s + 1.0
        idle = [one for one in connections if one is not newest and one.is_idle(now_s, self.limits.idle_s)]
        for connection in idle:
            connection.transport.close()
        return bool(idle)


def _no_count(_reason: str) -> None:
    """Count nothing."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol for one connection, within ``ConnectionLimits``, over a transport that joins writes.

    uvicorn writes the head of a response, then its body: two system calls, and two wake-ups of the client. Joined,
    cached answers came 1.1 times as fast (docs/engine.md).
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        guard: ConnectionGuard | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._guard = guard or ConnectionGuard(ConnectionLimits(), _no_count)
        self._limits = self._guard.limits
        self._unparsed_bytes = 0  # since the last piece of body or the last whole head: of a head, trailers, extensions
        self._head_timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None  # the request that is answered; ``cycle`` is the newest
        self._error: FinanciaError | None = None  # what a callback of the parser found
        self._is_upgrade = False  # the request that is parsed offers another protocol
        self._is_refused = False  # nothing that the client sends now is read
        self._is_over = False  # accepted over the limit of connections
        self._socket: EventSocket | None = None  # what the client sends is for it, and no HTTP any more
        self.address = self.owner = ""  # of the client, and whose the last request was: a key's, or its address

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Take over a new connection, or refuse it where there are too many."""
        joined = JoinedWrites(transport, self.loop, self._limits.stalled_s, self._on_stall)
        super().connection_made(cast("asyncio.Transport", joined))
        self.flow = _PipelineFlow(self.transport, self.pipeline)
        self.address = self.owner = self.client[0] if self.client else ""  # none over Unix sockets
        self._guard.addresses[self.address] += 1
        self._head_timer = self.loop.call_later(self._limits.header_s, self._on_late_head)
        if len(self.connections) > self._limits.connections:
            self._take_over_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell the app that runs."""
        self._stop_timers()
        self._guard.unread.was_read(self)
        self._guard.addresses[self.address] -= 1
        if not self._guard.addresses[self.address]:
            del self._guard.addresses[self.address]
        cast("JoinedWrites", self.transport).release()
        if self._running is not None:  # uvicorn tells the newest request only
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Have the app wait, and give up on a client that reads nothing for ``stalled_s``."""
        super().pause_writing()
        cast("JoinedWrites", self.transport).watch()
        to_come = 0 if self._running is None else self._running.expected_content_length  # and held by the app
        self._guard.unread.wait_for(self, self.transport.get_write_buffer_size() + to_come)

    def resume_writing(self) -> None:
        """Have the app go on: the client has read."""
        self._guard.unread.was_read(self)
        super().resume_writing()

    def drop(self) -> None:
        """Disconnect a client that reads slowly, and let go of what it has not read."""
        self._on_stall()
        self.transport.abort()

    def is_idle(self, now_s: float, least_s: float) -> bool:
        """Whether for so long, on the loop's clock, no request was answered and no head of one was whole."""
        if (timer := self.timeout_keep_alive_task) is not None:
            return timer.when() - self.timeout_keep_alive <= now_s - least_s
        return self._head_timer is not None and self._head_timer.when() - self._limits.header_s <= now_s - least_s

    # Bytes from the client

    def data_received(self, data: bytes) -> None:
        """Parse what came, at most as far as headers may reach."""
        if self._socket is not None:
            self._socket.receive(data)
            return
        most = self._limits.header_bytes + 1
        if self._unparsed_bytes + len(data) <= most:
            self._parse(data)
            return
        rest = memoryview(data)
        while len(rest) > (room := most - self._unparsed_bytes) and not self._is_refused:
            self._parse(rest[:room])
            rest = rest[room:]
        self._parse(rest)

    def on_headers_complete(self) -> None:
        """Start the request, unless it has too many headers."""
        self._unparsed_bytes = 0
        fields = len(self.headers)
        if fields > self._limits.header_fields:
            self._fail(HeadersTooLarge("header fields", fields, self._limits.header_fields))
        hosts = sum(name == b"host" for name, _ in self.headers)
        if self.address and hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):  # HTTP workers ask it
            self._fail(BadInput(f"a request has one Host header (RFC 9112), this one {hosts or 'none'}"))
        if len(self.pipeline) >= self._limits.pipelined:
            self._fail(BadInput(f"over {self._limits.pipelined} requests were sent without waiting for an answer"))
        self._is_upgrade = self.parser.should_upgrade()
        if self._is_upgrade:
            return  # it is parsed again as what it is without the offer: _decline_upgrade
        super().on_headers_complete()
        cast("dict[str, Any]", self.scope)[CONNECTION_KEY] = self  # before the app's task runs
        self.headers = []  # trailers go here: they come after the key was checked, and are no headers
        if self._is_over:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body; as uvicorn's, without its question for WebSockets."""
        self._unparsed_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Mark the end of the request; as uvicorn's."""
        self._unparsed_bytes = 0
        cycle = self.cycle
        if not self._is_upgrade and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def _parse(self, data: bytes | memoryview) -> None:
        if self._is_refused:
            return
        self._unparsed_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError:
            self._refuse(self._error or BadInput("the request line names no path; escape what is not ASCII (%C3%B1)"))
            return
        except httptools.HttpParserError as error:
            self._refuse(BadInput(f"this is no HTTP/1.1 request: {error}"))
            return
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:  # type: ignore[redundant-expr]  # None at first
            if self.timeout_keep_alive_task is not None or self._head_timer is not None:
                self._stop_timers()
        elif self._head_timer is None and self._is_in_head():
            self._stop_timers()
            self._head_timer = self.loop.call_later(self._limits.header_s, self._on_late_head)
        if (unparsed := self._unparsed_bytes) > self._limits.header_bytes:
            self._refuse(HeadersTooLarge("bytes of request line and headers", unparsed, self._limits.header_bytes))

    def _decline_upgrade(self, rest: bytes | memoryview) -> None:
        """Go on with the request as if it offered no upgrade (RFC 9110, 7.8). Java's client offers h2c with each body.

        The parser takes the request for ended at its headers, so that its body would be lost.
        """
        if self.parser.get_method() == b"CONNECT":
            self._refuse(BadInput("CONNECT: this is no proxy"))
            return
        version = self.parser.get_http_version().encode("ascii")
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        socket = self._offered_socket(lines[0])
        lines += [name + b": " + value for name, value in self.headers if name not in (b"upgrade", b"http2-settings")]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + (rest if socket is None else b""))
        if socket is not None and not self._is_refused:
            socket.cycle, self._socket = self.cycle, socket
            if rest:
                socket.receive(bytes(rest))

    def _offered_socket(self, request_line: bytes) -> EventSocket | None:
        """The WebSocket that is offered where there are some, for nothing but the one request of a connection."""
        if not self.url.startswith(WEBSOCKET_PATHS.encode()) or self.pipeline or self._is_answering():
            return None
        lines = [request_line, *(name + b": " + value for name, value in self.headers)]
        host = next((value for name, value in self.headers if name == b"host"), b"")
        socket = EventSocket.of(self.app, self.transport, b"\r\n".join(lines) + b"\r\n\r\n", host)
        if socket is not None:
            self.app = cast("Any", socket)
        return socket

    def _is_in_head(self) -> bool:
        return self.scope is not None and "method" not in self.scope  # type: ignore[redundant-expr]  # None at first

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # as above

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    # Refusals

    def _fail(self, error: FinanciaError) -> None:
        """Stop the parser from within one of its callbacks."""
        self._error = error
        raise error

    def _refuse(self, error: FinanciaError) -> None:
        """Answer ``error`` and close; whole requests that came before are answered first, and then no ``error``."""
        self._is_refused = True
        self._stop_timers()
        if self.transport.is_closing():
            return
        cast("JoinedWrites", self.transport).lingers = True
        self._guard.count(error.code)
        if self._is_answering():
            if not self.cycle.more_body:
                self.cycle.keep_alive = False
                return
            self.cycle.disconnected = self.cycle.response_complete = True  # its own body is what is wrong
            self.cycle.message_event.set()
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()
                return
        self.transport.write(_problem_bytes(error))
        self.transport.close()

    def _on_late_head(self) -> None:
        self._head_timer = None
        if self._is_in_head() or self._unparsed_bytes:
            self._refuse(HeadersTooLate(self._limits.header_s))
        else:  # browsers open connections in advance: no word is due
            self.transport.close()

    def _on_stall(self) -> None:
        self._guard.count("stalled")

    def _take_over_limit(self) -> None:
        """Take the place of idle ones, or answer probes only."""
        if self._guard.close_idle(self.connections, self, self.loop.time()):
            return
        most = self._limits.connections
        is_greedy = bool(self.address) and self._guard.addresses[self.address] > max(1, most // 2)
        if len(self.connections) > most + (_RESERVED // 2 if is_greedy else _RESERVED):
            self._is_refused = True
            self._guard.count(TooManyConnections.code)
            self.transport.abort()
            return
        self._is_over = True
        self.app = cast("Any", _ProbesOnly(self.app, self._guard))

    def _stop_timers(self) -> None:
        self._unset_keepalive_if_required()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _PipelineFlow(FlowControl):
    """Reads nothing while requests wait in the pipeline; each wait of the app for the client would resume it."""

    def __init__(self, transport: asyncio.Transport, pipeline: deque[Any]) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if self.read_paused and not self._pipeline:
            super().resume_reading()


class _ProbesOnly:
    """Answers probes through the app, and everything else that there are too many connections."""

    def __init__(self, app: Any, guard: ConnectionGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, send)
            return
        error = TooManyConnections(self._guard.limits.connections)
        self._guard.count(error.code)
        await problem_response(problem_of(error, scope["path"]), _request_id())(scope, receive, send)


class JoinedWrites:
    """A transport that holds the head of a response until its body is written in the same step of the event loop.

    A head whose body comes later, or never, is sent at the next step of the loop.

    Args:
        stalled_s: after which a client that reads nothing of what waits is disconnected, where `watch` is on.
        on_stall: called then.
    """

    __slots__ = (
        "_flush", "_head", "_is_closing", "_loop", "_on_stall", "_stalled_s", "_timer", "_transport", "lingers",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        stalled_s: float,
        on_stall: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._stalled_s, self._on_stall = stalled_s, on_stall
        self._head = b""
        self._flush: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._is_closing = False
        self.lingers = False  # the client still sends: let it read the last answer before the connection is closed

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

    def is_closing(self) -> bool:
        """Whether nothing more will be sent."""
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Send what waits, then close; called again, do not linger."""
        self._send_head()
        if self.lingers and not self.is_closing():
            self._linger()
        else:
            self._transport.close()
            self.watch()

    def release(self) -> None:
        """The connection is lost: stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def watch(self) -> None:
        """Disconnect the client if it reads nothing of what waits for it; ends when nothing waits."""
        waiting_bytes = self._transport.get_write_buffer_size()
        if waiting_bytes and self._timer is None:
            self._timer = self._loop.call_later(self._stalled_s, self._look, waiting_bytes)

    def _look(self, waited_bytes: int) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < waited_bytes:
            self.watch()
            return
        self._on_stall()
        self._transport.abort()

    def _linger(self) -> None:
        """Send nothing more, and read on for a while: closing at once resets the connection and loses the answer."""
        self._is_closing = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self.release()
        self._timer = self._loop.call_later(_LINGER_S, self._end_linger)

    def _end_linger(self) -> None:
        self._timer = None
        self._transport.close()
        self.watch()

    def _send_head(self) -> None:
        if self._head:
            self._transport.write(self._release())

    def _release(self) -> bytes:
        if self._flush is not None:
            self._flush.cancel()
        head, self._head, self._flush = self._head, b"", None
        return head


def _problem_bytes(error: FinanciaError) -> bytes:
    """A whole response for a request that never became one."""
    response = problem_response(problem_of(error, ""), request_id := _request_id())
    headers = [
        *response.raw_headers,
        (b"x-request-id", request_id.encode("ascii")),
        (b"server-timing", b"total;dur=0.000"),  # as every answer has; nothing was begun
        (b"connection", b"close"),
    ]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[error.status] + lines + b"\r\n" + bytes(response.body)


def _request_id() -> str:
    return f"connection-{os.urandom(6).hex()}"
