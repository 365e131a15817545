"""Mail with attachments, and archives: each file in them is read as it would be alone."""

from email.message import EmailMessage

import pytest

from backend.errors import UnreadableFile
from backend.files.file_readers import FileReaders
from backend.files.office.mail import unpacked_rtf
from backend.invoices.structure import fields_of
from tests.files.einvoice.samples import CII
from tests.files.office.office_files import SAMPLES, document_of, docx, pages_of, zipped
from tests.files.pdfs import pdf, text

_PROGRAM = b"MZ\x90\x00" + bytes(200)


def _mail(*attached: tuple[str, bytes], body: str = "Le adjuntamos la factura.", html: str = "") -> bytes:
    message = EmailMessage()
    message["From"], message["To"] = "Aceros del Norte <ventas@aceros.example>", "Juan P\u00e9rez <juan@example.com>"
    message["Subject"], message["Date"] = "Factura 2024/017 de a\u00f1o nuevo", "Mon, 12 Feb 2024 10:00:00 +0100"
    message.set_content(body)
    if html:
        message.add_alternative(html, subtype="html")
    for name, data in attached:
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


def test_a_message(readers: FileReaders):
    """Who wrote to whom, when, about what, and the text."""
    (page,) = pages_of(readers, _mail(body="Hola:\n\nUna l\u00ednea.\n"))

    assert (
        "Factura 2024/017 de a\u00f1o nuevo\n\nFrom: Aceros del Norte <ventas@aceros.example>\nTo: Juan P\u00e9rez "
        "<juan@example.com>\nDate: Mon, 12 Feb 2024 10:00:00 +0100\n\nHola:\n\nUna l\u00ednea."
    ) == page.text


@pytest.mark.parametrize("codec", ["utf-8", "idna", "undefined", "rot13", "no-such-codec"])
def test_a_file_name_names_no_codec_of_pythons(readers: FileReaders, codec: str):
    """Only encodings of texts; what else a mail names costs nothing (RFC 2231)."""
    mail = _mail(("XX.txt", b"Importe 100,00"))
    name = f"filename*={codec}''a%C3%B1o.txt".encode()
    with readers.open(mail.replace(b'filename="XX.txt"', name)) as file:
        names = [part.name for part in file.info.parts]

    assert "a\u00f1o.txt" in names


def test_a_subject_in_no_codec_of_pythons(readers: FileReaders):
    """It stays as UTF-8 reads it."""
    mail = _mail().replace(b"Subject: ", b"Subject: =?unicode_escape?q?=5Cx41?= ")

    assert pages_of(readers, mail)[0].text.startswith("\\x41")


def test_tables_of_a_message(readers: FileReaders):
    """Its HTML is read where that has more than its text."""
    (page,) = pages_of(readers, _mail(html="<table><tr><td>a<td>b<tr><td>1<td>2</table>"))

    assert page.grids is not None
    assert [(2, 2)] == [grid[:2] for grid in page.grids]


def test_a_mailbox(readers: FileReaders):
    """Its mails are parts, each with its own attachments; a line of text that begins alike parts none."""
    mails = [_mail(body="From here on.\n"), _mail(("carta.pdf", pdf(text(b"Carta"))), body="dos")]
    source = b"\n".join(b"From - Mon Feb 12 10:00:00 2024\n" + mail for mail in mails)
    with readers.open(source) as file:
        assert ["message 1", "message 2", "message 2: carta.pdf"] == [
            file.info.part(number).name for number in range(1, file.info.page_count + 1)
        ]


def test_attachments_are_parts(readers: FileReaders):
    """With their names; what cannot be read is named, and harms nothing else."""
    inner = _mail(("albar\u00e1n.docx", docx("<w:p><w:r><w:t>albar\u00e1n</w:t></w:r></w:p>")), body="interior")
    source = _mail(
        ("factura.xlsx", (SAMPLES / "calc_invoice.xlsx").read_bytes()),
        ("carta.pdf", pdf(text(b"Carta"))),
        ("setup.exe", _PROGRAM),
        ("roto.docx", docx("<w:p>")),
        ("mensaje.eml", inner),
        ("varios.zip", zipped({"a/nota.txt": "una nota", "b.exe": _PROGRAM})),
    )
    with readers.open(source) as file:
        parts = [(part.name, part.kind) for part in file.info.parts]
        not_read = file.info.metadata["not_read"]
    pages = pages_of(readers, source)

    assert [
        ("", "eml"), ("factura.xlsx: Factura", "xlsx"), ("factura.xlsx: Notas", "xlsx"), ("carta.pdf", "pdf"),
        ("mensaje.eml", "eml"), ("mensaje.eml: albar\u00e1n.docx", "docx"), ("varios.zip: a/nota.txt", "txt"),
    ] == parts  # fmt: skip
    assert "setup.exe: it looks like a program" in not_read
    assert "roto.docx: 'word/document.xml' in it is no XML" in not_read
    assert ["Carta", "albar\u00e1n", "una nota"] == [pages[at].text for at in (3, 5, 6)]


def test_an_invoice_that_is_attached(readers: FileReaders):
    """Its fields are the answer, whatever the mail around it says."""
    source = _mail(("factura.xlsx", (SAMPLES / "calc_invoice.xlsx").read_bytes()))
    found = fields_of(document_of(readers, source))
    values = {field.name: field.value for field in found.fields}

    assert ("326.70", "2024/017", "Aceros del Norte, S.A.") == tuple(
        values.get(name) for name in ("InvoiceTotal", "InvoiceId", "VendorName")
    )
    assert found.validity.totals
    assert () == found.others


def test_invoices_that_are_attached_are_documents_of_their_own(readers: FileReaders):
    invoice = (SAMPLES / "calc_invoice.xlsx").read_bytes()
    found = fields_of(document_of(readers, _mail(("a.xlsx", invoice), ("b.xlsx", invoice))))

    assert [(2, 3), (4, 5)] == [one.pages for one in (found, *found.others)]


def test_an_electronic_invoice_that_is_attached(readers: FileReaders):
    with readers.open(_mail(("factura.xml", CII))) as file:
        invoice = readers.einvoice(file)

    assert "2026/017" == invoice.values["InvoiceId"]


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        pytest.param(
            zipped({"a.exe": _PROGRAM, "b.bin": bytes(99)}), "nothing in it can be read: a.exe", id="programs"
        ),
        pytest.param(zipped({"a.txt": b"abc"})[:-30], "cut off", id="cut-off"),
    ],
)
def test_archives_of_nothing(readers: FileReaders, source: bytes, fault: str):
    with pytest.raises(UnreadableFile, match=fault):
        readers.open(source)


def test_packed_rich_text():
    """The example of [MS-OXRTFCP] 4.1.1."""
    packed = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )

    assert b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n" == unpacked_rtf(packed)
