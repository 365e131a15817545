"""Results of the start's measurements (batch sizes, precision), cached by fingerprint in one small JSON file."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.durable_files import replace_json
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
_VERSION = 1  # of the file's layout; a file of another version is ignored


def fingerprint(facts: Mapping[str, object]) -> str:
    """A short hash of everything a measurement depends on: model, versions, processor, threads."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class TuningCache:
    """The cache file. When it is corrupt, foreign or read-only, the start measures again; it never fails for it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def load(self, key: str) -> dict[str, Any] | None:
        """The entry of ``key``, or None."""
        entry = self._read().get(key)
        return entry if isinstance(entry, dict) else None

    def save(self, key: str, entry: Mapping[str, Any]) -> None:
        """Add or replace the entry of ``key``; the file is replaced atomically. A failed write is only logged."""
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
        if isinstance(content, dict) and content.get("version") == _VERSION:
            entries = content.get("entries")
            if isinstance(entries, dict):
                return entries
        log_event(_log, logging.WARNING, "the tuning file is of another layout; measuring again", file=self._file)
        return {}
