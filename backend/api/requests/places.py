"""Places of values within a request, such as ``filters.filters[1].value``, in errors."""

from __future__ import annotations

import re
from typing import Any

from backend.api.requests.validation import TYPE_NAMES
from backend.errors import InvalidField


def param_of(place: str) -> str:
    """The request's own field in a place."""
    return re.split(r"[.\[]", place, maxsplit=1)[0]


def wrong_type_at(place: str, value: Any, expected: str) -> InvalidField:
    """The error for a value of another kind than ``expected``; it names the whole place."""
    return InvalidField(
        f"{place}: must be {expected}, got {TYPE_NAMES.get(type(value), 'null')}", param=param_of(place)
    )
