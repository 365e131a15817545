"""Small files that are on the disk when a call returns, and pointers that change whole. Knows nothing of training."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.durable_files import flush

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a new file; not flushed."""
    with file.open("w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1)


def digest(file: Path) -> str:
    """BLAKE2b of the content, 128 bits in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def point(pointer: Path, target: str, pending: Path) -> None:
    """Make ``pointer`` hold the name ``target``; a reader sees the old name or the new one, whenever it looks.

    Args:
        pending: name of the file that is written first, in the same folder.
    """
    pending.write_text(target + "\n", encoding="utf-8")
    flush(pending)
    pending.replace(pointer)
    flush(pointer.parent)


def pointed(pointer: Path) -> Path | None:
    """The folder beside ``pointer`` that it names; None where there is no pointer or no such folder."""
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    target = pointer.parent / name
    plain = name == target.name and name not in ("", "..")
    return target if plain and target.is_dir() else None


def is_full(error: BaseException) -> bool:
    """Whether a write failed for want of room on the disk, or of quota; safetensors tells in words alone."""
    number = getattr(error, "errno", None)
    return number in _FULL or any(f"os error {one}" in str(error) for one in _FULL)
