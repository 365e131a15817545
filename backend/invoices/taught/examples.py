"""What is kept of a confirmed document: where each value stood, behind and below which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from backend.files.pages import Box
from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import Kind
from backend.invoices.items.find import ItemLines, find_items
from backend.invoices.records import TAX_IDS, Field
from backend.invoices.taught.printed import (
    AMOUNTS,
    DATE_FORMS,
    DATES,
    NAMES,
    NUMBERS,
    RATES,
    PageArea,
    Printed,
    PrintedPages,
    date_of,
    printed_pages,
)
from backend.invoices.taught.tables import ColumnSpot, columns_of
from backend.reasons import reasons_in
from backend.text.patterns.folding import letters_of

SAME_FOR_ALL = ("VendorName", "VendorTaxId", "VendorAddress", "MerchantName", "IBAN", "CurrencyCode")  # of a supplier
TAUGHT = (
    *AMOUNTS, *RATES, *DATES, *NUMBERS, *TAX_IDS, *NAMES, "VendorAddress", "CustomerAddress", "IBAN", "CurrencyCode",
)  # fmt: skip
SIGNED_AS_TOTAL = ("WithholdingAmount", "TotalDiscount")
_ANYWHERE = (*SAME_FOR_ALL, *RATES)  # known though they are not printed
_MAX_RATES = 8
_LONGEST = 200  # characters of a value that is kept


_AS_IN = ("confirmed_invoice", "confirmed_invoices")  # reasons of a field that examples gave
NOWHERE = PageArea(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stood, or with ``wrong`` where the reader took something for it that it was not."""

    name: str
    value: str
    printed: str  # empty where the value is not on the paper
    before: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    after: str = ""
    place: PageArea = NOWHERE
    corrected: bool = False  # the reader alone had it wrong
    wrong: bool = False
    form: str = ""  # of a date: the orders of its figures that make its value, where the reader's does not tell
    rows: int = 1  # lines that the value takes
    below: str = ""  # the first word of the line below it


@dataclass(frozen=True, slots=True)
class SupplierExample:
    """A confirmed document of a supplier."""

    kind: Kind
    spots: tuple[Spot, ...]
    columns: tuple[ColumnSpot, ...] = ()  # of its lines of goods
    items_corrected: bool = False  # the reader alone had its lines wrong
    taxes: tuple[tuple[str, str], ...] = ()  # type and rate of its tax rows, where the reader alone had none

    def keys(self) -> tuple[str, ...]:
        """By what its supplier is known: each is looked for on later pages."""
        values = {spot.name: spot.value for spot in self.spots if not spot.wrong}
        return tuple(key for name in KEYS if (key := key_of(name, values.get(name, ""))))

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "kind": self.kind,
            "spots": [_spot_json(spot) for spot in self.spots],
            "columns": [asdict(column) for column in self.columns],
            "items_corrected": self.items_corrected,
            "taxes": self.taxes,
        }


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
    columns = (ColumnSpot(**{**column, "label": tuple(column["label"])}) for column in kept.get("columns", ()))
    spots = (_spot_from(spot) for spot in kept["spots"])
    taxes = tuple((name, rate) for name, rate in kept.get("taxes", ()))
    return SupplierExample(kept["kind"], tuple(spots), tuple(columns), kept.get("items_corrected", False), taxes)


def _spot_json(spot: Spot) -> dict[str, Any]:
    return {**asdict(spot), "place": [round(side, 4) for side in spot.place]}


