"""Electronic invoices and QR codes through real worker processes."""

import io

import numpy as np
import pikepdf
import pytest
import zxingcpp
from PIL import Image

from backend.errors import UnreadableFile
from backend.files.file_readers import FileReaders
from tests.files.einvoice.samples import CII, UBL, facturae
from tests.files.pdfs import encoded, pdf, text

CODE = "https://www2.agenciatributaria.gob.es/wlpl/TIKE-CONT/ValidarQR?nif=B46972071&numserie=A1&fecha=06-03-2026&importe=1"


def _with_attachments(*files: tuple[str, bytes]) -> bytes:
    document = pikepdf.open(io.BytesIO(pdf(text(b"Invoice"))))
    for name, data in files:
        document.attachments[name] = pikepdf.AttachedFileSpec(document, data, filename=name)
    target = io.BytesIO()
    document.save(target)
    return target.getvalue()


def picture_with_code(turn: int = 0, kind: str = "QRCode") -> bytes:
    """A PNG of 700 by 900 pixels with a barcode in its upper right."""
    said = CODE if kind == "QRCode" else "AB-1"
    code = np.asarray(zxingcpp.create_barcode(said, getattr(zxingcpp.BarcodeFormat, kind)).to_image(scale=4))
    sheet = np.full((900, 700), 255, np.uint8)
    sheet[100 : 100 + code.shape[0], 300 : 300 + code.shape[1]] = code
    return encoded(Image.fromarray(np.rot90(sheet, turn // 90)), "PNG")


def test_an_attached_invoice(readers: FileReaders) -> None:
    """XML that is no invoice, and files that are no XML, are passed over."""
    source = _with_attachments(("a.xml", b"<note/>"), ("b.txt", b"hello"), ("factur-x.xml", CII))
    with readers.open(source) as file:
        invoice = readers.einvoice(file)

    assert ("2026/017", 1) == (invoice.values["InvoiceId"], len(invoice.items))


@pytest.mark.parametrize("attached", [(), (("bomb.xml", b'<!DOCTYPE a [<!ENTITY b "c">]><Invoice>&b;</Invoice>'),)])
def test_no_invoice_attached(readers: FileReaders, attached: tuple[tuple[str, bytes], ...]) -> None:
    """A PDF without one, or with a hostile one, is read as ever."""
    with readers.open(_with_attachments(*attached)) as file:
        assert readers.einvoice(file) is None
        assert "Invoice" == readers.page_text(file, 1).text


@pytest.mark.parametrize("source", [CII, UBL, facturae(), b"\xef\xbb\xbf \n" + CII])
def test_an_invoice_as_a_file(readers: FileReaders, source: bytes) -> None:
    """The XML alone is a file with a page to read and to look at."""
    with readers.open(source) as file:
        invoice = readers.einvoice(file)
        layer, picture = readers.page_text(file, 1), readers.picture(file, 1, dpi=100)

    assert file.info.metadata["format"] == invoice.format
    assert invoice.values["InvoiceId"] in layer.text
    assert Image.open(io.BytesIO(picture)).size[0] > 500


def test_a_broken_invoice_as_a_file(readers: FileReaders) -> None:
    """What looks like an invoice and cannot be read is refused with the reason."""
    with pytest.raises(UnreadableFile, match="not well-formed"):
        readers.open(CII[:-20])


@pytest.mark.parametrize("turn", [0, 90])
def test_a_code_on_a_page(readers: FileReaders, turn: int) -> None:
    """Its content, and its box on the page as it stands upright after the turn."""
    with readers.open(picture_with_code(turn)) as file:
        [code] = readers.barcodes(file, 1, formats="QRCode", turn=turn)

    box = code.box
    assert (1, "QRCode", CODE) == (code.page, code.kind, code.text)
    assert 290 < box.left < 330
    assert 90 < box.top < 130
    assert box.right - box.left == pytest.approx(box.bottom - box.top, abs=4)


def test_a_page_without_codes(readers: FileReaders) -> None:
    """Nothing is found where nothing is."""
    with readers.open(pdf(text(b"VERI*FACTU"))) as file:
        assert [] == readers.barcodes(file, 1, formats="AllReadable")


@pytest.mark.parametrize("kind", ["Code128", "DataMatrix"])
def test_other_codes(readers: FileReaders, kind: str) -> None:
    """They are found where all kinds are looked for, and not where a tax code is."""
    with readers.open(picture_with_code(kind=kind)) as file:
        [code] = readers.barcodes(file, 1, formats="AllReadable")
        assert [] == readers.barcodes(file, 1, formats="QRCode")

    assert (kind, "AB-1") == (code.kind, code.text)
