"""Tax numbers: Spanish NIF, NIE and CIF, and the VAT numbers of the Union (and GB, XI) with their prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from stdnum.es import cif, nie, nif
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

from backend.documents.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LEAST,
    SURE,
    WEAK,
    Found,
    Reader,
    by_pattern,
    compact,
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
# What has the form of an id after these words is the number of something else, unless its checksum is right.
_OTHER_NUMBER = re.compile(
    r"\b(?:ref|pedido|order|serie|serial|s/n|sku|part|pieza|codigo|code|expediente|lote?|matricula|albaran|articulo|item"
    r"|factura|invoice|modelo|model|poliza|policy|tracking|envio|paquete|version|bastidor|ticket|contrato)\w*\W{0,4}(?:n(?:[.ºo]|um\w*|o\.)\W{0,4})?$",
    re.IGNORECASE,
)

_SEP = r"[ .\-]?"
_N = rf"(?:{_SEP}\d)"
# What follows the prefix, the longer form first; from the national formats in the VIES FAQ (European Commission).
_BODIES: Mapping[str, tuple[re.Pattern[str], ...]] = {
    country: tuple(re.compile(rf"[ .\-]{{0,2}}{body}{END}") for body in bodies)
    for country, bodies in {
        "AT": (rf"U{_N}{{8}}",),
        "BE": (rf"[01]{_N}{{9}}", rf"\d{_N}{{8}}"),
        "BG": (rf"\d{_N}{{9}}", rf"\d{_N}{{8}}"),
        "CY": (rf"\d{_N}{{7}}{_SEP}[A-Z]",),
        "CZ": (rf"\d{_N}{{9}}", rf"\d{_N}{{8}}", rf"\d{_N}{{7}}"),
        "DE": (rf"\d{_N}{{8}}",),
        "DK": (rf"\d{_N}{{7}}",),
        "EE": (rf"\d{_N}{{8}}",),
        "EL": (rf"\d{_N}{{8}}",),
        "ES": (rf"[A-Z]{_N}{{7}}{_SEP}[A-Z0-9]", rf"\d{_N}{{7}}{_SEP}[A-Z]"),
        "FI": (rf"\d{_N}{{7}}",),
        "FR": (rf"[A-HJ-NP-Z0-9]{_SEP}[A-HJ-NP-Z0-9]{_N}{{9}}",),
        "GB": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"),
        "HR": (rf"\d{_N}{{10}}",),
        "HU": (rf"\d{_N}{{7}}",),
        "IE": (rf"\d{_SEP}[A-Z0-9]{_N}{{5}}{_SEP}[A-Z]{{1,2}}",),
        "IT": (rf"\d{_N}{{10}}",),
        "LT": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"),
        "LU": (rf"\d{_N}{{7}}",),
        "LV": (rf"\d{_N}{{10}}",),
        "MT": (rf"\d{_N}{{7}}",),
        "NL": (rf"\d{_N}{{8}}{_SEP}B{_N}{{2}}",),
        "PL": (rf"\d{_N}{{9}}",),
        "PT": (rf"\d{_N}{{8}}",),
        "RO": (r"\d{4,10}",),
        "SE": (rf"\d{_N}{{11}}",),
        "SI": (rf"\d{_N}{{7}}",),
        "SK": (rf"\d{_N}{{9}}",),
        "XI": (rf"\d{_N}{{11}}", rf"\d{_N}{{8}}"),
    }.items()
}
_WORDS = frozenset({"AT", "BE", "DE", "EL", "IT", "SE", "SI"})
_VAT_HEAD = re.compile(rf"(?P<country>{'|'.join(_BODIES)})(?<![^\W_]..)(?=[ .\-]{{0,2}}[A-Z0-9])")


def _read_id(match: re.Match[str], is_valid: Callable[[str], bool]) -> Found | None:
    """An id that is right stands for itself; one that is wrong needs its form to be beyond doubt."""
    text, (start, end), value = match.string, match.span(), compact(match[0])
    valid, cued = is_valid(value), has_before(text, start, _CUE)
    joined = re.match(r"[-/]\w", text[end : end + 2]) or re.search(r"\w[-/]$", text[max(0, start - 2) : start])
    if joined and not (cued and valid):
        return None  # a piece of a longer code
    if not cued and (" " in match[0] or match[0] != match[0].upper()):
        return Found(start, end, value, True, WEAK) if valid else None
    if not valid and has_before(text, start, _OTHER_NUMBER):
        return None
    if valid:
        return Found(start, end, value, valid, SURE if cued else CLEAR)
    return Found(start, end, value, valid, WEAK if cued else LEAST)


def _read_nif(match: re.Match[str]) -> Found | None:
    """Seven digits and a letter, the leading zero left out, are a NIF only where the text says so and it is right."""
    if match["short"] is None:
        return _read_id(match, nif.is_valid)
    if re.search(r"\w[-/.]$", match.string[max(0, match.start() - 2) : match.start()]):
        return None
    value = f"0{compact(match[0])}"
    if not nif.is_valid(value) or not has_before(match.string, match.start(), _CUE):
        return None
    return Found(*match.span(), value, True, CLEAR)


def _by_checksum(is_valid: Callable[[str], bool]) -> Reader:
    return partial(_read_id, is_valid=is_valid)


def _read_vat(match: re.Match[str]) -> Found | None:
    """The longest stretch that has its country's form; a right one before a wrong one.

    Prefix and number apart may be a word and a number ("EL 123456789"): they need a label, or a right number and a
    prefix that is no word.
    """
    text, start, country = match.string, match.start(), match["country"]
    bodies = [body for form in _BODIES[country] if (body := form.match(text, match.end()))]
    if not bodies:
        return None
    checked = [(_is_vat(country, compact(body[0])), body) for body in bodies]
    valid, body = next((one for one in checked if one[0]), checked[0])
    end, value = body.end(), country + compact(body[0])
    cued = has_before(text, start, _CUE)
    if not cued and text[start:end] != value and (not valid or (country in _WORDS and body[0].startswith(" "))):
        return None
    if not valid and has_before(text, start, _OTHER_NUMBER):
        return None
    if valid:
        return Found(start, end, value, valid, SURE if cued else CLEAR)
    return Found(start, end, value, valid, WEAK if cued else LEAST)


def _is_vat(country: str, body: str) -> bool:
    return gb_vat.is_valid(body) if country in ("GB", "XI") else vat.is_valid(country + body)


KINDS = (
    by_pattern("NIF", _NIF, _read_nif),
    by_pattern("NIE", _NIE, _by_checksum(nie.is_valid)),
    by_pattern("CIF", _CIF, _by_checksum(cif.is_valid)),
    by_pattern("VAT", _VAT_HEAD, _read_vat),
)
