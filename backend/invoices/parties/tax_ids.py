"""Tax numbers in the cells of a page: behind their label, or by their form alone. Values stay as printed."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from stdnum import luhn
from stdnum.ar import cuit
from stdnum.au import abn
from stdnum.gb import vat as gb_vat
from stdnum.pt import nif as pt_nif

from backend.invoices.ocr_confusions import repair
from backend.text.id_formats import all_formats, formats_of_length
from backend.text.patterns.pattern import compact

_I = "[I1l|]"  # as OCR reads it
_NUMBER_WORD = (
    r"(?:(?:n(?:um(?:ero|ber)?|[oº°.]|(?![^\W\d_]))|no|nr|nummer|id|reg(?:istration|istered)?|#)[.:º°]{0,2}[ ]?)"
)
# Labels by what their numbers are. The order counts: an EIN is a tax id too, but never that of a VAT office.
_LABEL = re.compile(
    r"(?<![^\W_])(?:"
    rf"(?P<us>F?E{_I}N|employer id(?:entification)?|(?:federal )?tax[ ]?{_I}\.?D\.?|TIN|tax(?:payer)? (?:id|no"
    rf"|number)\w*)"
    rf"|(?P<pt>N{_I}PC|(?:n\.?[º°o]\.? (?:de )?)?contribuinte)"
    rf"|(?P<it>P(?:art)?\.? ?{_I}(?:VA\b|\.V\.A\.?)|partita iva|cod(?:ice|\.) fiscale)"
    r"|(?P<ar>C\.?U\.?I\.?[TL]\.?)"
    r"|(?P<au>A\.?B\.?N\.?(?= ?:? ?\d))"
    r"|(?P<my>(?:GST|SST|CBP|service tax)(?: (?:reg|id|no|number)\w*)?|tax reg(?:istration)?)"
    rf"|(?P<vat>(?:UK |EU )?V\.?A\.?T\.?(?: reg(?:istration)?| id)?|USt[.-]?(?: ?-?{_I}d(?:ent)?[.-]?(?:Nr|No"
    rf"|nummer)?)?|Umsatzsteuer(?:-{_I}d\w*)?|UID"
    rf"|T\.?V\.?A\.?(?: intra\w*)?|BTW(?:-?(?:nr|nummer|id))?|(?:n\.?[º°o]\.? )?IVA intra\w*|N{_I}F ?[-/] ?IVA"
    r"|(?:n\.?[º°o]\.? )?TVA intra\w*|CVR|Steuer(?:nummer|-?nr)|St\.? ?-?Nr)"
    rf"|(?P<es>[NC]\.? ?{_I}\. ?F\.?|[NC]{_I}[FE]|D\.? ?N\.? ?{_I}\.?|N\.? ?{_I}\.? ?E\.|NIF|CIE(?=[: ]+[A-Z]-?\d)"
    r"|identificaci[oó]n fiscal|documento|RFC|RUT|R\.U\.T\.?)"
    rf")(?:[ ]?[/-] ?(?:[NCD]\.?{_I}\.?[FE]\.?|DN{_I}|N{_I}E|VAT|IVA|NIPC|CUIT)"
    rf"| e (?:C\.? ?F\.?|cod(?:ice|\.) fiscale|P(?:art)?\.? ?{_I}\.?V\.?A\.?|partita iva))*(?![^\W\d_])",
    re.IGNORECASE,
)
_AFTER_LABEL = re.compile(
    rf"[ ]?(?:{_NUMBER_WORD}|(?:de(?:l)? )?(?:cliente|titular|destinatario|receptor|emisor|proveedor|customer|client)"
    rf"|intracomunitario|[-.:#(ºo°]{{1,3}}(?=[ :\d]|\b))?"
    rf"[ ]?(?:{_NUMBER_WORD})?[ .:#º°-]{{0,4}}",
    re.IGNORECASE,
)
# Neither amounts ("1284.50") nor dates.
_VALUE_TOKEN = re.compile(
    r"[ ]?(?![\d.]*\.\d\d?(?![\w.])|\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}(?!\w))(?P<token>[A-Za-z0-9|/.-]+)(?!,\d)"
)
_MAX_TOKENS = 6
_LENGTHS = range(8, 16)
_MIN_DIGITS = 6
_LONGEST_LABEL, _AFTER = 30, 12  # characters of a label, and of "Reg. No.:" in it
_TRAILING = ".,-/|"
_RFC = r"[A-ZÑ&]{3,4}\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[A-Z\d]{2}[\dA]"  # Mexican: of a name and a day
# By form alone: a whole Spanish number, or one with the prefix of its country.
_ALONE = re.compile(
    r"(?<![^\W_])(?<![^\W_][/-])(?:(?:ES[ -]?)?(?:[A-HJ-NP-SUVWXYZ][ -]?\d{7}[ -]?[0-9A-Z]|\d{8}[ -]?[A-HJ-NP-TV-Z])"
    r"|[A-HJNP-SUVW][ -]?(?:\d{2}\.\d{3}\.\d{3}|\d\.\d{3}\.\d{3}-\d)|\d{2}\.\d{3}\.\d{3}[ -]?[A-Z]"
    r"|(?:GB|DE|IT|PT|PL|BE|DK|FI|EL|HU|LU|SI|SK|CZ|EE|LV|LT|HR|RO|SE|IE|NL|FR|ATU?|CY|MT"
    r"|BG)[ ]?\d[\dA-Z ]{6,13}[\dA-Z]"
    rf"|CHE[- ]?\d{{3}}\.\d{{3}}\.\d{{3}}|{_RFC})"
    r"(?![^\W_])(?![-/.]\d)"
)
_SPANISH = ("NIF", "NIE", "CIF")
_ES_FORM = re.compile(r"(?:ES)?(?:[A-Z]\d{7}[A-Z0-9]|\d{8}[A-Z])")
_OWN_FORM = re.compile(rf"{_ES_FORM.pattern}|{_RFC}|CHE\d{{9}}")  # no other number looks so
_CUSTOMER_CUE = re.compile(
    r"\b(?:cliente?|customer|your|su|buyer|kunden?|ihre?|vos|votre|adquirente|comprador|titular)\b", re.IGNORECASE
)
_CHECKS: dict[tuple[str, int], Callable[[str], bool]] = {
    ("vat", 9): gb_vat.is_valid, ("pt", 9): pt_nif.is_valid, ("es", 9): pt_nif.is_valid, ("it", 11): luhn.is_valid,
    ("ar", 11): cuit.is_valid, ("au", 11): abn.is_valid,
}  # fmt: skip


class TaxId(NamedTuple):
    """A tax number in a text."""

    start: int  # of its label, or of itself where it has none
    value_start: int
    end: int
    value: str  # as printed, without separators
    label: str  # "es", "vat", "us", …; empty where it has none
    is_customer: bool  # the label says that it is the customer's
    valid: bool | None  # by its check digits; None where it has none
    repair: str | None  # the likely value where OCR confused its characters


def tax_ids_in(text: str) -> list[TaxId]:
    """The tax numbers of one line, by start, without overlaps."""
    found: list[TaxId] = []
    for tax_id in (*_labelled(text), *_alone(text)):
        place = bisect(found, tax_id.start, key=attrgetter("start"))
        ends_before = place == 0 or found[place - 1].end <= tax_id.start
        if ends_before and (place == len(found) or tax_id.end <= found[place].start):
            found.insert(place, tax_id)
    return found


def _labelled(text: str) -> Iterator[TaxId]:
    for match in _LABEL.finditer(text):
        after = _AFTER_LABEL.match(text, match.end())
        start = after.end() if after else match.end()
        candidates = list(_candidates(text, start))
        if not candidates:
            continue
        label = str(match.lastgroup)
        checked = [(end, value, is_valid(value, label)) for end, value in candidates]
        end, value, valid = next(
            (entry for entry in checked if entry[2]),
            next((entry for entry in checked if _ES_FORM.fullmatch(entry[1])), checked[0]),
        )
        around = text[max(0, match.start() - 20) : start]
        yield TaxId(
            match.start(), start, end, value, label, bool(_CUSTOMER_CUE.search(around)), valid, _repaired(value, valid)
        )


def _candidates(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Where a number from ``start`` may end, and itself: letters and digits in one or several groups."""
    position, value = start, ""
    for _ in range(_MAX_TOKENS):
        token = _VALUE_TOKEN.match(text, position)
        if token is None or not (any(map(str.isdigit, token["token"])) or len(token["token"].strip(_TRAILING)) <= 2):
            return
        value += compact(token["token"].replace("|", "I"))
        position = token.end()
        if len(value) in _LENGTHS and sum(map(str.isdigit, value)) >= _MIN_DIGITS:
            yield position - (len(token["token"]) - len(token["token"].rstrip(_TRAILING))), value
        if len(value) >= _LENGTHS.stop:
            return


