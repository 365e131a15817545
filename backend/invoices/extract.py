"""Composes the fields of a document from what its parts tell. Pure; milliseconds a page: call it on a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import compress

from stdnum import iban
from stdnum.es import nif
from stdnum.eu import vat

from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.xml_tree import compact_id
from backend.files.pages import Box, Document, TextLocation, bounding_box
from backend.files.visual_rows import MAX_ROW_WORDS, PageRows, rows_of
from backend.invoices.document_kind import document_kind
from backend.invoices.documents_in_file import documents_beside, documents_by, documents_of, owner_of, without_annexes
from backend.invoices.header.find import find_header
from backend.invoices.items.find import ItemLines, find_items
from backend.invoices.learned.arbiter import (
    Learned,
    amounts_of,
    arbitrated,
    read_learned,
    seated_by_withholding,
    sure_parts,
)
from backend.invoices.learned.read import PageReader, learned_taxes, settled_items
from backend.invoices.money.find import Money, find_money, printed_money
from backend.invoices.money.taxes import TaxRow
from backend.invoices.parties.find import find_parties
from backend.invoices.records import FIELD_NAMES, Difference, ExtractedFields, Field, FieldRow, FieldSource, Validity
from backend.invoices.statement import find_statement
from backend.invoices.taught.apply import Taught, applied, taught_by
from backend.invoices.taught.examples import SupplierExample
from backend.models.fields_network import bundled_network
from backend.reasons import because
from backend.tables.numbers import decimal_mark_of

_CENT = Decimal("0.02")  # per rate of tax: each is rounded by itself
_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "VendorTaxId": lambda number: bool(nif.is_valid(number) or vat.is_valid(number)),
    "CustomerTaxId": lambda number: bool(nif.is_valid(number) or vat.is_valid(number)),
    "IBAN": lambda number: bool(iban.is_valid(number)),
}
_MAX_NAMED = 3  # later documents of a file, in the first one's reason
_PRINTED_FORM = ("InvoiceId", "RectifiedInvoiceId")  # series and number are data in parts; paper has them joined


def with_einvoice(found: tuple[Field, ...], invoice: EInvoice) -> tuple[Field, ...]:
    """The fields of both, each name once: the electronic value wins, with its place where it is printed alike."""
    printed = {field.name: field for field in found}
    fields = {**printed, **{name: _field(name, value, invoice, printed.get(name)) for name, value in _values(invoice)}}
    for name, rows in (("Items", invoice.items), ("TaxDetails", invoice.taxes)):
        if rows:
            fields[name] = _rows(name, rows, invoice)
    return tuple(fields[name] for name in FIELD_NAMES if name in fields)


def einvoice_validity(fields: tuple[Field, ...], invoice: EInvoice) -> Validity:
    """Whether the electronic invoice's own amounts agree, and its ids are right."""
    by_name = {field.name: field for field in fields}

    def valid(name: str) -> bool | None:
        return by_name[name].valid if name in by_name else None

    differences = _differences(invoice)
    amounts = {"SubTotal", "TotalTax", "InvoiceTotal"} <= invoice.values.keys()
    totals = not differences if amounts else None
    return Validity(totals, valid("VendorTaxId"), valid("CustomerTaxId"), valid("IBAN"), differences)


def _values(invoice: EInvoice) -> list[tuple[str, str]]:
    return [(name, value) for name, value in invoice.values.items() if name in FIELD_NAMES]


def _source(invoice: EInvoice) -> FieldSource:
    return "xml" if invoice.page is None else "qr"


def _why(invoice: EInvoice) -> str:
    if invoice.page is None:
        return because("electronic", format=invoice.format)
    return because("qr_code", format=invoice.format, page=invoice.page)


def _field(name: str, value: str, invoice: EInvoice, printed: Field | None) -> Field:
    check = _CHECKS.get(name)
    valid = None if check is None else check(value)
    if printed is not None and _is_same(name, printed.value, value):
        value = printed.value if name in _PRINTED_FORM else value
        return replace(
            printed, value=value, score=1.0, source=_source(invoice), why=_why(invoice), valid=valid, repair=None,
            ambiguous=False,
        )  # fmt: skip
    places = () if invoice.page is None or invoice.box is None else (TextLocation(invoice.page, Box(*invoice.box)),)
    return Field(name, value, "", 1.0, _source(invoice), _why(invoice), places=places, valid=valid)


def _is_same(name: str, printed: str, value: str) -> bool:
    if name in _PRINTED_FORM or name in _CHECKS:
        return compact_id(printed) == compact_id(value)
    try:
        return Decimal(printed) == Decimal(value)
    except InvalidOperation:
        return printed.casefold() == value.casefold()


def _rows(name: str, rows: tuple[dict[str, str], ...], invoice: EInvoice) -> Field:
    source, why = _source(invoice), _why(invoice)
    made = tuple(
        FieldRow(tuple(Field(column, value, "", 1.0, source, why) for column, value in row.items())) for row in rows
    )
    return Field(name, "", "", 1.0, source, why, rows=made)


