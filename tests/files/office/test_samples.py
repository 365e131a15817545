"""Files that LibreOffice, pandoc and others wrote, read through real worker processes.

How they were made: `soffice --convert-to` and `pandoc`, of sources of a page each; the msg is a test file of
python-oxmsg (MIT).
"""

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pypdfium2 as pdfium
import pytest

from backend.documents.formats.markdown import stream_markdown
from backend.files.file_readers import FileReaders
from backend.invoices.structure import fields_of, tables_of
from tests.files.office.office_files import SAMPLES, document_of, docx, pages_of

_LETTER = (
    "# Contrato de suministro",
    "## Precio y plazo",
    "Juan Pérez García",
    "se acuerda el nuevo suministro de tornillos.",
    "- El precio es de 1.284,50 €.\n- El pago vence el 12 de marzo de 2024.",
    "1. Entrega en Vitoria\n2. Pago a treinta días",
    "| Concepto | Cantidad | Importe |\n| --- | --- | --- |\n| Tornillos M8 | 100 | 125,00 |",
    "Con domicilio en Vitoria.",
    "Luis Gil",
    "Revisar el plazo",
    "Segunda página: firmado en Bilbao.",
    "Aceros del Norte, S.A. · Bilbao",
    "Inscrita en el Registro Mercantil de Bizkaia",
)
_PANDOC_LETTER = (*_LETTER[:8], _LETTER[10])  # it keeps neither comments nor what stands on every page
_CONTRACT = (
    "# Contrato de suministro",
    "## Precio",
    "Entre Aceros del Norte, S.A. y Juan Pérez se acuerda lo siguiente.",
    "- El precio es de 1.284,50 €.\n- Vence el 12 de marzo de 2024.",
    "1. Primero\n2. Segundo",
    "| Concepto | Cantidad | Precio |\n| --- | --- | --- |\n| Tornillos | 100 | 12,50 |",
    "La nota al pie.",
)
_INVOICE = ("| Tornillos M8 | 100 |", "Total factura", "Aceros del Norte, S.A.", "Nota interna", "21%")
_SLIDES = (
    "Resultados de 2024",
    "Ventas de 3,2 millones",
    "Recordar el dividendo",
    "| Región | Ventas |\n| --- | --- |\n| Norte | 1.200 |",
)
_CONTRACT_ON_SLIDES = (
    "# Contrato de suministro",
    "- El precio es de 1.284,50 €.",
    "| Concepto | Cantidad | Precio |\n| --- | --- | --- |\n| Tornillos | 100 | 12,50 |",
    "La nota al pie.",
)
_DELETED = "borrador anulado"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("writer_letter.docx", _LETTER, id="docx-of-writer"),
        pytest.param("pandoc_contract.docx", _CONTRACT, id="docx-of-pandoc"),
        pytest.param("calc_invoice.xlsx", _INVOICE, id="xlsx-of-calc"),
        pytest.param("writer_letter.odt", _LETTER, id="odt-of-writer"),
        pytest.param("pandoc_contract.odt", _CONTRACT, id="odt-of-pandoc"),
        pytest.param("writer_contract.odt", _CONTRACT, id="odt-of-writer-of-a-docx"),
        pytest.param("calc_invoice.ods", _INVOICE, id="ods-of-calc"),
        pytest.param("calc_invoice.html", _INVOICE, id="html-of-calc"),
        pytest.param("calc_invoice.csv", _INVOICE[:3], id="csv-of-calc"),
        pytest.param("pandoc_contract.html", _CONTRACT, id="html-of-pandoc"),
        pytest.param("pandoc_contract.epub", _CONTRACT, id="epub-of-pandoc"),
        pytest.param("contract.md", _CONTRACT, id="markdown"),
        pytest.param("writer_contract.docx", _CONTRACT, id="docx-of-writer-of-an-odt"),
        pytest.param("pandoc_letter.docx", _PANDOC_LETTER, id="docx-of-pandoc-of-a-docx"),
        pytest.param("pandoc_letter.odt", _PANDOC_LETTER, id="odt-of-pandoc-of-a-docx"),
        pytest.param("pandoc_letter.rtf", _PANDOC_LETTER, id="rtf-of-pandoc-of-a-docx"),
        pytest.param("writer_contract.epub", ("Contrato de suministro", *_CONTRACT[2:3]), id="epub-of-writer"),
        pytest.param("writer_contract.txt", ("Contrato de suministro", *_CONTRACT[2:3]), id="txt-of-writer"),
        pytest.param("calc_invoice_from_xls.xlsx", _INVOICE, id="xlsx-of-calc-of-an-xls"),
        pytest.param(
            "impress_contract.pptx", (_CONTRACT_ON_SLIDES[0], *_CONTRACT_ON_SLIDES[2:]), id="pptx-of-impress-2"
        ),
        pytest.param("writer_letter.rtf", _LETTER, id="rtf-of-writer"),
        pytest.param("writer_contract.rtf", _CONTRACT, id="rtf-of-writer-of-an-odt"),
        pytest.param("writer_contract.html", _CONTRACT, id="html-of-writer-of-an-odt"),
        pytest.param("pandoc_contract.rtf", _CONTRACT, id="rtf-of-pandoc"),
        pytest.param("calc_invoice.xls", _INVOICE, id="xls-of-calc"),
        pytest.param(
            "outlook_plain.msg", ("# This is the subject", "peterpan@neverland.com", "This is a message"), id="msg"
        ),
        pytest.param("impress_slides.pptx", _SLIDES, id="pptx-of-impress"),
        pytest.param("impress_slides.odp", _SLIDES, id="odp-of-impress"),
        pytest.param("pandoc_contract.pptx", _CONTRACT_ON_SLIDES, id="pptx-of-pandoc"),
        pytest.param(
            "impress_contract.odp", (_CONTRACT_ON_SLIDES[0], *_CONTRACT_ON_SLIDES[2:]), id="odp-of-impress-of-a-pptx"
        ),
    ],
)
def test_what_a_file_says(readers: FileReaders, name: str, expected: tuple[str, ...]):
    """Headings, lists, tables, notes and comments; insertions are there, deletions are not."""
    document = document_of(readers, SAMPLES / name)
    text = b"".join(stream_markdown(document)).decode()

    assert [] == [part for part in expected if part not in text]
    assert _DELETED not in text
    assert all(page.text[word.start : word.end] == word.text for page in document.pages for word in page.words)


