"""Telephone numbers, e-mail addresses and URLs, and postcodes of Spain, the United Kingdom and the United States.

Telephone numbers are validated with Google's libphonenumber. ``value`` is E.164 ("+34912345678") where the country is
known: by its prefix, or because only one country groups digits in this way. ``valid`` stays None: a numbering plan
tells which numbers exist, not whether one was copied correctly. Postcodes are recognised by their context.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import lru_cache

from phonenumbers import NumberParseException, is_valid_number, parse

from backend.text.patterns.pattern import (
    AFTER_START,
    CLEAR,
    END,
    LIKELY,
    SURE,
    WEAK,
    Pattern,
    PatternMatch,
    has_before,
    matches,
)

# Where a number may begin: not inside another number, a code or an amount.
_ANCHOR = re.compile(r"[+(\d](?<![\w+/$€£@#].)(?<!\d[.,:-].)(?<![^\W\d_]-.)(?=[\d ().\-/]{5})")
_SEP = r"[ .\-/]"
_FORMATS = re.compile(
    r"(?:"
    # An international prefix, then groups; the numbering plan tells where the number ends.
    rf"(?P<world>(?:\+ ?|00 ?)[1-9]\d{{0,2}}(?:[ .\-/]{{0,2}}(?:\(\d{{1,4}}\)|\d{{1,4}})){{1,8}}+)"
    # Spain: 612 345 678, 612 34 56 78, 91 234 56 78, 91 2345678, 912345678; "34 93 …" with the plus sign lost.
    rf"|(?P<es>(?:\(?34\)?[ \-]{{1,3}})?(?:[6789]\d\d{_SEP}\d{{3}}{_SEP}\d{{3}}|[6789]\d\d(?:{_SEP}\d\d){{3}}"
    rf"|\(?[89]\d\)?{_SEP}{{1,2}}\d{{3}}{_SEP}\d\d{_SEP}\d\d|\(?9\d\d?\)?[ \-]\d{{6,7}}"
    rf"|[6789]\d\d[ ]\d{{6}}|[6789]\d{{8}}))"
    r"|(?P<us>(?:1[-. ])?(?:\([2-9]\d\d\)[ ]?|[2-9]\d\d[-.])[2-9]\d\d[-. ]\d{4})"
    r"|(?P<gb>(?:\(0\d{2,4}\)|0\d{2,4})[ \-]\d{3,4}[ \-]?\d{3,4})"
    r"|(?P<any>\d(?:[ .\-]?\d){5,14}+)"
    r")(?![\w@]|[.,/:-]\d)(?! ?[€$£%])"
)
_CUE = re.compile(
    r"\b(?:tel|telf|tfno?|tlfn?o?|telefono?s?|telephone|phone|ph|movil(?:es)?|mobile|mob|cell|fax"
    r"|whatsapp|call|ll?ame(?:nos)?|llamar|centralita"
    r"|contacto|contact)\b(?:[ ]?(?:no?|num(?:ero)?|number|fijo|movil|us|al|at|de contacto|particular)\b)*"
    r"[^\w\n]{0,5}\n?[^\w\n+(]{0,5}$",
    re.IGNORECASE,
)
_LISTED = re.compile(r"\d[ ]{0,2}[/,;yo-][ ]{0,2}$")  # the second of "Tel. 912 345 678 / 612 345 678"
_OTHER_NUMBER = re.compile(
    r"(?:ref|pedido|order|cuenta|account|poliza|policy|contrato|expediente|factura|invoice|serie|serial|albaran|codigo|code|nss"
    r"|id|n\.?[ºo]|no\.|num(?:ero)?|number|#|eur|usd|\$|€|cliente|customer|isbn|ean|lote?|imei|nuss|nhc|cip)\.?[^\w\n]{0,4}$",
    re.IGNORECASE,
)
_GROUP = re.compile(r"\d+")
_REGIONS = {"es": "ES", "us": "US", "gb": "GB"}


def _find_phones(text: str) -> Iterator[PatternMatch]:
    last: PatternMatch | None = None
    end = 0
    for anchor in matches(_ANCHOR, text):
        match = _FORMATS.match(text, anchor.start()) if anchor.start() >= end else None
        if match is None:
            continue
        end = match.end()
        after_cue = has_before(text, match.start(), _CUE, 50)
        listed = (
            last is not None
            and match.start() - last.end <= 5
            and bool(_LISTED.search(text[last.end - 1 : match.start()]))
        )
        phone = _parse(match, has_cue=after_cue or (listed and last is not None and last.score > LIKELY))
        if phone:
            yield (last := phone)


def _parse(match: re.Match[str], *, has_cue: bool) -> PatternMatch | None:
    kind, text, start = str(match.lastgroup), match.string, match.start()
    if kind == "world":
        return _parse_world(match, has_cue=has_cue)
    if kind == "any":
        return _parse_any(match) if has_cue else None
    value = _e164(match[0].removeprefix("(34)") if kind == "es" else match[0], _REGIONS[kind])
    if value is None:
        return PatternMatch(*match.span(), None, None, LIKELY) if has_cue else None
    if has_cue:
        return PatternMatch(*match.span(), value, None, SURE)
    if has_before(text, start, _OTHER_NUMBER, 20):
        return None
    return _without_cue(match, value, kind)


def _without_cue(match: re.Match[str], value: str, kind: str) -> PatternMatch | None:
    """A national number without a keyword, scored by how its digits are grouped."""
    groups = [len(group) for group in _GROUP.findall(match[0])]
    if "." in match[0] and groups == [3, 3, 3]:
        return None  # 912.345.678 is an amount
    if len(groups) == 1:
        return PatternMatch(*match.span(), value, None, WEAK)
    return PatternMatch(*match.span(), value, None, CLEAR if kind == "us" or groups != [3, 3, 3] else LIKELY)


def _parse_world(match: re.Match[str], *, has_cue: bool) -> PatternMatch | None:
    """The longest run of groups that is valid in the country's plan; after "00" without a cue, at least ten digits."""
    digits = "".join(_GROUP.findall(match[0])).removeprefix("00" if match[0].startswith("00") else "")
    if match[0].startswith("00") and not has_cue and len(digits) < 10:
        return None
    stops = [group.end() for group in re.finditer(r"\d+\)?", match[0])]
    for stop in reversed(stops[1:] if len(stops) > 1 else stops):
        written = match[0][:stop]
        value = _e164("+" + written.replace("(0)", "").lstrip("+0 "), None)
        if value:
            return PatternMatch(match.start(), match.start() + stop, value, None, SURE if has_cue else CLEAR)
    if has_cue and 7 <= len(digits) <= 15:
        return PatternMatch(*match.span(), None, None, LIKELY)
    return None


