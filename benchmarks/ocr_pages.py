"""Generates reproducible test pages: drawn as images, or as text of a PDF. No two pages have the same text."""

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
_LINE_CHARACTERS = 100  # characters of a line of a PDF: Helvetica at 9 points between the margins
_PDF_LINES = 62
_PILLOW_FONT = "Aileron"
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


class DrawnPage(NamedTuple):
    """A page image and its text."""

    png: bytes
    text: str


def sentences(seed: str) -> Iterator[str]:
    """Endless sentences, alternating between Spanish and English: words, amounts, dates, document numbers."""
    rng = random.Random(f"{_SEED}-{seed}")
    while True:
        for vocabulary in _WORDS.values():
            words = rng.choices(vocabulary.split(), k=rng.randrange(7, 15))
            day, month, year = rng.randrange(1, 29), rng.randrange(1, 13), rng.randrange(1990, 2026)
            amount = f"{rng.randrange(1, 99)}.{rng.randrange(100, 999)},{rng.randrange(10, 99)} EUR"
            words.insert(rng.randrange(1, 6), rng.choice((amount, f"{day:02}/{month:02}/{year}", f"n.º {year}")))
            text = " ".join(words)
            yield f"{text[0].upper()}{text[1:]}."


def clean_page(number: int) -> DrawnPage:
    """An A4 page of dense print at DPI, black on white, gray."""
    return draw_page(f"page {number}", A4_INCHES, DPI)


def slip(number: int) -> DrawnPage:
    """A small scan: a few lines at 150 dpi."""
    return draw_page(f"slip {number}", SLIP_INCHES, 150)


def draw_page(seed: str, inches: tuple[float, float], dpi: int) -> DrawnPage:
    """Draw a page full of the seed's sentences."""
    width_px, height_px = (round(side * dpi) for side in inches)
    margin, pitch = (round(points * dpi / POINTS) for points in (_MARGIN_POINTS, _LINE_POINTS))
    font, written = font_of(_FONT_POINTS * dpi / POINTS), []
    image = Image.new("L", (width_px, height_px), 255)
    pen, lines = ImageDraw.Draw(image), _wrapped_lines(seed, font, width_px - 2 * margin)
    for top in range(margin, height_px - margin - pitch, pitch):
        written.append(next(lines))
        pen.text((margin, top), written[-1], fill=0, font=font)
    target = io.BytesIO()
    image.save(target, "PNG", dpi=(dpi, dpi))
    return DrawnPage(target.getvalue(), "\n".join(written))


def font_of(size_px: float) -> Font:
    """DejaVu where installed, else Pillow's built-in font."""
    try:
        return ImageFont.truetype(_FONT, size_px)
    except OSError:
        return ImageFont.load_default(size_px)


def font_name() -> str:
    """The name of the font in use."""
    font = font_of(_FONT_POINTS)
    return font.getname()[0] or "" if isinstance(font, ImageFont.FreeTypeFont) else "bitmap"


def _wrapped_lines(seed: str, font: Font, width_px: int) -> Iterator[str]:
    """Wrap the seed's words into lines of the given width."""
    line = ""
    for sentence in sentences(seed):
        for word in _drawable(sentence, font).split():
            longer = f"{line} {word}".strip()
            if font.getlength(longer) > width_px:
                yield line
                longer = word
            line = longer


def _drawable(sentence: str, font: Font) -> str:
    """Remove accents for Pillow's built-in font, which has none."""
    if isinstance(font, ImageFont.FreeTypeFont) and font.getname()[0] != _PILLOW_FONT:
        return sentence
    return unicodedata.normalize("NFKD", sentence).encode("ascii", "ignore").decode("ascii")


def scanned_pdf(images: Sequence[bytes]) -> bytes:
    """A PDF of images, as scanners write it."""
    first, *others = [Image.open(io.BytesIO(image)) for image in images]
    target = io.BytesIO()
    first.save(target, "PDF", save_all=True, append_images=others, resolution=DPI)
    return target.getvalue()


def digital_pdf(seed: str, page_count: int) -> bytes:
    """A PDF with a text layer: _PDF_LINES lines of Helvetica a page, about 6,000 characters."""
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
    """The content stream of a page."""
    lines = [b"BT /F1 9 Tf 12.5 TL 54 792 Td"]
    for _ in range(_PDF_LINES):
        line = next(words)
        while len(line) < _LINE_CHARACTERS - 10:
            line = f"{line} {next(words)}"
        lines.append(b"(%b) '" % line.encode("cp1252"))  # no word has a bracket or a backslash
    return b"\n".join([*lines, b"ET"])


def _assembled(objects: Sequence[bytes]) -> bytes:
    """Concatenate objects 1 to n and the cross-reference table (PDF 1.4, 7.5)."""
    file, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, 1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, table)
    file += b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(file)
