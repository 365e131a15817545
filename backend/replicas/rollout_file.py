"""What a replica remembers of wished models on its disk: the last ones it saw, and loads that ended its process."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from backend.durable_files import replace_json
from backend.replicas.records import Entry, Version, new_id
from backend.telemetry import log_event

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = "wished-models"  # in STATE_DIR
_log = logging.getLogger(__name__)


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
        self._replace(
            self.root / "last.json",
            {
                task: {
                    "number": entry.version.number,
                    "id": entry.version.id,
                    "deleted": entry.is_deleted,
                    "header": entry.header.decode(errors="replace"),
                }
                for task, entry in entries.items()
            },
        )

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

    def _replace(self, file: Path, record: Mapping[str, object]) -> None:
        try:
            replace_json(file, record)
        except OSError as error:
            self._refused(error)

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
