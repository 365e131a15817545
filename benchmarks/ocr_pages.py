"""Pages of our own making, the same on every run: drawn in print, or a PDF's text. No page has another one's text."""

from __future__ import annotations

import io
import random
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

DPI = 200
POINTS = 72  # an inch of a PDF
A4_INCHES = (8.27, 11.69)
SLIP_INCHES = (4.13, 2.9)  # half an A5: a receipt, an index card

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_FONT, _FONT_POINTS, _LINE_POINTS, _MARGIN_POINTS = "DejaVuSerif.ttf", 11, 15, 54
_COLUMNS = 100  # characters of a line of a PDF: Helvetica at 9 points between the margins
_PDF_LINES = 62
_PILLOWS = "Aileron"
_SEED = 20240131

_WORDS = {
    "es": "acuerdo administración ahorro almacén alquiler año anticipo apartado arrendador aval balance banco cálculo "
    "capital cláusula cliente cobro comercio comisión compañía compra condición consejo contrato crédito cuenta "
    "cuota daño declaración depósito derecho descuento deuda dirección domicilio ejercicio empresa entrega "
    "envío escritura estado factura fecha fianza firma garantía gasto gestión hacienda hipoteca importe "
    "impuesto ingreso inmueble interés inversión junta liquidación mañana mercado moneda notaría nómina "
    "obligación oficina operación pago pedido pensión plazo póliza precio préstamo presupuesto proveedor "
    "quincena recibo registro remesa renta reserva saldo seguro señor servicio sociedad solicitud suministro "
    "tarifa tasa tesorería título trámite transferencia trimestre último único valor vencimiento venta vigencia "
    "aprobado conforme debido firmado mensual neto pendiente previo recibido según también todavía bajo desde "
    "entre hasta para por sobre con sin donde cuando abona acepta calcula cede comprueba devuelve emite entrega "
    "exige firma ingresa presenta recibe renueva vence",
    "en": "account accrual address advance agreement amount annual approval asset audit balance bank benefit bill "
    "board bond branch broker budget buyer capital cash charge claim clause client collateral commission "
    "company contract copy cost court credit currency customer damage date debt deed delivery demand deposit "
    "discount district dividend due duty earnings equity estate expense fee file finance fund goods growth "
    "guarantee holder income insurance interest inventory invoice issue journal judge landlord lease ledger "
    "letter liability licence limit loan loss margin market maturity merger mortgage notary notice number "
    "office order owner partner payment penalty pension permit policy premium price profit property purchase "
    "quarter rate receipt record refund register rent report reserve return revenue sale schedule security "
    "seller share signature statement stock supplier surplus tariff tax tenant term title total trade transfer "
    "trust valid value vendor wage warrant witness yield about after against before between during from into "
    "over the this under until upon where which with without accepts binds confirms covers delivers issues "
    "keeps owes pays receives renews requires returns settles signs states",
}


class Drawn(NamedTuple):
    """A page as an image, and what it says."""

    png: bytes
    text: str


def sentences(seed: str) -> Iterator[str]:
    """Endless sentences in Spanish and English by turns: words, amounts, dates, numbers of papers."""
    choice = random.Random(f"{_SEED}-{seed}")
    while True:
        for vocabulary in _WORDS.values():
            picked = choice.choices(vocabulary.split(), k=choice.randrange(7, 15))
            day, month, year = choice.randrange(1, 29), choice.randrange(1, 13), choice.randrange(1990, 2026)
            amount = f"{choice.randrange(1, 99)}.{choice.randrange(100, 999)},{choice.randrange(10, 99)} EUR"
            picked.insert(choice.randrange(1, 6), choice.choice((amount, f"{day:02}/{month:02}/{year}", f"n.º {year}")))
            text = " ".join(picked)
            yield f"{text[0].upper()}{text[1:]}."


def clean_page(number: int) -> Drawn:
    """An A4 page of dense print at DPI, black on white, gray."""
    return drawn(f"page {number}", A4_INCHES, DPI)


