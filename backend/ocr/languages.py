"""Language codes: ISO 639-1 in requests, ISO 639-2 in the names of Tesseract's files."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

DATA_SUFFIX = ".traineddata"
# Basque has the letters of Spanish. Its own data (eus, tessdata_fast 4.1.0) found 0.39 of the words of two printed
# pages, those of Spanish and English all of them.
TESSERACT_CODES = MappingProxyType({
    "af": "afr", "ar": "ara", "az": "aze", "be": "bel", "bg": "bul", "bs": "bos", "ca": "cat", "cs": "ces",
    "cy": "cym", "da": "dan", "de": "deu", "el": "ell", "en": "eng", "eo": "epo", "es": "spa", "et": "est",
    "eu": "spa", "fa": "fas", "fi": "fin", "fr": "fra", "ga": "gle", "gl": "glg", "he": "heb", "hi": "hin",
    "hr": "hrv", "hu": "hun", "id": "ind", "is": "isl", "it": "ita", "ja": "jpn", "ko": "kor", "la": "lat",
    "lb": "ltz", "lt": "lit", "lv": "lav", "mk": "mkd", "ms": "msa", "mt": "mlt", "nl": "nld", "no": "nor",
    "oc": "oci", "pl": "pol", "pt": "por", "ro": "ron", "ru": "rus", "sk": "slk", "sl": "slv", "sq": "sqi",
    "sr": "srp", "sv": "swe", "sw": "swa", "th": "tha", "tr": "tur", "uk": "ukr", "vi": "vie", "zh": "chi_sim",
})  # fmt: skip


def tesseract_code(iso: str) -> str | None:
    """The name of Tesseract's data for an ISO 639-1 code; None for a code that is not in the table."""
    return TESSERACT_CODES.get(iso)


def iso_codes(tesseract: Iterable[str]) -> tuple[str, ...]:
    """ISO 639-1 of Tesseract's data names, in order; names that are no language ("osd", scripts) are left out."""
    return tuple(iso for code in tesseract for iso, name in TESSERACT_CODES.items() if name == code)
