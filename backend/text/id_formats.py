"""Formats of ids with a checksum: the characters allowed at each position, and the function that checks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import mul
from string import ascii_uppercase, digits

from stdnum import iban, numdb
from stdnum.es import cif, nie, nif
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

Template = tuple[str, ...]  # for each position the characters allowed there

_ALNUM = digits + ascii_uppercase
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"  # Orden INT/2058/2008, article 11: neither I, O nor U
_CIF_KINDS = "ABCDEFGHJNPQRSUVW"  # Orden EHA/451/2008
_CIF_ENDS = digits + "ABCDEFGHIJ"
_CLASSES = {"n": digits, "a": ascii_uppercase, "c": _ALNUM}  # of the IBAN registry, ISO 13616
_IBAN_PART = re.compile(r"(\d+)!([nac])")
_NUMBER = (digits,)


_CCC_WEIGHTS = (1, 2, 4, 8, 5, 10, 9, 7, 3, 6)  # powers of 2 modulo 11


@dataclass(frozen=True, slots=True)
class IdFormat:
    """One format of a type of id."""

    template: Template
    is_valid: Callable[[str], bool]
    strength: float  # one in this many random ids of the format passes the check


def _is_valid_ccc(number: str) -> bool:
    """Whether the two check digits of a Spanish account of twenty digits are right.

    As `stdnum.es.ccc.is_valid`, in a sixth of its time: it is asked for each of up to 256 variants of a misread one.
    """
    figures = list(map(int, number))
    return (
        _ccc_digit(figures[:8], _CCC_WEIGHTS[2:]) == figures[8] and _ccc_digit(figures[10:], _CCC_WEIGHTS) == figures[9]
    )


def _ccc_digit(figures: Sequence[int], weights: Sequence[int]) -> int:
    rest: int = sum(map(mul, figures, weights)) % 11
    return rest if rest < 2 else 11 - rest


_NIF_FORMATS = (
    IdFormat(_NUMBER * 8 + (_NIF_LETTERS,), nif.is_valid, 23),
    IdFormat(("KLM", *_NUMBER * 7, ascii_uppercase), nif.is_valid, 10),
)
_NIE_FORMATS = (IdFormat(("XYZ", *_NUMBER * 7, _NIF_LETTERS), nie.is_valid, 23),)
_CIF_FORMATS = (IdFormat((_CIF_KINDS, *_NUMBER * 7, _CIF_ENDS), cif.is_valid, 10),)
_CCC_FORMATS = (IdFormat(_NUMBER * 20, _is_valid_ccc, 121),)

# Formats after the prefix: 9 a digit, A a letter, * either, others literal; from the VIES FAQ (European Commission).
# Romania is left out: any short number has its format.
_VAT_BODIES: Mapping[str, tuple[str, ...]] = {
    "AT": ("U99999999",), "BE": ("9999999999",), "BG": ("9999999999", "999999999"), "CY": ("99999999A",),
    "CZ": ("9999999999", "999999999", "99999999"), "DE": ("999999999",), "DK": ("99999999",), "EE": ("999999999",),
    "EL": ("999999999",), "FI": ("99999999",), "FR": ("**999999999",), "GB": ("999999999999", "999999999"),
    "HR": ("99999999999",), "HU": ("99999999",), "IE": ("9*99999A", "9*99999AA"), "IT": ("99999999999",),
    "LT": ("999999999999", "999999999"), "LU": ("99999999",), "LV": ("99999999999",), "MT": ("99999999",),
    "NL": ("999999999B99",), "PL": ("9999999999",), "PT": ("999999999",), "SE": ("999999999999",),
    "SI": ("99999999",), "SK": ("9999999999",), "XI": ("999999999999", "999999999"),
}  # fmt: skip
_VAT_STRENGTH = 10.0  # the weakest of the national checks; most are stronger
_BODY_CLASSES = {"9": digits, "A": ascii_uppercase, "*": _ALNUM}
_IBAN_STRENGTH = 97.0
_SPANISH_IBAN_STRENGTH = 97.0 * 121.0  # the two check digits of the CCC inside


@cache
def formats_of_length(kind: str, length: int) -> tuple[IdFormat, ...]:
    """The formats of a type of id with this many letters and digits; none for a type without a checksum."""
    return tuple(id_format for id_format in all_formats(kind) if len(id_format.template) == length)


@cache
def all_formats(kind: str) -> tuple[IdFormat, ...]:
    """All formats of a type of id."""
    match kind:
        case "IBAN":
            return tuple(_iban_formats())
        case "VAT":
            return tuple(_vat_formats())
        case "NIF":
            return _NIF_FORMATS
        case "NIE":
            return _NIE_FORMATS
        case "CIF":
            return _CIF_FORMATS
        case "CCC":
            return _CCC_FORMATS
        case _:
            return ()


def _iban_formats() -> Iterator[IdFormat]:
    """The formats of all countries of the registry in python-stdnum."""
    for first in ascii_uppercase:
        for second in ascii_uppercase:
            info = numdb.get("iban").info(first + second)[0][1]
            if "bban" in info:
                body = "".join(kind * int(count) for count, kind in _IBAN_PART.findall(info["bban"]))
                template = (first, second, digits, digits, *(_CLASSES[kind] for kind in body))
                strength = _SPANISH_IBAN_STRENGTH if first + second == "ES" else _IBAN_STRENGTH
                yield IdFormat(template, iban.is_valid, strength)


def _vat_formats() -> Iterator[IdFormat]:
    for country, bodies in _VAT_BODIES.items():
        is_valid = partial(_is_valid_british, country) if country in ("GB", "XI") else vat.is_valid
        for body in bodies:
            template = (*country, *(_BODY_CLASSES.get(character, character) for character in body))
            yield IdFormat(template, is_valid, _VAT_STRENGTH)
    for id_format in (*_NIF_FORMATS, *_NIE_FORMATS, *_CIF_FORMATS):
        yield IdFormat(("E", "S", *id_format.template), vat.is_valid, id_format.strength)


def _is_valid_british(prefix: str, number: str) -> bool:
    return bool(gb_vat.is_valid(number.removeprefix(prefix)))
