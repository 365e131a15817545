"""A small HTTP/1.1 client of one server on this machine: kept connections, whole answers, streams of lines.

Every way in which an attempt fails below HTTP is one error, `CutOff`; general clients hide some by trying again.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

KEY = "key-of-the-soak-test"
AUTHORIZATION = f"Authorization: Bearer {KEY}"
_IDLE_S = 4.0  # a kept connection is not used again after this; the proxy keeps it for 60 s
_HEAD_BYTES = 2**17
_NO_BODY = (204, 304)


class CutOff(Exception):
    """The connection was refused, reset, or ended before the answer was complete; or nothing came in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_s: float = 0.0  # when its last answer was complete, on the loop's clock


class HttpClient:
    """Sends requests to a port of this machine. Used on one event loop; `close` at the end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._free: list[_Connection] = []

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, timeout_s: float
    ) -> Answer:
        """The answer to one attempt. Raises: CutOff."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._request(method, path, body, headers or {})
        except TimeoutError as error:
            raise CutOff(f"no answer within {timeout_s:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            raise CutOff(f"{type(error).__name__}: {error}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[Answer, AsyncGenerator[bytes, None]], None]:
        """The head of a GET's answer and the chunks of its body as they come. Raises: CutOff."""
        connection = await self._connect()
        try:
            connection.writer.write(self._head("GET", path, 0, headers))
            answer = await _read_head(connection.reader)
            yield answer, _chunks(connection.reader, answer)
        except (OSError, EOFError, ValueError) as error:
            raise CutOff(f"{type(error).__name__}: {error}") from error
        finally:
            connection.writer.transport.abort()

    def close(self) -> None:
        """Close the kept connections."""
        for connection in self._free:
            connection.writer.transport.abort()
        self._free.clear()

    async def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        connection = self._kept() or await self._connect()
        try:
            connection.writer.write(self._head(method, path, len(body), headers) + body)
            await connection.writer.drain()
            head = await _read_head(connection.reader)
            parts = [part async for part in _chunks(connection.reader, head)]
        except BaseException:
            connection.writer.transport.abort()
            raise
        if head.headers.get("connection", "").lower() == "close":
            connection.writer.transport.abort()
        else:
            connection.used_s = asyncio.get_running_loop().time()
            self._free.append(connection)
        return Answer(head.status, head.headers, b"".join(parts))

    def _kept(self) -> _Connection | None:
        """A kept connection that is still fresh; stale ones are closed."""
        now_s = asyncio.get_running_loop().time()
        while self._free:
            connection = self._free.pop()
            if now_s - connection.used_s < _IDLE_S and not connection.reader.at_eof():
                return connection
            connection.writer.transport.abort()
        return None

    async def _connect(self) -> _Connection:
        try:
            return _Connection(*await asyncio.open_connection("127.0.0.1", self.port, limit=_HEAD_BYTES))
        except OSError as error:
            raise CutOff(f"{type(error).__name__}: {error}") from error

    def _head(self, method: str, path: str, length: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {length}"]
        lines.append(AUTHORIZATION)
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _read_head(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return Answer(int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}, b"")


async def _chunks(reader: asyncio.StreamReader, head: Answer) -> AsyncGenerator[bytes, None]:
    """The parts of a body. Raises EOFError where it is cut off."""
    if head.status in _NO_BODY:
        return
    if "chunked" not in head.headers.get("transfer-encoding", ""):
        yield await reader.readexactly(int(head.headers["content-length"])) if "content-length" in head.headers else b""
        return
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
