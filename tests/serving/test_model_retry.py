"""The background task that fetches pending models: it pauses, goes on after every failure, and swaps once."""

import asyncio
import threading
from typing import Any

import pytest

from backend.errors import HubUnreachable, InvalidField, ModelUnavailable
from backend.models.autotune import EncoderRequest
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.loading import ModelRequest
from backend.serving.model_swap import IdleUnloader, ModelSwapper
from backend.serving.pending_models import ModelRetry, PendingModel, PendingModels
from backend.supervision import Supervisor
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, ManualClock
from tests.text.service_stack import NanEngine, VectorEngine, loaded_model

REQUEST = ModelRequest("owner/model", EncoderRequest("auto", "auto", None))


class Bench:
    """A catalog whose embedding model is pending; ``fetch`` and ``load`` fail with the errors that are listed."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.telemetry = clock, Telemetry()
        self.pending = PendingModel("embeddings", "owner/model", ("owner/model",), "", "bundled")
        self.pending.failed("no network", clock())
        self.stand_in = loaded_model(VectorEngine())
        self.wanted = loaded_model(VectorEngine(), name="owner/model", source="owner/model")
        self.catalog = Catalog(self.stand_in, pending=PendingModels([self.pending], clock=clock))
        self.errors: list[Exception | None] = []  # of each fetch in turn; none left: it succeeds
        self.load_errors: list[Exception] = []
        self.fetched: list[tuple[str, str, bool]] = []
        self.pauses: list[float] = []
        self.swapped: list[LoadedModel] = []
        unloader = IdleUnloader(None, self.telemetry)
        context: Any = type("Context", (), {"placements": (None,), "telemetry": self.telemetry})
        self.swapper = ModelSwapper(
            context, self.catalog, unloader, {"embeddings": REQUEST}, load=self._load, on_swap=self.swapped.append
        )
        self.retry = ModelRetry(
            self.catalog.pending, self.swapper.fulfil, fetch=self._fetch, clock=clock, sleep=self._sleep
        )

    async def run(self) -> None:
        """Until nothing is pending."""
        self.retry.start(Supervisor(self.telemetry, clock=self.clock, sleep=self._sleep))
        task = self.retry._task
        assert task is not None
        await asyncio.wait_for(task, TEST_TIMEOUT_S)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    def _fetch(self, source: str, task: str) -> None:
        self.fetched.append((source, task, threading.current_thread().daemon))
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error

    def _load(self, _context: Any, request: Any) -> LoadedModel:
        assert "owner/model" == request.source
        if self.load_errors:
            raise self.load_errors.pop(0)
        return self.wanted


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    return Bench(clock)


async def test_it_tries_until_the_model_serves(bench):
    """Pauses double, each failure's reason is kept, and the swap tells the others of the new model."""
    bench.errors = [HubUnreachable("no network"), HubUnreachable("still none")]
    await bench.run()

    assert [15.0, 30.0, 60.0] == bench.pauses
    assert [("owner/model", "embeddings", True)] * 3 == bench.fetched
    assert bench.wanted is bench.catalog.embedding("owner/model")
    assert [bench.wanted] == bench.swapped
    assert not bench.catalog.pending.report()


@pytest.mark.parametrize("error", [ModelUnavailable("not on the hub"), RuntimeError("a bug")])
async def test_any_failure_is_tried_again(bench, error):
    """Also one that stops a start, and one that nobody foresaw; never without a pause."""
    bench.errors = [error]
    await bench.run()

    assert bench.wanted is bench.catalog.embedding()
    assert 2 == len(bench.fetched)
    assert 45.0 <= sum(bench.pauses)


async def test_a_model_that_does_not_load_stays_pending(bench, clock):
    """The reason is that of the loading; the model in its place goes on serving."""
    bench.load_errors = [ModelUnavailable("its config.json is broken")]
    seen: list[str] = []

    async def sleep(seconds: float) -> None:
        seen.append(bench.pending.reason)
        assert bench.stand_in is bench.catalog.embedding()
        clock.advance(seconds)

    bench.retry._sleep = sleep
    await bench.run()

    assert ["no network", "its config.json is broken"] == seen
    assert bench.wanted is bench.catalog.embedding()


async def test_numbers_that_are_not_finite_do_not_serve(bench, clock):
    """As with a swap by hand; it is tried again."""
    good = bench.wanted
    bench.wanted = loaded_model(NanEngine())

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if "not finite" in bench.pending.reason:
            bench.wanted = good

    bench.retry._sleep = sleep
    await bench.run()

    assert good is bench.catalog.embedding()


async def test_an_admin_goes_first(bench):
    """A model that was loaded by hand while the wanted one was fetched is not replaced."""
    by_hand = loaded_model(VectorEngine(), name="by-hand")

    def fetch(_source: str, _task: str) -> None:
        bench.catalog.replace(by_hand)

    bench.retry._fetch = fetch
    await bench.run()

    assert by_hand is bench.catalog.embedding()
    assert [] == bench.swapped


async def test_stopping_does_not_wait_for_the_download(bench, clock):
    """The process must end in time, whatever the hub does."""
    entered, gate = threading.Event(), threading.Event()

    def fetch(_source: str, _task: str) -> None:
        entered.set()
        gate.wait(TEST_TIMEOUT_S)

    bench.retry._fetch = fetch
    running = asyncio.create_task(bench.run())
    assert await asyncio.to_thread(entered.wait, TEST_TIMEOUT_S)
    assert bench.pending.is_under_way
    bench.retry.stop()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.set()

    assert bench.stand_in is bench.catalog.embedding()


async def test_a_swap_by_hand_names_the_field(bench):
    """POST /admin/models answers 422 with the reason; the model stays pending."""
    bench.load_errors = [ModelUnavailable("no such folder")]
    with pytest.raises(InvalidField, match="source: no such folder"):
        await bench.swapper.load("owner/model", "embeddings")

    assert bench.pending is bench.catalog.pending.of("embeddings")
