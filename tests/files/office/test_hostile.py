"""Office files that want to do harm: each is refused in seconds, with its reason, and the worker lives on."""

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pikepdf
import pytest

from backend.errors import BadInput, TooLarge
from backend.files.file_readers import FileReaders
from backend.files.limits import FileLimits
from tests.files.office.office_files import SAMPLES, S, W, docx, pages_of, relations, xlsx, zipped

_BILLION = (
    '<!DOCTYPE w:document [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)
_EXTERNAL = '<!DOCTYPE w:document [<!ENTITY x SYSTEM "file:///etc/passwd">]>'


def _document(prolog: str, entity: str) -> bytes:
    body = f"{prolog}<w:document {W}><w:body><w:p><w:r><w:t>&{entity};</w:t></w:r></w:p></w:body></w:document>"
    return docx("", {"word/document.xml": body})


def _zip_bomb() -> bytes:
    """Two hundred megabytes of blanks in 200 KB."""
    spaces = f"<w:document {W}><w:body><w:p><w:r><w:t>{' ' * 2**20}</w:t></w:r></w:p>".encode()
    return docx("", {"word/document.xml": spaces + b" " * 200 * 2**20 + b"</w:body></w:document>"})


def _nested(depth: int) -> bytes:
    archive = zipped({"a.txt": "hello"})
    for _ in range(depth):
        archive = zipped({"a.zip": archive})
    return archive


def _overlapping() -> bytes:
    """A directory of a thousand entries that are all the same ten megabytes."""
    data = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = data.compress(bytes(10 * 2**20)) + data.flush()
    crc, size = zlib.crc32(bytes(10 * 2**20)), 10 * 2**20
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(packed), size, 5, 0) + b"a.txt" + packed
    directory = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 8, 0, 0, crc, len(packed), size, 5, 0, 0, 0, 0, 0, 0)
        + b"a.txt"
        for _ in range(1000)
    )
    return local + directory + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1000, 1000, len(directory), len(local), 0)


def _locked() -> bytes:
    """An entry whose flags say that it is encrypted."""
    data = bytearray(zipped({"a.txt": "secret"}, zipfile.ZIP_STORED))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


_X = 'xmlns:t="urn:t" xmlns:x="urn:x"'
_CELL = '<t:table-row><t:table-cell t:number-columns-repeated="16384"><x:p>a</x:p></t:table-cell></t:table-row>'


