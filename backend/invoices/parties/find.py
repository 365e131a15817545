"""Who sells and who buys: names, addresses and tax numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from backend.files.visual_rows import PageRows, VisualRow
from backend.invoices.items.labels import COLUMNS
from backend.invoices.parties.blocks import Block, blocks_of
from backend.invoices.parties.labels import CUSTOMER, DELIVERY, GREETING, PAYEE, VENDOR
from backend.invoices.parties.names import CERTAIN, LIKELY, clean_name
from backend.invoices.parties.pieces import LinePart
from backend.invoices.parties.read import Party, read_parties
from backend.invoices.records import Field, printed_field
from backend.reasons import because
from backend.text.patterns.folding import fold, letters_of

_GOODS = frozenset({"Description", "Article", "Quantity", "Units"})  # columns that name what is sold, or how much
_MIN_COLUMNS = 2
_AMOUNT = re.compile(r"(?<![\d.,/-])-?\d{1,3}(?:[., ]?\d{3})*[.,]\d{2}(?![\d./-])")
_MAX_ABOVE_HEADER = 4  # rows with an amount
_NEXT_ROWS, _MIN_AMOUNTS = 6, 2  # as many of the rows after the first with an amount have one, too
_LONGEST = 400  # characters of a row that are looked at
_WIDE_CELL = 5  # words; column headings are shorter


def body_start(page: PageRows) -> int:
    """The index of the row at which lines of goods begin: their header row, else where rows with amounts begin.

    A few amounts may stand above the header row: the total in the box of the invoice's number and date.
    """
    amounts: list[int] = []
    for row in page.rows:
        if _is_header(row):
            return row.index
        if _AMOUNT.search(row.text[:_LONGEST]):
            amounts.append(row.index)
            if len(amounts) > _MAX_ABOVE_HEADER:
                break
    for first, later in zip(amounts, amounts[_MIN_AMOUNTS:], strict=False):
        if later - first <= _NEXT_ROWS:
            return first
    return amounts[0] if amounts and amounts[0] > _NEXT_ROWS else len(page.rows)


def _is_header(row: VisualRow) -> bool:
    cells = [cell for cell in row.cells if len(cell.words) <= _WIDE_CELL]
    kinds = {match.label for cell in cells for match in COLUMNS.find(cell)} - {"Other", "NotItems"}
    return len(cells) >= _MIN_COLUMNS and len(kinds) >= _MIN_COLUMNS and not kinds.isdisjoint(_GOODS)


_HEAD = 0.45  # of the page's height: the nearer to the top, the likelier the vendor
_MIN_LETTERS = 4  # of a name that is looked for elsewhere on the page
_SAME_START = 6  # letters: a name that begins with a shorter one is the same party's
_ORPHAN_ROWS = 6  # rows below a name within which an address without a name is its
_ORPHAN_OFFSET = 2.0  # heights between their left edges at most
_DOMAIN = re.compile(r"(?:@|www\.|https?://)(?:www\.)?([\w-]{4,})\.", re.IGNORECASE)
_MAIL_HOSTS = frozenset({"gmail", "hotmail", "outlook", "yahoo", "icloud", "correo", "telefonica", "email"})
_FOOT_ROWS, _IMPRINT_ROWS = 12, 5
# What stands at a page's foot beside the vendor's name.
_FOOT_ROW = re.compile(
    r"(?<![^\W_])(?:IBAN|BIC|Inh\.|Inhaber|Steuernummer|Steuer-?Nr|St\.-?Nr|USt|HR[AB]|Amtsgericht|Gesch[aä]ftsf"
    r"|capital|siret|siren|R\.?C\.?S|TVA|Inscrit|Reg(?:istro|istered)?\.? (?:Merc|in|office|no)|company (?:no|reg)"
    r"|[NC]\.?I\.?F|NIPC|P\.? ?IVA|VAT|account|cuenta|Bankverbindung|RIB)(?![^\W\d_])",
    re.IGNORECASE,
)
_WORD_LETTERS = 5  # of a name's word that a domain may be


class Found(NamedTuple):
    """What a field is made of."""

    pieces: tuple[LinePart, ...]
    score: float
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class _Page:
    """What is looked up for every party of a page."""

    rows: PageRows
    body: int  # index of the row at which the goods begin
    text: str  # letters and digits of the page
    domains: Collection[str]  # of e-mail addresses and web sites, without their ending
    payees: Collection[str]  # letters of the names that are to be paid
    foot: str  # letters and digits of the rows below with the bank or register of the vendor

    @classmethod
    def of(cls, rows: PageRows, body: int, parties: Sequence[Party]) -> _Page:
        domains = {match[1].lower().replace("-", "") for match in _DOMAIN.finditer(fold(rows.page.text).text)}
        payees = {letters_of(party.name) for party in parties if party.label == PAYEE and party.names}
        foot = " ".join(
            letters_of(row.text) for row in rows.rows[-_FOOT_ROWS:] if row.index >= body and _FOOT_ROW.search(row.text)
        )
        return cls(rows, body, letters_of(rows.page.text), domains - _MAIL_HOSTS, payees, foot)


def choose(parties: Sequence[Party], rows: PageRows, body: int) -> dict[str, Found]:
    """What the names, addresses and tax numbers of the two parties of a page are made of, by the fields' names.

    Args:
        body: index of the row at which the goods begin.
    """
    page = _Page.of(rows, body, parties)
    parties = _with_orphans(parties, page)
    customer, customer_why = _labelled_customer(parties, page), because("customer_label")
    greeted = next((party for party in parties if party.label == GREETING and party.names), None)
    theirs = [p for p in parties if p.label in (CUSTOMER, DELIVERY) and p.names and _may_be_party(p, page)]
    addressee = next((party for party in parties if party.is_addressee and party.names and _is_whole(party)), None)
    if addressee is not None and (customer is None or customer.label == DELIVERY):
        customer, customer_why = addressee, because("below_vendor")
        theirs.append(addressee)
    vendors = [party for party in parties if party.label == VENDOR]
    free = [party for party in parties if not party.label and _may_be_party(party, page)]
    scores = {id(party): _vendor_score(party, page, free) for party in free}
    free.sort(key=lambda party: -scores[id(party)])
    payees = [party for party in parties if party.label == PAYEE]
    named = [party for party in (*vendors, *free, *payees) if party.names]
    vendor = next((party for party in named if not any(_same(party, other) for other in theirs)), None)
    if customer is None and greeted is not None:
        customer, customer_why = _greeted_customer(greeted), because("greeting")
    if customer is None:
        customer, customer_why = _unlabelled_customer(free, vendor, page), because("below_vendor")
        theirs += [customer] if customer else []
    mine = [party for party in (*vendors, *free) if not any(_same(party, other) for other in theirs)]
    mine.sort(key=lambda party: not _same(party, vendor))
    found = _vendor_fields(vendor, mine, customer) | _customer_fields(customer, customer_why, parties)
    return {name: entry for name, entry in found.items() if entry is not None}


def _with_orphans(parties: Sequence[Party], page: _Page) -> list[Party]:
    """Parties with the addresses and numbers that stand apart below their names, in the same column."""
    whole = list(parties)
    for orphan in parties:
        if orphan.label or not (orphan.address or orphan.tax_ids) or orphan.first.row >= page.body:
            continue
        above = [party for party in whole if party.names and _is_above(party, orphan)]
        if orphan.names:  # "Contoso Ltd." in large letters above "Contoso Headquarters" and its address
            above = [p for p in above if p.has_legal_form and not orphan.has_legal_form and not (p.address or p.label)]
            above = [p for p in above if orphan.first.row - p.first.row == 1]
        owner = max(above, key=lambda party: (party.first.row, party.first.box.left), default=None)
        if owner is None or (orphan.address and owner.address) or (orphan.tax_ids and owner.tax_ids):
            continue
        joined = replace(
            owner, address=owner.address or orphan.address, tax_ids=(*owner.tax_ids, *orphan.tax_ids),
            has_contact=owner.has_contact or orphan.has_contact, has_registry=owner.has_registry or orphan.has_registry,
        )  # fmt: skip
        whole[whole.index(owner)] = joined
        whole.remove(orphan)
    return whole


def _is_above(party: Party, orphan: Party) -> bool:
    rows = orphan.first.row - party.first.row
    offset = abs(party.first.box.left - orphan.first.box.left)
    if rows == 0:  # "Facturado a: Talleres Pinto S.L.    CIF: B41234567"
        return party.first.box.right < orphan.first.box.left and not orphan.address and not orphan.has_contact
    return 0 < rows <= _ORPHAN_ROWS and offset <= _ORPHAN_OFFSET * orphan.first.box.height


def _labelled_customer(parties: Sequence[Party], page: _Page) -> Party | None:
    customers = [p for p in parties if p.label == CUSTOMER and p.names and _may_be_party(p, page)]
    best = max(customers, key=lambda p: (bool(p.address) + bool(p.tax_ids), -p.first.row), default=None)
    return best or next((party for party in parties if party.label == DELIVERY and party.names), None)


def _greeted_customer(greeted: Party) -> Party | None:
    """The greeting's name where it is a whole one."""
    return greeted if len(clean_name(greeted.name).split()) > 1 or greeted.has_legal_form else None


