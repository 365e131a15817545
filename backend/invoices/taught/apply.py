"""Reads a document as confirmed ones of its supplier were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from rapidfuzz.distance import Levenshtein

from backend.abandoned import require_wanted
from backend.files.visual_rows import PageRows
from backend.invoices.document_kind import Kind as DocumentKind
from backend.invoices.money.candidates import Candidate
from backend.invoices.money.labels import Kind
from backend.invoices.parties.names import clean_name
from backend.invoices.parties.tax_ids import is_valid
from backend.invoices.printed_field import printed_field
from backend.invoices.records import TAX_IDS, Field
from backend.invoices.taught.examples import KEYS, SAME_FOR_ALL, Spot, SupplierExample, key_of
from backend.invoices.taught.printed import (
    AMOUNTS,
    DATES,
    NUMBERS,
    Printed,
    PrintedPages,
    plain,
    printed_pages,
    shape_of,
)
from backend.reasons import because
from backend.text.patterns.date_order import DateOrder
from backend.text.patterns.folding import letters_of

_KINDS: Mapping[str, Kind] = {"SubTotal": "base", "TotalTax": "tax", "InvoiceTotal": "total", "AmountDue": "due"}
_WEIGHT = 1.4  # among the scores of labels, of which the best is 1.25
_LIKE = 0.72  # of 1: what stands as a value of an example stood
_MISTAKEN = 0.65
_AHEAD = 0.04  # of the next best value
_FITS = 0.5  # share of an example's places that are found again
_SCORE = 0.97
_MOST_EXAMPLES = 8
_SIGNED_AS_TOTAL = ("WithholdingAmount", "TotalDiscount")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a field is by the supplier's examples."""

    spot: Spot  # of the latest example that finds it
    printed: Printed | None  # None for what is the same on all papers and not on this one
    value: str
    count: int  # examples that agree


@dataclass(frozen=True, slots=True)
class Taught:
    """What the examples of a supplier say of a document."""

    kind: DocumentKind
    proposals: Mapping[str, Proposal]
    wrong: tuple[Spot, ...]  # what the reader mistakes for a field
    pages: PrintedPages

    @property
    def corrected_amounts(self) -> bool:
        """Whether the reader had one wrong."""
        return any(name in _KINDS and proposal.spot.corrected for name, proposal in self.proposals.items())

    def amounts(self) -> list[tuple[Kind, Candidate]]:
        """Its amounts as candidates of the settlement."""
        found: list[tuple[Kind, Candidate]] = []
        for name, kind in _KINDS.items():
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
        share, taught = _of_supplier(printed, own[:_MOST_EXAMPLES])
        best = max(best, (share, taught), key=lambda pair: pair[0])
    return best[1] if best[0] >= _FITS else None


def _of_supplier(pages: PrintedPages, examples: Sequence[SupplierExample]) -> tuple[float, Taught]:
    found: dict[str, Proposal] = {}
    share = 0.0
    for example in examples:
        own = {spot.name: proposal for spot in example.spots if not spot.wrong and (proposal := _proposal(pages, spot))}
        moving = [spot for spot in example.spots if spot.printed and not spot.wrong and spot.name not in SAME_FOR_ALL]
        share = max(share, sum(spot.name in own for spot in moving) / len(moving) if moving else 1.0)
        for name, proposal in own.items():
            known = found.get(name)
            if known is None:
                found[name] = proposal
            elif known.value == proposal.value:
                spot = replace(known.spot, corrected=known.spot.corrected or proposal.spot.corrected)
                found[name] = replace(known, spot=spot, count=known.count + 1)
    wrong = tuple(spot for example in examples for spot in example.spots if spot.wrong)
    return share, Taught(examples[0].kind, found, wrong, pages)


_LONGEST_NAME, _LONGEST_IBAN_WORDS, _MOST_KEYS = 10, 9, 400


def keys_on(pages: Sequence[PageRows]) -> list[str]:
    """The keys of all suppliers that may be on the pages of a document, a few hundred at most."""
    found: dict[str, None] = {}
    for page in [*pages[:2], *pages[2:][-1:]]:
        for cell in page.cells[:_MOST_KEYS]:
            texts = [letters_of(word.text.rpartition(":")[2]) for word in cell.words]
            for first in range(min(len(texts), 3 * _LONGEST_NAME)):
                if first == 0 or cell.words[first - 1].text.endswith((":", "·", "-", "|", ",")):
                    found[key_of("VendorName", "".join(texts[first : first + _LONGEST_NAME]))] = None
                for last in range(first + 1, min(len(texts), first + _LONGEST_IBAN_WORDS) + 1):
                    text = "".join(texts[first:last])
                    if len(text) > 34 or sum(map(str.isdecimal, text)) * 3 < len(text):
                        break
                    if 7 <= len(text) <= 15:
                        found[key_of("VendorTaxId", text)] = None
                    elif len(text) > 15 and text[:2].isalpha() and text[2:4].isdecimal():
                        found[key_of("IBAN", text)] = None
    found.pop("", None)
    return list(found)[: 4 * _MOST_KEYS]


def _proposal(pages: PrintedPages, spot: Spot) -> Proposal | None:
    require_wanted()
    if spot.name in SAME_FOR_ALL:
        options = pages.find(spot.value) if spot.printed else []
        printed = max(options, key=lambda option: _likeness(spot, option), default=None)
        return Proposal(spot, printed, spot.value, 1)
    if not spot.printed:
        return None
    if spot.name.startswith("Customer"):
        same = max(
            ((_likeness(spot, one), one) for one in pages.find(spot.value)), key=lambda pair: pair[0], default=None
        )
        if same is not None:
            return Proposal(spot, same[1], spot.value, 1)
        if spot.name.endswith("Address"):
            return None
    scored = sorted(((_likeness(spot, option), option) for option in _options(pages, spot)), key=lambda pair: -pair[0])
    if not scored or scored[0][0] < _LIKE:
        return None
    best = scored[0]
    others = [score for score, option in scored[1:] if option.value != best[1].value]
    if others and others[0] > best[0] - _AHEAD:
        return None
    return Proposal(spot, best[1], best[1].value, 1)


