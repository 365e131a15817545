"""The batcher: order, priority, deadlines, callers that leave, overload, draining."""

import asyncio
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.errors import DeadlineExceeded, InferenceFailed, Overloaded, TooLarge, Unavailable
from backend.lanes.batcher import Batcher
from backend.lanes.inference import count_started
from backend.lanes.work_queue import SETTLED_BATCHES, Priority, QueueLimits
from backend.telemetry import Telemetry
from tests.fakes import TEST_TIMEOUT_S, EchoEngine, FailingEngine, GatedEngine, TimedEngine, results


async def blocked(batcher):
    """Occupy the only lane; returns the engine whose gate frees it."""
    engine = GatedEngine(name="blocker")
    batcher.submit(engine, ["blocks"], [1])
    assert await asyncio.to_thread(engine.entered.wait, TEST_TIMEOUT_S)
    return engine


async def test_load_makes_batches(make_batcher):
    """What came while the lane was busy runs together; several engines share the lanes."""
    batcher, first, second = make_batcher(), EchoEngine("first"), EchoEngine("second")
    blocker = await blocked(batcher)
    items = [
        item for payload in range(4) for engine in (first, second) for item in batcher.submit(engine, [payload], [10])
    ]
    blocker.gate.set()

    assert await results(items) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert first.batches == second.batches == [[0, 1, 2, 3]]


async def test_a_late_item_never_reaches_the_device(make_batcher, clock, value):
    """Its caller gets DeadlineExceeded, its neighbour an answer."""
    batcher, engine = make_batcher(), EchoEngine()
    blocker = await blocked(batcher)
    late = batcher.submit(engine, ["late"], [10], deadline_s=clock() + 5)
    timely = batcher.submit(engine, ["timely"], [10], deadline_s=clock() + 50)
    clock.advance(5)
    blocker.gate.set()
    answers = await results(late + timely)

    assert isinstance(answers[0], DeadlineExceeded)
    assert answers[0].limit_s == 5.0
    assert answers[1] == "timely"
    assert engine.batches == [["timely"]]
    assert value("jobs_dropped_total", reason="deadline") == 1


async def test_a_deadline_ends_items_behind_and_on_a_hanging_lane(make_batcher, clock):
    """A hung engine cannot keep a caller beyond the deadline; the loop's own timer ends both items."""
    batcher, hanging = make_batcher(), GatedEngine()
    running = batcher.submit(hanging, ["running"], [10], deadline_s=clock() + 1)
    assert await asyncio.to_thread(hanging.entered.wait, TEST_TIMEOUT_S)
    waiting = batcher.submit(EchoEngine(), ["waiting"], [10], deadline_s=clock() + 2)
    patient = batcher.submit(EchoEngine(), ["patient"], [10])
    clock.advance(3)
    batcher.expire()

    assert [DeadlineExceeded] * 2 == [type(answer) for answer in await results(running + waiting)]
    assert batcher.status().running_s == 3.0
    hanging.gate.set()
    assert await results(patient) == ["patient"]


async def test_the_deadline_timer_fires_by_itself(telemetry):
    """On the real clock, with a lane that hangs: no lane and no caller has to notice the deadline."""
    batcher = Batcher(1, QueueLimits(100), telemetry)
    batcher.start(asyncio.get_running_loop())
    hanging, now_s = GatedEngine(), asyncio.get_running_loop().time()
    patient = batcher.submit(hanging, ["patient"], [1], deadline_s=now_s + 1000)
    hasty = batcher.submit(hanging, ["hasty"], [1], deadline_s=now_s + 0.01)

    assert [DeadlineExceeded] == [type(answer) for answer in await results(hasty)]
    hanging.gate.set()
    assert await results(patient) == ["patient"]
    assert await batcher.drain(TEST_TIMEOUT_S)


async def test_an_abandoned_item_never_reaches_the_device(make_batcher, value):
    """Abandoned, or left by cancelling the task that awaits it: both are dropped and counted."""
    batcher, engine = make_batcher(), EchoEngine()
    blocker = await blocked(batcher)
    abandoned, awaited, kept = batcher.submit(engine, ["abandoned", "awaited", "kept"], [10, 10, 10])
    abandoned.abandon()
    caller = asyncio.ensure_future(asyncio.wait_for(awaited.future, None))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    blocker.gate.set()

    assert await results([kept]) == ["kept"]
    assert engine.batches == [["kept"]]
    assert value("jobs_dropped_total", reason="caller_gone") == 2


async def test_a_caller_that_leaves_while_its_item_runs_disturbs_nobody(make_batcher):
    """The result of the abandoned item is thrown away; its neighbour's arrives."""
    batcher, engine = make_batcher(), GatedEngine()
    leaves, stays = batcher.submit(engine, ["leaves", "stays"], [10, 10])
    assert await asyncio.to_thread(engine.entered.wait, TEST_TIMEOUT_S)
    leaves.abandon()
    engine.gate.set()

    assert await results([stays]) == ["stays"]


