"""Background work tries again what may succeed later; a request fails at once, as its caller can ask elsewhere."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backend.errors import DeadlineExceeded, FinanciaError, InferenceFailed, Unavailable
from backend.lanes.work_queue import Priority
from backend.retry import Backoff

Result = TypeVar("Result")
_WAIT = Backoff(0.25, 10.0)  # a queue has room again long before it is empty, which is what Retry-After tells
_STARVED_TRIES = 5  # each takes three times LIMIT_PAGE_S; a file that hangs its reader does so each time
_LANE_DEATHS = 2  # under one input: one may be somebody else's, a third in a row would end the lane for good


async def retry_bulk(
    urgency: tuple[Priority, float],
    attempt: Callable[[], Awaitable[Result]],
    *,
    also: tuple[type[FinanciaError], ...] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
) -> Result:
    """The result of ``attempt``; of bulk work what fails for now is tried again until the deadline.

    Waits as long as the error's ``retry_after_s``, longer with every try, and a random part less so that the pages of
    many jobs do not come back at once.

    Args:
        urgency: priority, and deadline on the clock (`inference.Urgency`).
        also: errors that other work waits for too: a part of something large, of which the rest is done.

    Raises: what ``attempt`` raises, for other priorities (but ``also``), for errors that waiting does not cure, and the
        fifth time for want of a core; InferenceFailed when lanes died under the input; DeadlineExceeded.
    """
    (priority, deadline_s), tries, kinds = urgency, 0, Counter[str]()
    while True:
        try:
            return await attempt()
        except FinanciaError as error:
            if not (priority is Priority.BULK or isinstance(error, also)) or not _may_pass(error):
                raise
            if isinstance(error, Unavailable):
                kinds[error.kind] += 1
                if kinds["lane_died"] >= _LANE_DEATHS:
                    raise InferenceFailed(
                        f"the lane that ran this input died {_LANE_DEATHS} times; it is not tried again, as the input "
                        "itself may be the cause. Tell the operator, whose log has the reason"
                    ) from error
                if kinds["starved"] >= _STARVED_TRIES:
                    raise
            left_s = deadline_s - clock()
            if left_s <= 0:
                raise DeadlineExceeded(0.0, f"its time was over while it waited, at last for this: {error}") from error
            tries += 1
            wait_s = min(left_s, _wait_s(error, tries) * (1 - jitter() / 2))
        await sleep(wait_s)


def _may_pass(error: FinanciaError) -> bool:
    """Whether the same work may succeed in this process before its deadline."""
    if isinstance(error, DeadlineExceeded) or (isinstance(error, Unavailable) and error.kind == "for_good"):
        return False
    return error.retryable


def _wait_s(error: FinanciaError, tries: int) -> float:
    return min(max(_WAIT.wait_s(tries), error.retry_after_s or 0.0), _WAIT.most_s)
