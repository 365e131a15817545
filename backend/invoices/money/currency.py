"""The currency of a document: printed beside its amounts, named in its text, or told by where it comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from backend.files.pages import Word
from backend.files.visual_rows import PageRows
from backend.tables.numbers import Number
from backend.text.patterns.folding import fold


class Currency(NamedTuple):
    """An ISO 4217 code and by what it was found."""

    code: str
    words: tuple[Word, ...]  # that print it; empty where the document only hints at it
    page: PageRows | None
    score: float
    why: str


def _code(code: str) -> str:
    """A code that may be a word or an abbreviation, too ("Cad."): in capitals, beside an amount or named as one."""
    behind = r"(?<=\d)|(?<=\d )|(?<=: )|(?<=\()|(?<=\bin )|(?<=\ben )|(?<=cy )|(?<=da )|(?<=sa )|(?<=\n)"
    return rf"(?-i:(?:{behind}){code}(?![\w.])|\b{code}(?= ?\d[\d.,]{{0,12}}[.,]\d\d(?!\d)))"


# Words and codes that name a currency anywhere in the text.
_NAMED = re.compile(
    r"(?P<EUR>€|\beur(?:os?)?\b|\bcents? d'euro)|(?P<GBP>£|\bgbp\b|\bpounds? sterling\b|\blibras esterlinas\b)"
    r"|(?P<USD>\busd\b|us\$|\bu\.?s\.? dollars?\b|\bdolares (?:americanos|estadounidenses)\b)"
    r"|(?P<MYR>\bmyr\b|\brm(?=[\s\d):]|$)|\bringgit\b)"
    rf"|(?P<CHF>\bchf\b|\bswiss francs?\b|\bfrancos suizos\b|\bfr\.(?=\s?\d))|(?P<PLN>{_code('PLN')}|\bzl\b)"
    rf"|(?P<MXN>{_code('MXN')}|\bpesos mexicanos\b)|(?P<CAD>{_code('CAD')}|\bcanadian dollars?\b)"
    rf"|(?P<AUD>{_code('AUD')}|\baustralian dollars?\b)|(?P<SGD>{_code('SGD')}|\bsingapore dollars?\b)"
    rf"|(?P<BRL>{_code('BRL')}|r\$)|(?P<JPY>{_code('JPY')}|¥)|(?P<INR>{_code('INR')}|₹|\brupees\b)"
    rf"|(?P<ARS>{_code('ARS')}|\bpesos argentinos\b)|(?P<COP>{_code('COP')}|\bpesos colombianos\b)"
    rf"|(?P<CLP>{_code('CLP')}|\bpesos chilenos\b)|(?P<SEK>{_code('SEK')})|(?P<NOK>{_code('NOK')})"
    rf"|(?P<DKK>{_code('DKK')})",
    re.IGNORECASE,
)
# A dollar sign is not always that of the United States.
_DOLLARS = re.compile(
    r"(?P<CAD>\bcanada\b|\b(?:hst|pst|qst)\b)|(?P<AUD>\babn\b|\baustralia\b)|(?P<SGD>\bsingapore\b)"
    r"|(?P<MXN>\brfc\b|\bmexico\b|\bcfdi\b)|(?P<ARS>\bcuit\b|\bafip\b|\bargentina\b)|(?P<COP>\bcolombia\b|\bdian\b)"
    r"|(?P<CLP>\bchile\b|\bsii\b)|(?P<NZD>\bnew zealand\b)|(?P<HKD>\bhong kong\b)",
    re.IGNORECASE,
)
# Tax ids, taxes and account numbers of a country, where no amount prints a currency.
_STATES = (
    "al|ak|az|ar|ca|co|ct|de|fl|ga|hi|id|il|in|ia|ks|ky|la|me|md|ma|mi|mn|ms|mo|mt|ne|nv|nh|nj|nm|ny|nc|nd|oh|ok|or|"
    "pa|ri|sc|sd|tn|tx|ut|vt|va|wa|wv|wi|wy"
)
_HINTS = re.compile(
    r"(?P<MYR>\bsdn\.? ?bhd\b|\bmalaysia\b|\bkuala lumpur\b|\bselangor\b)"
    r"|(?P<ARS>\bcuit\b|\bafip\b)|(?P<MXN>\brfc\b|\bcfdi\b)"
    r"|(?P<GBP>\bvat (?:reg|no|number|registration)[^\n]{0,16}\bgb ?\d|\bgb ?\d{9}\b|\bunited kingdom\b|\bengland\b)"
    r"|(?P<EUR>\b(?:nif|cif|igic|irpf|iva|tva|mwst|ust-?id|siret|partita iva|nipc)\b|\b[cn]\.i\.f\.|\bes\d{2} ?\d{4}\b"
    r"|\b(?:de|fr|it|nl|be|pt|ie|at)\d{2} ?[0-9a-z]{4} ?\d{4})"
    rf"|(?P<USD>\bein\b|\bsales tax\b|\b(?:{_STATES}),? \d{{5}}(?:-\d{{4}})?\b)",
    re.IGNORECASE,
)
_READ = 60_000  # characters of a document that are searched for names and hints


def currency_of(pages: Sequence[PageRows], numbers: Sequence[tuple[PageRows, Number]]) -> Currency | None:
    """The currency of the amounts; None where nothing tells.

    Args:
        numbers: those of the document with their pages; the settled totals may come repeatedly to count more.
    """
    text = fold("\n".join(page.page.text for page in pages)[:_READ]).text
    counts = Counter(number.currency for _, number in numbers if number.currency)
    if counts:
        code = counts.most_common(1)[0][0]
        page, number = next((page, number) for page, number in numbers if number.currency == code)
        named = _by_dollar(text, code)
        return Currency(named, number.words[-1:], page, 0.95, "the sign beside the amounts")
    named_code = _most(_NAMED, text)
    if named_code:
        return Currency(named_code, (), None, 0.85, "named in the text")
    if "$" in text:
        return Currency(_by_dollar(text, "USD"), (), None, 0.8, "a dollar sign")
    hint = _first(_HINTS, text)
    return Currency(hint, (), None, 0.6, "by tax ids and places") if hint else None


def _by_dollar(text: str, code: str) -> str:
    """Whose dollar or peso a bare dollar sign is."""
    if code != "USD":
        return code
    named = Counter(match.lastgroup for match in _NAMED.finditer(text) if match.lastgroup not in ("EUR", "GBP"))
    if named:
        return named.most_common(1)[0][0] or code
    return _most(_DOLLARS, text) or code


def _most(pattern: re.Pattern[str], text: str) -> str | None:
    counts = Counter(match.lastgroup for match in pattern.finditer(text))
    return counts.most_common(1)[0][0] if counts else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    """The country that the alternatives' order prefers."""
    found = {match.lastgroup for match in pattern.finditer(text)}
    return next((name for name in pattern.groupindex if name in found), None)
