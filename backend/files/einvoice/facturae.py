"""Reads Facturae 3.2, 3.2.1 and 3.2.2, the format of invoices to Spanish administrations."""

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

ROOTS = frozenset({"Facturae"})
# TaxTypeCode of the schema -> the name that invoices print.
_TAXES = {"01": "IVA", "02": "IPSI", "03": "IGIC", "04": "IRPF"}
_INCOME_TAX = "04"


def read_facturae(root: Element) -> EInvoice:
    """The first invoice of the file."""
    invoices = list(children(root, "Invoices/Invoice"))
    invoice = invoices[0] if invoices else None
    header, issued = child(invoice, "InvoiceHeader"), child(invoice, "InvoiceIssueData")
    sums = child(invoice, "InvoiceTotals")
    seller, buyer = child(root, "Parties/SellerParty"), child(root, "Parties/BuyerParty")
    withheld = [tax for tax in children(invoice, "TaxesWithheld/Tax") if text_at(tax, "TaxTypeCode") == _INCOME_TAX]
    payment = child(invoice, "PaymentDetails/Installment")
    surcharges = sum_of(
        decimal_at(tax, "EquivalenceSurchargeAmount/TotalAmount") for tax in children(invoice, "TaxesOutputs/Tax")
    )
    values = {
        "VendorName": _name(seller),
        "VendorAddress": _address(seller),
        "VendorTaxId": compact_id(text_at(seller, "TaxIdentification/TaxIdentificationNumber")),
        "CustomerName": _name(buyer),
        "CustomerAddress": _address(buyer),
        "CustomerTaxId": compact_id(text_at(buyer, "TaxIdentification/TaxIdentificationNumber")),
        "InvoiceId": invoice_number(text_at(header, "InvoiceSeriesCode"), text_at(header, "InvoiceNumber")),
        "RectifiedInvoiceId": invoice_number(
            text_at(header, "Corrective/InvoiceSeriesCode"), text_at(header, "Corrective/InvoiceNumber")
        ),
        "InvoiceDate": iso_date(text_at(issued, "IssueDate")),
        "DueDate": iso_date(text_at(payment, "InstallmentDueDate")),
        "PurchaseOrder": text_at(invoice, "Items/InvoiceLine/ReceiverTransactionReference"),
        "CurrencyCode": text_at(issued, "InvoiceCurrencyCode") or text_at(root, "FileHeader/Batch/InvoiceCurrencyCode"),
        "IBAN": compact_id(text_at(payment, "AccountToBeCredited/IBAN")),
        "SubTotal": decimal_at(sums, "TotalGrossAmountBeforeTaxes", "TotalGrossAmount"),
        "TotalTax": decimal_at(sums, "TotalTaxOutputs"),
        "TotalDiscount": decimal_at(sums, "TotalGeneralDiscounts"),
        "InvoiceTotal": decimal_at(sums, "InvoiceTotal"),
        "AmountDue": decimal_at(sums, "TotalExecutableAmount", "TotalOutstandingAmount"),
        "WithholdingRate": decimal_at(withheld[0], "TaxRate") if withheld else "",
        "WithholdingAmount": sum_of(decimal_at(tax, "TaxAmount/TotalAmount") for tax in withheld),
        "EquivalenceSurcharge": surcharges,
    }
    taxes = tuple(row for tax in children(invoice, "TaxesOutputs/Tax") for row in _taxes(tax))
    lines = goods(_line(line) for line in children(invoice, "Items/InvoiceLine"))
    version = text_at(root, "FileHeader/SchemaVersion") or "3.2"
    return EInvoice(f"Facturae {version}", known(values), lines, taxes, others=max(0, len(invoices) - 1))


def invoice_number(series: str, number: str) -> str:
    """Series and number as they are mostly printed: "A-32468"; the number alone where it has the series in it."""
    if not series or number.startswith(series):
        return number
    return f"{series}{number}" if not (series[-1].isalnum() and number[:1].isalnum()) else f"{series}-{number}"


def _name(party: Element | None) -> str:
    person = child(party, "Individual")
    names = (text_at(person, part) for part in ("Name", "FirstSurname", "SecondSurname"))
    return text_at(party, "LegalEntity/CorporateName") or " ".join(filter(None, names))


def _address(party: Element | None) -> str:
    owner = child(party, "LegalEntity|Individual")
    spain, abroad = child(owner, "AddressInSpain"), child(owner, "OverseasAddress")
    if spain is not None:
        town = " ".join(filter(None, (text_at(spain, "PostCode"), text_at(spain, "Town"))))
        province = text_at(spain, "Province")
        return one_line(text_at(spain, "Address"), town, "" if province == text_at(spain, "Town") else province)
    return one_line(text_at(abroad, "Address"), text_at(abroad, "PostCodeAndTown"), text_at(abroad, "Province"))


def _taxes(tax: Element) -> list[dict[str, str]]:
    """The row of a tax, and that of its equivalence surcharge where it has one."""
    base = decimal_at(tax, "TaxableBase/TotalAmount")
    code = text_at(tax, "TaxTypeCode")
    rows = [tax_row(_TAXES.get(code, code), decimal_at(tax, "TaxRate"), base, decimal_at(tax, "TaxAmount/TotalAmount"))]
    if surcharge := decimal_at(tax, "EquivalenceSurchargeAmount/TotalAmount"):
        rows.append(tax_row("RE", decimal_at(tax, "EquivalenceSurcharge"), base, surcharge))
    return rows


def _line(line: Element) -> dict[str, str]:
    return {
        "Description": text_at(line, "ItemDescription"),
        "ProductCode": text_at(line, "ArticleCode"),
        "Quantity": decimal_at(line, "Quantity"),
        "UnitPrice": decimal_at(line, "UnitPriceWithoutTax"),
        "Discount": sum_of(
            decimal_at(discount, "DiscountAmount") for discount in children(line, "DiscountsAndRebates/Discount")
        ),
        "TaxRate": decimal_at(line, "TaxesOutputs/Tax/TaxRate"),
        "Amount": decimal_at(line, "GrossAmount", "TotalCost"),
    }
