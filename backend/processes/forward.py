"""Forwards requests of an HTTP worker to the service process: HTTP/1.1 over a Unix socket, streamed both ways."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.abandoned import end_tasks
from backend.api.middleware import UNTRACED, caller_span, with_cors
from backend.api.problems import problem_of, problem_response
from backend.errors import CallerGone, Unavailable, drained_too_late
from backend.telemetry import log_event
from backend.tracing.spans import NO_TRACER, Active, Tracer

MAX_IDLE = 16  # connections; a crowd opens more for as long as it lasts
IDLE_S = 10.0  # after which one that nobody used is closed: each is two open files
_log = logging.getLogger(__name__)
_READ_BYTES = 256 * 1024
# Of one connection, not of the request (RFC 9110, 7.6.1); this process writes its own.
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"expect", b"proxy-connection")
)
_OWN = _HOP_BY_HOP | {b"date", b"server"}  # of an answer: what uvicorn adds here


class ForwardingApp:
    """Serves requests of ``local`` routes by ``app`` and forwards all others, before any middleware sees them.

    So each request is counted, charged and answered by one process alone, and forwarded answers are byte for byte what
    the service process answers.

    Args:
        local: method and path of the routes that ``app`` serves.
        service: the service process.
        cors_origins: pages of these may read this process's own answers too.
    """

    def __init__(
        self,
        app: ASGIApp,
        local: Collection[tuple[str, str]],
        service: ServiceConnections,
        *,
        cors_origins: tuple[str, ...] = (),
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._app, self._local, self._service = app, frozenset(local), service
        self._cors_origins, self._tracer = cors_origins, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http" or (scope["method"], scope["path"]) in self._local:
            await self._app(scope, receive, send)
            return
        try:
            if self._tracer.is_on and not scope["path"].startswith(UNTRACED):
                await self._forward_traced(scope, receive, send)
            else:
                await self._service.forward(scope, receive, send)
        except CallerGone:
            pass  # nobody is left to be told
        except (
            ConnectionError
        ) as error:  # amid the answer, which cannot be taken back: the server closes the connection
            log_event(_log, logging.ERROR, "a forwarded answer broke off", path=scope["path"], reason=str(error))
        except Unavailable as error:  # before the answer began
            request_id = f"forwarded-{os.urandom(6).hex()}"
            refusal = problem_response(problem_of(error, scope["path"]), request_id)
            await with_cors(refusal, origins=self._cors_origins)(scope, receive, send)

    async def _forward_traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        """With a span around it; the service process has the server's span, which is its child."""
        span = self._tracer.start("forward request", "internal", caller_span(dict(scope["headers"])))
        span.attributes |= {"http.request.method": scope["method"], "url.path": scope["path"]}
        own = (b"traceparent", span.context.traceparent().encode("ascii"))
        headers = [(name, value) for name, value in scope["headers"] if name != b"traceparent"]
        with Active(span):
            await self._service.forward({**scope, "headers": [*headers, own]}, receive, send)


