"""This replica's copies of taught classifiers that all replicas share: used while the store is away, and to restore it.

Several replicas may have one folder (a volume of all): a lock keeps them apart, and the newest version stays.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backend.models.classifier_head import CONFIG, ClassifierHead
from backend.replicas.records import TOMBSTONES_MAX, Version
from backend.telemetry import log_event
from backend.text.classifier_files import (
    Example,
    locked,
    read_deletions,
    read_version,
    remove_folder,
    set_aside,
    write_deletions,
    write_folder,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """One version of a classifier, as all replicas have it."""

    version: Version
    owner: str | None
    examples: Sequence[Example]
    head: ClassifierHead | None  # None: still to be learnt for this replica's embedding model


@dataclass(slots=True)
class CopyFolder:
    """Writes copies and remembers deletions. Every method accesses the disk and belongs on a thread, one at a time.

    A disk that refuses is logged: the store has everything, this replica has it in memory.
    """

    root: Path
    deletions: dict[str, Version] = field(default_factory=dict)
    unkept: dict[str, Copy] = field(default_factory=dict)  # what the disk refused

    def read(self) -> None:
        """Read the deletions that were seen before."""
        self.deletions |= read_deletions(self.root)

    def keep(self, name: str, copy: Copy) -> None:
        """Write it, unless there is a newer one, or the same with its head. What only this replica had gives way."""
        self.deletions.pop(name, None)
        self.unkept.pop(name, None)
        try:
            with locked(self.root):
                folder = self.root / name
                before = read_version(folder)
                if before is None and folder.exists():
                    log_event(
                        _log,
                        logging.WARNING,
                        "a classifier of this replica alone gives way to the shared one",
                        name=name,
                        kept_in=set_aside(self.root, name).name,
                    )
                is_whole = copy.head is None or (folder / CONFIG).exists()
                if before is not None and (before > copy.version or (before == copy.version and is_whole)):
                    return
                write_folder(self.root, name, copy.head, copy.examples, copy.owner, version=copy.version)
                self._write_deletions()
        except OSError as error:
            self.unkept[name] = copy
            self._refused(name, error)

    def adopt(self, name: str, copy: Copy) -> None:
        """Give what only this replica had the version that all know it by from now on."""
        try:
            with locked(self.root):
                if read_version(self.root / name) is None:
                    write_folder(self.root, name, copy.head, copy.examples, copy.owner, version=copy.version)
        except OSError as error:
            self.unkept[name] = copy
            self._refused(name, error)

    def delete(self, name: str, version: Version | None) -> None:
        """Remove a copy that was deleted, and remember its ``version``; None: nobody remembers it any more."""
        if version is not None:
            self.deletions[name] = version
        else:
            self.deletions.pop(name, None)
        self.unkept.pop(name, None)
        try:
            with locked(self.root):
                before = read_version(self.root / name)
                if before is not None and (version is None or before < version):
                    remove_folder(self.root, name)
                elif before is None and (self.root / name).exists():
                    set_aside(self.root, name)
                self._write_deletions()
        except OSError as error:
            self._refused(name, error)

    def _write_deletions(self) -> None:
        for name in sorted(self.deletions, key=self.deletions.__getitem__)[:-TOMBSTONES_MAX]:
            del self.deletions[name]
        if self.deletions or read_deletions(self.root):
            write_deletions(self.root, self.deletions)

    def _refused(self, name: str, error: OSError) -> None:
        reason = error.strerror or type(error).__name__
        log_event(_log, logging.WARNING, "no copy of a classifier can be kept on the disk", name=name, reason=reason)