def _differences(invoice: EInvoice) -> tuple[Difference, ...]:
    amounts = {name: Decimal(value) for name, value in invoice.values.items() if name in _AMOUNTS}
    base, tax, total = (amounts.get(name) for name in ("SubTotal", "TotalTax", "InvoiceTotal"))
    if base is None or tax is None or total is None:
        return ()
    withheld = amounts.get("WithholdingAmount", Decimal(0))
    slack = _CENT * max(1, len(invoice.taxes))
    if min(abs(base + tax - total), abs(base + tax - withheld - total)) <= slack:
        return ()
    return (Difference("SubTotal + TotalTax = InvoiceTotal", f"{base + tax:f}", f"{total:f}"),)


_AMOUNTS = frozenset({"SubTotal", "TotalTax", "InvoiceTotal", "WithholdingAmount"})


def extract_fields(
    document: Document,
    document_type: str | None = None,
    examples: Sequence[SupplierExample] = (),
    split: str = "auto",
) -> ExtractedFields:
    """The fields of an invoice, a receipt or a bank statement.

    Args:
        document: with its electronic invoice, where there is one: that wins.
        document_type: the label of the bundled classifier of document types, where it is known.
        examples: confirmed documents of the suppliers that it names, the latest first.
        split: into documents, as of `split_ranges`.
    """
    pages, reader = rows_of(document, MAX_ROW_WORDS), PageReader(bundled_network())
    parts, number = documents_by(pages, split, reader), _number_of_data(document)
    if split == "auto" and number is not None:
        parts = documents_beside(parts, number, reader)
    owner = parts[0] if split == "auto" else owner_of(parts, number or "", reader)  # the data's own is the first
    only_type = document_type if len(parts) == 1 else None
    found = [_of_part(document, part, only_type, reader, examples, has_data=part is owner) for part in parts]
    if split == "auto":
        kept = [not part or part[0].page.attachment > 0 or (number and part is owner) for part in parts]
        if any(part and part[0].page.attachment and one.kind for part, one in zip(parts, found, strict=True)):
            found = list(compress(found, kept))  # the mail around an invoice is no document
        found.sort(key=lambda one: one.kind is None)  # nor is the letter before one the first
    first, *others = _of_one_number_each(found)
    if not others:
        return first
    told = [other for other in others if other.kind is not None]
    names = [_begins(other) for other in told[:_MAX_NAMED]]
    return replace(first, why="; ".join([first.why, *names]) + " (`documents`)", others=tuple(others))


def extract_parts(
    document: Document, parts: Sequence[Sequence[int]], examples: Sequence[SupplierExample] = ()
) -> ExtractedFields:
    """The same, cut into the documents that somebody else has told apart: the numbers of the pages of each."""
    pages, reader = documents_of(rows_of(document, MAX_ROW_WORDS), parts), PageReader(bundled_network())
    owner = owner_of(pages, _number_of_data(document) or "", reader)
    found = [_of_part(document, part, None, reader, examples, has_data=part is owner) for part in pages]
    first, *others = _of_one_number_each(found)
    return replace(first, others=tuple(others))


def _number_of_data(document: Document) -> str | None:
    """The number in a file's electronic data, as `compact_id`; None where it has none. A code is its page's."""
    invoice = document.einvoice
    return None if invoice is None or invoice.page is not None else compact_id(invoice.values.get("InvoiceId", ""))


def _of_one_number_each(found: Sequence[ExtractedFields]) -> list[ExtractedFields]:
    """The documents, of which none has the number of another one of its supplier that it only names."""
    told = [{field.name: field for field in one.fields} for one in found]
    kept, known = list(found), dict[tuple[str, str], tuple[str, str]]()
    numbered = [index for index, fields in enumerate(told) if "InvoiceId" in fields]
    for index in sorted(numbered, key=lambda index: -told[index]["InvoiceId"].score):
        names = ("InvoiceId", "VendorTaxId", "InvoiceDate", "InvoiceTotal")
        number, vendor, date, total = (told[index][name].value if name in told[index] else "" for name in names)
        surest = known.setdefault((number, vendor), (date, total))
        if any(one and other and one != other for one, other in zip(surest, (date, total), strict=True)):
            fields = tuple(field for field in found[index].fields if field.name != "InvoiceId")
            kept[index] = replace(found[index], fields=fields)
    return kept


def _begins(other: ExtractedFields) -> str:
    number, page = next((field.value for field in other.fields if field.name == "InvoiceId"), ""), other.pages[0]
    if not number:
        return because("another_document", page=page)
    return because("another_numbered_document", number=number, page=page)


def _of_part(
    document: Document,
    pages: Sequence[PageRows],
    document_type: str | None,
    reader: PageReader,
    examples: Sequence[SupplierExample],
    *,
    has_data: bool,
) -> ExtractedFields:
    """The fields of one document of a file: of that which its electronic data are of, with them."""
    part = replace(document, pages=tuple(page.page for page in pages))
    taught = taught_by(pages, examples) if examples else None
    printed = _printed_fields(part, pages, document_type, reader, taught)
    numbers = tuple(page.page.number for page in pages)
    invoice = document.einvoice
    if invoice is not None and (has_data if invoice.page is None else _has_code(document, part, invoice)):
        printed = with_electronic(printed, invoice)  # a code on another document's page says nothing of this one
    return replace(printed, pages=numbers)


