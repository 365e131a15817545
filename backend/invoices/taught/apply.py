"""Reads a document as confirmed ones of its supplier were read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import takewhile
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from backend.abandoned import require_wanted
from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import Kind as DocumentKind
from backend.invoices.items.find import ItemLines
from backend.invoices.money.candidates import Candidate
from backend.invoices.money.labels import KIND_OF_AMOUNT, Kind
from backend.invoices.parties.names import clean_name
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.records import TAX_IDS, Field, FieldRow, printed_field
from backend.invoices.taught.examples import KEYS, SAME_FOR_ALL, SIGNED_AS_TOTAL, Spot, SupplierExample, key_of
from backend.invoices.taught.printed import (
    AMOUNTS,
    DATES,
    NUMBERS,
    RATES,
    Extent,
    PageArea,
    Printed,
    PrintedPages,
    plain,
    printed_pages,
    shape_of,
)
from backend.invoices.taught.tables import ColumnSpot, taught_items
from backend.reasons import because
from backend.text.patterns.folding import letters_of

_WEIGHT = 1.4  # among the scores of labels, of which the best is 1.25
_LIKE = 0.72  # of 1: what stands as a value of an example stood
_LIKE_PLACE = 0.9  # without words around it
_MISTAKEN = 0.65
_FAR = 0.3  # likeness of what stands elsewhere
_SAME_PLACE = 0.9  # so sure a place is that what was read elsewhere is not the value, although it was right before
_AHEAD = 0.04  # of the next best value
_AMONG_EQUALS = 0.1  # of the likeness, where two addresses stand below a name
_FITS = 0.5  # share of an example's places that are found again
_SURE = 0.9  # likeness of a place that is the example's although most others are not found
_SCORE = 0.97
_MAX_EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a field is by the supplier's examples."""

    spot: Spot  # of the latest example that finds it
    printed: Printed | None  # None for what is the same on all papers and not on this one
    value: str
    count: int  # examples that agree
    likeness: float = 1.0  # 0 to 1, of its place


class Below(NamedTuple):
    """The name that an address stands below."""

    spot: Spot  # of the example
    places: Sequence[PageArea]  # wherever the document's is printed


@dataclass(frozen=True, slots=True)
class Taught:
    """What the examples of a supplier say of a document."""

    kind: DocumentKind
    proposals: Mapping[str, Proposal]
    wrong: tuple[Spot, ...]  # what the reader mistakes for a field
    same: tuple[Spot, ...]  # all that is right on the examples, the latest first
    pages: PrintedPages
    columns: tuple[tuple[ColumnSpot, ...], ...]  # of each example, the latest first
    items_corrected: bool  # the reader had the lines of one wrong
    taxes: tuple[tuple[str, str], ...]  # type and rate of tax rows that the reader does not see

    @property
    def corrected_amounts(self) -> bool:
        """Whether the reader had one wrong."""
        return any(name in KIND_OF_AMOUNT and proposal.spot.corrected for name, proposal in self.proposals.items())

    def items(self, pages: Sequence[PageRows], mark: str) -> ItemLines | None:
        """The lines of goods in the columns of the latest example that finds some."""
        why = because("confirmed_invoice")
        found = (taught_items(pages, mark, columns, why) for columns in self.columns)
        return next((items for items in found if items is not None), None)

    def prefers(self, own: ItemLines, read: ItemLines | None, fields: Sequence[Field]) -> bool:
        """Whether its lines take the place of those that were read: never where these alone make the sums.

        Of two that both do, or both do not, those of which more amounts are made by quantity and price.
        """
        if read is None:
            return True
        values = {field.name: Decimal(field.value) for field in fields if field.name in AMOUNTS}
        sums = {values.get("SubTotal"), values.get("InvoiceTotal")}
        sums.add(values.get("SubTotal", Decimal(0)) + abs(values.get("TotalDiscount", Decimal(0))))
        ours, theirs = own.total in sums, read.total in sums
        if ours and theirs:
            return self.items_corrected and own.reckoned >= read.reckoned
        return ours or (self.items_corrected and not theirs and own.reckoned > read.reckoned)

    def amounts(self) -> list[tuple[Kind, Candidate]]:
        """Its amounts as candidates of the settlement."""
        found: list[tuple[Kind, Candidate]] = []
        for name, kind in KIND_OF_AMOUNT.items():
            proposal = self.proposals.get(name)
            if proposal is None or proposal.printed is None or proposal.printed.number is None:
                continue
            if name != "AmountDue" or proposal.spot.corrected:
                printed, number = proposal.printed, proposal.printed.number
                found.append((kind, Candidate(number.value, _WEIGHT, (number,), printed.page, _why(proposal))))
        return found


