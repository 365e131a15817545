"""Reads an uploaded file into memory as its bytes arrive, counted and hashed, and the form fields beside it."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from python_multipart.exceptions import FormParserError, MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from backend.api.json_io import Schema, read_json
from backend.api.request_context import Handle, context_of, read_within_limit
from backend.api.request_fields import OrAbsent
from backend.documents.formats.registry import Format, require_kind
from backend.documents.recordings import transcription_options
from backend.documents.records import DocumentOptions
from backend.errors import BadInput, CallerGone, InvalidField, TooLarge, WrongMediaType, param_of
from backend.files.file_types import is_recording
from backend.files.limits import FileLimits
from backend.files.stored_file import StoredFile, check_bytes
from backend.files.text_files import narrowed
from backend.search.files import MAX_EXPIRY_S, MIN_EXPIRY_S
from backend.speech.pages import KIND

_file_limits_of: Handle[FileLimits] = Handle("file_limits")

_FILE = "file"
_XML = "xml"  # an electronic invoice that belongs to the file; small, and so a field
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.-]{1,40})["']""")
_DECLARATION_BYTES = 300  # in which it stands
# No others: Python has codecs that are no text (rot13), fail (idna) or take quadratic time (400 KB of punycode: 27 s).
_XML_CODECS = {
    "utf-8": "utf-8",
    "us-ascii": "utf-8",
    "utf-16": "utf-8",  # read as ASCII, so it is none: programs of .NET write a text's declaration into UTF-8
    "iso-8859-1": "latin-1",
    "iso-8859-15": "iso-8859-15",
    "windows-1252": "windows-1252",
}
_MAX_FIELD_BYTES = 1_000_000  # of all fields together: a thousand labels
_MAX_PARTS = 64  # twice the fields there are; each costs 45 us to parse, a megabyte of empty ones two seconds
_MAX_HEADER_BYTES = 32 * 1024  # of all parts together
_ENVELOPE_BYTES = 64 * 1024  # of a form, beside its file and its fields
_NAME_CHARS = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# To its end where the second mark is missing: looking again from each mark in it took 12 s of a 32 KB header.
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_FORM_ESCAPES = {b"%22": b'"', b"%0D": b"\r", b"%0A": b"\n"}
_FORM_ESCAPE = re.compile(b"|".join(_FORM_ESCAPES))
_EXTENDED_NAME = re.compile(rb";\s*filename\*\s*=\s*(utf-8|iso-8859-1)'[^';]*'([^;\s]+)", re.IGNORECASE)
_FREED_AT_ONCE_BYTES = 2**20  # larger files are freed on a thread: 100 MB take 50 ms
_EXAMPLE = "send it as multipart/form-data in the field 'file' (curl -F file=@invoice.pdf), or alone as the body"


@dataclass(slots=True)
class Upload:
    """One file and its form fields."""

    stored: StoredFile
    name: str  # as the client sent it; may be empty
    fields: dict[str, str]  # of one that came again and again the last value
    repeated: dict[str, list[str]] = field(default_factory=dict)  # every value of each, in order

    @property
    def is_recording(self) -> bool:
        """Whether it begins as a sound or a video file does."""
        return is_recording(self.stored.head)

    def require_pages(self) -> None:
        """Raise WrongMediaType (415) for a recording, where pages on paper are read."""
        if self.is_recording:
            raise WrongMediaType(
                "file: it is a recording, and has no pages to read; send it to POST /v1/audio/transcriptions for what "
                "is said, or to POST /v1/documents for what that says",
                param=_FILE,
            )

    def require_options(self, options: DocumentOptions) -> None:
        """Raise InvalidField (422) for options that a recording cannot be transcribed with."""
        if self.is_recording:
            transcription_options(options)

    def require_format(self, form: Format) -> None:
        """Raise InvalidField (422) for a format that this file cannot be answered in."""
        if self.is_recording:
            require_kind(form, KIND)
        elif not form.lacks:
            require_kind(form, "no recording")


_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"


