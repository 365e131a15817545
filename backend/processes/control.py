"""Records that the processes of one service send each other outside of requests; they are pickled."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from backend.callers.callers import KeyRing
from backend.callers.usage_store import Slice
from backend.config import Settings
from backend.processes.channel import Kind, Message
from backend.processes.work_messages import Parts
from backend.serving.catalog import LoadedModel
from backend.serving.pending_models import PendingModel
from backend.telemetry import Snapshot


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


@dataclass(frozen=True, slots=True)
class Ready:
    """The HTTP worker accepts connections; from it."""


@dataclass(frozen=True, slots=True)
class ModelsTaken:
    """From now on the HTTP worker names engines of this version only."""

    version: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Show that the event loop runs, by a `Pong`; to an HTTP worker."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The event loop runs; from an HTTP worker."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Finish what was accepted, and end; to an HTTP worker."""


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