def taught_by(pages: Sequence[PageRows], examples: Sequence[SupplierExample]) -> Taught | None:
    """What the examples of the document's supplier say; None where none is of it, or its papers look otherwise now.

    Args:
        examples: of one or several suppliers, the latest first.
    """
    printed = printed_pages(pages)
    on_page = set(keys_on(pages))
    suppliers: dict[str, list[SupplierExample]] = {}
    for example in examples:
        if on_page.intersection(example.keys()):
            suppliers.setdefault(example.keys()[0], []).append(example)
    best: tuple[float, Taught | None] = (0.0, None)
    for own in suppliers.values():
        share, taught = _of_supplier(printed, own[:_MAX_EXAMPLES])
        best = max(best, (share, taught), key=lambda pair: pair[0])
    return best[1] if best[1] is None or best[0] >= _FITS else _only_sure(best[1])


def _only_sure(taught: Taught) -> Taught | None:
    """What stands behind the same words at the same place, of papers that look otherwise in most."""
    sure = {
        name: proposal
        for name, proposal in taught.proposals.items()
        if proposal.printed is not None and (proposal.spot.name in SAME_FOR_ALL or _is_sure(proposal))
    }
    if not any(_is_sure(proposal) for proposal in sure.values()):
        return None
    return replace(taught, proposals=sure, wrong=(), columns=(), items_corrected=False, taxes=())


def _is_sure(proposal: Proposal) -> bool:
    return proposal.likeness >= _SURE and proposal.spot.name not in SAME_FOR_ALL and _is_named(proposal.spot)


def _is_named(spot: Spot) -> bool:
    """Whether a word stands around a value that can be told from others."""
    return any(map(_is_label, (*spot.before, *spot.above)))


_AMOUNT = re.compile(r"(?:eur|usd|gbp|chf|rm)?[0%]+(?:eur|usd|gbp|chf)?")  # as of `plain`


def _is_label(word: str) -> bool:
    """Whether a word is no number, with or without a currency."""
    return _AMOUNT.fullmatch(word) is None


def _of_supplier(pages: PrintedPages, examples: Sequence[SupplierExample]) -> tuple[float, Taught]:
    found: dict[str, Proposal] = {}
    share = 0.0
    for example in examples:
        own: dict[str, Proposal] = {}
        taken: set[int] = set()  # of the names and addresses: a word is of one
        mistaken = {spot.name: spot for spot in example.spots if spot.wrong}
        names = {spot.name: spot for spot in example.spots if spot.printed and not spot.wrong}
        for spot in sorted(example.spots, key=lambda spot: spot.name.endswith("Address")):
            below = None
            if spot.name == "CustomerAddress" and "CustomerName" in own and "CustomerName" in names:
                below = Below(names["CustomerName"], [one.place for one in pages.find(own["CustomerName"].value)])
            proposal = None if spot.wrong else _proposal(pages, spot, mistaken.get(spot.name), taken, below)
            if proposal is not None:
                own[spot.name] = proposal
                if spot.name.startswith(("Vendor", "Customer")) and proposal.printed is not None:
                    is_name = spot.name.endswith("Name")  # another one on each paper: no words that an address is below
                    printed = pages.without(proposal.printed) if is_name else [proposal.printed]
                    taken.update(id(word) for one in printed for word in one.words)
        own = _of_one_amount_each(own)
        right = [spot for spot in example.spots if spot.printed and not spot.wrong]
        moving = {spot.place: False for spot in right if spot.name not in SAME_FOR_ALL}  # whether it is found again
        moving.update((spot.place, True) for spot in right if spot.name in own and spot.place in moving)
        share = max(share, sum(moving.values()) / len(moving) if moving else 1.0)
        for name, proposal in own.items():
            known = found.get(name)
            if known is None:
                found[name] = proposal
            elif known.value == proposal.value:
                spot = replace(known.spot, corrected=known.spot.corrected or proposal.spot.corrected)
                found[name] = replace(known, spot=spot, count=known.count + 1)
    wrong = tuple(spot for example in examples for spot in example.spots if spot.wrong)
    same = tuple(spot for example in examples for spot in example.spots if not spot.wrong)
    columns = tuple(example.columns for example in examples if example.columns)
    corrected = any(example.items_corrected for example in examples)
    taxes = tuple(dict.fromkeys(tax for example in examples for tax in example.taxes))
    return share, Taught(examples[0].kind, found, wrong, same, pages, columns, corrected, taxes)


