"""Corrections benchmark: what one corrected paper of a supplier teaches about its next five.

    python -m benchmarks.corrections                  # 36 made suppliers; two minutes of a core
    python -m benchmarks.corrections --first 6000     # 36 others
    python -m benchmarks.corrections --misses         # each value that is wrong although it was corrected

Each supplier's papers keep its design (`tools.papers`, digital). The first is read and corrected as a person would who
types values and clicks nothing; the next five are read with and without it. Rows count as right where description and
amount, and quantity and price where they are printed, are right.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any

from backend.files.pages import Box, Document, RawWord, make_page
from backend.files.visual_rows import rows_of
from backend.invoices.records import Field, FieldRow
from backend.invoices.structure import example_of, fields_of
from backend.invoices.taught.examples import SupplierExample
from benchmarks import fields_scores
from tools.papers.facts import Facts
from tools.papers.paper import MadePage, MadePaper, papers_of_supplier
from tools.papers.sheet import MadeWord

_NEXT = 5
_TEXTS = (
    "VendorName", "VendorAddress", "VendorTaxId", "CustomerName", "CustomerAddress", "CustomerTaxId", "InvoiceId",
    "PurchaseOrder", "IBAN",
)  # fmt: skip
_AMOUNTS = ("SubTotal", "TotalTax", "TotalDiscount", "InvoiceTotal", "AmountDue", "WithholdingAmount")
_FIELDS = (*_TEXTS, *_AMOUNTS, "InvoiceDate", "DueDate", "WithholdingRate", "EquivalenceSurcharge")
_MAY_BE_COMPUTED = ("SubTotal", "TotalTax", "InvoiceTotal", "AmountDue", "InvoiceDate")  # of what is printed
_SCORED_AS = {"CustomerAddress": "VendorAddress", "PurchaseOrder": "InvoiceId"}
_TABLES = ("Items", "TaxDetails")


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper with what it says."""

    document: Document
    printed: frozenset[str]  # the labels of its words
    accepted: Mapping[str, Sequence[str]]  # of each field the right values; empty where it has none
    tables: Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(slots=True)
class Tables:
    """Rows on the next papers without an example, and with it."""

    before: fields_scores.Count = field(default_factory=fields_scores.Count)
    after: fields_scores.Count = field(default_factory=fields_scores.Count)

    def add(self, before: fields_scores.Count, after: fields_scores.Count) -> None:
        """Count those of one paper."""
        self.before.add(before)
        self.after.add(after)


@dataclass(slots=True)
class Tally:
    """Values on the next papers: of ``fields`` wrong on the first, and of all that are right without an example."""

    by_name: dict[str, Counter[str]] = field(default_factory=dict)
    tables: dict[tuple[str, bool], Tables] = field(default_factory=dict)  # by name, and whether it was corrected
    misses: list[str] = field(default_factory=list)

    def count(self, name: str, **numbers: int) -> None:
        """Count in the field's numbers."""
        self.by_name.setdefault(name, Counter()).update(numbers)

    def lines(self) -> Iterator[str]:
        """The figures by field, of all, of tables."""
        whole = sum(self.by_name.values(), Counter[str]())
        for name, count in [*sorted(self.by_name.items()), ("all", whole)]:
            share = f"{count['right'] / count['values']:.1%}" if count["values"] else "-"
            lost = f"{count['spoiled'] / count['kept']:.2%}" if count["kept"] else "-"
            yield (
                f"{name:21} {count['fields']:3} wrong, {count['all_right']:3} right on all next; values"
                f" {count['right']:3} of {count['values']:3} {share:6}; spoiled {count['spoiled']} of"
                f" {count['kept']} {lost}"
            )
        for (name, was_wrong), rows in sorted(self.tables.items()):
            yield (
                f"{name} {'corrected' if was_wrong else 'right'}: F1 {rows.before.f1:.3f} -> {rows.after.f1:.3f},"
                f" rows {rows.before.right} -> {rows.after.right} of {rows.after.right + rows.after.missed}"
            )


def paper_of(made: MadePaper) -> Paper:
    """The paper as a text layer would have it, with its truth."""
    pages = []
    for number, page in enumerate(made.pages, 1):
        pages.append(
            make_page(
                _blocks(page), number=number, width=page.width, height=page.height, source="text_layer", why="made",
                engine="made",
            )
        )  # fmt: skip
    document = Document("pdf", tuple(pages), len(pages), "")
    words = [word for page in made.pages for word in page.words]
    labels = {word.label for word in words}
    accepted = {name: list(_accepted(name, made.facts, words)) for name in _FIELDS}
    tables = {"Items": _items(made.facts, labels), "TaxDetails": _taxes(made.facts, labels)}
    return Paper(document, frozenset(labels), accepted, tables)


