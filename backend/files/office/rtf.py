"""Reads rich text (RTF): paragraphs, headings, lists, tables, notes, pictures; changes as if all were accepted."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from backend.errors import UnreadableFile
from backend.files.file_types import FileType
from backend.files.office.content import Content
from backend.files.office.numbering import BULLET
from backend.files.set_pages import Cell

_TOKEN = re.compile(
    rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|\\'(?P<code>[0-9a-fA-F]{2})|\\(?P<symbol>[^a-zA-Z])"
    rb"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]{1,65536})|[\r\n]{1,65536}|\\"
)
# Groups that are no text of the document, and that a reader need not know to leave out.
_UNREAD = frozenset({
    "fonttbl", "colortbl", "stylesheet", "info", "themedata", "colorschememapping", "datastore", "latentstyles",
    "listtable", "listoverridetable", "rsidtbl", "generator", "xmlnstbl", "fldinst", "pntext", "nonshppict",
    "objdata", "filetbl", "revtbl", "pgptbl", "mmathPr", "docvar", "wgrffmtfilter", "blipuid", "blipstore",
    "atnid", "atntime", "atnref", "atndate", "atnparent", "atrfstart", "atrfend", "bkmkstart", "bkmkend",
    "ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "template", "userprops", "shpinst", "panose",
    "falt", "picprop", "sp", "defchp", "defpap", "background", "nonesttables",
})  # fmt: skip
_MARKS = {
    "tab": "\t", "line": "\n", "emdash": "\u2014", "endash": "\u2013", "lquote": "\u2018", "rquote": "\u2019",
    "ldblquote": "\u201c", "rdblquote": "\u201d", "bullet": "\u2022", "emspace": " ", "enspace": " ", "qmspace": " ",
}  # fmt: skip
_SYMBOLS = {"~": "\u00a0", "_": "-", "-": "", "\\": "\\", "{": "{", "}": "}"}
_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 134: "gb2312", 136: "big5", 161: "cp1253", 162: "cp1254",
    163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
_CODE_PAGES = {819: "latin-1", 936: "gbk", 1361: "johab", 10000: "mac_roman", 65001: "utf-8"} | {
    page: f"cp{page}"
    for page in (437, 720, 737, 775, 850, 852, 855, 857, 858, *range(860, 867), 869, 874, 932, 949, 950,
                 *range(1250, 1259))
}  # fmt: skip  # of Windows; Python's others are none of text, or cost a search of its folders a word
_DESTINATIONS = frozenset({
    "footnote", "annotation", "atnauthor", "listtext", "header", "headerf", "headerl", "headerr", "footer", "footerf",
    "footerl", "footerr",
})  # fmt: skip  # groups whose text is not that of the paragraph around them
_LEVELS = 9
_ITEM = re.compile(r"(\u2022|\d{1,3}[.)](?=\t))[\t ]{1,9}")  # a mark that is text of its paragraph
_MAX_DEPTH = 200  # of groups in each other
_MAX_PICTURES = 500


class _State(NamedTuple):
    """What a group leaves as it was when it ends."""

    is_read: bool = True
    is_hidden: bool = False  # or deleted
    font: int = -1
    fallback_letters: int = 1  # after a Unicode character, for programs that know none
    destination: str = "body"


@dataclass(slots=True)
class _Table:
    cells: list[Cell] = field(default_factory=list)
    row: int = 0
    column: int = 0
    headers: int = 0
    is_header: bool = False


def read_rtf(data: bytes, content: Content) -> FileType:
    """Raises: UnreadableFile for groups too deep in each other."""
    _Reader(content).read(data)
    return FileType.RTF


class _Reader:
    """One document while it is read: a walk over its tokens."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._state, self._stack = _State(), [_State()]
        self._pieces: dict[str, list[str]] = {"body": []}
        self._encoding = "cp1252"
        self._fonts: dict[int, str] = {}  # encodings by number
        self._bytes = bytearray()  # characters of a code page that are not decoded yet
        self._to_skip = 0  # letters that stand for the last Unicode character
        self._level, self._mark, self._in_table, self._breaks_page = 0, "", False, False
        self._styles: dict[int, int] = {}  # style -> level of a heading
        self._table = _Table()
        self._picture: bytearray | None = None
        self._group_names: list[str] = [""]
        self._is_starred, self._is_first = False, False
        self._author = ""
        self._footnotes = 0
        self._margins: dict[str, dict[str, None]] = {"header": {}, "footer": {}}  # texts, each once, in order
        self._insertions = self._deletions = 0
        self._style_number = -1

    def read(self, data: bytes) -> None:
        offset, end = 0, len(data)
        while offset < end:
            match = _TOKEN.match(data, offset)
            assert match is not None, "the pattern takes every byte"
            offset = match.end() + self._token(match)
        self._flush_bytes()
        self._end_paragraph()
        self._end_table()
        for footer in self._margins["footer"]:
            self._content.setter.paragraph(footer)
        if len(self._stack) > 1 and all(page.is_empty for page in self._content.setter.pages):
            raise UnreadableFile("file: it ends within a group, before its text; is it cut off?")
        self._content.set_notes()
        self._content.tell_changes(self._insertions, self._deletions)

    def _token(self, match: re.Match[bytes]) -> int:
        """Take a token. Returns: how many raw bytes follow that are none."""
        word, number, code, symbol, brace, text = match.group("word", "number", "code", "symbol", "brace", "text")
        if word == b"bin" and number is not None:
            return max(0, int(number))
        if word is not None:
            self._word(word.decode("ascii"), None if number is None else int(number))
        elif brace is not None:
            self._open() if brace == b"{" else self._close()
        elif code is not None:
            self._byte(int(code, 16))
        elif symbol is not None:
            self._symbol(symbol.decode("latin-1"))
        elif text is not None:
            self._letters(text)
        return 0

    def _open(self) -> None:
        self._flush_bytes()
        if len(self._stack) > _MAX_DEPTH:
            raise UnreadableFile(f"file: groups lie in each other more than {_MAX_DEPTH} deep")
        self._stack.append(self._state)
        self._group_names.append("")
        self._is_first = True
        self._is_starred = False

    def _close(self) -> None:
        self._flush_bytes()
        if len(self._stack) == 1:
            return
        name, inner = self._group_names.pop(), self._state
        self._state = self._stack.pop()
        if inner.destination != self._state.destination:
            self._end_destination(inner.destination)
        if name == "pict":
            self._end_picture()

    def _word(self, name: str, number: int | None) -> None:
        self._flush_bytes()
        if self._is_first:
            self._is_first = False
            self._begin_group(name)
        if name == "u" and number is not None:
            self._add(chr(number % 65536))
            self._to_skip = self._state.fallback_letters
            return
        if name in _MARKS:
            self._add(_MARKS[name])
        else:
            self._control(name, number)

    def _begin_group(self, name: str) -> None:
        """What the first word of a group says of all of it."""
        self._group_names[-1] = name
        if name in _DESTINATIONS:
            destination = f"{name}{len(self._stack)}"
            self._state = self._state._replace(destination=destination, is_hidden=False)
            self._pieces[destination] = []
        elif name == "pict":
            self._picture = bytearray()
        elif name == "stylesheet":
            self._state = self._state._replace(is_read=False, destination=name)
        elif name in _UNREAD or (self._is_starred and name != "shppict"):
            self._state = self._state._replace(is_read=False)

    def _control(self, name: str, number: int | None) -> None:
        if name == "f" and number is not None:
            self._state = self._state._replace(font=number)
        elif name == "uc":
            self._state = self._state._replace(fallback_letters=1 if number is None else number)
        elif name in _ENDS:
            _ENDS[name](self)
        elif name == "s" and number is not None:
            self._style_number, self._level = number, self._styles.get(number, 0)
        elif name == "outlinelevel" and number is not None:
            self._level = number + 1 if 0 <= number < _LEVELS else 0
            if self._state.destination == "stylesheet":
                self._styles[self._style_number] = self._level
        elif name == "ansicpg" and number is not None:
            self._encoding = _CODE_PAGES.get(number, self._encoding)
        elif name == "fcharset" and number in _CHARSETS:
            self._fonts[self._state.font] = _CHARSETS[number]
        elif name in ("v", "deleted", "plain"):
            self._hide(name, number)

    def _hide(self, name: str, number: int | None) -> None:
        is_hidden = name != "plain" and number != 0
        self._deletions += name == "deleted" and is_hidden
        self._state = self._state._replace(is_hidden=is_hidden)

    def _symbol(self, symbol: str) -> None:
        if symbol == "*":
            self._is_starred = True
            return
        self._flush_bytes()
        self._is_first = False
        if symbol in "\r\n":
            self.end_line()
        else:
            self._add(_SYMBOLS.get(symbol, ""))

    def _letters(self, text: bytes) -> None:
        if self._picture is not None and self._group_names[-1] == "pict":
            self._picture += text.replace(b" ", b"")
            return
        if self._state.destination == "stylesheet":
            self._style_name(text)
        if not self._state.is_read:
            return
        skipped = min(self._to_skip, len(text))
        self._to_skip -= skipped
        self._bytes += text[skipped:]

    def _byte(self, value: int) -> None:
        if self._to_skip:
            self._to_skip -= 1
        elif self._state.is_read:
            self._bytes.append(value)

    def _flush_bytes(self) -> None:
        if self._bytes:
            encoding = self._fonts.get(self._state.font, self._encoding)
            self._add(self._bytes.decode(encoding, "replace"))
            self._bytes.clear()

    def _add(self, text: str) -> None:
        if self._state.is_read and not self._state.is_hidden:
            self._pieces[self._state.destination].append(text)

    def _style_name(self, text: bytes) -> None:
        name = text.decode("latin-1").strip(" ;").lower()
        if name.startswith("heading ") and name[8:9].isdigit():
            self._styles[self._style_number] = int(name[8])
        elif name == "title":
            self._styles[self._style_number] = 1

    def end_line(self) -> None:
        if self._state.destination != "body" or self._in_table:
            self._add("\n")
        else:
            self._end_paragraph()

    def end_page(self) -> None:
        if self._state.destination == "body" and not self._in_table:
            self._end_paragraph()
            self._content.setter.break_page()

    def begin_paragraph(self) -> None:
        if self._state.destination == "body":  # not of a note or a mark within one
            self._in_table, self._level, self._breaks_page = False, 0, False

    def break_before(self) -> None:
        self._breaks_page = self._state.destination == "body"

    def enter_table(self) -> None:
        self._in_table = True

    def begin_row(self) -> None:
        self._table.is_header = False

    def mark_header(self) -> None:
        self._table.is_header = True

    def count_insertion(self) -> None:
        self._insertions += self._state.destination == "body"

    def _end_paragraph(self) -> None:
        text = self._taken("body")
        if text.strip():
            self._end_table()
            if self._breaks_page:
                self._content.setter.break_page()
            if not self._mark and (item := _ITEM.match(text)):
                self._mark, text = item[1], text[item.end() :]
            if self._level:
                self._content.heading(f"{self._mark} {text}".strip(), self._level)
            else:
                self._content.setter.paragraph(text, mark=self._mark)
        if not self._table.cells:
            self._content.set_pictures()
        self._mark, self._breaks_page = "", False

    def _taken(self, destination: str) -> str:
        pieces = self._pieces.get(destination)
        if pieces is None:
            return ""
        text = _without_surrogates("".join(pieces))
        pieces.clear()
        return text

    def end_cell(self) -> None:
        text = self._taken("body").strip("\n")
        if self._mark:
            text, self._mark = f"{self._mark} {text}", ""
        self._table.cells.append(Cell(self._table.row, self._table.column, text))
        self._table.column += 1
        self._content.setter.check_lines(len(self._table.cells))

    def end_row(self) -> None:
        table = self._table
        table.headers += table.is_header and table.headers == table.row
        table.row, table.column = table.row + 1, 0

    def _end_table(self) -> None:
        table, self._table = self._table, _Table()
        if table.cells:
            if all(cell.column == 0 for cell in table.cells):
                for cell in table.cells:
                    self._content.setter.paragraph(cell.text)
            else:
                self._content.setter.table(table.cells, header_rows=table.headers or None)
            self._content.set_pictures()

    def _end_destination(self, destination: str) -> None:
        """A group with text of its own has ended: a note, a comment, a header, the mark of an item."""
        name, text = destination.rstrip("0123456789"), self._taken(destination).strip()
        if name == "atnauthor":
            self._author = text
        elif name == "listtext":
            self._mark = text.strip("\t ")
            if self._mark and not self._mark[0].isalnum() and self._mark[0] != "(":
                self._mark = BULLET
        elif name == "footnote":
            self._footnotes += 1
            self._add(f"[{self._footnotes}]")
            self._content.notes.append(f"[{self._footnotes}] {' '.join(text.split())}")
        elif name == "annotation":
            by, self._author = f" by {self._author}" if self._author else "", ""
            self._content.notes.append(f"[Comment{by}] {' '.join(text.split())}")
        elif name.startswith("header") and text and text not in self._margins["header"]:
            self._margins["header"][text] = None
            self._content.setter.paragraph(text)
        elif name.startswith("footer") and text:
            self._margins["footer"][text] = None

    def _end_picture(self) -> None:
        digits, self._picture = self._picture, None
        if digits and len(self._content.pictures) < _MAX_PICTURES:
            try:
                picture = binascii.unhexlify(digits[: len(digits) // 2 * 2])
            except ValueError:
                return
            if picture not in self._content.pictures.values():
                self._content.picture(f"image{len(self._content.pictures) + 1}", picture)


def _without_surrogates(text: str) -> str:
    """Characters beyond the first plane, which RTF writes in two halves, as what they are."""
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_ENDS: Mapping[str, Callable[[_Reader], None]] = {
    "par": _Reader.end_line, "sect": _Reader.end_page, "page": _Reader.end_page, "pagebb": _Reader.break_before,
    "pard": _Reader.begin_paragraph, "intbl": _Reader.enter_table, "cell": _Reader.end_cell, "row": _Reader.end_row,
    "trowd": _Reader.begin_row, "trhdr": _Reader.mark_header, "nestcell": _Reader.end_line,
    "revised": _Reader.count_insertion,
}  # fmt: skip
