"""What is kept of a confirmed document: where each value stood, behind and below which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import Kind
from backend.invoices.items.find import find_items
from backend.invoices.records import TAX_IDS, Field
from backend.invoices.taught.printed import (
    AMOUNTS,
    DATES,
    NAMES,
    NUMBERS,
    Place,
    Printed,
    PrintedPages,
    printed_pages,
)
from backend.reasons import reasons_in
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.folding import letters_of

SAME_FOR_ALL = ("VendorName", "VendorTaxId", "VendorAddress", "MerchantName", "IBAN", "CurrencyCode")  # of a supplier
TAUGHT = (*AMOUNTS, *DATES, *NUMBERS, *TAX_IDS, *NAMES, "VendorAddress", "CustomerAddress", "IBAN", "CurrencyCode")
_LONGEST = 200  # characters of a value that is kept


_AS_IN = ("confirmed_invoice", "confirmed_invoices")  # reasons of a field that examples gave
NOWHERE = Place(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stood, or with ``wrong`` where the reader took something for it that it was not."""

    name: str
    value: str
    printed: str  # empty where the value is not on the paper
    before: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    after: str = ""
    place: Place = NOWHERE
    corrected: bool = False  # the reader alone had it wrong
    wrong: bool = False
    month_first: bool | None = None  # of a date that has two readings


@dataclass(frozen=True, slots=True)
class SupplierExample:
    """A confirmed document of a supplier."""

    kind: Kind
    spots: tuple[Spot, ...]

    def keys(self) -> tuple[str, ...]:
        """By what its supplier is known: each is looked for on later pages."""
        values = {spot.name: spot.value for spot in self.spots if not spot.wrong}
        return tuple(key for name in KEYS if (key := key_of(name, values.get(name, ""))))

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"kind": self.kind, "spots": [_spot_json(spot) for spot in self.spots]}


ANY = "any"  # a key that every example has: whether there is one at all
KEYS = ("VendorTaxId", "VendorName", "IBAN")
_SHORTEST_KEY = 5


def key_of(name: str, value: str) -> str:
    """The key that a supplier's tax number, name or account gives; empty for one that is too short to tell it."""
    text = letters_of(value)
    if name == "VendorTaxId":
        text = text[2:] if text[:2].isalpha() else text
    return f"{name}:{text}" if len(text) >= _SHORTEST_KEY else ""


def example_from(kept: Mapping[str, Any]) -> SupplierExample:
    """The example that was kept as `SupplierExample.as_json`."""
    return SupplierExample(kept["kind"], tuple(_spot_from(spot) for spot in kept["spots"]))


def _spot_json(spot: Spot) -> dict[str, Any]:
    return {**asdict(spot), "place": [round(side, 4) for side in spot.place]}


def _spot_from(kept: Mapping[str, Any]) -> Spot:
    lists = {"before": tuple(kept["before"]), "above": tuple(kept["above"]), "place": Place(*kept["place"])}
    return Spot(**{**kept, **lists})


def remember(
    pages: Sequence[PageRows], kind: Kind, read: Mapping[str, Field], confirmed: Mapping[str, Field]
) -> SupplierExample | None:
    """What a confirmed document teaches; None where its supplier has neither a name nor a number.

    A number with wrong check digits teaches nothing: it is kept as somebody wrote it, on that document alone.

    Args:
        pages: of the document.
        read: its fields as the service read them.
        confirmed: its fields as they are right, with their places where those are known.
    """
    printed = printed_pages(pages)
    items = find_items(pages, printed.mark)

    def is_among_items(found: Printed) -> bool:
        height = (found.place.top + found.place.bottom) / 2 * found.page.page.width
        return items is not None and items.contains(found.page.page.number, height)

    spots: list[Spot] = []
    for name in TAUGHT:
        right, was = confirmed.get(name), read.get(name)
        wrong = right is not None and (was is None or was.value != right.value)
        given = was is not None and any(reason["code"] in _AS_IN for reason in reasons_in(was.why)[:1])
        corrected = wrong or given
        if right is not None and right.valid is False:
            continue
        if right is not None and len(right.value) <= _LONGEST:
            options = _places(printed, right)
            options = [option for option in options if not is_among_items(option)] or options
            place = (options[-1] if name in AMOUNTS else options[0]) if options else None
            if place is not None or name in SAME_FOR_ALL:
                spots.append(_spot(printed, right, place, corrected=corrected))
        if was is not None and was.places and (right is None or wrong):
            mistaken = _at_its_place(printed, was)
            if mistaken is not None and (
                right is None or all(mistaken.words != s.words for s in _places(printed, right))
            ):
                spots.append(_spot(printed, was, mistaken, wrong=True))
    example = SupplierExample(kind, tuple(spots))
    return example if example.keys() else None


def _spot(
    pages: PrintedPages, field: Field, found: Printed | None, *, corrected: bool = False, wrong: bool = False
) -> Spot:
    if found is None:
        return Spot(field.name, field.value, "", corrected=corrected)
    text = " ".join(word.text for word in found.words)[:_LONGEST]
    order = _order_of(pages, field, found) if field.name in DATES else None
    return Spot(
        field.name, field.value[:_LONGEST], text, found.before, found.above, found.after, found.place, corrected, wrong,
        order,
    )  # fmt: skip


def _order_of(pages: PrintedPages, field: Field, found: Printed) -> bool | None:
    """Whether the month comes first, where a date has two readings."""
    fitting = [
        month_first
        for month_first in (False, True)
        for date in pages.dates(DateOrder(month_first, settled=True))
        if date.words == found.words and date.value == field.value
    ]
    return fitting[0] if len(fitting) == 1 else None


def _places(pages: PrintedPages, field: Field) -> list[Printed]:
    """Where a value is printed: where the field says, else wherever."""
    there = _at_its_place(pages, field)
    if there is not None:
        return [there]
    if field.name in AMOUNTS:
        return [found for found in pages.amounts() if _same_amount(found.value, field.value)]
    if field.name in DATES:
        orders = (DateOrder(month_first=False, settled=True), DateOrder(month_first=True, settled=True))
        return [found for order in orders for found in pages.dates(order) if found.value == field.value]
    return pages.find(field.value)


def _at_its_place(pages: PrintedPages, field: Field) -> Printed | None:
    found = pages.read_at(field)
    if found is None or field.name not in AMOUNTS:
        return found
    inside = [one for one in pages.amounts() if set(one.words) & set(found.words)]
    return next((one for one in inside if _same_amount(one.value, field.value)), None)


def _same_amount(one: str, other: str) -> bool:
    try:
        return abs(Decimal(one)) == abs(Decimal(other))
    except InvalidOperation:
        return False
