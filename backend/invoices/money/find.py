"""The amounts of an invoice or a receipt, settled by arithmetic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from backend.files.pages import Word
from backend.files.visual_rows import PageRows, ends_of
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import Vocabulary
from backend.invoices.money.balance import (
    CENTS,
    Balance,
    Equation,
    Extra,
    are_equal,
    of_due,
    of_items,
    of_rate,
    settle,
    taken_off,
    totals_hold,
    with_due,
)
from backend.invoices.money.candidates import Candidate, Candidates, candidates
from backend.invoices.money.labels import Kind
from backend.invoices.money.lines import MoneyLines, money_lines
from backend.invoices.money.proof import Proof, prove
from backend.invoices.money.taxes import (
    TaxRow,
    Withholding,
    only_row,
    tax_rows,
    whole_rows,
    with_bases,
    withholding_of,
)
from backend.invoices.records import Field, FieldRow, Validity, printed_field
from backend.reasons import because
from backend.tables.numbers import Number
from backend.text.patterns.amounts import format_decimal
from backend.text.patterns.folding import fold
from backend.text.patterns.pattern import matches


class Currency(NamedTuple):
    """An ISO 4217 code and by what it was found."""

    code: str
    words: tuple[Word, ...]  # that print it; empty where the document only hints at it
    page: PageRows | None
    score: float
    why: str


def _code(code: str) -> str:
    """A code that may be a word or an abbreviation, too ("Cad."): in capitals, beside an amount or named as one."""
    behind = r"(?<=\d)|(?<=\d )|(?<=: )|(?<=\()|(?<=\bin )|(?<=\ben )|(?<=cy )|(?<=da )|(?<=sa )|(?<=\n)"
    return rf"(?-i:(?:{behind}){code}(?![\w.])|\b{code}(?= ?\$|[ ]?\d[\d.,]{{0,12}}[.,]\d\d(?!\d)))"


# Words and codes that name a currency anywhere in the text.
_NAMED = re.compile(
    r"(?P<EUR>€|\beur(?:os?)?\b|\bcents? d'euro)|(?P<GBP>£|\bgbp\b|\bpounds? sterling\b|\blibras esterlinas\b)"
    r"|(?P<USD>\busd\b|us\$|\bu\.?s\.? dollars?\b|\bdolares (?:americanos|estadounidenses)\b)"
    r"|(?P<MYR>\bmyr\b|\brm(?=[\s\d):]|$)|\bringgit\b)"
    rf"|(?P<CHF>\bchf\b|\bswiss francs?\b|\bfrancos suizos\b|\bfr\.(?=\s?\d))|(?P<PLN>{_code('PLN')}|\bzl\b)"
    rf"|(?P<MXN>{_code('MXN')}|\bpesos mexicanos\b)|(?P<CAD>{_code('CAD')}|\bcanadian dollars?\b)"
    rf"|(?P<AUD>{_code('AUD')}|\baustralian dollars?\b)|(?P<SGD>{_code('SGD')}|\bsingapore dollars?\b)"
    rf"|(?P<BRL>{_code('BRL')}|r\$)|(?P<JPY>{_code('JPY')}|¥)|(?P<INR>{_code('INR')}|₹|\brupees\b)"
    rf"|(?P<ARS>{_code('ARS')}|\bpesos argentinos\b)|(?P<COP>{_code('COP')}|\bpesos colombianos\b)"
    rf"|(?P<CLP>{_code('CLP')}|\bpesos chilenos\b)|(?P<SEK>{_code('SEK')})|(?P<NOK>{_code('NOK')})"
    rf"|(?P<DKK>{_code('DKK')})",
    re.IGNORECASE,
)
# A dollar sign is not always that of the United States.
_DOLLARS = re.compile(
    r"(?P<CAD>\bcanada\b|\b(?:hst|pst|qst)\b)|(?P<AUD>\babn\b|\baustralia\b)|(?P<SGD>\bsingapore\b)"
    r"|(?P<MXN>\brfc\b|\bmexico\b|\bcfdi\b)|(?P<ARS>\bcuit\b|\bafip\b|\bargentina\b)|(?P<COP>\bcolombia\b|\bdian\b|\bnit\b)"
    r"|(?P<CLP>\bchile\b|\bsii\b|\brut\b)|(?P<NZD>\bnew zealand\b)|(?P<HKD>\bhong kong\b)",
    re.IGNORECASE,
)
# Tax ids, taxes and account numbers of a country, where no amount prints a currency.
_STATES = (
    "al|ak|az|ar|ca|co|ct|de|fl|ga|hi|id|il|in|ia|ks|ky|la|me|md|ma|mi|mn|ms|mo|mt|ne|nv|nh|nj|nm|ny|nc|nd|oh|ok|or|"
    "pa|ri|sc|sd|tn|tx|ut|vt|va|wa|wv|wi|wy"
)
_HINTS = re.compile(
    r"(?P<MYR>\bsdn\.? ?bhd\b|\bmalaysia\b|\bkuala lumpur\b|\bselangor\b)"
    r"|(?P<ARS>\bcuit\b|\bafip\b)|(?P<MXN>\brfc\b|\bcfdi\b)"
    r"|(?P<GBP>\bvat (?:reg|no|number|registration)[^\n]{0,16}\bgb ?\d|\bgb ?\d{9}\b|\bunited kingdom\b|\bengland\b)"
    r"|(?P<EUR>\b(?:nif|cif|igic|irpf|iva|tva|mwst|ust-?id|siret|partita iva|nipc)\b|\b[cn]\.i\.f\.|\bes\d{2} ?\d{4}\b"
    r"|\b(?:de|fr|it|nl|be|pt|ie|at)\d{2} ?[0-9a-z]{4} ?\d{4})"
    rf"|(?P<USD>\bein\b|\bsales tax\b|\b(?:{_STATES}),? \d{{5}}(?:-\d{{4}})?\b)",
    re.IGNORECASE,
)
_READ = 60_000  # characters of a document that are searched for names and hints


def currency_of(pages: Sequence[PageRows], numbers: Sequence[tuple[PageRows, Number]]) -> Currency | None:
    """The currency of the amounts; None where nothing tells.

    Args:
        numbers: those of the document with their pages; the settled totals may come repeatedly to count more.
    """
    text = fold("\n".join(page.page.text for page in pages)[:_READ]).text
    counts = Counter(number.currency for _, number in numbers if number.currency)
    if counts:
        code = counts.most_common(1)[0][0]
        page, number = next((page, number) for page, number in numbers if number.currency == code)
        named = _by_dollar(text, code)
        return Currency(named, number.words[-1:], page, 0.95, because("currency_sign"))
    named_code = _most(_NAMED, text)
    if named_code:
        return Currency(named_code, (), None, 0.85, because("currency_named"))
    if "$" in text:
        return Currency(_by_dollar(text, "USD"), (), None, 0.8, because("dollar_sign"))
    hint = _first(_HINTS, text)
    return Currency(hint, (), None, 0.6, because("currency_of_places")) if hint else None


def _by_dollar(text: str, code: str) -> str:
    """Whose dollar or peso a bare dollar sign is."""
    if code != "USD":
        return code
    named = Counter(match.lastgroup for match in matches(_NAMED, text) if match.lastgroup not in ("EUR", "GBP"))
    if named:
        return named.most_common(1)[0][0] or code
    return _most(_DOLLARS, text) or code


def _most(pattern: re.Pattern[str], text: str) -> str | None:
    counts = Counter(match.lastgroup for match in matches(pattern, text))
    return counts.most_common(1)[0][0] if counts else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    """The country that the alternatives' order prefers."""
    found = {match.lastgroup for match in matches(pattern, text)}
    return next((name for name in pattern.groupindex if name in found), None)


