"""Fields and tables of documents, and the electronic invoices that win over what is printed."""

import io

import pikepdf
import pytest

from backend.documents.service import SupplierExamples
from backend.documents.text_fields import find_text_fields
from backend.errors import InferenceFailed, InvalidField, TooLarge
from backend.files.file_readers import FileReaders
from backend.files.pages import Barcode
from backend.invoices import structure
from backend.invoices.records import ExtractedFields
from backend.lanes.text_work import TextWork
from backend.telemetry import Telemetry
from tests.documents.conftest import DocumentsFixture
from tests.files.einvoice.samples import CII
from tests.files.pdfs import pdf, text
from tests.files.test_einvoices import picture_with_code

ROWS = (
    b"Aceros del Norte, S.A.    NIF A58818501", b"FACTURA 2026/99   Fecha 12/03/2026", b"Base imponible 1.000,00",
    b"IVA 21 %  210,00", b"Total factura 1.210,00 EUR",
)  # fmt: skip
INVOICE = pdf(b"".join(text(row, 20, 180 - 20 * place, size=8) for place, row in enumerate(ROWS)))
LETTER = pdf(text(b"Dear Ann, the weather in Leeds was fine and we walked to the sea.", 20, 150, size=5))


def _values(extracted: ExtractedFields | None) -> dict[str, tuple[str, str]]:
    return {field.name: (field.value, field.source) for field in extracted.fields}


async def test_the_fields_of_an_invoice(documents: DocumentsFixture) -> None:
    """Read from the page, with places, whether or not anything else is asked for."""
    answer = await documents.process(INVOICE, features=frozenset({"fields"}))

    values = _values(answer.understood.fields)
    assert ("1210.00", "text") == values["InvoiceTotal"]
    assert ("A58818501", "text") == values["VendorTaxId"]
    total = next(field for field in answer.understood.fields.fields if field.name == "InvoiceTotal")  # type: ignore[union-attr]
    assert total.places[0].page == 1
    assert "1.210,00" in answer.text[total.start : total.end]
    assert answer.understood.language is None


async def test_xml_beside_the_file_wins(documents: DocumentsFixture) -> None:
    """What the electronic invoice says goes before what the page says."""
    answer = await documents.process(INVOICE, features=frozenset({"fields"}), xml=CII.decode())

    assert ("1298.00", "xml") == _values(answer.understood.fields)["InvoiceTotal"]


async def test_xml_in_the_file_wins(documents: DocumentsFixture) -> None:
    """An attachment of a PDF counts alike, on any page."""
    document = pikepdf.open(io.BytesIO(INVOICE))
    document.attachments["factur-x.xml"] = pikepdf.AttachedFileSpec(document, CII, filename="factur-x.xml")
    target = io.BytesIO()
    document.save(target)

    answer = await documents.process(target.getvalue())

    assert ("2026/017", "xml") == _values(answer.understood.fields)["InvoiceId"]


async def test_xml_that_is_no_invoice(documents: DocumentsFixture) -> None:
    """It was sent as one: the request is told what is wrong with it."""
    with pytest.raises(InvalidField, match="which is not read here"):
        await documents.process(INVOICE, features=frozenset({"fields"}), xml="<note/>")


async def test_a_file_of_another_kind_beside_the_file(documents: DocumentsFixture) -> None:
    """It would otherwise be passed over without a word."""
    with pytest.raises(InvalidField, match="another kind"):
        await documents.process(INVOICE, features=frozenset({"fields"}), xml=LETTER.decode("latin-1"))


async def test_xml_that_declares_the_encoding_it_had(documents: DocumentsFixture) -> None:
    """It came as a text: its letters are not decoded a second time."""
    xml = CII.decode().replace("UTF-8", "ISO-8859-1").replace("2026/017", "Ñ-17")
    answer = await documents.process(INVOICE, features=frozenset({"fields"}), xml=xml)

    assert "Ñ-17" == _values(answer.understood.fields)["InvoiceId"][0]


async def test_an_attachment_that_breaks_its_reader(
    documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs the attachment; the pages are read as ever."""

    def too_large(*_: object, **__: object) -> None:
        raise TooLarge("file: bytes of memory, at least", 2, 1, "LIMIT_READER_BYTES")

    monkeypatch.setattr(FileReaders, "einvoice", too_large)
    answer = await documents.process(INVOICE, features=frozenset({"fields"}))

    assert ("1210.00", "text") == _values(answer.understood.fields)["InvoiceTotal"]


async def test_a_fault_costs_the_fields(documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the document: the answer says why it has none, and the fault is counted. Asked for alone, it is an error."""

    def fault(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(structure, "extract_fields", fault)
    answer = await documents.process(INVOICE, features=frozenset({"fields", "tables", "text"}))

    assert "1.210,00" in answer.text
    assert ((), True) == (answer.understood.fields.fields, "ZeroDivisionError" in answer.understood.fields.why)
    assert 1 == documents.stack.metric("structure_failed_total", feature="fields")
    with pytest.raises(InferenceFailed):
        await documents.process(INVOICE, features=frozenset({"fields"}))


async def test_barcodes(documents: DocumentsFixture) -> None:
    """Those of every page that was read, where they are asked for."""
    source = picture_with_code(kind="Code128")

    asked = await documents.process(source, features=frozenset({"text"}), barcodes=True)
    unasked = await documents.process(source, features=frozenset({"text"}))

    assert [(1, "Code128", "AB-1")] == [(code.page, code.kind, code.text) for code in asked.document.barcodes]
    assert () == unasked.document.barcodes


async def test_barcodes_and_fields_look_once(documents: DocumentsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that mentions a tax code is not drawn a second time for it, where all codes are read anyway."""
    looks = list[str]()
    read = FileReaders.barcodes

    def counted(*args, formats: str, **options) -> list[Barcode]:
        looks.append(formats)
        return read(*args, formats=formats, **options)

    monkeypatch.setattr(FileReaders, "barcodes", counted)
    source = pdf(text(b"FACTURA 2026/99 VERI*FACTU"))

    await documents.process(source, features=frozenset({"fields"}), barcodes=True)
    await documents.process(source, features=frozenset({"fields"}))

    assert ["AllReadable", "QRCode"] == looks


async def test_a_letter_has_no_fields(documents: DocumentsFixture) -> None:
    """Nothing is invented, and the reason is said."""
    answer = await documents.process(LETTER, features=frozenset({"fields"}))

    assert () == answer.understood.fields.fields
    assert "no invoice" in answer.understood.fields.why


async def test_fields_of_a_text() -> None:
    """A text is read as if it were set on a page; offsets are its own."""
    source = "\n".join(row.decode() for row in ROWS)

    text_work = TextWork(Telemetry())

    answer = await find_text_fields(text_work, source, SupplierExamples(text_work), "")

    total = next(field for field in answer.understood.fields.fields if field.name == "InvoiceTotal")
    assert "1210.00" == total.value
    assert total.text.split()[0] in source[total.start : total.end]
