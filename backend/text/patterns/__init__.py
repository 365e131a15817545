"""Entities that are found by their form: bank accounts, tax numbers, dates, amounts, addresses, invoice numbers."""

from __future__ import annotations

import re
from collections.abc import Collection

from backend.abandoned import require_wanted
from backend.text.entity_merge import PATTERN, Entity
from backend.text.patterns import (
    amounts,
    companies,
    contacts,
    dates,
    ids,
)
from backend.text.patterns.folding import fold, visible

_PATTERNS = (
    *ids.BANK_ACCOUNTS, *ids.TAX_IDS, *dates.PATTERNS, *amounts.PATTERNS, *contacts.WEB_ADDRESSES,
    *contacts.PHONES, *ids.INVOICE_NUMBERS, *contacts.POSTCODES, *companies.PATTERNS,
)  # fmt: skip
_CHECK_MATCHES = 256
_DIGIT = re.compile("[0-9]")  # folding turns all digits into these
PATTERN_TYPES = tuple(pattern.type for pattern in _PATTERNS)


def find_patterns(text: str, types: Collection[str] | None = None) -> list[Entity]:
    """All entities of `PATTERN_TYPES` in a text, by start.

    They may overlap, as an IBAN and the account number inside it; `backend.text.entity_merge` resolves that. To
    get a few types only, therefore find all, merge, and filter afterwards. Linear in the text, whatever it contains.

    Args:
        types: the types to look for; None: all. Types that are not in `PATTERN_TYPES` find nothing.
    """
    folded = fold(text)
    has_digit = _DIGIT.search(folded.text) is not None
    entities: dict[tuple[str, int, int], Entity] = {}
    for pattern in _PATTERNS:
        if (types is not None and pattern.type not in types) or (pattern.needs_digit and not has_digit):
            continue
        for number, match in enumerate(pattern.find(folded.text)):
            if number % _CHECK_MATCHES == 0:
                require_wanted()
            start, end = folded.span(match.start, match.end)
            value = match.value if pattern.normalize is None else pattern.normalize(visible(text[start:end]))
            entity = Entity(pattern.type, text[start:end], start, end, match.score, PATTERN, value, match.valid)
            entities.setdefault((pattern.type, start, end), entity)
    return sorted(entities.values(), key=lambda entity: (entity.start, -entity.end))