def equations_of(
    balance: Balance, rows: Sequence[TaxRow], items: Decimal | None, *, complete: bool, exact: bool
) -> tuple[Equation, ...]:
    """The equations that the amounts of a document should satisfy, as far as their parts are printed.

    Args:
        rows: with their bases, where these are known.
        items: sum of the lines, where they were found.
        complete: whether no line can be missing or misread, as on a page that OCR read.
        exact: whether quantity and price make every line, and nothing else on the page their sum.
    """
    equations = [*_of_rows(rows), *_of_total(balance, rows), *_of_due(balance)]
    if items is not None:
        settled = any(equation.settles for equation in equations)
        equations += _of_items(balance, rows, items, alone=complete and not settled, exact=complete and exact)
    return tuple(equations)


def _of_rows(rows: Sequence[TaxRow]) -> Iterator[Equation]:
    for row in rows:
        if row.base is not None:
            yield of_rate(row.base.value, row.rate, row.amount.value)


def _of_total(balance: Balance, rows: Sequence[TaxRow]) -> Iterator[Equation]:
    """Base, taxes, charges and withholding make the total."""
    base, tax, total = balance.base, balance.tax, balance.total
    if base is None or total is None or (tax is None and not balance.adds_up):
        return
    if tax is None:
        yield Equation("SubTotal = InvoiceTotal", total.value, total.value, settles=not rows)
        return
    if not base.numbers and are_equal(base.value, total.value):
        return  # the lines make the total: the tax is in them
    text, expected = "SubTotal + TotalTax", base.value + tax.value
    if balance.adds_up:
        for extra in balance.extras:
            text += f" {'+' if extra.cents >= 0 else '-'} {_NAMES.get(extra.kind, extra.kind)}"
            expected += Decimal(extra.cents) / 100
    if balance.withheld is not None and (balance.withheld_in_total or not balance.adds_up):
        text += " - WithholdingAmount"
        expected += taken_off(balance.withheld.value, total.value)
    yield Equation(f"{text} = InvoiceTotal", expected, total.value, settles=True)


