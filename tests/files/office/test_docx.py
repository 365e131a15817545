"""Word documents written by hand: what only some of them have."""

import pytest

from backend.files.file_readers import FileReaders
from tests.files.office.office_files import W, docx, pages_of, relations


def _text(readers: FileReaders, body: str) -> list[str]:
    return [page.text for page in pages_of(readers, docx(body))]


def _p(*runs: str) -> str:
    return "<w:p>" + "".join(run if run.startswith("<") else f"<w:r><w:t>{run}</w:t></w:r>" for run in runs) + "</w:p>"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(_p("uno <w:br/>"), ["uno"], id="text"),
        pytest.param(_p("a", "<w:ins><w:r><w:t>b</w:t></w:r></w:ins>"), ["ab"], id="inserted"),
        pytest.param(_p("a", "<w:moveFrom><w:r><w:t>b</w:t></w:r></w:moveFrom>"), ["a"], id="moved-away"),
        pytest.param(_p("a", "<w:r><w:rPr><w:vanish/></w:rPr><w:t>b</w:t></w:r>"), ["a"], id="hidden"),
        pytest.param(_p("a", "<w:r><w:instrText>PAGE</w:instrText></w:r>"), ["a"], id="instruction-of-a-field"),
        pytest.param(_p("a", "<w:hyperlink><w:r><w:t>b</w:t></w:r></w:hyperlink>"), ["ab"], id="link"),
        pytest.param(_p("a", '<w:r><w:br w:type="page"/></w:r>', "b"), ["a", "b"], id="page-break"),
        pytest.param(
            _p("a") + _p("b ", "<w:r><w:lastRenderedPageBreak/></w:r>", "c") + _p("d"),
            ["a\n\nb c", "d"],
            id="a-page-that-word-began-parts-no-paragraph",
        ),
        pytest.param(f"<w:sdt><w:sdtContent>{_p('a')}</w:sdtContent></w:sdt>", ["a"], id="content-control"),
        pytest.param(
            "<w:p><w:r><w:pict><w:txbxContent>" + _p("caja") + "</w:txbxContent></w:pict></w:r></w:p>",
            ["caja"],
            id="text-box",
        ),
        pytest.param(
            f"<w:tbl><w:tr><w:tc>{_p('a')}<w:tbl><w:tr><w:tc>{_p('b')}</w:tc></w:tr></w:tbl></w:tc><w:tc>{_p('c')}"
            "</w:tc></w:tr></w:tbl>",
            ["a\nb\nc"],
            id="table-in-a-cell",
        ),
    ],
)
def test_text(readers: FileReaders, body: str, expected: list[str]):
    assert expected == _text(readers, body)


def test_cells_that_go_on_below(readers: FileReaders):
    """A merged cell is one over its rows."""
    merge, goes_on = '<w:tcPr><w:vMerge w:val="restart"/></w:tcPr>', "<w:tcPr><w:vMerge/></w:tcPr>"
    rows = (
        f"<w:tc>{merge}{_p('a')}</w:tc><w:tc>{_p('b')}</w:tc>",
        f"<w:tc>{goes_on}{_p()}</w:tc><w:tc>{_p('c')}</w:tc>",
    )
    (page,) = pages_of(readers, docx("<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"))

    assert [(0, 0, 2, 1), (0, 1, 1, 1), (1, 1, 1, 1)] == [cell[:4] for cell in page.grids[0].cells]


def test_a_long_paragraph_is_one_line(readers: FileReaders):
    """It is wrapped on the page, and no line break gets into its text."""
    (page,) = pages_of(readers, docx(_p("palabra " * 60)))

    assert " ".join(["palabra"] * 60) == page.text
    assert len({word.box.top for word in page.words}) > 3
    assert {0} == {word.line for word in page.words}


@pytest.mark.parametrize("source", [docx(_p("palabra " * 60_000)), b"palabra " * 60_000])
def test_a_paragraph_that_fills_pages(readers: FileReaders, source: bytes):
    """It goes on on the next page: what reads or writes a page holds Python's lock until it is done."""
    pages = pages_of(readers, source)

    assert ["palabra"] * 60_000 == [word.text for page in pages for word in page.words]
    assert 4 < len(pages) < 10


def test_a_word_that_fills_pages(readers: FileReaders):
    """A search in a page's text holds Python's lock until it is done: 0.5 s for a word of four million."""
    pages = pages_of(readers, b"ab" * 500_000)

    assert ["ab" * 100_000] * 5 == [page.text for page in pages]


def test_levels_of_a_list(readers: FileReaders):
    """Numbers count by level."""
    levels = (
        '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
        '<w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl>'
    )
    numbering = (
        f'<w:numbering {W}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum><w:num w:numId="1">'
        '<w:abstractNumId w:val="0"/></w:num></w:numbering>'
    )
    body = "".join(
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="1"/></w:numPr></w:pPr>{_p(text)[5:]}'
        for level, text in ((0, "uno"), (1, "dos"), (1, "tres"), (0, "cuatro"), (1, "cinco"))
    )
    more = {
        "word/numbering.xml": numbering,
        "word/_rels/document.xml.rels": relations(("n", "numbering", "numbering.xml")),
    }
    (page,) = pages_of(readers, docx(body, more))

    assert ["1. uno", "1.a) dos", "1.b) tres", "2. cuatro", "2.a) cinco"] == page.text.split("\n")


def test_lists_of_one_definition(readers: FileReaders):
    """They count on, as LibreOffice writes a list in two, but where one starts anew."""
    level = '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
    anew = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>'
    lists = "".join(
        f'<w:num w:numId="{number}"><w:abstractNumId w:val="0"/>{override}</w:num>'
        for number, override in ((1, ""), (2, anew), (3, anew))
    )
    definition = f'<w:abstractNum w:abstractNumId="0">{level}</w:abstractNum>'
    more = {
        "word/numbering.xml": f"<w:numbering {W}>{definition}{lists}</w:numbering>",
        "word/_rels/document.xml.rels": relations(("n", "numbering", "numbering.xml")),
    }
    body = "".join(
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="{number}"/></w:numPr></w:pPr>{_p(text)[5:]}'
        for number, text in ((2, "uno"), (1, "dos"), (2, "tres"), (3, "otro"), (3, "más"))
    )
    (page,) = pages_of(readers, docx(body, more))

    assert ["1. uno", "2. dos", "3. tres", "1. otro", "2. más"] == page.text.split("\n")


def test_notes_are_unpacked_once(readers: FileReaders):
    """Sixty notes in a part of two megabytes are not refused as a hundred and twenty."""
    notes = "".join(f'<w:footnote w:id="{at}">{_p(f"n{at}")}</w:footnote>' for at in range(60)) + " " * 2 * 2**20
    body = _p("a", *(f'<w:r><w:footnoteReference w:id="{at}"/></w:r>' for at in range(60)))
    more = {
        "word/footnotes.xml": f"<w:footnotes {W}>{notes}</w:footnotes>",
        "word/_rels/document.xml.rels": relations(("n", "footnotes", "footnotes.xml")),
    }
    *_, page = pages_of(readers, docx(body, more))

    assert page.text.endswith("[60] n59")
