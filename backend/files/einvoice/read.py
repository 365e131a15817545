"""Reads an electronic invoice of any format that is known."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import Element

from backend.errors import UnreadableFile
from backend.files.einvoice import cii, facturae, ubl
from backend.files.einvoice.records import EInvoice
from backend.files.einvoice.xml_tree import local_name, parse_xml

_READERS: tuple[tuple[frozenset[str], Callable[[Element], EInvoice]], ...] = (
    (cii.ROOTS, cii.read_cii),
    (ubl.ROOTS, ubl.read_ubl),
    (facturae.ROOTS, facturae.read_facturae),
)
KNOWN = "Factur-X/ZUGFeRD/XRechnung (CII or UBL), Peppol UBL and Facturae 3.2 are read"


def read_einvoice(data: bytes) -> EInvoice:
    """The invoice in an XML file.

    Raises: UnreadableFile for what is no XML, hostile, or no invoice of a known format.
    """
    root = parse_xml(data)
    name = local_name(root)
    for roots, read in _READERS:
        if name in roots:
            invoice = read(root)
            if "InvoiceId" in invoice.values or "InvoiceTotal" in invoice.values:
                return invoice
            raise UnreadableFile(f"xml: a {invoice.format} document without a number and a total; is it whole?")
    raise UnreadableFile(f"xml: its root is <{name[:60]}>, which is no invoice; {KNOWN}")
