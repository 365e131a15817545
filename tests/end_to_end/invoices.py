"""Invoices in two languages, as digital PDFs and as scans, and where their texts are on the page."""

import io
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pikepdf
import pypdfium2 as pdfium
from PIL import Image

from tests.files.pdfs import encoded, pdf, text

WIDTH, HEIGHT = 595, 842  # points of an A4 page
SCAN_DPI = 200
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom in points from the top left


@dataclass(frozen=True)
class Invoice:
    """One page: its lines from the top, and the entities in them as (type, text, value)."""

    language: str
    lines: tuple[str, ...]
    entities: tuple[tuple[str, str, str | None], ...]
    key: str  # in a key sentence of the page

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @cached_property
    def digital(self) -> bytes:
        return pages_of(self)

    @cached_property
    def scan(self) -> Image.Image:
        """A scan of the PDF: gray, with a little noise."""
        return drawn(self.digital)

    @cached_property
    def strip(self) -> Image.Image:
        """The lower lines of the scan, for less time in OCR."""
        return self.scan.crop((0, 540, self.scan.width, 1000))

    @cached_property
    def scanned_pdf(self) -> bytes:
        return scanned([self.scan])

    @cached_property
    def png(self) -> bytes:
        return encoded(self.scan, "PNG", dpi=(SCAN_DPI, SCAN_DPI))

    def place(self, words: str) -> Rectangle:
        """The box of the ink of these words."""
        file = pdfium.PdfDocument(self.digital)
        page = file[0].get_textpage()
        searcher = page.search(words, match_case=True)
        match = searcher.get_next()
        assert match is not None, words
        boxes = [
            page.get_charbox(index) for index in range(match[0], match[0] + match[1]) if words[index - match[0]] != " "
        ]
        lefts, bottoms, rights, tops = zip(*boxes, strict=True)
        searcher.close()
        file.close()
        return min(lefts), HEIGHT - max(tops), max(rights), HEIGHT - min(bottoms)


def pages_of(*invoices: Invoice, password: str | None = None) -> bytes:
    contents = []
    for invoice in invoices:
        top, content = 80.0, b""
        for index, line in enumerate(invoice.lines):
            size = 20 if index == 0 else 11
            content += text(_shown(line), 60, HEIGHT - top, size=size)
            top += 2 * size
        contents.append(content)
    return pdf(*contents, size=(WIDTH, HEIGHT), password=password)


def drawn(file: bytes, number: int = 1) -> Image.Image:
    document = pdfium.PdfDocument(file)
    pixels = np.array(document[number - 1].render(scale=SCAN_DPI / 72, grayscale=True).to_pil(), np.int16)
    document.close()
    noise = np.random.default_rng(number).integers(-9, 10, pixels.shape)
    return Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8))


def scanned(images: list[Image.Image]) -> bytes:
    """A PDF with a picture on each page, as large as the paper; a repeated picture is stored once."""
    file = pikepdf.new()
    for image in images:
        width, height = image.width * 72 / SCAN_DPI, image.height * 72 / SCAN_DPI
        page = file.add_blank_page(page_size=(width, height))
        page.Contents = file.make_stream(b"q %g 0 0 %g 0 0 cm /Im1 Do Q" % (width, height))
    embedded = {id(image): file.make_indirect(_embedded(file, image)) for image in images}
    for page, image in zip(file.pages, images, strict=True):
        page.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(Im1=embedded[id(image)]))
    target = io.BytesIO()
    file.save(target)
    return target.getvalue()


def _embedded(file: pikepdf.Pdf, image: Image.Image) -> pikepdf.Object:
    return file.make_stream(
        zlib.compress(image.tobytes(), 1),
        Type=pikepdf.Name.XObject,
        Subtype=pikepdf.Name.Image,
        Width=image.width,
        Height=image.height,
        BitsPerComponent=8,
        ColorSpace=pikepdf.Name.DeviceGray,
        Filter=pikepdf.Name.FlateDecode,
    )


def _shown(line: str) -> bytes:
    return line.encode("cp1252").replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")


SPANISH = Invoice(
    "es",
    (
        "Suministros Ibéricos S.L.", "Calle Mayor 12, 28013 Madrid", "FACTURA 2026/0117", "Fecha: 12/03/2026",
        "Cliente: María García López", "NIF 12345678Z", "Harina de trigo, cuarenta sacos de veinticinco kilos",
        "Total 1.368,40 €", "El pago de esta factura vence a los treinta días de su fecha.",
        "María García López firmó el pedido en Alcalá de Henares.", "Transferencia a ES91 2100 0418 4502 0005 1332",
    ),
    (
        ("IBAN", "ES91 2100 0418 4502 0005 1332", "ES9121000418450200051332"),
        ("NIF", "12345678Z", "12345678Z"),
        ("DATE", "12/03/2026", "2026-03-12"),
        ("MONEY", "1.368,40 €", "1368.40 EUR"),
        ("PER", "María García López", None),
        ("LOC", "Alcalá de Henares", None),
    ),
    "factura",
)  # fmt: skip
ENGLISH = Invoice(
    "en",
    (
        "Northwind Supplies Ltd",
        "12 Harbour Street, London",
        "INVOICE 2026/0042",
        "Invoice date: 14 March 2026",
        "Customer: John Smith",
        "Tax number of the customer in Spain: NIF 12345678Z",
        "Wheat flour, forty bags of twenty-five kilos each",
        "Total due: £1,368.40",
        "Payment of this invoice is due within thirty days of its date.",
        "John Smith signed the order in Manchester on behalf of the customer.",
        "Please transfer the total to GB82 WEST 1234 5698 7654 32",
    ),
    (
        ("IBAN", "GB82 WEST 1234 5698 7654 32", "GB82WEST12345698765432"), ("NIF", "12345678Z", "12345678Z"),
        ("DATE", "14 March 2026", "2026-03-14"), ("MONEY", "£1,368.40", "1368.40 GBP"), ("PER", "John Smith", None),
        ("LOC", "Manchester", None),
    ),
    "invoice",
)  # fmt: skip
INVOICES = (SPANISH, ENGLISH)
