"""CSV, Excel, HTML and Markdown of documents with tables and fields."""

import csv
import io
import time
from dataclasses import replace

import openpyxl
import pytest
from lxml import html as lxml_html
from markdown_it import MarkdownIt

from backend.documents.formats import table_files
from backend.documents.formats.html import stream_html
from backend.documents.formats.markdown import stream_markdown
from backend.documents.formats.page_flow import page_flow
from backend.documents.formats.table_files import stream_csv, stream_workbook
from backend.files.pages import Box, Document, bounding_box
from backend.files.text_files import document_of_text
from backend.tables.records import Table, TableCell

INVOICE = """Aceros del Norte, S.L.           FACTURA
NIF A58818501                    Nº factura: 2026/017
                                 Fecha: 12/03/2026

Here are the goods | as agreed <b>

Código   Concepto          Cantidad    Precio     Importe
0017     Tornillo M8             10     12,00      120,00
0018     =HYPERLINK()             2     40,00       80,00
0019     -Tuerca M8              30     10,00      300,00

                     Base imponible    500,00
                     IVA 21 %          105,00
                     Total             605,00

Gracias por su compra
"""

_PAPER = (Box(0.0, 0.0, 595.0, 842.0),)


@pytest.fixture(scope="module")
def invoice() -> Document:
    return document_of_text(INVOICE)


def _text(stream: object) -> str:
    return b"".join(stream).decode()  # type: ignore[call-overload,no-any-return]


def test_csv_has_the_lines_first(invoice: Document) -> None:
    """Decimals with a point, a list after the other; what looks like a formula is text."""
    blocks = _text(stream_csv(invoice)).split("\r\n\r\n")
    header, *lines = csv.reader(io.StringIO(blocks[0]))

    assert {"Description", "Quantity", "UnitPrice", "Amount"} <= set(header)
    assert ["120.00", "80.00", "300.00"] == [line[header.index("Amount")] for line in lines]
    assert not any(
        text.startswith(("=", "-T")) for block in blocks for row in csv.reader(io.StringIO(block)) for text in row
    )


def test_a_workbook(invoice: Document) -> None:
    """Lines, fields and tables on sheets; amounts are numbers, formulas are text, codes keep their zeros."""
    book = openpyxl.load_workbook(io.BytesIO(b"".join(stream_workbook(invoice))))

    items = list(book["Items"].values)
    amounts = [row[items[0].index("Amount")] for row in items[1:]]
    assert [120, 80, 300] == amounts
    assert {"0017", "0018", "0019"} <= {str(value) for row in book["Items"].values for value in row}
    fields = {row[0]: row[1] for row in book["Fields"].values}
    assert ("2026/017", 605) == (fields["InvoiceId"], fields["InvoiceTotal"])
    assert any(name.startswith("Table") for name in book.sheetnames)
    assert {"s", "n"} >= {cell.data_type for sheet in book for row in sheet for cell in row}, "no formulas"


def test_the_same_document_gives_the_same_workbook(invoice: Document) -> None:
    """No time and no name of a machine is in it."""
    assert b"".join(stream_workbook(invoice)) == b"".join(stream_workbook(invoice))


def test_html(invoice: Document) -> None:
    """Paragraphs and tables in their place; each word once; text is only ever text."""
    page = lxml_html.fromstring(_text(stream_html(invoice)))

    assert page.xpath("//table")
    assert not page.xpath("//b")
    words = " ".join(page.xpath("//body")[0].text_content().split())
    for word in ("Tornillo", "=HYPERLINK()", "<b>", "Gracias"):
        assert 1 == words.count(word), word
    assert words.index("agreed") < words.index("Tornillo") < words.index("Gracias")


def test_csv_has_no_formula_whatever_the_separator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spreadsheet that splits at semicolons, tabs or lines begins no cell with a formula; numbers stay numbers."""
    texts = ["x;=cmd|' /C calc'!A0", "a\t+1", "b\n@sum", "c; -1", "-12.50", '"; =1']
    table = Table(
        (1,), _PAPER, 1, len(texts), tuple(TableCell(0, at, text) for at, text in enumerate(texts)), "ruled", 1.0
    )
    monkeypatch.setattr(table_files, "tables_of", lambda _: (table,))
    written = _text(stream_csv(document_of_text("a")))

    [row] = csv.reader(io.StringIO(written))
    for separator in ",;\t":
        begun = [cell for line in csv.reader(io.StringIO(written), delimiter=separator) for cell in line]
        assert not [cell for cell in begun if cell.lstrip().startswith(("=", "+", "@", "-1 "))]
    assert ["x;'=cmd|' /C calc'!A0", "-12.50"] == [row[0], row[4]]
    assert '","' in written


def test_markdown_tables(invoice: Document) -> None:
    """A table is one for a Markdown parser, its cells shown as they are."""
    tokens = MarkdownIt("commonmark").enable("table").parse(_text(stream_markdown(invoice)))

    assert any(token.type == "table_open" for token in tokens)
    shown = [token.content for token in tokens if token.type == "inline"]
    assert "=HYPERLINK()" in shown
    assert any("goods \\| as agreed" in text for text in shown)


def test_cells_that_span_others_in_html() -> None:
    """Each cell once, where it begins; empty cells only where no other reaches."""
    cells = (
        TableCell(0, 0, "a", rowspan=2, colspan=2, page=1, boxes=_PAPER), TableCell(0, 2, "b"),
        TableCell(2, 1, "c", colspan=2), TableCell(3, 0, "d"),
    )  # fmt: skip
    table = Table((1,), _PAPER, 4, 3, cells, "ruled", 1.0)
    page = lxml_html.fromstring(_text(stream_html(document_of_text("a b c d"), [table])))

    rows = [[cell.text_content() for cell in row.findall("td")] for row in page.iter("tr")]
    assert [["a", "b"], [""], ["", "c"], ["d", "", ""]] == rows


@pytest.mark.slow
def test_a_table_of_thousands_of_rows_in_html() -> None:
    """In time that grows with its cells, not with their square: 60,000 of them took minutes."""
    cells = tuple(
        TableCell(row, column, "x", page=1, boxes=_PAPER[: row == 0]) for row in range(10_000) for column in range(6)
    )
    table = Table((1,), _PAPER, 10_000, 6, cells, "ruled", 1.0)
    started_s = time.thread_time()
    written = _text(stream_html(document_of_text("x"), [table]))

    assert 60_000 == written.count("<td>x</td>")
    assert time.thread_time() - started_s < 10.0


def test_words_among_the_cells_of_a_table_are_kept() -> None:
    """What stands inside a table's outline and in none of its cells is text beside it; a repeated header is not."""
    page = document_of_text("a   between   b\nc             d").pages[0]
    by_text = {word.text: word.box for word in page.words}
    places = ((0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (1, 1, "d"))
    cells = tuple(TableCell(row, column, text, page=1, boxes=(by_text[text],)) for row, column, text in places)
    table = Table((1,), (bounding_box(by_text.values()),), 2, 2, cells, "borderless", 1.0)
    later = replace(table, pages=(0, 1), boxes=table.boxes * 2, cells=cells[2:])

    flows = [list(page_flow(page, [one])) for one in (table, later)]
    texts = [[word.text for part in flow if isinstance(part, list) for line in part for word in line] for flow in flows]
    assert [["between"], []] == texts