def _odf(kind: str, body: str, styles: str = "") -> bytes:
    content = f"<d {_X}>{styles}<body><{kind}>{body}</{kind}></body></d>"
    return zipped({"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content})


def _repeated() -> bytes:
    """A table of 25 million cells on a slide, in a few KB."""
    return _odf("presentation", f"<x:page><x:frame><t:table>{_CELL * 5_000}</t:table></x:frame></x:page>")


def _merged() -> bytes:
    """A sheet whose every cell is merged with all below it."""
    rows = "<row><c><v>1</v></c><c><v>2</v></c></row>" * 2_000
    ranges = "".join(f'<mergeCell ref="A{row}:B2000"/>' for row in range(1, 2_000))
    sheet = f"<worksheet {S}><sheetData>{rows}</sheetData><mergeCells>{ranges}</mergeCells></worksheet>"
    return xlsx("", more={"xl/worksheets/s1.xml": sheet})


def _locked_odt() -> bytes:
    manifest = '<m xmlns="urn:x"><file-entry full-path="content.xml"><encryption-data/></file-entry></m>'
    return zipped({"mimetype": "application/vnd.oasis.opendocument.text", "META-INF/manifest.xml": manifest})


def _compound(tree: Mapping[str, Any]) -> bytes:
    """A compound file ([MS-CFB]) of storages and of empty streams, as Office keeps locked and old files."""
    end, free = 0xFFFFFFFE, 0xFFFFFFFF
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<5H", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<9I", 0, 1, 1, 0, 4096, end, 0, end, 0) + struct.pack("<109I", 0, *[free] * 108)
    entries, right = [("Root Entry", tree)], {}
    directory = b""
    for index, (name, below) in enumerate(entries):  # which grow meanwhile
        first = len(entries) if below else free
        entries += (below or {}).items()
        right |= {at: at + 1 for at in range(first, len(entries) - 1)} if below else {}
        kind = 5 if index == 0 else 2 if below is None else 1
        directory += name.encode("utf-16-le").ljust(64, b"\0") + struct.pack("<H2B", 2 * len(name) + 2, kind, 1)
        directory += struct.pack("<3I", free, right.get(index, free), first) + bytes(36) + struct.pack("<IQ", end, 0)
    sectors = (len(directory) + 511) // 512
    table = struct.pack("<128I", 0xFFFFFFFD, *range(2, sectors + 1), end, *[free] * (127 - sectors))
    return header + table + directory.ljust(512 * sectors, b"\0")


def _messages_in_messages(depth: int) -> bytes:
    """A message of Outlook's with one attached to it, and so on."""
    message: dict[str, Any] = {"__properties_version1.0": None}
    for _ in range(depth):
        message = {"__properties_version1.0": None, "__attach_version1.0_#0": {"__substg1.0_3701000D": message}}
    return _compound(message)


_HOSTILE = [
    pytest.param(_document(_BILLION, "i"), "declares a document type|no XML", id="billion-laughs"),
    pytest.param(_document(_EXTERNAL, "x"), "declares a document type", id="external-entity"),
    pytest.param(
        xlsx("", more={"xl/worksheets/s1.xml": f"{_EXTERNAL}<worksheet {S}><row><c><v>1</v></c></row></worksheet>"}),
        "declares a document type",
        id="external-entity-in-a-sheet",
    ),
    pytest.param(
        xlsx(
            "",
            more={
                "xl/sharedStrings.xml": f"{_EXTERNAL}<sst {S}><si><t>&x;</t></si></sst>",
                "xl/_rels/workbook.xml.rels": relations(
                    ("r1", "worksheet", "worksheets/s1.xml"), ("s", "sharedStrings", "sharedStrings.xml")
                ),
            },
        ),
        "declares a document type",
        id="external-entity-in-shared-strings",
    ),
    pytest.param(_zip_bomb, "bytes when unpacked", id="zip-bomb"),
    pytest.param(_repeated, "LIMIT_DOCUMENT_LINES", id="cells-of-a-slide"),
    pytest.param(
        lambda: b"<html><table><tr>" + b"<td>a" * 16_000 + b"<tr><td>a" * 60_000 + b"</table>",
        "places in tables",
        id="wide-and-tall",
    ),
    pytest.param(_merged, "places in tables", id="cells-over-cells"),
    pytest.param(_overlapping, "bytes when unpacked", id="overlapping-entries"),
    pytest.param(_nested(9), "archives lie in each other", id="archives-in-archives"),
    pytest.param(_locked(), "encrypted", id="encrypted-zip"),
    pytest.param(_locked_odt(), "encrypted", id="encrypted-odt"),
    pytest.param(_compound({"EncryptionInfo": None, "EncryptedPackage": None}), "it is encrypted", id="encrypted-docx"),
    pytest.param(b"MZ" + bytes(2000), "a program", id="renamed-program"),
    pytest.param(b"\x7fELF" + bytes(2000), "a program", id="renamed-program-of-linux"),
    pytest.param(zipped({"setup.exe": b"MZ" + bytes(200)}), "a program", id="zipped-program"),
    pytest.param(docx("", {"word/vbaProject.bin": b""}), "macros", id="macros-in-docx"),
    pytest.param(docx("")[:-40], "cut off", id="cut-off-docx"),
    pytest.param(docx("<w:p>"), "no XML", id="broken-xml"),
    pytest.param(xlsx("", more={"xl/vbaProject.bin": b""}), "macros", id="macros-in-xlsx"),
    pytest.param(xlsx("", more={"xl/macrosheets/sheet1.xml": b"<x/>"}), "macros", id="macro-sheets-in-xlsx"),
    pytest.param(_compound({"Macros": None, "WordDocument": None}), "macros", id="macros-in-doc"),
    pytest.param(b"{\\rtf1" + b"{" * 100_000, "deep", id="groups-in-groups"),
    pytest.param(b"{\\rtf1{\\stylesheet{\\s1 Normal;}", "cut off", id="cut-off-rich-text"),
    pytest.param(b"<html><body>" + b"<div>" * 300 + b"text", "255 deep", id="elements-in-elements"),
    pytest.param(
        b"From: a@b.es\nSubject: a\nContent-Type: message/rfc822\n\n" * 2_000 + b"a",
        "lies in each other too deep",
        id="mail-in-mail",
    ),
    pytest.param(
        lambda: b"<html><p " + b" ".join(b"a%d" % at for at in range(200_000)) + b">a", "attributes", id="attributes"
    ),
    pytest.param(
        lambda: docx(f"<w:p><w:r><w:t>{'a ' * 2_000_000}</w:t></w:r></w:p>"),
        "words of the file",
        id="words-of-a-letter",
    ),
    pytest.param(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(3000), "broken compound file", id="broken-compound-file"),
    pytest.param((SAMPLES / "calc_invoice.xls").read_bytes()[:4000], "broken", id="cut-off-workbook"),
]


@pytest.mark.parametrize(("source", "fault"), _HOSTILE)
def test_refused_in_seconds(readers: FileReaders, source: bytes | Callable[[], bytes], fault: str):
    """A 4xx that says why; no worker is lost, or works for longer than it may."""
    source = source() if callable(source) else source  # large ones are made here: every run imports this file
    before = readers.counts()
    with pytest.raises(BadInput, match=fault) as caught:
        readers.open(source)

    assert 400 <= caught.value.status < 500
    assert (before.died, before.late) == (readers.counts().died, readers.counts().late)


_LONG = {  # 600 paragraphs, lines or cells each
    "docx": docx("<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 600),
    "docx-of-breaks": docx(f"<w:p><w:r><w:t>a</w:t>{'<w:br/>' * 600}</w:r></w:p>"),
    "docx-table": docx(f"<w:tbl>{'<w:tr><w:tc><w:p/></w:tc><w:tc><w:p/></w:tc></w:tr>' * 300}</w:tbl>"),
    "xlsx": xlsx("<row><c><v>1</v></c><c><v>2</v></c></row>" * 300),
    "odt": _odf("text", "<x:p>a</x:p>" * 600),
    "rtf": b"{\\rtf1 " + rb"a\par " * 600 + b"}",
    "rtf-table": b"{\\rtf1 " + rb"\trowd\intbl a\cell b\cell\row " * 300 + b"}",
    "html": b"<html><body>" + b"<p>a</p>" * 600,
    "html-table": b"<html><body><table>" + b"<tr><td>a<td>b</tr>" * 300,
    "csv": b"a,b\n" * 300,
    "md": b"# A\n\n# B\n" + b"a\n\n" * 300,
    "txt": b"a\n" * 600,
    "eml": b"From: a@b.es\nDate: now\n\n" + b"a\n\n" * 600,
}


@pytest.mark.parametrize(("limit", "refused"), [(500, set(_LONG)), (700, set())])
def test_more_lines_than_a_document_may_have(make_readers: Callable[..., FileReaders], limit: int, refused: set[str]):
    """Refused by what it has, whatever its kind, with the setting that allows more."""
    readers = make_readers(limits=replace(FileLimits(), document_lines=limit))
    found = {}
    for name, source in _LONG.items():
        try:
            readers.open(source).close()
        except TooLarge as error:
            found[name] = (error.setting, error.limit)

    assert dict.fromkeys(refused, ("LIMIT_DOCUMENT_LINES", limit)) == found


_NUMBERED = '<w:p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>a</w:t></w:r></w:p>'
_MARKS = (
    f'<w:numbering {W}><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:lvlText w:val="{"x" * 1000}"/></w:lvl>'
    '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
)


def _part(kind: str, content: str) -> dict[str, str | bytes]:
    """A part of a Word document beside its text."""
    return {"word/_rels/document.xml.rels": relations(("p", kind, "part.xml")), "word/part.xml": content}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(xlsx(f'<row><c t="str"><v>{"x" * 1000}</v></c></row>' * 30), id="cells"),
        pytest.param(docx(_NUMBERED * 30, _part("numbering", _MARKS)), id="marks-of-a-list"),
    ],
)
def test_more_characters_than_a_document_may_have(make_readers: Callable[..., FileReaders], source: bytes):
    """Counted as they are set, before pages are made of them."""
    readers = make_readers(limits=replace(FileLimits(), document_chars=20_000))
    with pytest.raises(TooLarge, match="LIMIT_DOCUMENT_CHARS"):
        readers.open(source)