_NAMES: dict[str, str] = {"discount": "TotalDiscount", "tip": "Tip"}


def _of_items(
    balance: Balance, rows: Sequence[TaxRow], items: Decimal, *, alone: bool, exact: bool
) -> Iterator[Equation]:
    """The lines make the base; where the tax is in them, the total.

    Lines that were misread would call right totals wrong: those that do not add up are told only where nothing else
    can be checked, or where each of them is proven and what they lack is no discount.
    """
    for name, amount in (("SubTotal", balance.base), ("InvoiceTotal", balance.total)):
        if amount is not None and amount.page is not None and are_equal(items, amount.value):
            yield of_items(items, name, amount.value, settles=name == "InvoiceTotal" and not rows)
            return
    printed = balance.base is not None and balance.base.page is not None
    if alone and balance.total is not None and not printed and balance.tax is None and not balance.extras:
        yield of_items(items, "InvoiceTotal", balance.total.value, settles=True)
    elif exact and printed and not balance.extras and balance.base is not None:
        percent = 100 * (items - balance.base.value) / (items or 1)
        if not are_equal(items * round(percent) / 100, items - balance.base.value):
            yield of_items(items, "SubTotal", balance.base.value, settles=False)


def _of_due(balance: Balance) -> Iterator[Equation]:
    total, due, withheld = balance.total, balance.due, balance.withheld
    if total is None or due is None or withheld is None or balance.withheld_in_total:
        return
    if due.cents != total.cents and not balance.due_agrees:
        yield of_due(total.value, withheld.value, due.value)


_MAX_PAGES = 25  # at either end: a longer document's totals are on its first or its last pages
_ENOUGH = 0.35  # score of a total that stands alone
_NAMED_TAX = 0.7  # score of a label of a tax that must have a place
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


@dataclass(frozen=True, slots=True)
class PrintedMoney:
    """What the pages of a document print of amounts, by labels alone."""

    pages: Sequence[PageRows]
    items: ItemLines | None
    lines: MoneyLines
    rows: tuple[TaxRow, ...]
    withheld: Withholding | None


