"""What is compared: plain regular expressions on the text of the page."""

import re
from collections.abc import Mapping

from benchmarks.fields_scores import Answer

_DATES = frozenset({"InvoiceDate", "DueDate"})
_AMOUNT = r"(-?\d[\d.,\u00a0\u202f ]*[.,]\d{2})(?!\d)"
_GAP = r"[^\d\n]{0,40}?"
_DAY = r"(\d{1,2})[/.-](\d{1,2})[/.-](\d{2,4})"
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "VendorTaxId": r"\b(?:[CN]\.?I\.?F\.?|VAT|USt)\W[^\d\n]{0,12}?((?:[A-Z]{2})?-?[A-Z]?\d{7,11}[A-Z]?)\b",
        "InvoiceId": r"(?:factura|invoice|rechnung|facture|fatura)\w*\W+(?:n\w{0,6}\W{1,3}|#\s*)([A-Z0-9][\w/.-]*\d)",
        "InvoiceDate": rf"(?:fecha|date|datum|data)\b[^\d\n]{{0,25}}?{_DAY}",
        "DueDate": rf"(?:vencimiento|vto|due|fällig|échéance|venciment)\w*[^\d\n]{{0,25}}?{_DAY}",
        "SubTotal": rf"(?:base imponible|subtotal|sub-total|total ht|netto\w*){_GAP}{_AMOUNT}",
        "TotalTax": rf"(?:cuota|iva|vat|tax|tva|mwst)\b[^\n]{{0,20}}?{_AMOUNT}",
        "InvoiceTotal": rf"(?<!sub)(?<!sub-)total\b{_GAP}{_AMOUNT}",
        "IBAN": r"\b([A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?)\b",
    }.items()
}
_CURRENCIES = {"€": "EUR", "£": "GBP", "$": "USD"}


def by_regexes(text: str) -> Answer:
    """The first match of each pattern; days first, the mark before the last two digits is the decimal one."""
    fields = {}
    for name, pattern in _PATTERNS.items():
        match = pattern.search(text)
        if match is None:
            continue
        if name in _DATES:
            day, month, year = match.groups()
            fields[name] = f"{2000 + int(year) % 100}-{month:0>2}-{day:0>2}"
        elif name in ("SubTotal", "TotalTax", "InvoiceTotal"):
            digits = re.sub(r"[^\d-]", "", match[1])
            fields[name] = f"{digits[:-2]}.{digits[-2:]}"
        else:
            fields[name] = match[1].replace(" ", "")
    sign = next((sign for sign in _CURRENCIES if sign in text), None)
    return Answer({**fields, **({"CurrencyCode": _CURRENCIES[sign]} if sign else {})})