def _blocks(page: MadePage) -> Iterator[list[list[RawWord]]]:
    """Lines as they were put; a block ends where the next line is not just below."""
    lines = [list(line) for _, line in groupby(page.words, lambda word: word.box[1])]
    block: list[list[RawWord]] = []
    last = None
    for line in lines:
        if last is not None and not 0 < line[0].box[1] - last.box[1] < 2 * (last.box[3] - last.box[1]):
            yield block
            block = []
        block.append([RawWord(word.text, Box(*word.box)) for word in line])
        last = line[0]
    yield block


def _accepted(name: str, facts: Facts, words: Sequence[MadeWord]) -> Iterator[str]:
    printed = _printed(words, name)
    if name in ("InvoiceDate", "DueDate"):
        day = facts.day if name == "InvoiceDate" else facts.due
        if day is not None and (printed or name == "DueDate"):
            yield day.isoformat()
    elif name == "WithholdingRate":
        if facts.withheld and _printed(words, "WithholdingAmount"):
            yield str(facts.withheld_rate)
    elif name == "EquivalenceSurcharge":
        if printed:
            yield str(sum(amount for _, amount in facts.surcharges))
    elif name in _AMOUNTS:
        values = (
            facts.base, facts.tax, facts.discount, facts.total, facts.total - facts.withheld, facts.withheld,
            facts.total - facts.withheld - facts.paid + facts.older,
        )  # fmt: skip
        for text in printed:
            yield from (f"{value:.2f}" for value in values if _digits(f"{value:.2f}") == _digits(text))
    else:
        yield from (_typed(name, text) for text in printed)


def _printed(words: Sequence[MadeWord], name: str) -> list[str]:
    """The values with a label, the longest first."""
    values: list[list[MadeWord]] = []
    for word in words:
        if word.label == name and (word.begins or not values):
            values.append([word])
        elif word.label == name:
            values[-1].append(word)
    lines = "Address" in name
    texts = [
        (", " if lines else " ").join(
            " ".join(word.text for word in line) for _, line in groupby(value, lambda word: word.box[1] if lines else 0)
        )
        for value in values
    ]
    return sorted(texts, key=len, reverse=True)


def _digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))


def _items(facts: Facts, labels: set[str]) -> list[dict[str, str]]:
    if "ItemAmount" not in labels:
        return []
    rows = []
    for goods in facts.goods:
        row = {"Description": f"{goods.description} {goods.extra[:60]}".strip(), "Amount": f"{goods.amount:f}"}
        row |= {"Quantity": f"{goods.quantity:f}"} if "ItemQuantity" in labels else {}
        row |= {"UnitPrice": f"{goods.price:f}"} if "ItemPrice" in labels else {}
        row |= {"ProductCode": goods.code} if "ItemCode" in labels else {}
        row |= {"TaxRate": f"{goods.rate:f}"} if "ItemTaxRate" in labels else {}
        row |= {"Discount": f"{goods.discount:f}"} if "ItemDiscount" in labels and goods.discount else {}
        rows.append(row)
    return rows


def _taxes(facts: Facts, labels: set[str]) -> list[dict[str, str]]:
    if (len(facts.taxes) > 1 and "TaxAmount" not in labels) or not {"TaxAmount", "TotalTax"} & labels:
        return []
    based = "TaxBase" in labels or (len(facts.taxes) == 1 and "SubTotal" in labels)
    return [
        {"Rate": str(rate), "Amount": f"{tax:f}"} | ({"Base": f"{base:f}"} if based else {})
        for rate, base, tax in facts.taxes
        if rate
    ]


def is_right(name: str, paper: Paper, read: Field | None) -> bool | None:
    """Whether a field is right; None where the paper does not say."""
    accepted = paper.accepted[name]
    if not accepted:
        return None if name in _MAY_BE_COMPUTED or read is None else False
    if read is None:
        return None if name == "DueDate" and name not in paper.printed else False
    if name in _AMOUNTS or name in ("WithholdingRate", "EquivalenceSurcharge"):
        return any(abs(Decimal(value)) == abs(Decimal(read.value)) for value in accepted)
    return any(fields_scores.is_same(_SCORED_AS.get(name, name), value, read.value) for value in accepted)


