"""File writes that survive a crash: waiting for the disk, and replacing a file in one step."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
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


def replace_file(file: Path, pieces: Iterable[bytes], *, is_flushed: bool) -> None:
    """Write bytes to a temporary file and rename it over ``file``: concurrent readers never see half of them.

    Args:
        is_flushed: whether the disk has them, and the new name, before this returns.

    Raises: OSError; ``file`` is then unchanged, and no temporary file is left.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=file.parent, prefix=file.name, delete=False) as stream:
        temporary = Path(stream.name)
        try:
            stream.writelines(pieces)
            stream.flush()
            if is_flushed:
                os.fsync(stream.fileno())
            temporary.replace(file)
        except OSError:
            temporary.unlink()
            raise
    if is_flushed:
        flush(file.parent)


def replace_json(file: Path, record: Mapping[str, Any]) -> None:
    """`replace_file` with a record, which the disk need not have yet. Raises: OSError."""
    replace_file(file, [json.dumps(record, indent=1).encode()], is_flushed=False)
