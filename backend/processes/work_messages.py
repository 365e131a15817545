"""How work items and their results are laid out in messages, arrays end to end; and records outside of requests.

Pickled are errors and those records alone.
"""

from __future__ import annotations

import pickle
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.callers.callers import KeyRing
from backend.callers.usage import Slice
from backend.config import Settings
from backend.errors import FinanciaError
from backend.lanes.work_queue import Priority, WorkItem
from backend.models.encoder import Ids
from backend.processes.channel import Kind, Message
from backend.serving.catalog import LoadedModel
from backend.serving.pending_models import PendingModel
from backend.telemetry import Snapshot
from backend.tracing.spans import PACKED_BYTES, SpanContext

_SUBMIT = struct.Struct("<QdIIBB")  # number of the first item, deadline, engine, items, priority, bytes of its owner
_INT32: Final = "i"  # of a submission's table: costs, then rows (0 for ids alone), then tokens, of all items
_INT32_BYTES = 4
_PRIORITIES = tuple(Priority)
_RESULT = np.dtype(
    [
        ("number", "<u8"),
        ("started_s", "<f8"),
        ("finished_s", "<f8"),
        ("lane_s", "<f8"),
        ("work_s", "<f8"),
        ("rows", "<i4"),  # -1 for an array of one dimension
        ("columns", "<i4"),
    ]
)
_NO_SPAN = bytes(PACKED_BYTES)

Numbers = NDArray[np.uint64]  # of items; each worker counts its own


class Parts(NamedTuple):
    """What ``Channel.send`` takes."""

    kind: Kind
    meta: bytes
    buffers: Sequence[Any] = ()


class Submission(NamedTuple):
    """Work items of one request, as an HTTP worker submits them."""

    first: int  # the number of the first item; the others follow
    engine_id: int
    priority: Priority
    deadline_s: float  # on the monotonic clock, which all processes of a machine share
    payloads: Sequence[Ids]
    costs: Sequence[int]
    span: SpanContext | None = None  # of the request, where it is recorded
    owner: str = ""


class Finished(NamedTuple):
    """An item that has ended."""

    number: int
    value: Any  # an array, or a FinanciaError
    item: WorkItem  # with its times


class Result(NamedTuple):
    """The same as an HTTP worker gets it."""

    number: int
    value: Any
    started_s: float
    finished_s: float
    lane_s: float
    work_s: float
    batch_span: SpanContext | None = None


def write_submission(submission: Submission) -> Parts:
    """Ids as int32: no vocabulary has more."""
    payloads = submission.payloads
    table = array(_INT32, submission.costs)
    table.extend([0 if ids.ndim == 1 else len(ids) for ids in payloads])
    table.extend([ids.shape[-1] for ids in payloads])
    flat = np.concatenate([ids if ids.ndim == 1 else ids.ravel() for ids in payloads], dtype=np.int32)
    owner = submission.owner.encode()
    numbers = submission.first, submission.deadline_s, submission.engine_id, len(payloads), submission.priority
    meta = _SUBMIT.pack(*numbers, len(owner)) + owner
    if submission.span is not None:
        meta += submission.span.pack()
    return Parts(Kind.SUBMIT, meta, (table, flat))


def read_submission(message: Message) -> Submission:
    """The submission, its ids copied out of the block once for all items."""
    first, deadline_s, engine_id, count, priority, owner_bytes = _SUBMIT.unpack_from(message.meta)
    packed = message.meta[_SUBMIT.size :]
    owner, packed_span = bytes(packed[:owner_bytes]).decode(), packed[owner_bytes:]
    table = message.block[: 3 * count * _INT32_BYTES].cast(_INT32).tolist()  # a request of one text: numpy is slower
    ids = np.frombuffer(message.block, np.int32, offset=3 * count * _INT32_BYTES).astype(np.int64)
    payloads, start = [], 0
    for rows, tokens in zip(table[count : 2 * count], table[2 * count :], strict=True):
        stop = start + (rows or 1) * tokens
        part = ids[start:stop]
        payloads.append(part.reshape(rows, -1) if rows else part)
        start = stop
    span = SpanContext.unpack(packed_span) if packed_span else None
    return Submission(first, engine_id, _PRIORITIES[priority], deadline_s, payloads, table[:count], span, owner)