class ExpiryForm(BaseModel):
    """When what is kept is deleted by itself, as OpenAI's clients say it."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    anchor: Annotated[OrAbsent[Literal["created_at"]], WithJsonSchema({"enum": ["", "created_at"]})] = Field(
        None, alias=_ANCHOR, description="With seconds: from when they count."
    )
    seconds: Annotated[
        OrAbsent[int],
        WithJsonSchema({"type": "integer", "minimum": MIN_EXPIRY_S, "maximum": MAX_EXPIRY_S}),
    ] = Field(None, alias=_SECONDS, ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S, description="After which the file is deleted.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.anchor is None) != (self.seconds is None):
            raise InvalidField(f"{_SECONDS}: send it together with {_ANCHOR}=created_at", param="expires_after")
        return self


@asynccontextmanager
async def receive_upload(
    request: Request, *, most_s: float | None = None, field: str = _FILE, name: str = ""
) -> AsyncIterator[Upload]:
    """The request's upload; its memory is freed at the end.

    Form fields win over query parameters of the same name.

    Args:
        most_s: LIMIT_TRANSCRIPTION_S where it holds instead of LIMIT_REQUEST_S.
        field: of the form, that has the file; empty: whichever part has a file name.
        name: of a file that is the body itself.

    Raises: TooLarge at the first byte over LIMIT_FILE_BYTES, or at once where the client sent a Content-Length;
        WrongMediaType, BadInput, InvalidField for what is no upload; CallerGone when the client disconnected while
        sending, DeadlineExceeded when it took too long; QuotaExceeded for a caller in debt of tokens or pages.
    """
    async with _received(request, most_s=most_s, field=field, most_files=1) as [upload]:
        upload.name = upload.name or _cleaned(name)
        yield upload


@asynccontextmanager
async def receive_uploads(request: Request, *, field: str) -> AsyncIterator[list[Upload]]:
    """The files of a form that may have several, together within LIMIT_FILE_BYTES. As ``receive_upload``."""
    async with _received(request, most_s=None, field=field, most_files=_MAX_PARTS) as uploads:
        yield uploads


@asynccontextmanager
async def _received(
    request: Request, *, most_s: float | None, field: str, most_files: int
) -> AsyncIterator[list[Upload]]:
    context_of(request).meter.require("tokens", "pages")
    limits: FileLimits = _file_limits_of(request)
    _check_length(request, limits)
    reader = _reader(request, limits, field, most_files)
    try:
        await read_within_limit(request, _read(request, reader), most_s=most_s)
        reader.finish()
        for stored, file_name in reader.files:
            _require_content(stored, file_name, field)
            _require_line_breaks(request, stored)
        fields = {**request.query_params, **reader.fields}
        repeated = {name: request.query_params.getlist(name) for name in request.query_params} | reader.repeated
        yield [Upload(stored, name, fields, repeated) for stored, name in reader.files]
    finally:
        for stored, _ in reader.files:
            _free(stored)


def _require_content(stored: StoredFile, name: str, field: str) -> None:
    """Raise InvalidField (422) where a file's name came in its place: curl without the @."""
    if name or stored.size_bytes > _NAME_CHARS:
        return
    text = stored.head.decode("utf-8", "replace").strip()
    text = text.removeprefix(f"{field or _FILE}=").removeprefix("@")  # curl -d file=@invoice.pdf sends that as it is
    if _FILE_NAME.fullmatch(text):
        param = field or _FILE
        raise InvalidField(
            f"{param}: is the text '{text[:80]}' and no file; curl sends a file with an @ before its name: "
            f"-F {param}=@{text[:80]}, or --data-binary @{text[:80]} alone as the body",
            param=param,
        )


def _require_line_breaks(request: Request, stored: StoredFile) -> None:
    """Raise InvalidField (422) for a PDF or PNG without any: curl -d takes them out, and the file is broken."""
    is_form = context_of(request).headers.get(b"content-type", b"") == b"application/x-www-form-urlencoded"
    if is_form and stored.head.startswith((b"%PDF", b"\x89PNG")) and not _LINE_BREAK.search(stored.head):
        raise InvalidField(
            "file: it came without its line breaks, which curl -d takes out of a file; send it with --data-binary @… "
            "or -F file=@…",
            param=_FILE,
        )


_LINE_BREAK = re.compile(rb"[\r\n]")
_FILE_NAME = re.compile(r"[\w ./\\:~()+-]{1,240}\.[A-Za-z][A-Za-z0-9]{1,4}")
_BASE64_BYTES = 2**20  # decoded at a time, on a thread: 5 ms in which nothing else of Python runs
_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,200};base64,", re.IGNORECASE)


async def read_json_with_file(request: Request, schema: type[Schema]) -> Schema:
    """A JSON body with a file as base64, as large as LIMIT_FILE_BYTES allows. Raises: as read_json."""
    context_of(request).meter.require("pages")
    limit_bytes = _file_limits_of(request).file_bytes * 4 // 3 + _ENVELOPE_BYTES
    return await read_json(request, schema, limit_bytes=limit_bytes)


@asynccontextmanager
async def decoded_upload(request: Request, encoded: str, location: str, *, name: str = "") -> AsyncIterator[Upload]:
    """The file behind base64, alone or as a data URL; its memory is freed at the end.

    Args:
        location: of the base64 in the request, for messages.

    Raises: InvalidField for what is no base64, BadInput for nothing, TooLarge.
    """
    stored = StoredFile(_file_limits_of(request))
    try:
        await asyncio.to_thread(_decode, encoded, stored, location)
        yield Upload(stored, _cleaned(name), {})
    finally:
        _free(stored)