def slip(number: int) -> Drawn:
    """A small scan: a few lines at 150 dpi."""
    return drawn(f"slip {number}", SLIP_INCHES, 150)


def drawn(seed: str, inches: tuple[float, float], dpi: int) -> Drawn:
    """A page full of the seed's sentences."""
    width_px, height_px = (round(side * dpi) for side in inches)
    margin, pitch = (round(points * dpi / POINTS) for points in (_MARGIN_POINTS, _LINE_POINTS))
    font, said = font_of(_FONT_POINTS * dpi / POINTS), []
    image = Image.new("L", (width_px, height_px), 255)
    pen, lines = ImageDraw.Draw(image), _broken(seed, font, width_px - 2 * margin)
    for top in range(margin, height_px - margin - pitch, pitch):
        said.append(next(lines))
        pen.text((margin, top), said[-1], fill=0, font=font)
    target = io.BytesIO()
    image.save(target, "PNG", dpi=(dpi, dpi))
    return Drawn(target.getvalue(), "\n".join(said))


def font_of(size_px: float) -> Font:
    """DejaVu where this system has it, else the one in Pillow."""
    try:
        return ImageFont.truetype(_FONT, size_px)
    except OSError:
        return ImageFont.load_default(size_px)


def font_name() -> str:
    """What pages are drawn with here."""
    font = font_of(_FONT_POINTS)
    return font.getname()[0] or "" if isinstance(font, ImageFont.FreeTypeFont) else "bitmap"


def _broken(seed: str, font: Font, width_px: int) -> Iterator[str]:
    """The seed's words in lines that fit."""
    line = ""
    for sentence in sentences(seed):
        for word in _drawable(sentence, font).split():
            longer = f"{line} {word}".strip()
            if font.getlength(longer) > width_px:
                yield line
                longer = word
            line = longer


def _drawable(sentence: str, font: Font) -> str:
    """Pillow's own font has no letter with an accent."""
    if isinstance(font, ImageFont.FreeTypeFont) and font.getname()[0] != _PILLOWS:
        return sentence
    return unicodedata.normalize("NFKD", sentence).encode("ascii", "ignore").decode("ascii")


def scanned_pdf(pages: Sequence[Drawn]) -> bytes:
    """A PDF of images alone, as a scanner writes it."""
    first, *others = [Image.open(io.BytesIO(page.png)) for page in pages]
    target = io.BytesIO()
    first.save(target, "PDF", save_all=True, append_images=others, resolution=DPI)
    return target.getvalue()


def digital_pdf(seed: str, page_count: int) -> bytes:
    """A PDF with text of its own, dense: _PDF_LINES lines of Helvetica a page, about 6,000 characters."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", _tree(page_count)]
    objects += [b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"]
    words = (word for sentence in sentences(seed) for word in sentence.split())
    for index in range(page_count):
        content = zlib.compress(_content(words))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R>>"
            % (5 + 2 * index)
        )
        objects.append(b"<</Length %d/Filter/FlateDecode>>\nstream\n%b\nendstream" % (len(content), content))
    return _assembled(objects)


def _tree(page_count: int) -> bytes:
    kids = b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(page_count))
    return b"<</Type/Pages/Count %d/Kids[%b]>>" % (page_count, kids)


def _content(words: Iterator[str]) -> bytes:
    """A page's drawing commands."""
    lines = [b"BT /F1 9 Tf 12.5 TL 54 792 Td"]
    for _ in range(_PDF_LINES):
        line = next(words)
        while len(line) < _COLUMNS - 10:
            line = f"{line} {next(words)}"
        lines.append(b"(%b) '" % line.encode("cp1252"))  # no word has a bracket or a backslash
    return b"\n".join([*lines, b"ET"])


def _assembled(objects: Sequence[bytes]) -> bytes:
    """Objects 1 to n and the table of where they begin (PDF 1.4, 7.5)."""
    file, places = bytearray(b"%PDF-1.4\n"), []
    for number, one in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, table)
    file += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(file)
