"""Which of day and month comes first in the numeric dates of a text, by what else stands in it.

12/03/2026 is the third of December in the United States and the twelfth of March elsewhere. Evidence is counted once
each: other dates of the text, currencies, tax numbers, phone prefixes, states with ZIP codes, words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SAMPLE = 20_000  # characters at each end; letterhead and footer tell the country


class DateOrder(NamedTuple):
    """How a text writes numeric dates."""

    month_first: bool
    settled: bool  # False: nothing or too little tells; day first is then the guess of all the world but one country


class Points(NamedTuple):
    """Evidence for each order."""

    day_first: int
    month_first: int

    def order(self) -> DateOrder:
        """The order with more points; settled with two more."""
        month_first = self.month_first > self.day_first
        return DateOrder(month_first, abs(self.month_first - self.day_first) >= _ENOUGH)


_ENOUGH = 2
_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|OK|OR"
    "|PA|RI|SC|SD|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC"  # without Delaware: "DE 12345" is in Germany
)
_MONTH_FIRST = (
    (2, re.compile(rf"(?<![^\W_])(?:{_STATES})\.?,? {{1,2}}\d{{5}}(?:-\d{{4}})?(?!\w)")),
    (1, re.compile(r"\(\d{3}\)[ -]{0,2}\d{3}[-. ]\d{4}(?!\d)|(?<![\d-])\d{3}-\d{3}-\d{4}(?!\d)|\+1[ .(-]{1,2}\d{3}")),
    (1, re.compile(r"(?<![A-Z])(?:US ?)?\$ ?\d|\bUSD\b")),
    (1, re.compile(r"\b(?:sales tax|zip code|EIN|LLC|USA|U\.S\.A|United States|checks? payable)\b", re.IGNORECASE)),
)
_DAY_FIRST = (
    (2, re.compile(r"€|£|\bEUR(?:O?S?)\b|\bGBP\b|\bCHF\b|\bRM ?\d|\bMYR\b|\beuros?\b")),
    (
        2,
        re.compile(
            r"(?<![^\W_])(?:[NC]\.? ?I\.? ?F\b|N\.?I\.?E\b|DNI|NIPC|I\.?V\.?A\b|IGIC|V\.?A\.?T\b|GST|MwSt|USt|TVA|SIRET"
            r"|SIREN|ABN|CUIT|RFC|GSTIN|Umsatzsteuer|BTW)(?![^\W_])",
            re.IGNORECASE,
        ),
    ),
    (2, re.compile(r"(?<!\w)(?:\+|00)(?:3[0-9]|4[0-9]|6[0-9]|5[1-9]|9[1-9])[ .(-]{0,2}\d")),
    (2, re.compile(r"(?<![^\W_])[A-Z]{2}\d\d(?: ?[A-Z0-9]{4}){3}")),  # the head of an IBAN; the United States have none
    (1, re.compile(r"(?<![^\W_])[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?![^\W_])")),  # a British postcode
    (1, re.compile(r"\b(?:Ltd|plc|England|Wales|Scotland|Ireland|United Kingdom|Sdn|Bhd|GmbH)\b", re.IGNORECASE)),
)
_FOREIGN = re.compile(
    r"(?<![^\W_])(?:fecha|factura|importe|vencimiento|cliente|precio|cantidad|calle|telefono|cuenta|pedido|pagina|para"
    r"|datum|rechnung|betrag|menge|strasse|und|der|facture|montant|quantite|rue|les|des|fattura|importo|della|fatura"
    r"|valor|rua|quantidade|quantitat|preu|carrer|data|numero|por|una|segun|desde|hasta)(?![^\W_])",
    re.IGNORECASE,
)
_FOREIGN_WORDS = 3  # that make a text another language than English; "para", "des", "data" stand in English texts too
_MAX_WORDS = 200  # that are looked at


def country_points(text: str) -> Points:
    """Evidence of the country in a folded text, head and tail of it."""
    sample = text if len(text) <= 2 * _SAMPLE else text[:_SAMPLE] + "\n" + text[-_SAMPLE:]
    day_first = sum(points for points, regex in _DAY_FIRST if regex.search(sample))
    month_first = sum(points for points, regex in _MONTH_FIRST if regex.search(sample))
    words = {match[0].lower() for match, _ in zip(_FOREIGN.finditer(sample), range(_MAX_WORDS), strict=False)}
    return Points(day_first + (2 if len(words) >= _FOREIGN_WORDS else min(1, len(words))), month_first)