def _spot_from(kept: Mapping[str, Any]) -> Spot:
    lists = {"before": tuple(kept["before"]), "above": tuple(kept["above"]), "place": PageArea(*kept["place"])}
    known = {name: value for name, value in kept.items() if name in Spot.__dataclass_fields__}  # of other releases, too
    return Spot(**{**known, **lists})


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
    places = _places_of(printed, read, confirmed, find_items(pages, printed.mark))
    spots: list[Spot] = []
    for name in TAUGHT:
        right, was, place = confirmed.get(name), read.get(name), places.get(name)
        wrong = right is not None and (was is None or was.value != right.value)
        corrected = wrong or (was is not None and _is_given(was))
        if right is not None and right.valid is False:
            continue
        if right is not None and (place is not None or (name in _ANYWHERE and len(right.value) <= _LONGEST)):
            spots.append(_spot(printed, right, place, corrected=corrected))
        if was is not None and was.places and (right is None or wrong):
            is_part = name.endswith(("Name", "Address")) and right is not None and place is None  # of a text not found
            mistaken = None if is_part else _at_its_place(printed, was)
            if mistaken is not None and (
                right is None or all(mistaken.words != s.words for s in _places(printed, right))
            ):
                spots.append(_spot(printed, was, mistaken, wrong=True))
    was, right = read.get("Items"), confirmed.get("Items")
    columns = columns_of(printed.pages, printed.mark, right)
    wrong = _values(was) != _values(right) or (was is not None and _is_given(was))
    taxes = _values(confirmed.get("TaxDetails"))
    known = read.get("TaxDetails")
    given = [] if known is not None and not _is_given(known) else taxes
    rates = tuple((row.get("Type", "")[:_LONGEST], row["Rate"]) for row in given if "Rate" in row)
    example = SupplierExample(kind, tuple(spots), columns, wrong, rates[:_MAX_RATES])
    return example if example.keys() else None


def _is_given(read: Field) -> bool:
    """Whether examples gave a value: the reader alone did not."""
    return any(reason["code"] in _AS_IN for reason in reasons_in(read.why)[:1])


def _values(table: Field | None) -> list[dict[str, str]]:
    return [] if table is None else [row.values for row in table.rows]


def _places_of(
    printed: PrintedPages, read: Mapping[str, Field], confirmed: Mapping[str, Field], items: ItemLines | None
) -> dict[str, Printed]:
    """Where each value stands; words that are other ones on each paper do not count as words around it then."""

    def is_goods(page: int, box: Box) -> bool:
        return items is not None and items.contains(page, (box.top + box.bottom) / 2)

    found: dict[str, Printed] = {}
    for name in TAUGHT:
        right = confirmed.get(name)
        if right is None or right.valid is False or len(right.value) > _LONGEST:
            continue
        options = _places(printed, right)
        options = [option for option in options if not is_goods(option.page.page.number, option.box)] or options
        there = printed.read_at(read[name]) if name in read else None  # a date that was read in another order, perhaps
        options = [option for option in options if there is not None and option.words == there.words] or options
        if name in DATES or name in SIGNED_AS_TOTAL:  # of two fields with one value each has its own
            options = [one for one in options if all(one.words != other.words for other in found.values())] or options
        if options:
            found[name] = options[-1] if name in AMOUNTS else options[0]
    _set_apart(printed, found, is_goods)
    return found


def _set_apart(printed: PrintedPages, found: Mapping[str, Printed], is_goods: Callable[[int, Box], bool]) -> None:
    for name, place in found.items():
        if name not in _ANYWHERE:
            printed.without(place)
    for page in printed.pages:
        own = {word.start for place in found.values() if place.page is page for word in place.words}
        for row in page.rows:
            if is_goods(page.page.number, row.box) and own.isdisjoint(word.start for word in row.words):
                printed.without_words(row.words, page.page.number)


def _spot(
    pages: PrintedPages, field: Field, found: Printed | None, *, corrected: bool = False, wrong: bool = False
) -> Spot:
    if found is None:
        return Spot(field.name, field.value, "", corrected=corrected)
    found = pages.around(found)
    text = " ".join(word.text for word in found.words)[:_LONGEST]
    forms = [form for form in DATE_FORMS if date_of(text, form) == field.value] if field.name in DATES else []
    if len(forms) > 1 and any(day.words == found.words for day in pages.dates()):
        forms = []  # the reader knows which from the other dates
    return Spot(
        field.name, field.value[:_LONGEST], text, found.before, found.above, found.after, found.place, corrected, wrong,
        " ".join(forms), found.rows, found.below,
    )  # fmt: skip


def _places(pages: PrintedPages, field: Field) -> list[Printed]:
    """Where a value is printed: where the field says, else wherever."""
    there = _at_its_place(pages, field)
    if there is not None:
        return [there]
    if field.name in AMOUNTS:
        return [found for found in pages.amounts() if _same_amount(found.value, field.value)]
    if field.name in DATES:
        return [found for form in ("", *DATE_FORMS) for found in pages.dates(form) if found.value == field.value]
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
