"""Tax numbers and bank accounts, random with right check characters unless a wrong one is asked for."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"  # Orden EHA/451/2008, by the number modulo 23
_CIF_LETTERS = "JABCDEFGHI"
_IBAN_DIGITS = {"ES": 20, "DE": 18, "FR": 23, "PT": 21, "IE": 14, "GB": 14}  # after the check digits and letters
_CONTROL_WEIGHTS = (1, 2, 4, 8, 5, 10, 9, 7, 3, 6)  # of a Spanish account's two control digits


def nif(random: Random, *, is_right: bool = True) -> str:
    """A Spanish person's number."""
    number = random.randrange(1_000_000, 80_000_000)
    letter = _NIF_LETTERS[number % 23]
    return f"{number:08d}{letter if is_right else _other(random, letter, _NIF_LETTERS)}"


def nie(random: Random, *, is_right: bool = True) -> str:
    """A foreigner's number in Spain."""
    first, rest = random.choice("XYZ"), random.randrange(1_000_000, 9_999_999)
    letter = _NIF_LETTERS[int(f"{'XYZ'.index(first)}{rest:07d}") % 23]
    return f"{first}{rest:07d}{letter if is_right else _other(random, letter, _NIF_LETTERS)}"


def cif(random: Random, kind: str = "B", *, is_right: bool = True) -> str:
    """A Spanish company's number; ``kind`` is its legal form: A, B, F, G, J."""
    digits = f"{random.randrange(1, 50):02d}{random.randrange(100_000):05d}"
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[::2])
    check = -(doubled + sum(map(int, digits[1::2]))) % 10
    if not is_right:
        check = (check + random.randrange(1, 10)) % 10
    return f"{kind}{digits}{check}"


def vat_gb(random: Random, *, is_right: bool = True) -> str:
    """A British VAT number of nine digits, by the older rule modulo 97."""
    digits = f"{random.randrange(1_000_000, 9_999_999)}"
    check = -sum(int(digit) * weight for digit, weight in zip(digits, range(8, 1, -1), strict=True)) % 97
    if not is_right:
        check = (check + random.randrange(1, 40)) % 97  # 42 further would be right by the newer rule
    return f"GB{digits}{check:02d}"


def vat_ie(random: Random, *, is_right: bool = True) -> str:
    """An Irish VAT number of seven digits and a letter."""
    digits = f"{random.randrange(1_000_000, 9_999_999)}"
    letters = "WABCDEFGHIJKLMNOPQRSTUV"
    letter = letters[sum(int(digit) * weight for digit, weight in zip(digits, range(8, 1, -1), strict=True)) % 23]
    return f"IE{digits}{letter if is_right else _other(random, letter, letters)}"


def vat_de(random: Random, *, is_right: bool = True) -> str:
    """A German VAT number (ISO 7064, modulo 11, 10)."""
    digits, product = f"{random.randrange(10_000_000, 99_999_999)}", 10
    for digit in digits:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    check = (11 - product) % 10
    return f"DE{digits}{check if is_right else (check + random.randrange(1, 10)) % 10}"


def vat_fr(random: Random, *, is_right: bool = True) -> str:
    """A French VAT number of a SIREN with a right Luhn digit."""
    siren = f"{random.randrange(10_000_000, 99_999_999)}"
    luhn = sum(sum(divmod(int(digit) * (1 + index % 2), 10)) for index, digit in enumerate(siren))
    siren += str(-luhn % 10)
    key = (12 + 3 * (int(siren) % 97)) % 97
    return f"FR{key if is_right else (key + random.randrange(1, 90)) % 97:02d}{siren}"


def nif_pt(random: Random, *, is_right: bool = True) -> str:
    """A Portuguese company's number."""
    digits = f"5{random.randrange(0, 10_000_000):07d}"
    rest = sum(int(digit) * weight for digit, weight in zip(digits, range(9, 1, -1), strict=True)) % 11
    check = 0 if rest < 2 else 11 - rest
    return f"{digits}{check if is_right else (check + random.randrange(1, 9)) % 10}"


def iban(random: Random, country: str = "ES") -> str:
    """A bank account with right check digits, those of the country's own format too."""
    digits = "".join(random.choice(string.digits) for _ in range(_IBAN_DIGITS[country]))
    match country:
        case "ES":
            account = digits[:8] + _control("00" + digits[:8]) + _control(digits[10:]) + digits[10:]
        case "PT":
            account = digits[:19] + f"{98 - int(digits[:19] + '00') % 97:02d}"
        case "FR":
            key = 97 - (89 * int(digits[:5]) + 15 * int(digits[5:10]) + 3 * int(digits[10:21])) % 97
            account = digits[:21] + f"{key:02d}"
        case _:
            account = {"IE": "BOFI", "GB": "LOYD"}.get(country, "") + digits
    as_number = "".join(str(int(character, 36)) for character in account + country + "00")
    return f"{country}{98 - int(as_number) % 97:02d}{account}"


def _control(digits: str) -> str:
    rest = 11 - sum(int(digit) * weight for digit, weight in zip(digits, _CONTROL_WEIGHTS, strict=True)) % 11
    return str({10: 1, 11: 0}.get(rest, rest))


def in_fours(account: str) -> str:
    """An IBAN as it is printed."""
    return " ".join(account[start : start + 4] for start in range(0, len(account), 4))


def _other(random: Random, letter: str, letters: str) -> str:
    return random.choice(letters.replace(letter, ""))


COMPANY_NUMBERS: dict[str, Callable[..., str]] = {
    "ES": cif, "GB": vat_gb, "IE": vat_ie, "DE": vat_de, "FR": vat_fr, "PT": nif_pt,
}  # fmt: skip
