"""Space on the disk that is kept for deletions: SQLite writes a log before it frees anything."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BYTES = 4 * 2**20


class Reserve:
    """A file that is given up when the disk is full. Used by the writer's thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Take the space, where it is not taken yet and there is room."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, _BYTES)
                else:
                    file.write(bytes(_BYTES))
        except OSError:
            self.give_up()

    def give_up(self) -> bool:
        """False: there was none."""
        with suppress(OSError):
            self._path.unlink()
            return True
        return False
