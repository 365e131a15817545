"""Scores of fields, items and rows of tax against the truth, by the rules of ../shared/data/fields_dev/README.md."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from rapidfuzz import fuzz

AMOUNTS = frozenset({"SubTotal", "TotalTax", "InvoiceTotal", "AmountDue", "WithholdingRate", "WithholdingAmount"})
DATES = frozenset({"InvoiceDate", "DueDate"})
TAX_IDS = frozenset({"VendorTaxId", "CustomerTaxId"})
NAMES = frozenset({"VendorName", "CustomerName"})
FIELDS = (
    "VendorName", "VendorTaxId", "VendorAddress", "CustomerName", "CustomerTaxId", "InvoiceId", "InvoiceDate",
    "DueDate", "SubTotal", "TotalTax", "InvoiceTotal", "AmountDue", "CurrencyCode", "IBAN", "WithholdingRate",
    "WithholdingAmount",
)  # fmt: skip
KEY_FIELDS = ("InvoiceId", "InvoiceDate", "VendorTaxId", "InvoiceTotal")  # all right: the document can be booked
FLAGS = ("totals", "VendorTaxId")
# Least likeness, of 100.
_NAME_LIKENESS, _ADDRESS_LIKENESS, _ITEM_LIKENESS = 88, 80, 70
_BOOKABLE = 0.99  # right, of the values that are booked without looking
_SHORTEST_PART = 6  # letters of a description that may be a part of the other one
_SEPARATORS = re.compile(r"[\s.\-/_·]")
_NUMBER_SIGN = re.compile(r"\s|^#|^N[º°.]+")

Truth = Mapping[str, Any]  # a truth file
Item = Mapping[str, Any]  # column -> value


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader says of a document; empty values are left out."""

    fields: Mapping[str, Any] = field(default_factory=dict)  # name -> text; Items and TaxDetails -> list of items
    tables: Sequence[Mapping[str, Any]] = ()  # with "cells" or "rows"
    flags: Mapping[str, bool] = field(default_factory=dict)  # of `FLAGS`, where it says something
    scores: Mapping[str, float] = field(default_factory=dict)  # how sure it is of fields


