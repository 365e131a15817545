"""Which characters each place of an id may hold, and what says whether it is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from string import ascii_uppercase, digits

from stdnum import iban, numdb
from stdnum.es import ccc, cif, nie, nif
from stdnum.eu import vat
from stdnum.gb import vat as gb_vat

Template = tuple[str, ...]  # for each place the characters that it may hold

_ALNUM = digits + ascii_uppercase
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"  # Orden INT/2058/2008, article 11: neither I, O nor U
_CIF_KINDS = "ABCDEFGHJNPQRSUVW"  # Orden EHA/451/2008
_CIF_ENDS = digits + "ABCDEFGHIJ"
_CLASSES = {"n": digits, "a": ascii_uppercase, "c": _ALNUM}  # of the IBAN registry, ISO 13616
_IBAN_PART = re.compile(r"(\d+)!([nac])")
_NUMBER = (digits,)


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of id, one of its shapes."""

    template: Template
    is_right: Callable[[str], bool]
    strength: float  # of how many numbers of this shape one passes the check


_NIF_FORMS = (
    Form(_NUMBER * 8 + (_NIF_LETTERS,), nif.is_valid, 23),
    Form(("KLM", *_NUMBER * 7, ascii_uppercase), nif.is_valid, 10),
)
_NIE_FORMS = (Form(("XYZ", *_NUMBER * 7, _NIF_LETTERS), nie.is_valid, 23),)
_CIF_FORMS = (Form((_CIF_KINDS, *_NUMBER * 7, _CIF_ENDS), cif.is_valid, 10),)
_CCC_FORMS = (Form(_NUMBER * 20, ccc.is_valid, 121),)

# What follows the prefix: 9 a digit, A a letter, * either, others themselves; from the formats in the VIES FAQ
# (European Commission). Romania's is left out: any short number has its form.
_VAT_BODIES: Mapping[str, tuple[str, ...]] = {
    "AT": ("U99999999",),
    "BE": ("9999999999",),
    "BG": ("9999999999", "999999999"),
    "CY": ("99999999A",),
    "CZ": ("9999999999", "999999999", "99999999"),
    "DE": ("999999999",),
    "DK": ("99999999",),
    "EE": ("999999999",),
    "EL": ("999999999",),
    "FI": ("99999999",),
    "FR": ("**999999999",),
    "GB": ("999999999999", "999999999"),
    "HR": ("99999999999",),
    "HU": ("99999999",),
    "IE": ("9*99999A", "9*99999AA"),
    "IT": ("99999999999",),
    "LT": ("999999999999", "999999999"),
    "LU": ("99999999",),
    "LV": ("99999999999",),
    "MT": ("99999999",),
    "NL": ("999999999B99",),
    "PL": ("9999999999",),
    "PT": ("999999999",),
    "SE": ("999999999999",),
    "SI": ("99999999",),
    "SK": ("9999999999",),
    "XI": ("999999999999", "999999999"),
}
_VAT_STRENGTH = 10.0  # the weakest of the national checks; most are stronger
_BODY_CLASSES = {"9": digits, "A": ascii_uppercase, "*": _ALNUM}
_IBAN_STRENGTH = 97.0
_SPANISH_IBAN_STRENGTH = 97.0 * 121.0  # the two check digits of the CCC inside


@cache
def forms(kind: str, length: int) -> tuple[Form, ...]:
    """Every shape of a kind of id that has this many letters and digits; none for a kind without a checksum."""
    return tuple(form for form in all_forms(kind) if len(form.template) == length)


@cache
def all_forms(kind: str) -> tuple[Form, ...]:
    """Every shape of a kind of id."""
    match kind:
        case "IBAN":
            return tuple(_iban_forms())
        case "VAT":
            return tuple(_vat_forms())
        case "NIF":
            return _NIF_FORMS
        case "NIE":
            return _NIE_FORMS
        case "CIF":
            return _CIF_FORMS
        case "CCC":
            return _CCC_FORMS
        case _:
            return ()


def _iban_forms() -> Iterator[Form]:
    """Every country of the registry that python-stdnum carries."""
    for first in ascii_uppercase:
        for second in ascii_uppercase:
            info = numdb.get("iban").info(first + second)[0][1]
            if "bban" in info:
                body = "".join(kind * int(count) for count, kind in _IBAN_PART.findall(info["bban"]))
                template = (first, second, digits, digits, *(_CLASSES[kind] for kind in body))
                strength = _SPANISH_IBAN_STRENGTH if first + second == "ES" else _IBAN_STRENGTH
                yield Form(template, iban.is_valid, strength)


def _vat_forms() -> Iterator[Form]:
    for country, bodies in _VAT_BODIES.items():
        is_right = partial(_is_british, country) if country in ("GB", "XI") else vat.is_valid
        for body in bodies:
            template = (*country, *(_BODY_CLASSES.get(character, character) for character in body))
            yield Form(template, is_right, _VAT_STRENGTH)
    for form in (*_NIF_FORMS, *_NIE_FORMS, *_CIF_FORMS):
        yield Form(("E", "S", *form.template), vat.is_valid, form.strength)


def _is_british(prefix: str, number: str) -> bool:
    return bool(gb_vat.is_valid(number.removeprefix(prefix)))
