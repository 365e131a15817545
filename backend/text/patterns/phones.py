"""Telephone numbers, validated with Google's libphonenumber.

``value`` is E.164 ("+34912345678") where the country is known: by its prefix, or because only one country groups digits
in this way. ``valid`` stays None: a numbering plan tells which numbers exist, not whether one was copied correctly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from phonenumbers import NumberParseException, is_valid_number, parse

from backend.text.patterns.pattern import CLEAR, LIKELY, SURE, WEAK, Pattern, PatternMatch, has_before, matches

# Where a number may begin: not inside another number, a code or an amount.
_ANCHOR = re.compile(r"[+(\d](?<![\w+/$€£@#].)(?<!\d[.,:-].)(?<![^\W\d_]-.)(?=[\d ().\-/]{5})")
_SEP = r"[ .\-/]"
_FORMATS = re.compile(
    r"(?:"
    # An international prefix, then groups; the numbering plan tells where the number ends.
    rf"(?P<world>(?:\+ ?|00 ?)[1-9]\d{{0,2}}(?:[ .\-/]{{0,2}}(?:\(\d{{1,4}}\)|\d{{1,4}})){{1,8}}+)"
    # Spain: 612 345 678, 612 34 56 78, 91 234 56 78, 91 2345678, 912345678; "34 93 …" with the plus sign lost.
    rf"|(?P<es>(?:\(?34\)?[ \-]{{1,3}})?(?:[6789]\d\d{_SEP}\d{{3}}{_SEP}\d{{3}}|[6789]\d\d(?:{_SEP}\d\d){{3}}"
    rf"|\(?[89]\d\)?{_SEP}{{1,2}}\d{{3}}{_SEP}\d\d{_SEP}\d\d|\(?9\d\d?\)?[ \-]\d{{6,7}}"
    rf"|[6789]\d\d[ ]\d{{6}}|[6789]\d{{8}}))"
    r"|(?P<us>(?:1[-. ])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d[-.])[2-9]\d\d[-. ]\d{4})"
    r"|(?P<gb>(?:\(0\d{2,4}\)|0\d{2,4})[ \-]\d{3,4}[ \-]?\d{3,4})"
    r"|(?P<any>\d(?:[ .\-]?\d){5,14}+)"
    r")(?![\w@]|[.,/:-]\d)(?! ?[€$£%])"
)
_CUE = re.compile(
    r"\b(?:tel|telf|tfno?|tlfn?o?|telefono?s?|telephone|phone|ph|movil(?:es)?|mobile|mob|cell|fax"
    r"|whatsapp|call|ll?ame(?:nos)?|llamar|centralita"
    r"|contacto|contact)\b(?:[ ]?(?:no?|num(?:ero)?|number|fijo|movil|us|al|at|de contacto|particular)\b)*"
    r"[^\w\n]{0,5}\n?[^\w\n+(]{0,5}$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\d[ ]{0,2}[/,;yo-][ ]{0,2}$")  # the second of "Tel. 912 345 678 / 612 345 678"
_OTHER_NUMBER = re.compile(
    r"(?:ref|pedido|order|cuenta|account|poliza|policy|contrato|expediente|factura|invoice|serie|serial|albaran|codigo|code|nss"
    r"|id|n\.?[ºo]|no\.|num(?:ero)?|number|#|eur|usd|\$|€|cliente|customer|isbn|ean|lote?|imei|nuss|nhc|cip)\.?[^\w\n]{0,4}$",
    re.IGNORECASE,
)
_GROUP = re.compile(r"\d+")
_REGIONS = {"es": "ES", "us": "US", "gb": "GB"}


def _find_phones(text: str) -> Iterator[PatternMatch]:
    last: PatternMatch | None = None
    end = 0
    for anchor in matches(_ANCHOR, text):
        match = _FORMATS.match(text, anchor.start()) if anchor.start() >= end else None
        if match is None:
            continue
        end = match.end()
        after_cue = has_before(text, match.start(), _CUE, 50)
        listed = (
            last is not None
            and match.start() - last.end <= 5
            and bool(_LISTED.search(text[last.end - 1 : match.start()]))
        )
        phone = _parse(match, has_cue=after_cue or (listed and last is not None and last.score > LIKELY))
        if phone:
            yield (last := phone)


def _parse(match: re.Match[str], *, has_cue: bool) -> PatternMatch | None:
    kind, text, start = str(match.lastgroup), match.string, match.start()
    if kind == "world":
        return _parse_world(match, has_cue=has_cue)
    if kind == "any":
        return _parse_any(match) if has_cue else None
    value = _e164(match[0].removeprefix("(34)") if kind == "es" else match[0], _REGIONS[kind])
    if value is None:
        return PatternMatch(*match.span(), None, None, LIKELY) if has_cue else None
    if has_cue:
        return PatternMatch(*match.span(), value, None, SURE)
    if has_before(text, start, _OTHER_NUMBER, 20):
        return None
    return _without_cue(match, value, kind)


def _without_cue(match: re.Match[str], value: str, kind: str) -> PatternMatch | None:
    """A national number without a keyword, scored by how its digits are grouped."""
    groups = [len(group) for group in _GROUP.findall(match[0])]
    if "." in match[0] and groups == [3, 3, 3]:
        return None  # 912.345.678 is an amount
    if len(groups) == 1:
        return PatternMatch(*match.span(), value, None, WEAK)
    return PatternMatch(*match.span(), value, None, CLEAR if kind == "us" or groups != [3, 3, 3] else LIKELY)


def _parse_world(match: re.Match[str], *, has_cue: bool) -> PatternMatch | None:
    """The longest run of groups that is valid in the country's plan; after "00" without a cue, at least ten digits."""
    digits = "".join(_GROUP.findall(match[0])).removeprefix("00" if match[0].startswith("00") else "")
    if match[0].startswith("00") and not has_cue and len(digits) < 10:
        return None
    stops = [group.end() for group in re.finditer(r"\d+\)?", match[0])]
    for stop in reversed(stops[1:] if len(stops) > 1 else stops):
        written = match[0][:stop]
        value = _e164("+" + written.replace("(0)", "").lstrip("+0 "), None)
        if value:
            return PatternMatch(match.start(), match.start() + stop, value, None, SURE if has_cue else CLEAR)
    if has_cue and 7 <= len(digits) <= 15:
        return PatternMatch(*match.span(), None, None, LIKELY)
    return None


def _parse_any(match: re.Match[str]) -> PatternMatch | None:
    """Seven to fifteen digits directly after a keyword: of another country, or without an area code."""
    if not 7 <= sum(character.isdecimal() for character in match[0]) <= 15:
        return None
    return PatternMatch(*match.span(), _e164(match[0], "ES"), None, LIKELY)


def _e164(written: str, region: str | None) -> str | None:
    dialled = "".join(character for character in written if character.isdecimal() or character == "+")
    if region == "ES" and len(dialled) == 11 and dialled.startswith("34"):
        dialled = f"+{dialled}"
    return _look_up(dialled, region) if 7 <= len(dialled) <= 16 else None


@lru_cache(maxsize=4096)
def _look_up(digits: str, region: str | None) -> str | None:
    try:
        number = parse(digits, region)
    except NumberParseException:
        return None
    if not is_valid_number(number):
        return None
    zeros = "0" * (number.number_of_leading_zeros or 1) if number.italian_leading_zero else ""
    return f"+{number.country_code}{zeros}{number.national_number}"


PATTERNS = (Pattern("PHONE", _find_phones),)
