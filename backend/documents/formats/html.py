"""HTML to look at and to copy from: headings, paragraphs, and tables with their spans. Text is only ever text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backend.documents.formats.markdown import body_size, heading_level
from backend.documents.formats.page_flow import page_flow
from backend.files.markup import escaped, language_tag
from backend.files.pages import Document, Word
from backend.invoices.structure import tables_or_none
from backend.tables.records import Table, TableCell

_HEAD = """<!doctype html>
<html{lang}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border: 1px solid #999; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top; }}
td.number {{ text-align: right; }}
section + section {{ border-top: 1px dashed #999; }}
</style>
</head>
<body>
"""


def stream_html(document: Document, tables: Sequence[Table] | None = None) -> Iterator[bytes]:
    """The HTML, page by page, each a section.

    Args:
        tables: the document's, where they were found before.
    """
    tables = tables_or_none(document, tables)
    language = next((tag for page in document.pages if (tag := language_tag(page.language))), None)
    title = document.metadata.get("title", "") or "document"
    yield _HEAD.format(lang=f' lang="{language}"' if language else "", title=escaped(title)).encode()
    size = body_size(document)
    for page in document.pages:
        parts = [
            table_html(part) if isinstance(part, Table) else _paragraph(part, heading_level(page, part, size))
            for part in page_flow(page, tables)
        ]
        yield f'<section id="page-{page.number}">\n{"".join(parts)}</section>\n'.encode()
    yield b"</body>\n</html>\n"


def _paragraph(lines: list[list[Word]], level: int) -> str:
    texts = (escaped(" ".join(word.text for word in line)) for line in lines)
    name = f"h{level}" if level else "p"
    return f"<{name}>{'<br>'.join(texts)}</{name}>\n"


def table_html(table: Table) -> str:
    """One table, with its spans."""
    grid: list[list[TableCell | None]] = [[None] * table.columns for _ in range(table.rows)]
    for cell in table.cells:
        for row in grid[cell.row : cell.row + cell.rowspan]:
            row[cell.column : cell.column + cell.colspan] = [cell] * cell.colspan
    lines = [f"<tr>{''.join(_row(cells, index))}</tr>\n" for index, cells in enumerate(grid)]
    return f"<table>\n{''.join(lines)}</table>\n"


def _row(cells: list[TableCell | None], row: int) -> Iterator[str]:
    """The cells that begin in a row, and empty ones where no cell is."""
    for column, cell in enumerate(cells):
        if cell is None:
            yield "<td></td>"
        elif (cell.row, cell.column) == (row, column):
            yield _cell(cell)


def _cell(cell: TableCell) -> str:
    name = "th" if cell.header else "td"
    spans = f' rowspan="{cell.rowspan}"' if cell.rowspan > 1 else ""
    spans += f' colspan="{cell.colspan}"' if cell.colspan > 1 else ""
    number = ' class="number"' if cell.value is not None and not cell.header else ""
    return f"<{name}{spans}{number}>{escaped(cell.text)}</{name}>"