@pytest.mark.parametrize("name", ["calc_invoice.xlsx", "calc_invoice.ods", "calc_invoice.html", "calc_invoice.xls"])
def test_an_invoice_as_a_workbook(readers: FileReaders, name: str):
    """Fields, parties and lines of goods as of a printed invoice."""
    document = document_of(readers, SAMPLES / name)
    fields = fields_of(document)
    values = {field.name: field.value for field in fields.fields}
    goods = next(field for field in fields.fields if field.name == "Items")

    expected = {
        "VendorName": "Aceros del Norte, S.A.",
        "VendorTaxId": "A58818501",
        "CustomerName": "Juan Pérez García",
        "CustomerTaxId": "12345678Z",
        "InvoiceId": "2024/017",
        "InvoiceDate": "2024-02-12",
        "DueDate": "2024-03-12",
        "IBAN": "ES9121000418450200051332",
    }
    assert expected == {name: values.get(name) for name in expected}
    assert [270, Decimal("56.7"), Decimal("326.7")] == [
        Decimal(values[name]) for name in ("SubTotal", "TotalTax", "InvoiceTotal")
    ]
    assert fields.validity.totals
    assert [125, 125, 20] == [
        next(Decimal(cell.value) for cell in row.fields if cell.name == "Amount") for row in goods.rows
    ]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param("calc_invoice.xlsx", [("Factura", "xlsx", 1), ("Notas", "xlsx", 1)], id="sheets"),
        pytest.param("writer_letter.docx", [("", "docx", 2)], id="a-picture-on-a-page"),
        pytest.param("impress_slides.pptx", [("slide 1", "pptx", 1), ("slide 2", "pptx", 1)], id="slides"),
    ],
)
def test_parts(readers: FileReaders, name: str, parts: list[tuple[str, str, int]]):
    """A page is a sheet or a slide; pictures are on it."""
    with readers.open(SAMPLES / name) as file:
        assert parts == [(part.name, part.kind, part.pages) for part in file.info.parts]
        assert readers.picture(file, 1, dpi=100).startswith(b"\x89PNG")


