"""Asking a service on behalf of a request: within its time, and for as long as its client waits."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from backend.api.deps import exchange_of, services_of, time_limit_s
from backend.api.disconnect import while_wanted
from backend.services.inference import Timing

Result_co = TypeVar("Result_co", covariant=True)
Result = TypeVar("Result")


class Timed(Protocol):
    """An answer that knows where its time went."""

    @property
    def timing(self) -> Timing: ...


TimedResult = TypeVar("TimedResult", bound=Timed)


class Work(Protocol[Result_co]):
    """A call of a service that lacks nothing but its deadline, on the monotonic clock."""

    def __call__(self, *, deadline_s: float) -> Coroutine[Any, Any, Result_co]: ...


async def ask(request: Request, work: Work[Result]) -> Result:
    """What ``work`` gives.

    Raises: InvalidField for an odd X-Request-Timeout-S, CallerGone, DeadlineExceeded, and whatever ``work`` raises.
    """
    limit_s = time_limit_s(request, services_of(request).limits)
    return await while_wanted(work(deadline_s=time.monotonic() + limit_s), request.receive, limit_s)


async def ask_timed(request: Request, work: Work[TimedResult]) -> TimedResult:
    """As ``ask``; where the time went is told in the answer's Server-Timing header and in the metrics."""
    result = await ask(request, work)
    exchange_of(request).timing = result.timing
    return result
