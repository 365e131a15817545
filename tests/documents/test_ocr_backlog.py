"""Which documents are refused because the pages ahead of them take too long."""

import math

import pytest

from backend.documents.ocr import page_backlog
from backend.errors import Overloaded
from backend.lanes.backlog import Backlog
from backend.lanes.inference import count_started
from backend.lanes.work_queue import SETTLED_BATCHES, Priority
from tests.fakes import ManualClock


@pytest.fixture
def backlog(clock: ManualClock) -> Backlog:
    """Two lanes of half a page a second each: a page a second."""
    backlog = page_backlog(lambda: 2, clock=clock)
    for _ in range(SETTLED_BATCHES):
        backlog.measured(1, 2.0)
    return backlog


def admitted(backlog: Backlog, documents: int, pages: int, deadline_s: float) -> int:
    """How many of these documents are admitted."""
    count = 0
    for _ in range(documents):
        try:
            backlog.admit(pages, Priority.INTERACTIVE, deadline_s)
        except Overloaded:
            continue
        count += 1
    return count


def test_a_burst_is_admitted_as_far_as_it_can_be_read(backlog: Backlog, clock: ManualClock):
    """Of fifty scans of five pages at once, those that a minute suffices for; the others are told at once."""
    assert 8 == admitted(backlog, 50, 5, clock() + 60.0)
    assert 40 == backlog.left


def test_the_refusal_says_what_waits(backlog: Backlog, clock: ManualClock):
    backlog.admit(38, Priority.INTERACTIVE, math.inf)
    with pytest.raises(Overloaded, match=r"38 pages of other documents.* about 38 s.* has 60 s left") as refusal:
        backlog.admit(3, Priority.INTERACTIVE, clock() + 60.0)

    assert 38.0 == pytest.approx(refusal.value.retry_after_s)


def test_pages_that_are_done_or_given_up_make_room(backlog: Backlog, clock: ManualClock):
    first = backlog.admit(40, Priority.INTERACTIVE, clock() + 60.0)
    for _ in range(10):
        first.done(1)
    assert 2 == admitted(backlog, 5, 5, clock() + 60.0)
    first.close()
    first.close()
    first.done(1)

    assert 10 == backlog.left


def test_another_owners_burst_refuses_nobody(backlog: Backlog, clock: ManualClock):
    """Owners take turns: its few pages are done beside the first of the many."""
    with count_started("ana"):
        assert 8 == admitted(backlog, 50, 5, clock() + 60.0)
    with count_started("eva"):
        assert 4 == admitted(backlog, 50, 5, clock() + 60.0)

    assert 60 == backlog.left


def test_nobody_is_refused_without_need(backlog: Backlog, clock: ManualClock):
    """A document behind nobody, background work, and everything before a speed is known."""
    soon_s = clock() + 1.0
    backlog.admit(200, Priority.INTERACTIVE, soon_s)
    backlog.admit(200, Priority.BULK, soon_s)
    fresh = page_backlog(lambda: 2, clock=clock)
    fresh.measured(1, 60.0)

    assert 200 == backlog.left
    assert 9 == admitted(fresh, 9, 200, soon_s)