async def test_overload_is_refused_with_the_time_to_come_back(make_batcher, clock, value):
    """Queued tokens over the measured rate; all of a request or nothing."""
    batcher = make_batcher(queue_tokens=100)
    [timed] = batcher.submit(TimedEngine(clock=clock, batch_s=0.5), ["a"], [5])  # 10 tokens a second
    await results([timed])
    blocker = await blocked(batcher)
    accepted = batcher.submit(EchoEngine(), ["a", "b"], [50, 30])
    with pytest.raises(Overloaded) as refusal:
        batcher.submit(EchoEngine(), ["c", "d"], [10, 11])

    assert (timed.queue_s, timed.inference_s) == (0.0, 0.5)
    assert refusal.value.retry_after_s == pytest.approx(8.0)
    assert (refusal.value.queued_tokens, refusal.value.limit_tokens) == (80, 100)
    assert value("jobs_shed_total") == 2
    assert value("queue_jobs") == 2
    assert value("queue_tokens") == 80
    blocker.gate.set()
    assert await results(accepted) == ["a", "b"]


async def measured(batcher, clock):
    """Run batches until ten tokens a second are the settled rate."""
    for _ in range(SETTLED_BATCHES):
        await results(batcher.submit(TimedEngine(clock=clock, batch_s=0.5), ["a"], [5]))


async def test_what_cannot_be_done_before_its_deadline_is_refused_at_once(make_batcher, clock, value):
    """Fifty tokens ahead take five seconds: who has four is told so, with the time to come back."""
    batcher = make_batcher()
    await measured(batcher, clock)
    blocker = await blocked(batcher)
    ahead = batcher.submit(EchoEngine(), ["a"], [50])
    with pytest.raises(Overloaded, match=r"50 tokens.*about 5 s.* has 4 s left.*LIMIT_REQUEST_S") as refusal:
        batcher.submit(EchoEngine(), ["late"], [1], deadline_s=clock() + 4.0)
    in_time = batcher.submit(EchoEngine(), ["b"], [1], deadline_s=clock() + 6.0)

    assert refusal.value.retry_after_s == pytest.approx(5.0)
    assert value("jobs_shed_total") == 1
    blocker.gate.set()
    assert await results([*ahead, *in_time]) == ["a", "b"]


async def test_who_waits_and_who_is_first_is_not_refused_for_the_wait(make_batcher, clock):
    """Bulk work waits, and lets others go first; nothing is refused on a queue that is empty."""
    batcher = make_batcher()
    await measured(batcher, clock)
    blocker = await blocked(batcher)
    soon_s = clock() + 1.0
    bulk = batcher.submit(EchoEngine(), ["bulk"], [500], priority=Priority.BULK, deadline_s=soon_s)
    long = batcher.submit(EchoEngine(), ["long"], [100], deadline_s=soon_s)
    more = batcher.submit(EchoEngine(), ["more"], [100], priority=Priority.BULK, deadline_s=soon_s)
    blocker.gate.set()

    assert await results([*long, *bulk, *more]) == ["long", "bulk", "more"]


async def test_what_one_owner_queued_refuses_no_other(make_batcher, clock):
    """It has its half of the queue at most, and others do not wait for it: they are neither refused nor behind it."""
    batcher, engine = make_batcher(queue_tokens=100), EchoEngine()
    await measured(batcher, clock)
    blocker = await blocked(batcher)
    soon_s = clock() + 1.0
    with count_started("ana"):
        batcher.submit(engine, ["a"] * 5, [8] * 5)
        with pytest.raises(Overloaded, match=r"40 tokens.* has 1 s left"):
            batcher.submit(engine, ["a"], [1], deadline_s=soon_s)
    with count_started("eva"):
        items = batcher.submit(engine, ["e"], [8], deadline_s=soon_s)
    with count_started("ana"), pytest.raises(Overloaded, match=r"48 tokens.*half of which one key may have"):
        batcher.submit(engine, ["a"] * 2, [8] * 2)
    blocker.gate.set()

    assert await results(items) == ["e"]
    assert engine.batches[0][:3] == ["a", "e", "a"]


async def test_the_first_batches_refuse_nobody(make_batcher, clock):
    """They load what they need: their rate would be wrong."""
    batcher = make_batcher()
    await results(batcher.submit(TimedEngine(clock=clock, batch_s=60.0), ["cold"], [1]))
    blocker = await blocked(batcher)
    items = batcher.submit(EchoEngine(), ["a"], [500], deadline_s=clock() + 1.0)
    items += batcher.submit(EchoEngine(), ["b"], [500], deadline_s=clock() + 1.0)
    blocker.gate.set()

    assert await results(items) == ["a", "b"]


async def test_a_request_over_the_whole_limit_is_too_large(make_batcher):
    """Coming back later would not help; the message names the setting."""
    with pytest.raises(TooLarge, match="LIMIT_QUEUE_TOKENS"):
        make_batcher(queue_tokens=100).submit(EchoEngine(), ["a", "b"], [60, 60])


