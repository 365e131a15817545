"""Keeps taught classifiers: in a folder, or where all replicas share them, known to the others within a second.

The records are the only place where they are kept: the examples, and a head for each embedding model that serves. Each
replica has in memory what it has read, answers from that while the store is away, and teaches nothing then. What the
store loses is lost. Heads for other embedding models lie side by side, so that two releases serve the same classifier
during an upgrade.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from backend.abandoned import end_tasks
from backend.callers.callers import Caller
from backend.errors import InvalidField, ModelUnavailable, Unavailable
from backend.models.classifier_head import NONE, ClassifierHead, pack_head, unpack_head
from backend.replicas.records import Entry, Records, Replacement, Version, replace_known
from backend.retry import Backoff
from backend.supervision import Supervisor
from backend.telemetry import log_event
from backend.text import classifiers
from backend.text.classifier_files import Example, pack_examples, unpack_examples
from backend.text.classifiers import Classifier, ClassifierRegistry, too_many

KIND = "classifiers"
# Raised when a release changes what examples or their header mean; readers leave later ones to replicas that know them.
FORMAT = 1
HEAD_FORMAT = 1  # of a packed head: each release has its own beside those of others
EXAMPLES = "examples"
_EVERY_S = 0.25  # between two looks at the store's mark
_AWAY = Backoff(0.5, 2.0)  # the same while it does not answer
_START_S = 5.0  # to know what there is, before this replica says that it is ready
_REFRESH_S = 2.0  # of a request for a classifier that is not known here
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reach:
    """Whether the store answers."""

    why_not: str = "it was not asked yet"
    failures: int = 0

    @property
    def is_away(self) -> bool:
        return self.why_not != ""

    def note(self, error: Unavailable | None) -> None:
        before, self.why_not = self.why_not, "" if error is None else str(error)
        self.failures = 0 if error is None else self.failures + 1
        if error is not None and self.failures == 1:
            log_event(_log, logging.WARNING, "classifiers: the store is away", reason=error)
        elif error is None and before:
            log_event(_log, logging.INFO, "classifiers: the store answers")

    def pause_s(self) -> float:
        return _AWAY.wait_s(self.failures) if self.failures else _EVERY_S


@dataclass(slots=True)
class ClassifierStore:
    """Changes the classifiers of a registry and keeps them. Belongs to the loop; its callers take turns at changes."""

    registry: ClassifierRegistry
    records: Records
    supervisor: Supervisor
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of what was read
    _mark: str | None = None  # of the store when the registry last followed it
    _read: dict[str, Version] = field(default_factory=dict)  # the store's records that it follows, deletions among them
    _lost: set[str] = field(default_factory=set)  # of these, those whose examples the store does not have
    _reach: _Reach = field(default_factory=_Reach)
    _on_waiting: Callable[[], None] = lambda: None
    _task: asyncio.Task[None] | None = None
    _refreshing: asyncio.Task[None] | None = None

    def watch(self, on_waiting: Callable[[], None]) -> None:
        """Call ``on_waiting`` when another replica has taught what must be learnt for this embedding model first."""
        self._on_waiting = on_waiting

    async def start(self) -> None:
        """Know what there is, as far as that can be known within seconds. A store that is away is tried again."""
        with suppress(Unavailable):
            await self._refresh_within(_START_S)
        self._task = self.supervisor.keep("share_classifiers", self._run)

    async def close(self) -> None:
        await end_tasks(self._task, self._refreshing)

    async def refresh(self) -> None:
        """Know what other replicas have changed until now. Raises: Unavailable where that cannot be known."""
        if self._reach.failures:
            raise self._away()
        await self._refresh_within(_REFRESH_S)

    async def save(self, name: str, head: ClassifierHead, examples: Sequence[Example], caller: Caller) -> Classifier:
        """Keep a classifier and use it from now on; one that is replaced keeps its owner.

        Raises: InvalidField for an impossible name; Forbidden for another caller's; Unavailable.
        """
        packed_head, packed = await asyncio.to_thread(lambda: (pack_head(head), pack_examples(examples)))
        parts = {EXAMPLES: packed, head_part(head): packed_head}
        async with self._lock:
            owner = await self._write(name, caller, parts)
            classifier = self.registry.use_taught(name, owner, head)
        assert classifier is not None
        return classifier

    async def delete(self, name: str, caller: Caller) -> None:
        """Raises: as ClassifierRegistry.check_deletable; Unavailable."""
        await self.refresh()
        async with self._lock:
            await self._write(name, caller, None)
            self.registry.forget_taught(name)

    async def examples(self, name: str) -> list[Example]:
        """What a classifier was taught with. Raises: ModelUnavailable, Unavailable."""
        version = self.version(name)
        packed = None if version is None else await self.records.part(KIND, name, version, EXAMPLES)
        if packed is None:
            raise ModelUnavailable(f"{name}: the store does not have the examples of this version")
        return await asyncio.to_thread(unpack_examples, packed)

    def version(self, name: str) -> Version | None:
        """Tells whether a classifier was taught again meanwhile."""
        return self._read.get(name)

    async def head_of_others(self, name: str) -> ClassifierHead | None:
        """What another replica has learnt from the same examples for this embedding model."""
        version = self.version(name)
        if version is None:
            return None
        with suppress(Unavailable):
            return await self._head(name, version)
        return None

    async def save_learnt_again(self, name: str, head: ClassifierHead, version: Version | None) -> None:
        """Use a head that was learnt from the examples of this version; for others too."""
        async with self._lock:
            if version is None or self.version(name) != version:
                return
            self.registry.use_taught(name, self.registry.owner(name), head)
            with suppress(Unavailable):  # then each replica learns for itself
                packed = await asyncio.to_thread(pack_head, head)
                await self.records.add_part(KIND, name, version, head_part(head), packed)

    def report(self) -> dict[str, Any]:
        """For GET /v1/system."""
        is_shared = self.records.store != "folder"
        who = (
            f"every replica on {self.records.address} has"
            if is_shared
            else f"only who reads {self.records.address} has"
        )
        return {
            "store": self.records.store,
            "why": f"{who} them; what is lost there is lost",
            "reached": not self._reach.is_away,
            "versions": {
                name: version.number for name, version in sorted(self._read.items()) if self.registry.is_learnt(name)
            },
        }

    def degraded(self) -> tuple[str, ...]:
        """What fails, for GET /health; empty while all is well."""
        if not self._reach.is_away:
            return tuple(
                f"classifier '{name}': the store has lost its examples; teach it again" for name in sorted(self._lost)
            )
        return (f"classifiers are answered from this replica's memory, and none can be taught: {self._reach.why_not}",)

    async def _run(self) -> None:
        while True:
            await self.sleep(self._reach.pause_s())
            with suppress(Unavailable):
                await self._look()

    async def _refresh_within(self, limit_s: float) -> None:
        """One look at a time, for all who wait; it goes on where they do not. Raises: Unavailable."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._look())
            self._refreshing.add_done_callback(_retrieved)
        await asyncio.wait({self._refreshing}, timeout=limit_s)
        if not self._refreshing.done():
            raise Unavailable(f"classifiers: {self.records.address} did not tell within {limit_s:g} s. Try again")
        if self._refreshing.cancelled():
            raise Unavailable("classifiers: this replica stops. Try again on another")
        self._refreshing.result()

    async def _look(self) -> None:
        """Follow the store where it has changed. Raises: Unavailable."""
        try:
            if await self.records.mark(KIND) != self._mark:
                async with self._lock:
                    await self._pull()
        except Unavailable as error:
            self._reach.note(error)
            raise
        self._reach.note(None)

    async def _pull(self) -> None:
        """Know what the store has, and nothing else. What fails is tried again at the next look."""
        index = await self.records.index(KIND)
        for name in self._read.keys() - index.entries.keys():
            self._forget(name)
        for name, entry in index.entries.items():
            if self._read.get(name) != entry.version:
                await self._take(name, entry)
                self._read[name] = entry.version
        for name in self.registry.stale():
            await self._take_head(name)
        self._mark = index.mark
        if self.registry.waiting():
            self._on_waiting()

    async def _take(self, name: str, entry: Entry) -> None:
        self._lost.discard(name)
        if entry.is_deleted:
            self.registry.forget_taught(name)
            return
        owner, fault = _read_header(entry.header)
        if fault:
            self.registry.refuse_taught(name, fault)
            return
        head = await self._head(name, entry.version)
        labels: tuple[str, ...] = ()
        try:
            if head is None:
                packed = await self.records.part(KIND, name, entry.version, EXAMPLES)
                if packed is None:  # replaced meanwhile, or evicted
                    self._note_lost(name, owner)
                    return
                labels = _labels(await asyncio.to_thread(unpack_examples, packed))
            self.registry.use_taught(name, owner, head, labels)
        except (ModelUnavailable, InvalidField) as error:
            self.registry.refuse_taught(name, str(error))

    def _note_lost(self, name: str, owner: str | None) -> None:
        """What was read before answers on; where there is nothing, its owner is known, who may teach it."""
        self._lost.add(name)
        if not self.registry.knows(name):
            self.registry.use_taught(name, owner, None)

    def _forget(self, name: str) -> None:
        """It is no longer in the store, though nobody deleted it."""
        log_event(_log, logging.WARNING, "the store has lost a classifier", name=name)
        self._lost.discard(name)
        del self._read[name]
        self.registry.forget_taught(name)

    async def _take_head(self, name: str) -> None:
        """Use what another replica has learnt for this embedding model, if it has."""
        version = self.version(name)
        if version is not None and (head := await self._head(name, version)) is not None:
            self.registry.use_taught(name, self.registry.owner(name), head)

    async def _write(self, name: str, caller: Caller, parts: dict[str, bytes] | None) -> str | None:
        """Replace or delete a classifier where it is as this replica knows it; else get to know it, and check again.

        Returns: the owner.
        """

        def replacement(_: str) -> Replacement:
            if parts is None:
                self.registry.check_deletable(name, caller)
            else:
                self.registry.check_name(name)
                self.registry.check_owner(name, caller)
            header = b"" if parts is None else record_header(self.registry.owner_after(name, caller))
            return self._read.get(name), header, parts

        limit = classifiers.CLASSIFIERS_MAX
        outcome = await replace_known(self.records, KIND, name, replacement, self._pull, limit=limit)
        if outcome is None:
            raise Unavailable(f"classifier '{name}': other replicas keep replacing it. Try again")
        if outcome.status == "full":
            raise too_many(limit)
        assert outcome.entry is not None
        self._read[name] = outcome.entry.version
        self._lost.discard(name)
        self._mark = None  # a store that is set back to the mark before this has lost it
        return self.registry.owner_after(name, caller)

    async def _head(self, name: str, version: Version) -> ClassifierHead | None:
        """The head for this replica's embedding model; None where nobody has learnt it, or it cannot be read."""
        part = _head_part_of(self.registry.encoder.fingerprint or self.registry.encoder.sha256)
        packed = await self.records.part(KIND, name, version, part)
        if packed is None:
            return None
        try:
            return await asyncio.to_thread(unpack_head, packed)
        except ModelUnavailable as error:
            log_event(_log, logging.WARNING, "a shared head cannot be read, it is learnt here", name=name, reason=error)
            return None

    def _away(self) -> Unavailable:
        return Unavailable(
            f"classifiers: this replica cannot tell what was taught: {self._reach.why_not}", retry_after_s=_AWAY.most_s
        )


def head_part(head: ClassifierHead) -> str:
    """The part of a record that has a head for this one's embedding model."""
    return _head_part_of(head.encoder_fingerprint or head.encoder_sha256)


def _head_part_of(encoder: str) -> str:
    return f"head:{encoder}:{HEAD_FORMAT}"


def _labels(examples: Sequence[Example]) -> tuple[str, ...]:
    labels = dict.fromkeys(label for example in examples for label in example.labels)
    return tuple(label for label in labels if label != NONE)


def record_header(owner: str | None) -> bytes:
    """Of the classifier of this owner."""
    return orjson.dumps({"format": FORMAT, "owner": owner})


def _read_header(header: bytes) -> tuple[str | None, str]:
    """Owner, and why the classifier cannot be read, if it cannot."""
    try:
        fields = orjson.loads(header)
        number, owner = int(fields["format"]), fields["owner"]
    except (ValueError, KeyError, TypeError):
        return None, "its header is none of this service"
    if number > FORMAT or not isinstance(owner, str | None):
        return None, f"a later release wrote it (format {number}; this one reads {FORMAT})"
    return owner, ""


def _retrieved(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waited has raised it; else it was logged where it was noted
