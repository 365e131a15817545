"""Checks of request values. Their errors name the field, what is wrong with it, what was got, and the limit."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from backend.api.dependencies import ApiLimits
from backend.errors import BadInput, InvalidField, TooLarge

Texts = list[str]
TokenIds = list[list[int]]
# Characters that stand for whole phrases, and how many letters of them tokenizers read: a million of the first took 8 s
# and 2 GB, twelve times as long as prose. Any other stands for six at most, two a byte of the body.
_PHRASES = {"\ufdfa": 18, "\ufdfb": 8}
LABEL_CHARS = 500  # of a label: a name, or a description short enough for every model that reads labels
_NUMBER = re.compile(r"[0-9.eE+-]{1,40}")
TYPE_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def number_of(text: str) -> float:
    """A number as JSON and HTTP write it; NaN for anything else, also for what Python reads: 1_0, inf, " 1"."""
    try:
        return float(text) if _NUMBER.fullmatch(text) else math.nan
    except ValueError:
        return math.nan


def wrong_type(place: str, value: Any, expected: str) -> InvalidField:
    """The error for a value of another kind than ``expected``; ``place`` is a field or ``field[index]``."""
    got = TYPE_NAMES.get(type(value), "null")
    return InvalidField(f"{place}: must be {expected}, got {got}", param=place.partition("[")[0])


def require_no_empty_items(inputs: Sequence[Any], name: str) -> None:
    """Raise BadInput (400) for an empty text or list of ids, as OpenAI and text-embeddings-inference both do.

    All empty texts have the same vector, which only spoils an index; and an empty text has no class and no relevance.
    """
    if not all(inputs):
        place = f"{name}[{next(index for index, text in enumerate(inputs) if not text)}]" if len(inputs) > 1 else name
        raise BadInput(f"{place}: must not be empty; leave empty texts out of the request", param=name)


def require_not_empty(value: Any, name: str, advice: str = "") -> None:
    """Raise BadInput (400) for an empty list."""
    if not value:
        raise BadInput(f"{name}: must not be an empty list{advice}", param=name)


def require_texts(value: Collection[Any], name: str) -> None:
    """Raise InvalidField (422) for the first item that is no text."""
    if set(map(type, value)) - {str}:
        index, other = next((index, item) for index, item in enumerate(value) if type(item) is not str)
        raise wrong_type(f"{name}[{index}]", other, "a text")


def check_limits(inputs: Texts | TokenIds, limits: ApiLimits, param: str) -> int:
    """The characters of all inputs, or their token ids.

    Raises: TooLarge (413) for more inputs than LIMIT_INPUTS or a text longer than LIMIT_TEXT_CHARS.
    """
    check_count(inputs, limits, param)
    return check_chars(inputs, limits, param)


def check_chars(inputs: Texts | TokenIds, limits: ApiLimits, param: str) -> int:
    """The characters of all inputs, as many as are read of them. Raises: TooLarge (413) for more than LIMIT_TEXT_CHARS.

    Token ids are counted alike; the service limits them.
    """
    lengths = [_read_chars(text) if isinstance(text, str) else len(text) for text in inputs]
    if max(lengths) > limits.text_chars and type(inputs[0]) is str:
        index, length = next((index, length) for index, length in enumerate(lengths) if length > limits.text_chars)
        place = f"{param}[{index}]" if len(inputs) > 1 else param
        advice = "" if length == len(inputs[index]) else "U+FDFA and U+FDFB count as the phrases they stand for."
        raise TooLarge(f"{place} characters", length, limits.text_chars, "LIMIT_TEXT_CHARS", advice=advice, param=param)
    return sum(lengths)


def _read_chars(text: str) -> int:
    """Characters of a text; those of ``_PHRASES`` for as many as a tokenizer reads in their place."""
    if text.isascii():
        return len(text)
    return len(text) + sum((read - 1) * text.count(phrase) for phrase, read in _PHRASES.items())


def check_count(inputs: Sequence[Any], limits: ApiLimits, param: str) -> None:
    """Raise TooLarge (413) for more inputs than LIMIT_INPUTS."""
    if len(inputs) > limits.inputs:
        raise TooLarge(param, len(inputs), limits.inputs, "LIMIT_INPUTS", advice="Send several requests.", param=param)


def check_labels(labels: Collection[str] | None, limits: ApiLimits, param: str = "labels") -> None:
    """Raise TooLarge (413) for more labels than LIMIT_LABELS."""
    if labels is not None and len(labels) > limits.labels:
        advice = "Group them, or ask for them in several requests."
        raise TooLarge(param, len(labels), limits.labels, "LIMIT_LABELS", advice=advice, param=param)


def require_two_labels(labels: Sequence[str] | None, remedy: str = "") -> None:
    """Raise InvalidField (422) for one label alone. ``remedy`` is what else would help, beginning with ", or"."""
    if labels is not None and len(labels) == 1:
        raise InvalidField(
            f"labels: one label alone would always win with score 1; give a second one such as 'other'{remedy}",
            param="labels",
        )


def require_one_name(model: str | None, classifier_id: str | None) -> None:
    """Raise InvalidField where the two words for a classifier's name say different ones."""
    if None not in (model, classifier_id) and model != classifier_id:
        raise InvalidField(
            "classifier_id: says the same as model, but here another name; send one of them", param="classifier_id"
        )


def require_labels(value: Sequence[Any], name: str) -> None:
    """Raise BadInput (400) or InvalidField (422) for labels that are no texts, empty, too long or duplicates."""
    require_texts(value, name)
    seen: dict[str, int] = {}
    for index, label in enumerate(value):
        stripped = label.strip()
        if not stripped:
            raise BadInput(f"{name}[{index}]: must not be empty", param=name)
        if len(label) > LABEL_CHARS:
            raise InvalidField(
                f"{name}[{index}]: a label is a name of at most {LABEL_CHARS} characters, got {len(label)}", param=name
            )
        if stripped in seen:
            raise InvalidField(
                f"{name}[{index}]: {stripped!r} is there twice, as {name}[{seen[stripped]}] too; leave one out",
                param=name,
            )
        seen[stripped] = index
