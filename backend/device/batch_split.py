"""Runs a batch in smaller parts when it fails as a whole: every item gets exactly one outcome, in order.

Used by serving and training. Before a retry the failed run's memory is released: the exception's traceback keeps the
frames alive, and these keep their tensors, so a retry inside ``except`` would run out of memory again (GPTQModel#1679).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from backend.device.faults import FaultKind, classify
from backend.errors import DoesNotFit

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E")


def bisect_on_failure(
    items: Sequence[T], run: Callable[[Sequence[T]], Sequence[R]], on_failure: Callable[[Exception, Sequence[T]], E]
) -> list[R | E]:
    """One outcome per item, in order: its result, or the error value that ``on_failure`` returned for it alone.

    Args:
        run: returns one result per item; another number counts as a failure, since results cannot be matched to items.
        on_failure: called for every failed part, after its memory was released. Its value is the outcome of a part
            of one item; a larger part is halved and run again, first half first. It may raise, which ends everything.
    """
    outcomes: list[R | E] = []
    pending = [items] if items else []  # a stack: the next part is the last
    while pending:
        part = pending.pop()
        results, error = _try_run(run, part)
        if error is None:
            outcomes.extend(results)
            continue
        release_frames(error)
        outcome = on_failure(error, part)
        error = None  # its memory must be free while the halves run
        if len(part) == 1:
            outcomes.append(outcome)
        else:
            middle = len(part) // 2
            pending += [part[middle:], part[:middle]]
    return outcomes


def split_on_oom(items: Sequence[T], run: Callable[[Sequence[T]], Sequence[R]]) -> list[R]:
    """One result per item, in order, in parts that fit into memory; errors other than out-of-memory are raised.

    After an out-of-memory error no later part is larger than half of the part that failed, so a batch of 64 of which 9
    fit fails four times, not eight.

    Raises: DoesNotFit when one item alone needs more memory than there is.
    """
    results: list[R] = []
    part_size, start = len(items), 0
    while start < len(items):
        part = items[start : start + part_size]
        part_results, error = _try_run(run, part)
        if error is None:
            results.extend(part_results)
            start += len(part)
            continue
        release_frames(error)
        fault = classify(error)
        if fault.kind is not FaultKind.OUT_OF_MEMORY:
            raise error
        if len(part) == 1:
            raise DoesNotFit(f"one item does not fit: {fault.message}") from error
        error = None  # its memory must be free before the next part
        part_size = len(part) // 2
    return results


def release_frames(error: BaseException) -> None:
    """Clear the local variables that the tracebacks of ``error``, its causes and its group's members keep alive.

    The tracebacks stay readable; frames that are still running are not touched.
    """
    pending: list[BaseException | None] = [error]
    seen = set[int]()
    while pending:
        exception = pending.pop()
        if exception is None or id(exception) in seen:
            continue
        seen.add(id(exception))
        traceback.clear_frames(exception.__traceback__)
        pending += [exception.__cause__, exception.__context__]
        if isinstance(exception, BaseExceptionGroup):
            pending += exception.exceptions


def _try_run(run: Callable[[Sequence[T]], Sequence[R]], part: Sequence[T]) -> tuple[Sequence[R], Exception | None]:
    try:
        results = run(part)
    except Exception as error:  # noqa: BLE001 - any engine runs here, with any error
        return (), error
    if len(results) != len(part):
        return (), RuntimeError(f"{len(results)} results came back for {len(part)} items")
    return results, None
