"""Reads invoices and credit notes in UBL 2: Peppol BIS, XRechnung in UBL (OASIS; EN 16931-3-2)."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.xml_tree import (
    child,
    children,
    compact_id,
    decimal_at,
    goods,
    iso_date,
    known,
    one_line,
    sum_of,
    tax_row,
    text_at,
)

ROOTS = frozenset({"Invoice", "CreditNote"})


def read_ubl(root: Element) -> EInvoice:
    """The invoice or credit note."""
    sums = child(root, "LegalMonetaryTotal|RequestedMonetaryTotal")
    seller = child(root, "AccountingSupplierParty/Party")
    buyer = child(root, "AccountingCustomerParty/Party")
    taxes = tuple(map(_tax, children(root, "TaxTotal/TaxSubtotal")))
    withheld = child(root, "WithholdingTaxTotal")
    values = {
        "VendorName": _name(seller),
        "VendorAddress": _address(seller),
        "VendorTaxId": compact_id(text_at(seller, "PartyTaxScheme/CompanyID", "PartyLegalEntity/CompanyID")),
        "CustomerName": _name(buyer),
        "CustomerAddress": _address(buyer),
        "CustomerTaxId": compact_id(text_at(buyer, "PartyTaxScheme/CompanyID", "PartyLegalEntity/CompanyID")),
        "InvoiceId": text_at(root, "ID"),
        "InvoiceDate": iso_date(text_at(root, "IssueDate")),
        "DueDate": iso_date(text_at(root, "DueDate", "PaymentMeans/PaymentDueDate", "PaymentTerms/PaymentDueDate")),
        "PaymentTerm": text_at(root, "PaymentTerms/Note"),
        "PurchaseOrder": text_at(root, "OrderReference/ID"),
        "RectifiedInvoiceId": text_at(root, "BillingReference/InvoiceDocumentReference/ID"),
        "CurrencyCode": text_at(root, "DocumentCurrencyCode"),
        "IBAN": compact_id(text_at(root, "PaymentMeans/PayeeFinancialAccount/ID")),
        "SubTotal": decimal_at(sums, "TaxExclusiveAmount", "LineExtensionAmount"),
        "TotalTax": decimal_at(root, "TaxTotal/TaxAmount") or sum_of(tax.get("Amount", "") for tax in taxes),
        "TotalDiscount": decimal_at(sums, "AllowanceTotalAmount"),
        "InvoiceTotal": decimal_at(sums, "TaxInclusiveAmount", "PayableAmount"),
        "AmountDue": decimal_at(sums, "PayableAmount"),
        "WithholdingAmount": decimal_at(withheld, "TaxAmount"),
        "WithholdingRate": decimal_at(withheld, "TaxSubtotal/TaxCategory/Percent"),
    }
    lines = goods(_line(line) for line in children(root, "InvoiceLine|CreditNoteLine"))
    return EInvoice("UBL", known(values), lines, taxes)


def _name(party: Element | None) -> str:
    person = " ".join(text_at(party, f"Person/{part}") for part in ("FirstName", "FamilyName")).strip()
    return text_at(party, "PartyLegalEntity/RegistrationName", "PartyName/Name") or person


def _address(party: Element | None) -> str:
    place = child(party, "PostalAddress")
    town = " ".join(filter(None, (text_at(place, "PostalZone"), text_at(place, "CityName"))))
    street = " ".join(filter(None, (text_at(place, "StreetName"), text_at(place, "BuildingNumber"))))
    return one_line(street, text_at(place, "AdditionalStreetName"), town, text_at(place, "CountrySubentity"))


def _tax(tax: Element) -> dict[str, str]:
    kind, rate = text_at(tax, "TaxCategory/TaxScheme/ID"), decimal_at(tax, "TaxCategory/Percent", "Percent")
    return tax_row(kind, rate, decimal_at(tax, "TaxableAmount"), decimal_at(tax, "TaxAmount"))


def _line(line: Element) -> dict[str, str]:
    counted = "InvoicedQuantity|CreditedQuantity"
    quantity = child(line, counted)
    return {
        "Description": text_at(line, "Item/Name", "Item/Description"),
        "ProductCode": text_at(line, "Item/SellersItemIdentification/ID", "Item/StandardItemIdentification/ID"),
        "Quantity": decimal_at(line, counted),
        "Unit": quantity.get("unitCode", "") if quantity is not None else "",
        "UnitPrice": decimal_at(line, "Price/PriceAmount"),
        "TaxRate": decimal_at(line, "Item/ClassifiedTaxCategory/Percent"),
        "Amount": decimal_at(line, "LineExtensionAmount"),
    }
