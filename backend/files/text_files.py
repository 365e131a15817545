"""Reads files of plain text: their encoding, and nothing that is not text."""

from __future__ import annotations

import codecs
import re
import sys
from hashlib import sha256
from itertools import islice
from pathlib import PurePosixPath

from backend.errors import TooLarge
from backend.files.limits import FileLimits
from backend.files.pages import Box, Document, Page, Word

_BOMS: tuple[tuple[bytes, str], ...] = (  # UTF-32's begin with those of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")  # without a BOM: told by their NULs
# By Python's names: those of the web (https://encoding.spec.whatwg.org/#names-and-labels) and the wide ones. Python has
# others that are no text (rot13, unicode_escape), fail (undefined) or take quadratic time (punycode).
_ENCODINGS = frozenset(
    {"ascii", "utf-8", *_WIDE, "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "cp866", "cp874"}
    | {f"iso8859-{part}" for part in range(1, 17)}
    | {f"cp{page}" for page in range(1250, 1259)}
    | {"gbk", "gb2312", "gb18030", "big5", "euc_jp", "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949"}
)
_SAMPLE_BYTES = 4096
# Formats that are text to a decoder, and to nobody else.
_PROGRAMS_TEXT = (b"{\\rtf", b"%!PS", b"%PDF")
_CONTROLS = {code: " " for code in (*range(9), *range(14, 32), *range(127, 160)) if code != 0x85}
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # without escape, which colours logs
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MAX_CONTROLS = 0.001  # of the characters; a form feed and the like are blanks
_DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w-]{2,40})|<\?xml[^>]{0,100}?encoding=[\"']([\w-]{2,40})"
)
_ROW_NAMES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".log"})


def decode_text(content: bytes) -> str | None:
    """The text of a file, or None where it is not text.

    In this order: a byte order mark; the encoding that HTML or XML declares; UTF-8; UTF-16 or UTF-32 by their NULs;
    Windows-1252 where no byte is a control character. Line ends become line feeds, stray control characters blanks.
    """
    if content.startswith(_PROGRAMS_TEXT):
        return None
    text = _decoded(content)
    if text is None or _SURROGATE.search(text):
        return None
    if len(_CONTROL.findall(text[: 2**20])) > _MAX_CONTROLS * min(len(text), 2**20):
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def read_text_file(content: bytes, limits: FileLimits) -> str | None:
    """The text of a file as it stands; None where it is not text.

    Raises: TooLarge for more characters than LIMIT_DOCUMENT_CHARS.
    """
    text = decode_text(content)
    if text is None:
        return None
    if len(text) > limits.document_chars:
        raise TooLarge(
            "characters of the file", len(text), limits.document_chars, "LIMIT_DOCUMENT_CHARS",
            advice="Split the file.", param="file",
        )  # fmt: skip
    return text


def has_rows(name: str) -> bool:
    """Whether each line of a file is a record, by its name."""
    return _suffix(name) in _ROW_NAMES


def _suffix(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).suffix.lower()


def _decoded(content: bytes) -> str | None:
    for bom, encoding in _BOMS:
        if content.startswith(bom):
            return _strict(content[len(bom) :], encoding)
    declared = _DECLARED.search(content[:1024])
    if declared is not None:
        name = (declared[1] or declared[2]).decode("ascii")
        if (text := _strict(content, name)) is not None:
            return text
    if b"\x00" in content[:_SAMPLE_BYTES]:
        return next((text for encoding in _WIDE if (text := _wide(content, encoding)) is not None), None)
    if (text := _strict(content, "utf-8")) is not None:
        return text
    return None if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", content) else _strict(content, "cp1252")


def _wide(content: bytes, encoding: str) -> str | None:
    """The text, where few of its first characters are ideograms, which chance makes of anything else."""
    text = _strict(content, encoding)
    if text is None:
        return None
    sample = text[:500]
    likely = sum(
        (character.isprintable() and not 0x3000 <= ord(character) < 0x10000) or character in "\r\n\t"
        for character in sample
    )
    return text if sample and likely >= 0.9 * len(sample) else None


def _strict(content: bytes, encoding: str) -> str | None:
    try:
        return str(content, encoding) if codecs.lookup(encoding).name in _ENCODINGS else None
    except (LookupError, UnicodeError, ValueError):
        return None


# In points of a 12-point typewriter face: a column is 10 to the inch, a line 6 to the inch.
_COLUMN, _LINE, _HEIGHT = 7.2, 12.0, 10.0
_TABULATOR = 8  # columns
_WORD = re.compile(r"\S+")


def document_of_text(text: str, most_words: int = sys.maxsize) -> Document:
    """One page that holds the text as it stands; words keep their offsets. Two spaces or a tabulator part columns.

    Args:
        most_words: of the page; further ones stand in its text alone.
    """
    words: list[Word] = []
    block, was_blank, offset = 0, True, 0
    for index, line in enumerate(text.split("\n")):
        place = column = 0  # of the line: up to where it is read, and how wide that is
        for match in islice(_WORD.finditer(line), most_words - len(words)):
            block, was_blank = block + (was_blank and bool(words)), False
            (start, stop), top = match.span(), index * _LINE
            column = _column(line[place:start], column)
            box = Box(column * _COLUMN, top, (column + stop - start) * _COLUMN, top + _HEIGHT)
            words.append(Word(match.group(), box, 1.0, offset + start, offset + stop, index, block))
            place, column = stop, column + stop - start
        was_blank = was_blank or not place
        offset += len(line) + 1
        if len(words) >= most_words:
            break
    width = max((word.box.right for word in words), default=0.0)
    height = _LINE * (text.count("\n") + 1)
    page = Page(1, width, height, 72.0, 0, text, tuple(words), "text_layer", "a text", "text")
    return Document("text", (page,), 1, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _column(blanks: str, column: int) -> int:
    """Where ``blanks`` end that begin at ``column``."""
    *tabulated, rest = blanks.split("\t")
    for part in tabulated:
        column = (column + len(part)) // _TABULATOR * _TABULATOR + _TABULATOR
    return column + len(rest)
