"""How text stands in XML and HTML, and which way it is read."""

from __future__ import annotations

import re
import unicodedata

# What XML 1.0 has no place for (https://www.w3.org/TR/xml/#charsets), and what would end an attribute or be folded
# in one: a line break there is read as a blank (#AVNormalize) unless it is written as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
)
_NEEDS_CARE = re.compile("[^ !#-%(-;=?-~\xa1-\u2fff]")
_LANGUAGE = re.compile(r"[a-zA-Z]{1,8}(-[a-zA-Z0-9]{1,8})*")


def escaped(text: str) -> str:
    """A text for an element or a quoted attribute of XML 1.0 and HTML; characters that XML forbids are left out."""
    if _NEEDS_CARE.search(text) is None:
        return text
    return _FORBIDDEN.sub("", text).translate(_REFERENCES)


def number(value: float, digits: int = 2) -> str:
    """A number without an exponent or zeros that say nothing: "12", "12.5"."""
    written = f"{value:.{digits}f}"
    short = written.rstrip("0").rstrip(".") if "." in written else written
    return "0" if short == "-0" else short


def language_tag(language: str | None) -> str | None:
    """A language that `xsd:language` and HTML's ``lang`` accept, or None."""
    return language if language and _LANGUAGE.fullmatch(language) else None


def is_right_to_left(text: str) -> bool:
    """Whether the first letter that has a direction is read from the right (Unicode TR 9, rule P2)."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("R", "AL"):
            return True
        if direction == "L":
            return False
    return False
