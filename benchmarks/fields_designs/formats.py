"""How amounts, quantities and dates are printed in each country."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
_MONTHS = {
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "ca": "gener febrer març abril maig juny juliol agost setembre octubre novembre desembre",
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
}


@dataclass(frozen=True, slots=True)
class NumberStyle:
    """Marks of a country's amounts."""

    decimal: str = ","
    thousands: str = "."
    symbol: str = "€"
    symbol_first: bool = False


SPANISH = NumberStyle()
FRENCH = NumberStyle(thousands="\u202f")
PORTUGUESE = NumberStyle(thousands=" ")
IRISH = NumberStyle(".", ",", "€", symbol_first=True)
BRITISH = NumberStyle(".", ",", "£", symbol_first=True)
AMERICAN = NumberStyle(".", ",", "$", symbol_first=True)


def cents(value: Decimal) -> Decimal:
    """Rounded as invoices are."""
    return value.quantize(CENT, ROUND_HALF_UP)


def number(value: Decimal, style: NumberStyle, places: int = 2) -> str:
    """An amount without its currency."""
    text = f"{abs(value):,.{places}f}".replace(",", "\0").replace(".", style.decimal).replace("\0", style.thousands)
    return f"-{text}" if value < 0 else text


def money(value: Decimal, style: NumberStyle) -> str:
    """An amount with its currency sign."""
    if style.symbol_first:
        return ("-" if value < 0 else "") + style.symbol + number(abs(value), style)
    return f"{number(value, style)}\u00a0{style.symbol}"


def short(value: Decimal, style: NumberStyle) -> str:
    """A quantity or rate without trailing zeros."""
    return f"{value.normalize():f}".replace(".", style.decimal)


def plain(value: Decimal) -> str:
    """As truth has quantities and rates."""
    return f"{value.normalize():f}"


def long_date(day: date, language: str) -> str:
    """With the month's name."""
    month = _MONTHS[language].split()[day.month - 1]
    match language:
        case "es" | "pt":
            return f"{day.day} de {month} de {day.year}"
        case "ca":
            before = "d'" if month[0] in "ao" else "de "
            return f"{day.day} {before}{month} de {day.year}"
        case "de":
            return f"{day.day}. {month} {day.year}"
        case _:
            return f"{day.day} {month} {day.year}"