def _may_be_party(party: Party, page: _Page) -> bool:
    """Whether it stands above the lines of goods, or has more than a name."""
    if party.first.row < page.body:
        return True
    whole = bool(party.names) and _is_whole(party)
    if party.label:
        return whole or bool(party.tax_ids)
    return bool(party.tax_ids) or party.has_registry or (whole and party.has_legal_form)


def _unlabelled_customer(free: Sequence[Party], vendor: Party | None, page: _Page) -> Party | None:
    """The likeliest of the parties with a name and more above the goods that are not the vendor."""
    found = [
        (2.0 * bool(party.address) + bool(party.tax_ids) - party.has_contact - 2.0 * party.has_registry, party)
        for party in free
        if party.names and (_is_whole(party) or party.tax_ids) and party.first.row < page.body
        and not _same(party, vendor)
    ]  # fmt: skip
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _vendor_score(party: Party, page: _Page, parties: Sequence[Party]) -> float:
    """How much speaks for a party without a label as the vendor. Weights were set by reading, not fitted.

    Args:
        parties: all without a label; what is said of one elsewhere, at the page's foot, counts for it.
    """
    mine = [party, *(other for other in parties if other is not party and other.names and _same(other, party))]
    score = 1.5 * any(other.tax_ids for other in mine) + 1.5 * any(other.has_contact for other in mine)
    score += 2.0 * any(other.has_registry for other in mine) + 2.0 * _is_registered(party)
    score += 2.0 * party.has_legal_form + bool(party.address)
    score += 2.5 * any(other.is_sender for other in mine)
    first = min((p for p in parties if p.names), key=lambda p: (p.first.row, p.first.box.left), default=None)
    if party.names:
        height = max(word.box.height for word in party.names[0].words)
        score += min(1.5, max(0.0, height / page.rows.line_height - 1))
        name = party.letters
        if len(name) >= _MIN_LETTERS:
            score += min(1.5, page.text.count(name) - 1) + 1.5 * _is_domain(party, page) + 2.0 * (name in page.payees)
            score += 3.0 * (name in page.foot or any(_is_imprint(other, page) for other in mine)) + 1.5 * (
                party is first
            )
        if not (party.address or party.tax_ids or party.has_contact or party.has_legal_form):
            score -= 1.5
    else:
        score -= 1.0
    top = party.first.box.top / max(1.0, page.rows.page.height)
    return score + (3.0 * (1 - top / _HEAD) if top < _HEAD else -1.5)


