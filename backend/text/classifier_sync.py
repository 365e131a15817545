"""Taught classifiers that all replicas share: what one is taught, the others answer within a second.

The store is the truth: it has the examples, and a head for each embedding model that serves. Each replica has copies of
all, in memory and on its disk, and follows the store. It answers from the copies while the store is away, and teaches
nothing then. Heads for other embedding models lie side by side, so that two releases serve the same classifier during
an upgrade.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from backend.abandoned import end_tasks
from backend.callers.callers import Caller
from backend.errors import InvalidField, ModelUnavailable, Unavailable
from backend.models.classifier_head import CONFIG, NONE, ClassifierHead, pack_head, unpack_head
from backend.replicas.records import Entry, Index, Replacement, SharedRecords, Version, new_id, replace_known
from backend.retry import Backoff
from backend.supervision import Supervisor
from backend.telemetry import log_event
from backend.text import classifiers
from backend.text.classifier_files import (
    Example,
    locked,
    pack_examples,
    read_version,
    remove_folder,
    set_aside,
    unpack_examples,
    write_folder,
)
from backend.text.classifiers import Classifier, ClassifierRegistry, too_many

KIND = "classifiers"
# Raised when a release changes what examples or their header mean; readers leave later ones to replicas that know them.
FORMAT = 1
HEAD_FORMAT = 1  # of a packed head: each release has its own beside those of others
_EXAMPLES = "examples"
_EVERY_S = 0.25  # between two looks at the store's mark
_AWAY = Backoff(0.5, 2.0)  # the same while it does not answer
_START_S = 5.0  # to know what there is, before this replica says that it is ready
_REFRESH_S = 2.0  # of a request for a classifier that is not known here
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Copy:
    """One version of a classifier, as all replicas have it."""

    version: Version
    owner: str | None
    examples: Sequence[Example]
    head: ClassifierHead | None  # None: still to be learnt for this replica's embedding model


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
            log_event(_log, logging.WARNING, "shared classifiers: the store is away", reason=error)
        elif error is None and before:
            log_event(_log, logging.INFO, "shared classifiers: the store answers")

    def pause_s(self) -> float:
        return _AWAY.wait_s(self.failures) if self.failures else _EVERY_S


@dataclass(slots=True)
class ClassifierSync:
    """A `ClassifierStore` that replicas share. Belongs to the loop; the registry's disk is accessed on threads."""

    registry: ClassifierRegistry
    records: SharedRecords
    supervisor: Supervisor
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # of the copies
    _mark: str | None = None  # of the store when the copies were last compared
    _seen: dict[str, Version] = field(default_factory=dict)  # the store's records then, deletions among them
    _lost: list[str] = field(default_factory=list)  # of these, those whose examples neither it nor this replica has
    _refused: dict[str, Version] = field(default_factory=dict)  # the newest of each that cannot be read here
    _reach: _Reach = field(default_factory=_Reach)
    _on_waiting: Callable[[], None] = lambda: None
    _task: asyncio.Task[None] | None = None
    _refreshing: asyncio.Task[None] | None = None

    def watch(self, on_waiting: Callable[[], None]) -> None:
        self._on_waiting = on_waiting

    async def start(self) -> None:
        """Take over what there is. A store that is away is tried again in the background."""
        with suppress(Unavailable):
            await self._refresh_within(_START_S)
        self._task = self.supervisor.keep("share_classifiers", self._run)

    async def close(self) -> None:
        await end_tasks(self._task, self._refreshing)

    async def refresh(self) -> None:
        if self._reach.is_away:
            raise self._away()
        await self._refresh_within(_REFRESH_S)

    async def save(self, name: str, head: ClassifierHead, examples: Sequence[Example], caller: Caller) -> Classifier:
        packed_head, packed = await asyncio.to_thread(lambda: (pack_head(head), pack_examples(examples)))
        parts = {_EXAMPLES: packed, _head_part(head): packed_head}
        async with self._lock:
            copy = _Copy(*await self._write(name, caller, parts), examples, head)
            classifier = await asyncio.shield(asyncio.create_task(self._use(name, copy)))
        assert classifier is not None
        return classifier

    async def delete(self, name: str, caller: Caller) -> None:
        await self.refresh()
        async with self._lock:
            await self._write(name, caller, None)
            await asyncio.shield(asyncio.create_task(self._forget(name, is_deleted=True)))

    async def examples(self, name: str) -> list[Example]:
        try:
            return await asyncio.to_thread(self.registry.examples, name)
        except ModelUnavailable:  # the disk refused it
            version = self.version(name)
            packed = None if version is None else await self.records.part(KIND, name, version, _EXAMPLES)
            if packed is None:
                raise
            return await asyncio.to_thread(unpack_examples, packed)

    def version(self, name: str) -> Version | None:
        return self.registry.versions().get(name)

    async def head_of_others(self, name: str) -> ClassifierHead | None:
        version = self.version(name)
        if version is None:
            return None
        with suppress(Unavailable):
            return await self._head(name, version)
        return None

    async def save_learnt_again(
        self, name: str, head: ClassifierHead, examples: Sequence[Example], version: Version | None
    ) -> None:
        async with self._lock:
            if version is None or self.version(name) != version:
                if version is None and name in self.registry.unshared():
                    await asyncio.to_thread(self.registry.save, name, head, examples)
                return
            await self._use(name, _Copy(version, self.registry.owner(name), examples, head))
            with suppress(Unavailable):  # then each replica learns for itself
                packed = await asyncio.to_thread(pack_head, head)
                await self.records.add_part(KIND, name, version, _head_part(head), packed)

    def report(self) -> dict[str, Any]:
        return {
            "store": self.records.store,
            "why": f"every replica on {self.records.address} has them; a copy of each is in STATE_DIR",
            "reached": not self._reach.is_away,
            "versions": {name: version.number for name, version in sorted(self.registry.versions().items())},
        }

    def degraded(self) -> tuple[str, ...]:
        if not self._reach.is_away:
            return tuple(f"classifier '{name}': the store has lost its examples; teach it again" for name in self._lost)
        return (f"classifiers are answered from this replica's copies, and none can be taught: {self._reach.why_not}",)

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
        """Compare the copies with the store where that has changed. Raises: Unavailable."""
        try:
            if await self.records.mark(KIND) != self._mark:
                async with self._lock:
                    await self._pull()
        except Unavailable as error:
            self._reach.note(error)
            raise
        self._reach.note(None)

    async def _pull(self) -> None:
        """Follow the store: have what it has, and nothing else. What fails is tried again at the next look.

        Before the first change of a store, a new one or one that was emptied, it is given what this replica has.
        """
        index = await self._shared(await self.records.index(KIND))
        self._seen = {name: entry.version for name, entry in index.entries.items()}
        self._lost = [name for name in self._lost if name in self._seen]
        copies = self.registry.versions()
        for name in copies:
            if name not in index.entries:
                await self._forget(name, is_deleted=False)
        for name, entry in index.entries.items():
            if entry.is_deleted:
                if name in copies:
                    await self._forget(name, is_deleted=True)
            elif entry.version not in (copies.get(name), self._refused.get(name)):
                await self._take(name, entry)
        for name in self.registry.stale():
            await self._take_head(name)
        self._mark = index.mark
        if self.registry.waiting():
            self._on_waiting()

    async def _shared(self, index: Index) -> Index:
        """Have the store take what only this replica has, and return what it has then."""
        own = [*self.registry.unshared(), *(() if index.mark else self.registry.versions())]
        for name in own:
            await self._share(name, index)
        return await self.records.index(KIND) if own else index

    async def _take(self, name: str, entry: Entry) -> None:
        owner, fault = _read_header(entry.header)
        if fault:
            self._refuse(name, entry.version, fault)
            return
        packed = await self.records.part(KIND, name, entry.version, _EXAMPLES)
        if packed is None:  # replaced meanwhile, or evicted
            self._note_lost(name, entry.version, owner)
            return
        head = await self._head(name, entry.version)
        try:
            examples = await asyncio.to_thread(unpack_examples, packed)
            await self._use(name, _Copy(entry.version, owner, examples, head))
        except (ModelUnavailable, InvalidField) as error:
            self._refuse(name, entry.version, str(error))

    def _refuse(self, name: str, version: Version, reason: str) -> None:
        self._refused[name] = version
        self.registry.refuse_copy(name, version, reason)

    def _note_lost(self, name: str, version: Version, owner: str | None) -> None:
        """An older copy answers on; where there is none, its name and owner are known, so that these may teach it."""
        self._lost = [*dict.fromkeys((*self._lost, name))]
        if not self.registry.knows(name):
            with suppress(InvalidField):
                self.registry.use_copy(name, version, owner, None, ())

    async def _take_head(self, name: str) -> None:
        """Use what another replica has learnt for this embedding model, if it has."""
        version = self.version(name)
        if version is None or (head := await self._head(name, version)) is None:
            return
        with suppress(ModelUnavailable):
            examples = await self.examples(name)
            await self._use(name, _Copy(version, self.registry.owner(name), examples, head))

    async def _share(self, name: str, index: Index) -> None:
        """Have the store take a classifier that it never had; its own of this name wins, deleted or not."""
        if name in index.entries:
            if index.entries[name].is_deleted:
                await self._forget(name, is_deleted=False)
            return  # else it is taken
        try:
            examples = await asyncio.to_thread(self.registry.examples, name)
        except ModelUnavailable:
            return
        owner, head = self.registry.owner(name), self.registry.learnt_head(name)
        parts = await asyncio.to_thread(_parts, examples, head)
        outcome = await self.records.write(
            KIND, name, new_id(), expected=None, header=_header(owner), parts=parts, limit=classifiers.CLASSIFIERS_MAX
        )
        if outcome.status == "done" and outcome.entry is not None:
            await self._use(name, _Copy(outcome.entry.version, owner, examples, head), is_own=True)

    async def _write(self, name: str, caller: Caller, parts: dict[str, bytes] | None) -> tuple[Version, str | None]:
        """Replace or delete a classifier where it is as this replica knows it; else get to know it, and check again."""

        def replacement(_: str) -> Replacement:
            if parts is None:
                self.registry.check_deletable(name, caller)
            else:
                self.registry.check_name(name)
                self.registry.check_owner(name, caller)
            header = b"" if parts is None else _header(self.registry.owner_after(name, caller))
            return self._seen.get(name), header, parts

        limit = classifiers.CLASSIFIERS_MAX
        outcome = await replace_known(self.records, KIND, name, replacement, self._pull, limit=limit)
        if outcome is None:
            raise Unavailable(f"classifier '{name}': other replicas keep replacing it. Try again")
        if outcome.status == "full":
            raise too_many(limit)
        assert outcome.entry is not None
        self._seen[name] = outcome.entry.version
        self._lost = [other for other in self._lost if other != name]
        self._mark = None  # a store that is set back to the mark before this has lost it
        return outcome.entry.version, self.registry.owner_after(name, caller)

    async def _use(self, name: str, copy: _Copy, *, is_own: bool = False) -> Classifier | None:
        classifier = self.registry.use_copy(name, copy.version, copy.owner, copy.head, _labels(copy.examples))
        await asyncio.to_thread(_keep, self.registry.folder, name, copy, is_own=is_own)
        return classifier

    async def _forget(self, name: str, *, is_deleted: bool) -> None:
        """It is no longer in the store. Only what a deletion names is deleted; else its folder is set aside."""
        self.registry.forget_copy(name)
        await asyncio.to_thread(_drop, self.registry.folder, name, is_deleted=is_deleted)

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
            f"classifiers are shared by all replicas, and this one cannot tell what they were taught: "
            f"{self._reach.why_not}",
            retry_after_s=_AWAY.most_s,
        )


