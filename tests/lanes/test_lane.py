"""What a lane does when engines go wrong, and in which order it works when they go well."""

import asyncio
import os
import sys
import threading

import pytest

from backend.errors import BadInput, DeadlineExceeded, DeviceLost, DoesNotFit, InferenceFailed, Unavailable
from backend.lanes.engine import Replicas
from backend.lanes.lane import DEATHS_MAX
from tests.fakes import (
    TEST_TIMEOUT_S,
    AsyncEngine,
    EchoEngine,
    FailingEngine,
    GatedEngine,
    MiscountingEngine,
    NoisyEngine,
    OutOfMemoryEngine,
    PlacedEngine,
    RecordingBatchLimits,
    results,
)


def run(batcher, engine, payloads):
    """Submit payloads of cost 10 and wait for their results."""
    return results(batcher.submit(engine, payloads, [10] * len(payloads)))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("stage", ["prepare", "forward", "finish"])
async def test_only_the_faulty_item_gets_the_error(make_batcher, value, stage, depth):
    """Wherever it raises: the culprit gets InferenceFailed from the cause, its neighbours their results."""
    engine = FailingEngine(stage=stage, poison=3)
    answers = await run(make_batcher(depth=depth), engine, list(range(8)))

    failed = answers.pop(3)
    assert answers == [0, 1, 2, 4, 5, 6, 7]
    assert isinstance(failed, InferenceFailed)
    assert failed.__cause__ is engine.error
    assert value("batch_failures_total") == 1
    assert value("jobs_failed_total") == 1


@pytest.mark.parametrize(
    "engine", [FailingEngine(), MiscountingEngine()], ids=["raises-always", "loses-a-result-always"]
)
async def test_an_engine_that_always_fails(make_batcher, engine):
    """Every item gets an error, none hangs, and the lane goes on."""
    batcher = make_batcher()
    answers = await run(batcher, engine, list(range(5)))

    assert [InferenceFailed] * 5 == [type(answer) for answer in answers]
    assert await run(batcher, EchoEngine(), ["next"]) == ["next"]


async def test_a_wrong_number_of_results_is_no_result(make_batcher):
    """A batch whose results cannot be told apart is run again in parts; answers never shift to a neighbour."""
    answers = await run(make_batcher(), NoisyEngine(poison=2), list(range(5)))

    assert answers == [0, 1, 2, 3, 4]


async def test_our_own_errors_pass_as_they_are(make_batcher):
    """A FinanciaError from an engine is not wrapped."""
    engine = FailingEngine(error=BadInput("not this one"))
    (answer,) = await run(make_batcher(), engine, ["x"])

    assert answer is engine.error


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_out_of_memory_is_an_ordinary_event(make_batcher, value, limit):
    """The batch is run in parts: everybody gets the result of an unlimited device, in order, and it is counted."""
    engine = OutOfMemoryEngine(limit=limit, batch_limits=RecordingBatchLimits())
    answers = await run(make_batcher(), engine, list(range(8)))

    assert list(range(8)) == answers
    assert (10, 8) == engine.batch_limits.misses[0]
    assert len(engine.batch_limits.misses) == value("oom_recoveries_total", engine="out_of_memory", action="split")
    assert value("oom_recoveries_total", engine="out_of_memory", action="refused") == 0
    assert value("jobs_failed_total") == 0


async def test_an_input_that_does_not_fit_alone(make_batcher, value):
    """507 with the numbers, for that one input only."""
    engine = OutOfMemoryEngine(limit=0, batch_limits=RecordingBatchLimits())
    batcher = make_batcher()
    (answer,) = await run(batcher, engine, ["huge"])

    assert isinstance(answer, DoesNotFit)
    assert "10 tokens" in str(answer)
    assert "2.50 GiB" in str(answer)
    assert [(10, 1)] == engine.batch_limits.misses
    assert value("oom_recoveries_total", engine="out_of_memory", action="refused") == 1
    assert await run(batcher, EchoEngine(), ["next"]) == ["next"]


async def test_the_learnt_capacity_bounds_later_batches(make_batcher):
    """The next batch is as large as the capacity allows, so that it does not run out again."""
    engine = OutOfMemoryEngine(limit=2, batch_limits=RecordingBatchLimits(limit=2))
    answers = await run(make_batcher(), engine, list(range(5)))

    assert list(range(5)) == answers
    assert not engine.batch_limits.misses
    assert [(10, 2), (10, 2), (10, 1)] == engine.batch_limits.successes


async def test_a_dead_context_stops_every_lane(make_batcher, value):
    """No input is at fault: all items get 503, new ones are refused, no lane restarts, and the status says why."""
    batcher = make_batcher(lanes=2)
    broken = FailingEngine(error=RuntimeError("CUDA error: an illegal memory access was encountered"), budget=20)
    answers = await run(batcher, broken, list(range(6)))

    assert {DeviceLost} == {type(answer) for answer in answers}
    assert "illegal memory access" in await asyncio.wait_for(batcher.device_lost(), TEST_TIMEOUT_S)
    assert "illegal memory access" in batcher.status().device_fault
    assert value("device_lost") == 1
    assert value("lane_restarts_total") == 0
    with pytest.raises(DeviceLost, match="illegal memory access"):
        batcher.submit(EchoEngine(), ["x"], [1])


