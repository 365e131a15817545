"""Escaping, numbers and language tags for XML and HTML, and the direction of text."""

from __future__ import annotations

import re
import unicodedata

# Characters that XML 1.0 forbids (https://www.w3.org/TR/xml/#charsets), and those that must be references in an
# attribute: a literal line break there would be read as a blank (#AVNormalize).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)
_UNSAFE = re.compile("[^ !#-%(-;=?-~\xa1-\u2fff]")
_LANGUAGE = re.compile(r"[a-zA-Z]{1,8}(-[a-zA-Z0-9]{1,8})*")


def escaped(text: str) -> str:
    """Escape text for an element or a quoted attribute of XML 1.0 and HTML; forbidden characters are removed."""
    if _UNSAFE.search(text) is None:
        return text
    return _FORBIDDEN.sub("", text).translate(_REFERENCES)


def number(value: float, digits: int = 2) -> str:
    """Format without an exponent or trailing zeros: "12", "12.5"."""
    fixed = f"{value:.{digits}f}"
    short = fixed.rstrip("0").rstrip(".") if "." in fixed else fixed
    return "0" if short == "-0" else short


def language_tag(language: str | None) -> str | None:
    """The language if it is a valid `xsd:language` and HTML ``lang``, else None."""
    return language if language and _LANGUAGE.fullmatch(language) else None


def is_right_to_left(text: str) -> bool:
    """Whether the first character with a strong direction is right-to-left (Unicode TR 9, rule P2)."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("R", "AL"):
            return True
        if direction == "L":
            return False
    return False
