"""The record of an entity in a text, found by a model or by a pattern."""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "model"
PATTERN = "pattern"


@dataclass(frozen=True, slots=True)
class Entity:
    """One name or number in a text; ``text`` is ``caller_text[start:end]``, in Unicode code points."""

    type: str  # PER, ORG, LOC, … from a model; one of patterns.PATTERN_TYPES from a pattern
    text: str
    start: int
    end: int
    score: float  # 0 to 1: a model's mean probability; a pattern's score by form, context and checksum
    source: str  # MODEL or PATTERN
    value: str | None = None  # compact id, ISO 8601 date, decimal and currency; None where the text is ambiguous
    valid: bool | None = None  # by checksum or calendar; None where neither applies
