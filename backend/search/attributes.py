"""Checks the attributes that callers give files, the metadata of stores, and other texts that are stored.

The API checks types, takes these numbers for its schemas, and calls these functions with the place of each value.

A value whose own check digits, or whose date, cannot be right is left out: a filter that hits a misread tax id is worse
than one that misses it, and its digits are still found by keyword. So is a date without a year, a month or a day: it
has no place in the order of dates. Amounts that contradict each other stay as they are printed, and so does a date
whose day and month cannot be told apart, as the document's other facts read it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from backend.errors import InvalidField
from backend.invoices.records import ExtractedFields, Field
from backend.search.filters import Comparison, Compound, Filter
from backend.search.records import Scalar
from backend.text.entity_merge import Entity

KEY_CHARS, VALUE_CHARS = 64, 512  # as OpenAI's
NAME_CHARS, DESCRIPTION_CHARS, METADATA_KEYS = 256, 2_000, 16
ATTRIBUTE_KEYS = 64  # of one file; OpenAI's limit is 16
# Control characters, in classes of regular expressions: keys have none, texts line feeds, returns and tabs alone.
KEY_CONTROLS = r"\u0000-\u001f\u007f-\u009f"
TEXT_CONTROLS = r"\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"
_SURROGATES = r"\ud800-\udfff"  # without their other half no store and no answer can hold them
_NOT_IN_KEYS = re.compile(f"[{KEY_CONTROLS}{_SURROGATES}]")
_NOT_IN_TEXTS = re.compile(f"[{TEXT_CONTROLS}{_SURROGATES}]")
ID_ATTRIBUTES = frozenset({
    "nif", "vat_id", "vendor_tax_id", "customer_tax_id", "iban", "bic", "bank_account", "account_number",
})  # fmt: skip
_MAX_ID_CHARS = 64  # a text that is longer is no id
_SEPARATORS = re.compile(r"[\s.\-/]+")
_SPANISH = re.compile(r"(?:ES)?((?:\d{8}|[XYZKLM]\d{7})[A-Z]|[A-HJNP-SUVW]\d{7}[0-9A-J])")  # NIF, NIE or CIF


def checked_key(key: str, location: str) -> str:
    """A name of 1 to 64 characters. Raises: InvalidField."""
    if not key:
        raise InvalidField(f"{location}: the name of an attribute must not be empty")
    return _checked(key, location, KEY_CHARS, _NOT_IN_KEYS)


def checked_value(value: Scalar, location: str) -> Scalar:
    """A text, a boolean, or a number as float64. Raises: InvalidField."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, location, VALUE_CHARS)
    return _number(value, location)


def checked_text(text: str, location: str, most_chars: int) -> str:
    """Any Unicode but control characters, those of layout aside, and lone surrogates. Raises: InvalidField."""
    return _checked(text, location, most_chars, _NOT_IN_TEXTS)


def _checked(text: str, location: str, most_chars: int, forbidden: re.Pattern[str]) -> str:
    if len(text) > most_chars:
        raise InvalidField(f"{location}: must have at most {most_chars} characters (fixed), got {len(text)}")
    if match := forbidden.search(text):
        raise InvalidField(
            f"{location}: has the character U+{ord(match[0]):04X} at {match.start()}; control characters and lone "
            "surrogates cannot be stored"
        )
    return text


