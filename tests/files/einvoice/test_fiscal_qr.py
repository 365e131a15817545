"""Tax QR codes of Spanish invoices."""

import pytest

from backend.files.einvoice.fiscal_qr import MENTION, read_fiscal_qr

AEAT = "https://www2.agenciatributaria.gob.es/wlpl/TIKE-CONT/ValidarQR"


def test_a_verifactu_code() -> None:
    """Issuer, number, date and total."""
    invoice = read_fiscal_qr(f"{AEAT}?nif=B46972071&numserie=A%2F32468&fecha=06-03-2026&importe=258.24")

    assert "VERI*FACTU" == invoice.format
    assert {
        "VendorTaxId": "B46972071",
        "InvoiceDate": "2026-03-06",
        "InvoiceId": "A/32468",
        "InvoiceTotal": "258.24",
    } == invoice.values


def test_a_ticketbai_code() -> None:
    """The id holds the issuer and the date, day first."""
    invoice = read_fiscal_qr(
        "https://batuz.eus/QRTBAI/?id=TBAI-A58818501-251019-btFpwP8dcLGAF-237&s=T&nf=27174&i=4.70&cr=007"
    )

    assert ("TicketBAI", "A58818501", "2019-10-25", "T-27174", "4.70") == (
        invoice.format,
        *(invoice.values[name] for name in ("VendorTaxId", "InvoiceDate", "InvoiceId", "InvoiceTotal")),
    )


@pytest.mark.parametrize(
    "content",
    [
        "https://example.com/ValidarQR?nif=B46972071&numserie=A&fecha=06-03-2026&importe=1",
        "http://www2.agenciatributaria.gob.es/?nif=B46972071&numserie=A&fecha=06-03-2026&importe=1",
        "https://agenciatributaria.gob.es.evil.example/?nif=B&numserie=A&importe=1",
        f"{AEAT}?nif=B46972071",
        "WIFI:S:red;T:WPA;P:clave;;",
        "https://[::1",
        "",
    ],
)
def test_other_codes_say_nothing(content: str) -> None:
    """A code of another host, another protocol or without the values is none of theirs."""
    assert read_fiscal_qr(content) is None


@pytest.mark.parametrize(
    ("text", "is_mentioned"),
    [("QR tributario:\nVERI*FACTU", True), ("TicketBAI  TBAI-123", True), ("Una carta al señor Verifón", False)],
)
def test_what_mentions_a_code(text: str, *, is_mentioned: bool) -> None:
    """Pages that mention no code are not searched for one."""
    assert is_mentioned == bool(MENTION.search(text))


def test_a_hostile_code() -> None:
    """The content is read in the service: it may neither be written out at length nor hold control characters."""
    invoice = read_fiscal_qr(f"{AEAT}?nif=B46972071&numserie=A%00%0A1&fecha=00-00-0000&importe=1e999999999")

    assert {"VendorTaxId": "B46972071", "InvoiceId": "A 1"} == invoice.values