def _in_each_other(before: str, after: str, times: int, inner: str) -> str:
    return before * times + inner + after * times


def _placeholders() -> bytes:
    """A slide of ten thousand texts whose places ten thousand others of its layout might tell."""
    kinds = {name: f"http://schemas.openxmlformats.org/{name}" for name in "par"}
    names = " ".join(f'xmlns:{name}="{kind}"' for name, kind in kinds.items())

    def shapes(index: int) -> str:
        shape = (
            f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{index}" idx="{index}"/></p:nvPr></p:nvSpPr><p:spPr><p:xfrm><a:off/>'
            "<a:ext/></p:xfrm></p:spPr><p:txBody><a:p><a:t>a</a:t></a:p></p:txBody></p:sp>"
        )
        return f"<p:sld {names}><p:cSld><p:spTree>{shape * 10_000}</p:spTree></p:cSld></p:sld>"

    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "ppt/presentation.xml": f'<p:p {names}><p:sldIdLst><p:sldId id="1" r:id="s"/></p:sldIdLst></p:p>',
            "ppt/_rels/presentation.xml.rels": relations(("s", "slide", "s.xml")),
            "ppt/s.xml": shapes(1).replace("<p:xfrm>", "<p:none>").replace("</p:xfrm>", "</p:none>"),
            "ppt/_rels/s.xml.rels": relations(("l", "slideLayout", "l.xml")),
            "ppt/l.xml": shapes(2),
        }
    )


