"""Which page of a file a request wants as an image, and how fine."""

from __future__ import annotations

from backend.api.requests.validation import number_of
from backend.errors import InvalidField

_DPI = (10.0, 110.0, 300.0)  # least, usual, most


def page_number(text: str) -> int:
    """A page's number in a path. Raises: InvalidField."""
    if not (text.isascii() and text.isdigit() and len(text) < 7 and int(text) > 0):
        raise InvalidField(f"number: must be a page's number from 1, got '{text[:40]}'", param="number")
    return int(text)


def dots_per_inch(text: str | None) -> float:
    """The query's ``dpi``. Raises: InvalidField."""
    least, usual, most = _DPI
    if text is None:
        return usual
    dpi = number_of(text)
    if not least <= dpi <= most:
        raise InvalidField(f"dpi: must be a number from {least:g} to {most:g}, got '{text[:40]}'", param="dpi")
    return dpi


NUMBER_PARAMETER = {
    "name": "number",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999},
    "example": 1,
}
DPI_PARAMETER = {
    "name": "dpi",
    "in": "query",
    "schema": {"type": "number", "minimum": _DPI[0], "maximum": _DPI[2], "default": _DPI[1]},
}