def printed_money(pages: Sequence[PageRows], mark: str, items: ItemLines | None) -> PrintedMoney:
    """What is to be settled.

    Args:
        mark: the document's decimal separator, from `numbers.decimal_mark_of`.
        items: amounts among them are no totals; their sum is the base.
    """
    pages = ends_of(pages, _MAX_PAGES)
    lines = money_lines(pages, mark, items)
    return PrintedMoney(pages, items, lines, tax_rows(lines), withholding_of(lines))


def find_money(
    printed: PrintedMoney, learned: Sequence[tuple[Kind, Candidate]] = (), taxes: Sequence[TaxRow] = ()
) -> Money:
    """Totals, taxes, withholding and currency.

    Args:
        learned: what the network takes amounts for, beside what labels say.
        taxes: rows as it reads them, for where those by labels do not make the tax.
    """
    pages, items, lines = printed.pages, printed.items, printed.lines
    rows, withheld = printed.rows, printed.withheld
    if not any(row.is_surcharge for row in rows):  # which the network's are not
        rows = _learned_rows(learned, taxes) or rows
    items_sum = None if items is None else items.total
    found = candidates(pages, lines, rows, items_sum, learned)
    balance = settle(found, rows, _withheld_candidate(withheld), None if items is None else items.amounts)
    if balance.total is None or (balance.total.score < _ENOUGH and not balance.adds_up):
        return Money((), Validity())
    rows = _completed(with_bases(rows, lines, _whole_base(balance)), balance, taxes)
    balance = _with_untaxed(balance, rows, items, lines)
    digital = all(page.page.source == "text_layer" for page in pages)
    exact = items is not None and len(items.amounts) == items.reckoned > 1 and not found.of("discount", "charge")
    exact = exact and items_sum not in {number.value for _, _, numbers in lines.plain for number in numbers}
    equations = equations_of(balance, rows, items_sum, complete=digital, exact=exact)
    holds = totals_hold(equations)
    untold = balance.tax is None and any(tax.score >= _NAMED_TAX for tax in found.of("tax"))
    if (untold or not holds) and (proof := prove(lines, found, rows, doubted=holds is False)) is not None:
        proven = _proven(proof, found, withheld, items_sum, complete=digital, exact=exact)
        if totals_hold(proven.equations):
            balance, rows, withheld, equations = proven
            rows = _completed(rows, balance, taxes)
    tax = balance.tax
    if not rows and balance.base and not balance.extras and tax and tax.page is not None and len(tax.numbers) == 1:
        rows = only_row(lines, balance.base.value, _whole_base(balance), tax.numbers[0], tax.page)
    fields = [
        *_total_fields(balance, pages, found),
        *_tax_fields(rows, pages, balance),
        *_withholding_fields(withheld, balance),
        *_currency_field(pages, lines, balance),
    ]
    differences = tuple(equation.difference for equation in equations if not equation.holds)
    return Money(tuple(fields), Validity(totals=totals_hold(equations), differences=differences))


def _learned_rows(learned: Sequence[tuple[Kind, Candidate]], taxes: Sequence[TaxRow]) -> tuple[TaxRow, ...]:
    """Rows as the network reads them, where their bases make its base: a wrong total leaves them right."""
    base = next((candidate.value for kind, candidate in learned if kind == "base"), None)
    return () if base is None or not taxes else whole_rows(taxes, base, _taxes_of(taxes))


def _completed(rows: tuple[TaxRow, ...], balance: Balance, taxes: Sequence[TaxRow]) -> tuple[TaxRow, ...]:
    """The rows, or those of the network where only theirs make the settled tax of the settled base."""
    if balance.base is None or balance.tax is None or _taxes_of(rows) == balance.tax.value:
        return rows
    return whole_rows(taxes, balance.base.value, balance.tax.value) or rows


def _taxes_of(rows: Sequence[TaxRow]) -> Decimal:
    return sum((row.amount.value for row in rows), Decimal(0))


