"""Sets text and tables onto pages, for files that have none of their own. Runs in the workers only.

Every letter is as wide as every other, so a word's box follows from its place in the text. A paragraph is one line of
the word model, however often it is wrapped: no line break stands in it that its author did not make, but for the ends
of pages in one that is longer than a page may be.
"""

from __future__ import annotations

import ctypes
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from PIL import Image
from pypdfium2 import raw

from backend.errors import BadInput, TooLarge
from backend.files.image_file import ImageFile
from backend.files.limits import FileLimits
from backend.files.pages import POINTS_PER_INCH, Grid, GridCell, printable_line
from backend.files.records import LayerStats, PageSize
from backend.files.text_layout import LayoutWords

_WIDTH, _HEIGHT = 595.0, 842.0  # A4 in points
_MARGIN, _LETTER, _PITCH, _TALL = 48.0, 5.4, 14.0, 9.0  # points: a letter's width, a line's, a letter's height
_COLUMNS = int((_WIDTH - 2 * _MARGIN) / _LETTER)
_TABULATOR = 8  # letters
_GAP = 3  # letters between columns: twice what parts two cells of a row
_SHORT_CELL = 12  # letters; a column is as wide as those, even of texts that could run on
_WIDEST_CELL = 60  # letters, before it is wrapped
_NARROWEST_CELL = 28  # before the page is made wider
_DPI, _DPI_OF_PICTURES = 110.0, 200.0  # of a drawn page; with pictures, in which a code is to be found
_PIXEL = 0.75  # points of a picture's pixel, as browsers and offices show it
_LARGE = 0.4  # of a page's height: a picture as tall is a scan, and is read on a page of its own
_LONGEST_NAME = 200
_BASELINE = 0.8  # of a letter's height, below its upper edge
_LEAST_WORD = 4  # characters a word with its blank, in the mean of a file: a word takes 500 bytes, however short
_MAX_DRAWN = 100_000  # words of a page; PDFium ends the process where its memory ends
# Of a page, as long as it can be parted: a parser of its words holds Python's lock, .7 s for 800,000 of them.
_PAGE_CHARS, _PAGE_WORDS = 100_000, 20_000
_MAX_PLACES = 10  # in tables, for each line and cell that a file may have

_NO_SPANS: Mapping[tuple[int, int], tuple[int, int]] = {}

Sides = tuple[float, float, float, float]


class Cell(NamedTuple):
    """One cell of a table. Its paragraphs are parted by line breaks."""

    row: int  # from 0
    column: int  # from 0
    text: str
    rowspan: int = 1
    colspan: int = 1


class SetPicture(NamedTuple):
    """A picture on a page: it stands among its words, and its own are read by OCR."""

    name: str
    first: int  # words of the page before it
    box: Sides
    file: ImageFile


@dataclass(slots=True)
class SetPage:
    """A page while it is being set, and afterwards."""

    part: str = ""  # the sheet, slide or chapter that it is of
    width: float = _WIDTH
    height: float = _HEIGHT
    texts: list[str] = field(default_factory=list)
    boxes: array[float] = field(default_factory=lambda: array("f"))  # four sides of each word
    lines: array[int] = field(default_factory=lambda: array("i"))
    blocks: array[int] = field(default_factory=lambda: array("i"))
    margin: float = _MARGIN
    grids: list[Grid] | None = field(default_factory=list)  # None: tables are found by how the words stand
    pictures: list[SetPicture] = field(default_factory=list)
    bottom: float = _MARGIN  # where the next line begins
    line: int = 0  # index of the next line
    block: int = 0

    def add(self, word: str, left: float, top: float, size: float = 1.0) -> None:
        right, bottom = left + len(word) * _LETTER * size, top + _TALL * size
        self.texts.append(word)
        self.boxes.extend((left, top, right, bottom))
        self.lines.append(self.line)
        self.blocks.append(self.block)
        self.reach(right, bottom)

    def add_picture(self, name: str, file: ImageFile, box: Sides) -> None:
        """A picture among the words so far; all of the page is its place where the box is not on it."""
        left, top = max(0.0, box[0]), max(0.0, box[1])
        right, bottom = min(self.width, box[2]), min(self.height, box[3])
        if right - left < 1 or bottom - top < 1:
            left, top, right, bottom = 0.0, 0.0, self.width, self.height
        self.pictures.append(SetPicture(name, len(self.texts), (left, top, right, bottom), file))

    @property
    def lone_picture(self) -> SetPicture | None:
        """What is all that the page shows."""
        return self.pictures[0] if len(self.pictures) == 1 and not self.texts else None

    @property
    def is_empty(self) -> bool:
        return not self.texts and not self.pictures

    def reach(self, right: float, bottom: float) -> None:
        """Make the page as large as what ends there needs."""
        self.width, self.height = max(self.width, right + self.margin), max(self.height, bottom + self.margin)


