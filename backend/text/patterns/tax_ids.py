"""Tax numbers: Spanish NIF, NIE and CIF, and VAT numbers of the EU, GB and XI with their country prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from stdnum.es import cif, nie, nif
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LEAST,
    SURE,
    WEAK,
    Parser,
    PatternMatch,
    compact,
    from_regex,
    has_before,
)

_DIGITS_7 = r"(?:\d{7}|\d\.\d{3}\.\d{3}|\d{2}\.?\d{3}\.?\d{2}|\d{2} \d{3} \d{2}|\d \d{3} \d{3})"
_NIF = re.compile(
    rf"[\dKLM]{AFTER_START}(?:(?<=\d)(?:\d{{7}}|\d\.\d{{3}}\.\d{{3}}|\d \d{{3}} \d{{3}})[ -]{{0,3}}[A-Za-z]"
    rf"|(?<=[KLM])[ -]?{_DIGITS_7}[ -]?[A-Z]|(?P<short>(?<=\d)\.?\d{{3}}\.?\d{{3}}[ -]?[A-Z])){END}"
)
_NIE = re.compile(rf"[XYZ]{AFTER_START}[ -]{{0,3}}{_DIGITS_7}[ -]{{0,3}}[A-Z]{END}")
_CIF = re.compile(rf"[A-HJNP-SUVW]{AFTER_START}[ -]{{0,3}}(?:{_DIGITS_7}[ -]?[0-9A-J]|\d\d[. ]\d{{3}}[. ]\d{{3}}){END}")
_CUE = re.compile(
    r"\b(?:[NC]\.? ?I\.? ?F\b|D\.? ?N\.? ?I\b|N\.? ?I\.? ?E\b|IVA\b|VAT\b|TVA\b|USt|U\.?S\.?T\b|MwSt|BTW\b"
    r"|tax\b|fiscal\b|identifica|intracomunitari)",
    re.IGNORECASE,
)
# After these words the number is of something else, unless its checksum is right.
_OTHER_NUMBER = re.compile(
    r"\b(?:ref|pedido|order|serie|serial|s/n|sku|part|pieza|codigo|code|expediente|lote?|matricula|albaran|articulo|item"
    r"|factura|invoice|modelo|model|poliza|policy|tracking|envio|paquete|version|bastidor|ticket|contrato)\w*\W{0,4}(?:n(?:[.ºo]|um\w*|o\.)\W{0,4})?$",
    re.IGNORECASE,
)

_SEP = r"[ .\-]?"
_N = rf"(?:{_SEP}\d)"
# Formats after the prefix, longer ones first; from the VIES FAQ (European Commission).
_BODIES: Mapping[str, tuple[re.Pattern[str], ...]] = {
    country: tuple(re.compile(rf"[ .\-]{{0,2}}{body}{END}") for body in bodies)
    for country, bodies in {
        "AT": (rf"U{_N}{{8}}",), "BE": (rf"[01]{_N}{{9}}", rf"\d{_N}{{8}}"), "BG": (rf"\d{_N}{{9}}", rf"\d{_N}{{8}}"),
        "CY": (rf"\d{_N}{{7}}{_SEP}[A-Z]",), "CZ": (rf"\d{_N}{{9}}", rf"\d{_N}{{8}}", rf"\d{_N}{{7}}"),
        "DE": (rf"\d{_N}{{8}}",), "DK": (rf"\d{_N}{{7}}",), "EE": (rf"\d{_N}{{8}}",), "EL": (rf"\d{_N}{{8}}",),
        "ES": (rf"[A-Z]{_N}{{7}}{_SEP}[A-Z0-9]", rf"\d{_N}{{7}}{_SEP}[A-Z]"), "FI": (rf"\d{_N}{{7}}",),
        "FR": (rf"[A-HJ-NP-Z0-9]{_SEP}[A-HJ-NP-Z0-9]{_N}{{9}}",), "GB": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"),
        "HR": (rf"\d{_N}{{10}}",), "HU": (rf"\d{_N}{{7}}",), "IE": (rf"\d{_SEP}[A-Z0-9]{_N}{{5}}{_SEP}[A-Z]{{1,2}}",),
        "IT": (rf"\d{_N}{{10}}",), "LT": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"), "LU": (rf"\d{_N}{{7}}",),
        "LV": (rf"\d{_N}{{10}}",), "MT": (rf"\d{_N}{{7}}",), "NL": (rf"\d{_N}{{8}}{_SEP}B{_N}{{2}}",),
        "PL": (rf"\d{_N}{{9}}",), "PT": (rf"\d{_N}{{8}}",), "RO": (r"\d{4,10}",), "SE": (rf"\d{_N}{{11}}",),
        "SI": (rf"\d{_N}{{7}}",), "SK": (rf"\d{_N}{{9}}",), "XI": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"),
    }.items()
}  # fmt: skip
_WORD_PREFIXES = frozenset({"AT", "BE", "DE", "EL", "IT", "SE", "SI"})
_VAT_HEAD = re.compile(rf"(?P<country>{'|'.join(_BODIES)})(?<![^\W_]..)(?=[ .\-]{{0,2}}[A-Z0-9])")


def _parse_id(match: re.Match[str], is_valid: Callable[[str], bool]) -> PatternMatch | None:
    """A number with a right checksum is accepted; one with a wrong one only if its form leaves no doubt."""
    text, (start, end), value = match.string, match.span(), compact(match[0])
    valid, has_cue = is_valid(value), has_before(text, start, _CUE)
    joined = re.match(r"[-/]\w", text[end : end + 2]) or re.search(r"\w[-/]$", text[max(0, start - 2) : start])
    if joined and not (has_cue and valid):
        return None  # part of a longer code
    if not has_cue and (" " in match[0] or match[0] != match[0].upper()):
        return PatternMatch(start, end, value, True, WEAK) if valid else None
    if not valid and has_before(text, start, _OTHER_NUMBER):
        return None
    if valid:
        return PatternMatch(start, end, value, valid, SURE if has_cue else CLEAR)
    return PatternMatch(start, end, value, valid, WEAK if has_cue else LEAST)


def _parse_nif(match: re.Match[str]) -> PatternMatch | None:
    """A NIF. Without its leading zero (seven digits and a letter) it needs a label and a right checksum."""
    if match["short"] is None:
        return _parse_id(match, nif.is_valid)
    if re.search(r"\w[-/.]$", match.string[max(0, match.start() - 2) : match.start()]):
        return None
    value = f"0{compact(match[0])}"
    if not nif.is_valid(value) or not has_before(match.string, match.start(), _CUE):
        return None
    return PatternMatch(*match.span(), value, True, CLEAR)


def _by_checksum(is_valid: Callable[[str], bool]) -> Parser:
    return partial(_parse_id, is_valid=is_valid)


def _parse_vat(match: re.Match[str]) -> PatternMatch | None:
    """The longest number of the country's format, preferably one with a right checksum.

    A separate prefix may be a word ("EL 123456789"): this needs a label, or a right checksum and a prefix that is no
    word.
    """
    text, start, country = match.string, match.start(), match["country"]
    bodies = [body for regex in _BODIES[country] if (body := regex.match(text, match.end()))]
    if not bodies:
        return None
    checked = [(_is_vat(country, compact(body[0])), body) for body in bodies]
    valid, body = next((result for result in checked if result[0]), checked[0])
    end, value = body.end(), country + compact(body[0])
    has_cue = has_before(text, start, _CUE)
    if (
        not has_cue
        and text[start:end] != value
        and (not valid or (country in _WORD_PREFIXES and body[0].startswith(" ")))
    ):
        return None
    if not valid and has_before(text, start, _OTHER_NUMBER):
        return None
    if valid:
        return PatternMatch(start, end, value, valid, SURE if has_cue else CLEAR)
    return PatternMatch(start, end, value, valid, WEAK if has_cue else LEAST)


def _is_vat(country: str, body: str) -> bool:
    return gb_vat.is_valid(body) if country in ("GB", "XI") else vat.is_valid(country + body)


PATTERNS = (
    from_regex("NIF", _NIF, _parse_nif),
    from_regex("NIE", _NIE, _by_checksum(nie.is_valid)),
    from_regex("CIF", _CIF, _by_checksum(cif.is_valid)),
    from_regex("VAT", _VAT_HEAD, _parse_vat),
)
