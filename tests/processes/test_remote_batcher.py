"""Work items of an HTTP worker through the channel to the one batcher, and back."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest

from backend.errors import DeadlineExceeded, Overloaded, TooLarge, Unavailable
from backend.lanes.batcher import Batcher
from backend.lanes.inference import count_started
from backend.lanes.work_queue import Priority, QueueLimits, WorkItem
from backend.processes.channel import Channel, Message, RingReader, RingWriter, create_memory, map_memory
from backend.processes.http_workers import EngineTable
from backend.processes.remote_batcher import RemoteBatcher, RemoteEngine
from backend.processes.work_messages import Finished, read_results, write_results
from backend.processes.worker_process import WorkerItems
from backend.serving.catalog import Catalog
from backend.telemetry import Telemetry
from backend.tracing.spans import PACKED_BYTES, Active, SpanContext
from tests.fakes import EchoEngine, GatedEngine, turns_until
from tests.text.service_stack import loaded_model
from tests.traced import KeptSpans

RING = 1 << 20
SPAN = SpanContext(5, 6, is_sampled=True)
ENGINE = RemoteEngine(1, "echo", 100, 1.0)
GATED = RemoteEngine(2, "gated", 100, 1.0)


@dataclass
class Floats(EchoEngine):
    """Answers the ids as float32, as encoders' engines do."""

    def finish(self, output):
        return [payload.astype(np.float32) for payload in output]


