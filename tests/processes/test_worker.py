"""What an HTTP worker does with messages that come before it serves."""

import asyncio
import socket

from backend.processes import worker
from backend.processes.channel import Channel, RingReader, RingWriter, create_memory, map_memory
from backend.processes.work_messages import Models, Signal, write_control
from backend.processes.worker import HttpWorker

RING = 1 << 16


class Services:
    """Takes models when the test says so."""

    def __init__(self) -> None:
        self.may_take: dict[int, asyncio.Event] = {}
        self.taken: list[int] = []

    async def take_models(self, models: Models) -> None:
        await self.may_take.setdefault(models.version, asyncio.Event()).wait()
        self.taken.append(models.version)


def started_worker() -> tuple[HttpWorker, Channel]:
    """A worker that waits for its start, and the service process's end of its channel."""
    here, there = socket.socketpair()
    to_worker, from_worker = create_memory("to-worker", RING), create_memory("from-worker", RING)
    writer, reader = RingWriter(map_memory(to_worker)), RingReader(map_memory(from_worker))
    http_worker = HttpWorker(there, from_worker, to_worker, 0, socket.socket())
    service = Channel(here, writer, reader, on_message=lambda _message: None, on_close=lambda: None)
    for channel in (http_worker._channel, service):
        channel.start(asyncio.get_running_loop())
    return http_worker, service


async def test_a_drain_before_it_serves_ends_it(monkeypatch):
    """It accepts nothing that it could not finish, and the shutdown does not wait for it."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(worker.os, "_exit", ended.set_result)
    http_worker, service = started_worker()
    monkeypatch.setattr(http_worker, "_server", None)
    service.send(*write_control(Signal.DRAIN))
    async with asyncio.timeout(10):
        code = await ended
    for channel in (http_worker._channel, service):
        channel.close()
    http_worker._listener.close()

    assert 0 == code


async def test_models_are_taken_in_the_order_of_their_swaps():
    """The later swap may read a smaller vocabulary: it does not overtake the earlier."""
    http_worker, service = started_worker()
    services = Services()
    first, second = (services.may_take.setdefault(version, asyncio.Event()) for version in (1, 2))
    http_worker._services = services  # type: ignore[assignment]
    http_worker._built.set()
    second.set()
    for version in (1, 2):
        service.send(*write_control(Models(version, (), ())))
    async with asyncio.timeout(10):
        while len(http_worker._model_updates) < 2:  # noqa: ASYNC110 - a turn of the loop, no time
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        first.set()
        await asyncio.gather(*http_worker._model_updates)
    for channel in (http_worker._channel, service):
        channel.close()
    http_worker._listener.close()

    assert [1, 2] == services.taken
