"""Where a text has spaces, and how wide it is: Chinese and Japanese write none, in letters twice as wide. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Ideographs, kana, and the punctuation that goes with them. Thai and its neighbours do part their phrases by spaces.
_WIDE = re.compile(
    "[\u2e80-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff]"
)


def gap(before: str, after: str) -> str:
    """What stands between two texts that follow each other: a space, or nothing between wide letters."""
    if not before or not after:
        return ""
    return "" if _WIDE.match(before[-1]) and _WIDE.match(after[0]) else " "


def joined(texts: Iterable[str]) -> str:
    """Texts in their order as one."""
    parts: list[str] = []
    for text in filter(None, texts):
        parts += [gap(parts[-1] if parts else "", text), text]
    return "".join(parts)


def width(text: str) -> int:
    """Columns that a text takes: wide letters take two."""
    return len(text) + len(_WIDE.findall(text))
