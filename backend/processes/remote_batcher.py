"""The batcher of an HTTP worker: sends work items to the service process, whose batcher runs those of all workers."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from backend.errors import FinanciaError, Overloaded, Unavailable
from backend.lanes.engine import BatchLimits, Engine, UnlimitedBatches
from backend.lanes.work_queue import BULK_DIVISOR, Priority, WorkItem, owner_of_work
from backend.processes.channel import Channel, Kind, Message
from backend.processes.work_messages import (
    Result,
    Submission,
    read_errors,
    read_results,
    write_cancel,
    write_promote,
    write_submission,
)
from backend.tracing.spans import sampled

# Of LIMIT_QUEUE_TOKENS: what one worker may have sent and not got back. The queue and the lanes hold less, so more of
# them have not been looked at yet by the service process.
_UNANSWERED = 2
_CLOGGED_S = 1.0


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """An engine of the service process, as HTTP workers know it: a number and a name. It computes nothing here."""

    id: int
    name: str
    budget: int
    padding_cost: float
    launch_cost: int = 0
    batch_limits: BatchLimits = field(default_factory=UnlimitedBatches)

    def on(self, device_index: int) -> Engine:  # noqa: ARG002 - the protocol's argument
        return self

    def prepare(self, payloads: Sequence[Any]) -> Any:
        raise self._not_here(payloads)

    def forward(self, prepared: Any) -> Any:
        raise self._not_here(prepared)

    def finish(self, output: Any) -> Sequence[Any]:
        raise self._not_here(output)

    def _not_here(self, _input: Any) -> RuntimeError:
        return RuntimeError(f"{self.name} runs in the service process; submit its items to a RemoteBatcher")


class RemoteBatcher:
    """A `Submitter` over a channel. Belongs to the loop's thread.

    The service process admits, so what a batcher refuses comes as the error of the items' futures. An item whose
    future is cancelled is cancelled there too, before it reaches the device.
    """

    def __init__(self, limit_tokens: int) -> None:
        self._limit_tokens = limit_tokens
        self._channel: Channel | None = None
        self._refusal = "the service process is not connected yet"
        self._pending: dict[int, WorkItem] = {}
        self._next = 1
        self._unanswered_tokens = 0
        self._cancelled: list[int] = []
        self._left: dict[int, WorkItem] = {}  # cancelled; the service process tells whether they had begun

    @property
    def limit_tokens(self) -> int:
        """LIMIT_QUEUE_TOKENS."""
        return self._limit_tokens

    @property
    def bulk_tokens(self) -> int:
        """As the batcher of the service process has it."""
        return max(1, self._limit_tokens // BULK_DIVISOR)

    def connect(self, channel: Channel) -> None:
        """Send over this channel from now on."""
        self._channel, self._refusal = channel, ""

    def disconnect(self, reason: str) -> None:
        """Refuse what comes, and fail what was sent: the service process is gone."""
        self._channel, self._refusal = None, reason
        errors = [Unavailable(reason, kind="for_good") for _ in self._pending]
        for item, error in zip(list(self._pending.values()), errors, strict=True):
            _resolve(item, error)
        self._pending.clear()
        self._left.clear()
        self._unanswered_tokens = 0

    def submit(
        self,
        engine: Engine,
        payloads: Sequence[Any],
        costs: Sequence[int],
        *,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> list[WorkItem]:
        """Send one work item per payload, and return at once.

        Raises: Unavailable when the service process is gone; Overloaded while it does not keep up with what was sent.
        """
        channel, loop = self._channel, asyncio.get_running_loop()
        if channel is None:
            raise Unavailable(f"not accepting work: {self._refusal}", kind="for_good")
        if not payloads:
            return []
        if self._unanswered_tokens > _UNANSWERED * self._limit_tokens:
            raise Overloaded(self._unanswered_tokens, self._limit_tokens, _CLOGGED_S)
        first, now_s = self._next, time.monotonic()
        self._next += len(payloads)
        items = []
        for number, (payload, cost) in enumerate(zip(payloads, costs, strict=True), first):
            item = WorkItem(engine, payload, cost, priority, deadline_s, now_s, loop.create_future())
            item.future.add_done_callback(partial(self._ended, number))
            self._pending[number] = item
            items.append(item)
        self._unanswered_tokens += sum(costs)
        engine_id = engine.id if isinstance(engine, RemoteEngine) else 0
        span = None if (own := sampled()) is None else own.context
        owner = owner_of_work.get()
        channel.send(
            *write_submission(Submission(first, engine_id, priority, deadline_s, payloads, costs, span, owner))
        )
        return items

    def promote(self, items: Sequence[WorkItem], priority: Priority) -> None:
        """Raise queued items to the priority of a caller that has joined them."""
        later = {item for item in items if priority < item.priority}
        if not later or self._channel is None:
            return
        for item in later:
            item.priority = priority
        numbers = [number for number, item in self._pending.items() if item in later]
        self._channel.send(*write_promote(numbers, priority))

    def take(self, message: Message) -> None:
        """Resolve the futures of items that have ended."""
        results: Iterable[Result] = (read_errors if message.kind is Kind.ERRORS else read_results)(message)
        for result in results:
            item = self._pending.pop(result.number, None)
            if item is None:  # cancelled here meanwhile
                left = self._left.pop(result.number, None)
                if left is not None and result.started_s and left.tell_begun is not None:
                    left.tell_begun(left.cost)
                continue
            self._unanswered_tokens -= item.cost
            item.started_s, item.finished_s = result.started_s, result.finished_s
            item.lane_s, item.work_s, item.batch_span = result.lane_s, result.work_s, result.batch_span
            _resolve(item, result.value)

    def _ended(self, number: int, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() or self._channel is None:
            return
        item = self._pending.pop(number, None)
        if item is None:
            return
        self._unanswered_tokens -= item.cost
        if not self._cancelled:
            asyncio.get_running_loop().call_soon(self._send_cancelled)
        self._cancelled.append(number)
        self._left[number] = item

    def _send_cancelled(self) -> None:
        numbers, self._cancelled = self._cancelled, []
        if self._channel is not None:
            self._channel.send(*write_cancel(numbers))


def _resolve(item: WorkItem, value: Any) -> None:
    if item.future.done():
        return
    if isinstance(value, FinanciaError):
        item.future.set_exception(value)
        item.future.exception()  # marks it as retrieved: asyncio logs errors that no caller retrieves
    else:
        item.future.set_result(value)