def _of_one_amount_each(found: Mapping[str, Proposal]) -> dict[str, Proposal]:
    """The proposals without those whose amount stands more like another's, unless the example's are one, too."""

    def is_others(name: str, one: Proposal) -> bool:
        return name in AMOUNTS and any(
            other.likeness > one.likeness and other.spot.place != one.spot.place and _words(other) == _words(one)
            for key, other in found.items()
            if key in AMOUNTS
        )

    return {name: one for name, one in found.items() if not is_others(name, one)}


def _words(proposal: Proposal) -> list[int]:
    return [] if proposal.printed is None else [id(word) for word in proposal.printed.words]


_LONGEST_NAME, _LONGEST_IBAN_WORDS, _MAX_KEYS = 10, 9, 400


def keys_on(pages: Sequence[PageRows]) -> list[str]:
    """The keys of all suppliers that may be on the pages of a document, a few hundred at most."""
    found: dict[str, None] = {}
    later: dict[str, None] = {}  # of too many these are left out
    for page in [*pages[:2], *pages[2:][-1:]]:
        for cell in page.cells[:_MAX_KEYS]:
            texts = [letters_of(word.text.rpartition(":")[2]) for word in cell.words]
            for first in range(min(len(texts), 3 * _LONGEST_NAME)):
                if first < 2 or cell.words[first - 1].text.endswith((":", "·", "-", "|", ",")):
                    rest = texts[first : first + _LONGEST_NAME]
                    for name in (rest, list(takewhile(bool, rest))):  # the cell's, or up to a mark between two
                        found[key_of("VendorName", "".join(name))] = None
                    before_others = ("".join(rest[:last]) for last in range(2, len(rest)))
                    later |= dict.fromkeys(key_of("VendorName", name) for name in before_others)
                for last in range(first + 1, min(len(texts), first + _LONGEST_IBAN_WORDS) + 1):
                    text = "".join(texts[first:last])
                    if len(text) > 34 or sum(map(str.isdecimal, text)) * 3 < len(text):
                        break
                    if 7 <= len(text) <= 15:
                        found[key_of("VendorTaxId", text)] = None
                    elif len(text) > 15 and text[:2].isalpha() and text[2:4].isdecimal():
                        found[key_of("IBAN", text)] = None
    found |= later
    found.pop("", None)
    return list(found)[: 4 * _MAX_KEYS]


def _proposal(
    pages: PrintedPages, spot: Spot, wrong: Spot | None, taken: set[int], name: Below | None
) -> Proposal | None:
    """The value that stands as the example's, and not as what the reader took for it there."""
    require_wanted()
    if spot.name in SAME_FOR_ALL:
        options = pages.find(spot.value) if spot.printed else []
        printed = max(options, key=lambda option: _likeness(spot, option), default=None)
        return Proposal(spot, printed, spot.value, 1)
    if spot.name in RATES or not spot.printed:
        return None
    if spot.name.startswith("Customer"):
        same = max(
            ((_likeness(spot, one), one) for one in pages.find(spot.value)), key=lambda pair: pair[0], default=None
        )
        if same is not None:
            return Proposal(spot, same[1], spot.value, 1)
    is_party = spot.name.startswith("Customer")
    free = (one for one in _options(pages, spot) if not is_party or taken.isdisjoint(map(id, one.words)))
    scored = []
    for option in free:
        likeness = _likeness(spot, option)
        mistaken = 0.0 if wrong is None else _likeness(wrong, option)
        if mistaken <= likeness or mistaken < _FAR:
            score = max(likeness if mistaken <= likeness else 0.0, _below_alike(spot, option, name))
            scored.append((score + _AMONG_EQUALS * likeness, score, option))
    scored.sort(key=lambda one: -one[0])
    if not scored or scored[0][1] < (_LIKE if _is_named(spot) else _LIKE_PLACE):
        return None
    rank, score, best = scored[0]
    others = [other for other, _, option in scored[1:] if option.value != best.value]
    if others and others[0] > rank - _AHEAD:
        return None
    return Proposal(spot, best, best.value, 1, score)


