"""Names of languages: ISO 639-1 as requests say them, ISO 639-2 as Tesseract's files are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType

TESSERACT_CODES = MappingProxyType({
    "af": "afr", "ar": "ara", "az": "aze", "be": "bel", "bg": "bul", "bs": "bos", "ca": "cat", "cs": "ces",
    "cy": "cym", "da": "dan", "de": "deu", "el": "ell", "en": "eng", "eo": "epo", "es": "spa", "et": "est",
    "eu": "eus", "fa": "fas", "fi": "fin", "fr": "fra", "ga": "gle", "gl": "glg", "he": "heb", "hi": "hin",
    "hr": "hrv", "hu": "hun", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ko": "kor", "la": "lat",
    "lb": "ltz", "lt": "lit", "lv": "lav", "mk": "mkd", "ms": "msa", "mt": "mlt", "nl": "nld", "no": "nor",
    "oc": "oci", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus", "sk": "slk", "sl": "slv", "sq": "sqi",
    "sr": "srp", "sv": "swe", "sw": "swa", "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi_sim",
})  # fmt: skip
_ISO_CODES = MappingProxyType({tesseract: iso for iso, tesseract in TESSERACT_CODES.items()})
_SEPARATORS = re.compile(r"[\s,+;]+")


def iso_code(name: str) -> str | None:
    """ISO 639-1 of "es", "ES", "es-MX" or Tesseract's "spa"; None for a language that is not in the table."""
    name = name.strip().lower()
    if name in _ISO_CODES:
        return _ISO_CODES[name]
    primary = re.split(r"[-_]", name, maxsplit=1)[0]
    if primary in TESSERACT_CODES:
        return primary
    return _ISO_CODES.get(primary)


def tesseract_code(iso: str) -> str | None:
    """The name of Tesseract's data for an ISO 639-1 code; None where the table has none."""
    return TESSERACT_CODES.get(iso)


def iso_codes(tesseract: Iterable[str]) -> tuple[str, ...]:
    """ISO 639-1 of those data that are a language of the table, in their order; "osd" and scripts are left out."""
    return tuple(_ISO_CODES[code] for code in tesseract if code in _ISO_CODES)


def split_languages(wish: str) -> tuple[str, ...]:
    """The names in "es", "es,en" or Tesseract's "spa+eng", in their order, each once; not checked against anything."""
    return tuple(dict.fromkeys(name for name in _SEPARATORS.split(wish.strip()) if name))
