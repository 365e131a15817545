"""Weighs what the network reads of a document's fields against what rules find.

What both read alike is right in 99 of 100 cases. Where they differ, a valid id wins over a wrong one; else the network
does where it is sure and the rules are not. Thresholds were set on made papers, designs and validation sets. Weights
taught on made papers (a logistic regression over probability, score, check digits, legal form and place) were worse on
real papers than rules alone: there the network is as sure as on made ones, and less often right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from stdnum.es import cif, nif

from backend.files.visual_rows import PageRows
from backend.invoices.learned.read import AMOUNTS, Guess, PageReader, guesses
from backend.invoices.money.candidates import Candidate
from backend.invoices.money.labels import KIND_OF_AMOUNT, Kind
from backend.invoices.parties.names import has_legal_form
from backend.invoices.records import Field, printed_field
from backend.reasons import because
from backend.text.patterns.dates import order_of
from backend.text.patterns.folding import fold, letters_of

Learned = Mapping[str, Sequence[Guess]]  # likeliest first
WHY = because("network")
_WEIGHT = 0.8  # of its probability among the scores of labels
_MIN_AMOUNT = 0.5  # probability of an amount that is tried
_CENTS = 2  # decimals
_SURE = 0.95  # probability with which it fills a field, or overrules
_SURES = {"InvoiceId": 0.9, "RectifiedInvoiceId": 0.9, "PurchaseOrder": 0.9, "DueDate": 0.9}
_SURE_OF_PARTY = 0.96
_SURE_OF_WHOLE = 0.8  # of a name of which rules found a part
_NUMBERED = 0.45  # for the number of what must have one: rules look for its labels no more
_FILLED = 0.75  # for a part of a party, or another paper's number, that rules found nowhere
_OTHER_NUMBERS = ("RectifiedInvoiceId", "PurchaseOrder")
_ALONE = 0.94  # of 200 values that it alone read so on validation sets, 89 % are right; their mean probability is .976
_AGREED = 0.99  # of 2,333 values of made papers and designs that both read alike, 99.4 % are right
# The score of the rules up to which a sure network overrules them: as much as labels of parties give.
_OVERRULED, _PARTY_OVERRULED = 0.92, 0.95
_LABELLED = 0.9  # score of a name beside the label of its party
_ANOTHER = 0.9  # probability of a value in the place of the other party's
_PARTIES = ("Vendor", "Customer")
_PARTS, _SELLER = ("Name", "Address", "TaxId"), ("VendorName", "VendorTaxId")
_SEEN = 0.8  # probability of a value of a party that the network sees as the other
_RATE_OF_RENT = 19  # %
_TELEPHONE = re.compile(r"\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}")  # of North America, where numbers are grouped so


def read_learned(reader: PageReader, pages: Sequence[PageRows], mark: str, text: str) -> Learned:
    """What the network reads of a document; nothing where there is no network.

    Args:
        mark: the document's decimal separator.
        text: of the document: its dates tell their order.
    """
    return guesses(reader.ends(pages), mark, order_of(fold(text).text))


def amounts_of(learned: Learned) -> list[tuple[Kind, Candidate]]:
    """What the network takes amounts for, as candidates of the settlement."""
    return [
        (kind, Candidate(guess.number.value, _WEIGHT * guess.score, (guess.number,), guess.page, WHY))
        for name, kind in KIND_OF_AMOUNT.items()
        for guess in learned.get(name, ())
        if guess.number is not None and guess.score >= _MIN_AMOUNT and _is_whole(guess)
    ]


def sure_parts(learned: Learned, total: str) -> set[tuple[str, str]]:
    """The base and the tax of a total that the network is sure of, by their fields' names."""
    firsts = [learned[name][0] for name in ("SubTotal", "TotalTax") if name in learned]
    return {(guess.name, guess.value) for guess in firsts if guess.score >= _SURE and guess.value != total}


def _is_whole(guess: Guess) -> bool:
    """Whether an amount has cents, or none in a text layer: OCR loses decimal marks."""
    decimals = 0 if guess.number is None else guess.number.decimals
    return decimals == _CENTS or (not decimals and guess.page.page.source == "text_layer")


