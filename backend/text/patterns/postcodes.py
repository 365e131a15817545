"""Postcodes of Spain, the United Kingdom and the United States, which are recognised by their context."""

from __future__ import annotations

import re
from collections.abc import Iterator

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LIKELY,
    SURE,
    Pattern,
    PatternMatch,
    has_before,
    matches,
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


def _find_postcodes(text: str) -> Iterator[PatternMatch]:
    for match in matches(_FIVE, text):
        score = _american_score(match) if match["more"] else max(_spanish_score(match), _american_score(match))
        if score:
            yield PatternMatch(*match.span(), match[0], None, score)
    for match in matches(_BRITISH, text):
        if _AREA.match(match[0]):
            yield PatternMatch(*match.span(), match[0], None, CLEAR)


def _spanish_score(match: re.Match[str]) -> float:
    """The score as a Spanish postcode, 0 for none: by a label, "E-28013", or a town next to it in an address."""
    text, start, end = match.string, match.start(), match.end()
    if not _SPANISH.fullmatch(match[0]):
        return 0.0
    if has_before(text, start, _LABEL_ES, 24):
        return SURE
    if has_before(text, start, _FLAG_ES, 4):
        return CLEAR
    in_address = has_before(text, start, _PLACE_ES, 14) and _TOWN_ES.match(text, end)
    return LIKELY if in_address or has_before(text, start, _AFTER_TOWN, 20) else 0.0


def _american_score(match: re.Match[str]) -> float:
    text, start = match.string, match.start()
    return CLEAR if has_before(text, start, _STATE, 9) or has_before(text, start, _LABEL_US, 14) else 0.0


PATTERNS = (Pattern("POSTCODE", _find_postcodes),)
