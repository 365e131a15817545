"""Starts, stops and swaps of HTTP workers, at every moment of their lives: their processes are fakes here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.bootstrap.metering import metering_of
from backend.config import Settings
from backend.processes import http_workers
from backend.processes.http_workers import HttpWorkers
from backend.processes.remote_batcher import RemoteEngine
from backend.processes.work_messages import Models, Signal, Start
from backend.serving.catalog import Catalog
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.fakes import EchoEngine, turns_until
from tests.text.service_stack import loaded_model


class FakeWorker:
    """A worker's process, which does what the test says; takes models at once unless it ``hangs``."""

    def __init__(self, on_change: Callable[[], None], spawned: asyncio.Event) -> None:
        self._on_change, self._spawned = on_change, spawned
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.calls: list[str] = []
        self.models: Models | None = None
        self.hangs = self.is_ready = self.was_ready = False
        self.models_version, self.pid = 0, 1
        self.unanswered_pings = 0
        self.last_samples: list[Any] = []

    async def spawn(self, _listener: object, _page: int) -> None:
        self.calls.append("spawn")
        await self._spawned.wait()

    def begin(self, start: Start) -> None:
        self.calls.append("begin")
        self.models, self.models_version = start.models, start.models.version

    def listen(self) -> None:
        self.is_ready = self.was_ready = True
        self._on_change()

    def send(self, record: object) -> None:
        if record is Signal.DRAIN:
            self.calls.append("drain")
            self._finish(0)
        elif isinstance(record, Models):
            self.calls.append("models")
            if not self.hangs:
                self.models, self.models_version = record, record.version
                self._on_change()

    def recover(self, models: Models) -> None:
        """Take models late."""
        self.hangs = False
        self.send(models)

    def ping(self) -> None:
        if self.hangs:
            self.unanswered_pings += 1

    def kill(self) -> None:
        self.calls.append("kill")
        self._finish(-9)

    def lived_s(self) -> float:
        return 100.0  # so that its next one starts at once

    async def ended(self) -> int:
        code = await self._end
        self.is_ready = False
        return code

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)


@dataclass
class Service:
    """The workers of a service, and the fakes behind them in the order of their starts."""

    workers: HttpWorkers
    catalog: Catalog
    spawned: asyncio.Event  # clear: workers hang in their start
    processes: list[FakeWorker] = field(default_factory=list)
    start: asyncio.Task[None] | None = None

    def swap(self) -> asyncio.Task[None]:
        """Serve another model, and announce it."""
        self.catalog.replace(loaded_model(EchoEngine()))
        return asyncio.create_task(self.workers.announce_models())

    def serves(self, worker: FakeWorker) -> bool:
        """Whether the service process knows the engines that this worker names, as those that serve now."""
        engines = [(model.engine, model.token_engine) for model in worker.models.loaded]
        numbers = [engine.id for pair in engines for engine in pair if isinstance(engine, RemoteEngine)]
        current = [engine for model in self.catalog.models() for engine in (model.engine, model.token_engine)]
        return current == [self.workers._table.engines.get(number) for number in numbers]


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """Two workers that were spawned and have begun, and do not listen yet."""
    monkeypatch.setattr(http_workers, "_BACKOFF_S", (0.0, 0.0))
    catalog, spawned = Catalog(loaded_model(EchoEngine())), asyncio.Event()
    settings = Settings(server_processes=2, host="127.0.0.1", port=0)
    telemetry = Telemetry()
    metering = metering_of(settings, telemetry)
    workers = HttpWorkers(settings, None, catalog, telemetry, metering, supervisor=Supervisor(telemetry))  # type: ignore[arg-type]  # fakes
    service = Service(workers, catalog, spawned)

    def create(_batcher: object, _engines: object, on_change: Callable[[], None], **_listeners: object) -> FakeWorker:
        service.processes.append(FakeWorker(on_change, spawned))
        return service.processes[-1]

    monkeypatch.setattr(http_workers, "WorkerProcess", create)
    spawned.set()
    service.start = asyncio.create_task(workers.start())
    await turns_until(lambda: [one.calls for one in service.processes] == [["spawn", "begin"]] * 2)
    yield service
    service.start.cancel()
    await workers.close()


async def listening(service: Service) -> list[FakeWorker]:
    """Both listen, and the service has started."""
    for worker in service.processes:
        worker.listen()
    assert service.start is not None
    await service.start
    return service.processes


async def test_a_swap_while_a_worker_is_spawned_again(service):
    """The new worker begins with the new models: it is never left with numbers that are forgotten."""
    first, _ = await listening(service)
    service.spawned.clear()
    first.kill()
    await turns_until(lambda: len(service.processes) == 3 and service.processes[2].calls == ["spawn"])
    await service.swap()
    service.spawned.set()
    await turns_until(lambda: service.processes[2].calls == ["spawn", "begin"])

    assert service.serves(service.processes[2])
    assert service.serves(service.processes[1])


async def test_a_swap_waits_for_a_worker_that_does_not_listen_yet(service, monkeypatch):
    """Engines that it may name stay until it has taken the new models, and its requests on the way are answered."""
    monkeypatch.setattr(http_workers, "_ON_THE_WAY_S", 0.05)
    first, second = service.processes
    second.hangs = True
    old = second.models
    swap = service.swap()
    await turns_until(lambda: second.calls[-1] == "models")
    first.listen()
    first_engine = old.loaded[0].engine.id

    assert not swap.done()
    assert first_engine in service.workers._table.engines

    second.recover(service.workers._models)
    await swap

    assert service.serves(first)
    assert service.serves(second)
    assert first_engine in service.workers._table.engines
    await turns_until(lambda: first_engine not in service.workers._table.engines)


async def test_a_worker_that_takes_no_models_is_killed(service, monkeypatch):
    """A swap does not wait for ever; the next worker of that place begins with the new models."""
    monkeypatch.setattr(http_workers, "MODELS_S", 0.01)
    first, second = await listening(service)
    second.hangs = True
    await service.swap()
    await turns_until(lambda: len(service.processes) == 3 and service.processes[2].models is not None)

    assert "kill" not in first.calls
    assert "kill" == second.calls[-1]
    assert service.serves(service.processes[2])


async def test_a_worker_whose_loop_stands_still_is_killed(service, monkeypatch):
    """After ten questions without an answer; the next one of that place serves."""
    monkeypatch.setattr(http_workers, "PING_S", 0.0)
    first, second = await listening(service)
    second.hangs = True
    await turns_until(lambda: len(service.processes) == 3)

    assert "kill" not in first.calls
    assert ["spawn", "begin", "kill"] == second.calls[:3]
    assert 10 == second.unanswered_pings


async def test_a_drain_reaches_a_worker_that_does_not_listen_yet(service):
    """It may have accepted a connection before this process knows: it is told, and not killed."""
    service.processes[0].listen()
    await service.workers.drain()

    assert [["spawn", "begin", "drain"]] * 2 == [worker.calls for worker in service.processes]


async def test_a_worker_that_is_spawned_amid_a_drain_never_begins(service):
    """It has accepted nothing, and the shutdown does not wait for its start."""
    first, second = await listening(service)
    service.spawned.clear()
    first.kill()
    await turns_until(lambda: len(service.processes) == 3 and service.processes[2].calls == ["spawn"])
    drain = asyncio.create_task(service.workers.drain())
    await turns_until(lambda: second.calls[-1] == "drain")
    service.spawned.set()
    await drain

    assert ["spawn", "kill"] == service.processes[2].calls
