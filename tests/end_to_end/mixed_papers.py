"""Files of every kind that an accountant is sent, and what is true of them."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from email.message import EmailMessage
from typing import NamedTuple

import openpyxl

from tests.browser.fake_hearing import tone
from tests.end_to_end.invoices import HEIGHT, SCAN_DPI, WIDTH, drawn, scanned
from tests.files.einvoice.samples import CII
from tests.files.office.office_files import docx
from tests.files.pdfs import encoded, pdf, text

_SUPPLIERS = (
    ("Aceros del Norte, S.L.", "A58818501"),
    ("Papeles del Sol, S.L.", "B12345674"),
    ("Talleres Ribera, S.A.", "A28015865"),
)


class Truth(NamedTuple):
    """The cells of an invoice in the book, as a person reads its paper."""

    date: date
    supplier: str
    tax_id: str
    base: Decimal
    tax: Decimal
    total: Decimal


@dataclass(frozen=True)
class Invoice:
    """An invoice of one line at 21 %. What is `printed` in place of a value is a printer's error."""

    serial: int
    printed: tuple[tuple[str, str], ...] = ()  # (right, wrong)

    @property
    def number(self) -> str:
        return f"2026/{self.serial:03d}"

    @property
    def truth(self) -> Truth:
        name, tax_id = _SUPPLIERS[self.serial % len(_SUPPLIERS)]
        base = Decimal(self.serial * 100)
        tax = base * 21 / 100
        return Truth(date(2026, 3, self.serial), name, tax_id, base, tax, base + tax)

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Its lines from the top, each with its columns."""
        day, name, tax_id, base, tax, total = self.truth
        rows = (
            (name, "", "FACTURA"),
            (f"NIF {tax_id}", "", f"Nº factura: {self.number}"),
            ("", "", f"Fecha: {day:%d/%m/%Y}"),
            ("Concepto", "Cantidad", "Precio", "Importe"),
            ("Tornillo M8", "100", _amount(base / 100), _amount(base)),
            ("", "", "Base imponible", _amount(base)),
            ("", "", "IVA 21 %", _amount(tax)),
            ("", "", "Total", _amount(total)),
        )
        return tuple(tuple(self._misprinted(cell) for cell in row) for row in rows)

    def _misprinted(self, cell: str) -> str:
        for right, wrong in self.printed:
            cell = cell.replace(right, wrong)
        return cell


def _amount(value: Decimal) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def _pdf(invoice: Invoice) -> bytes:
    content = b""
    for at, row in enumerate(invoice.rows):
        for cell, x in zip(row, (60, 260, 360, 480), strict=False):
            size = 16 if at == 0 else 11
            content += text(cell.encode("cp1252"), x, HEIGHT - 80 - at * 26, size=size) if cell else b""
    return pdf(content, size=(WIDTH, HEIGHT))


def _png(invoice: Invoice) -> bytes:
    return encoded(drawn(_pdf(invoice)), "PNG", dpi=(SCAN_DPI, SCAN_DPI))


def _scanned_pdf(invoice: Invoice) -> bytes:
    return scanned([drawn(_pdf(invoice))])


def _txt(invoice: Invoice) -> bytes:
    columns = [[cell.ljust(24) for cell in row] for row in invoice.rows]
    return "\n".join("".join(row).rstrip() for row in columns).encode()


def _docx(invoice: Invoice) -> bytes:
    def cell(words: str) -> str:
        return f"<w:tc><w:p><w:r><w:t>{words}</w:t></w:r></w:p></w:tc>"

    lines = "".join(f"<w:tr>{''.join(cell(words) for words in row)}</w:tr>" for row in invoice.rows)
    return docx(f"<w:tbl>{lines}</w:tbl>")


def _xlsx(invoice: Invoice) -> bytes:
    book = openpyxl.Workbook()
    for row in invoice.rows:
        book.active.append(row)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def _eml(invoice: Invoice) -> bytes:
    message = EmailMessage()
    message["From"], message["To"] = "Ventas <ventas@aceros.example>", "compras@ribera.example"
    message["Subject"] = "Su factura"
    message.set_content("Buenos días:\n\nLe adjuntamos la factura.\n")
    message.add_attachment(_pdf(invoice), maintype="application", subtype="pdf", filename="factura.pdf")
    return message.as_bytes()


def _xml(invoice: Invoice) -> bytes:
    day, name, tax_id, base, tax, total = invoice.truth
    changes = {
        "2026/017": invoice.number,
        "20260312": f"{day:%Y%m%d}",
        "Aceros del Norte, S.L.": name,
        "ESA58818501": f"ES{tax_id}",
        "29.50": f"{base / 40:.2f}",
        "1180.00": f"{base:.2f}",
        "<ram:RateApplicablePercent>10<": "<ram:RateApplicablePercent>21<",
        ">118.00": f">{tax:.2f}",
        ">1298.00": f">{total:.2f}",
    }
    content = CII.decode()
    for old, new in changes.items():
        content = content.replace(old, new)
    return content.encode()


_FORMS: tuple[tuple[str, Callable[[Invoice], bytes], int], ...] = (
    ("pdf", _pdf, 5), ("png", _png, 2), ("pdf", _scanned_pdf, 1), ("txt", _txt, 3), ("docx", _docx, 2),
    ("xlsx", _xlsx, 2), ("eml", _eml, 2), ("xml", _xml, 2),
)  # fmt: skip
_MISPRINTS = {3: ("363,00", "393,00"), 5: ("A28015865", "A28015866"), 12: ("1.452,00", "1.542,00")}
CORRECTIONS = {  # field and value to type, by number
    "2026/003": ("InvoiceTotal", "363"),
    "2026/005": ("VendorTaxId", "A28015865"),
    "2026/012": ("InvoiceTotal", "1452"),
}


def mixed_papers() -> tuple[dict[str, bytes], dict[str, Truth]]:
    """Twenty files by name, one of them a recording, and the truth of each invoice by its number."""
    forms = [(ending, write) for ending, write, count in _FORMS for _ in range(count)]
    files, truths = {}, {}
    for serial, (ending, write) in enumerate(forms, 1):
        invoice = Invoice(serial)
        truths[invoice.number] = invoice.truth
        if serial in _MISPRINTS:
            invoice = replace(invoice, printed=(_MISPRINTS[serial],))
        files[f"factura-{serial:03d}.{ending}"] = write(invoice)
    files["llamada.wav"] = tone()
    return files, truths
