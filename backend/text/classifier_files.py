"""Folders of learnt classifiers, replaced atomically, and examples as bytes."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.durable_files import flush
from backend.errors import ModelUnavailable
from backend.models.classifier_head import ClassifierHead, write_head

EXAMPLES = "examples.jsonl"
_OWNER = "owner"
_OLD = ".old"
_HIDDEN = "."  # prefix of folders being written or replaced; no classifier's name begins with it


@dataclass(frozen=True, slots=True)
class Example:
    """A text and its labels: one, or any number for a multi-label classifier."""

    text: str
    labels: tuple[str, ...]


def write_folder(root: Path, name: str, head: ClassifierHead) -> None:
    """Write or replace ``root/name``; after a crash it is the old one or the new one.

    Raises: OSError; the old one is then unchanged.
    """
    root.mkdir(parents=True, exist_ok=True)
    written = Path(tempfile.mkdtemp(dir=root, prefix=f"{_HIDDEN}{name}{_HIDDEN}"))
    try:
        write_head(written, head)
        for file in written.iterdir():
            flush(file)
        _swap(written, root / name)
    except OSError:
        shutil.rmtree(written, ignore_errors=True)
        raise


def recover(root: Path) -> None:
    """After a crash: restore folders that were moved aside and not replaced. Else, or without ``root``, a no-op."""
    if not root.is_dir():
        return
    for aside in sorted(root.glob(f"{_HIDDEN}*{_OLD}")):
        target = root / aside.name.removeprefix(_HIDDEN).removesuffix(_OLD)
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(target)


def folders(root: Path) -> list[Path]:
    """The folders of complete classifiers, by name."""
    if not root.is_dir():
        return []
    return sorted(folder for folder in root.iterdir() if folder.is_dir() and folder.name[0] != _HIDDEN)


def read_examples(folder: Path) -> list[Example]:
    """The examples of a classifier that an earlier release has taught, in their order. Raises: ModelUnavailable."""
    try:
        return list(_parse_examples(folder / EXAMPLES))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{folder.name} has no readable {EXAMPLES}: {error!r}") from error


def read_owner(folder: Path) -> str | None:
    """Who may change the classifier; None where that is not known."""
    try:
        return (folder / _OWNER).read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def pack_examples(examples: Sequence[Example]) -> bytes:
    """Examples as compressed JSON lines."""
    return zlib.compress("".join(_lines(examples)).encode("ascii"), level=6)


def unpack_examples(packed: bytes) -> list[Example]:
    """What ``pack_examples`` has packed. Raises: ModelUnavailable."""
    try:
        return list(_parse(zlib.decompress(packed).decode("ascii").splitlines()))
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{len(packed)} bytes are no examples of a classifier: {error!r}") from error


def _swap(written: Path, target: Path) -> None:
    aside = _aside(target)
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)  # no system replaces a folder that has files; ``recover`` undoes half a swap
    try:
        written.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    flush(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f"{_HIDDEN}{target.name}{_OLD}")


def _lines(examples: Sequence[Example]) -> Iterator[str]:
    for example in examples:  # ASCII: lone surrogates survive
        yield json.dumps({"text": example.text, "labels": list(example.labels)}) + "\n"


def _parse_examples(file: Path) -> Iterator[Example]:
    with file.open(encoding="utf-8") as stream:
        yield from _parse(stream)


def _parse(lines: Iterable[str]) -> Iterator[Example]:
    for line in lines:
        row = json.loads(line)
        yield Example(str(row["text"]), tuple(str(label) for label in row["labels"]))
