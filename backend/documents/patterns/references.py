"""Invoice numbers, which only their label tells, and postcodes of Spain, the United Kingdom and the United States."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.documents.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LIKELY,
    SURE,
    Found,
    Kind,
    by_pattern,
    has_before,
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

_FIVE = re.compile(r"\d(?<!\w.)\d{4}(?P<more>-\d{4})?(?!\w|[.,/:-]\d)")
_SPANISH = re.compile(r"(?:0[1-9]|[1-4]\d|5[0-2])\d{3}")  # fifty provinces, Ceuta and Melilla
_LABEL_ES = re.compile(
    r"\b(?:C\.? ?P\.?|cod(?:igo)?\.? postal|D\.? ?P\.?|apartado postal|postal code|postcode|zip)"
    r"[ ]{0,2}[:.\-]?\s{0,3}(?:es?-)?$",
    re.IGNORECASE,
)
_FLAG_ES = re.compile(r"(?<![^\W_])ES?-$")
_PLACE_ES = re.compile(r"(?:^|[\n,;(|·•/]|\s-|[ ]{2}|Spain|Espana|SPAIN|ESPANA)[ ]{0,4}$")
_TOWN_ES = re.compile(
    r"[ ]{0,3}[,\-(·]?[ ]{0,3}(?!EUR|USD|GBP|KG|UDS|IVA|Euros|Unidades|Uds|Kg|Km|Hz)"
    r"(?:L'|(?:La|El|Los|Las|O|A|Es|Sa|Sant|San|Santa|L)[ '])?[^\W\d_a-z][^\W\d_]{2,}"
)
_PROVINCES = (
    "Alava|Vitoria|Albacete|Alicante|Almeria|Avila|Badajoz|Palma|Baleares|Barcelona|Burgos|Caceres|Cadiz"
    "|Castellon|Ciudad Real|Cordoba|Coruna|Cuenca|Girona|Gerona|Granada|Guadalajara|San Sebastian|Donostia"
    "|Huelva|Huesca|Jaen|Leon|Lleida|Lerida|Logrono|Lugo|Madrid|Malaga|Murcia|Pamplona|Ourense|Orense|Oviedo"
    "|Gijon|Palencia|Las Palmas|Pontevedra|Vigo|Salamanca|Tenerife|Santander|Segovia|Sevilla|Soria|Tarragona"
    "|Teruel|Toledo|Valencia|Valladolid|Bilbao|Zamora|Zaragoza|Ceuta|Melilla"
)
_AFTER_TOWN = re.compile(rf"\b(?:{_PROVINCES})[ ]?[,\-(:]?[ ]{{0,2}}$", re.IGNORECASE)

_AREAS_GB = (
    "AB|AL|BA|BB|BD|BH|BL|BN|BR|BS|BT|CA|CB|CF|CH|CM|CO|CR|CT|CV|CW|DA|DD|DE|DG|DH|DL|DN|DT|DY|EC|EH|EN|EX|FK|FY|GL|GU|GY|HA|HD"
    "|HG|HP|HR|HS|HU|HX|IG|IM|IP|IV|JE|KA|KT|KW|KY|LA|LD|LE|LL|LN|LS|LU|ME|MK|ML|NE|NG|NN|NP|NR|NW|OL|OX|PA|PE|PH|PL|PO|PR|RG"
    "|RH|RM|SA|SE|SG|SK|SL|SM|SN|SO|SP|SR|SS|ST|SW|SY|TA|TD|TF|TN|TQ|TR|TS|TW|UB|WA|WC|WD|WF|WN|WR|WS|WV|YO|ZE|B|E|G|L|M|N|S|W"
)
_BRITISH = re.compile(
    rf"[A-Z]{AFTER_START}(?:[A-Z]?\d[A-HJKPSTUW]|[A-Z]?\d\d?|[A-Z]?\d[ABEHMNPRVWXY]) \d[ABD-HJLNP-UW-Z]{{2}}{END}"
)
_AREA = re.compile(rf"(?:{_AREAS_GB})\d")
_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|OK|OR|PA|RI|SC|SD"
    "|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC|PR"
)
_STATE = re.compile(rf"[A-Za-z.],?[ \n]{{1,3}}(?:{_STATES}),?[ ]{{1,2}}$")
_LABEL_US = re.compile(r"\bZIP(?: code)?[ ]?:?[ ]{0,2}$", re.IGNORECASE)


def _read_invoice(match: re.Match[str]) -> Found | None:
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
        return Found(start, end, written, None, SURE)
    has_colon = match["colon"] is not None
    if _DATE.fullmatch(written) or (match["line"] and not has_colon) or not _looks_coded(written, has_colon):
        return None
    return Found(start, end, written, None, CLEAR if has_colon else LIKELY)


def _looks_coded(written: str, has_colon: bool) -> bool:
    """Whether it looks like a number of something where no "n.º" says so: capitals, and three digits or a colon."""
    if written.isdecimal():
        return has_colon or len(written) >= 3
    return written == written.upper() and len(written) >= 3


def _find_postcodes(text: str) -> Iterator[Found]:
    for match in _FIVE.finditer(text):
        score = _american(match) if match["more"] else max(_spanish(match), _american(match))
        if score:
            yield Found(*match.span(), match[0], None, score)
    for match in _BRITISH.finditer(text):
        if _AREA.match(match[0]):
            yield Found(*match.span(), match[0], None, CLEAR)


def _spanish(match: re.Match[str]) -> float:
    """How sure it is one of Spain's; 0 where it is not: a label, "E-28013", a town beside it in an address."""
    text, start, end = match.string, match.start(), match.end()
    if not _SPANISH.fullmatch(match[0]):
        return 0.0
    if has_before(text, start, _LABEL_ES, 24):
        return SURE
    if has_before(text, start, _FLAG_ES, 4):
        return CLEAR
    in_address = has_before(text, start, _PLACE_ES, 14) and _TOWN_ES.match(text, end)
    return LIKELY if in_address or has_before(text, start, _AFTER_TOWN, 20) else 0.0


def _american(match: re.Match[str]) -> float:
    text, start = match.string, match.start()
    return CLEAR if has_before(text, start, _STATE, 9) or has_before(text, start, _LABEL_US, 14) else 0.0


KINDS = (by_pattern("INVOICE_NUMBER", _INVOICE, _read_invoice), Kind("POSTCODE", _find_postcodes))