async def test_our_own_error_from_a_dead_context(make_batcher):
    """What raised it decides: an engine that wraps its faults must not hide that the device is gone."""
    wrapped = InferenceFailed("the model failed")
    wrapped.__cause__ = RuntimeError("CUDA error: device-side assert triggered")
    answers = await run(make_batcher(), FailingEngine(error=wrapped), [1, 2])

    assert [DeviceLost, DeviceLost] == [type(answer) for answer in answers]


class UnreadableLimits(RecordingBatchLimits):
    """Raises where the lane asks what fits, or when it reports a batch."""

    def __init__(self, at: str, message: str, times: int) -> None:
        super().__init__()
        self.at, self.message, self.times = at, message, times

    def capacity(self):
        self._fail("capacity")
        return super().capacity()

    def succeeded(self, longest: int, count: int) -> None:
        self._fail("succeeded")

    def _fail(self, at: str) -> None:
        if at == self.at and self.times:
            self.times -= 1
            raise RuntimeError(self.message)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("at", ["capacity", "succeeded"])
async def test_reading_the_memory_of_a_dead_context_loses_the_device(make_batcher, value, at, depth):
    """The allocator's counters are the first to say so: the verdict is the same as for a batch, for every item."""
    batcher = make_batcher(depth=depth)
    limits = UnreadableLimits(at, "CUDA error: an illegal memory access was encountered", times=99)
    answers = await run(batcher, EchoEngine(batch_limits=limits), list(range(30)))

    assert {DeviceLost} == {type(answer) for answer in answers}
    assert "illegal memory access" in await asyncio.wait_for(batcher.device_lost(), TEST_TIMEOUT_S)
    assert 1 == value("device_lost")
    assert not batcher.status().lanes_alive


async def test_items_wait_for_the_lane_that_could_not_read_the_memory(make_batcher, value):
    """A passing fault of the driver costs time only: the lane starts again and finds them in the queue."""
    limits = UnreadableLimits("capacity", "CUDA error: unknown", times=DEATHS_MAX - 1)
    answers = await run(make_batcher(), EchoEngine(batch_limits=limits), list(range(30)))

    assert list(range(30)) == answers
    assert DEATHS_MAX - 1 == value("lane_restarts_total")
    assert not value("jobs_failed_total")