def _decode(encoded: str, stored: StoredFile, location: str) -> None:
    head = _DATA_URL.match(encoded, 0, 300)
    rest = ""  # of the slice before: digits come by four
    begin, end = head.end() if head else 0, len(encoded.rstrip("= \r\n\t"))
    try:
        for start in range(begin, end, _BASE64_BYTES):
            part = rest + "".join(encoded[start : min(start + _BASE64_BYTES, end)].split())
            whole = len(part) // 4 * 4
            rest = part[whole:]
            stored.write(base64.b64decode(part[:whole], validate=True))
        stored.write(base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True))
    except ValueError as error:
        raise InvalidField(f"{location}: is no base64: {error}") from error
    if not stored.size_bytes:
        raise BadInput(f"{location}: is empty; it must hold a file as base64", param=param_of(location))


@dataclass(slots=True)
class _RawReader:
    """Reads a body that is the file itself."""

    files: list[tuple[StoredFile, str]]
    fields: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)

    def write(self, chunk: bytes) -> None:
        self.files[0][0].write(chunk)

    def finish(self) -> None:
        if not self.files[0][0].size_bytes:
            raise BadInput(f"file: the body is empty; {_EXAMPLE}", param=_FILE)


class _FormReader:
    """Reads a body of multipart/form-data as it arrives (RFC 7578).

    Args:
        file_field: the field of the files; empty: every part with a file name is one.
    """

    def __init__(self, limits: FileLimits, boundary: bytes, file_field: str, most_files: int) -> None:
        self.files: list[tuple[StoredFile, str]] = []
        self._limits, self._limit_bytes = limits, _form_bytes(limits)  # of the whole form
        self._file_field, self._most_files = file_field, most_files
        self._bytes = self._parts = self._header_bytes = 0
        self.fields: dict[str, str] = {}
        self.repeated: dict[str, list[str]] = {}
        self._header_name, self._header_value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._value = bytearray()
        self._field = ""
        self._is_file = self._ended = False
        self._left_bytes = _MAX_FIELD_BYTES
        self._parser = self._make_parser(boundary)

    def _make_parser(self, boundary: bytes) -> MultipartParser:
        """Raises: BadInput for a boundary that is too long."""
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._more_name,
                    "on_header_value": self._more_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_data,
                    "on_part_data": self._more_data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
                max_header_size=2 * _MAX_HEADER_BYTES,  # never met: `_grow` says more
            )
        except FormParserError as error:
            raise BadInput(f"Content-Type: {error}", param=_FILE) from error

    def write(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > self._limit_bytes:
            raise TooLarge("bytes of the form", self._bytes, self._limit_bytes, "LIMIT_FILE_BYTES", param=_FILE)
        if self._ended:  # what follows the last boundary means nothing (RFC 2046)
            return
        try:
            self._parser.write(chunk)
        except MultipartParseError as error:
            raise BadInput(f"the body is no multipart/form-data: {error}", param=_FILE) from error

    def finish(self) -> None:
        if not self._ended:
            raise BadInput("the body ends before its last boundary: the upload is not whole", param=_FILE)
        name = self._file_field or _FILE
        if not self.files:
            others = ", ".join(sorted(self.fields)[:10]) or "nothing"
            example = _EXAMPLE if name == _FILE else f"send it as multipart/form-data (curl -F {name}=@invoice.pdf)"
            advice = " (addresses are not fetched)" if "url" in self.fields else ""
            raise InvalidField(f"{name}: the form has no field '{name}', only {others}{advice}; {example}", param=name)
        if not all(stored.size_bytes for stored, _ in self.files):
            raise BadInput(f"{name}: it is empty (0 bytes)", param=name)

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise TooLarge("parts of the form", self._parts, _MAX_PARTS, "fixed", param=_FILE)
        self._headers.clear()

    def _more_name(self, data: bytes, start: int, end: int) -> None:
        self._grow(self._header_name, data[start:end])

    def _more_value(self, data: bytes, start: int, end: int) -> None:
        self._grow(self._header_value, data[start:end])

    def _grow(self, header: bytearray, more: bytes) -> None:
        header += more
        self._header_bytes += len(more)
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise TooLarge("bytes of the parts' headers", self._header_bytes, _MAX_HEADER_BYTES, "fixed", param=_FILE)

    def _end_header(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _begin_data(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition)
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        has_name = b"filename" in options
        self._is_file = self._field == self._file_field if self._file_field else has_name
        if not self._is_file and self._field != _XML and has_name:
            raise InvalidField(
                f"{self._field[:40] or 'a part'}: files come in the field '{self._file_field}', electronic invoices in "
                "'xml'",
                param=self._file_field,
            )
        if self._is_file and len(self.files) == self._most_files:
            raise InvalidField(
                f"{self._field}: the form has more than one; send one file a request", param=self._file_field or _FILE
            )
        if self._is_file:
            self.files.append((StoredFile(self._limits), _file_name(disposition, options)))

    def _more_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.files[-1][0].write(memoryview(data)[start:end])
            return
        self._left_bytes -= end - start
        if self._left_bytes < 0:
            raise TooLarge("bytes of the form's fields", _MAX_FIELD_BYTES - self._left_bytes, _MAX_FIELD_BYTES, "fixed")
        self._value += data[start:end]

    def _end_part(self) -> None:
        if not self._is_file:
            is_xml = self._field == _XML
            value = _decoded_xml(bytes(self._value)) if is_xml else self._value.decode("utf-8", "replace")
            self.fields[self._field] = value
            self.repeated.setdefault(self._field, []).append(value)
        self._value.clear()

    def _end(self) -> None:
        self._ended = True


def _file_name(disposition: bytes, options: dict[bytes, bytes]) -> str:
    """The file's name: the whole one of ``filename*`` (RFC 5987) where older clients send it, else ``filename``."""
    if extended := _EXTENDED_NAME.search(_QUOTED.sub(b"", disposition)):
        name = unquote_to_bytes(extended[2]).decode(
            "latin-1" if extended[1].lower() == b"iso-8859-1" else "utf-8", "replace"
        )
    else:
        name = _form_decoded(options.get(b"filename", b"")).decode("utf-8", "replace")
    return _cleaned(name)


def _cleaned(name: str) -> str:
    return _CONTROL.sub("\ufffd", name)[:_NAME_CHARS]


def _form_decoded(name: bytes) -> bytes:
    """The name behind what the HTML standard's form encoding writes of it: three characters, and no other escapes.

    A name that had "%22" itself cannot be told from one with a quotation mark, which is likelier.
    Source: HTML, "multipart/form-data encoding algorithm", "escape a multipart/form-data name".
    """
    return _FORM_ESCAPE.sub(lambda match: _FORM_ESCAPES[match[0]], name)


def _decoded_xml(xml: bytes) -> str:
    """XML in the encoding that it declares: Spanish programs still write ISO-8859-1. Else: InvalidField."""
    if (narrow := narrowed(xml)) is not xml:
        return narrow.decode()
    declared = _XML_ENCODING.search(xml[:_DECLARATION_BYTES])
    name = declared[1].decode("ascii").lower() if declared else "utf-8"
    if name not in _XML_CODECS:
        raise InvalidField(
            f"xml: declares the encoding '{name}'; read are {', '.join(_XML_CODECS)}; send it in one of these",
            param=_XML,
        )
    return xml.decode(_XML_CODECS[name], "replace")


async def _read(request: Request, reader: _RawReader | _FormReader) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerGone("the client left before its upload was whole") from ClientDisconnect()
        if chunk := message.get("body", b""):
            reader.write(chunk)
        if not message.get("more_body", False):
            return


def _reader(request: Request, limits: FileLimits, file_field: str, most_files: int) -> _RawReader | _FormReader:
    headers = context_of(request).headers
    encoding = headers.get(b"content-encoding", b"identity").lower()
    if encoding != b"identity":
        raise WrongMediaType(f"Content-Encoding: uploads are read uncompressed, got {encoding.decode('latin-1')[:40]}")
    media_type, options = parse_options_header(headers.get(b"content-type", b""))
    if media_type.lower() == b"application/json":
        raise WrongMediaType(f"Content-Type: this route reads a file, not application/json; {_EXAMPLE}")
    if media_type.lower() != b"multipart/form-data":
        return _RawReader([(StoredFile(limits), "")])  # the file's type is read from its bytes, not from this header
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise BadInput("Content-Type: multipart/form-data came without its boundary", param=_FILE)
    return _FormReader(limits, boundary, file_field, most_files)


def _form_bytes(limits: FileLimits) -> int:
    return limits.file_bytes + _MAX_FIELD_BYTES + _ENVELOPE_BYTES


def _free(stored: StoredFile) -> None:
    if stored.size_bytes > _FREED_AT_ONCE_BYTES:
        asyncio.get_running_loop().run_in_executor(None, stored.close)
    else:
        stored.close()


def _check_length(request: Request, limits: FileLimits) -> None:
    """Raise TooLarge before the first byte is read where Content-Length is over the limit."""
    length = context_of(request).headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > _form_bytes(limits):
        check_bytes(int(length[:20]), limits)