@dataclass(slots=True)
class Count:
    """Right, wrongly answered and missed values. A wrong value is both of the latter."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    def add(self, other: Count) -> None:
        self.right += other.right
        self.wrong += other.wrong
        self.missed += other.missed

    @property
    def precision(self) -> float:
        return _ratio(self.right, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return _ratio(self.right, self.right + self.missed)

    @property
    def f1(self) -> float:
        return _ratio(2 * self.right, 2 * self.right + self.wrong + self.missed)


@dataclass(slots=True)
class Scores:
    """The counts of one document or of many."""

    documents: int = 0
    fields: dict[str, Count] = field(default_factory=dict)
    items: Count = field(default_factory=Count)
    whole_items: Count = field(default_factory=Count)  # quantity and price right, too
    taxes: Count = field(default_factory=Count)
    flags: Counter[tuple[str, bool, bool | None]] = field(default_factory=Counter)  # name, truth, answer
    relations: Count = field(default_factory=Count)  # neighbours in tables
    bookable: Count = field(default_factory=Count)  # documents whose key fields are all right

    def add(self, other: Scores) -> None:
        """Count other documents too."""
        self.documents += other.documents
        for name, count in other.fields.items():
            self.fields.setdefault(name, Count()).add(count)
        for name in ("items", "whole_items", "taxes", "relations", "bookable"):
            getattr(self, name).add(getattr(other, name))
        self.flags.update(other.flags)

    @property
    def all_fields(self) -> Count:
        """Of all fields together: their F1 is the micro F1."""
        total = Count()
        for count in self.fields.values():
            total.add(count)
        return total


def read_answer(response: Mapping[str, Any]) -> Answer:
    """The answer in a response of ``/v1/documents``."""
    raw = response.get("fields") or {}
    fields = {name: _plain(value) for name, value in raw.items()}
    flags = {name: said for name in FLAGS if isinstance(said := (response.get("valid") or {}).get(name), bool)}
    return Answer(
        {name: value for name, value in fields.items() if value not in (None, "", [], {})},
        response.get("tables") or (),
        flags,
        {name: value["score"] for name, value in raw.items() if isinstance(value, Mapping) and "score" in value},
    )


def score_fields(truth: Truth, answer: Answer) -> Scores:
    """The scores of a document, but for its tables."""
    labelled, scores = truth["labelled"], Scores(documents=1)
    for name in FIELDS:
        if name in labelled:
            scores.fields[name] = _field_count(truth, name, answer.fields.get(name))
    if "InvoiceTotal" in labelled:
        is_right = all(scores.fields[name].right for name in KEY_FIELDS if name in truth["fields"])
        scores.bookable = Count(right=int(is_right), missed=int(not is_right))
    if "Items" in labelled:
        scores.items, scores.whole_items = item_counts(truth["items"], _rows(answer.fields.get("Items")))
    if "TaxDetails" in labelled:
        scores.taxes = tax_count(truth, _rows(answer.fields.get("TaxDetails")))
    if "valid" in labelled:
        scores.flags.update((name, value, answer.flags.get(name)) for name, value in truth["valid"].items())
    return scores


def sureness(truth: Truth, answer: Answer) -> list[tuple[float, bool]]:
    """The score of each value that the truth tells of, and whether it is right."""
    told = [name for name in FIELDS if name in truth["labelled"] and name in answer.fields and name in answer.scores]
    return [(answer.scores[name], not _field_count(truth, name, answer.fields[name]).wrong) for name in told]


def calibration(values: Sequence[tuple[float, float]]) -> dict[str, float]:
    """How far scores are from shares of right values, and from which score on so many are right as may be booked.

    The expected calibration error is over tenths. Without such a score ``booked`` is 0, of all values.
    """
    tenths: dict[int, list[tuple[float, float]]] = {}
    for score, is_right in values:
        tenths.setdefault(min(int(score * 10), 9), []).append((score, is_right))
    error = sum(abs(sum(score - is_right for score, is_right in tenth)) for tenth in tenths.values()) / len(values)
    right, least, booked = 0.0, 1.0, 0
    ranked = sorted(values, reverse=True)
    for count, (score, is_right) in enumerate(ranked, 1):
        right += is_right
        is_last = count == len(ranked) or ranked[count][0] < score
        if is_last and right >= _BOOKABLE * count:
            least, booked = score, count
    return {"values": len(values), "error": error, "least": least, "booked": booked / len(values)}


def is_same(name: str, expected: str, given: object) -> bool:
    """Whether a value is the expected one.

    Amounts are compared as numbers, dates as ISO 8601, ids without separators and tax numbers with or without their
    country; names and addresses by likeness.
    """
    if name in AMOUNTS:
        return _is_number(expected, given)
    text = str(given)
    if name in DATES:
        return text.strip() == expected
    if name == "InvoiceId":
        return _NUMBER_SIGN.sub("", expected).upper() == _NUMBER_SIGN.sub("", text).upper()
    if name in NAMES:
        return fuzz.ratio(_words(expected), _words(text)) >= _NAME_LIKENESS
    if name == "VendorAddress":
        return fuzz.token_sort_ratio(_words(expected), _words(text)) >= _ADDRESS_LIKENESS
    first, second = _bare(expected), _bare(text)
    if first == second or name not in TAX_IDS:
        return first == second
    return first in _without_country(second) or second in _without_country(first)


def _field_count(truth: Truth, name: str, given: object) -> Count:
    expected, optional = truth["fields"].get(name), truth["optional"].get(name)
    accepted = [value for value in (expected, *truth["accept"].get(name, ())) if value is not None]
    is_right = given is not None and any(is_same(name, value, given) for value in accepted)
    if expected is not None:
        return Count(int(is_right), int(given is not None and not is_right), int(not is_right))
    allowed = given is None or is_right or (optional is not None and is_same(name, optional, given))
    return Count(wrong=int(not allowed))


def item_counts(expected: Sequence[Item], given: Sequence[Item]) -> tuple[Count, Count]:
    """Items with the same amount and a similar description; those whose quantity and price are right too."""
    pairs = sorted(
        (-likeness, abs(row - other), row, other)
        for row, item in enumerate(expected)
        for other, candidate in enumerate(given)
        if _is_number(item["Amount"], candidate.get("Amount"))
        and (likeness := _likeness(item.get("Description", ""), candidate.get("Description") or "")) >= _ITEM_LIKENESS
    )
    rows: dict[int, int] = {}
    for _, _, row, other in pairs:
        if row not in rows and other not in rows.values():
            rows[row] = other
    whole = sum(_is_whole(expected[row], given[other]) for row, other in rows.items())
    found, complete = (Count(right, len(given) - right, len(expected) - right) for right in (len(rows), whole))
    return found, complete


def _is_whole(item: Item, candidate: Item) -> bool:
    """Whether quantity and price are right, where they are printed."""
    return all(_is_number(item[name], candidate.get(name)) for name in ("Quantity", "UnitPrice") if name in item)


def tax_count(truth: Truth, given: Sequence[Item]) -> Count:
    """Rows with the same rate and amount, and base where both have one; those of rate 0 and of withholding aside."""
    left = [row for row in given if not _is_withholding(truth, row)]
    count = Count()
    for row in truth["tax_details"]:
        match = next((other for other in left if _is_same_tax(row, other)), None)
        if match is not None:
            left.remove(match)
        if Decimal(row["Rate"]):
            count.add(Count(right=int(match is not None), missed=int(match is None)))
    count.wrong = sum(bool(_decimal(row.get("Rate")) or _decimal(row.get("Amount"))) for row in left)
    return count


def _is_same_tax(row: Item, other: Item) -> bool:
    if not all(_is_number(row[name], other.get(name)) for name in ("Rate", "Amount")):
        return False
    return other.get("Base") is None or "Base" not in row or _is_number(row["Base"], other["Base"])


def _is_withholding(truth: Truth, row: Item) -> bool:
    fields, amount = truth["fields"], _decimal(row.get("Amount"))
    if "WithholdingRate" not in fields or amount is None:
        return False
    same_rate = _is_number(fields["WithholdingRate"], row.get("Rate"))
    return same_rate and abs(amount) == abs(Decimal(fields["WithholdingAmount"]))


def summary(many: Iterable[Scores]) -> dict[str, Any]:
    """The figures of many documents, as the result file has them; what no document asks is left out."""
    total = Scores()
    for scores in many:
        total.add(scores)
    figures: dict[str, Any] = {"documents": total.documents}
    counts = {"fields": total.all_fields, "items": total.items, "whole_items": total.whole_items, "taxes": total.taxes}
    counts["relations"] = total.relations
    figures |= {name: _figures(count) for name, count in counts.items() if _asked(count)}
    figures["by_field"] = {name: _figures(count) for name, count in total.fields.items() if _asked(count)}
    figures["flags"] = {name: flag for name in FLAGS if (flag := _flag_figures(total.flags, name))}
    if _asked(total.bookable):
        figures["bookable"] = total.bookable.recall
    return figures


def _figures(count: Count) -> dict[str, float]:
    return {"precision": count.precision, "recall": count.recall, "f1": count.f1, "truth": count.right + count.missed}


def _asked(count: Count) -> bool:
    return bool(count.right or count.wrong or count.missed)


def _flag_figures(flags: Counter[tuple[str, bool, bool | None]], name: str) -> dict[str, float]:
    """Accuracy, and the mean of the recalls of right and wrong documents: "always right" gets one half there."""
    shares = []
    for value in (True, False):
        said = Counter(
            {answer: number for (flag, truth, answer), number in flags.items() if (flag, truth) == (name, value)}
        )
        if said:
            shares.append((said[value], said.total()))
    if not shares:
        return {}
    accuracy = sum(right for right, _ in shares) / sum(number for _, number in shares)
    balanced = sum(right / number for right, number in shares) / len(shares)
    return {"accuracy": accuracy, **({"balanced": balanced} if len(shares) == 2 else {})}


def _plain(value: Any) -> Any:
    """A value without its place, score and reason."""
    if isinstance(value, Mapping):
        return _plain(value["value"]) if "value" in value else {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _rows(value: object) -> list[Item]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def _decimal(value: object) -> Decimal | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return Decimal(str(value).strip().replace("\u2212", "-"))
    except InvalidOperation:
        return None


def _is_number(expected: object, given: object) -> bool:
    first, second = _decimal(expected), _decimal(given)
    return first is not None and first == second


def _words(text: str) -> str:
    """Lower case, without accents and punctuation."""
    letters = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(re.sub(r"[^\w]+", " ", letters).split())


def _bare(text: str) -> str:
    return _SEPARATORS.sub("", text).upper()


def _without_country(tax_id: str) -> tuple[str, ...]:
    return (tax_id[2:],) if re.match("[A-Z]{2}", tax_id) else ()


def _likeness(first: str, second: str) -> float:
    """Of 100; a description may be a part of the other."""
    first, second = _words(str(first)), _words(str(second))
    part = fuzz.partial_ratio(first, second) if min(len(first), len(second)) >= _SHORTEST_PART else 0.0
    return max(fuzz.token_sort_ratio(first, second), part)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0
