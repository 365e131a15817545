"""Reads mail: messages as they are sent (eml) and as Outlook keeps them (msg), with their attachments."""

from __future__ import annotations

import email.errors
import email.header
import email.policy
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from typing import Any, BinaryIO

import olefile

from backend.errors import UnreadableFile
from backend.files.file_types import MAILBOX_LINE, FileType
from backend.files.office.content import Content
from backend.files.office.html_page import read_html
from backend.files.office.rtf import read_rtf
from backend.files.text_files import decode_text, decoded_as

_HEADERS = ("From", "To", "Cc", "Date")
_MAX_ATTACHMENTS = 500
_MAX_LEVEL = 6  # of storages in each other, two for a message that is attached
_LONGEST_HEADER = 2_000


class _ShortHeaders(email.policy.Compat32):
    """Cuts headers as they are parsed: those of `email` take the square of the semicolons in one."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: 4 * _LONGEST_HEADER]


_POLICY = _ShortHeaders()


def read_eml(data: bytes, content: Content) -> FileType:
    """Set a message: who wrote to whom, its text, and what is attached as parts to be read, as all are of a mailbox."""
    if data.startswith(b"From "):
        messages = MAILBOX_LINE.split(data, _MAX_ATTACHMENTS)[1:]
        content.attachments += [(f"message {at}", message) for at, message in enumerate(messages, 1)]
        return FileType.EML
    message = email.message_from_bytes(data, policy=_POLICY)
    subject = _decoded(message.get("Subject"))
    _set_head(content, subject, [(name, _decoded(message.get(name))) for name in _HEADERS])
    bodies: dict[str, str] = {}
    inline: dict[str, tuple[str, bytes]] = {}
    for part in _parts(message):
        kind, name = part.get_content_type(), _file_name(part)
        if part.get_content_type() == "message/rfc822":
            inner = part.get_payload()
            if isinstance(inner, list) and inner and isinstance(inner[0], Message):
                content.attachments.append((name or "message.eml", inner[0].as_bytes()))
            continue
        data = _payload(part)
        content_id = str(part.get("Content-ID", "")).strip("<> ")
        is_attached = part.get_content_disposition() == "attachment"
        if kind in ("text/plain", "text/html") and not is_attached and not name and kind not in bodies:
            bodies[kind] = _text(part, data)
        elif content_id and kind.startswith("image/") and not is_attached:
            inline[content_id] = (name or content_id, data)
        elif len(content.attachments) < _MAX_ATTACHMENTS:
            content.attachments.append((name or f"part {len(content.attachments) + 1}", data))
    _set_body(content, bodies.get("text/html"), bodies.get("text/plain"), inline)
    return FileType.EML


def _set_head(content: Content, subject: str, headers: list[tuple[str, str]]) -> None:
    content.setter.begin_part("")
    if subject:
        content.heading(subject, 1)
        content.metadata["title"] = subject
    content.setter.paragraph("\n".join(f"{name}: {text[:_LONGEST_HEADER]}" for name, text in headers if text))
    known = dict(headers)
    for name, key in (("From", "author"), ("Date", "created")):
        if known.get(name):
            content.metadata[key] = known[name]


def _set_body(content: Content, markup: str | None, text: str | None, inline: dict[str, tuple[str, bytes]]) -> None:
    """The HTML where there is some, which has lists and tables; pictures that it does not show follow."""
    if markup is not None and (re.search(r"<(?:table|ul|ol|h\d|img)\b", markup, re.IGNORECASE) or not text):
        read_html(markup, content, lambda source: inline.pop(source.removeprefix("cid:"), None))
    elif text is not None:
        for paragraph in re.split(r"\n[ \t]*\n", text.replace("\r", "")):
            content.setter.paragraph(paragraph.strip("\n"))
    content.set_pictures()
    for picture in inline.values():
        content.picture(*picture)


def _parts(message: Message) -> Iterator[Message]:
    """The parts that hold something, in order; those of attached messages are left to them."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        if part.get_content_type() != "message/rfc822" and part.is_multipart():
            waiting += [one for one in part.get_payload() if isinstance(one, Message)][::-1]
        else:
            yield part


