"""Terms of payment: "30 días fecha factura", "Net 30", "al contado"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backend.files.pages import Word
from backend.invoices.header.places import LabelledPage
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field
from backend.text.patterns.folding import fold

_TERM = re.compile(
    r"(?<!\w)(?:\d{1,3} ?[-/]?(?:\d{1,3} ?[-/]?){0,2} ?(?:dias|d\.?f\.?f|days?|tagen?|jours|giorni|dies|d\.)"
    r"|net ?\d{1,3}|contado|a la vista|(?:due )?(?:up)?on receipt|immediate(?:ly)?|sofort|comptant|a reception"
    r"|cash on delivery|end of month|eom|fin de mes|contra reembolso|anticipad[oa]|prepaid|in advance|pronto pago"
    r"|rimessa diretta|a vista)(?!\w)",
    re.IGNORECASE,
)
_ALONE = re.compile(
    r"(?:payment )?(?:terms:? )?net ?\d{1,3}(?: days)?\.?"
    r"|(?:pago a |a )?\d{1,3}(?:[-/ ,y]{1,3}\d{1,3}){0,2} dias"
    r"(?: (?:de )?(?:la )?(?:fecha|f\.?)(?: de)?(?: la)? ?(?:factura|f\.?|fra\.?))?\.?"
    r"|\d{1,3} (?:days|tage|jours|giorni)(?: (?:net|netto|nets|from invoice date|date de facture|fin de mois))?\.?",
    re.IGNORECASE,
)
_ENDS = ("due", "term", "other_id", "other")  # labels that end a term; "30 días fecha factura" goes on
_MOST_WORDS = 14
_MOST_ALONE = 8


def find_payment_term(pages: Sequence[LabelledPage]) -> Field | None:
    """When an invoice is to be paid, in its own words; how (by transfer, by card) alone is no term."""
    for page in pages:
        for label in page.labels:
            if label.label == "term":
                for place in page.places(label):
                    words = _sentence(page.until(place, _ENDS) if place.position == "behind" else place.words)
                    if words and _TERM.search(fold(_text(words)).text):
                        return _field(page, words, 0.85, f"{place.position} its label")
    for page in pages:
        for cell in page.page.cells:
            if len(cell.words) <= _MOST_ALONE and _ALONE.fullmatch(fold(cell.text).text):
                return _field(page, cell.words, 0.6, "words of a term of payment")
    return None


def _sentence(words: Sequence[Word]) -> Sequence[Word]:
    """The words up to the end of their first sentence."""
    for index, word in enumerate(words[:_MOST_WORDS]):
        if word.text.endswith((".", ";")) and len(word.text) > 3:  # not an abbreviation
            return words[: index + 1]
    return words[:_MOST_WORDS]


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)


def _field(page: LabelledPage, words: Sequence[Word], score: float, why: str) -> Field:
    value = _text(words).strip(" .:;,-")
    return printed_field("PaymentTerm", value, words, page.page, score=score, why=why)
