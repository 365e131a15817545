"""What the QR codes of Spanish invoices say: VERI*FACTU (AEAT), TicketBAI (the Basque provinces).

VERI*FACTU: ``…/ValidarQR?nif=B12345678&numserie=A-1&fecha=06-03-2026&importe=258.24`` (order HAC/1177/2024, annex).
TicketBAI: ``…?id=TBAI-B12345678-060326-…&s=A&nf=1&i=258.24&cr=…``: the id holds the issuer's NIF and the date.
"""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from backend.files.einvoice.facturae import invoice_number
from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.xml_tree import compact_id, decimal_text, known

VERIFACTU, TICKETBAI = "VERI*FACTU", "TicketBAI"
# What stands beside such a code on paper: pages without it are not searched for one.
MENTION = re.compile(r"veri\W{0,2}factu|ticket\s?bai|tbai-|\bqr\b|c[oó]digo tributario", re.IGNORECASE)
_MAX_CHARS = 1000
_TBAI = re.compile(r"TBAI-(?P<nif>[0-9A-Z]{9})-(?P<date>\d{6})-", re.IGNORECASE)
_HOSTS = ("agenciatributaria.gob.es", "agenciatributaria.es", "batuz.eus", "tbai.egoitza.gipuzkoa.eus", "araba.eus")


def read_fiscal_qr(content: str) -> EInvoice | None:
    """The invoice that a code's content describes; None for any other code."""
    content = content[:_MAX_CHARS].strip()
    try:
        parts = urlsplit(content)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    if parts.scheme != "https" or not any(host == known_ or host.endswith(f".{known_}") for known_ in _HOSTS):
        return None
    if tbai := _TBAI.match(query.get("id", "")):
        values = {
            "VendorTaxId": compact_id(tbai["nif"]),
            "InvoiceDate": _date(tbai["date"], "%d%m%y"),
            "InvoiceId": invoice_number(query.get("s", ""), query.get("nf", "")),
            "InvoiceTotal": decimal_text(query.get("i", "")),
        }
        return EInvoice(TICKETBAI, known(values))
    if {"nif", "numserie", "importe"} <= query.keys():
        values = {
            "VendorTaxId": compact_id(query["nif"]),
            "InvoiceDate": _date(query.get("fecha", ""), "%d-%m-%Y"),
            "InvoiceId": query["numserie"],
            "InvoiceTotal": decimal_text(query["importe"]),
        }
        return EInvoice(VERIFACTU, known(values))
    return None


def _date(text: str, form: str) -> str:
    try:
        return datetime.strptime(text, form).date().isoformat()  # noqa: DTZ007  # a day, without a time
    except ValueError:
        return ""
