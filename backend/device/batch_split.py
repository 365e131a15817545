"""Run a batch in parts when it fails whole: every item gets exactly one outcome, in order.

Serving and training share it. The failed run is let go of first: an exception's traceback holds the frames, and they
hold the tensors, so that what is tried again inside ``except`` meets the memory of what failed (GPTQModel#1679).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from backend.device.faults import Fault, FaultKind, classify
from backend.errors import DoesNotFit

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E")


def in_parts(
    items: Sequence[T],
    run: Callable[[Sequence[T]], Sequence[R]],
    judge: Callable[[Exception, Sequence[T]], E],
) -> list[R | E]:
    """One outcome an item, in order: its result, or the error value that ``judge`` gave it alone.

    Args:
        run: one result an item; another number is a failure, for results that cannot be told apart are nobody's.
        judge: told of every failed part, after its memory was let go of. What it returns is the outcome of a part of
            one; a larger part is halved and run again, the first half first. It may raise, which ends everything.
    """
    outcomes: list[R | E] = []
    waiting = [items] if items else []  # the next part is the last
    while waiting:
        part = waiting.pop()
        results, error = _attempt(run, part)
        if error is None:
            outcomes.extend(results)
            continue
        let_go(error)
        verdict = judge(error, part)
        error = None  # its memory must be free while the halves run
        if len(part) == 1:
            outcomes.append(verdict)
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
    return outcomes


def split_and_retry(
    items: Sequence[T],
    run: Callable[[Sequence[T]], Sequence[R]],
    *,
    free: Callable[[], None] | None = None,
    missed: Callable[[Fault, Sequence[T]], None] | None = None,
    advise: Callable[[Fault, T], str] | None = None,
) -> list[R]:
    """One result an item, in order, however little fits at once; errors other than exhausted memory are raised.

    After a miss no later part is larger than half of what missed, so that a batch of 64 where 9 fit costs four
    misses, not eight.

    Args:
        free: gives back what this process keeps for later (``empty_cache``); called after a miss. With it an item that
            is alone is tried once more: what fails at the driver does not know what torch's cache holds.
        missed: told of each miss; to count it and to lower a learnt limit.
        advise: the message of the error of an item that does not fit alone.

    Raises: DoesNotFit when one item alone needs more memory than there is.
    """
    results: list[R] = []
    most, start, second = len(items), 0, False
    while start < len(items):
        part = items[start : start + most]
        done, error = _attempt(run, part)
        if error is None:
            results.extend(done)
            start, second = start + len(part), False
            continue
        let_go(error)
        fault = classify(error)
        if fault.kind is not FaultKind.OUT_OF_MEMORY:
            raise error
        if missed is not None:
            missed(fault, part)
        if len(part) == 1 and (second or free is None):
            message = advise(fault, part[0]) if advise is not None else f"one item does not fit: {fault.message}"
            raise DoesNotFit(message) from error
        error = None  # its memory must be free before ``free`` is called and the rest runs
        if free is not None:
            free()
        most, second = max(1, len(part) // 2), len(part) == 1
    return results


def let_go(error: BaseException) -> None:
    """Drop what the frames of ``error`` hold, those of its causes and of its group's members too.

    The traceback still tells where; the frames that still run are left alone.
    """
    waiting: list[BaseException | None] = [error]
    seen = set[int]()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _attempt(run: Callable[[Sequence[T]], Sequence[R]], part: Sequence[T]) -> tuple[Sequence[R], Exception | None]:
    try:
        results = run(part)
    except Exception as error:  # noqa: BLE001 - the border to whoever runs the batch: any engine, any error
        return (), error
    if len(results) != len(part):
        return (), RuntimeError(f"{len(results)} results came back for {len(part)} items")
    return results, None
