"""Extractors that callers teach: what to find in their words, and what their examples taught. Kept for good."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from backend.callers.callers import Caller
from backend.errors import Forbidden, InvalidField, NotFound, Unavailable
from backend.replicas.records import Records, Replacement, Version, replace_known

EXTRACTORS_MAX = 100
NAME_PATTERN = "[a-z0-9][a-z0-9_-]{0,63}"
KIND = "extractors"  # of records
FORMAT = 1  # raised when a release changes what a record means
PART = "extractor"


@dataclass(frozen=True, slots=True)
class Extractor:
    """What a caller taught under a name."""

    name: str
    owner: str | None  # who may change it; None: everybody, as there were no keys
    schema: str  # as in `DocumentOptions`
    lessons: str
    examples: int
    created_s: float  # Unix time

    def fields(self) -> dict[str, Any]:
        """As it is kept."""
        return {"format": FORMAT, **asdict(self)}

    def packed(self) -> bytes:
        return zlib.compress(orjson.dumps(self.fields()))


async def found(store: ExtractorStore, name: str) -> Extractor:
    """The extractor of this name. Raises: NotFound with the known names; Unavailable."""
    extractor = await store.get(name)
    if extractor is None:
        raise await _not_found(store, name)
    return extractor


async def _not_found(store: ExtractorStore, name: str) -> NotFound:
    known = ", ".join(one.name for one in await store.all()) or "none; PUT /v1/extractors/{name} teaches one"
    return NotFound(f"extractor: there is no '{name[:80]}'; there are: {known}", param="extractor")


def check_name(name: str) -> None:
    """Raises: InvalidField for a name that no extractor may have."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidField(
            f"name: '{name[:80]}' cannot be an extractor's; use 1 to 64 of a-z, 0-9, - and _, beginning with a letter "
            "or digit",
            param="name",
        )


def check_change(before: Extractor | None, caller: Caller) -> None:
    """Raises: Forbidden where ``caller`` may not change what there is."""
    if before is not None and not caller.may_change(before.owner):
        raise Forbidden(
            f"name: the extractor '{before.name}' was taught with another key; you may use it, but to teach your own "
            "choose another name. A key of ADMIN_KEYS may replace and delete it",
            param="name",
        )


def _unpacked(packed: bytes) -> Extractor | None:
    """None for what a later release wrote, or nobody."""
    try:
        return _of_json(zlib.decompress(packed))
    except zlib.error:
        return None


def read_extractor(file: Path) -> Extractor | None:
    """What an earlier release kept in a file; None for another one's, or nobody's."""
    try:
        return _of_json(file.read_bytes())
    except OSError:
        return None


def _of_json(content: bytes) -> Extractor | None:
    try:
        fields = orjson.loads(content)
        return Extractor(**fields) if fields.pop("format") == FORMAT else None
    except (ValueError, TypeError, KeyError):
        return None


def _owned(extractor: Extractor, before: Extractor | None, caller: Caller) -> Extractor:
    owner = before.owner if before is not None else None if caller.role == "open" else caller.owner
    return replace(extractor, owner=owner)


@dataclass(slots=True)
class ExtractorStore:
    """Keeps extractors; answers from its copies while the store is away. Belongs to the event loop."""

    records: Records
    _copies: dict[str, tuple[Version, Extractor]] = field(default_factory=dict)
    _versions: dict[str, Version] = field(default_factory=dict)  # of all that was ever there, deleted or not
    _mark: str | None = None  # of the store when the copies were last compared

    async def all(self) -> list[Extractor]:
        """All, by name. Raises: Unavailable."""
        await self._pull()
        return [self._copies[name][1] for name in sorted(self._copies)]

    async def get(self, name: str) -> Extractor | None:
        """Raises: Unavailable."""
        try:
            await self._pull()
        except Unavailable:
            if name not in self._copies:
                raise
        return self._known(name)

    async def save(self, extractor: Extractor, caller: Caller) -> Extractor:
        """Keep or replace it; one that is replaced keeps its owner. Raises: InvalidField, Forbidden, Unavailable."""
        kept = await self._replace(extractor.name, caller, lambda before: _owned(extractor, before, caller))
        assert kept is not None
        return kept

    async def delete(self, name: str, caller: Caller) -> None:
        """Raises: NotFound, Forbidden, Unavailable."""
        await found(self, name)
        await self._replace(name, caller, lambda _: None)

    async def _replace(
        self, name: str, caller: Caller, after: Callable[[Extractor | None], Extractor | None]
    ) -> Extractor | None:
        """Have ``after`` in the place of what this replica knows; what another one wrote meanwhile is checked first."""
        new: Extractor | None = None
        await self._pull()

        def replacement(_: str) -> Replacement:
            nonlocal new
            before = self._known(name)
            check_change(before, caller)
            new = after(before)
            return self._versions.get(name), b"", None if new is None else {PART: new.packed()}

        outcome = await replace_known(self.records, KIND, name, replacement, self._pull, limit=EXTRACTORS_MAX)
        if outcome is None:
            raise Unavailable(f"extractor '{name}': other replicas keep replacing it. Try again")
        if outcome.status == "full":
            full = f"name: {EXTRACTORS_MAX} extractors are kept, as many as there may be; delete one first"
            raise InvalidField(full, param="name")
        await self._pull()
        return new

    def _known(self, name: str) -> Extractor | None:
        return self._copies[name][1] if name in self._copies else None

    async def _pull(self) -> None:
        """Have what the store has. Raises: Unavailable."""
        if await self.records.mark(KIND) == self._mark:
            return
        index = await self.records.index(KIND)
        kept: dict[str, tuple[Version, Extractor]] = {}
        for name, entry in index.entries.items():
            if entry.is_deleted:
                continue
            known = self._copies.get(name)
            if known is None or known[0] != entry.version:
                packed = await self.records.part(KIND, name, entry.version, PART)
                extractor = None if packed is None else _unpacked(packed)
                known = None if extractor is None else (entry.version, extractor)
            if known is not None:
                kept[name] = known
        self._versions = {name: entry.version for name, entry in index.entries.items()}
        self._copies, self._mark = kept, index.mark
