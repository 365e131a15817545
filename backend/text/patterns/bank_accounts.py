"""Bank accounts: IBAN, the Spanish CCC, and the BIC beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from stdnum import bic, numdb
from stdnum.es import ccc
from stdnum.iso7064 import mod_97_10
from stdnum.util import get_cc_module

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LIKELY,
    START,
    SURE,
    WEAK,
    Pattern,
    PatternMatch,
    compact,
    from_regex,
    has_before,
    matches,
)

# Anchored at the two check digits: the country before them, the account after them. Groups may be split by blanks,
# hyphens, dots and one line break. Only the head is consumed: the real number may follow a false start ("de 20").
_IBAN_HEAD = re.compile(
    rf"\d\d(?:(?<={START}[A-Za-z]{{2}}..)|(?<={START}[A-Za-z]{{2}}[ -]..))"
    r"(?=((?:[ .\-]{0,2}\n?[ ]{0,2}[A-Za-z0-9]){11,30}+))"
)
_STRUCTURE = re.compile(r"(\d+)!([nac])")
_CLASSES = {"n": "[0-9]", "a": "[A-Z]", "c": "[A-Z0-9]"}
_IBAN_CUE = re.compile(r"\bIBAN\b", re.IGNORECASE)

_CCC = re.compile(
    r"\d(?<!\w.)(?:"
    r"(?P<formal>\d{3}[ .\-/]{1,3}\d{4}[ .\-/]{1,3}\d{2}[ .\-/]{1,3}(?:\d{10}|\d{5}[ .\-/]\d{5}))"
    r"|\d{3}(?:[ \-]\d{4}){4}|\d{7}[ \-]\d{2}[ \-]\d{10}|\d{19})(?!\w|[.,]\d)"
)
_CCC_CUE = re.compile(r"\b(?:C\.? ?C\.? ?C\b|cuenta|c/c|cta)", re.IGNORECASE)

_BIC = re.compile(
    rf"[A-Z]{AFTER_START}[A-Z]{{3}}[ -]?(?P<country>[A-Z]{{2}})[ -]?[A-Z0-9]{{2}}(?:[ -]?[A-Z0-9]{{3}})?{END}"
)
_BIC_LABEL = re.compile(
    r"\b(?:BIC|SWIFT)(?:[ ]?[/-][ ]?(?:BIC|SWIFT))?(?: (?:code|no|number))?\)?[^\w\n]{0,6}\n?[^\w\n]{0,6}$",
    re.IGNORECASE,
)
_IBAN_NEAR = re.compile(rf"{START}([A-Z]{{2}})\d\d[ \-]?[A-Z0-9]{{4}}")
_NEAR_CHARS = 90  # an IBAN, a comma and a label


def _parse_iban(match: re.Match[str]) -> PatternMatch | None:
    text = match.string
    start = match.start() - (2 if text[match.start() - 1].isalpha() else 3)
    country = text[start : start + 2]
    account_format = _account_format(country.upper())
    if account_format is None:
        return None
    length, regex = account_format
    indexes = [match.end() + index for index, character in enumerate(match[1]) if character.isalnum()][:length]
    if len(indexes) < length or text[indexes[-1] + 1 : indexes[-1] + 2].isalnum():
        return None
    end = indexes[-1] + 1
    value = compact(text[start:end])
    if not regex.fullmatch(value[4:]):
        return None
    valid = _is_iban(value)
    has_cue = has_before(text, start, _IBAN_CUE)
    if not valid and not has_cue and not country.isupper():
        return None  # "no 12 …" in a sentence
    return PatternMatch(start, end, value, valid, SURE if valid else LIKELY if has_cue else WEAK)


def _is_iban(value: str) -> bool:
    """Like stdnum.iban.is_valid for a well-formed number, without reading its tables for each one."""
    national = _national_check(value[:2])
    return mod_97_10.is_valid(value[4:] + value[:4]) and (national is None or national(value))


@cache
def _national_check(country: str) -> Callable[[str], bool] | None:
    """The check of a country's own check digits inside the account, as in the Spanish CCC."""
    module = get_cc_module(country, "iban")
    return None if module is None else module.is_valid


@cache
def _account_format(country: str) -> tuple[int, re.Pattern[str]] | None:
    """Length and regex of a country's account numbers, from the registry in python-stdnum."""
    info = numdb.get("iban").info(country)[0][1]
    if "bban" not in info:
        return None
    groups = [(int(count), kind) for count, kind in _STRUCTURE.findall(info["bban"])]
    regex = "".join(f"{_CLASSES[kind]}{{{count}}}" for count, kind in groups)
    return sum(count for count, _ in groups), re.compile(regex)


def _parse_ccc(match: re.Match[str]) -> PatternMatch | None:
    value = compact(match[0])
    valid = ccc.is_valid(value)
    has_cue = has_before(match.string, match.start(), _CCC_CUE)
    if not valid and not has_cue and match["formal"] is None:
        return None  # twenty digits are as often a parcel or policy number
    return PatternMatch(*match.span(), value, valid, (SURE if has_cue else CLEAR) if valid else WEAK)


def _find_bics(text: str) -> Iterator[PatternMatch]:
    return (parsed for match in matches(_BIC, text) if bic.is_valid(match[0]) and (parsed := _parse_bic(match)))


def _parse_bic(match: re.Match[str]) -> PatternMatch | None:
    """A BIC has no checksum and looks like a word in capitals: it needs a label, an IBAN nearby, or the ending XXX."""
    value, text = compact(match[0]), match.string
    if has_before(text, match.start(), _BIC_LABEL):
        return PatternMatch(*match.span(), value, None, SURE)
    if value != match[0]:
        return None
    nearby = _IBAN_NEAR.findall(text, max(0, match.start() - _NEAR_CHARS), match.end() + _NEAR_CHARS)
    if match["country"] in nearby:
        return PatternMatch(*match.span(), value, None, CLEAR)
    return PatternMatch(*match.span(), value, None, LIKELY) if value[8:] == "XXX" else None


PATTERNS = (
    from_regex("IBAN", _IBAN_HEAD, _parse_iban),
    from_regex("CCC", _CCC, _parse_ccc),
    Pattern("BIC", _find_bics, needs_digit=False),
)