class PageSetter:
    """Sets what a reader finds onto pages, in its order.

    Raises: TooLarge, from every method that takes text, for more characters than LIMIT_DOCUMENT_CHARS, or more
        lines and cells than LIMIT_DOCUMENT_LINES, or tables that are far larger than what stands in them.
    """

    def __init__(self, limits: FileLimits) -> None:
        self.pages: list[SetPage] = []
        self.has_pages = False  # the file says itself where pages end: none is ended because it is full
        self._limits = limits
        self._characters = self._lines = self._words = 0
        self._places = 0  # that answers write out, whether anything stands there or not
        self._part = ""
        self._list = ""  # the form of marks of the list that the last paragraph was an item of

    def begin_part(self, name: str) -> None:
        """What follows is of another sheet, slide or chapter, and begins a page."""
        self._part = printable_line(name)[:_LONGEST_NAME]
        self.pages.append(SetPage(self._part))
        self._list = ""

    def break_page(self) -> None:
        """Go on on a new page, unless this one is empty."""
        if self.pages and not self.pages[-1].is_empty:
            self.pages.append(SetPage(self._part))
            self._list = ""

    def paragraph(self, text: str, size: float = 1.0, *, mark: str = "") -> None:
        """A paragraph; its line breaks and tabulators are kept. Items of a list that follow each other are one block.

        Args:
            size: of its letters, by that of the body's.
            mark: of an item of a list: a bullet or a number.
        """
        self._count(mark + text)
        rows = [printable_row(row) for row in f"{mark} {text}".split("\n")]
        if not any(rows):
            return
        page = self._page(len(rows))
        form = mark and ("number" if mark[0].isalnum() else "bullet")
        if not form or form != self._list:
            page.block += bool(page.texts)
            page.bottom += 0.0 if page.is_empty else 0.5 * _PITCH
        self._list = form
        for index, part in enumerate(_parts_of(rows)):
            if index and len(self.pages) < self._limits.pages:
                self.break_page()
                page = self.pages[-1]
            for row in filter(None, part):
                page.bottom += _PITCH * size * _set_row(page, row, _MARGIN, page.bottom, columns=_COLUMNS, size=size)
                page.line += 1

    def typewritten(self, lines: Sequence[str]) -> None:
        """Lines as a typewriter sets them, on a page of their own; see `set_typewritten`."""
        self._count("\n".join(lines))
        for index, part in enumerate(_parts_of(lines)):
            if not index or len(self.pages) < self._limits.pages:
                self.pages.append(SetPage(self._part))
            set_typewritten(self.pages[-1], part)

    def table(
        self,
        cells: Iterable[Cell],
        *,
        header_rows: int | None = None,
        is_sheet: bool = False,
        on: SetPage | None = None,
        left: float = _MARGIN,
        spans: Mapping[tuple[int, int], tuple[int, int]] = _NO_SPANS,
    ) -> None:
        """A table, on one page however long it is. Rows and columns without a word are left out.

        Args:
            cells: counted as they come, so that a generator is not read beyond the limit.
            header_rows: None where the file does not tell: the first row is one that names columns of figures.
            is_sheet: a text may run on over empty cells, and an empty row begins another table.
            on: the page to set it on, whose ``bottom`` is its upper edge; None: where the last paragraph was set.
            left: its left edge.
            spans: rows and columns of merged cells by the place of the first; looked at when ``cells`` have ended.
        """
        filled = []
        for cell in cells:
            self._count(cell.text)
            paragraphs = [row for row in map(printable_row, cell.text.split("\n")) if row]
            if paragraphs:
                filled.append(_Filled(cell, paragraphs))
        if not filled:
            return
        for one in filled if spans else ():
            down, right = spans.get((one.row, one.column), (1, 1))
            one.cell = one.cell._replace(rowspan=max(1, down), colspan=max(1, right))
        filled.sort(key=lambda one: (one.row, one.column))
        page = on or self._page(len({one.row for one in filled}))
        self._list = ""
        page.bottom += 0.0 if page.is_empty else 0.5 * _PITCH
        page.block += bool(page.texts)
        tables = list(_tables_of_sheet(filled)) if is_sheet else [filled]
        columns, widths = _columns(filled, runs_on=is_sheet)
        lefts = {column: left + letters * _LETTER for column, letters in columns.items()}
        for index, part in enumerate(tables):
            page.block += bool(index)
            page.bottom += _PITCH * bool(index)
            self._places += _set_table(page, part, lefts, widths, header_rows, runs_on=is_sheet)
            self.check_places(0)

    def placed(self, page: SetPage, text: str, box: Sides, size: float) -> None:
        """A paragraph at a place of its own; what stands in the box already is not looked at.

        Args:
            box: left, top, right, bottom; the text goes on below it where it does not fit.
            size: as in `paragraph`.
        """
        page.block += bool(page.texts)
        self._count(text)
        columns, top = max(4, int((box[2] - box[0]) / (_LETTER * size))), box[1]
        for row in map(printable_row, text.split("\n")):
            if row:
                top += _PITCH * size * _set_row(page, row, box[0], top, columns=columns, size=size)
                page.line += 1
        page.bottom = max(page.bottom, top)

    def picture(self, name: str, file: ImageFile, width: float, height: float) -> None:
        """A picture where the last paragraph was set; a large one on a page of its own, unless the file has pages.

        Args:
            width, height: in its pixels.
        """
        scale = min(_PIXEL, (_WIDTH - 2 * _MARGIN) / width, (_HEIGHT - 2 * _MARGIN) / height)
        is_large = height * scale > _LARGE * _HEIGHT and not self.has_pages
        if is_large and len(self.pages) < self._limits.pages:
            self.break_page()
        page = self._page(int(height * scale / _PITCH))
        page.bottom += 0.0 if page.is_empty else 0.5 * _PITCH
        self._list = ""
        right, bottom = _MARGIN + width * scale, page.bottom + height * scale
        page.reach(right, bottom)
        page.add_picture(name, file, (_MARGIN, page.bottom, right, bottom))
        page.bottom = max(_HEIGHT, bottom) if is_large else bottom

    def _page(self, rows: int) -> SetPage:
        """The page for so many rows, which are not parted: a new one where the last is full."""
        if not self.pages:
            self.pages.append(SetPage(self._part))
        page = self.pages[-1]
        is_full = page.bottom + rows * _PITCH > _HEIGHT - _MARGIN and not page.is_empty
        is_full = is_full and (not self.has_pages or len(page.texts) > _PAGE_WORDS)
        if is_full and page.grids is not None and len(self.pages) < self._limits.pages:
            self.break_page()
        return self.pages[-1]

    def check_lines(self, more: int) -> None:
        """Raises: TooLarge where so many lines and cells are too many that were found, and will be set later."""
        self._check(
            "paragraphs, lines and cells", self._lines + more, self._limits.document_lines, "LIMIT_DOCUMENT_LINES"
        )

    def check_places(self, more: int) -> None:
        """Raises: TooLarge where so many places of tables are too many that were found, and will be set later."""
        what = "places in tables, empty ones too,"
        self._check(what, self._places + more, _MAX_PLACES * self._limits.document_lines, "LIMIT_DOCUMENT_LINES")

    def bounded(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """The cells of a table that will be set later. Raises: as `check_lines`, as soon as there are too many."""
        for count, cell in enumerate(cells, 1):
            self.check_lines(count)
            yield cell

    def _count(self, text: str) -> None:
        self._lines += 1 + text.count("\n")
        self.check_lines(0)
        self._characters += len(text)
        self._check("characters", self._characters, self._limits.document_chars, "LIMIT_DOCUMENT_CHARS")
        self._words += len(text.split())
        self._check("words", self._words, self._limits.document_chars // _LEAST_WORD, "LIMIT_DOCUMENT_CHARS")

    def _check(self, what: str, count: int, limit: int, setting: str) -> None:
        if count > limit:
            raise TooLarge(
                f"{what} of the file, at least", count, limit, setting,
                advice="Split it.", param="file",
            )  # fmt: skip


def _parts_of(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of a paragraph by the pages that they fill; a longer one is cut at blanks, a word as long in itself."""
    part, characters = list[str](), 0
    for line in lines:
        for piece in _PIECES.findall(line) or [""]:
            if part and characters + len(piece) > _PAGE_CHARS:
                yield part
                part, characters = [], 0
            part.append(piece)
            characters += len(piece)
    yield part


_PIECES = re.compile(rf"[\s\S]{{{_PAGE_CHARS}}}\S{{,{_PAGE_CHARS}}}|[\s\S]+")


def set_typewritten(page: SetPage, lines: Iterable[str]) -> None:
    """Set lines as a typewriter does: two blanks part columns, an empty line parts blocks. Tables are to be found."""
    page.grids = None
    was_blank = False
    for line in lines:
        row = line.expandtabs(_TABULATOR)
        column, is_blank = 0, not row.strip()
        page.block += bool(was_blank and not is_blank and page.texts)
        was_blank = is_blank
        for word in row.split(" "):
            if word and (shown := printable_line(word)):
                page.add(shown, _MARGIN + column * _LETTER, page.bottom)
            column += len(word) + 1
        page.line += not is_blank
        page.bottom += _PITCH


def printable_row(text: str) -> str:
    """A text on one line: blanks are one, tabulators stay."""
    if "\t" not in text:
        return printable_line(text)
    return "\t".join(printable_line(part) for part in text.split("\t")).rstrip("\t")


def _set_row(page: SetPage, text: str, left: float, top: float, *, columns: int, size: float = 1.0) -> int:
    """Set a text on one line of the word model, wrapped after so many letters. Returns: how many rows it took."""
    column = row = 0
    for index, part in enumerate(text.split("\t")):
        if index:
            column = (column + _GAP + _TABULATOR - 1) // _TABULATOR * _TABULATOR
        for word in part.split():
            if column and column + len(word) > columns:
                column, row = 0, row + 1
            page.add(word, left + column * _LETTER * size, top + row * _PITCH * size, size)
            column += len(word) + 1
    return row + 1


@dataclass(slots=True)
class _Filled:
    """A cell with words."""

    cell: Cell
    paragraphs: list[str]

    @property
    def row(self) -> int:
        return self.cell.row

    @property
    def column(self) -> int:
        return self.cell.column

    @property
    def longest(self) -> int:
        return max(map(len, self.paragraphs))


def _tables_of_sheet(filled: Sequence[_Filled]) -> Iterator[list[_Filled]]:
    """The cells of rows that follow each other."""
    part: list[_Filled] = []
    last = 0
    for one in filled:
        if part and one.row > last + 1:
            yield part
            part = []
        part.append(one)
        last = max(last, one.row + one.cell.rowspan - 1)
    yield part


def _columns(filled: Sequence[_Filled], *, runs_on: bool) -> tuple[dict[int, int], dict[int, int]]:
    """Where each column begins and how wide it is, in letters."""
    widths = dict.fromkeys(sorted({one.column for one in filled}), 1)
    for index, one in enumerate(filled):
        follows = index + 1 < len(filled) and filled[index + 1].row == one.row
        is_last = not follows or filled[index + 1].column > one.column + one.cell.colspan
        if one.cell.colspan == 1 and not (runs_on and is_last and one.longest > _SHORT_CELL):
            widths[one.column] = max(widths[one.column], min(one.longest, _WIDEST_CELL))
    room = _COLUMNS - _GAP * (len(widths) - 1)
    if not runs_on and sum(widths.values()) > room:
        narrow = max(_NARROWEST_CELL, room // len(widths))
        spare = max(0, room - sum(min(width, narrow) for width in widths.values()))
        wide = sum(max(0, width - narrow) for width in widths.values())
        for column, width in widths.items():
            if width > narrow:
                widths[column] = narrow + spare * (width - narrow) // wide
    lefts, left = {}, 0
    for column, width in widths.items():
        lefts[column] = left
        left += width + _GAP
    return lefts, widths


def _set_table(
    page: SetPage,
    filled: Sequence[_Filled],
    lefts: dict[int, float],
    widths: dict[int, int],
    header_rows: int | None,
    *,
    runs_on: bool,
) -> int:
    """The cells from left to right and top to bottom; on one line of the word model where none has two paragraphs.

    Returns: the places of the table, and those that its cells take.
    """
    columns = sorted({one.column for one in filled})
    rows = sorted({one.row for one in filled})
    cells: list[GridCell] = []
    known = list(lefts)
    for _, members in groupby(filled, key=lambda one: one.row):
        row, tall = list(members), 1
        is_one_line = all(len(one.paragraphs) == 1 for one in row)
        for index, one in enumerate(row):
            first, end = len(page.texts), one.column + one.cell.colspan
            beyond = row[index + 1].column if index + 1 < len(row) else None
            width = _room(one, known, lefts, widths, beyond)
            if runs_on and beyond is None:
                width = max(width, 2 * _WIDEST_CELL)
            height = 0
            for paragraph in one.paragraphs:
                top = page.bottom + height * _PITCH
                height += _set_row(page, paragraph, lefts[one.column], top, columns=width)
                page.line += not is_one_line
            tall = max(tall, height if one.cell.rowspan == 1 else height - one.cell.rowspan + 1)
            column_at, row_at = bisect_left(columns, one.column), bisect_left(rows, one.row)
            across = bisect_left(columns, end) - column_at
            down = bisect_left(rows, one.row + one.cell.rowspan) - row_at
            place = (row_at, column_at, down, across)
            cells.append(GridCell(*place, first, len(page.texts)))
        page.line += is_one_line
        page.bottom += tall * _PITCH
    page.block += 1
    if len(rows) > 1 and len(columns) > 1 and page.grids is not None:
        header = _header_rows(page, cells) if header_rows is None else min(header_rows, len(rows))
        page.grids.append(Grid(len(rows), len(columns), header, tuple(cells)))
    return len(rows) * len(columns) + sum(cell.rowspan * cell.colspan for cell in cells)


def _room(
    one: _Filled, known: Sequence[int], lefts: dict[int, float], widths: dict[int, int], beyond: int | None
) -> int:
    """Letters that fit a cell before the next one of its row."""
    if beyond is None:
        last = known[bisect_left(known, one.column + one.cell.colspan) - 1]
        return round((lefts[last] - lefts[one.column]) / _LETTER) + widths[last]
    return max(widths[one.column], round((lefts[beyond] - lefts[one.column]) / _LETTER) - _GAP)


def _header_rows(page: SetPage, cells: Sequence[GridCell]) -> int:
    """1 where the first row is full of words and figures stand below it, else 0."""

    def has_figure(cell: GridCell) -> bool:
        return any(character.isdigit() for text in page.texts[cell.first : cell.past] for character in text)

    first = [cell for cell in cells if cell.row == 0]
    columns = max(cell.column + cell.colspan for cell in cells)
    is_full = sum(cell.colspan for cell in first) >= columns and not any(map(has_figure, first))
    return int(is_full and any(has_figure(cell) for cell in cells if cell.row))


class SetFile:
    """A file whose pages were set here."""

    def __init__(self, pages: Sequence[SetPage], metadata: dict[str, str]) -> None:
        self.pages = list(pages) or [SetPage()]
        self.metadata = metadata

    def info(self) -> dict[str, Any]:
        """Page count, sizes, metadata."""
        sizes = [(page.width, page.height) for page in self.pages]
        return {"page_count": len(self.pages), "sizes": sizes, "metadata": self.metadata}

    def grids(self, number: int) -> list[Grid] | None:
        """The tables of a page (from 1) as the file has them; None where they are to be found."""
        return self.pages[number - 1].grids

    def pictures(self, number: int) -> list[SetPicture]:
        """The pictures on a page (from 1), in the order of its words."""
        return self.pages[number - 1].pictures

    def text_layer(self, number: int) -> tuple[LayoutWords, LayerStats, PageSize, NDArray[np.float32]]:
        """The words of a page (from 1), statistics, its size, and no lines."""
        page = self.pages[number - 1]
        boxes = _boxes(page)
        words = LayoutWords(page.texts, boxes, np.array(page.lines, np.int32), np.array(page.blocks, np.int32), 0)
        stats = LayerStats(characters=sum(map(len, page.texts)), objects=len(page.texts), is_set=True)
        return words, stats, PageSize(page.width, page.height), np.empty((0, 4), np.float32)

    def render(self, number: int, turn: int, *, color: bool, most_pixels: int) -> dict[str, Any]:
        """A page (from 1) as `ImageFile.render` gives it: dark letters on white."""
        page = self.pages[number - 1]
        if len(page.texts) > _MAX_DRAWN:
            what = f"page {number}: words to draw"
            raise TooLarge(what, len(page.texts), _MAX_DRAWN, "no setting", advice="Read its text.", param="file")
        dpi = _DPI_OF_PICTURES if page.pictures else _DPI
        scale = min(dpi / POINTS_PER_INCH, (most_pixels / (page.width * page.height)) ** 0.5)
        size = (max(1, int(page.width * scale)), max(1, int(page.height * scale)))
        image = _drawn_words(page, size).convert("RGB" if color else "L")
        for picture in page.pictures:
            _paste(image, picture, scale)
        turned = np.ascontiguousarray(np.rot90(np.asarray(image), -turn // 90))
        sides = (page.width, page.height) if turn % 180 == 0 else (page.height, page.width)
        return {
            "pixels": turned, "width": sides[0], "height": sides[1], "scale_x": scale, "scale_y": scale,
            "dpi": scale * POINTS_PER_INCH, "incomplete": "",
        }  # fmt: skip

    def close(self) -> None:
        """Nothing is held open between calls."""


def _boxes(page: SetPage) -> NDArray[np.float32]:
    return np.array(page.boxes, np.float32).reshape(-1, 4)


def _drawn_words(page: SetPage, size: tuple[int, int]) -> Image.Image:
    """The words in PDFium's own Courier, which is as wide as boxes are; letters that it lacks are question marks.

    Pillow's own font has no accents, and a worker may read no font of the system.
    """
    with closing(pdfium.PdfDocument.new()) as pdf:
        sheet = pdf.new_page(page.width, page.height)
        for text, (left, top, _, bottom) in zip(page.texts, _boxes(page).tolist(), strict=True):
            word = raw.FPDFPageObj_NewTextObj(pdf.raw, b"Courier", bottom - top)
            letters = (text.encode("cp1252", "replace").decode("cp1252", "replace") + "\0").encode("utf-16-le")
            raw.FPDFText_SetText(word, (ctypes.c_ushort * (len(letters) // 2)).from_buffer_copy(letters))
            raw.FPDFPageObj_Transform(word, 1, 0, 0, 1, left, page.height - top - _BASELINE * (bottom - top))
            raw.FPDFPage_InsertObject(sheet.raw, word)
        sheet.gen_content()
        bitmap = pdfium.PdfBitmap.new_native(*size, raw.FPDFBitmap_Gray)
        bitmap.fill_rect((255, 255, 255, 255), 0, 0, *size)
        raw.FPDF_RenderPageBitmap(bitmap.raw, sheet.raw, 0, 0, *size, 0, raw.FPDF_ANNOT)
        return Image.fromarray(bitmap.to_numpy().reshape(size[1], size[0]).copy())


def _paste(image: Image.Image, picture: SetPicture, scale: float) -> None:
    """Draw a picture at its place; one that is broken leaves it white."""
    left, top, right, bottom = (round(side * scale) for side in picture.box)
    with suppress(BadInput):
        shown, _ = picture.file.upright(1, 0)
        image.paste(shown.resize((max(1, right - left), max(1, bottom - top))), (left, top))