def _is_registered(party: Party) -> bool:
    """Whether its letterhead has its entry in a register, or its account."""
    return party.has_registry and bool(party.address)


def _is_imprint(party: Party, page: _Page) -> bool:
    """Whether it is a company with its address and tax number in the last rows, below the goods if there are any."""
    rows = len(page.rows.rows)
    is_last = party.first.row >= page.body or party.first.row >= max(rows / 2, rows - _IMPRINT_ROWS)
    return is_last and party.has_legal_form and bool(party.address) and bool(party.tax_ids or party.has_registry)


def _is_domain(party: Party, page: _Page) -> bool:
    """Whether a web site or e-mail address of the page is named like a party."""
    name = party.letters
    words = [letters_of(word) for word in party.name.split()]
    return any(
        name.startswith(domain) or domain.startswith(name)
        or any(len(word) >= _WORD_LETTERS and word in domain for word in words)
        for domain in page.domains
    )  # fmt: skip


def _same(party: Party, other: Party | None) -> bool:
    """Whether two blocks name the same party: one more fully than the other, perhaps."""
    if party is other:
        return True
    if other is None or not other.names or not party.names or _differ(party, other):
        return False
    mine, theirs = party.letters, other.letters
    return mine == theirs or (len(mine) >= _SAME_START and theirs.startswith(mine))