async def test_refused_before_start(telemetry):
    """No lanes yet, no items."""
    with pytest.raises(Unavailable, match="not started"):
        Batcher(1, QueueLimits(100), telemetry).submit(EchoEngine(), ["x"], [1])


async def test_draining_finishes_what_was_accepted(make_batcher):
    """New items are refused at once, accepted ones are answered, then the lanes leave."""
    batcher, engine = make_batcher(), EchoEngine(budget=10)
    blocker = await blocked(batcher)
    items = batcher.submit(engine, [1, 2, 3], [10, 10, 10])
    draining = asyncio.ensure_future(batcher.drain(TEST_TIMEOUT_S))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="shutting down"):
        batcher.submit(engine, [4], [10])
    blocker.gate.set()

    assert await draining
    assert await results(items) == [1, 2, 3]
    assert batcher.status().lanes_alive == 0


async def test_draining_ends_in_time(make_batcher):
    """What does not finish gets Unavailable: running and waiting alike."""
    batcher, hanging = make_batcher(), GatedEngine()
    items = batcher.submit(hanging, ["running"], [100]) + batcher.submit(hanging, ["waiting"], [100])
    assert await asyncio.to_thread(hanging.entered.wait, TEST_TIMEOUT_S)
    drained = asyncio.ensure_future(batcher.drain(0.0))

    assert [Unavailable, Unavailable] == [type(answer) for answer in await results(items)]
    hanging.gate.set()
    assert not await drained
    assert hanging.batches == [["running"]]


async def test_stopping_twice_and_before_start(telemetry):
    """Stopping is always allowed."""
    batcher = Batcher(1, QueueLimits(100), telemetry)
    batcher.stop()
    batcher.stop()

    assert await batcher.drain(0.0)


@pytest.mark.filterwarnings("error")
def test_a_loop_that_closes_with_items_in_flight_logs_nothing(caplog):
    """Lanes outlive a loop that closed without stopping them, and end on ``stop``."""
    engine = GatedEngine()
    batcher = Batcher(1, QueueLimits(100), Telemetry())

    async def leave():
        batcher.start(asyncio.get_running_loop())
        batcher.submit(engine, ["left behind"], [1], deadline_s=math.inf)
        assert await asyncio.to_thread(engine.entered.wait, TEST_TIMEOUT_S)

    asyncio.run(leave())
    engine.gate.set()
    batcher.stop()
    asyncio.run(batcher.drain(TEST_TIMEOUT_S))

    assert batcher.status().lanes_alive == 0
    assert caplog.records == []


async def test_status(make_batcher, clock):
    """What health and admission read."""
    batcher = make_batcher(lanes=1)
    blocker = await blocked(batcher)
    batcher.submit(EchoEngine(), ["a", "b"], [10, 20])
    clock.advance(4)
    status = batcher.status()
    blocker.gate.set()

    assert (status.lanes, status.lanes_alive, status.busy) == (1, 1, 1)
    assert (status.queued_jobs, status.queued_tokens, status.oldest_s) == (2, 30, 4.0)
    assert (status.running_s, status.last_batch_age_s, status.rate_tokens_per_s) == (4.0, None, 0.0)


async def test_a_batch_is_counted(make_batcher, value):
    """Size, tokens, padding and time, once a batch."""
    batcher, engine = make_batcher(), EchoEngine()
    await results(batcher.submit(engine, ["a", "b"], [19, 20]))
    await batcher.drain(TEST_TIMEOUT_S)

    assert value("batch_jobs_sum") == 2
    assert value("batch_tokens_sum") == 39
    assert value("engine_tokens_total", engine="echo") == 39
    assert value("batch_padding_ratio_sum") == pytest.approx(1 / 40)
    assert value("batch_jobs_count") == 1
    assert value("batch_duration_seconds_count", engine="echo") == 1


SPECS = st.lists(st.tuples(st.integers(1, 120), st.sampled_from(Priority), st.booleans()), min_size=1, max_size=60)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPECS, st.integers(1, 3), st.integers(1, 2))
def test_every_future_ends_and_batches_equal_singles(specs, lanes, depth):
    """A sound payload is answered with itself, a poisoned one with its error, however many lanes."""

    async def scenario():
        batcher = Batcher(lanes, QueueLimits(100_000), Telemetry(), depth=depth)
        batcher.start(asyncio.get_running_loop())
        engine = FailingEngine(poison="poison")
        items = []
        for index, (cost, priority, poisoned) in enumerate(specs):
            items += batcher.submit(engine, ["poison" if poisoned else index], [cost], priority=priority)
        answers = await results(items)
        assert await batcher.drain(TEST_TIMEOUT_S)
        return answers, engine.batches

    answers, batches = asyncio.run(scenario())

    for index, (answer, (_, _, poisoned)) in enumerate(zip(answers, specs, strict=True)):
        assert type(answer) is InferenceFailed if poisoned else answer == index
    for batch in batches:
        costs = [specs[payload][0] for payload in batch if payload != "poison"]
        assert len(batch) == 1 or max(costs, default=0) * len(batch) <= EchoEngine.budget