def _keep(root: Path, name: str, copy: _Copy, *, is_own: bool) -> None:
    """Write a copy, unless the folder, which several replicas may share, has it whole. On a thread.

    A disk that refuses is logged: the store has everything, this replica has the head in memory.

    Args:
        is_own: of this replica alone until now; else what only this replica had gives way.
    """
    try:
        with locked(root):
            folder = root / name
            before = read_version(folder)
            if before == copy.version and (copy.head is None or (folder / CONFIG).exists()):
                return
            if before is None and folder.exists() and not is_own:
                kept_in = set_aside(root, name).name
                message = "a classifier of this replica alone gives way to the shared one"
                log_event(_log, logging.WARNING, message, name=name, kept_in=kept_in)
            write_folder(root, name, copy.head, copy.examples, copy.owner, version=copy.version)
    except OSError as error:
        _refused_by_disk(name, error)


def _drop(root: Path, name: str, *, is_deleted: bool) -> None:
    """Remove a copy, or set it aside where nobody deleted it. On a thread."""
    try:
        with locked(root):
            if not (root / name).exists():
                return
            if is_deleted and read_version(root / name) is not None:
                remove_folder(root, name)
            else:
                kept_in = set_aside(root, name).name
                message = "the store does not have a classifier, its copy is set aside"
                log_event(_log, logging.WARNING, message, name=name, kept_in=kept_in)
    except OSError as error:
        _refused_by_disk(name, error)


def _refused_by_disk(name: str, error: OSError) -> None:
    reason = error.strerror or type(error).__name__
    log_event(_log, logging.WARNING, "no copy of a classifier can be kept on the disk", name=name, reason=reason)


def _parts(examples: Sequence[Example], head: ClassifierHead | None) -> dict[str, bytes]:
    parts = {_EXAMPLES: pack_examples(examples)}
    return parts if head is None else {**parts, _head_part(head): pack_head(head)}


def _head_part(head: ClassifierHead) -> str:
    return _head_part_of(head.encoder_fingerprint or head.encoder_sha256)


def _head_part_of(encoder: str) -> str:
    return f"head:{encoder}:{HEAD_FORMAT}"


def _labels(examples: Sequence[Example]) -> tuple[str, ...]:
    labels = dict.fromkeys(label for example in examples for label in example.labels)
    return tuple(label for label in labels if label != NONE)


def _header(owner: str | None) -> bytes:
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
