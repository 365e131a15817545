"""Heads of the bundled classifiers for an encoder that none was published for: learnt from the examples that ship.

Reads the examples, and keeps what was learnt in STATE_DIR under the encoder's fingerprint. Fits nothing. Every
function accesses the disk and belongs on a thread.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from backend.errors import ModelUnavailable
from backend.models.classifier_head import ClassifierHead, read_head
from backend.models.fingerprint import EncoderIdentity
from backend.text.classifier_files import Example, recover, write_folder

FOLDER = "bundled-classifiers"  # in STATE_DIR
EXAMPLES_FOLDER = "examples"  # beside the published heads
_ENCODERS_KEPT = 4  # a few hundred kilobytes each; models are swapped to and fro
_DIGEST = "examples_sha256"  # in a head's info: which examples it was learnt from


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