def _has_code(document: Document, part: Document, invoice: EInvoice) -> bool:
    """Whether a part has the page with a code; of papers that share a page, the one whose words it stands among."""
    page = next((page for page in part.pages if page.number == invoice.page), None)
    if page is None or invoice.box is None or any(page is whole for whole in document.pages):
        return page is not None
    words = bounding_box(word.box for word in page.words)
    return words.left <= (invoice.box[0] + invoice.box[2]) / 2 <= words.right


def with_electronic(printed: ExtractedFields, invoice: EInvoice) -> ExtractedFields:
    """What is printed, where the electronic invoice does not say otherwise."""
    fields = with_einvoice(printed.fields, invoice)
    why = f"{printed.why}; {because('electronic_wins', format=invoice.format)}"
    validity = einvoice_validity(fields, invoice)
    if invoice.page is not None:  # a code says a few values of the page: the page's own amounts are checked
        validity = _with_ids(fields, printed.validity).validity
    return replace(printed, fields=fields, validity=validity, why=why, kind=printed.kind or "invoice")


def _printed_fields(
    document: Document,
    pages: Sequence[PageRows],
    document_type: str | None,
    reader: PageReader,
    taught: Taught | None,
) -> ExtractedFields:
    kind, why = document_kind(pages, document_type, reader)
    if taught is not None and kind != taught.kind:
        kind, why = taught.kind, because("as_confirmed_supplier", kind=taught.kind.replace("_", " "))
    if kind is None:
        return ExtractedFields((), Validity(), why)
    mark = decimal_mark_of(document)
    if kind == "bank_statement":
        statement = find_statement(pages, mark)
        return replace(_with_ids(statement, Validity()), why=why, kind=kind)
    learned = read_learned(reader, pages, mark, document.text)
    told = without_annexes(pages)  # what an annex details is no line again
    parts = reader.ends(told)
    items = settled_items(find_items(told, mark), parts, told, mark)
    taxes = learned_taxes(parts, mark)
    money = _settled(pages, mark, items, learned, taxes=taxes, taught=taught)
    own = taught.items(pages, mark) if taught is not None else None
    if taught is not None and own is not None and taught.prefers(own, items, money.fields):
        items, money = own, _settled(pages, mark, own, learned, taxes=taxes, taught=taught)
    found = [*find_parties(pages, kind), *find_header(pages, items), *money.fields]
    if items is not None:
        found.append(items.field)
    by_name = {field.name: field for field in reversed(found)}  # the first of a name counts
    by_name = seated_by_withholding(arbitrated(by_name, learned, kind))
    if taught is not None:
        by_name = applied(taught, by_name, adds_up=money.validity.totals)
    fields = tuple(by_name[name] for name in FIELD_NAMES if name in by_name)
    if not reader.has_network:
        why = f"{why}; {because('numbers_not_read')}"
    return replace(_with_ids(fields, money.validity), why=why, kind=kind)


def _settled(
    pages: Sequence[PageRows],
    mark: str,
    items: ItemLines | None,
    learned: Learned,
    *,
    taxes: Sequence[TaxRow],
    taught: Taught | None,
) -> Money:
    """The amounts as labels name them; as the network reads them, too, where those do not add up."""
    printed = printed_money(pages, mark, items)
    money = find_money(printed, taxes=taxes)
    amounts = amounts_of(learned)
    unsettled = money.validity.totals is not True
    if taught is not None and (unsettled or taught.corrected_amounts) and (known := taught.amounts()):
        other = find_money(printed, [*amounts, *known], taxes)
        if other.validity.totals is True or (unsettled and taught.corrected_amounts):
            return other
    said = {field.name: field.value for field in money.fields}
    parts = sure_parts(learned, said.get("InvoiceTotal", ""))
    if not amounts or (not unsettled and parts <= said.items()):
        return money
    other = find_money(printed, amounts, taxes)
    if not unsettled:  # a total that adds up stays
        agreed = {field.name: field.value for field in other.fields}
        same = other.validity.totals is True and agreed["InvoiceTotal"] == said["InvoiceTotal"]
        return other if same and len(agreed.items() & parts) > len(said.items() & parts) else money
    if other.validity.totals is False and money.validity.totals is None:
        return replace(other, validity=money.validity)  # an error that nothing but the network suggests is none
    return other


def _with_ids(fields: tuple[Field, ...], validity: Validity) -> ExtractedFields:
    """The fields with what their check digits say beside what arithmetic says."""
    valid = {field.name: field.valid for field in fields}
    checked = replace(
        validity,
        vendor_tax_id=valid.get("VendorTaxId"),
        customer_tax_id=valid.get("CustomerTaxId"),
        iban=valid.get("IBAN"),
    )
    return ExtractedFields(fields, checked, "")
