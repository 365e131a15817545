"""What a model is for and what it calls its labels, by config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec


def check_architecture(spec: ModelSpec, ending: str, kind: str) -> None:
    """Refuse a model of another task; one whose config.json names no architecture may be any.

    Args:
        ending: of transformers' classes for the task, e.g. "ForTokenClassification".
        kind: what such a model is, for messages.

    Raises: ModelUnavailable.
    """
    architectures = [str(name) for name in spec.config.get("architectures") or []]
    if architectures and not any(name.endswith(ending) for name in architectures):
        raise ModelUnavailable(f"{spec.name} is a {architectures[0]}, not a {kind} (…{ending})")


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
