"""Reads files of plain text: their encoding, HTML without its tags, and nothing that is not text."""

from __future__ import annotations

import codecs
import html
import re
from hashlib import sha256
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
_HTML = re.compile(r"\A\s*+(?:<!--.{0,500}?-->\s*)?<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_HTML_NAMES = frozenset({".html", ".htm", ".xhtml"})
_ROW_NAMES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".log"})
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg"})  # whose content nobody reads
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "legend",
    "li", "main", "nav", "ol", "option", "p", "pre", "section", "select", "summary", "table", "tbody", "textarea",
    "tfoot", "thead", "title", "tr", "ul",
})
# fmt: on
_PARAGRAPHS = frozenset({"article", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "section", "table"})
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_LOWERED = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})  # keeps all places
_BLANKS = re.compile(r"[ \t\r\n\f\v]+")


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


def read_text_file(content: bytes, name: str, limits: FileLimits) -> str | None:
    """What a reader sees of a file of text, HTML without its tags; None where it is not text.

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
    return html_text(text) if is_html(name, text) else text


def is_html(name: str, text: str) -> bool:
    """Whether a text is HTML, by its name or how it begins."""
    return _suffix(name) in _HTML_NAMES or _HTML.match(text[:2000]) is not None


def has_rows(name: str) -> bool:
    """Whether each line of a file is a record, by its name."""
    return _suffix(name) in _ROW_NAMES


def html_text(markup: str) -> str:
    """What a reader sees of HTML: blocks on lines of their own, cells parted by tabulators, no scripts and styles.

    Takes time linear in its length whatever it holds, which Python's html.parser does not before 3.13.6
    (CVE-2025-6069).
    """
    lowered = markup.translate(_LOWERED)
    pieces: list[str] = []
    place, end = 0, len(markup)
    while place < end:
        opening = markup.find("<", place)
        _add_text(pieces, markup[place : end if opening < 0 else opening])
        if opening < 0:
            break
        place = _after_tag(lowered, opening, pieces)
    lines = "".join(pieces).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip(" ") for line in lines)).strip("\n\t ")


def _after_tag(lowered: str, opening: int, pieces: list[str]) -> int:
    """Where what begins at this "<" ends; what its tag means for the layout is added to the pieces."""
    if lowered.startswith("<!--", opening):
        return _past(lowered, "-->", opening + 4)
    tag = _TAG.match(lowered, opening)
    if tag is None:
        if lowered.startswith(("<!", "<?"), opening):
            return _past(lowered, ">", opening)
        pieces.append("<")
        return opening + 1
    name, is_closing = tag[1], lowered.startswith("</", opening)
    if name in _PARAGRAPHS:
        pieces.append("\n\n")
    elif name == "br" or (name in _BLOCKS and pieces and pieces[-1][-1] != "\n"):
        pieces.append("\n")
    elif name in ("td", "th") and is_closing:
        pieces.append("\t")
    past = _past(lowered, ">", tag.end())
    if name in _UNSEEN and not is_closing and not lowered.startswith("/>", past - 2):
        closing = lowered.find(f"</{name}", past)
        return len(lowered) if closing < 0 else _past(lowered, ">", closing)
    return past


def _past(text: str, mark: str, place: int) -> int:
    found = text.find(mark, place)
    return len(text) if found < 0 else found + len(mark)


def _add_text(pieces: list[str], text: str) -> None:
    if not text:
        return
    text = _BLANKS.sub(" ", html.unescape(text).translate(_CONTROLS))
    if text.startswith(" ") and (not pieces or pieces[-1][-1] in "\n\t "):
        text = text[1:]
    if text:
        pieces.append(text)


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


def document_of_text(text: str) -> Document:
    """One page that holds the text as it stands; words keep their offsets. Two spaces or a tabulator part columns."""
    words: list[Word] = []
    block, was_blank, offset = 0, True, 0
    for index, line in enumerate(text.split("\n")):
        found = list(_WORD.finditer(line))
        if not found:
            was_blank = True
        elif was_blank:
            block, was_blank = block + bool(words), False
        for match in found:
            left, right = (_column(line, place) * _COLUMN for place in match.span())
            box = Box(left, index * _LINE, right, index * _LINE + _HEIGHT)
            words.append(Word(match.group(), box, 1.0, offset + match.start(), offset + match.end(), index, block))
        offset += len(line) + 1
    width = max((word.box.right for word in words), default=0.0)
    height = _LINE * (text.count("\n") + 1)
    page = Page(1, width, height, 72.0, 0, text, tuple(words), "text_layer", "a text", "text")
    return Document("text", (page,), 1, sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _column(line: str, place: int) -> int:
    if "\t" not in line:
        return place
    return len(line[:place].expandtabs(_TABULATOR))