def test_boxes_of_a_slide(readers: FileReaders):
    """Texts stand where they stand on the slide, in points of its own size."""
    page = document_of(readers, SAMPLES / "impress_slides.pptx").pages[0]
    title, sales = (next(word for word in page.words if word.text == text) for text in ("Resultados", "Ventas"))

    assert (794, True) == (round(page.width), page.height >= 446)
    assert (39.7, 17.0) == (round(title.box.left, 1), round(title.box.top, 1))
    assert 113 == round(sales.box.top)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        pytest.param("lorem-ipsum.docx", 0.99, id="docx-of-word"),
        pytest.param("lorem-ipsum.oo3.2.odt", 0.99, id="odt-of-openoffice"),
        pytest.param("lorem-ipsum.rtf", 0.99, id="rtf-of-word"),
        pytest.param("lorem-ipsum.htm", 0.99, id="htm-of-word"),
    ],
)
def test_words_of_a_document_of_other_programs(readers: FileReaders, data_dir: Path, name: str, least: float):
    """Against the text that the set comes with."""
    folder = data_dir / "multiformat_lorem"
    expected = Counter(re.findall(r"\w+", (folder / "lorem-ipsum.gt.txt").read_text(encoding="utf-8").lower()))
    found = Counter(re.findall(r"\w+", document_of(readers, folder / name).text.lower()))

    assert sum((expected & found).values()) >= least * sum(expected.values())


def test_tables_are_those_of_the_file(readers: FileReaders):
    """Cells that span columns, and the header that the file names."""
    (table,) = tables_of(document_of(readers, SAMPLES / "writer_letter.docx"))
    total = next(cell for cell in table.cells if cell.text == "Suma de todo")

    assert ("file", 4, 3) == (table.source, table.rows, table.columns)
    assert 2 == total.colspan
    assert ["Concepto", "Cantidad", "Importe"] == [cell.text for cell in table.cells if cell.header]
    assert "1284.50" == table.cells[-1].value


def test_letters_of_a_drawn_page(readers: FileReaders):
    """Each letter of Spanish looks like itself, within its box."""
    source = docx("<w:p><w:r><w:t>á é ñ Ñ ¿ €</w:t></w:r></w:p>")
    with readers.open(source) as file:
        raster = readers.render(file, 1)
        [page] = pages_of(readers, source)
    drawn = [[round(side * raster.scale_x) for side in word.box] for word in page.words]
    letters = [raster.pixels[top:bottom, left : left + 8] for left, top, _, bottom in drawn]

    assert len(page.words) == len({letter.tobytes() for letter in letters}) == 6
    assert all(letter.min() < 128 for letter in letters)


def test_a_pdf_of_a_file_without_pages_can_be_searched(readers: FileReaders):
    """Its words are in the PDF, although they were not recognised but read."""
    source = docx("<w:p><w:r><w:t>Año y número</w:t></w:r></w:p>")
    document = document_of(readers, source)
    with readers.open(source) as file:
        made = readers.searchable_pdf(file, document)

    with pdfium.PdfDocument(made) as pdf:
        assert "Año y número" == pdf[0].get_textpage().get_text_range().strip()
