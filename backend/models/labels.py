"""What a model calls its labels, by config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.errors import ModelUnavailable


def named_labels(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """``id2label`` by number. Raises: ModelUnavailable unless it names 0, 1, 2 and so on.

    Args:
        name: the model's, for messages.
    """
    named = config.get("id2label")
    try:
        by_number = {int(number): str(label) for number, label in named.items()} if isinstance(named, dict) else {}
    except ValueError:
        by_number = {}
    if not by_number or sorted(by_number) != list(range(len(by_number))):
        raise ModelUnavailable(f"{name}: config.json has no id2label that names every label from 0 on")
    return tuple(by_number[number] for number in range(len(by_number)))
