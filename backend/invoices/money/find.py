"""The amounts of an invoice or a receipt, settled by arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from backend.files.visual_rows import PageRows
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import Vocabulary
from backend.invoices.money.balance import Balance, settle
from backend.invoices.money.candidates import Candidate, Candidates, candidates
from backend.invoices.money.check import equations_of, totals_hold
from backend.invoices.money.currency import currency_of
from backend.invoices.money.lines import MoneyLines, money_lines
from backend.invoices.money.repair import Repair, repair_of
from backend.invoices.money.taxes import TaxRow, Withholding, tax_rows, with_bases, withholding_of
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field, FieldRow, Validity
from backend.tables.numbers import Number
from backend.text.patterns.numbers import format_decimal

_MOST_PAGES = 50  # a longer document's totals are on its first or its last pages
_ENOUGH = 0.35  # score of a total that stands alone
_RECEIPT = Vocabulary(
    {
        "receipt": (
            "ticket", "factura simplificada", "recibo", "receipt", "tique", "tiquet", "cash sale", "kassenbon",
            "ticket de caisse", "scontrino", "talão", "guest check", "cash bill",
        )
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Money:
    """The amounts, tax rows and currency, and whether they agree."""

    fields: tuple[Field, ...]
    validity: Validity


def find_money(pages: Sequence[PageRows], mark: str, items: ItemLines | None) -> Money:
    """Totals, taxes, withholding and currency.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
        items: amounts among them are no totals; their sum is the base.
    """
    if len(pages) > _MOST_PAGES:
        pages = [*pages[: _MOST_PAGES // 2], *pages[-_MOST_PAGES // 2 :]]
    lines = money_lines(pages, mark, items)
    rows = tax_rows(lines)
    withheld = withholding_of(lines)
    items_sum = _sum_of_items(items)
    found = candidates(pages, lines, rows, items_sum)
    balance = settle(found, rows, _withheld_candidate(withheld), items_sum)
    if balance.total is None or (balance.total.score < _ENOUGH and not balance.adds_up):
        return Money((), Validity())
    rows = with_bases(rows, lines, _whole_base(balance))
    digital = all(page.page.source == "text_layer" for page in pages)
    equations = equations_of(balance, rows, items_sum, complete=digital)
    repair = repair_of(balance, rows, items_sum) if totals_hold(equations) is False else None
    if repair is not None:
        equations = repair.equations
    fields = [
        *_total_fields(balance, pages, found),
        *_tax_fields(rows, pages, balance),
        *_withholding_fields(withheld, balance),
        *_currency_field(pages, lines, balance),
    ]
    fields = [_with_repair(field, balance, repair) for field in fields]
    differences = tuple(equation.difference for equation in equations if not equation.holds)
    return Money(tuple(fields), Validity(totals=totals_hold(equations), differences=differences))


def _with_repair(field: Field, balance: Balance, repair: Repair | None) -> Field:
    """The misread amount's field with its likely value; the page's reading stays."""
    if repair is None:
        return field
    parts = {
        "SubTotal": balance.base,
        "TotalTax": balance.tax,
        "InvoiceTotal": balance.total,
        "WithholdingAmount": balance.withheld,
    }
    part = parts.get(field.name)
    if part is None or part.numbers != repair.numbers:
        return field
    return replace(field, repair=format_decimal(repair.value))


def _whole_base(balance: Balance) -> Number | None:
    """The printed base, where all taxes are on it: nothing taken off it or added to it, the tax not in it."""
    base = balance.base
    if base is None or base.page is None or balance.extras or balance.tax_in_base:
        return None
    return base.numbers[0]


def _sum_of_items(items: ItemLines | None) -> Decimal | None:
    if items is None or not items.field.rows:
        return None
    try:
        return sum(
            (Decimal(cell.value) for row in items.field.rows for cell in row.fields if cell.name == "Amount"),
            Decimal(0),
        )
    except InvalidOperation:
        return None


def _withheld_candidate(withheld: Withholding | None) -> Candidate | None:
    if withheld is None or not withheld.amount.value:
        return None
    return Candidate(withheld.amount.value, 1.0, (withheld.amount,), withheld.page, "withholding")


def _score(balance: Balance, candidate: Candidate) -> float:
    """0 to 1: how good the label is, and whether the equations hold."""
    return min(0.99, 0.45 + 0.25 * min(candidate.score, 1.0) + (0.3 if balance.adds_up else 0.0))


def _field(name: str, candidate: Candidate, balance: Balance, value: Decimal | None = None) -> Field:
    number = format_decimal(candidate.value if value is None else value)
    score = _score(balance, candidate)
    if candidate.page is None:
        return Field(name, number, "", round(score, 4), "computed", candidate.why)
    words = [word for number in candidate.numbers for word in number.words]
    return printed_field(name, number, words, candidate.page, score=score, why=candidate.why)


def _total_fields(balance: Balance, pages: Sequence[PageRows], found: Candidates) -> Iterator[Field]:
    assert balance.total is not None
    if balance.base is not None and balance.base.numbers:
        yield _field("SubTotal", balance.base, balance)
    if balance.tax is not None:
        yield _field("TotalTax", balance.tax, balance)
    yield _field("InvoiceTotal", balance.total, balance)
    due = balance.due or balance.total
    yield _field("AmountDue", due, balance)
    if _is_receipt(pages, found):
        yield _field("Total", balance.total, balance)
    discount = next((extra.candidate for extra in balance.extras if extra.kind == "discount"), None)
    discount = discount or next(iter(found.of("discount")), None)
    if discount is not None and discount.value:
        sign = -1 if balance.total.value < 0 else 1
        yield _field("TotalDiscount", discount, balance, sign * abs(discount.value))
    tip = next(iter(found.of("tip")), None)
    if tip is not None:
        yield _field("Tip", tip, balance)


def _is_receipt(pages: Sequence[PageRows], found: Candidates) -> bool:
    if found.of("change") or found.of("tip"):
        return True
    return any(_RECEIPT.find(cell) for page in pages[:1] for cell in page.cells)


def _tax_fields(rows: Sequence[TaxRow], pages: Sequence[PageRows], balance: Balance) -> Iterator[Field]:
    if not rows:
        return
    details, by_number = [], {page.page.number: page for page in pages}
    for row in rows:
        why = {"table": "a table of taxes", "line": "beside its label", "sum": "base x rate = amount"}[row.by]
        score = 0.95 if row.holds else 0.8
        cells = [Field("Type", row.type, "", score, "computed", why)]
        cells.append(Field("Rate", _plain(row.rate), "", score, "text", why))
        for name, number in (("Base", row.base), ("Amount", row.amount)):
            if number is not None:
                value = format_decimal(number.value)
                on = by_number[number.cell.page]  # a base may stand on the page before its tax
                cells.append(printed_field(name, value, number.words, on, score=score, why=why))
        details.append(FieldRow(tuple(cells)))
    places = tuple(place for row in details for cell in row.fields for place in cell.places)
    yield Field(
        "TaxDetails", "", "", min(cell.score for row in details for cell in row.fields), "text",
        "rates with their bases and amounts", places=places, rows=tuple(details),
    )  # fmt: skip
    surcharges = [row for row in rows if row.is_surcharge]
    if surcharges:
        total = sum((row.amount.value for row in surcharges), Decimal(0))
        page = surcharges[0].page if len(surcharges) == 1 else None
        numbers = tuple(row.amount for row in surcharges)
        yield _field("EquivalenceSurcharge", Candidate(total, 1.0, numbers, page, "recargo de equivalencia"), balance)


def _plain(rate: Decimal) -> str:
    """A rate without trailing zeros: "21" for "21,00 %"."""
    return f"{rate.normalize():f}"


def _withholding_fields(withheld: Withholding | None, balance: Balance) -> Iterator[Field]:
    """Positive beside positive amounts, whatever sign is printed."""
    candidate = _withheld_candidate(withheld)
    if candidate is None or withheld is None or balance.total is None:
        return
    sign = -1 if balance.total.value < 0 else 1
    yield _field("WithholdingAmount", candidate, balance, sign * abs(candidate.value))
    if withheld.rate is not None:
        field = _field("WithholdingRate", candidate, balance, Decimal(0))
        yield replace(field, value=_plain(abs(withheld.rate)))


def _currency_field(pages: Sequence[PageRows], lines: MoneyLines, balance: Balance) -> Iterator[Field]:
    numbers: list[tuple[PageRows, Number]] = []
    for candidate in (balance.total, balance.due, balance.base, balance.tax):
        if candidate is not None and candidate.page is not None:
            numbers += [(candidate.page, number) for number in candidate.numbers] * 3
    numbers += [(page, number) for page, _, row in lines.plain for number in row]
    currency = currency_of(pages, numbers)
    if currency is None:
        return
    if currency.page is None:
        yield Field("CurrencyCode", currency.code, "", currency.score, "computed", currency.why)
    else:
        yield printed_field(
            "CurrencyCode", currency.code, currency.words, currency.page, score=currency.score, why=currency.why
        )
