"""Stores the card that the operator chose in a small JSON file. A bad file is logged and ignored."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.device.records import GPUInfo
from backend.durable_files import replace_json
from backend.telemetry import log_event

_log = logging.getLogger(__name__)
CHOICE_FILE = "gpu.json"  # in STATE_DIR
STATE_DIR = Path.home() / ".cache" / "financia"  # the setting's default
_VERSION = 1  # of the file's layout


@dataclass(frozen=True, slots=True)
class SavedChoice:
    """The chosen card. Only the UUID identifies it; the rest is for display."""

    uuid: str  # stable, unlike numbers, which change with reboots and CUDA_VISIBLE_DEVICES; "" on Apple
    name: str
    total_bytes: int
    driver: str  # version, "" when unknown
    chosen_at: str  # ISO 8601 with time zone

    def is_for(self, gpu: GPUInfo) -> bool:
        """Whether ``gpu`` is the chosen card; compared by name when it has no UUID (Apple)."""
        return (gpu.uuid, gpu.uuid or gpu.name) == (self.uuid, self.uuid or self.name)


def choice_of(gpu: GPUInfo, driver: str, chosen_at: str) -> SavedChoice:
    """The record that ``gpu`` was chosen at ``chosen_at``."""
    return SavedChoice(gpu.uuid, gpu.name, gpu.total_bytes, driver, chosen_at)


class ChoiceFile:
    """The JSON file of the saved choice. An unreadable, foreign or read-only file is logged and counts as empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> SavedChoice | None:
        """The saved choice, or None. Never raises for the file's content or permissions."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # RecursionError: deeply nested JSON
            self._warn("the saved choice of a GPU cannot be read; choosing anew", error)
            return None
        choice = _parse(content)
        if choice is None:
            self._warn("the file of the saved GPU is of another layout; choosing anew")
        return choice

    def save(self, choice: SavedChoice) -> bool:
        """Write ``choice``, replacing the file atomically. False when it cannot be written."""
        try:
            replace_json(self.path, {"version": _VERSION, **asdict(choice)})
        except OSError as error:
            self._warn("the choice of a GPU cannot be saved; the next start chooses anew", error)
            return False
        return True

    def forget(self) -> bool:
        """Delete the saved choice, so that the choice is automatic again. True when there was one and it is gone."""
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