def _options(pages: PrintedPages, spot: Spot) -> Iterator[Printed]:
    """All values of the spot's type."""
    words = len(spot.printed.split())
    if spot.name in AMOUNTS:
        whole = "." not in spot.value  # an amount of cents is not taken for one without
        yield from (one for one in pages.amounts() if one.number is not None and (one.number.decimals > 0) != whole)
    elif spot.name in DATES:
        yield from pages.dates(spot.form)
    elif spot.name in TAX_IDS:
        for count in range(1, _MAX_PARTS + 1):
            yield from (option for option in pages.tax_ids(count) if option.valid is not False or count == words)
    elif spot.name in NUMBERS:
        yield from _numbers(pages, spot, words)
    else:
        is_address = spot.name.endswith("Address")
        marks, postcode = (
            any(not plain(word) for word in spot.printed.split()),
            is_address and _has_postcode(spot.value),
        )
        extent = Extent(spot.rows, spot.after, spot.below, is_address or marks, postcode)
        for option in pages.blocks(spot.before[0] if spot.before else "", extent):
            value = _text_of(spot, option)
            if value and (not postcode or _has_postcode(value)):
                yield pages.around(option)._replace(value=value) if is_address else option._replace(value=value)


def _numbers(pages: PrintedPages, spot: Spot, count: int) -> Iterator[Printed]:
    glue = " " if " " in spot.value else ""
    whole = glue.join(spot.printed.split())
    head, known, tail = whole.partition(spot.value)
    for option in pages.runs(shape_of(whole), count, glue):
        if not known:
            yield option
        elif option.value.startswith(head) and option.value.endswith(tail):
            yield option._replace(value=option.value[len(head) : len(option.value) - len(tail)])


def _text_of(spot: Spot, option: Printed) -> str:
    """A block as a name or an address is written."""
    if spot.name.endswith("Address"):
        return ", ".join(line.strip(" ,·-|") for line in option.value.split("\n"))
    text = option.value.replace("\n", " ").strip(" ,;:·|-")
    return clean_name(text) or text


def _has_postcode(text: str) -> bool:
    return re.search(r"\d{4}", text) is not None


_MAX_PARTS = 4  # of a tax number that is printed in groups
_NEAREST = (1.0, 0.6, 0.3, 0.2)
_LONGER = 0.92  # of the likeness, where more words stand before a value
_BARE = 0.25  # weight of a word without letters
_X, _Y = 0.05, 0.2  # widths of the page from which a place is another one


def _likeness(spot: Spot, option: Printed) -> float:
    """0 to 1: how much a printed value stands as the example's did."""
    before, above = words_alike(spot.before, option.before), words_alike(spot.above, option.above)
    if before is not None and len(spot.before) < len(option.before):
        before *= _LONGER  # a longer label, perhaps: "Total a pagar" for "A pagar"
    aside = min(
        abs(spot.place.left - option.place.left),
        abs(spot.place.right - option.place.right),
        abs(spot.place.left + spot.place.right - option.place.left - option.place.right) / 2,
    )
    x = max(0.0, 1 - aside / _X)
    y = max(0.0, 1 - min(abs(spot.place.top - option.place.top), abs(spot.place.end - option.place.end)) / _Y)
    shape = _form_alike(spot, option)
    if before is None and above is None:
        return (2 * x + 2 * y + shape) / 5
    best, other = max(before or 0.0, above or 0.0), min(before or 0.0, above or 0.0)
    if before is None or above is None:
        return (6 * best + 2 * x + y + shape) / 10
    return (6 * best + other + 2 * x + y + shape) / 11


_BELOW = _LIKE_PLACE  # of an address that stands below its name as the example's did: what was right is not replaced
_NEAR, _LINE = 0.06, 0.012  # in widths of the page: how far below a name, and most of a line


def _below_alike(spot: Spot, option: Printed, name: Below | None) -> float:
    """Whether an address stands below a name as the example's did: as far, and at the same side or in the middle."""
    if name is None:
        return 0.0
    known = _offsets(spot.place, name.spot.place)
    if not -_LINE < known[0] < _NEAR:
        known = (0.0, 0.0, 0.0, 0.0)  # the name is printed a second time
    for place in name.places:
        found = _offsets(option.place, place)
        sides = zip(known[1:], found[1:], strict=True)
        if abs(known[0] - found[0]) <= 1.5 * _LINE and any(
            abs(one) < _LINE and abs(other) < _LINE for one, other in sides
        ):
            return _BELOW
    return 0.0


def _offsets(place: PageArea, name: PageArea) -> tuple[float, float, float, float]:
    """How far below a name something stands, and how far its left, right and middle are beside the name's."""
    left, right = place.left - name.left, place.right - name.right
    return place.top - name.bottom, left, right, (left + right) / 2