def _parse_any(match: re.Match[str]) -> PatternMatch | None:
    """Seven to fifteen digits directly after a keyword: of another country, or without an area code."""
    if not 7 <= sum(character.isdecimal() for character in match[0]) <= 15:
        return None
    return PatternMatch(*match.span(), _e164(match[0], "ES"), None, LIKELY)


def _e164(written: str, region: str | None) -> str | None:
    dialled = "".join(character for character in written if character.isdecimal() or character == "+")
    if region == "ES" and len(dialled) == 11 and dialled.startswith("34"):
        dialled = f"+{dialled}"
    return _look_up(dialled, region) if 7 <= len(dialled) <= 16 else None


@lru_cache(maxsize=4096)
def _look_up(digits: str, region: str | None) -> str | None:
    try:
        number = parse(digits, region)
    except NumberParseException:
        return None
    if not is_valid_number(number):
        return None
    zeros = "0" * (number.number_of_leading_zeros or 1) if number.italian_leading_zero else ""
    return f"+{number.country_code}{zeros}{number.national_number}"


PHONES = (Pattern("PHONE", _find_phones),)


_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_HOST = rf"(?:{_LABEL}\.){{1,8}}"
_LOCAL_CLASS = r"[\w.+%'&/=-]"
_AT_HOST = re.compile(rf"@(?P<host>{_HOST}[^\W\d_]{{2,24}})(?![\w@])")
_LOCAL = re.compile(rf"(?<!{_LOCAL_CLASS})(?<!@){_LOCAL_CLASS}{{1,64}}+$")

