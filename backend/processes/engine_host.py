"""The service process's side of HTTP workers' work: their items join the one queue, results go back to each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import numpy as np

from backend.errors import CallerGone, FinanciaError, InferenceFailed, Unavailable
from backend.lanes.batcher import Batcher
from backend.lanes.engine import Engine
from backend.lanes.work_item import WorkItem
from backend.processes.channel import Channel, Kind, Message
from backend.processes.work_messages import (
    Finished,
    Submission,
    is_result,
    read_cancel,
    read_promote,
    read_submission,
    write_errors,
    write_results,
)
from backend.telemetry import log_event
from backend.tracing.spans import INACTIVE, NO_TRACER, Resumed, Tracer

logger = logging.getLogger(__name__)
# The value of an item that nobody waits for: its worker hears whether it had begun, which its caller pays.
CANCELLED: Final = CallerGone("nobody waits for this item")


class Reply:
    """The future of an item that an HTTP worker waits for: its end is told at once, and nothing awaits it.

    The part of `asyncio.Future` that a `Batcher` and a `WorkItem` use. asyncio's own would run a callback for each item
    in a turn of the loop: a fifth of what an item costs this process.
    """

    __slots__ = ("_ended", "_number", "_tell")

    def __init__(self, number: int, tell: Callable[[int, Any], None]) -> None:
        self._number, self._tell = number, tell
        self._ended = False

    def done(self) -> bool:
        return self._ended

    def cancel(self) -> bool:
        if self._ended:
            return False
        self.set_result(CANCELLED)
        return True

    def set_result(self, result: Any) -> None:
        self._ended = True
        self._tell(self._number, result)

    set_exception = set_result

    def exception(self) -> None:
        """Nothing: an error is told when it is set."""


class WorkerItems:
    """The items of one HTTP worker. Belongs to the loop's thread.

    Args:
        engines: by the number that workers know them by.
    """

    def __init__(
        self, batcher: Batcher, engines: Mapping[int, Engine], channel: Channel, tracer: Tracer = NO_TRACER
    ) -> None:
        self._batcher, self._engines, self._channel, self._tracer = batcher, engines, channel, tracer
        self._items: dict[int, WorkItem] = {}
        self._finished: list[Finished] = []
        self._is_gone = False

    def take(self, message: Message) -> None:
        """Queue, cancel or promote items, as the worker says."""
        if message.kind is Kind.SUBMIT:
            self._submit(read_submission(message))
        elif message.kind is Kind.CANCEL:
            for number in read_cancel(message):
                if item := self._items.get(number):
                    item.abandon()
        elif message.kind is Kind.PROMOTE:
            numbers, priority = read_promote(message)
            self._batcher.promote([item for number in numbers if (item := self._items.get(number))], priority)

    def abandon(self) -> None:
        """The worker is gone: nobody waits for its items."""
        self._is_gone = True
        for item in list(self._items.values()):
            item.abandon()

    def _submit(self, submission: Submission) -> None:
        numbers = range(submission.first, submission.first + len(submission.payloads))
        try:
            engine = self._engines.get(submission.engine_id)
            if engine is None:
                raise Unavailable("the model was replaced while this request was on its way; try again")
            with INACTIVE if submission.span is None else Resumed(self._tracer.resume(submission.span)):
                items = self._batcher.submit_with(
                    cast("list[asyncio.Future[Any]]", [Reply(number, self._ended) for number in numbers]),
                    engine,
                    submission.payloads,
                    submission.costs,
                    priority=submission.priority,
                    deadline_s=submission.deadline_s,
                    owner=submission.owner,
                )
        except FinanciaError as error:
            self._refuse(submission, error)
            return
        self._items.update(zip(numbers, items, strict=True))

    def _refuse(self, submission: Submission, error: FinanciaError) -> None:
        nowhere: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        item = WorkItem(None, None, 0, submission.priority, submission.deadline_s, 0.0, nowhere)  # type: ignore[arg-type]  # for its times alone
        numbers = range(submission.first, submission.first + len(submission.payloads))
        self._channel.send(*write_errors([Finished(number, error, item) for number in numbers]))

    def _ended(self, number: int, value: Any) -> None:
        item = self._items.pop(number)
        if self._is_gone:
            return
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._send_finished)
        self._finished.append(Finished(number, value, item))

    def _send_finished(self) -> None:
        """All that ended in one step of the loop: a batch or several."""
        finished, self._finished = self._finished, []
        results = [one for one in finished if is_result(one.value)]
        errors = [_error(one) for one in finished if not is_result(one.value)]
        if results:
            self._channel.send(*write_results(results))
        if errors:
            self._channel.send(*write_errors(errors))


def _error(finished: Finished) -> Finished:
    """The item with its error. An answer that is neither error nor array costs this item alone."""
    value = finished.value
    if isinstance(value, FinanciaError):
        return finished
    name = finished.item.engine.name
    log_event(logger, logging.ERROR, "an engine's answer cannot be sent", engine=name, answer=_described(value))
    return finished._replace(
        value=InferenceFailed(
            f"{name} answered this input with {_described(value)}; only an array of numbers of one or two dimensions "
            "can be sent: a fault of the service, not of the input"
        )
    )


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{kind} of {value.dtype} in {value.ndim} dimensions" if isinstance(value, np.ndarray) else kind
