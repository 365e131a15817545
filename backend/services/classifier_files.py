"""A learnt classifier on the disk: its head and the examples it was learnt from, replaced whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.durable_files import flush
from backend.errors import ModelUnavailable
from backend.models.classifier_head import ClassifierHead, write_head

EXAMPLES = "examples.jsonl"
_OLD = ".old"
_HIDDEN = "."  # no classifier's name begins with it: folders being written, and the one that is being replaced


@dataclass(frozen=True, slots=True)
class Example:
    """A text and the labels it has: one, or any number where labels may go together."""

    text: str
    labels: tuple[str, ...]


def write_folder(root: Path, name: str, head: ClassifierHead, examples: Sequence[Example]) -> None:
    """Put ``root/name`` in place of what was there; after a crash it is the old one or the new one.

    Raises: OSError; what was there is then as it was.
    """
    root.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=root, prefix=f"{_HIDDEN}{name}{_HIDDEN}"))
    try:
        write_head(made, head)
        _write_examples(made / EXAMPLES, examples)
        for file in made.iterdir():
            flush(file)
        _swap(made, root / name)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise


def recover(root: Path) -> None:
    """After a crash: bring back what was moved aside and not replaced. Does nothing otherwise, or without a folder."""
    if not root.is_dir():
        return
    for aside in sorted(root.glob(f"{_HIDDEN}*{_OLD}")):
        target = root / aside.name.removeprefix(_HIDDEN).removesuffix(_OLD)
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(target)


def folders(root: Path) -> list[Path]:
    """Those of whole classifiers, by name."""
    return sorted(one for one in root.iterdir() if one.is_dir() and one.name[0] != _HIDDEN) if root.is_dir() else []


def remove_folder(root: Path, name: str) -> None:
    """Take a classifier away, whole. Raises: OSError."""
    target, aside = root / name, _aside(root / name)
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    shutil.rmtree(aside)


def read_examples(folder: Path) -> list[Example]:
    """What a classifier was learnt from, in its order. Raises: ModelUnavailable."""
    try:
        return list(_examples(folder / EXAMPLES))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"{folder.name} has no readable {EXAMPLES}: {error!r}") from error


def _swap(made: Path, target: Path) -> None:
    aside = _aside(target)
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)  # no system replaces a folder that has files; ``recover`` undoes half a swap
    try:
        made.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    flush(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(target: Path) -> Path:
    return target.with_name(f"{_HIDDEN}{target.name}{_OLD}")


def _write_examples(file: Path, examples: Sequence[Example]) -> None:
    with file.open("w", encoding="utf-8") as stream:
        for one in examples:
            json.dump({"text": one.text, "labels": list(one.labels)}, stream)  # ASCII: lone surrogates survive
            stream.write("\n")


def _examples(file: Path) -> Iterator[Example]:
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            row = json.loads(line)
            yield Example(str(row["text"]), tuple(str(label) for label in row["labels"]))
