"""What the words beside an amount say of it, and how surely.

A phrase may be read in two ways ("Net total" is the base of an invoice and the rounded total of a Malaysian receipt):
each reading has a strength, and arithmetic decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import product
from typing import Literal, NamedTuple

from backend.files.pages import Word
from backend.invoices.label_match import LabelMatch, Vocabulary, tokens_of
from backend.invoices.money.phrases import (
    BALANCE,
    BASE,
    CASH,
    CHANGE,
    CHARGE,
    COLUMN,
    DISCOUNT,
    DUE,
    GROSS,
    IGNORED,
    PAID,
    RATE,
    ROUNDING,
    STRONG_TOTAL,
    SUBTOTAL,
    SURCHARGE,
    SURCHARGE_RATE,
    TAX_AMOUNT,
    TIP,
    WITH_TAX,
    WITHHOLDING,
    WITHOUT_TAX,
)

Kind = Literal[
    "base", "tax", "surcharge", "withholding", "discount", "total", "due", "paid", "balance", "charge", "rounding",
    "tip", "cash", "change", "rate", "surcharge_rate", "withholding_rate", "gross", "column", "ignored",
]  # fmt: skip


class Reading(NamedTuple):
    """What a phrase may say of the amount beside it."""

    kind: Kind
    strength: float  # 0 to 1


def _spread(heads: str, tails: str) -> list[str]:
    """Every head before every tail, both separated by "|"."""
    return [f"{head} {tail}" for head, tail in product(heads.split("|"), tails.split("|"))]


_PHRASES: tuple[tuple[Kind, float, Iterable[str]], ...] = (
    ("total", 0.8, ["total", "totale", "totaal", "importe total eur"]),
    ("total", 0.45, ["importe", "import", "amount", "suma total a", "montant", "betrag", "valor"]),
    ("total", 1.0, STRONG_TOTAL.split("|")),
    ("total", 0.75, WITH_TAX.split("|")), ("base", 0.85, WITHOUT_TAX.split("|")),
    ("total", 0.95, _spread("total|total factura|importe total|importe", "iva incluido|iva incl|iva inc|con iva")),
    ("total", 0.95, _spread("total|amount", "vat incl|vat included|gst incl|gst included|incl|ttc|brutto")),
    ("total", 0.95, ["total igic incluido", "total con impuestos", "importe con impuestos"]),
    ("due", 1.0, DUE.split("|")),
    ("base", 1.0, BASE.split("|")),
    ("base", 0.95, _spread("total|importe total|importe|subtotal", "iva no incluido|iva excluido|sin iva")),
    ("base", 0.95, _spread("total|importe", "sin impuestos|antes de impuestos")),
    ("base", 0.8, SUBTOTAL.split("|")),
    ("gross", 0.9, GROSS.split("|")),
    ("tax", 1.0, TAX_AMOUNT.split("|")),
    ("tax", 0.95, _spread("vat|tax|gst|sales tax|iva|igic|tva|mwst|ust|impuestos", "subtotal|sub total|zwischensumme")),
    ("surcharge", 1.0, SURCHARGE.split("|")),
    ("surcharge_rate", 1.0, SURCHARGE_RATE.split("|")),
    ("withholding_rate", 1.0, ["tipo irpf", "tipo retención", "porcentaje retención", "porcentaje irpf"]),
    ("withholding", 1.0, WITHHOLDING.split("|")),
    ("discount", 1.0, DISCOUNT.split("|")),
    ("paid", 1.0, PAID.split("|")),
    ("balance", 1.0, BALANCE.split("|")),
    ("charge", 1.0, CHARGE.split("|")),
    ("rounding", 1.0, ROUNDING.split("|")),
    ("tip", 1.0, TIP.split("|")),
    ("cash", 1.0, CASH.split("|")),
    ("change", 1.0, CHANGE.split("|")),
    ("rate", 1.0, RATE.split("|")),
    ("column", 1.0, COLUMN.split("|")),
    ("ignored", 1.0, IGNORED.split("|")),
    # read in two ways
    ("base", 0.8, ["net", "subtota", "sub tota", "nett"]), ("total", 0.7, ["tota"]),
    ("base", 0.85, ["net total"]), ("total", 0.6, ["net total", "nett total"]),
    ("due", 0.6, ["total neto", "importe neto", "total net"]),
    ("total", 0.7, ["netto", "summe", "suma", "suma total"]),
    ("total", 0.9, ["total due", "total amount due", "total payable", "total a pagar", "a pagar", "to pay"]),
    ("total", 0.9, ["zu zahlen", "zu zahlender betrag", "net à payer", "total à payer", "totale da pagare"]),
    ("total", 0.5, ["total bruto", "total brut", "gross total", "gross amount", "total gross", "bruto", "valor bruto"]),
    ("total", 0.7, ["gross"]), ("gross", 0.6, ["gross"]),
    ("base", 0.8, ["total honorarios", "total servicios"]), ("total", 0.7, ["total honorarios", "total servicios"]),
    ("total", 0.9, ["total minuta", "total provisión"]),
    ("due", 0.9, ["importe a pagar", "total factura a pagar"]),
    ("paid", 0.7, ["entrega", "entregado", "credit", "depósito"]),
    ("cash", 0.6, ["paid", "pagado", "amount paid", "payment", "total paid", "pago", "abonado"]),
    ("due", 0.5, ["a devolver", "pendiente"]),
    ("charge", 0.6, ["surcharge", "charges", "charge"]), ("base", 0.5, ["charges"]),
)  # fmt: skip


def _key(phrase: str) -> str:
    """A phrase as `Vocabulary` compares it: "Sub-total" is "subtotal"."""
    return "".join(tokens_of(phrase))


def _readings() -> dict[str, tuple[Reading, ...]]:
    readings: dict[str, dict[Kind, float]] = {}
    for kind, strength, phrases in _PHRASES:
        for phrase in phrases:
            kinds = readings.setdefault(_key(phrase), {})
            kinds[kind] = max(strength, kinds.get(kind, 0.0))
    return {key: tuple(Reading(*pair) for pair in kinds.items()) for key, kinds in readings.items()}


_READINGS = _readings()  # by key
MONEY_LABELS = Vocabulary({_key(phrase): (phrase,) for _, _, phrases in _PHRASES for phrase in phrases})

# Rates of value-added tax in Spain (with IGIC and former ones), Portugal, Italy, France, Germany, the United Kingdom,
# Ireland and Malaysia; a bare "21" beside a base is one of these.
KNOWN_RATES = frozenset(map(Decimal, (
    "21", "10", "4", "5", "7.5", "2", "7", "3", "6.5", "9.5", "15", "20", "23", "13", "6", "22", "5.5", "2.1", "8.5",
    "19", "16", "13.5", "9", "4.8", "0", "8", "12", "17", "18", "25", "24", "27",
)))  # fmt: skip
# Recargo de equivalencia, Ley 37/1992, art. 161, and those of 2023 and 2024.
SURCHARGE_RATES = frozenset(map(Decimal, (
    "5.2", "1.4", "0.5", "0.62", "1.75", "0.26", "1",
)))  # fmt: skip
# Words after "Total" that say whether the tax is in it: "Total (excl. VAT)", "Total RM Including GST 6%".
_OUTSIDE = frozenset((
    "sin", "excl", "excluding", "exclusive", "excluded", "exc", "ex", "before", "without", "hors", "ohne", "exkl",
    "zzgl", "sem", "senza", "sense", "antes", "no", "not", "excluido", "ht",
))  # fmt: skip
_INSIDE = frozenset((
    "incl", "including", "inclusive", "included", "inc", "con", "with", "inkl", "com", "amb", "incluido",
    "incluidos", "inclusa", "ttc", "after",
))  # fmt: skip
_TAX_WORDS = frozenset((
    "iva", "igic", "ipsi", "impuestos", "impostos", "vat", "gst", "sst", "tax", "taxes", "tva", "taxe", "mwst",
    "ust", "ht", "ttc", "incluido", "incluidos",
))  # fmt: skip
_RATE_OF: dict[Kind, Kind] = {"tax": "rate", "surcharge": "surcharge_rate", "withholding": "withholding_rate"}
_QUALIFIED: frozenset[Kind] = frozenset(("total", "base", "due", "gross"))


def readings_of(match: LabelMatch, words: Sequence[Word] = ()) -> Sequence[Reading]:
    """What a label of `MONEY_LABELS` may say.

    Args:
        words: those after it, before its amount: they may say whether the tax is in it.
    """
    readings = _READINGS[match.label]
    if _is_percentage(match):
        return tuple(Reading(_RATE_OF.get(kind, kind), strength) for kind, strength in readings)
    if words and readings[0].kind in _QUALIFIED:
        if words[0].text.startswith("0%"):
            return (Reading("charge", 0.7),)  # what is not taxed: "Total 0% supplies"
        tokens = {token for word in (*match.words, *words) for token in tokens_of(word.text)}
        if tokens & _TAX_WORDS and tokens & _OUTSIDE:
            return (Reading("base", 0.9),)
        if tokens & _TAX_WORDS and tokens & _INSIDE:
            return (Reading("total", 0.95),)
    return readings


def says_whether_taxed(words: Sequence[Word]) -> bool:
    """Whether words after "Total" tell that the tax is in it, or not."""
    tokens = {token for word in words for token in tokens_of(word.text)}
    return bool(tokens & _TAX_WORDS and tokens & (_OUTSIDE | _INSIDE))


def _is_percentage(match: LabelMatch) -> bool:
    """Whether a percent sign without a number belongs to a label: "% IVA", "IVA %"."""
    words = match.cell.words
    signs = [word for word in match.words if "%" in word.text]
    signs += [word for word in words[match.last : match.last + 1] if word.text.startswith("%")]
    before = words[max(match.first - 2, 0) : match.first]
    if before and before[-1].text == "%" and not any(map(str.isdigit, before[0].text)):
        return True
    return any(not any(map(str.isdigit, word.text)) for word in signs)


def says(match: LabelMatch, *kinds: Kind) -> bool:
    """Whether one of a label's readings is of these kinds."""
    return any(reading.kind in kinds for reading in _READINGS[match.label])