def is_result(value: Any) -> bool:
    """Whether ``write_results`` takes it: an array of numbers of one or two dimensions."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and 1 <= value.ndim <= 2


def write_results(finished: Sequence[Finished]) -> Parts:
    """Items whose value ``is_result``; float32 as every encoder engine gives them."""
    table = np.empty(len(finished), _RESULT)
    arrays: list[NDArray[np.float32]] = [one.value for one in finished]
    items = [one.item for one in finished]
    table["number"] = [one.number for one in finished]
    table["started_s"] = [item.started_s for item in items]
    table["finished_s"] = [item.finished_s for item in items]
    table["lane_s"] = [item.lane_s for item in items]
    table["work_s"] = [item.work_s for item in items]
    table["rows"] = [-1 if array.ndim == 1 else len(array) for array in arrays]
    table["columns"] = [array.shape[-1] for array in arrays]
    flat = [array if array.ndim == 1 else array.ravel() for array in arrays]
    meta = struct.pack("<I", len(finished))
    spans = [item.batch_span for item in items]
    if spans.count(None) < len(spans):
        meta += b"".join(_NO_SPAN if span is None else span.pack() for span in spans)
    return Parts(Kind.RESULTS, meta, (table, np.concatenate(flat, dtype=np.float32)))


def read_results(message: Message) -> Iterator[Result]:
    """The results; their arrays are views of one copy."""
    (count,) = struct.unpack_from("<I", message.meta)
    spans = _batch_spans(message.meta[4:], count)
    table = np.frombuffer(message.block, _RESULT, count).copy()
    values = np.frombuffer(message.block, np.float32, offset=table.nbytes).copy()
    start = 0
    for row, span in zip(table.tolist(), spans, strict=True):
        number, started_s, finished_s, lane_s, work_s, rows, columns = row
        stop = start + abs(rows) * columns
        part = values[start:stop]
        value = part if rows < 0 else part.reshape(rows, columns)
        yield Result(number, value, started_s, finished_s, lane_s, work_s, span)
        start = stop


def _batch_spans(packed: bytes, count: int) -> list[SpanContext | None]:
    """Of each result; none are sent where no request in the batches is recorded."""
    if not packed:
        return [None] * count
    parts = [packed[start : start + PACKED_BYTES] for start in range(0, len(packed), PACKED_BYTES)]
    return [None if part == _NO_SPAN else SpanContext.unpack(part) for part in parts]


def write_errors(finished: Sequence[Finished]) -> Parts:
    """Errors of items, pickled: their class, message and attributes."""
    rows = [
        (one.number, type(one.value), one.value.args, vars(one.value), one.item.started_s, one.item.finished_s)
        for one in finished
    ]
    return Parts(Kind.ERRORS, b"", (pickle.dumps(rows),))


def read_errors(message: Message) -> Iterator[Result]:
    """The errors, each as it was raised; ``__init__`` is not called again, as it writes the message."""
    for number, kind, arguments, attributes, started_s, finished_s in pickle.loads(message.block):  # noqa: S301 - our own process wrote it
        error: FinanciaError = kind.__new__(kind, *arguments)
        error.args = arguments
        vars(error).update(attributes)
        yield Result(number, error, started_s, finished_s, 0.0, 0.0)


def write_cancel(numbers: Sequence[int]) -> Parts:
    return Parts(Kind.CANCEL, np.array(numbers, np.uint64).tobytes())


def read_cancel(message: Message) -> list[int]:
    numbers: list[int] = np.frombuffer(message.meta, np.uint64).tolist()
    return numbers


def write_promote(numbers: Sequence[int], priority: Priority) -> Parts:
    return Parts(Kind.PROMOTE, bytes([priority]) + np.array(numbers, np.uint64).tobytes())


def read_promote(message: Message) -> tuple[list[int], Priority]:
    numbers: list[int] = np.frombuffer(message.meta, np.uint64, offset=1).tolist()
    return numbers, Priority(message.meta[0])


@dataclass(frozen=True, slots=True)
class Models:
    """The models that serve, with engines by number and without tokenizers; to an HTTP worker."""

    version: int
    loaded: tuple[LoadedModel, ...]
    pending: tuple[PendingModel, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that hold from now on, as the service process has read them; to an HTTP worker."""

    ring: KeyRing
    owners: tuple[str, ...]  # in the order of their slots on the shared page


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What the callers of an HTTP worker have used; from it."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """All that an HTTP worker starts from."""

    settings: Settings
    index: int  # of this worker, from 0
    service_path: str  # the Unix socket of the service process
    models: Models
    keys: Keys


class Signal(Enum):
    READY = "the HTTP worker accepts connections; from it"
    PING = "show that the event loop runs, by a PONG; to an HTTP worker"
    PONG = "the event loop runs; from an HTTP worker"
    DRAIN = "finish what was accepted, and end; to an HTTP worker"


@dataclass(frozen=True, slots=True)
class ModelsTaken:
    """From now on the HTTP worker names engines of this version only."""

    version: int


@dataclass(frozen=True, slots=True)
class AskSamples:
    """Tell the metrics; to an HTTP worker."""

    number: int


@dataclass(frozen=True, slots=True)
class Samples:
    """The metrics of an HTTP worker, as ``Telemetry.snapshot`` has them."""

    number: int
    rows: Snapshot


def write_control(record: object) -> Parts:
    return Parts(Kind.CONTROL, b"", (pickle.dumps(record),))


def read_control(message: Message) -> object:
    record: object = pickle.loads(message.block)  # noqa: S301 - our own process wrote it
    return record