def _number(value: float, location: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidField(f"{location}: must be a finite number, at most 1.8e308")
    if isinstance(value, int) and int(number) != value:
        raise InvalidField(
            f"{location}: got a whole number of {len(str(abs(value)))} digits that a float64 does not hold exactly "
            "(all up to 2^53 are); send it as a text"
        )
    return number


def compact_id(text: str) -> str:
    """Without separators, in capitals: "b-12.345.674" -> "B12345674"."""
    return _SEPARATORS.sub("", text).upper()


def national_id(vat_id: str) -> str | None:
    """The NIF in a Spanish VAT number: "ESB12345674" -> "B12345674"; None in all others."""
    spanish = _SPANISH.fullmatch(vat_id)
    return spanish[1] if spanish and vat_id.startswith("ES") else None


def with_id_forms(filters: Filter) -> Filter:
    """The filter with ``eq``, ``ne``, ``in`` and ``nin`` on attributes that hold ids true of any way to write them.

    What a caller has set stays findable as it was written: the forms are added.
    """
    if isinstance(filters, Compound):
        return replace(filters, filters=tuple(map(with_id_forms, filters.filters)))
    kind = {"eq": "in", "in": "in", "ne": "nin", "nin": "nin"}.get(filters.type)
    if filters.key not in ID_ATTRIBUTES or kind is None:
        return filters
    wanted = filters.value if isinstance(filters.value, tuple) else (filters.value,)
    forms = tuple(dict.fromkeys(form for value in wanted for form in _forms(value)))
    return filters if len(forms) == len(wanted) else Comparison(filters.key, "in" if kind == "in" else "nin", forms)


def _forms(value: Scalar) -> tuple[Scalar, ...]:
    if not isinstance(value, str) or len(value) > _MAX_ID_CHARS:
        return (value,)
    compact = compact_id(value)
    spanish = _SPANISH.fullmatch(compact)
    return (value, compact, spanish[1], f"ES{spanish[1]}") if spanish else (value, compact)


MAX_VALUES = 50  # of one attribute: those that are there most often, then the first ones
MAX_CHARS = 512  # of a value
_MIN_SCORE = 0.5  # of an entity
_NUMBERS = frozenset({
    "SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "WithholdingRate", "WithholdingAmount",
    "EquivalenceSurcharge", "Total", "Tip", "OpeningBalance", "ClosingBalance",
})  # fmt: skip
_DATES = frozenset({"InvoiceDate", "DueDate", "TransactionDate", "PeriodStart", "PeriodEnd"})
_TAX_IDS = frozenset({"vendor_tax_id", "customer_tax_id"})  # Spanish ones as NIF, with or without "ES" before them
# Types of entities -> attributes. Percentages, postcodes and links tell nothing that one filters by.
_ENTITIES: Mapping[str, str] = {
    "PER": "person", "PERSON": "person", "ORG": "organization", "LOC": "location", "GPE": "location",
    "IBAN": "iban", "CCC": "bank_account", "BIC": "bic", "NIF": "nif", "NIE": "nif", "CIF": "nif", "VAT": "vat_id",
    "DATE": "date", "MONEY": "amount", "EMAIL": "email", "PHONE": "phone", "INVOICE_NUMBER": "invoice_number",
}  # fmt: skip
_NAMES = frozenset({"person", "organization", "location"})  # kept as printed; of the others, normalised values only
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WHOLE_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_BLANKS = re.compile(r"\s+")


def found_attributes(
    *,
    document_type: str | None,
    language: str | None,
    fields: ExtractedFields | None,
    entities: Iterable[Entity],
    pages: int | None,
    failed_pages: Sequence[int] = (),
) -> dict[str, tuple[Scalar, ...]]:
    """Attributes by name, each with its values: ISO 8601 days, numbers, ids without separators, names as printed.

    Args:
        document_type: where it is sure.
        pages: of the file; None for a plain text.
        failed_pages: numbers of those that could not be read.
    """
    found: dict[str, tuple[Scalar, ...]] = {}
    if document_type:
        found["document_type"] = (document_type,)
    if language:
        found["language"] = (language,)
    if pages is not None:
        found["pages"] = (float(pages),)
    if failed_pages:
        found["failed_pages"] = tuple(float(number) for number in failed_pages[:MAX_VALUES])
    values: dict[str, Counter[Scalar]] = {}
    for name, value in _field_values(fields):
        values.setdefault(name, Counter())[value] += 1
    for name, value in _entity_values(entities):
        values.setdefault(name, Counter())[value] += 1
    for name, counts in values.items():  # Counter keeps the order of what is equally frequent
        found[name] = tuple(value for value, _ in counts.most_common(MAX_VALUES))
    return found


def attribute_name(field_name: str) -> str:
    """The attribute of a field: "VendorTaxId" -> "vendor_tax_id", "IBAN" -> "iban"."""
    return _WORD_START.sub("_", field_name).lower()


def _field_values(fields: ExtractedFields | None) -> Iterable[tuple[str, Scalar]]:
    for field in fields.fields if fields else ():
        value = _field_value(field)
        if value is not None:
            yield from _named(attribute_name(field.name), value)


def _field_value(field: Field) -> Scalar | None:
    """None for lists of rows, for what cannot be right, and for a number that is none."""
    if field.rows or field.valid is False or not field.value.strip():
        return None
    if field.name in _DATES and not _WHOLE_DATE.fullmatch(field.value):
        return None
    return _read_number(field.value) if field.name in _NUMBERS else _line(field.value)


def _named(name: str, value: Scalar) -> Iterable[tuple[str, Scalar]]:
    """An attribute as it is kept: ids in their normal form, and a Spanish VAT number as NIF too."""
    if name not in ID_ATTRIBUTES or not isinstance(value, str):
        yield name, value
        return
    compact = compact_id(value)
    national = national_id(compact)
    yield name, national if national and name in _TAX_IDS else compact
    if national and name == "vat_id":
        yield "nif", national


def _entity_values(entities: Iterable[Entity]) -> Iterable[tuple[str, Scalar]]:
    for entity in entities:
        name = _ENTITIES.get(entity.type)
        if name is None or entity.valid is False or entity.score < _MIN_SCORE:
            continue
        if name in _NAMES:
            yield name, _line(entity.text)
        elif name == "amount":
            number = _read_number((entity.value or "").partition(" ")[0])
            if number is not None:
                yield name, number
        elif entity.value and (name != "date" or _WHOLE_DATE.fullmatch(entity.value)):
            yield from _named(name, _line(entity.value))


def _read_number(text: str) -> float | None:
    try:
        number = float(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _line(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()[:MAX_CHARS]
