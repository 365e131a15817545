"""Reads invoices and credit notes in UBL 2: Peppol BIS, XRechnung in UBL (OASIS; EN 16931-3-2)."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.xml_tree import (
    child,
    children,
    compact_id,
    decimal_text,
    goods,
    iso_date,
    known,
    one_line,
    sum_of,
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
        "SubTotal": decimal_text(text_at(sums, "TaxExclusiveAmount", "LineExtensionAmount")),
        "TotalTax": decimal_text(text_at(root, "TaxTotal/TaxAmount")),
        "TotalDiscount": decimal_text(text_at(sums, "AllowanceTotalAmount")),
        "InvoiceTotal": decimal_text(text_at(sums, "TaxInclusiveAmount", "PayableAmount")),
        "AmountDue": decimal_text(text_at(sums, "PayableAmount")),
        "WithholdingAmount": decimal_text(text_at(withheld, "TaxAmount")),
        "WithholdingRate": decimal_text(text_at(withheld, "TaxSubtotal/TaxCategory/Percent")),
    }
    values["TotalTax"] = values["TotalTax"] or sum_of(tax.get("Amount", "") for tax in taxes)
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
    return known(
        {
            "Type": text_at(tax, "TaxCategory/TaxScheme/ID"),
            "Rate": decimal_text(text_at(tax, "TaxCategory/Percent", "Percent")),
            "Base": decimal_text(text_at(tax, "TaxableAmount")),
            "Amount": decimal_text(text_at(tax, "TaxAmount")),
        }
    )


def _line(line: Element) -> dict[str, str]:
    quantity = child(line, "InvoicedQuantity|CreditedQuantity")
    return {
        "Description": text_at(line, "Item/Name", "Item/Description"),
        "ProductCode": text_at(line, "Item/SellersItemIdentification/ID", "Item/StandardItemIdentification/ID"),
        "Quantity": decimal_text((quantity.text or "") if quantity is not None else ""),
        "Unit": quantity.get("unitCode", "") if quantity is not None else "",
        "UnitPrice": decimal_text(text_at(line, "Price/PriceAmount")),
        "TaxRate": decimal_text(text_at(line, "Item/ClassifiedTaxCategory/Percent")),
        "Amount": decimal_text(text_at(line, "LineExtensionAmount")),
    }