def table_score(name: str, paper: Paper, read: Field | None) -> fields_scores.Count | None:
    """The rows of a table; None where the paper has none."""
    expected = paper.tables[name]
    if not expected:
        return None
    given = [{cell.name: cell.value for cell in row.fields} for row in (read.rows if read else ())]
    if name == "Items":
        return fields_scores.item_counts(expected, given)[1]
    taxes = {"tax_details": expected, "fields": {}}
    return fields_scores.tax_count(taxes, given)


def corrected(paper: Paper, read: Mapping[str, Field]) -> dict[str, Field]:
    """The fields as a person leaves them who types what is wrong."""
    found = dict(read)
    for name in _FIELDS:
        if is_right(name, paper, read.get(name)) is False:
            found.pop(name, None)
            if paper.accepted[name]:
                found[name] = Field(name, paper.accepted[name][0], "", 1.0, "text", "")
    for name in _TABLES:
        score = table_score(name, paper, read.get(name))
        if score is not None and (score.wrong or score.missed):
            rows = tuple(
                FieldRow(tuple(Field(column, value, "", 1.0, "text", "") for column, value in row.items()))
                for row in paper.tables[name]
            )
            found[name] = Field(name, "", "", 1.0, "text", "", rows=rows)
    return found


def _typed(name: str, value: str) -> str:
    if name.endswith("TaxId") or name == "IBAN":
        return "".join(filter(str.isalnum, value.rpartition(":")[2])).upper()
    return value


def _read(paper: Paper, examples: Sequence[SupplierExample] = ()) -> dict[str, Field]:
    return {one.name: one for one in fields_of(paper.document, "invoice", examples, "none").fields}


@dataclass(frozen=True, slots=True)
class Supplier:
    """Its papers, and what is read of each without examples."""

    seed: int
    papers: Sequence[Paper]
    alone: Sequence[Mapping[str, Field]]

    @classmethod
    def made(cls, seed: int) -> Supplier:
        """Papers made anew, and read."""
        papers = [paper_of(made) for made in papers_of_supplier(seed, 1 + _NEXT, digital=True)]
        return cls(seed, papers, [_read(paper) for paper in papers])


def measure(supplier: Supplier, tally: Tally) -> None:
    """Count what the first paper teaches."""
    first, *later = supplier.papers
    read, *alone = supplier.alone
    confirmed = corrected(first, read)
    example = example_of(rows_of(first.document), "invoice", read, confirmed)
    taught = [_read(paper, [] if example is None else [example]) for paper in later]
    for name in _FIELDS:
        _count_field(name, supplier, confirmed, taught, tally)
    for name in _TABLES:
        score = table_score(name, first, read.get(name))
        if score is not None:
            tables = tally.tables.setdefault((name, bool(score.wrong or score.missed)), Tables())
            for index, fields in enumerate(taught):
                before, after = (table_score(name, later[index], some.get(name)) for some in (alone[index], fields))
                if before is not None and after is not None:
                    tables.add(before, after)
                    if after.wrong or after.missed:
                        tally.misses.append(f"{supplier.seed}.{index + 1} {name}: {before} -> {after}")


def _count_field(
    name: str, supplier: Supplier, confirmed: Mapping[str, Field], taught: Sequence[Mapping[str, Field]], tally: Tally
) -> None:
    first, *later = supplier.papers
    read, *alone = supplier.alone
    was_wrong = is_right(name, first, read.get(name)) is False
    values = right = 0
    for index, paper in enumerate(later):
        before, after = (is_right(name, paper, some.get(name)) for some in (alone[index], taught[index]))
        if before is None and after is None:
            continue
        tally.count(name, kept=before is True, spoiled=before is True and after is not True)
        values, right = values + was_wrong, right + (was_wrong and after is not False)
        if after is not True and (before is True or (was_wrong and after is False)):
            told = [_value(fields, name) for fields in (read, confirmed, alone[index], taught[index])]
            tally.misses.append(
                f"{supplier.seed}.{index + 1} {'spoiled' if before else 'missed'} {name}: read, corrected, next alone,"
                f" taught {told}; is {list(paper.accepted[name][:1])}"
            )
    if values:
        tally.count(name, fields=1, all_right=right == values, values=values, right=right)


def _value(fields: Mapping[str, Field], name: str) -> Any:
    return fields[name].value if name in fields else None


def main() -> None:
    """Read the command line, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1000, help="seed of the first supplier")
    parser.add_argument("--suppliers", type=int, default=36)
    parser.add_argument("--misses", action="store_true")
    a = parser.parse_args()
    tally = Tally()
    for seed in range(a.first, a.first + a.suppliers):
        measure(Supplier.made(seed), tally)
    print("\n".join([*(sorted(tally.misses) if a.misses else ()), *tally.lines()]))


if __name__ == "__main__":
    main()
