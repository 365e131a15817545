"""The card that somebody chose on this machine, kept as one small JSON file; a bad file costs a warning, no start."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.device.json_file import replace_json
from backend.device.records import GPUInfo
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
CHOICE_FILE = "gpu.json"  # in STATE_DIR
_VERSION = 1  # of the file's layout


@dataclass(frozen=True, slots=True)
class SavedChoice:
    """A choice and what the card was then. Only the UUID decides; the rest is for people."""

    uuid: str  # numbers change with every reboot and with CUDA_VISIBLE_DEVICES; this does not
    name: str
    total_bytes: int
    driver: str  # its version, "" where none told
    chosen_at: str  # ISO 8601 with its zone


def choice_of(gpu: GPUInfo, driver: str, chosen_at: str) -> SavedChoice:
    """The record of choosing ``gpu`` now."""
    return SavedChoice(gpu.uuid, gpu.name, gpu.total_bytes, driver, chosen_at)


class ChoiceFile:
    """The file. Unreadable, foreign or unwritable, it is as if nobody had chosen, and the log says so."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> SavedChoice | None:
        """What was chosen, or None. Never raises for what the file holds or who owns it."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # RecursionError: json on a thousand brackets
            self._warn("the saved choice of a GPU cannot be read; choosing anew", error)
            return None
        choice = _parse(content)
        if choice is None:
            self._warn("the file of the saved GPU is of another layout; choosing anew")
        return choice

    def save(self, choice: SavedChoice) -> bool:
        """Keep ``choice``; the file is replaced whole, so a reader never sees half of it. False when it cannot be."""
        try:
            replace_json(self.path, {"version": _VERSION, **asdict(choice)})
        except OSError as error:
            self._warn("the choice of a GPU cannot be saved; the next start chooses anew", error)
            return False
        return True

    def forget(self) -> bool:
        """Back to the automatic choice. True when there was one to forget and it is gone."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            self._warn("the saved choice of a GPU cannot be removed", error)
            return False
        return True

    def _warn(self, event: str, reason: object = "") -> None:
        log_event(_log, logging.WARNING, event, file=self.path, **({"reason": reason} if reason else {}))


def _parse(content: Any) -> SavedChoice | None:
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return None
    texts = [content.get(key) for key in ("uuid", "name", "driver", "chosen_at")]
    total = content.get("total_bytes")
    if not all(isinstance(text, str) for text in texts) or isinstance(total, bool) or not isinstance(total, int):
        return None
    return SavedChoice(content["uuid"], content["name"], total, content["driver"], content["chosen_at"])