def _payload(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _text(part: Message, data: bytes) -> str:
    text = decoded_as(data, part.get_content_charset() or "")
    return text if text is not None else decode_text(data) or data.decode("cp1252", "replace")


def _in_charset(data: bytes, charset: str | None) -> str:
    text = decoded_as(data, charset or "utf-8", "replace")
    return text if text is not None else data.decode("utf-8", "replace")


def _file_name(part: Message) -> str:
    """As `Message.get_filename`, which decodes with whatever codec of Python's the mail names."""
    name = part.get_param("filename", None, "content-disposition") or part.get_param("name", None)
    if isinstance(name, tuple):  # in an encoding of its own (RFC 2231)
        charset, _, text = name
        return " ".join(_in_charset(text.encode("raw-unicode-escape"), charset).split())
    return _decoded(name)


def _decoded(value: Any) -> str:
    """A header's text, encoded words decoded."""
    if value is None:
        return ""
    pieces = []
    try:
        for text, charset in email.header.decode_header(str(value)):
            pieces.append(_in_charset(text, charset) if isinstance(text, bytes) else text)
    except (ValueError, email.errors.HeaderParseError):
        return " ".join(str(value).split())
    return " ".join("".join(pieces).split())


_PROPERTY = "__substg1.0_"
_SUBJECT, _BODY, _HTML, _RTF, _HEADERS_ID = "0037", "1000", "1013", "1009", "007D"
_SENDER, _ADDRESS, _TO, _CC = "0C1A", "0C1F", "0E04", "0E03"
_LONG_NAME, _SHORT_NAME, _DATA = "3707", "3704", "3701"
_SUBMITTED = struct.pack("<HH", 0x0040, 0x0039)  # type and number of the time at which it was sent
_FILETIME_UNIX = 11_644_473_600  # seconds from 1601 to 1970


def read_msg(source: BinaryIO, content: Content) -> None:
    """Set a message of Outlook's. Raises: UnreadableFile for a broken one."""
    try:
        with olefile.OleFileIO(source) as ole:
            _Outlook(ole, content).read(())
    except (OSError, ValueError, IndexError, struct.error) as error:
        raise UnreadableFile(f"file: it is a broken message of Outlook's ({str(error)[:200]})") from error


class _Outlook:
    """One message while it is read."""

    def __init__(self, ole: Any, content: Content) -> None:
        self._ole, self._content = ole, content
        self._streams = {tuple(path) for path in ole.listdir()}
        self._storages: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)  # in each one that may be read
        for path in self._streams:
            for level in range(min(len(path) - 1, _MAX_LEVEL + 2)):
                self._storages[path[:level]].add(path[level])

    def read(self, folder: tuple[str, ...]) -> None:
        """The message in a storage: the file's own, or one that is attached to it."""
        sender = " ".join(dict.fromkeys(filter(None, (self._text(folder, _SENDER), self._text(folder, _ADDRESS)))))
        headers = [("From", sender), ("To", self._text(folder, _TO)), ("Cc", self._text(folder, _CC))]
        _set_head(self._content, self._text(folder, _SUBJECT), [*headers, ("Date", self._sent(folder))])
        html = self._bytes(folder, _HTML)
        markup = self._text(folder, _HTML) or (decode_text(html) if html else None)
        text = self._text(folder, _BODY)
        packed = self._bytes(folder, _RTF)
        inline = dict(self._attachments(folder))
        if markup or text or not packed:
            _set_body(self._content, markup or None, text or None, inline)
        else:
            read_rtf(unpacked_rtf(packed), self._content)

    def _attachments(self, folder: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, bytes]]]:
        """Pictures that the text shows, by their ids; other files become the content's attachments."""
        attached = sorted(one for one in self._storages[folder] if one.startswith("__attach_version1.0_"))
        for name in attached[:_MAX_ATTACHMENTS]:
            inner = (*folder, name)
            file_name = self._text(inner, _LONG_NAME) or self._text(inner, _SHORT_NAME) or "attachment"
            data, content_id = self._bytes(inner, _DATA), self._text(inner, "3712")
            embedded = f"{_PROPERTY}{_DATA}000D"
            if data and content_id:
                yield content_id.strip("<>"), (file_name, data)
            elif data:
                self._content.attachments.append((file_name, data))
            elif embedded in self._storages[inner] and len(folder) < _MAX_LEVEL:
                self.read((*inner, embedded))
            elif embedded in self._storages[inner]:
                deepest = _MAX_LEVEL // 2 + 1
                self._content.skipped.append(f"{file_name}: messages lie in each other more than {deepest} deep")

    def _text(self, folder: tuple[str, ...], number: str) -> str:
        wide, narrow = (*folder, f"{_PROPERTY}{number}001F"), (*folder, f"{_PROPERTY}{number}001E")
        if wide in self._streams:
            return self._open(wide).decode("utf-16-le", "replace").strip("\x00 ")
        if narrow in self._streams:
            data = self._open(narrow)
            return (decode_text(data) or data.decode("cp1252", "replace")).strip("\x00 ")
        return ""

    def _bytes(self, folder: tuple[str, ...], number: str) -> bytes:
        path = (*folder, f"{_PROPERTY}{number}0102")
        return self._open(path) if path in self._streams else b""

    def _open(self, path: tuple[str, ...]) -> bytes:
        data: bytes = self._ole.openstream(list(path)).read()
        return data

    def _sent(self, folder: tuple[str, ...]) -> str:
        path = (*folder, "__properties_version1.0")
        data = self._open(path) if path in self._streams else b""
        offset = data.find(_SUBMITTED)
        if offset < 0 or len(data) < offset + 16:
            return ""
        seconds = struct.unpack_from("<Q", data, offset + 8)[0] / 10**7 - _FILETIME_UNIX
        try:
            return "" if seconds < 0 else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
        except (OverflowError, OSError, ValueError):
            return ""


