"""Files that are made of parts: pages set here, pictures, attachments. Opens each part as its own kind of file."""

from __future__ import annotations

import io
import mmap
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from backend.errors import BadInput, UnreadableFile
from backend.files.einvoice.read import read_einvoice
from backend.files.einvoice.records import EInvoice
from backend.files.file_types import IMAGES, FileType, sniff
from backend.files.image_file import ImageFile
from backend.files.limits import FileLimits
from backend.files.office.content import HEAD_BYTES, Content, child, mapped, reason
from backend.files.office.docx import read_docx
from backend.files.office.mail import read_eml
from backend.files.office.odf import read_odf
from backend.files.office.ole import read_ole
from backend.files.office.pptx import read_pptx
from backend.files.office.rtf import read_rtf
from backend.files.office.text_kinds import read_epub, read_text, read_web_page
from backend.files.office.xlsx import read_xlsx
from backend.files.office.zip_entries import Budget, ZipEntries
from backend.files.pages import printable_line
from backend.files.pdf_file import PdfFile
from backend.files.set_pages import SetFile, SetPage, set_typewritten
from backend.files.stored_file import MappedFile

_COLUMNS, _LINES = 92, 53  # of a page that shows an electronic invoice
_NAME_COLUMNS = 22  # of a field's name, before its value
_ITEM_COLUMNS = (("Description", 40), ("Quantity", 10), ("UnitPrice", 12), ("TaxRate", 8), ("Amount", 14))

_MAX_DEPTH = 4  # of archives and mails in each other
_MAX_PARTS = 1_000
_LONGEST_METADATA = 500
_PACKAGES: Mapping[FileType, Callable[[ZipEntries, Content], None]] = {
    FileType.DOCX: read_docx, FileType.XLSX: read_xlsx, FileType.PPTX: read_pptx, FileType.ODT: read_odf,
    FileType.ODS: read_odf, FileType.ODP: read_odf, FileType.EPUB: read_epub,
}  # fmt: skip
_TEXTS: Mapping[FileType, Callable[[bytes, Content], FileType]] = {
    FileType.HTML: read_web_page,
    FileType.TEXT: read_text,
    FileType.RTF: read_rtf,
    FileType.EML: read_eml,
}
_FOLDERS = {"word": FileType.DOCX, "xl": FileType.XLSX, "ppt": FileType.PPTX}
_MEDIA_TYPE = b"application/vnd.oasis.opendocument."
_OPEN_DOCUMENTS = {b"text": FileType.ODT, b"spreadsheet": FileType.ODS, b"presentation": FileType.ODP}

PageFile: TypeAlias = "PdfFile | ImageFile | SetFile"


class Part(NamedTuple):
    """Some of a file's pages."""

    name: str
    kind: FileType
    file: PageFile
    invoice: Callable[[], EInvoice | None] | None = None  # None where there can be none
    attachment: int = 0  # as `Page.attachment`


class ContainerFile:
    """A file whose pages are those of its parts, one part after the other."""

    def __init__(self, kind: FileType, parts: list[Part], metadata: dict[str, str]) -> None:
        self._kind, self.parts, self._metadata = kind, parts, metadata
        self._infos = [part.file.info() for part in parts]

    def info(self) -> dict[str, Any]:
        """Page count, sizes, metadata, and the parts."""
        return {
            "kind": self._kind,
            "page_count": sum(info["page_count"] for info in self._infos),
            "sizes": [size for info in self._infos for size in info["sizes"]],
            "metadata": {name: text[:_LONGEST_METADATA] for name, text in self._metadata.items()},
            "attachments": sum(part.invoice is not None for part in self.parts),
            "parts": list(self._named_parts()),
        }

    def at(self, number: int) -> tuple[PageFile, int]:
        """The file that a page (from 1) is of, and its number there."""
        for part, info in zip(self.parts, self._infos, strict=True):
            if number <= info["page_count"]:
                return part.file, number
            number -= info["page_count"]
        raise UnreadableFile("the file has no such page")

    @cached_property
    def invoice(self) -> EInvoice | None:
        """The first electronic invoice among the parts. Raises: what is wrong with one, where no other is right."""
        fault: BadInput | None = None
        for part in self.parts:
            try:
                if part.invoice is not None and (invoice := part.invoice()) is not None:
                    return invoice
            except BadInput as error:
                fault = fault or error
        if fault is not None:
            raise fault
        return None

    def close(self) -> None:
        for part in self.parts:
            part.file.close()

    def _named_parts(self) -> Iterator[tuple[str, str, int, int]]:
        for part, info in zip(self.parts, self._infos, strict=True):
            if not isinstance(part.file, SetFile):
                yield part.name, part.kind, info["page_count"], part.attachment
                continue
            for name, pages in groupby(part.file.pages, key=lambda page: page.part):
                yield _joined(part.name, name), part.kind, sum(1 for _ in pages), part.attachment


