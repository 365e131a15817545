"""A raw ASGI request, for what an HTTP client cannot do: stall, disconnect, send odd headers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from backend.api.app import create_app
from tests.api.fakes import FakeServices

JSON = {"content-type": "application/json"}


class Call:
    """A request to an app over ``services``; ``received`` counts the body chunks that the app has read.

    After its ``chunks`` the client waits for the answer. With ``disconnects`` it closes the connection instead, in the
    middle of its body; with ``stalls`` it sends nothing more and stays. ``disconnect`` works at any time.
    """

    def __init__(
        self,
        services: FakeServices,
        path: str,
        chunks: Sequence[bytes] = (b"",),
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        disconnects: bool = False,
        stalls: bool = False,
        app: Any = None,
    ) -> None:
        self._app = app or create_app(services)
        self._chunks = list(chunks)
        self._more_body = disconnects or stalls
        self._disconnected = asyncio.Event()
        if disconnects:
            self._disconnected.set()
        self._sent: list[Any] = []
        self.answering = asyncio.Event()  # set once a part of the answer's body was sent
        self.received = 0
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in (headers or JSON).items()],
            "server": ("test", 80),
            "client": ("127.0.0.1", 1),
        }

    def disconnect(self) -> None:
        """Close the connection."""
        self._disconnected.set()

    async def run(self) -> httpx.Response:
        """The whole answer."""
        await self._app(self._scope, self.receive, self._send)
        start, *parts = self._sent
        headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        return httpx.Response(start["status"], headers=headers, content=b"".join(part["body"] for part in parts))

    async def receive(self) -> dict[str, Any]:
        if self._chunks:
            self.received += 1
            body = self._chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._chunks) or self._more_body}
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._sent.append(message)
        if message.get("body"):
            self.answering.set()
