"""Entities that have a form of their own: accounts, tax numbers, dates, amounts, addresses, numbers of invoices."""

from __future__ import annotations

import re
from collections.abc import Collection

from backend.documents.entities import PATTERN, Entity
from backend.documents.patterns import accounts, amounts, companies, contact, dates, identity, phones, references
from backend.documents.patterns.folding import fold, visible

_KINDS = (
    *accounts.KINDS,
    *identity.KINDS,
    *dates.KINDS,
    *amounts.KINDS,
    *contact.KINDS,
    *phones.KINDS,
    *references.KINDS,
    *companies.KINDS,
)
_DIGIT = re.compile("[0-9]")  # all that folding leaves
PATTERN_TYPES = tuple(kind.type for kind in _KINDS)


def find_patterns(text: str, types: Collection[str] | None = None) -> list[Entity]:
    """Everything in a text that has the form of one of `PATTERN_TYPES`, by start.

    Finds may overlap, as an IBAN and the account number inside it: `backend.documents.merge` decides. Who wants few
    types therefore asks for all, merges, and then takes his. Time is linear in the text, whatever it holds.

    Args:
        types: the kinds to look for; unset: all. One that is not of `PATTERN_TYPES` finds nothing.
    """
    folded = fold(text)
    has_digit = _DIGIT.search(folded.text) is not None
    entities: dict[tuple[str, int, int], Entity] = {}
    for kind in _KINDS:
        if (types is not None and kind.type not in types) or (kind.needs_digit and not has_digit):
            continue
        for found in kind.find(folded.text):
            start, end = folded.span(found.start, found.end)
            value = found.value if kind.normal is None else kind.normal(visible(text[start:end]))
            one = Entity(kind.type, text[start:end], start, end, found.score, PATTERN, value, found.valid)
            entities.setdefault((kind.type, start, end), one)
    return sorted(entities.values(), key=lambda entity: (entity.start, -entity.end))