_REST = r"[^\s<>\"'«»“”`|{}\\^]{0,2048}+"
_WITH_SCHEME = re.compile(rf"[hHfF](?<![^\W_].)(?i:(?<=h)ttps?|(?<=f)tp)://(?=\w|\[){_REST}")
_WITH_WWW = re.compile(rf"[wW](?<![\w@.-].)(?i:ww)\.(?=\w){_REST}")
# A bare host ends in a top-level domain that is no word ("fin.es" may be two sentences), or has a path.
_BARE = re.compile(
    rf"\.(?=[^\W_])(?P<domain>(?:com|org|net|eu|info|edu|gov|cat|gal|eus|co\.uk|(?:gob|com|org)\.es)"
    rf"|(?P<word>es|fr|de|it|pt|io|uk))(?![\w@-]|\.[^\W_])(?P<path>[/?:]{_REST})?"
)
_HOST_BEFORE = re.compile(rf"(?<![\w@.-])(?:{_LABEL}\.){{0,3}}{_LABEL}$")
_WEB = re.compile(r"\b(?:web|website|site|pagina|sitio|visit[ea]?|url|en)\W{0,3}$", re.IGNORECASE)
_CLOSING = {")": "(", "]": "["}


def _find_emails(text: str) -> Iterator[PatternMatch]:
    for match in matches(_AT_HOST, text):
        before = _LOCAL.search(text[max(0, match.start() - 65) : match.start()])
        local = before[0].lstrip(".'-&/=%+") if before else ""
        if not local or local.endswith(".") or ".." in local:
            continue
        yield PatternMatch(match.start() - len(local), match.end(), None, None, SURE)


def _find_urls(text: str) -> Iterator[PatternMatch]:
    """URLs with a scheme, with www, and bare hosts, in this order of precedence where they overlap."""
    taken = bytearray(len(text))
    for pattern, score in ((_WITH_SCHEME, SURE), (_WITH_WWW, CLEAR)):
        for match in matches(pattern, text):
            start, end = match.start(), match.start() + _trimmed_length(match[0])
            if not taken[start] and ("." in text[start:end] or "localhost" in text[start:end]):
                taken[start : match.end()] = b"\1" * (match.end() - start)
                yield PatternMatch(start, end, None, None, score)
    for match in matches(_BARE, text):
        host = _HOST_BEFORE.search(text[max(0, match.start() - 100) : match.start()])
        if host is None or taken[match.start()] or text[match.end() : match.end() + 1] == "@":
            continue
        start = match.start() - len(host[0])
        if match["word"] and not match["path"] and not has_before(text, start, _WEB, 12):
            continue
        end = match.start() + _trimmed_length(match[0])
        yield PatternMatch(start, end, None, None, LIKELY)


def _trimmed_length(url: str) -> int:
    """The length of a URL without the sentence's punctuation and without a bracket that was opened before it."""
    open_count = {closing: url.count(opening) - url.count(closing) for closing, opening in _CLOSING.items()}
    end = len(url)
    while end:
        last = url[end - 1]
        if last in _CLOSING and open_count[last] < 0:
            open_count[last] += 1
        elif last not in ".,;:!?*…":
            break
        end -= 1
    return end


def _normalized_url(url: str) -> str:
    """Scheme and host in lower case, HTML entities decoded; nothing is added."""
    url = html.unescape(url) if "&" in url else url
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    host_end = next((index for index, character in enumerate(rest) if character in "/?#"), len(rest))
    return f"{scheme.lower()}{separator}{rest[:host_end].lower()}{rest[host_end:]}"


def _normalized_email(address: str) -> str:
    local, _, host = address.rpartition("@")
    return f"{local}@{host.lower()}"


WEB_ADDRESSES = (
    Pattern("EMAIL", _find_emails, needs_digit=False, normalize=_normalized_email),
    Pattern("URL", _find_urls, needs_digit=False, normalize=_normalized_url),
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


POSTCODES = (Pattern("POSTCODE", _find_postcodes),)
