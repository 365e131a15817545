"""Who sells and who buys: names, addresses and tax numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from backend.files.visual_rows import PageRows
from backend.invoices.parties.address import has_town
from backend.invoices.parties.blocks import Block, blocks_of
from backend.invoices.parties.choice import Found, choose
from backend.invoices.parties.names import clean_name
from backend.invoices.parties.pieces import Role
from backend.invoices.parties.read import read_parties
from backend.invoices.parties.zones import body_start
from backend.invoices.printed_field import printed_field
from backend.invoices.records import Field

_FOOT = re.compile(
    r"(?<![^\W_])(?:[NC]\.? ?[I1l]\.? ?[FE]|D\.?N\.?I|"
    r"V\.?A\.?T|T\.?V\.?A|USt|UID|P\.? ?IVA|NIPC|EIN|Tax|S\.? ?[ALC]\.?|S\. ?Coop"
    r"|C\.B\.|Ltd|Limited|GmbH|Inc|LLC|Corp|Co\.|Lda|Sdn|SARL|SAS|EURL|S\.r\.l|B\.?V|Regist|Inscrit|domicilio|HR[AB]"
    r"|siret|siren|capital|P\.? ?O\.? ?Box|KvK|KG|PLC|LLP|[A-Z]-?\d{7}|\d{8}-?[A-Z])",
    re.IGNORECASE,
)
_MOST_AT_TOP, _MOST_AT_FOOT = 100, 60  # blocks of a page that are read; a full page of goods has as many columns
_ABBREVIATED = 4  # characters of an abbreviation with its point


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
    blocks = _with_foot_columns(blocks_of(page), body)
    blocks = [block for block in blocks if block.label or block.first.row < body or _may_be_foot(block)]
    if len(blocks) > _MOST_AT_TOP + _MOST_AT_FOOT:
        blocks = [*blocks[:_MOST_AT_TOP], *blocks[-_MOST_AT_FOOT:]]
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
    value = clean_name(" ".join(texts)) if name.endswith("Name") else _without_full_stop(", ".join(texts))
    return printed_field(name, value, words, page, score=found.score, why=found.why)


def _may_be_foot(block: Block) -> bool:
    """Whether lines below the goods may name a party: they have a legal form, a tax number or a register."""
    return any(_FOOT.search(line.cell.text) for line in block.lines)


def _with_foot_columns(blocks: list[Block], body: int) -> list[Block]:
    """Blocks with the address in a column of its own at the page's foot in the block with the name beside it.

    The foot of stationery has columns: name and tax number, street and town, telephone, bank.
    """
    foot = [block for block in blocks if block.first.row >= body and not block.label]
    moved: set[int] = set()
    for owner in list(filter(_may_be_foot, foot))[-_MOST_AT_FOOT:]:
        roles = {piece.role for line in owner.lines for piece in line.pieces()}
        if not {Role.NAME, Role.TAX_ID} <= roles or Role.ADDRESS in roles:
            continue
        near = (block for block in foot if abs(block.first.row - owner.first.row) <= 1 and id(block) not in moved)
        column = next(filter(_is_whole_address, near), None)
        if column is not None:
            owner.lines.extend(column.lines)
            moved.add(id(column))
    return [block for block in blocks if id(block) not in moved]


def _is_whole_address(block: Block) -> bool:
    """Whether a block has an address with its town, and neither a name nor a tax number."""
    pieces = [piece for line in block.lines for piece in line.pieces()]
    is_free = not {piece.role for piece in pieces} & {Role.NAME, Role.TAX_ID}
    return is_free and any(piece.role is Role.ADDRESS and has_town(piece.folded) for piece in pieces)


def _without_full_stop(address: str) -> str:
    """An address without the full stop, or the "y" before a tax number, of a sentence; that of "St." stays."""
    address = address.removesuffix(" y").removesuffix(" and")
    last = address[address.rfind(" ") + 1 :]
    is_abbreviated = len(last) <= _ABBREVIATED and not any(map(str.isdigit, last))
    return address if is_abbreviated else address.rstrip(".")