@dataclass
class Service:
    """A service process and one worker of it, both on this loop."""

    batcher: Batcher
    remote: RemoteBatcher
    channels: tuple[Channel, Channel]
    gated: GatedEngine
    items: WorkerItems
    telemetry: Telemetry


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """One lane, and a queue of 100 tokens."""
    telemetry, gated = Telemetry(), GatedEngine()
    batcher = Batcher(1, QueueLimits(100), telemetry)
    remote = RemoteBatcher(100)
    sockets = socket.socketpair()
    descriptors = [create_memory(f"test-{number}", RING) for number in range(2)]
    here, there = (map_memory(descriptor) for descriptor in descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    host = Channel(sockets[0], RingWriter(here), RingReader(there), on_message=_no_message, on_close=_no_close)
    items = WorkerItems(batcher, {1: Floats(), 2: gated}, host)
    host._on_message, host._on_close = items.take, items.abandon
    worker = Channel(
        sockets[1],
        RingWriter(there),
        RingReader(here),
        on_message=remote.take,
        on_close=lambda: remote.disconnect("the service process is gone"),
    )
    loop = asyncio.get_running_loop()
    for channel in (host, worker):
        channel.start(loop)
    batcher.start(loop)
    remote.connect(worker)
    yield Service(batcher, remote, (host, worker), gated, items, telemetry)
    gated.gate.set()
    for channel in (host, worker):
        channel.close()
    batcher.stop()


def _no_message(_message: Message) -> None: ...


def _no_close() -> None: ...


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


async def block(service: Service) -> None:
    """Occupy the lane."""
    service.remote.submit(GATED, [ids(1)], [1])
    await asyncio.to_thread(service.gated.entered.wait, 10)


async def test_results_come_back_to_their_items(service):
    """Of one and of two dimensions, in any number, each with its times."""
    payloads = [ids(*range(1, 2 + number % 7)) for number in range(10)] + [np.array([[3, 4], [0, 1]])]
    items = service.remote.submit(ENGINE, payloads, [ids.shape[-1] for ids in payloads])
    results = await asyncio.gather(*(item.future for item in items))

    assert all(np.array_equal(payload, result) for payload, result in zip(payloads, results, strict=True))
    assert all(result.dtype == np.float32 for result in results)
    assert all(0 < item.started_s <= item.finished_s <= time.monotonic() for item in items)


async def test_the_one_queue_refuses_in_its_own_words(service):
    """429 and 413 are the batcher's, as with one process, and the whole submission is refused."""
    await block(service)
    waiting = service.remote.submit(GATED, [ids(2)] * 9, [10] * 9)
    refused = service.remote.submit(GATED, [ids(3)] * 2, [10] * 2)
    never = service.remote.submit(GATED, [ids(4)] * 2, [90] * 2)
    errors = await asyncio.gather(*(item.future for item in refused + never), return_exceptions=True)

    assert [Overloaded, Overloaded, TooLarge, TooLarge] == [type(error) for error in errors]
    assert "LIMIT_QUEUE_TOKENS" in str(errors[0])
    assert errors[0].retry_after_s > 0
    assert not any(item.future.done() for item in waiting)


async def test_what_is_cancelled_never_runs(service):
    """A client that left: its item is dropped before the device."""
    await block(service)
    [left] = service.remote.submit(GATED, [ids(5)], [1])
    [kept] = service.remote.submit(GATED, [ids(6)], [1])
    await turns_until(lambda: service.batcher.status().queued_jobs == 2)
    dropped = service.items._items[2]  # the service process's item of it
    left.abandon()
    await turns_until(dropped.future.done)
    service.gated.gate.set()
    await kept.future

    assert left.future.cancelled()
    assert [5] not in [payload.tolist() for batch in service.gated.batches for payload in batch]


async def test_what_had_begun_is_told_after_it_was_cancelled(service):
    """Whoever leaves pays for what a lane took, and for nothing that still waited."""
    told: list[int] = []
    [begun] = service.remote.submit(GATED, [ids(1)], [7])
    await asyncio.to_thread(service.gated.entered.wait, 10)
    [waited] = service.remote.submit(GATED, [ids(2)], [20])
    await turns_until(lambda: service.batcher.status().queued_jobs == 1)
    for item in (begun, waited):
        item.tell_begun = told.append
        item.abandon()
    await turns_until(lambda: not service.remote._left and bool(told))

    assert [7] == told


async def test_a_deadline_ends_an_item_that_waits(service):
    """By the batcher's own timer, while the lane hangs."""
    await block(service)
    [late] = service.remote.submit(GATED, [ids(7)], [1], deadline_s=time.monotonic() + 0.05)

    with pytest.raises(DeadlineExceeded):
        await late.future


async def test_a_promoted_item_goes_before_bulk_work(service):
    """As when an interactive caller joins an item of a job."""
    await block(service)
    bulk = service.remote.submit(GATED, [ids(8), ids(9)], [60, 1], priority=Priority.BULK)
    await turns_until(lambda: service.batcher.status().queued_jobs == 2)
    service.remote.promote(bulk[1:], Priority.INTERACTIVE)
    await turns_until(lambda: service.batcher._queue.tokens_before("", 1) == 1)
    service.gated.gate.set()
    await asyncio.gather(*(item.future for item in bulk))

    assert [[[1]], [[9]], [[8]]] == [[one.tolist() for one in batch] for batch in service.gated.batches]


async def test_owners_take_turns_over_processes(service):
    """What a key queued in a worker stays that key's."""
    await block(service)
    items = []
    for owner, numbers in (("ana", (1, 2)), ("eva", (3,))):
        with count_started(owner):
            items += service.remote.submit(GATED, [ids(number) for number in numbers], [30] * len(numbers))
    await turns_until(lambda: service.batcher.status().queued_jobs == 3)
    service.gated.gate.set()
    await asyncio.gather(*(item.future for item in items))

    assert [[[1]], [[1], [3], [2]]] == [[one.tolist() for one in batch] for batch in service.gated.batches]


async def test_a_dead_worker_leaves_no_work_behind(service):
    """Its queued items are abandoned; the lane goes on with others'."""
    await block(service)
    service.remote.submit(GATED, [ids(10)], [1])
    await turns_until(lambda: service.batcher.status().queued_jobs == 1)
    service.channels[1].close()
    await turns_until(lambda: service.channels[0].is_closed)
    service.gated.gate.set()
    await turns_until(lambda: service.batcher.status().queued_jobs == 0)

    assert [10] not in [payload.tolist() for batch in service.gated.batches for payload in batch]


async def test_a_dead_service_process_fails_what_waits(service):
    """At once, and what comes later is refused: nobody hangs."""
    await block(service)
    [waiting] = service.remote.submit(GATED, [ids(11)], [1])
    service.channels[0].close()

    with pytest.raises(Unavailable, match="the service process is gone"):
        await waiting.future
    with pytest.raises(Unavailable):
        service.remote.submit(GATED, [ids(12)], [1])


async def test_an_engine_that_was_replaced(service):
    """A model swap that overtakes a request gives 503 that may be repeated, not another model's vector."""
    [item] = service.remote.submit(RemoteEngine(99, "old", 100, 1.0), [ids(1)], [1])

    with pytest.raises(Unavailable, match="replaced"):
        await item.future


async def test_a_swap_between_two_requests(service):
    """A request of the old model that waits is finished by it; new ones run on the new; then the old is forgotten."""
    old, new = service.gated, Floats(name="new", launch_cost=7)
    catalog = Catalog(loaded_model(old))
    table = EngineTable(catalog)
    service.items._engines = table.engines
    before = table.describe()
    [waiting] = service.remote.submit(before.loaded[0].engine, [ids(1)], [1])
    await asyncio.to_thread(old.entered.wait, 10)
    catalog.replace(loaded_model(new))
    after = table.describe()
    [next_one] = service.remote.submit(after.loaded[0].engine, [ids(2)], [1])
    await turns_until(lambda: service.batcher.status().queued_jobs == 1)
    table.forget_before(after.version)
    [late] = service.remote.submit(before.loaded[0].engine, [ids(3)], [1])
    with pytest.raises(Unavailable, match="replaced"):
        await late.future
    old.gate.set()

    assert [[1], [2]] == [(await one.future).tolist() for one in (waiting, next_one)]
    assert [[[1]], [[2]]] == [[one.tolist() for one in engine.batches[0]] for engine in (old, new)]
    assert (0, 7) == tuple(models.loaded[0].engine.launch_cost for models in (before, after))
    assert {one.id for one in (after.loaded[0].engine, after.loaded[0].token_engine)} == set(table.engines)


async def test_a_trace_crosses_the_channel(service):
    """The batch belongs to the trace of the worker's request, and the request learns of the batch."""
    kept = KeptSpans()
    service.items._tracer = kept.tracer
    with Active(kept.tracer.start("request", "server")) as request:
        traced = service.remote.submit(ENGINE, [ids(1, 2)], [2])
    plain = service.remote.submit(ENGINE, [ids(3)], [1])
    await asyncio.gather(*(item.future for item in traced + plain))
    await turns_until(lambda: "batch" in kept.names)
    batch = next(one for one in kept.spans if one.name == "batch")

    assert request.span.context == batch.parent
    assert batch.context == traced[0].batch_span
    assert plain[0].batch_span in (None, batch.context)


@pytest.mark.parametrize("spans", [(None, None), (None, SPAN), (SPAN, SPAN)], ids=["off", "one", "both"])
def test_spans_of_results_are_told(spans):
    """Which item had which; where no request is traced nothing is added to the message."""
    items = [WorkItem(None, None, 1, Priority.BULK, 0.0, 0.0, None, batch_span=span) for span in spans]
    finished = [Finished(number, np.ones(3, np.float32), item) for number, item in enumerate(items)]
    parts = write_results(finished)
    block = memoryview(b"".join(memoryview(part).cast("B") for part in parts.buffers))

    assert list(spans) == [result.batch_span for result in read_results(Message(parts.kind, parts.meta, block))]
    assert 4 + len(spans) * PACKED_BYTES * any(spans) == len(parts.meta)
