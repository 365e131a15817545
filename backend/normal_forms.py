"""Unicode's normal forms in linear time, whatever the text."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

_MOST_MARKS = 30  # combining, in a row: Unicode's Stream-Safe Text Format (UAX #15) has no more
# Marks are no letters; only the two of halfwidth Katakana are, and have marks as their compatibility forms.
_MAY_BE_MARKS = re.compile(rf"(?:[^\w\s\x00-\u02ff]|[\uff9e\uff9f]){{{_MOST_MARKS + 1},}}")


def normalized(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """As `unicodedata.normalize`, without the marks of a row that come after 30 others.

    Python sorts a row of marks by insertion, with the interpreter lock held: 20,000 take 1.3 s, 60,000 12 s.
    """
    return text if text.isascii() else unicodedata.normalize(form, _MAY_BE_MARKS.sub(_shortened, text))


def _shortened(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) else 0
        if marks <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)