def _with_untaxed(balance: Balance, rows: Sequence[TaxRow], items: ItemLines | None, lines: MoneyLines) -> Balance:
    """The balance with what no tax is on, where everything adds up with it alone: a tourist tax, a disbursement."""
    base, tax, total = balance.base, balance.tax, balance.total
    if balance.adds_up or base is None or tax is None or total is None or balance.withheld_in_total:
        return balance
    bases = [row.base.value for row in rows if row.base is not None and row.holds and not row.is_surcharge]
    rest = total.value - base.value - tax.value
    if not bases or len(bases) < len(rows) or not are_equal(sum(bases, Decimal(0)), base.value):
        return balance
    is_line = (
        items is not None
        and balance.withheld is None
        and rest in items.amounts
        and any(are_equal(items.total, whole) for whole in (total.value, total.value - tax.value))
    )  # with their taxes, and without
    if rest <= 0 or not (is_line or rest == _sum_between(lines, tax, total)):
        return balance
    untaxed = Candidate(rest, 1.0, (), None, because("sum_of_lines"))
    return replace(balance, extras=(*balance.extras, Extra("charge", untaxed.cents, untaxed)), adds_up=True)


def _sum_between(lines: MoneyLines, upper: Candidate, lower: Candidate) -> Decimal:
    """The sum of what stands alone in the rows between two amounts of a page."""
    if upper.page is None or upper.page is not lower.page:
        return Decimal(0)
    first, last = (candidate.numbers[0].cell.row for candidate in (upper, lower))
    if any(
        label.page is upper.page and first < label.row < last and label.kind == "surcharge" for label in lines.labelled
    ):
        return Decimal(0)
    between = [numbers for page, row, numbers in lines.plain if page is upper.page and first < row.index < last]
    amounts = [own[0].value for numbers in between if len(own := [n for n in numbers if n.decimals == CENTS]) == 1]
    return sum(amounts, Decimal(0))


class _Settled(NamedTuple):
    balance: Balance
    rows: tuple[TaxRow, ...]
    withheld: Withholding | None
    equations: tuple[Equation, ...]


def _proven(
    proof: Proof,
    found: Candidates,
    withheld: Withholding | None,
    items: Decimal | None,
    *,
    complete: bool,
    exact: bool,
) -> _Settled:
    """What a proof settles, with its equations."""
    held, balance = proof.withheld, proof.balance
    if held is not None:
        withheld = Withholding(held.number, held.rate, None, held.page, None)
    else:  # it may stand below the total
        balance = replace(balance, withheld=_withheld_candidate(withheld))
    balance, rows = with_due(found, balance), proof.rows
    return _Settled(balance, rows, withheld, equations_of(balance, rows, items, complete=complete, exact=exact))


def _whole_base(balance: Balance) -> Number | None:
    """The printed base, where all taxes are on it: nothing taken off it or added to it."""
    base = balance.base
    if base is None or base.page is None or balance.extras:
        return None
    return base.numbers[0]


def _withheld_candidate(withheld: Withholding | None) -> Candidate | None:
    if withheld is None or not withheld.amount.value:
        return None
    return Candidate(withheld.amount.value, 1.0, (withheld.amount,), withheld.page, because("withholding"))


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
        why = {
            "table": because("tax_table"),
            "line": because("its_label", position="beside"),
            "sum": because("rate_makes_amount"),
            "network": because("network"),
        }[row.by]
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
        because("tax_rows"), places=places, rows=tuple(details),
    )  # fmt: skip
    surcharges = [row for row in rows if row.is_surcharge]
    if surcharges:
        total = sum((row.amount.value for row in surcharges), Decimal(0))
        page = surcharges[0].page if len(surcharges) == 1 else None
        numbers = tuple(row.amount for row in surcharges)
        yield _field("EquivalenceSurcharge", Candidate(total, 1.0, numbers, page, because("surcharge")), balance)


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
