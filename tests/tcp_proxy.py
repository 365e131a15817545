"""A TCP proxy to a server, on the test's loop; the test decides what passes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TcpProxy:
    """Passes questions and answers on; of a server that is away, connections are reset."""

    def __init__(self, connect: Callable[[], Awaitable[Streams]]) -> None:
        self._connect = connect
        self._listener: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.open = asyncio.Event()  # cleared: answers are held back until it is set again
        self.open.set()
        self.connections = self.answers = 0  # made, and chunks of answers passed on, so far
        self.asked = 0  # bytes of questions so far
        self._heard = asyncio.Condition()
        self.instead: bytes | None = None  # Redis's MGET is answered with these bytes and does not reach the server
        self.cut_after: int | None = None  # answers that still pass before every connection is reset

    @property
    def port(self) -> int:
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._join, "127.0.0.1", 0)

    def cut(self) -> None:
        """Reset every connection; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()

    async def asked_more_than(self, size: int) -> None:
        """Wait until more bytes of questions than these have come."""
        async with self._heard:
            await self._heard.wait_for(lambda: self.asked > size)

    async def close(self) -> None:
        self._listener.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self.cut()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            upstream, upstream_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, upstream_writer}
        self._keep(self._ask(reader, writer, upstream_writer), upstream_writer)
        self._keep(self._answer(upstream, writer), writer)

    def _keep(self, pump: Coroutine[Any, Any, None], sink: asyncio.StreamWriter) -> None:
        async def run() -> None:
            try:
                with suppress(OSError):
                    await pump
            finally:
                sink.transport.abort()

        task = asyncio.get_running_loop().create_task(run())
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _ask(self, source: asyncio.StreamReader, back: asyncio.StreamWriter, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.instead is not None and b"MGET" in data:
                back.write(self.instead)
            else:
                sink.write(data)
            async with self._heard:
                self.asked += len(data)
                self._heard.notify_all()

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            await self.open.wait()
            if self.cut_after is not None:
                self.cut_after -= 1
                if self.cut_after < 0:
                    self.cut_after = None
                    self.cut()
                    return
            self.answers += 1
            sink.write(data)