def arbitrated(rules: Mapping[str, Field], learned: Learned, kind: str) -> dict[str, Field]:
    """The fields of both, by name. Amounts are left as the settlement has them.

    Args:
        kind: of the document: on receipts rules read the parties better, and the network only fills in the shop.
    """
    swaps = _swaps(rules, learned)
    rules = rules if swaps or kind == "receipt" else _as_seated(rules, learned)
    fields = dict(rules)
    for name, options in learned.items():
        field, is_party = rules.get(name), name.startswith(_PARTIES)
        sure = _least_sure(options[0], field, kind)
        # of two sure numbers the one with right check digits: the other is of another register
        guess = next((option for option in options if option.valid is True and option.score >= sure), options[0])
        if name == "InvoiceDate":  # what a credit note refers to is older than it
            guess = max((option for option in options if option.score >= sure), key=lambda o: o.value, default=guess)
        if field is not None and _in_two_minds(options, sure):
            guess = next((option for option in options if option.value == field.value), guess._replace(score=0.0))
        is_later = name == "InvoiceDate" and kind == "credit_note" and field is not None and guess.value > field.value
        if name in AMOUNTS or (kind == "receipt" and is_party and _is_known(name, field)):
            continue
        if field is not None and field.value == guess.value:
            fields[name] = replace(field, score=max(field.score, _AGREED))
        elif guess.score < (_SURE_OF_WHOLE if _is_part(field, guess) else sure):
            continue
        elif is_later or (
            _fills(guess, fields, kind) if field is None else _overrules(guess, field) and not (is_party and swaps)
        ):
            fields[name] = _as_read(guess)
    for part in ("Name", "TaxId"):
        _tell_apart(fields, learned, part)
    return fields


def _least_sure(guess: Guess, field: Field | None, kind: str) -> float:
    """The probability with which a value is told beside, or in the place of, what rules found."""
    name, is_party = guess.name, guess.name.startswith(_PARTIES)
    if field is None and name == "InvoiceId" and kind != "receipt":
        return _NUMBERED
    is_proved = guess.valid is True or not name.endswith("TaxId")
    if field is None and is_proved and (is_party or name in _OTHER_NUMBERS):
        return _FILLED
    return _SURES.get(name, _SURE_OF_PARTY if is_party else _SURE)


def _as_read(guess: Guess) -> Field:
    return printed_field(
        guess.name, guess.value, guess.words, guess.page, score=_ALONE * guess.score, why=WHY, valid=guess.valid,
        ambiguous=guess.ambiguous,
    )  # fmt: skip


def _tell_apart(fields: dict[str, Field], learned: Learned, part: str) -> None:
    """Nobody bills himself: of one name or number for both parties, one is another, as likely read, or none."""
    names = [party + part for party in _PARTIES if party + part in fields]
    if len(names) < len(_PARTIES) or letters_of(fields[names[0]].value) != letters_of(fields[names[1]].value):
        return
    shared = letters_of(fields[names[0]].value)
    for name in names:
        for guess in learned.get(name, ()):
            if guess.score >= _ANOTHER and letters_of(guess.value) != shared:
                fields[name] = _as_read(guess)
                return
    del fields[min(reversed(names), key=lambda name: fields[name].score)]


def _swaps(rules: Mapping[str, Field], learned: Learned) -> bool:
    """Whether the network takes one party for the other, and a label names one of them: the rules know better."""
    names = [rules[party + "Name"].score for party in _PARTIES if party + "Name" in rules]
    return max(names, default=0.0) >= _LABELLED and any(
        learned[own + part][0].value == rules[other + part].value
        for part in ("Name", "Address", "TaxId")
        for own, other in (_PARTIES, _PARTIES[::-1])
        if own + part in learned and other + part in rules
    )