def open_container(data: mmap.mmap, kind: FileType, password: str | None, limits: FileLimits) -> ContainerFile:
    """A file of a kind that is no PDF, image or recording. Raises: what is wrong with it."""
    return _Opening(limits, password).open(MappedFile(data), kind)


class _Opening:
    """One upload while it is opened, with what has been unpacked of it."""

    def __init__(self, limits: FileLimits, password: str | None) -> None:
        self._limits, self._password = limits, password
        self._budget = Budget(limits)
        self._attachments = 0

    def open(self, source: io.RawIOBase | io.BytesIO, kind: FileType, depth: int = 0) -> ContainerFile:
        if kind is FileType.XML:
            pages, invoice = _opened_invoice(source.read(-1) or b"")
            return ContainerFile(kind, [Part("", kind, pages, lambda: invoice)], pages.metadata)
        content = Content(self._limits)
        kind = self._read(source, kind, content)
        if kind in (FileType.DOC, FileType.PPT) and depth:
            raise UnreadableFile(f"an old Office file ({kind}); send it alone, or save it as {kind}x")
        content.set_pictures()
        parts = list(_set_parts(content, kind))
        skipped = content.skipped
        for name, data in content.attachments:
            if len(parts) < _MAX_PARTS:
                parts += self._attachment(name, data, depth, skipped)
        if skipped:
            content.metadata["not_read"] = "; ".join(skipped)
        if not parts:
            if skipped:
                raise UnreadableFile(f"file: nothing in it can be read: {'; '.join(skipped)[:_LONGEST_METADATA]}")
            parts = [Part("", kind, SetFile([], content.metadata))]
        return ContainerFile(kind, parts, content.metadata)

    def _read(self, source: Any, kind: FileType, content: Content) -> FileType:
        """Fill the content. Returns: the kind that it turned out to be."""
        if kind in _TEXTS:
            return _TEXTS[kind](source.read(-1), content)
        if kind is FileType.OLE:
            return read_ole(source, content)
        entries = ZipEntries(source, self._budget)
        kind = _package_kind(entries, kind)
        if kind in _PACKAGES:
            _PACKAGES[kind](entries, content)
            content.add_properties(entries.xml("docProps/core.xml"), _PROPERTIES)
            program = child(entries.xml("docProps/app.xml"), "Application")
            if program is not None and program.text:
                content.metadata["producer"] = program.text
        else:
            for name in entries.names:
                content.attachments.append((name, entries.read(name)))
        return kind

    def _attachment(self, name: str, data: bytes, depth: int, skipped: list[str]) -> list[Part]:
        """The parts of a file within another one; none, with the reason, where it cannot be read."""
        name = printable_line(name)[:200]
        try:
            parts = self._parts_of(data, depth)
            self._attachments += 1
            own = self._attachments  # files in it have numbers already
            return [part._replace(name=_joined(name, part.name), attachment=part.attachment or own) for part in parts]
        except MemoryError:
            raise
        except BadInput as error:
            skipped.append(reason(name, error))
        except Exception as error:  # noqa: BLE001  # as a file of its own it would be refused; the others are read
            skipped.append(f"{name}: {type(error).__name__}")
        return []

    def _parts_of(self, data: bytes, depth: int) -> list[Part]:
        if depth >= _MAX_DEPTH:
            raise UnreadableFile(f"archives lie in each other more than {_MAX_DEPTH} deep")
        kind = sniff(data[:HEAD_BYTES])
        if kind is FileType.PDF:
            pdf = PdfFile(mapped(data), self._password)
            return [Part("", kind, pdf, lambda: pdf.invoice)]
        if kind in IMAGES:
            image = ImageFile(mapped(data), kind, self._limits)
            image.info()  # which looks at its size
            return [Part("", kind, image)]
        if kind is FileType.AUDIO:
            raise UnreadableFile("a recording; send it alone")
        return self.open(io.BytesIO(data), kind, depth + 1).parts


