"""Records in a folder of this process: a file each, which is replaced whole."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import orjson

from backend.abandoned import run_to_end
from backend.durable_files import replace_file
from backend.errors import InvalidField, Unavailable
from backend.replicas.records import TOMBSTONES_MAX, Entry, Index, Outcome, Version

T = TypeVar("T")
_SUFFIX = ".record"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_SET_ASIDE = ".before-sharing"


class FolderRecords:
    """`Records` below a folder of STATE_DIR. Belongs to the event loop; files are accessed on threads.

    A file is a line of JSON (version, sizes), the header, and the parts.
    """

    store = "folder"

    def __init__(self, folder: Path) -> None:
        self.address = self._root = folder
        self._lock = asyncio.Lock()  # of writes
        self._writes = 0

    async def mark(self, kind: str) -> str:
        return await self._on_disk(lambda: self._mark(kind))

    async def index(self, kind: str) -> Index:
        return await self._on_disk(lambda: Index(self._mark(kind), self._entries(kind)))

    async def write(
        self,
        kind: str,
        name: str,
        write_id: str,
        *,
        expected: Version | None,
        header: bytes,
        parts: Mapping[str, bytes] | None,
        limit: int = 0,
    ) -> Outcome:
        def change() -> Outcome:
            entries = self._entries(kind)
            now = entries.get(name)
            if now is not None and now.version.id == write_id:
                return Outcome("done", now)
            if (now and now.version) != expected:
                return Outcome("other", now)
            is_new = parts is not None and (now is None or now.is_deleted)
            if limit and is_new and sum(not entry.is_deleted for entry in entries.values()) >= limit:
                return Outcome("full")
            number = max((entry.version.number for entry in entries.values()), default=0) + 1
            entry = Entry(Version(number, write_id), parts is None, header)
            self._replace(kind, name, entry, parts or {})
            entries[name] = entry
            deleted = sorted((other.version.number, key) for key, other in entries.items() if other.is_deleted)
            for _, key in deleted[: max(len(deleted) - TOMBSTONES_MAX, 0)]:
                self._file(kind, key).unlink()
            return Outcome("done", entry)

        async with self._lock:
            return await self._on_disk(change)

    async def part(self, kind: str, name: str, version: Version, part: str) -> bytes | None:
        def read() -> bytes | None:
            entry, parts = _read(self._file(kind, name))
            return parts.get(part) if entry.version == version else None

        return await self._on_disk(read)

    async def add_part(self, kind: str, name: str, version: Version, part: str, value: bytes) -> bool:
        def add() -> bool:
            entry, parts = _read(self._file(kind, name))
            if entry.version != version or not parts or part in parts:
                return False
            self._replace(kind, name, entry, {**parts, part: value})
            return True

        async with self._lock:
            return await self._on_disk(add)

    async def set_aside(self, kind: str) -> None:
        """Hide the records of a kind, which are kept elsewhere now."""

        def rename() -> None:
            folder = self._root / kind
            if folder.is_dir():
                folder.rename(self._root / f"{kind}{_SET_ASIDE}.{os.urandom(4).hex()}")

        await self._on_disk(rename)

    def _mark(self, kind: str) -> str:
        try:  # the folder's time tells what another process has replaced, the count what this one has within a tick
            return f"{(self._root / kind).stat().st_mtime_ns}.{self._writes}"
        except FileNotFoundError:
            return ""

    def _entries(self, kind: str) -> dict[str, Entry]:
        files = sorted((self._root / kind).glob(f"*{_SUFFIX}"))
        return {file.stem: _read(file, only_entry=True)[0] for file in files}

    def _file(self, kind: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidField(f"name: '{name[:80]}' can be no file's", param="name")
        return self._root / kind / f"{name}{_SUFFIX}"

    def _replace(self, kind: str, name: str, entry: Entry, parts: Mapping[str, bytes]) -> None:
        """Raises: OSError; the old file is then unchanged."""
        version, sizes = entry.version, {part: len(value) for part, value in parts.items()}
        head = orjson.dumps([version.number, version.id, entry.is_deleted, len(entry.header), sizes])
        replace_file(self._file(kind, name), [head, b"\n", entry.header, *parts.values()], is_flushed=True)
        self._writes += 1

    async def _on_disk(self, act: Callable[[], T]) -> T:
        try:
            return await run_to_end(act)  # a caller that leaves keeps the lock until it is written
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise Unavailable(
                f"what is taught cannot be kept on the disk: {reason} (STATE_DIR)", retry_after_s=30.0
            ) from error


def _read(file: Path, *, only_entry: bool = False) -> tuple[Entry, dict[str, bytes]]:
    """A record. Foreign bytes are a version before all others, whose header nobody can read; no file as these."""
    try:
        with file.open("rb") as stream:
            number, version_id, is_deleted, size, sizes = orjson.loads(stream.readline())
            entry = Entry(Version(number, version_id), is_deleted, stream.read(size))
            return entry, {} if only_entry else {part: stream.read(length) for part, length in sizes.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return Entry(Version(0, ""), False, b""), {}