_HIDDEN_STYLES = '<x:style x:name="a"/>' * 150_000
_SHEET = "<t:table><t:table-row><t:table-cell><x:p>a</x:p></t:table-cell></t:table-row></t:table>"
_NOTE = '<w:r><w:footnoteReference w:id="1"/></w:r>'
_NOTED = f"<w:p>{_NOTE}<w:r><w:t> {'a ' * 1000}</w:t></w:r></w:p>"
_NOTES = f'<w:footnotes {W}><w:footnote w:id="1">{_NOTED}</w:footnote></w:footnotes>'
_GREEDY = [  # each with how often "a" stands in it
    pytest.param(lambda: docx(f"<w:p>{_NOTE * 3000}</w:p>", _part("footnotes", _NOTES)), 1000, id="one-note-for-all"),
    pytest.param(
        lambda: _odf(
            "text", _in_each_other("<x:p><x:frame><x:text-box>", "</x:text-box></x:frame></x:p>", 40, "<x:p>a</x:p>")
        ),
        1,
        id="frames-in-frames",
    ),
    pytest.param(
        lambda: _odf("text", _in_each_other("<x:p>b<x:annotation>", "</x:annotation></x:p>", 40, "<x:p>a</x:p>")),
        1,
        id="comments-in-comments",
    ),
    pytest.param(
        lambda: _odf(
            "text",
            "<x:p>a</x:p>",
            '<x:list-style><x:list-level-style-number x:level="9999999999" x:display-levels="9999999999" '
            'x:num-format="1"/></x:list-style>',
        ),
        1,
        id="levels-without-end",
    ),
    pytest.param(lambda: _odf("spreadsheet", _SHEET * 200, _HIDDEN_STYLES), 200, id="styles-of-each-sheet"),
    pytest.param(_placeholders, 10_000, id="placeholders"),
    pytest.param(
        lambda: b"{\\rtf1 " + b"".join(b"{\\header %d}" % at for at in range(60_000)) + b"a}", 1, id="headers"
    ),
    pytest.param(
        lambda: b"<html>" + b"<table><tr><td>" * 70 + b"a " * 100_000 + b"</table>" * 70,
        100_000,
        id="tables-for-layout",
    ),
    pytest.param(
        lambda: b"<html><table>" + b"<tr>" + b"<td rowspan=1000 colspan=1000>a" * 100 + b"<tr><td>a</table>",
        101,
        id="cells-that-span-a-million",
    ),
    pytest.param(
        lambda: b"<html><table>" + b"<tr><td rowspan=1000 colspan=1000>a" * 900 + b"</table>",
        900,
        id="rows-of-cells-that-span-a-million",
    ),
    pytest.param(
        lambda: b"From: a@b.es\nSubject: a\nContent-Type: text/plain; charset=punycode\n\n" + b"b" * 1_000_000,
        1,
        id="square-charset",
    ),
    pytest.param(
        lambda: b'From: a@b.es\nContent-Type: text/plain; x="' + b";" * 200_000 + b'"\n\na',
        1,
        id="header-of-parameters",
    ),
]


