"""Which characters RapidOCR's recogniser may answer with, by the languages of a page."""

from __future__ import annotations

from collections.abc import Sequence

_TYPOGRAPHY = range(0x2010, 0x2040)  # dashes, typographic quotes, daggers, bullets, per mille
_SYMBOLS = frozenset("€™№")  # what Latin print uses beside
_LATIN_END = 0x250  # Latin Extended-B ends before it
_LATIN_LANGUAGES = (
    *("af", "az", "bs", "ca", "cs", "cy", "da", "de", "en", "eo", "es", "et", "eu", "fi", "fr", "ga", "gl", "hr", "hu"),
    *("id", "is", "it", "la", "lb", "lt", "lv", "ms", "mt", "nl", "no", "oc", "pl", "pt", "ro", "sk", "sl", "sq", "sv"),
    *("sw", "tr"),
)
# Beyond Latin print: Vietnamese, whose letters stand in a block of their own, Chinese and Japanese.
LANGUAGES = tuple(sorted([*_LATIN_LANGUAGES, "ja", "vi", "zh"]))  # ISO 639-1, as PP-OCRv6 lists them


def is_latin_print(languages: Sequence[str]) -> bool:
    """Whether the recogniser with Latin characters alone serves these languages."""
    return all(one in _LATIN_LANGUAGES for one in languages)


def is_latin(character: str) -> bool:
    """Whether Latin print uses it; CTC's blank, written as "", is used by all."""
    return all(ord(one) < _LATIN_END or ord(one) in _TYPOGRAPHY or one in _SYMBOLS for one in character)