def _form_alike(spot: Spot, option: Printed) -> float:
    """0 to 1: whether a value is written like another; numbers of documents are as long, too."""
    one, other = spot.printed, " ".join(word.text for word in option.words)
    if spot.name in TAX_IDS:
        return float(len(letters_of(one)) == len(letters_of(other)))
    if shape_of(one) != shape_of(other):
        return 0.0
    return 1.0 if spot.name not in NUMBERS or abs(len(one) - len(other)) <= 1 else 0.5


def words_alike(known: Sequence[str], words: Sequence[str]) -> float | None:
    """0 to 1: how many words around a value stand around another, the nearest first; None without letters."""
    if not any(map(_is_label, known)):
        return None
    got = whole = 0.0
    for index, word in enumerate(known):
        weight = _NEAREST[index] * (1.0 if _is_label(word) else _BARE)
        whole += weight
        if index < len(words) and _same_word(word, words[index]):
            got += weight
        elif any(_same_word(word, other) for other in words):
            got += 0.7 * weight
    return got / whole


def _same_word(one: str, other: str) -> bool:
    return one == other or (len(one) > 3 and Levenshtein.normalized_similarity(one, other, score_cutoff=0.75) > 0)


def _why(proposal: Proposal) -> str:
    if proposal.count == 1:
        return because("confirmed_invoice")
    return because("confirmed_invoices", count=proposal.count)


def applied(taught: Taught, fields: Mapping[str, Field], *, adds_up: bool | None) -> dict[str, Field]:
    """The fields as read, where the examples do not say otherwise.

    Args:
        adds_up: whether the amounts agree: such are left as they are.
    """
    found = dict(fields)
    for name, proposal in taught.proposals.items():
        field = fields.get(name)
        if field is not None and _is_same(name, field.value, proposal.value):
            found[name] = replace(field, score=max(field.score, _SCORE), why=f"{field.why}; {_why(proposal)}")
        elif field is not None and _is_misread(name, proposal, field):
            valid = None if field.valid is None else True
            found[name] = replace(
                field, value=proposal.value, score=_SCORE, why=_why(proposal), valid=valid, repair=None
            )
        elif _may_be(proposal, field, adds_up, name == "AmountDue" and _is_due(taught, proposal, fields)):
            found[name] = _field(name, proposal, fields)
    named = {spot.name for spot in taught.same if spot.name.endswith(("Name", "Address"))}
    for spot in (spot for spot in taught.wrong if spot.name not in named):  # of those a part stood there, perhaps
        field = fields.get(spot.name)
        sums = adds_up and spot.name in AMOUNTS
        if (
            field is not None
            and spot.name not in taught.proposals
            and not sums
            and (spot.name.startswith("Vendor") or _is_mistake(taught.pages, spot, field))
        ):
            found.pop(spot.name, None)
    computed = (_withholding_rate(taught, found), _tax_row(taught, found))
    return found | {field.name: field for field in computed if field is not None}


def _tax_row(taught: Taught, fields: Mapping[str, Field]) -> Field | None:
    """The row of the one rate of tax, which the supplier's papers do not print, where it makes the tax of the base."""
    base, tax = fields.get("SubTotal"), fields.get("TotalTax")
    if "TaxDetails" in fields or not taught.taxes or base is None or tax is None or not Decimal(base.value):
        return None
    share = 100 * Decimal(tax.value) / Decimal(base.value)
    rates = [*taught.taxes, (taught.taxes[0][0], f"{share.quantize(_STEP).normalize():f}")]
    exact = _CENT * 100 / abs(Decimal(base.value))  # as exactly as cents say it
    kind, rate = next((one for one in rates if abs(Decimal(one[1]) - share) <= exact < _STEP), ("", ""))
    if not rate:
        return None
    why = because("confirmed_invoice")
    told = [Field("Type", kind, "", _SCORE, "computed", why)] if kind else []
    told.append(Field("Rate", rate, "", _SCORE, "computed", why))
    row = FieldRow((*told, replace(base, name="Base"), replace(tax, name="Amount")))
    return Field("TaxDetails", "", "", _SCORE, "computed", why, rows=(row,))


def _is_due(taught: Taught, proposal: Proposal, fields: Mapping[str, Field]) -> bool:
    """Whether an amount is the total without what is withheld."""
    total, withheld = (
        fields.get("InvoiceTotal"),
        fields.get("WithholdingAmount") or taught.proposals.get("WithholdingAmount"),
    )
    if total is None or withheld is None:
        return False
    return abs(abs(Decimal(total.value)) - abs(Decimal(withheld.value)) - abs(Decimal(proposal.value))) <= _CENT