@pytest.mark.parametrize(("source", "times"), _GREEDY)
def test_all_is_read_once(readers: FileReaders, source: Callable[[], bytes], times: int):
    """Files that took minutes or gigabytes: what lies in each other, or is looked up again for each piece."""
    pages = pages_of(readers, source())

    assert times == sum(page.text.split().count("a") for page in pages)


def test_a_chapter_is_read_once(readers: FileReaders):
    """However often a book names it: 20 KB had 400,000 pages, for which a worker took half a minute and a gigabyte."""
    book = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<c><rootfile full-path="a/p.opf"/></c>',
        "a/p.opf": '<p><manifest><item id="i" href="b.html"/><item id="j" href="./b.html"/></manifest><spine>'
        + '<itemref idref="i"/><itemref idref="j"/>' * 100_000
        + "</spine></p>",
        "a/b.html": "<html><p>a</p></html>",
    }

    assert ["a"] == [page.text for page in pages_of(readers, zipped(book))]


def _row(*texts: str) -> str:
    cells = "".join(f"<w:tc><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>" for text in texts)
    return f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"


def _form(fields: int) -> bytes:
    """A PDF of one page with so many fields to fill in."""
    file = pikepdf.new()
    page = file.add_blank_page(page_size=(600, 800))
    look = pikepdf.String("/Helv 8 Tf 0 g")
    field = {"Subtype": pikepdf.Name.Widget, "FT": pikepdf.Name.Tx, "DA": look, "Rect": pikepdf.Array([0, 0, 9, 9])}
    names = (pikepdf.Dictionary(**field, T=pikepdf.String(str(at))) for at in range(fields))
    page.Annots = pikepdf.Array([file.make_indirect(one) for one in names])
    file.Root.AcroForm = pikepdf.Dictionary(Fields=page.Annots, DA=look)
    target = io.BytesIO()
    file.save(target)
    return target.getvalue()


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        pytest.param(lambda: _form(50_000), "annotations and form fields: 50000", id="fields-of-a-form"),
        pytest.param(lambda: docx(_row("a", "a " * 200_000) * 2), "words", id="words-to-draw"),
    ],
)
def test_a_page_that_is_refused(readers: FileReaders, source: Callable[[], bytes], fault: str):
    """A 4xx that says why, before PDFium takes minutes for it or ends the process."""
    before = readers.counts()
    with readers.open(source()) as file, pytest.raises(TooLarge, match=fault):
        readers.render(file, 1)

    assert (before.died, before.late) == (readers.counts().died, readers.counts().late)


def test_messages_in_messages(readers: FileReaders) -> None:
    """Those that lie too deep are named, as archives are."""
    told = []
    for depth in (3, 4):
        with readers.open(_messages_in_messages(depth)) as file:
            told.append((file.info.page_count, "more than 4 deep" in file.info.metadata.get("not_read", "")))

    assert [(4, False), (4, True)] == told


def test_links_are_not_followed(readers: FileReaders):
    """A picture that lies outside of the file is none of it."""
    picture = (
        '<w:p><w:r><w:t>a</w:t></w:r><w:r><w:drawing><a:blip xmlns:a="urn:a" xmlns:r="urn:r" r:embed="p"/></w:drawing>'
        "</w:r></w:p>"
    )
    outside = relations(("p", "image", "file:///etc/passwd")).replace("/>", ' TargetMode="External"/>')
    for links in (outside, relations(("p", "image", "../../../etc/passwd"))):
        source = docx(picture, {"word/_rels/document.xml.rels": links})

        assert ["a"] == [page.text for page in pages_of(readers, source)]


def test_a_cell_that_is_repeated_a_million_times(readers: FileReaders):
    """As often as a sheet could show it."""
    cell = _CELL.replace("<t:table-row", '<t:table-row t:number-rows-repeated="1048576"')
    source = _odf("spreadsheet", f"<t:table>{cell}</t:table>")
    started_s = time.monotonic()
    with readers.open(source) as file:
        assert 1 == file.info.page_count

    assert time.monotonic() - started_s < 15
