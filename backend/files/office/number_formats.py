"""Numbers of spreadsheet cells as text: as their format shows them, but always with a point and dates in ISO 8601."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

GENERAL = "General"
# ECMA-376, 18.8.30: what the numbers of built-in formats stand for; dates and times differ by country.
BUILT_IN: Mapping[int, str] = {
    0: GENERAL, 1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?",
    13: "# ??/??", 14: "yyyy-mm-dd", 15: "yyyy-mm-dd", 16: "mm-dd", 17: "yyyy-mm", 18: "h:mm", 19: "h:mm:ss",
    20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0", 38: "#,##0", 39: "#,##0.00", 40: "#,##0.00",
    45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss", 48: "0.0E+0", 49: "@",
}  # fmt: skip
_QUOTED = re.compile(r'"([^"]*)"|\\(.)|_.|\*.')
_CURRENCY = re.compile(r"\[\$([^\]-]*)(?:-[^\]]*)?\]")
_BRACKETS = re.compile(r"\[(?!h+\]|m+\]|s+\])[^\]]*\]", re.IGNORECASE)
_DURATION = re.compile(r"\[[hms]+\]", re.IGNORECASE)
_DECIMALS = re.compile(r"[0#?]\.([0#?]+)|^\.([0#?]+)")
_ZEROS = re.compile(r"^0{2,}$")
_SYMBOLS = "€$£¥"
_MAX_DECIMALS = 10
_LARGEST_DAY = 2_958_465  # 9999-12-31
_DAYS_TO_1904 = 1_462
_PHANTOM_DAY = 60  # 1900-02-29, which Lotus 1-2-3 thought there was


class NumberFormat(NamedTuple):
    """What matters of a format."""

    kind: str  # "general", "number", "percent", "date", "time", "datetime", "duration"
    decimals: int = 0
    before: str = ""  # a currency or words that the format adds
    after: str = ""
    digits: int = 0  # at least: 5 of a postal code


@lru_cache(maxsize=4096)
def number_format(code: str) -> NumberFormat:
    """A format by its code. Of formats for negative numbers, zero and text only the first counts."""
    section = code.split(";", maxsplit=1)[0][:200]
    if section.strip().lower() in ("general", "", "@"):
        return NumberFormat("general")
    marks = _CURRENCY.sub(lambda match: f'"{match[1]}"', section)
    bare = _BRACKETS.sub("", _QUOTED.sub("", marks))
    lowered = bare.lower()
    if _DURATION.search(lowered):
        return NumberFormat("duration")
    has_day, has_time = re.search(r"[yd]", lowered) or "mmm" in lowered, re.search(r"[hs]", lowered)
    if has_day or has_time or (lowered.strip("m ") == "" and lowered):
        kind = "datetime" if has_day and has_time else "time" if has_time else "date"
        return NumberFormat(kind)
    found = _DECIMALS.search(bare)
    decimals = min(len(found[1] or found[2]), _MAX_DECIMALS) if found else 0
    if "%" in bare:
        return NumberFormat("percent", decimals)
    if "e+" in lowered or "/" in bare or not re.search(r"[0#?]", bare):
        return NumberFormat("general")
    before, after = _words_around(marks)
    zeros = _ZEROS.match(bare.strip())
    return NumberFormat("number", decimals, before, after, len(bare.strip()) if zeros else 0)


def _words_around(section: str) -> tuple[str, str]:
    """What a format writes before and after its digits."""
    plain = _QUOTED.sub(lambda match: match[1] or match[2] or "", _BRACKETS.sub("", section))
    digits = [index for index, character in enumerate(plain) if character in "0#?"]
    before, after = plain[: digits[0]], plain[digits[-1] + 1 :]

    def kept(text: str) -> str:
        return "".join(one for one in text if one.isalpha() or one in _SYMBOLS or one in "/²³°. ").strip(" .")

    return kept(before), kept(after)


def shown(value: float, form: NumberFormat, *, is_1904: bool = False) -> str:
    """A number in its format."""
    if form.kind == "general":
        return plain_number(value)
    if form.kind == "percent":
        return f"{value * 100:.{form.decimals}f}%"
    if form.kind == "duration":
        return _duration(value)
    if form.kind in ("date", "time", "datetime"):
        return _moment(value, form.kind, is_1904=is_1904)
    text = f"{value:.{form.decimals}f}"
    if form.digits:
        text = text.zfill(form.digits)
    return " ".join(part for part in (form.before, text, form.after) if part)


def plain_number(value: float) -> str:
    """A number as the format General shows it: whole, or with up to ten significant digits."""
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    text = f"{value:.10g}"
    return f"{value:.10f}".rstrip("0") if "e-" in text and abs(value) > 1e-9 else text


def _duration(value: float) -> str:
    if abs(value) > _LARGEST_DAY:
        return plain_number(value)
    minutes, seconds = divmod(round(value * 86_400), 60)
    return f"{minutes // 60}:{minutes % 60:02d}" + (f":{seconds:02d}" if seconds else "")


def _moment(value: float, kind: str, *, is_1904: bool) -> str:
    if not 0 <= value <= _LARGEST_DAY - _DAYS_TO_1904 * is_1904:
        return plain_number(value)
    first = datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30 + (value < _PHANTOM_DAY))  # noqa: DTZ001  # a sheet's days have no zone
    moment = first + timedelta(seconds=round(value * 86_400))
    clock = moment.strftime("%H:%M:%S" if moment.second else "%H:%M")
    if kind == "time":
        return clock
    return moment.date().isoformat() + (f" {clock}" if kind == "datetime" else "")