class ServiceConnections:
    """Connections to the service process, some kept for the next request. Belongs to the loop's thread.

    Args:
        path: of its Unix socket.
        idle_s: for which an unused one is kept at least, and at most twice as long.
    """

    def __init__(self, path: str, *, idle_s: float = IDLE_S) -> None:
        self._path, self._idle_s = path, idle_s
        self._idle: deque[_Connection] = deque()  # the last used last
        self._looking: asyncio.TimerHandle | None = None

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the service process answer; a client that leaves ends the request there too.

        Raises: Unavailable when it cannot be reached, or goes before it has answered.
        """
        connection = await self._open()
        try:
            await connection.exchange(scope, receive, send)
        finally:
            if connection.is_reusable and len(self._idle) < MAX_IDLE:
                connection.idle_since_s = asyncio.get_running_loop().time()
                self._idle.append(connection)
                self._look_later()
            else:
                connection.close()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(self._idle_s, self._close_unused)

    def _close_unused(self) -> None:
        self._looking, loop = None, asyncio.get_running_loop()
        while self._idle and self._idle[0].idle_since_s <= loop.time() - self._idle_s:
            self._idle.popleft().close()
        if self._idle:
            self._look_later()

    def close(self) -> None:
        """Close the idle connections."""
        if self._looking is not None:
            self._looking.cancel()
        while self._idle:
            self._idle.pop().close()

    async def _open(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
            connection.close()
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
        except OSError as error:
            raise Unavailable("the service process is not there; ask again", kind="for_good") from error
        return _Connection(reader, writer)


class _Connection:
    """One connection to the service process, which answers one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.is_reusable = True
        self.idle_since_s = 0.0

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request and relay its answer as it comes."""
        self.is_reusable = False  # until both are whole
        relaying = asyncio.current_task()
        answer = _Answer(is_head=scope["method"] == "HEAD")
        self._writer.write(_head(scope))
        upload = asyncio.create_task(self._upload(scope, receive, answer, relaying))
        try:
            await self._relay(answer, send)
            self.is_reusable = answer.keeps_connection and answer.request_is_sent
        except asyncio.CancelledError:
            if answer.is_started and not answer.client_left:
                raise
            relaying.uncancel() if relaying is not None else None
            if not answer.client_left:
                raise drained_too_late() from None
            raise CallerGone("the client closed the connection") from None
        finally:
            await end_tasks(upload)

    async def _upload(
        self, scope: Scope, receive: Receive, answer: _Answer, relaying: asyncio.Task[Any] | None
    ) -> None:
        """The body, then nothing until the client leaves."""
        chunked = _is_chunked(scope)
        with suppress(ConnectionError):  # it refused the rest, and its answer says why
            while (message := await receive())["type"] == "http.request":
                body, more = message.get("body", b""), message.get("more_body", False)
                if chunked and body:
                    self._writer.write(b"%x\r\n" % len(body) + body + b"\r\n")
                elif body:
                    self._writer.write(body)
                if chunked and not more:
                    self._writer.write(b"0\r\n\r\n")
                await self._writer.drain()
                answer.request_is_sent = not more
            answer.client_left = True
            if relaying is not None and not answer.is_complete:
                relaying.cancel()

    async def _relay(self, answer: _Answer, send: Send) -> None:
        while not answer.is_complete:
            data = b""
            with suppress(ConnectionError):  # it was killed
                data = await self._reader.read(_READ_BYTES)
            if not data:
                break
            answer.feed(data)
            while answer.messages:
                await send(answer.messages.popleft())
        if not answer.is_started:
            raise Unavailable("the service process ended before it answered; ask again", kind="for_good")
        if not answer.is_complete:
            raise ConnectionError("the service process closed the connection amid an answer")


class _Answer:
    """Parses an answer into ASGI messages; its methods without a docstring are httptools' callbacks."""

    def __init__(self, *, is_head: bool) -> None:
        self.messages: deque[Message] = deque()
        self.is_started = self.is_complete = self.request_is_sent = self.client_left = False
        self.keeps_connection = True
        self._is_head = is_head
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse what came. Raises: ConnectionError for what is no HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the service process answered with what is no HTTP: {error}") from error

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"connection" and value.lower() == b"close":
            self.keeps_connection = False
            self._headers.append((name, value))  # the service process stops: the client shall go elsewhere too
        if name not in _OWN:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []
            return
        self.is_started = True
        self.messages.append({"type": "http.response.start", "status": status, "headers": self._headers})
        if self._is_head:  # its Content-Length counts a body that does not come
            self.keeps_connection = False
            self._end()

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self.messages.append({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        if self.is_started and not self.is_complete:
            self._end()

    def _end(self) -> None:
        self.is_complete = True
        self.messages.append({"type": "http.response.body", "body": b"", "more_body": False})


def _head(scope: Scope) -> bytes:
    path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    target = path + b"?" + scope["query_string"] if scope["query_string"] else path
    lines = [scope["method"].encode("ascii") + b" " + target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in _HOP_BY_HOP]
    if _is_chunked(scope):
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])
