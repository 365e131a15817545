"""Runs calls side by side, and long computations beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def computed(is_short: bool, function: Callable[[], _Result]) -> _Result:
    """What ``function`` returns; on a thread unless it is short."""
    return function() if is_short else await asyncio.to_thread(function)


async def together(*calls: Coroutine[Any, Any, _Result]) -> list[_Result]:
    """The results of calls that run side by side; when one fails, or the caller leaves, the others end."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
