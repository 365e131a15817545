"""The account an invoice is paid to: an IBAN, valid by its check digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stdnum.iso7064 import mod_97_10

from backend.files.pages import Word
from backend.invoices.header.places import LabelledPage
from backend.invoices.ocr_confusions import suggest_repairs
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field
from backend.text.patterns import find_patterns
from backend.text.patterns.folding import fold

_HEAD = re.compile(r"(?<![^\W_])[A-Za-z]{2}[ -]?[\dOoQIlSBZ]{2}[ .-]?[A-Z0-9]{2}")
# Behind its label, of whatever length: a wrong account is printed all the same.
_LABELLED = re.compile(
    r"IBAN[ :.]{1,3}(?P<number>[A-Z]{2}\d\d(?:(?: ?[A-Z0-9]{1,4}(?![*A-Za-z0-9])){3,8}|[A-Z0-9]{11,30}(?![*\w])))"
)
# What says that an account is the customer's, which is debited.
_DEBITED = re.compile(
    r"domicilia|adeud|cargo en|cargar|su cuenta|titular|debit|debited|mandat|lastschrift|abbuch|prelev|addebit|abbiam",
    re.IGNORECASE,
)
_PAID_TO = re.compile(
    r"transfer|ingres|abon|nuestra cuenta|bank details|pay (?:to|by)|remit|uberweis|virement|bonifico|our account"
    r"|reembols|bankverbindung|coordonnees|datos bancarios|cuenta bancaria",
    re.IGNORECASE,
)
_UNLABELLED = 0.6  # score of the pattern for a number without a label and with wrong check digits
_NEAR = 160  # characters before an account that say whose it is


def find_iban(pages: Sequence[LabelledPage]) -> Field | None:
    """The IBAN to pay to; of several the vendor's before the customer's, and a valid one before a wrong one."""
    found = [candidate for page in pages for candidate in _ibans(page)]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _ibans(page: LabelledPage) -> list[tuple[float, Field]]:
    """Accounts with how well each suits."""
    text = page.page.page.text
    if not _HEAD.search(fold(text).text):
        return []
    found: list[tuple[float, Field]] = []
    for entity in find_patterns(text, ["IBAN"]):
        if entity.value is None:
            continue
        # The country's own check digits inside, which the pattern asks for too, are wrong on real invoices as well.
        valid = mod_97_10.is_valid(entity.value[4:] + entity.value[:4])
        if valid or entity.score > _UNLABELLED:
            suits = 1.0 if entity.valid else 0.9 if valid else 0.5
            found.append(_candidate(page, (entity.start, entity.end), entity.value, suits, valid=valid))
    if not found and page.page.page.source == "ocr":
        for row in page.page.rows:
            if _HEAD.search(fold(row.text).text):
                found += _repaired(page, row.words)
    return found or list(_of_wrong_length(page))


def _of_wrong_length(page: LabelledPage) -> Iterator[tuple[float, Field]]:
    """Numbers behind the label "IBAN" that have no country's length."""
    folded = fold(page.page.page.text)
    for match in _LABELLED.finditer(folded.text):
        value = "".join(filter(str.isalnum, match["number"]))
        if sum(map(str.isdecimal, value)) * 2 > len(value):
            yield _candidate(page, folded.span(*match.span("number")), value, 0.4, valid=False)


def _repaired(page: LabelledPage, words: Sequence[Word]) -> list[tuple[float, Field]]:
    """Accounts with letters where only digits can stand: they are read as the digits, if the check digits agree."""
    text = " ".join(word.text for word in words)
    found = []
    for suggestion in suggest_repairs(text):
        if suggestion.type == "IBAN":
            offset, chosen = 0, []
            for word in words:
                if offset < suggestion.end and suggestion.start < offset + len(word.text):
                    chosen.append(word)
                offset += len(word.text) + 1
            span = (chosen[0].start, chosen[-1].end)
            found.append(_candidate(page, span, suggestion.repair.value, 0.9, valid=True, words=chosen))
    return found


def _candidate(
    page: LabelledPage,
    span: tuple[int, int],
    value: str,
    suits: float,
    *,
    valid: bool | None,
    words: Sequence[Word] = (),
) -> tuple[float, Field]:
    start, end = span
    text = page.page.page.text
    before = fold(text[max(0, start - _NEAR) : start]).text
    debited, paid = _last(_DEBITED, before), _last(_PAID_TO, before)
    suits += 0.1 if paid > debited else -0.1 if debited > paid else 0.0
    printed = words or [word for word in page.page.page.words if word.start < end and start < word.end]
    why = "an account number with right check digits" if valid else "an account number with wrong check digits"
    score = 0.97 if valid else 0.6
    return suits, printed_field("IBAN", value, printed, page.page, score=score, why=why, valid=valid)


def _last(regex: re.Pattern[str], text: str) -> int:
    """Where its last match begins; -1 where there is none."""
    return max((match.start() for match in regex.finditer(text)), default=-1)