def _withholding_rate(taught: Taught, fields: Mapping[str, Field]) -> Field | None:
    """The rate of the supplier's papers, where that makes what is withheld, and the one that was read does not."""
    amount = fields.get("WithholdingAmount")
    known = next((spot for spot in taught.same if spot.name in RATES), None)
    bases = _bases(fields)
    if known is None or amount is None or not bases:
        return None

    def makes(rate: str) -> bool:
        return any(abs(abs(base * Decimal(rate)) / 100 - abs(Decimal(amount.value))) <= _CENT for base in bases)

    read = fields.get(known.name)
    if not makes(known.value) or (read is not None and makes(read.value)):
        return None
    return Field(known.name, known.value, "", _SCORE, "computed", because("confirmed_invoice"))


def _bases(fields: Mapping[str, Field]) -> list[Decimal]:
    """The base that is printed; else the computed one, and what the total makes it, withheld or not."""
    base = fields.get("SubTotal")
    known = [] if base is None else [Decimal(base.value)]
    if (base is not None and base.source != "computed") or "InvoiceTotal" not in fields:
        return known
    tax, withheld = (
        abs(Decimal(fields[name].value)) if name in fields else Decimal(0) for name in ("TotalTax", "WithholdingAmount")
    )
    total = abs(Decimal(fields["InvoiceTotal"].value))
    return [*known, total - tax, total - tax + withheld]


def _is_same(name: str, value: str, other: str) -> bool:
    if name in AMOUNTS:
        return abs(Decimal(value)) == abs(Decimal(other))
    return value == other


def _may_be(proposal: Proposal, field: Field | None, adds_up: bool | None, is_due: bool) -> bool:
    name, printed = proposal.spot.name, proposal.printed
    if name in AMOUNTS and adds_up and (field is not None or name in KIND_OF_AMOUNT) and not is_due:
        return False
    if name == "CustomerAddress" and field is not None and field.value.startswith(proposal.value):
        return False  # it has more lines than the example's
    is_unsure = name in AMOUNTS or proposal.likeness <= _SAME_PLACE
    if field is not None and not proposal.spot.corrected and (is_unsure or _overlap(printed, field)):
        return False
    good = (True, None) if name in SAME_FOR_ALL and printed is not None else (True,)
    if name in TAX_IDS and field is not None and field.valid is True and is_valid(proposal.value) not in good:
        return False
    if printed is not None and printed.valid is False and field is not None and field.valid is not False:
        return False
    if (name in SAME_FOR_ALL and printed is None) or name == "CustomerName":
        return field is None or proposal.spot.corrected
    return True


def _is_misread(name: str, proposal: Proposal, field: Field) -> bool:
    """Whether a supplier's name or number is printed, with a few characters that OCR took for others."""
    if name not in KEYS or proposal.printed is not None or field.valid is True:
        return False
    return Levenshtein.normalized_similarity(letters_of(field.value), letters_of(proposal.value)) >= _NEARLY


_NEARLY = 0.75
_CENT = Decimal("0.01")
_STEP = Decimal("0.1")  # between rates of tax, at least


def _overlap(printed: Printed | None, field: Field) -> bool:
    """Whether a field is read at the same place."""
    if printed is None:
        return False
    boxes = [place.box for place in field.places if place.page == printed.page.page.number]
    return any(
        a.left < b.right and b.left < a.right and a.top < b.bottom and b.top < a.bottom
        for a in boxes
        for b in (word.box for word in printed.words)
    )


def _field(name: str, proposal: Proposal, fields: Mapping[str, Field]) -> Field:
    printed, value = proposal.printed, proposal.value
    if printed is None:
        return Field(name, value, "", _SCORE, "computed", _why(proposal))
    total = fields.get("InvoiceTotal")
    if name in SIGNED_AS_TOTAL:
        value = f"{abs(Decimal(value)) * (-1 if total is not None and total.value.startswith('-') else 1):f}"
    return printed_field(
        name, value, printed.words, printed.page, score=_SCORE, why=_why(proposal), valid=printed.valid,
        ambiguous=printed.ambiguous,
    )  # fmt: skip


def _is_mistake(pages: PrintedPages, spot: Spot, field: Field) -> bool:
    """Whether a field was read where the reader was wrong on a confirmed paper."""
    found = pages.read_at(field)
    return found is not None and _likeness(spot, found) >= _MISTAKEN
