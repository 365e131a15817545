"""What was measured on this machine, kept by fingerprint in one small JSON file."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.device.json_file import replace_json
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_VERSION = 1  # of the file's layout; another one is measured anew


def fingerprint(facts: Mapping[str, object]) -> str:
    """A short name for everything a measurement depends on: model, versions, processor, threads."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class TunedSettings:
    """The file. A corrupt, foreign or unwritable one costs a new measurement, never the start."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self, key: str) -> dict[str, Any] | None:
        """What was kept under ``key``, or None."""
        entry = self._read().get(key)
        return entry if isinstance(entry, dict) else None

    def save(self, key: str, entry: Mapping[str, Any]) -> None:
        """Keep ``entry``; the file is replaced whole, so a reader never sees half of it."""
        entries = {**self._read(), key: dict(entry)}
        try:
            replace_json(self._file, {"version": _VERSION, "entries": entries})
        except OSError as error:
            log_event(
                _log, logging.WARNING, "the tuning file cannot be written; the next start measures again", reason=error
            )

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log_event(_log, logging.WARNING, "the tuning file cannot be read; measuring again", reason=error)
            return {}
        if (
            not isinstance(content, dict)
            or content.get("version") != _VERSION
            or not isinstance(content.get("entries"), dict)
        ):
            log_event(_log, logging.WARNING, "the tuning file is of another layout; measuring again", file=self._file)
            return {}
        entries: dict[str, Any] = content["entries"]
        return entries
