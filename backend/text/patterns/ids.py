"""Numbers of persons, accounts and papers: tax numbers, IBAN and CCC with the BIC beside them, invoice numbers.

Tax numbers are the Spanish NIF, NIE and CIF, and VAT numbers of the EU, GB and XI with their country prefix; invoice
numbers are recognised by the label before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

from stdnum import bic, numdb
from stdnum.es import ccc, cif, nie, nif
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat
from stdnum.iso7064 import mod_97_10
from stdnum.util import get_cc_module

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LEAST,
    LIKELY,
    START,
    SURE,
    WEAK,
    Parser,
    Pattern,
    PatternMatch,
    compact,
    from_regex,
    has_before,
    matches,
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


TAX_IDS = (
    from_regex("NIF", _NIF, _parse_nif),
    from_regex("NIE", _NIE, _by_checksum(nie.is_valid)),
    from_regex("CIF", _CIF, _by_checksum(cif.is_valid)),
    from_regex("VAT", _VAT_HEAD, _parse_vat),
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


BANK_ACCOUNTS = (
    from_regex("IBAN", _IBAN_HEAD, _parse_iban),
    from_regex("CCC", _CCC, _parse_ccc),
    Pattern("BIC", _find_bics, needs_digit=False),
)


_MARK = r"(?:n\.? ?[ºo°]\.?|nro\.?|num(?:ero)?\.?|number|id(?![a-z])|#|№|n\.|nr\.?|ref(?:erence|erencia)?\.?)"
_KIND = r"(?: (?:simplificada|rectificativa|recapitulativa|pro ?forma|ordinaria|emitida|electronica|recibida))?"
_INVOICE = re.compile(
    rf"[FfIiBb]{AFTER_START}(?i:(?:(?<=f)acturas?{_KIND}|(?<=f)ra\.?|(?<=i)nvoice|(?<=i)nv\.|(?<=b)ill)"
    rf"(?![^\W\d_])"
    rf"(?P<mark>[ ]?[:(]?[ ]?{_MARK}(?![a-z])\)?)?[ ]{{0,3}}(?P<colon>[:#])?[ .]{{0,8}}(?P<line>\n[ ]{{0,8}})?"
    r"(?P<number>(?:[a-z]{1,2}[ ](?=\d))?(?=[\w/.\-]{0,29}\d)[a-z0-9][\w/.\-]{0,29}+))"
)
_MARK_BEFORE = re.compile(rf"(?<![^\W_]){_MARK} ?(?:de )?(?:la |su )?(?:tax |vat |commercial |sales )?$", re.IGNORECASE)
_NOT_ITS_NUMBER = re.compile(
    r"(?:fecha|date|total|importe|base|vencimiento|amount|due|modelo)(?: (?:de )?(?:la )?)?\W{0,3}$", re.IGNORECASE
)
_AMOUNT = re.compile(r"\d{1,3}(?:[.,]\d{3})*[.,]\d\d|\d+[.,]\d\d")
_DATE = re.compile(r"\d{1,2}([/.\-])\d{1,2}\1(?:\d{4}|\d\d)")
_GOES_ON = re.compile(
    r"[ ]{0,2}(?:€|\$|£|eur|euros?\b|usd|%|de (?:ene|feb|mar|abr|may|jun|jul|ago|sep|oct|nov|dic)|"
    r"(?:dias|days|unidades|pages|pag)\b)",
    re.IGNORECASE,
)
_WORDS_BEFORE = frozenset(
    {"de", "en", "el", "la", "of", "no", "id", "al", "a", "y", "to", "in", "on", "is", "es", "su"}
)


def _parse_invoice(match: re.Match[str]) -> PatternMatch | None:
    text, start = match.string, match.start("number")
    written = match["number"].rstrip("./-_")
    first, _, rest = written.partition(" ")
    if rest and (not first.isupper() or (len(first) > 1 and first.lower() in _WORDS_BEFORE)):
        start, written = start + len(first) + 1, rest
    if not any(character.isdecimal() for character in written):
        return None
    end = start + len(written)
    if has_before(text, match.start(), _NOT_ITS_NUMBER, 24) or _AMOUNT.fullmatch(written) or _GOES_ON.match(text, end):
        return None
    if match["mark"] or has_before(text, match.start(), _MARK_BEFORE, 30):
        return PatternMatch(start, end, written, None, SURE)
    has_colon = match["colon"] is not None
    if _DATE.fullmatch(written) or (match["line"] and not has_colon) or not _looks_coded(written, has_colon):
        return None
    return PatternMatch(start, end, written, None, CLEAR if has_colon else LIKELY)


def _looks_coded(written: str, has_colon: bool) -> bool:
    """Whether it looks like an invoice number without "n.º" before it: capitals, and three characters or a colon."""
    if written.isdecimal():
        return has_colon or len(written) >= 3
    return written == written.upper() and len(written) >= 3


INVOICE_NUMBERS = (from_regex("INVOICE_NUMBER", _INVOICE, _parse_invoice),)
