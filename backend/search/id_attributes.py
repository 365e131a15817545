"""Ids in attributes and in filters: a tax id is the same company with or without separators, small letters or "ES"."""

from __future__ import annotations

import re
from dataclasses import replace

from backend.search.filters import Comparison, Compound, Filter
from backend.search.records import Scalar

ID_ATTRIBUTES = frozenset({
    "nif", "vat_id", "vendor_tax_id", "customer_tax_id", "iban", "bic", "bank_account", "account_number",
})  # fmt: skip
_MOST_ID_CHARS = 64  # a text that is longer is no id
_SEPARATORS = re.compile(r"[\s.\-/]+")
_SPANISH = re.compile(r"(?:ES)?((?:\d{8}|[XYZKLM]\d{7})[A-Z]|[A-HJNP-SUVW]\d{7}[0-9A-J])")  # NIF, NIE or CIF


def compact_id(text: str) -> str:
    """Without separators, in capitals: "b-12.345.674" -> "B12345674"."""
    return _SEPARATORS.sub("", text).upper()


def national_id(vat_id: str) -> str | None:
    """The NIF in a Spanish VAT number: "ESB12345674" -> "B12345674"; None in all others."""
    spanish = _SPANISH.fullmatch(vat_id)
    return spanish[1] if spanish and vat_id.startswith("ES") else None


def with_id_forms(where: Filter) -> Filter:
    """The filter with ``eq``, ``ne``, ``in`` and ``nin`` on attributes that hold ids true of any way to write them.

    What a caller has set stays findable as it was written: the forms are added.
    """
    if isinstance(where, Compound):
        return replace(where, filters=tuple(map(with_id_forms, where.filters)))
    kind = {"eq": "in", "in": "in", "ne": "nin", "nin": "nin"}.get(where.type)
    if where.key not in ID_ATTRIBUTES or kind is None:
        return where
    wanted = where.value if isinstance(where.value, tuple) else (where.value,)
    forms = tuple(dict.fromkeys(form for value in wanted for form in _forms(value)))
    return where if len(forms) == len(wanted) else Comparison(where.key, "in" if kind == "in" else "nin", forms)


def _forms(value: Scalar) -> tuple[Scalar, ...]:
    if not isinstance(value, str) or len(value) > _MOST_ID_CHARS:
        return (value,)
    compact = compact_id(value)
    spanish = _SPANISH.fullmatch(compact)
    return (value, compact, spanish[1], f"ES{spanish[1]}") if spanish else (value, compact)