_PRELOADED = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor "
    b"MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par "
    b"\\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)  # [MS-OXRTFCP] 2.1.2.1: what the dictionary begins with
_COMPRESSED, _RTF_HEADER_BYTES = 0x75465A4C, 16


def unpacked_rtf(data: bytes) -> bytes:
    """Rich text that Outlook packed ([MS-OXRTFCP]). Raises: ValueError for what is none."""
    if len(data) < _RTF_HEADER_BYTES:
        raise ValueError("packed rich text that is too short")
    raw_bytes, kind = struct.unpack_from("<II", data, 4)
    if kind != _COMPRESSED:
        return data[_RTF_HEADER_BYTES : _RTF_HEADER_BYTES + raw_bytes]
    window, write, position = bytearray(_PRELOADED.ljust(4096, b" ")), len(_PRELOADED), _RTF_HEADER_BYTES
    out = bytearray()
    while position < len(data) and len(out) < raw_bytes:
        flags, position = data[position], position + 1
        for bit in range(8):
            if (position + 1 >= len(data) and flags >> bit & 1) or position >= len(data):
                return bytes(out)
            if not flags >> bit & 1:
                piece, position = data[position : position + 1], position + 1
            else:
                reference, position = data[position] << 8 | data[position + 1], position + 2
                offset, length = reference >> 4, (reference & 15) + 2
                if offset == write % 4096:
                    return bytes(out)
                piece = b""
                for step in range(length):
                    letter = window[(offset + step) % 4096]
                    piece += bytes((letter,))
                    window[(write + step) % 4096] = letter
            for step, letter in enumerate(piece):
                window[(write + step) % 4096] = letter
            write += len(piece)
            out += piece
    return bytes(out[:raw_bytes])