def _as_seated(rules: Mapping[str, Field], learned: Learned) -> Mapping[str, Field]:
    """The rules' parties, each where the network sees it: no label tells them apart, and place alone misleads.

    Two that it sees the other way round change places. Of one alone, in whose place it is sure of another's name and
    number, nothing is the seller's: it buys.
    """
    told = {party: [rules[party + part] for part in _PARTS if party + part in rules] for party in _PARTIES}
    if any(field.name.endswith("Name") and field.score >= _LABELLED for fields in told.values() for field in fields):
        return rules

    def seen(own: str, other: str) -> bool:
        """Whether the network sees a value of one party as the other's."""
        return any(_is_seen(field, learned.get(field.name.replace(own, other, 1))) for field in told[own])

    seller, buyer = _PARTIES
    if told[buyer]:
        moves = seen(seller, buyer) and seen(buyer, seller) and not (seen(seller, seller) or seen(buyer, buyer))
    else:
        others = [learned[name][0] for name in _SELLER if name in rules and name in learned]
        sure = [one for one in others if one.score >= _SURE_OF_PARTY and not _is_same(rules[one.name], one)]
        moves = len(sure) == len(_SELLER)
    if not moves:
        return rules
    return {
        name: replace(field, why=WHY, score=_AGREED if _is_seen(field, learned.get(name)) else field.score)
        if name.startswith(_PARTIES)
        else field
        for name, field in _seats_changed(rules).items()
    }


def _seats_changed(fields: Mapping[str, Field]) -> dict[str, Field]:
    """Each party's fields as the other's."""
    changed = dict[str, Field]()
    for name, field in fields.items():
        own, other = _PARTIES if name.startswith(_PARTIES[0]) else _PARTIES[::-1]
        seat = other + name.removeprefix(own) if name.startswith(own) else name
        changed[seat] = replace(field, name=seat)
    return changed


def seated_by_withholding(fields: dict[str, Field]) -> dict[str, Field]:
    """The parties, the other way round where a Spanish company would have income tax withheld by a person.

    It is withheld from persons who sell, and by whoever buys in business; from companies on rent alone, 19 %.
    """
    rate, numbers = fields.get("WithholdingRate"), [fields.get(party + "TaxId") for party in _PARTIES]
    if rate is None or Decimal(rate.value) == _RATE_OF_RENT or None in numbers:
        return fields
    seller, buyer = (nif.compact(field.value) for field in numbers if field is not None)
    is_person = nif.is_valid(buyer) and not cif.is_valid(buyer)
    return _seats_changed(fields) if cif.is_valid(seller) and is_person else fields


def _is_seen(field: Field, options: Sequence[Guess] | None) -> bool:
    return options is not None and options[0].score >= _SEEN and _is_same(field, options[0])


def _is_same(field: Field, guess: Guess) -> bool:
    return letters_of(field.value) == letters_of(guess.value)


def _in_two_minds(options: Sequence[Guess], sure: float) -> bool:
    """Whether it is sure of several names: a department's and a grid's beside the seller's."""
    return options[0].name.endswith("Name") and len({letters_of(g.value) for g in options if g.score >= sure}) > 1


def _is_known(name: str, field: Field | None) -> bool:
    return field is not None or name.startswith("Customer")


def _fills(guess: Guess, fields: Mapping[str, Field], kind: str) -> bool:
    """Whether a sure value stands where rules found none: nothing is due before it is billed, no telephone a number."""
    if guess.name == "DueDate" and "InvoiceDate" in fields:  # what was paid at once was due on no day
        issued = fields["InvoiceDate"].value
        return guess.value > issued or (guess.value == issued and kind != "receipt")
    if guess.name == "InvoiceId" and guess.score < _SURES["InvoiceId"]:
        return not _TELEPHONE.fullmatch(guess.value)
    return guess.name != "IBAN" or guess.valid is True


def _overrules(guess: Guess, field: Field) -> bool:
    """Whether a sure value stands in the place of another that rules found."""
    if guess.name in ("IBAN", "VendorTaxId", "CustomerTaxId") and (guess.valid is True) != (field.valid is True):
        return guess.valid is True
    if guess.name == "IBAN":
        return False
    own, other = letters_of(guess.value), letters_of(field.value)
    if guess.name.endswith("Address") and own in other:
        return False  # a part of it
    if guess.name.endswith("Name") and _has_form(field.value) and (own in other or not _has_form(guess.value)):
        return False
    is_party = guess.name.endswith(("Name", "TaxId"))
    return field.score <= (_PARTY_OVERRULED if is_party else _OVERRULED)


def _is_part(field: Field | None, guess: Guess) -> bool:
    """Whether rules found a part of a name: a company's after a dash, its legal form alone."""
    whole, part = letters_of(guess.value), "" if field is None else letters_of(field.value)
    return guess.name.endswith("Name") and 0 < len(part) < len(whole) and whole.endswith(part)


def _has_form(name: str) -> bool:
    return has_legal_form(fold(name).text)
