"""Items of an HTTP worker in the service process: how each end is told, once."""

import asyncio
from typing import Any

import numpy as np
import pytest

from backend.errors import DoesNotFit, InferenceFailed
from backend.lanes.batcher import Batcher
from backend.lanes.work_queue import Priority, QueueLimits
from backend.processes.channel import Kind, Message
from backend.processes.work_messages import (
    Submission,
    read_errors,
    read_results,
    read_submission,
    write_cancel,
    write_submission,
)
from backend.processes.worker_process import CANCELLED, Reply, WorkerItems
from backend.telemetry import Telemetry
from tests.fakes import EchoEngine, GatedEngine


class Faulty(EchoEngine):
    """Answers with ``answers``, whatever it is asked."""

    answers: tuple[Any, ...] = ()

    def finish(self, output: Any) -> Any:
        return [answer for answer, _ in zip(self.answers, output, strict=True)]


class Sent:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.arrived = asyncio.Event()

    def send(self, kind: Kind, meta: bytes = b"", buffers: Any = ()) -> None:
        self.messages.append(message(kind, meta, buffers))
        self.arrived.set()

    def of(self, kind: Kind) -> list[Message]:
        return [told for told in self.messages if told.kind is kind]


def message(kind: Kind, meta: bytes, buffers: Any = ()) -> Message:
    return Message(kind, meta, memoryview(b"".join(bytes(memoryview(part).cast("B")) for part in buffers)))


def submission(first: int, engine: int, *payloads: np.ndarray) -> Submission:
    return Submission(first, engine, Priority.BULK, 1e12, list(payloads), [ids.shape[-1] for ids in payloads])


@pytest.mark.parametrize("first_end", ["result", "error", "cancelled"])
def test_the_first_end_is_the_only_one(first_end):
    """A deadline and a lane may both end an item: its worker hears of one."""
    told: list[Any] = []
    reply = Reply(7, lambda number, value: told.append((number, value)))
    assert not reply.done()
    error = InferenceFailed("broken")
    {
        "result": lambda: reply.set_result("rows"),
        "error": lambda: reply.set_exception(error),
        "cancelled": reply.cancel,
    }[first_end]()

    assert reply.done()
    assert not reply.cancel()
    assert [(7, {"result": "rows", "error": error, "cancelled": CANCELLED}[first_end])] == told


def test_a_submission_is_read_as_it_was_written():
    """Ids alone and ids over token types, of any length; numbers beyond 16 bits."""
    payloads = [np.array([250_001], np.int64), np.array([[5, 6, 7], [0, 1, 1]], np.int64), np.arange(9, dtype=np.int64)]
    written = submission(2**40, 3, *payloads)
    read = read_submission(message(*write_submission(written)))

    assert (written.first, 3, Priority.BULK, 1e12) == (read.first, read.engine_id, read.priority, read.deadline_s)
    assert [1, 3, 9] == read.costs
    assert all(np.array_equal(before, after) for before, after in zip(payloads, read.payloads, strict=True))
    assert {np.dtype(np.int64)} == {ids.dtype for ids in read.payloads}


async def test_a_batch_is_told_together_and_of_the_cancelled_item_that_it_never_began():
    """Items of several requests that ran together; one of them was given up while it waited."""
    gated, sent = GatedEngine(), Sent()
    batcher = Batcher(1, QueueLimits(1000), Telemetry())
    batcher.start(asyncio.get_running_loop())
    items = WorkerItems(batcher, {1: gated, 2: EchoEngine()}, sent)  # type: ignore[arg-type]  # it sends, that is all
    items.take(message(*write_submission(submission(1, 1, np.array([1])))))
    await asyncio.to_thread(gated.entered.wait, 60)
    for first in (2, 4, 6):
        items.take(message(*write_submission(submission(first, 2, np.array([first]), np.array([first + 1])))))
    items.take(message(*write_cancel([5])))
    gated.gate.set()
    async with asyncio.timeout(60):
        while sum(len(list(read_results(told))) for told in sent.of(Kind.RESULTS)) < 6:
            sent.arrived.clear()
            await sent.arrived.wait()
    batcher.stop()
    results = [result for told in sent.of(Kind.RESULTS) for result in read_results(told)]
    cancelled = [result for told in sent.of(Kind.ERRORS) for result in read_errors(told)]

    assert [1, 2, 3, 4, 6, 7] == [result.number for result in results]
    assert [[1], [2], [3], [4], [6], [7]] == [result.value.tolist() for result in results]
    assert [(5, 0.0)] == [(result.number, result.started_s) for result in cancelled]
    assert len(sent.of(Kind.RESULTS)) <= 2  # the gated batch, and what waited behind it
    assert {} == items._items


async def test_a_refused_submission_is_told_for_each_item():
    """The lanes have not started: every item ends with that error, and none is kept."""
    sent = Sent()
    items = WorkerItems(Batcher(1, QueueLimits(1000), Telemetry()), {1: EchoEngine()}, sent)  # type: ignore[arg-type]
    items.take(message(*write_submission(submission(1, 1, np.array([1]), np.array([2])))))
    [told] = sent.messages

    assert [1, 2] == [result.number for result in read_errors(told)]
    assert {} == items._items


async def test_an_answer_that_cannot_be_sent_costs_its_own_item():
    """None, text, objects, a number, a cube: each is told as an error, and those beside it get their rows."""
    engine, sent = Faulty(), Sent()
    rows, own = np.ones((2, 3), np.float32), DoesNotFit("too large")
    engine.answers = (np.array([0.5]), None, "text", rows, np.array([None]), np.float32(1), np.ones((1, 1, 1)), own)
    batcher = Batcher(1, QueueLimits(1000), Telemetry())
    batcher.start(asyncio.get_running_loop())
    items = WorkerItems(batcher, {1: engine}, sent)  # type: ignore[arg-type]  # it sends, that is all
    items.take(message(*write_submission(submission(1, 1, *[np.array([1])] * len(engine.answers)))))
    async with asyncio.timeout(60):
        while Kind.ERRORS not in {told.kind for told in sent.messages}:
            sent.arrived.clear()
            await sent.arrived.wait()
    batcher.stop()
    [results, errors] = sent.messages
    told = {result.number: result.value for result in read_errors(errors)}

    assert {1: [0.5], 4: rows.tolist()} == {result.number: result.value.tolist() for result in read_results(results)}
    assert [2, 3, 5, 6, 7, 8] == sorted(told)
    assert [InferenceFailed] * 5 + [DoesNotFit] == [type(told[number]) for number in sorted(told)]
    assert "echo answered this input with NoneType; only an array of numbers" in str(told[2])
    assert "ndarray of float64 in 3 dimensions" in str(told[7])
    assert {} == items._items
