"""Server-sent events: a response that sends events until they end or its client disconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.abandoned import end_tasks
from backend.errors import FinanciaError
from backend.telemetry import log_event

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
