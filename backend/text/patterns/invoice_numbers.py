"""Invoice numbers, which are recognised by the label before them."""

from __future__ import annotations

import re

from backend.text.patterns.pattern import AFTER_START, CLEAR, LIKELY, SURE, PatternMatch, from_regex, has_before

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


PATTERNS = (from_regex("INVOICE_NUMBER", _INVOICE, _parse_invoice),)
