"""Reads Cross Industry Invoices: Factur-X, ZUGFeRD 1 and 2, XRechnung in CII (UN/CEFACT; EN 16931-3-3)."""

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

ROOTS = frozenset({"CrossIndustryInvoice", "CrossIndustryDocument"})  # the second: ZUGFeRD 1
_VAT_ID = "VA"  # scheme of a tax registration; FC is a local number


def read_cii(root: Element) -> EInvoice:
    """The invoice."""
    header = child(root, "ExchangedDocument|HeaderExchangedDocument")
    trade = child(root, "SupplyChainTradeTransaction|SpecifiedSupplyChainTradeTransaction")
    agreement = child(trade, "ApplicableHeaderTradeAgreement|ApplicableSupplyChainTradeAgreement")
    settlement = child(trade, "ApplicableHeaderTradeSettlement|ApplicableSupplyChainTradeSettlement")
    sums = child(
        settlement, "SpecifiedTradeSettlementHeaderMonetarySummation|SpecifiedTradeSettlementMonetarySummation"
    )
    seller, buyer = child(agreement, "SellerTradeParty"), child(agreement, "BuyerTradeParty")
    terms = "SpecifiedTradePaymentTerms"
    taxes = tuple(map(_tax, children(settlement, "ApplicableTradeTax")))
    values = {
        "VendorName": text_at(seller, "Name"),
        "VendorAddress": _address(seller),
        "VendorTaxId": _tax_id(seller),
        "CustomerName": text_at(buyer, "Name"),
        "CustomerAddress": _address(buyer),
        "CustomerTaxId": _tax_id(buyer),
        "InvoiceId": text_at(header, "ID"),
        "InvoiceDate": iso_date(text_at(header, "IssueDateTime/DateTimeString", "IssueDateTime")),
        "DueDate": iso_date(text_at(settlement, f"{terms}/DueDateDateTime/DateTimeString", f"{terms}/DueDateDateTime")),
        "PaymentTerm": text_at(settlement, f"{terms}/Description"),
        "PurchaseOrder": text_at(agreement, "BuyerOrderReferencedDocument/IssuerAssignedID|ID"),
        "RectifiedInvoiceId": text_at(settlement, "InvoiceReferencedDocument/IssuerAssignedID|ID"),
        "CurrencyCode": text_at(settlement, "InvoiceCurrencyCode"),
        "IBAN": compact_id(
            text_at(settlement, "SpecifiedTradeSettlementPaymentMeans/PayeePartyCreditorFinancialAccount/IBANID")
        ),
        "SubTotal": decimal_at(sums, "TaxBasisTotalAmount", "LineTotalAmount"),
        "TotalTax": decimal_at(sums, "TaxTotalAmount") or sum_of(tax.get("Amount", "") for tax in taxes),
        "TotalDiscount": _unless_zero(decimal_at(sums, "AllowanceTotalAmount")),
        "InvoiceTotal": decimal_at(sums, "GrandTotalAmount"),
        "AmountDue": decimal_at(sums, "DuePayableAmount", "GrandTotalAmount"),
    }
    lines = goods(_line(line) for line in children(trade, "IncludedSupplyChainTradeLineItem"))
    return EInvoice("Factur-X/ZUGFeRD (CII)", known(values), lines, taxes)


def _address(party: Element | None) -> str:
    place = child(party, "PostalTradeAddress")
    town = " ".join(filter(None, (text_at(place, "PostcodeCode"), text_at(place, "CityName"))))
    return one_line(text_at(place, "LineOne"), text_at(place, "LineTwo"), text_at(place, "LineThree"), town)


def _tax_id(party: Element | None) -> str:
    ids = list(children(party, "SpecifiedTaxRegistration/ID"))
    best = next((found for found in ids if found.get("schemeID") == _VAT_ID), ids[0] if ids else None)
    return compact_id(best.text or "") if best is not None else ""


def _tax(tax: Element) -> dict[str, str]:
    rate = decimal_at(tax, "RateApplicablePercent|ApplicablePercent")
    return tax_row(text_at(tax, "TypeCode"), rate, decimal_at(tax, "BasisAmount"), decimal_at(tax, "CalculatedAmount"))


def _line(line: Element) -> dict[str, str]:
    product = child(line, "SpecifiedTradeProduct")
    agreed = child(line, "SpecifiedLineTradeAgreement|SpecifiedSupplyChainTradeAgreement")
    delivered = child(line, "SpecifiedLineTradeDelivery|SpecifiedSupplyChainTradeDelivery")
    settled = child(line, "SpecifiedLineTradeSettlement|SpecifiedSupplyChainTradeSettlement")
    billed = child(delivered, "BilledQuantity")
    total = "SpecifiedTradeSettlementLineMonetarySummation|SpecifiedTradeSettlementMonetarySummation/LineTotalAmount"
    return {
        "Description": text_at(product, "Name", "Description"),
        "ProductCode": text_at(product, "SellerAssignedID", "GlobalID", "BuyerAssignedID"),
        "Quantity": decimal_at(delivered, "BilledQuantity"),
        "Unit": billed.get("unitCode", "") if billed is not None else "",
        "UnitPrice": decimal_at(agreed, "NetPriceProductTradePrice/ChargeAmount"),
        "TaxRate": decimal_at(settled, "ApplicableTradeTax/RateApplicablePercent|ApplicablePercent"),
        "Amount": decimal_at(settled, total),
    }


def _unless_zero(number: str) -> str:
    return number if number.strip("-0.") else ""
