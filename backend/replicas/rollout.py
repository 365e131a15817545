"""The models that all replicas shall serve: wished on one, taken by each in turn, told by all.

A replica that is asked loads the model first; only what serves there is wished of the others. Each of them loads it
beside the old one, at most a quarter of them at the same time, and answers from the old one until the new one has
computed. One that cannot serves on with what it has, says why, and tries again. The target outlives every process; a
replica whose settings name another model than those of the replica that was asked follows its settings.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import orjson

from backend import __version__
from backend.abandoned import end_tasks
from backend.durable_files import replace_json
from backend.errors import FinanciaError, InvalidField, ModelUnavailable, Unavailable
from backend.models.fingerprint import OUTPUT_VERSION
from backend.models.spec import ModelSpec
from backend.replicas.records import Entry, Replacement, SharedRecords, Version, new_id, replace_known
from backend.retry import Backoff
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.model_swap import ModelSwapper
from backend.supervision import Supervisor
from backend.telemetry import Telemetry, log_event

KIND = "models"
FORMAT = 1
Status = Literal["serving", "waiting", "loading", "failed", "set_otherwise", "replaced_here"]
_EVERY_S = 1.0  # between two looks, and two reports
_REPORT_S = 15.0  # after which a silent replica is gone
_LEASE_S = 30.0  # of a turn, renewed with every look
_START_S = 3.0  # to know the targets before the models are loaded
_PAUSE = Backoff(15.0, 900.0)
_CLOSE_S = 1.0
CRASHES_MAX = 2  # of the process while it loads one wished model; then it is not tried again here
_SHARE = 4  # one in so many replicas loads at the same time
_TEXTS = ("source", "instead_of", "sha256", "fingerprint")  # of a target, as its header has them
_log = logging.getLogger(__name__)


try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = "wished-models"  # in STATE_DIR


@dataclass(frozen=True, slots=True)
class Loading:
    """One load of a wished model: a file that this process has locked until it comes back from it."""

    stream: TextIO | None  # None where the disk refused
    before: tuple[Path, ...]  # of processes that did not come back

    def end(self) -> None:
        """It came back, with the model or with a reason."""
        if self.stream is None:
            return
        self.stream.close()
        for mark in (Path(self.stream.name), *self.before):
            with suppress(OSError):
                mark.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """Files in a folder that several replicas may share. Every method accesses the disk and belongs on a thread."""

    root: Path

    def entries(self) -> dict[str, Entry]:
        """The targets that were seen last, by task; none where they cannot be read."""
        try:
            rows = json.loads((self.root / "last.json").read_text(encoding="utf-8"))
            return {
                str(task): Entry(
                    Version(int(row["number"]), str(row["id"])), bool(row["deleted"]), row["header"].encode()
                )
                for task, row in rows.items()
            }
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def write(self, entries: dict[str, Entry]) -> None:
        """Keep them for a start without the store. A disk that refuses is logged."""
        record = {
            task: {
                "number": entry.version.number,
                "id": entry.version.id,
                "deleted": entry.is_deleted,
                "header": entry.header.decode(errors="replace"),
            }
            for task, entry in entries.items()
        }
        try:
            replace_json(self.root / "last.json", record)
        except OSError as error:
            self._refused(error)

    def crashes(self, task: str, version: Version) -> int:
        """How many processes on this host ended while they loaded a wished model; those that still load not counted."""
        return sum(not _is_held(mark) for mark in self._marks(task, version))

    def begin(self, task: str, version: Version) -> Loading:
        """This process is about to load a wished model."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            stream = (self.root / f"{_marks_of(task, version)}{new_id()}").open("w")
            if fcntl is not None:
                fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            self._refused(error)
            return Loading(None, ())
        return Loading(stream, tuple(mark for mark in self._marks(task, version) if not _is_held(mark)))

    def _marks(self, task: str, version: Version) -> list[Path]:
        return list(self.root.glob(f"{_marks_of(task, version)}*"))

    def _refused(self, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        log_event(_log, logging.WARNING, "wished models cannot be kept on the disk", reason=reason)


def _marks_of(task: str, version: Version) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", f"loading-{socket.gethostname()}-{task}-{version.id}-")


def _is_held(mark: Path) -> bool:
    """Whether the process that made it still loads; unknown, and taken for true, where files cannot be locked."""
    with suppress(OSError), mark.open() as stream:  # locked; or gone: it has just ended
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    return True


@dataclass(frozen=True, slots=True)
class Target:
    """The model that all replicas shall serve for a task."""

    task: str
    source: str
    instead_of: str  # what the settings of the replica that was asked name
    sha256: str  # of the weights that it loaded
    fingerprint: str
    output_version: int  # whose fingerprint that is: another release computes another one of the same files
    version: Version

    def applies_to(self, set_source: str) -> bool:
        """Whether a replica with this source in its settings shall take it: one set otherwise since follows that."""
        return set_source in (self.instead_of, self.source)

    def is_met_by(self, spec: ModelSpec) -> bool:
        """Whether these files are those that were wished, wherever they lie."""
        if self.output_version == OUTPUT_VERSION:
            return spec.fingerprint == self.fingerprint
        return spec.sha256 == self.sha256

    def check(self, model: LoadedModel) -> None:
        """Raises: ModelUnavailable for another model under the same name."""
        if not self.is_met_by(model.spec):
            raise ModelUnavailable(
                f"{self.source} is another model here ({model.spec.fingerprint[:12]}) than where it was wished "
                f"({self.fingerprint[:12]}); put the same files there, or wish a hub id with its @revision"
            )

    def header(self) -> bytes:
        texts = {name: getattr(self, name) for name in _TEXTS}
        return orjson.dumps({"format": FORMAT, **texts, "output_version": self.output_version})


def read_target(task: str, entry: Entry) -> Target | None:
    """The target of an entry; None for one that was taken back, and, with a warning, for one that cannot be read."""
    if entry.is_deleted:
        return None
    try:
        fields = orjson.loads(entry.header)
        source, instead_of, sha256, fingerprint = (str(fields[name]) for name in _TEXTS)
        output_version = int(fields["output_version"]) if fields["format"] <= FORMAT else -1
    except (ValueError, KeyError, TypeError) as error:
        log_event(_log, logging.WARNING, "a wished model cannot be read here", task=task, reason=repr(error)[:200])
        return None
    if output_version < 0:
        log_event(_log, logging.WARNING, "a later release wished a model, which this one leaves to it", task=task)
        return None
    return Target(task, source, instead_of, sha256, fingerprint, output_version, entry.version)


@dataclass(slots=True)
class _Attempt:
    """What became of one target here."""

    version: Version
    is_loading: bool = False
    is_taken: bool = False  # it served here once
    reason: str = ""  # why the last try failed
    tries: int = 0
    next_try_s: float = 0.0  # monotonic

    def failed(self, reason: str, now_s: float) -> None:
        self.reason, self.is_loading = reason, False
        self.next_try_s = now_s + _PAUSE.wait_s(self.tries)


async def targets_at_start(records: SharedRecords, file: RolloutFile) -> dict[str, Target]:
    """The targets by task; those that this replica saw last where the store does not answer within seconds."""
    entries = await asyncio.to_thread(file.entries)
    try:
        async with asyncio.timeout(_START_S):
            index = await records.index(KIND)
        if index.mark:  # else it was emptied, and is given what was seen last
            entries = dict(index.entries)
    except (Unavailable, TimeoutError) as error:
        log_event(_log, logging.WARNING, "wished models are those that were seen last", reason=error)
    targets = {task: read_target(task, entry) for task, entry in entries.items()}
    return {task: target for task, target in targets.items() if target is not None}


@dataclass(slots=True)
class ModelRollout:
    """Follows the targets of all replicas, and reports on this one. Belongs to the loop.

    Args:
        set_sources: of each task's model in the settings; "" for none.
    """

    records: SharedRecords
    catalog: Catalog
    loader: ModelSwapper
    set_sources: Mapping[str, str]
    file: RolloutFile
    telemetry: Telemetry
    supervisor: Supervisor
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    replica: str = field(default_factory=new_id)
    _entries: dict[str, Entry] = field(default_factory=dict)  # the newest that this replica knows, by task
    _targets: dict[str, Target] = field(default_factory=dict)
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _reports: dict[str, bytes] = field(default_factory=dict)  # what each replica said last
    _mark: str | None = None
    _away: str = "it was not asked yet"
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _loading: asyncio.Task[None] | None = None
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Know the targets, and follow them in the background. What serves already is not loaded again."""
        self._entries = await asyncio.to_thread(self.file.entries)
        self._read_targets()
        with suppress(Unavailable):
            await self._look()
        self._task = self.supervisor.keep("share_models", self._run)
        self.telemetry.shared_state_up.set_function(lambda: float(not self._away))
        for task in self.set_sources:
            self.telemetry.model_wish_unmet.labels(task).set_function(lambda task=task: float(self._is_unmet(task)))

    async def close(self) -> None:
        """Leave, so that the next in turn need not wait for this replica, and close the store: the last to use it."""
        await end_tasks(self._task, self._loading)
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self.records.end_turn(KIND, self.replica)
                await self.records.leave(self.replica)
        await self.records.close()

    async def roll_out(self, source: str, task: str) -> LoadedModel:
        """Load a model here, then have all other replicas take it, one after the other.

        Raises: InvalidField when it cannot be loaded here: nothing is wished then; Unavailable while the store is away.
        """
        await self._look()
        model = await self.loader.load(source, task)
        spec, set_source = model.spec, self.set_sources[task]
        digests = (spec.sha256, spec.fingerprint, OUTPUT_VERSION)

        def replacement(write_id: str) -> Replacement:
            before = self._entries.get(task)
            target = Target(task, source, set_source, *digests, Version(0, write_id))
            return None if before is None else before.version, target.header(), {}

        try:
            outcome = await replace_known(self.records, KIND, task, replacement, self._compare)
        except Unavailable as error:
            raise Unavailable(
                f"{model.name} serves on this replica, but the others could not be told: {error}", retry_after_s=5.0
            ) from error
        if outcome is None or outcome.entry is None:
            raise Unavailable(f"{model.name} serves on this replica, but other replicas keep wishing others. Try again")
        await self._know({**self._entries, task: outcome.entry})
        self._attempts[task] = _Attempt(outcome.entry.version, is_taken=self.catalog.of(task) is model)
        self._mark = None  # a store that is set back to the mark before this has lost it
        return model

    def report(self) -> dict[str, Any]:
        """All replicas with their models and their progress, for GET /v1/system."""
        told = {**self._reports, self.replica: orjson.dumps(self._own_report())}
        return {
            "shared_state": {
                "store": self.records.store,
                "where": self.records.address,
                "reached": not self._away,
                "replica": self.replica,
                "wished_models": [
                    {"task": target.task, "source": target.source, "fingerprint": target.fingerprint}
                    for target in self._targets.values()
                ],
                "replicas": [_readable(told[replica]) for replica in sorted(told)],
            }
        }

    def degraded(self) -> tuple[str, ...]:
        """Wishes that this replica does not meet, with the reason."""
        away = (f"wished models cannot be known: {self._away}",) if self._away else ()
        failed = (
            f"the model wished for {task} ({target.source}) is not served here: {self._attempts[task].reason}"
            for task, target in self._targets.items()
            if self._status(target) == "failed"
        )
        return (*away, *failed)

    async def _run(self) -> None:
        while True:
            await self.sleep(_EVERY_S)
            with suppress(Unavailable):
                await self._look()
                await self._act()

    async def _look(self) -> None:
        """Report to the others, hear them, and know the targets. Raises: Unavailable."""
        try:
            self._reports = await self.records.report(self.replica, orjson.dumps(self._own_report()), _REPORT_S)
            if await self.records.mark(KIND) != self._mark:
                await self._compare()
        except Unavailable as error:
            if not self._away:
                log_event(_log, logging.WARNING, "wished models: the store is away", reason=error)
            self._away = str(error)
            raise
        self._away = ""

    async def _compare(self) -> None:
        """Follow the store; one that was emptied is given what this replica has seen last."""
        index = await self.records.index(KIND)
        if not index.mark and self._entries:
            for task, entry in self._entries.items():
                parts: dict[str, bytes] | None = None if entry.is_deleted else {}
                await self.records.write(KIND, task, new_id(), expected=None, header=entry.header, parts=parts)
            index = await self.records.index(KIND)
        await self._know(dict(index.entries))
        self._mark = index.mark

    async def _know(self, entries: dict[str, Entry]) -> None:
        if entries != self._entries:
            self._entries = entries
            await asyncio.to_thread(self.file.write, entries)
        self._read_targets()

    def _read_targets(self) -> None:
        targets = {task: read_target(task, entry) for task, entry in self._entries.items() if task in self.set_sources}
        self._targets = {task: target for task, target in targets.items() if target is not None}
        for task, target in self._targets.items():
            if task not in self._attempts or self._attempts[task].version != target.version:
                self._attempts[task] = _Attempt(target.version)

    async def _act(self) -> None:
        """Load what is wished and due, when it is this replica's turn. Raises: Unavailable."""
        at_once = max(1, len(self._reports) // _SHARE)
        if self._loading is not None and not self._loading.done():
            async with self._turn:
                if any(attempt.is_loading for attempt in self._attempts.values()):
                    await self.records.take_turn(KIND, self.replica, at_once=at_once, lease_s=_LEASE_S)
            return
        for task, target in self._targets.items():
            attempt = self._attempts[task]
            if self._status(target) == "serving":
                attempt.is_taken = True
            is_due = self._status(target) in ("waiting", "failed") and attempt.next_try_s <= self.clock()
            if is_due and await self.records.take_turn(KIND, self.replica, at_once=at_once, lease_s=_LEASE_S):
                attempt.is_loading = True
                self._loading = asyncio.create_task(self._take(target, attempt))
                return

    async def _take(self, target: Target, attempt: _Attempt) -> None:
        """Load and swap; the old model answers meanwhile, and goes on where this fails."""
        attempt.tries += 1
        try:
            crashes = await asyncio.to_thread(self.file.crashes, target.task, target.version)
            if crashes >= CRASHES_MAX:
                reason = f"the process has ended {crashes} times while it loaded it; see its log, then wish it again"
                attempt.failed(reason, self.clock())
            else:
                await self._load(target)
                attempt.is_taken, attempt.reason = True, ""
        except FinanciaError as error:
            attempt.failed(str(error), self.clock())
        except Exception as error:  # noqa: BLE001 - border: whatever loading raises, the old model serves on
            attempt.failed(f"it failed unexpectedly ({type(error).__name__}); see the log", self.clock())
            self.supervisor.failed("share_models", error)
        finally:
            attempt.is_loading = False
        if attempt.reason:
            log_event(
                _log, logging.WARNING, "a wished model is not served here", task=target.task, reason=attempt.reason
            )
        with suppress(Unavailable):
            async with self._turn:  # or a renewal that is under way would keep it
                await self.records.end_turn(KIND, self.replica)
            await self._look()

    async def _load(self, target: Target) -> None:
        def check(model: LoadedModel) -> None:
            target.check(model)
            if self._targets.get(target.task) != target:  # or it would replace the one that was wished meanwhile
                raise ModelUnavailable(f"another model is wished for {target.task} by now")

        loading = await asyncio.to_thread(self.file.begin, target.task, target.version)
        try:
            await self.loader.load(target.source, target.task, check=check)
        finally:
            loading.end()  # a small file, also when the service is stopped meanwhile

    def _status(self, target: Target) -> Status:
        attempt, model = self._attempts[target.task], self.catalog.of(target.task)
        if model is not None and target.is_met_by(model.spec):
            return "serving"
        if not target.applies_to(self.set_sources[target.task]):
            return "set_otherwise"
        if attempt.is_loading:
            return "loading"
        if attempt.is_taken:
            return "replaced_here"
        return "failed" if attempt.reason else "waiting"

    def _is_unmet(self, task: str) -> bool:
        return task in self._targets and self._status(self._targets[task]) in ("waiting", "loading", "failed")

    def _own_report(self) -> dict[str, Any]:
        """What this replica tells the others."""
        return {
            "replica": self.replica,
            "host": socket.gethostname(),
            "version": __version__,
            "models": [
                {"task": model.task, "name": model.name, "fingerprint": model.spec.fingerprint}
                for model in self.catalog.models()
            ],
            "wishes": [
                {
                    "task": task,
                    "source": target.source,
                    "status": self._status(target),
                    "reason": self._attempts[task].reason or None,
                    "tries": self._attempts[task].tries,
                }
                for task, target in self._targets.items()
            ],
        }


@dataclass(frozen=True, slots=True)
class NoRollout:
    """Instead of `ModelRollout`, of a process that shares nothing."""

    async def start(self) -> None:
        """There is nobody."""

    async def close(self) -> None:
        """There is nobody."""

    async def roll_out(self, _source: str, _task: str) -> LoadedModel:
        raise InvalidField(
            "replicas: this process shares nothing with others, so there is no one else to reach; set REDIS_URL or "
            "SEARCH_URL, or leave `replicas` out",
            param="replicas",
        )

    def report(self) -> dict[str, Any]:
        return {"shared_state": {"store": "none", "why": "neither REDIS_URL nor SEARCH_URL is set"}}

    def degraded(self) -> tuple[str, ...]:
        return ()


def _readable(payload: bytes) -> Any:
    """What a replica said; whatever another release says is shown as it is."""
    try:
        return orjson.loads(payload)
    except ValueError:
        return {"unreadable": True}
