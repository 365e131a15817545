"""Waiters and deadlines of a work item."""

import asyncio

import pytest

from backend.lanes.work_queue import Priority, WorkItem
from tests.fakes import EchoEngine


@pytest.fixture
async def item() -> WorkItem:
    """An item with one caller and a deadline at 10 s."""
    future = asyncio.get_running_loop().create_future()
    return WorkItem(EchoEngine(), "text", 1, Priority.INTERACTIVE, 10.0, 0.0, future)


async def test_abandoned_by_its_only_caller(item):
    """An item without callers is not wanted and its future has ended, silently."""
    item.abandon()

    assert not item.is_wanted(0.0)
    assert item.future.cancelled()


async def test_abandoning_too_often_changes_nothing(item):
    """An answered item may be abandoned by a caller that cleans up."""
    item.future.set_result("answer")
    item.abandon()
    item.abandon()

    assert item.waiters == 0
    assert item.future.result() == "answer"


async def test_late_at_its_deadline(item):
    """The deadline itself is too late; the error has the limit."""
    assert item.is_wanted(9.9)
    assert not item.is_wanted(10.0)
    assert item.deadline_error().limit_s == 10.0


async def test_times(item):
    """Queue and inference time come from the three timestamps."""
    item.started_s, item.finished_s = 2.0, 5.0

    assert (item.queue_s, item.inference_s) == (2.0, 3.0)