def _options(pages: PrintedPages, spot: Spot) -> Iterator[Printed]:
    """All values of the spot's type."""
    words = len(spot.printed.split())
    if spot.name in AMOUNTS:
        whole = "." not in spot.value  # an amount of cents is not taken for one without
        yield from (one for one in pages.amounts() if one.number is not None and (one.number.decimals > 0) != whole)
    elif spot.name in DATES:
        yield from pages.dates(None if spot.month_first is None else DateOrder(spot.month_first, settled=True))
    elif spot.name in TAX_IDS:
        for count in range(1, _MOST_PARTS + 1):
            yield from (option for option in pages.tax_ids(count) if option.valid is not False or count == words)
    elif spot.name in NUMBERS:
        yield from _numbers(pages, spot, words)
    else:
        for option in pages.texts(spot.before[0] if spot.before else ""):
            cut = _cut(option, spot.after)
            if value := clean_name(" ".join(word.text for word in cut.words).strip(" ,;:·|-")):
                yield cut._replace(value=value)


def _numbers(pages: PrintedPages, spot: Spot, count: int) -> Iterator[Printed]:
    glue = " " if " " in spot.value else ""
    whole = glue.join(spot.printed.split())
    head, known, tail = whole.partition(spot.value)
    for option in pages.runs(shape_of(whole), count, glue):
        if not known:
            yield option
        elif option.value.startswith(head) and option.value.endswith(tail):
            yield option._replace(value=option.value[len(head) : len(option.value) - len(tail)])


def _cut(option: Printed, after: str) -> Printed:
    """A text up to the word that stood behind it, or a mark between two."""
    for index, word in enumerate(option.words):
        if index and (not plain(word.text) or (after and plain(word.text) == after)):
            words = option.words[:index]
            return option._replace(words=words, after=after)
    return option


_MOST_PARTS = 3  # of a tax number that is printed in groups
_NEAREST = (1.0, 0.6, 0.3, 0.2)
_BARE = 0.25  # weight of a word without letters
_X, _Y = 0.05, 0.2  # widths of the page from which a place is another one


def _likeness(spot: Spot, option: Printed) -> float:
    """0 to 1: how much a printed value stands as the example's did."""
    before, above = words_alike(spot.before, option.before), words_alike(spot.above, option.above)
    aside = min(
        abs(spot.place.left - option.place.left),
        abs(spot.place.right - option.place.right),
        abs(spot.place.left + spot.place.right - option.place.left - option.place.right) / 2,
    )
    x = max(0.0, 1 - aside / _X)
    y = max(0.0, 1 - min(abs(spot.place.top - option.place.top), abs(spot.place.end - option.place.end)) / _Y)
    shape = shape_of(spot.printed) == shape_of(" ".join(word.text for word in option.words))
    if before is None and above is None:
        return (2 * x + 2 * y + shape) / 5
    best, other = max(before or 0.0, above or 0.0), min(before or 0.0, above or 0.0)
    if before is None or above is None:
        return (3 * best + 2 * x + y + shape) / 7
    return (3 * best + other + 2 * x + y + shape) / 8


def words_alike(known: Sequence[str], words: Sequence[str]) -> float | None:
    """0 to 1: how many words around a value stand around another, the nearest first; None without letters."""
    if not any(word.strip("0%") for word in known):
        return None
    got = whole = 0.0
    for index, word in enumerate(known):
        weight = _NEAREST[index] * (1.0 if word.strip("0%") else _BARE)
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
        elif _may_be(proposal, field, adds_up):
            found[name] = _field(name, proposal, fields)
    for spot in taught.wrong:
        field = fields.get(spot.name)
        sums = adds_up and spot.name in AMOUNTS
        if (
            field is not None
            and spot.name not in taught.proposals
            and not sums
            and _is_mistake(taught.pages, spot, field)
        ):
            found.pop(spot.name, None)
    return found


def _is_same(name: str, value: str, other: str) -> bool:
    if name in AMOUNTS:
        return abs(Decimal(value)) == abs(Decimal(other))
    return value == other


def _may_be(proposal: Proposal, field: Field | None, adds_up: bool | None) -> bool:
    name, printed = proposal.spot.name, proposal.printed
    if name in AMOUNTS and adds_up and (field is not None or name in _KINDS):
        return False
    if field is not None and not proposal.spot.corrected and (name in AMOUNTS or _overlap(printed, field)):
        return False
    if name in TAX_IDS and field is not None and field.valid is True and is_valid(proposal.value) is not True:
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
    if name in _SIGNED_AS_TOTAL:
        value = f"{abs(Decimal(value)) * (-1 if total is not None and total.value.startswith('-') else 1):f}"
    return printed_field(
        name, value, printed.words, printed.page, score=_SCORE, why=_why(proposal), valid=printed.valid,
        ambiguous=printed.ambiguous,
    )  # fmt: skip


def _is_mistake(pages: PrintedPages, spot: Spot, field: Field) -> bool:
    """Whether a field was read where the reader was wrong on a confirmed paper."""
    found = pages.read_at(field)
    return found is not None and _likeness(spot, found) >= _MISTAKEN