def _differ(party: Party, other: Party) -> bool:
    """Whether two parties of one name are two: their tax numbers, or their addresses, are different."""
    mine, theirs = ({piece.tax_id.value for piece in p.tax_ids if piece.tax_id} for p in (party, other))
    if mine and theirs:
        return not mine & theirs
    return _is_whole(party) and _is_whole(other) and not party.is_sender


def _is_whole(party: Party) -> bool:
    """Whether its address is more than a line that may be one."""
    certain = any(piece.strength >= CERTAIN for piece in party.address)
    return certain or party.address_strength >= 2 * LIKELY


def _vendor_fields(vendor: Party | None, mine: Sequence[Party], customer: Party | None) -> dict[str, Found | None]:
    """The vendor's fields.

    Args:
        mine: all parties that may be the vendor's blocks, those with its name first.
    """
    name = address = number = None
    if vendor is not None:
        score, why = (0.95, because("vendor_label")) if vendor.label else (0.7, because("prominent_name"))
        if not vendor.label and _is_registered(vendor) and not (customer and customer.has_registry):
            score, why = 0.9, because("name_with_registry")
        elif not vendor.label and vendor.has_legal_form:
            score, why = 0.85, because("prominent_legal_name")
        name = Found(vendor.names, score, why)
    whole = next((party for party in mine if _is_whole(party)), None)
    if whole is not None:
        address = Found(whole.address, 0.9 if whole.names else 0.6, because("vendor_block_address"))
    taken = {piece.tax_id.value for piece in (customer.tax_ids if customer else ()) if piece.tax_id}
    for party in mine:
        for piece in party.tax_ids:
            if number is None and piece.tax_id and not piece.tax_id.is_customer and piece.tax_id.value not in taken:
                number = Found((piece,), 0.95 if piece.tax_id.label else 0.8, because("vendor_block_tax_id"))
                if vendor is not None and not (vendor.label or vendor.has_legal_form) and party.has_legal_form:
                    name = Found(party.names, 0.85, because("legal_name_of_tax_id"))  # the other is a trade name
    return {"VendorName": name, "VendorAddress": address, "VendorTaxId": number}


def _customer_fields(customer: Party | None, why: str, parties: Sequence[Party]) -> dict[str, Found | None]:
    name = address = number = None
    if customer is not None:
        name = Found(customer.names, 0.95 if customer.label else 0.7, why)
        lines = customer.address
        if not (
            _is_whole(customer) and customer.label
        ):  # the envelope's window has the address, not the contract's row
            alike = (p for p in parties if p.label != DELIVERY and p.letters == customer.letters and _is_whole(p))
            lines = next((p.address for p in alike), lines)
        address = Found(lines, 0.9, because("customer_block_address")) if lines else None
        if address is None:
            place = next((party for party in parties if party.label == DELIVERY and party.address), None)
            address = Found(place.address, 0.6, because("delivery_address")) if place else None
        if customer.tax_ids:
            number = Found(customer.tax_ids[:1], 0.9, because("customer_block_tax_id"))
    if number is None:
        said = [piece for party in parties for piece in party.tax_ids if piece.tax_id and piece.tax_id.is_customer]
        number = Found((said[0],), 0.9, because("customer_tax_id_label")) if said else None
    return {"CustomerName": name, "CustomerAddress": address, "CustomerTaxId": number}