class HangingLimits(RecordingBatchLimits):
    """A driver that does not answer until ``gate`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.asked = threading.Event(), threading.Event()

    def capacity(self):
        self.asked.set()
        assert self.gate.wait(TEST_TIMEOUT_S), "the test never opened the gate"
        return super().capacity()


async def test_a_driver_that_hangs_does_not_stop_the_loop(make_batcher, clock):
    """Items are added, refused and ended by their deadline while a lane waits to hear what fits."""
    batcher, limits = make_batcher(), HangingLimits()
    first = batcher.submit(EchoEngine(batch_limits=limits), ["x"], [10], deadline_s=clock() + 1)
    assert await asyncio.to_thread(limits.asked.wait, TEST_TIMEOUT_S)
    clock.advance(2)
    batcher.expire()
    second = batcher.submit(EchoEngine(), ["y"], [10])
    assert 2 == batcher.status().queued_jobs
    limits.gate.set()

    assert [DeadlineExceeded] == [type(answer) for answer in await results(first)]
    assert ["y"] == await results(second)


async def test_another_lane_takes_what_a_dead_one_left(make_batcher):
    """With one lane down for good, those that wait are told."""
    limits = UnreadableLimits("capacity", "CUDA error: unknown", times=DEATHS_MAX)
    batcher = make_batcher(lanes=2)
    answers = await run(batcher, EchoEngine(batch_limits=limits), ["x"])

    assert ["x"] == answers


async def test_memory_of_packed_rows_is_told_as_that_of_the_longest(make_batcher):
    """A batch of 30 + 10 rows without padding is two of the longest, not three."""
    engine = OutOfMemoryEngine(limit=2, padding_cost=0.0, batch_limits=RecordingBatchLimits())
    await results(make_batcher().submit(engine, [1, 2, 3], [30, 5, 5]))

    assert [(30, 2)] == engine.batch_limits.misses


async def test_several_devices_pull_from_one_queue(make_batcher):
    """Each lane runs the engine as it stands on its own device; a device that is busy takes nothing more."""
    replicas = [PlacedEngine(device_index=index, budget=10) for index in range(2)]
    engine, batcher = Replicas(replicas), make_batcher(devices=2)
    first = batcher.submit(engine, [1, 2], [10, 10])
    for replica in replicas:
        assert await asyncio.to_thread(replica.entered.wait, TEST_TIMEOUT_S)
    replicas[1].gate.set()  # the other device stays busy
    second = batcher.submit(engine, [3, 4], [10, 10])
    assert [(1, 3), (1, 4)] == await results(second)
    replicas[0].gate.set()
    answers = await results(first)

    assert [1, 2] == sorted(payload for _, payload in answers)
    assert {0, 1} == {device for device, _ in answers}
    assert 1 == len(replicas[0].batches)
    assert 3 == len(replicas[1].batches)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("stage", ["prepare", "forward", "finish"])
async def test_a_lane_that_dies_starts_again(make_batcher, value, stage, depth):
    """SystemExit from an engine fails the items of that lane with Unavailable; the next ones are answered."""
    batcher = make_batcher(depth=depth)
    answers = await run(batcher, FailingEngine(stage=stage, error=SystemExit(1)), [1, 2])

    assert [Unavailable, Unavailable] == [type(answer) for answer in answers]
    assert await run(batcher, EchoEngine(), ["next"]) == ["next"]
    assert batcher.status().lanes_alive == 1
    assert value("lane_restarts_total") == 1
    assert value("jobs_failed_total") == 2


async def test_a_lane_that_keeps_dying_stays_down(make_batcher, value):
    """After too many deaths in a row all waiting items end, new ones are refused, and status shows it."""
    batcher = make_batcher()
    deadly = FailingEngine(error=SystemExit(1), budget=10)
    answers = await run(batcher, deadly, list(range(DEATHS_MAX + 4)))

    assert {Unavailable} == {type(answer) for answer in answers}
    assert len(deadly.batches) == DEATHS_MAX
    assert batcher.status().lanes_alive == 0
    assert value("lanes") == 0
    with pytest.raises(Unavailable, match="no lane"):
        batcher.submit(EchoEngine(), ["x"], [1])


async def test_a_good_batch_resets_the_death_count(make_batcher):
    """Only deaths in a row take a lane down."""
    batcher = make_batcher()
    for _ in range(DEATHS_MAX + 2):
        await run(batcher, FailingEngine(error=SystemExit(1)), ["x"])
        assert await run(batcher, EchoEngine(), ["y"]) == ["y"]

    assert batcher.status().lanes_alive == 1


async def test_other_lanes_go_on(make_batcher):
    """With one lane hanging, the other serves."""
    batcher, hanging = make_batcher(lanes=2), GatedEngine()
    stuck = batcher.submit(hanging, ["stuck"], [10])
    assert await asyncio.to_thread(hanging.entered.wait, TEST_TIMEOUT_S)

    assert await run(batcher, EchoEngine(), ["served"]) == ["served"]
    assert not stuck[0].future.done()
    hanging.gate.set()
    assert await results(stuck) == ["stuck"]


async def test_depth_two_launches_the_next_batch_before_finishing_the_previous(make_batcher):
    """The device has its next batch while the host still waits for this one."""
    batcher, engine = make_batcher(depth=2), AsyncEngine(budget=10)
    items = batcher.submit(engine, [1, 2, 3], [10, 10, 10])
    assert await asyncio.to_thread(engine.launched_twice.wait, TEST_TIMEOUT_S)
    steps = list(engine.steps)
    engine.gate.set()

    assert steps == [("prepare", [1]), ("forward", [1]), ("prepare", [2]), ("forward", [2])]
    assert await results(items) == [1, 2, 3]
    assert [payloads for stage, payloads in engine.steps if stage == "finish"] == [[1], [2], [3]]


async def test_depth_two_does_not_wait_for_more(make_batcher):
    """With nothing else waiting the batch is finished at once."""
    engine = AsyncEngine()
    engine.gate.set()

    assert await run(make_batcher(depth=2), engine, ["alone"]) == ["alone"]


async def test_depth_two_fails_everything_on_the_lane_when_it_dies(make_batcher):
    """Both the launched batch and the one being prepared end."""
    batcher, blocker = make_batcher(depth=2), GatedEngine()
    first = batcher.submit(blocker, ["blocks"], [10])
    assert await asyncio.to_thread(blocker.entered.wait, TEST_TIMEOUT_S)
    second = batcher.submit(FailingEngine(stage="prepare", error=SystemExit(1)), ["kills"], [10])
    blocker.gate.set()
    answers = await results(first + second)

    assert {Unavailable} == {type(answer) for answer in answers}


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")
async def test_a_nice_lane_leaves_its_core_to_others(make_batcher):
    """The lane's thread gets the niceness, and no other thread of the process."""

    class NicenessEngine(EchoEngine):
        def forward(self, prepared):
            return [os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) for _ in prepared]

    ours = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert [ours] == await run(make_batcher(), NicenessEngine(), [1])
    assert [min(19, ours + 7)] == await run(make_batcher(niceness=ours + 7), NicenessEngine(), [1])
    assert ours == os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


async def test_a_lane_of_a_nicer_service_stays_as_nice(make_batcher, monkeypatch):
    """To be less nice is for root alone: under `nice -n 19` the thread died of it, and pages were never read."""

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "getpriority", lambda *_: 19)
    monkeypatch.setattr(os, "setpriority", refuse)

    assert [1] == await run(make_batcher(niceness=10), EchoEngine(), [1])