def _set_parts(content: Content, kind: FileType) -> Iterator[Part]:
    """The pages that were set; a picture that has one for itself is read as the image that it is."""
    for picture, pages in groupby(content.setter.pages, key=lambda page: page.lone_picture):
        if picture is None:
            yield Part("", kind, SetFile(list(pages), content.metadata))
        else:
            yield Part(_joined(next(pages).part, picture.name), picture.file.kind, picture.file)


def _package_kind(entries: ZipEntries, guess: FileType) -> FileType:
    """What a zip is, by its own words: names in its first bytes may mislead."""
    if "[Content_Types].xml" in entries:
        folders = {name.partition("/")[0] for name in entries.names}
        return next((kind for folder, kind in _FOLDERS.items() if folder in folders), guess)
    if "mimetype" in entries:
        kind = entries.read("mimetype").strip()
        if kind == b"application/epub+zip":
            return FileType.EPUB
        kind = kind.removeprefix(_MEDIA_TYPE).removesuffix(b"-template")
        return _OPEN_DOCUMENTS.get(kind, FileType.ZIP)
    return FileType.ZIP


_PROPERTIES = {"title": "title", "creator": "author", "subject": "subject", "keywords": "keywords",
               "created": "created", "modified": "modified"}  # fmt: skip


def _joined(outer: str, inner: str) -> str:
    return f"{outer}: {inner}" if outer and inner else outer or inner


def _opened_invoice(data: bytes) -> tuple[SetFile, EInvoice]:
    """The invoice, and its pages. Raises: UnreadableFile for what is no invoice, or hostile."""
    invoice = read_einvoice(data)
    metadata = {"format": invoice.format}
    if invoice.others:
        metadata["invoices"] = f"{1 + invoice.others}; the first is read"
    lines, pages = _invoice_lines(invoice), []
    for first in range(0, len(lines), _LINES):
        pages.append(SetPage())
        set_typewritten(pages[-1], lines[first : first + _LINES])
    return SetFile(pages, metadata), invoice


def _invoice_lines(invoice: EInvoice) -> list[str]:
    lines = [invoice.format, ""]
    for name, value in invoice.values.items():
        wrapped = textwrap.wrap(printable_line(value), _COLUMNS - _NAME_COLUMNS) or [""]
        lines.append(f"{name:<{_NAME_COLUMNS}}{wrapped[0]}")
        lines += [" " * _NAME_COLUMNS + part for part in wrapped[1:]]
    if invoice.items:
        lines += ["", "".join(_cell(name, name, width) for name, width in _ITEM_COLUMNS).rstrip()]
    for item in invoice.items:
        first, *more = textwrap.wrap(printable_line(item.get("Description", "")), _ITEM_COLUMNS[0][1] - 2) or [""]
        row = {**item, "Description": first}
        lines.append("".join(_cell(name, row.get(name, ""), width) for name, width in _ITEM_COLUMNS).rstrip())
        lines += more
    return lines + [" ".join(f"{name} {value}" for name, value in tax.items()) for tax in invoice.taxes]


def _cell(name: str, text: str, width: int) -> str:
    text = printable_line(text)[: width - 1]
    return f"{text:<{width}}" if name == "Description" else f"{text:>{width}}"
