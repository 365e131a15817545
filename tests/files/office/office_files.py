"""Office files written by hand, part by part, and pages read of any of them."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import IMAGES
from backend.files.pages import Document, Page
from backend.files.text_files import choose_source

SAMPLES = Path(__file__).parent / "samples"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
S = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{_KINDS}"'


def zipped(entries: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return target.getvalue()


def relations(*items: tuple[str, str, str]) -> str:
    """A file of relations: id, kind and target of each."""
    rows = "".join(
        f'<Relationship Id="{one}" Type="{_KINDS}/{kind}" Target="{target}"/>' for one, kind, target in items
    )
    return f'<Relationships xmlns="{_RELATIONS}">{rows}</Relationships>'


def docx(body: str, more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A Word document of this body."""
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>",
            **(more or {}),
        }
    )


def xlsx(*sheets: str, more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A workbook of these sheets' rows."""
    names = "".join(f'<sheet name="S{at}" sheetId="{at}" r:id="r{at}"/>' for at in range(1, len(sheets) + 1))
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("r1", "officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f"<workbook {S}><sheets>{names}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relations(
                *((f"r{at}", "worksheet", f"worksheets/s{at}.xml") for at in range(1, len(sheets) + 1)),
                ("styles", "styles", "styles.xml"),
            ),
            **{
                f"xl/worksheets/s{at}.xml": f"<worksheet {S}><sheetData>{rows}</sheetData></worksheet>"
                for at, rows in enumerate(sheets, 1)
            },
            **(more or {}),
        }
    )


def pages_of(readers: FileReaders, source: bytes | Path) -> list[Page]:
    """The pages of a file that need no OCR."""
    with readers.open(source) as file:
        return _pages(readers, file)


def document_of(readers: FileReaders, source: bytes | Path) -> Document:
    """A file's pages that need no OCR, and its electronic invoice."""
    with readers.open(source) as file:
        info = file.info
        return Document(
            info.kind, tuple(_pages(readers, file)), info.page_count, info.sha256, info.metadata, readers.einvoice(file)
        )


def _pages(readers: FileReaders, file: OpenFile) -> list[Page]:
    numbers = range(1, file.info.page_count + 1)
    layers = {number: readers.page_text(file, number) for number in numbers if file.page_kind(number) not in IMAGES}
    return [
        replace(
            layer.page(number, choose_source(layer).why),
            part=file.info.part(number).name,
            attachment=file.info.part(number).attachment,
        )
        for number, layer in layers.items()
    ]
