"""Folders of learnt classifiers, replaced atomically; their examples as bytes; the bundled ones for other encoders.

Every function accesses the disk and belongs on a thread. Fits nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.durable_files import flush
from backend.errors import ModelUnavailable
from backend.models.classifier_head import ClassifierHead, read_head, write_head
from backend.models.fingerprint import EncoderIdentity

EXAMPLES = "examples.jsonl"
FOLDER = "bundled-classifiers"  # in STATE_DIR
EXAMPLES_FOLDER = "examples"  # beside the published heads
_ENCODERS_KEPT = 4  # a few hundred kilobytes each; models are swapped to and fro
_DIGEST = "examples_sha256"  # in a head's info: which examples it was learnt from
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


@dataclass(frozen=True, slots=True)
class BundledHeads:
    """The examples of the bundled classifiers, and the heads that were learnt from them here."""

    bundled: Path  # folder of the published heads
    state_dir: Path

    def has_examples(self, name: str) -> bool:
        """Whether examples of this classifier ship."""
        return self._file(name).is_file()

    def examples(self, name: str) -> list[Example]:
        """The examples, English and Spanish, in their order. Raises: ModelUnavailable."""
        try:
            rows = [json.loads(line) for line in self._file(name).read_text(encoding="utf-8").splitlines()]
            return [Example(str(row["text"]), (str(row["label"]),)) for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelUnavailable(f"the examples of the classifier {name} cannot be read: {error!r}") from error

    def read(self, name: str, encoder: EncoderIdentity) -> ClassifierHead | None:
        """The head that was learnt for this encoder; None where there is none, or the examples are others today."""
        try:
            recover(self._folder(encoder))
            head = read_head(self._folder(encoder) / name)
        except (OSError, ModelUnavailable):
            return None
        is_current = head.trained_on == encoder and head.info.get(_DIGEST) == self._digest(name)
        return head if is_current else None

    def keep(self, head: ClassifierHead) -> None:
        """Write a head that was just learnt, and drop those of encoders not seen lately. Raises: OSError."""
        root = self._folder(head.trained_on)
        write_folder(root, head.name, head)
        root.touch()
        others = sorted(self._root.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in others[_ENCODERS_KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)

    def info(self, name: str) -> dict[str, str]:
        """What a head learnt from today's examples carries in its ``info``."""
        return {_DIGEST: self._digest(name)}

    @property
    def _root(self) -> Path:
        return self.state_dir / FOLDER

    def _folder(self, encoder: EncoderIdentity) -> Path:
        return self._root / (encoder.fingerprint or encoder.sha256)[:16]

    def _file(self, name: str) -> Path:
        return self.bundled / EXAMPLES_FOLDER / f"{name}.jsonl"

    def _digest(self, name: str) -> str:
        try:
            return hashlib.sha256(self._file(name).read_bytes()).hexdigest()
        except OSError:
            return ""