def _alone(text: str) -> Iterator[TaxId]:
    for match in _ALONE.finditer(text):
        value = compact(match[0])
        valid = is_valid(value)
        if valid or (_OWN_FORM.fullmatch(value) and match[0] == text.strip(" .:()")):
            yield TaxId(match.start(), match.start(), match.end(), value, "", False, valid, _repaired(value, valid))


def is_valid(value: str, label: str = "") -> bool | None:
    """Whether the check digits of a tax number without separators are right; None for a kind without any.

    Args:
        label: what the label before it says it is, from `TaxId.label`; some kinds have no form of their own.
    """
    if value[:2].isalpha() or not value.isdigit():
        forms = [form for kind in (*_SPANISH, "VAT") for form in formats_of_length(kind, len(value))]
        fitting = [form for form in forms if all(map(str.__contains__, form.template, value))]
        if value.startswith("IT"):
            return luhn.is_valid(value[2:])  # the office in it need not be on stdnum's list
        if fitting:
            return any(form.is_valid(value) for form in fitting)
        return False if label == "es" and len(value) == len("B12345678") else None
    check = _CHECKS.get((label, len(value)))
    return check(value) if check else None


def _repaired(value: str, valid: bool | None) -> str | None:
    """The only likely reading with right check digits, of a number that has wrong ones."""
    if valid is not False:
        return None
    kinds = ("VAT",) if value[:2].isalpha() else _SPANISH
    values = {found.value for kind in kinds if all_formats(kind) and (found := repair(kind, value)) is not None}
    return values.pop() if len(values) == 1 else None


def is_tax_label(text: str) -> bool:
    """Whether a text is the label of a tax number and nothing else."""
    match = _LABEL.match(text.strip(" (")) if len(text) <= _LONGEST_LABEL else None
    return match is not None and not any(map(str.isdigit, text)) and len(text) - match.end() <= _AFTER
