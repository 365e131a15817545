"""File writes that survive a crash: waiting for the disk, and replacing a small JSON file in one step."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def flush(path: Path) -> None:
    """Fsync a file or a folder's list of names; folders are skipped on Windows, which cannot and need not sync them."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_json(file: Path, record: Mapping[str, Any]) -> None:
    """Write ``record`` to a temporary file and rename it over ``file``: concurrent readers never see half of it.

    Atomic, but not synced to disk.

    Raises: OSError; ``file`` is then unchanged, and no temporary file is left.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=file.name, delete=False) as stream:
        temporary = Path(stream.name)
        try:
            json.dump(record, stream, indent=1)
            stream.flush()
            temporary.replace(file)
        except OSError:
            temporary.unlink()
            raise