_FOOT = re.compile(
    r"(?<![^\W_])(?:[NC]\.? ?[I1l]\.? ?[FE]|D\.?N\.?I|"
    r"V\.?A\.?T|T\.?V\.?A|USt|UID|P\.? ?IVA|NIPC|EIN|Tax|S\.? ?[ALC]\.?|S\. ?Coop"
    r"|C\.B\.|Ltd|Limited|GmbH|Inc|LLC|Corp|Co\.|Lda|Sdn|SARL|SAS|EURL|S\.r\.l|B\.?V|Regist|Inscrit|domicilio|HR[AB]"
    r"|siret|siren|capital|P\.? ?O\.? ?Box|KvK|KG|PLC|LLP|[A-Z]-?\d{7}|\d{8}-?[A-Z])",
    re.IGNORECASE,
)
_ABBREVIATED = 4  # characters of an abbreviation with its point
_MAX_AT_TOP, _MAX_AT_FOOT = 100, 60  # blocks of a page that are read; a full page of goods has as many columns


def find_parties(pages: Sequence[PageRows], kind: str | None = None) -> tuple[Field, ...]:
    """VendorName, VendorAddress, VendorTaxId, CustomerName, CustomerAddress, CustomerTaxId; MerchantName of a receipt.

    The first page tells them; what it lacks of the vendor is looked for at the foot of the last.

    Args:
        kind: of the document, from `document_kind`; None where it is unknown.
    """
    if not pages or kind == "bank_statement":
        return ()
    fields = {field.name: field for field in _fields(pages[0])}
    vendor = fields.get("VendorName")
    if len(pages) > 1 and not {"VendorName", "VendorAddress", "VendorTaxId"} <= fields.keys():
        last = {field.name: field for field in _fields(pages[-1])}
        if vendor is None or "VendorName" not in last or last["VendorName"].value == vendor.value:
            fields = {name: field for name, field in last.items() if name.startswith("Vendor")} | fields
    if kind == "receipt" and (vendor := fields.get("VendorName")) is not None:
        fields["MerchantName"] = replace(vendor, name="MerchantName")
    return tuple(fields.values())


def _fields(page: PageRows) -> list[Field]:
    body = body_start(page)
    blocks = [block for block in blocks_of(page) if block.label or block.first.row < body or _may_be_foot(block)]
    if len(blocks) > _MAX_AT_TOP + _MAX_AT_FOOT:
        blocks = [*blocks[:_MAX_AT_TOP], *blocks[-_MAX_AT_FOOT:]]
    parties = [party for block in blocks for party in read_parties(block)]
    return [_field(name, found, page) for name, found in choose(parties, page, body).items()]


def _field(name: str, found: Found, page: PageRows) -> Field:
    words = [word for piece in found.pieces for word in piece.words]
    tax_id = found.pieces[0].tax_id
    if tax_id is not None:
        repair = tax_id.repair if page.page.source == "ocr" else None  # in a text layer a wrong number is wrong
        return printed_field(
            name, tax_id.value, words, page, score=found.score, why=found.why, valid=tax_id.valid, repair=repair
        )
    texts = [piece.text for piece in found.pieces]
    value = clean_name(_on_one_line(found.pieces)) if name.endswith("Name") else _without_full_stop(", ".join(texts))
    return printed_field(name, value, words, page, score=found.score, why=found.why)


def _on_one_line(pieces: Sequence[LinePart]) -> str:
    """A name of several lines with the commas at their ends: "Suministros Alborada," / "S.L."."""
    return " ".join(piece.text + "," * piece.words[-1].text.endswith(",") for piece in pieces)


def _may_be_foot(block: Block) -> bool:
    """Whether lines below the goods may name a party: they have a legal form, a tax number or a register."""
    return any(_FOOT.search(line.cell.text) for line in block.lines)


def _without_full_stop(address: str) -> str:
    """An address without the full stop, or the "y" before a tax number, of a sentence; that of "St." stays."""
    address = address.removesuffix(" y").removesuffix(" and")
    last = address[address.rfind(" ") + 1 :]
    is_abbreviated = len(last) <= _ABBREVIATED and not any(map(str.isdigit, last))
    return address if is_abbreviated else address.rstrip(".")
