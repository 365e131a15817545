"""Output formats of a document, and their negotiation with a request. Plain text is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend.documents.formats.html import stream_html
from backend.documents.formats.markdown import escape, stream_markdown
from backend.documents.formats.ocr_xml import stream_alto, stream_hocr
from backend.documents.formats.plain_json import stream_json
from backend.documents.formats.table_files import stream_csv, stream_workbook
from backend.errors import InvalidField, NotAcceptable
from backend.files.pages import PAGE_GAP, Document, blocks_of
from backend.speech.pages import KIND, transcript_of
from backend.speech.subtitles import srt, webvtt


def stream_srt(document: Document) -> Iterator[bytes]:
    """SubRip of the whole recording."""
    yield srt(transcript_of(document).segments).encode()


def stream_vtt(document: Document) -> Iterator[bytes]:
    """WebVTT of the whole recording."""
    yield webvtt(transcript_of(document).segments).encode()


def stream_spoken_markdown(document: Document) -> Iterator[bytes]:
    """A paragraph for what is said between two pauses, with the time at which it begins."""
    for index, page in enumerate(document.pages):
        paragraphs = [
            f"**{_clock(block[0][0].box.left)}** "
            + "\n".join(escape(page.text[line[0].start : line[-1].end]) for line in block)
            for block in blocks_of(page)
        ]
        yield (("\n" if index and paragraphs else "") + "".join(f"{text}\n\n" for text in paragraphs)[:-1]).encode()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


Stream = Callable[[Document], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Format:
    """One output format."""

    name: str  # as in the request's ``format``
    media_type: str
    extension: str  # without its dot
    stream: Stream | None  # of pages on paper; None: the PDF, which searchable_pdf makes from the file, and subtitles
    aliases: tuple[str, ...] = ()  # other media types for it
    features: frozenset[str] = frozenset()  # of the document, beside its pages, that are read for it
    recording: Stream | None = None  # of a recording; None: it has no such format
    lacks: str = "pages on paper"  # what it needs that a recording has not; empty: it is one of recordings alone

    @property
    def content_type(self) -> str:
        """The Content-Type header of an answer."""
        return self.media_type if self.media_type.startswith("application/") else f"{self.media_type}; charset=utf-8"


def stream_text(document: Document) -> Iterator[bytes]:
    """The UTF-8 of `Document.text`, page by page, so that its offsets are those of every other answer."""
    for index, page in enumerate(document.pages):
        yield ((PAGE_GAP if index else "") + page.text).encode()


_WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
# By preference where a request accepts several. The media types of hOCR and ALTO are those that IIIF viewers and
# digital libraries use; neither is registered.
FORMATS: tuple[Format, ...] = (
    Format("json", "application/json", "json", stream_json, recording=stream_json),
    Format("text", "text/plain", "txt", stream_text, recording=stream_text),
    Format("markdown", "text/markdown", "md", stream_markdown, ("text/x-markdown",), recording=stream_spoken_markdown),
    Format("html", "text/html", "html", stream_html),
    Format("csv", "text/csv", "csv", stream_csv, features=frozenset({"fields"}), lacks="tables and fields"),
    Format("xlsx", _WORKBOOK, "xlsx", stream_workbook, features=frozenset({"fields"}), lacks="tables and fields"),
    Format("hocr", "text/vnd.hocr+html", "hocr", stream_hocr, ("application/xhtml+xml",)),
    Format("alto", "application/alto+xml", "xml", stream_alto, ("application/xml+alto", "application/xml", "text/xml")),
    Format("pdf", "application/pdf", "pdf", None),
    Format("srt", "application/x-subrip", "srt", None, recording=stream_srt, lacks=""),
    Format("vtt", "text/vtt", "vtt", None, recording=stream_vtt, lacks=""),
)

FORMAT_NAMES = list(dict.fromkeys(name for form in FORMATS for name in (form.name, form.extension)))  # of a request


def negotiate(accept: str | None, requested: str | None = None) -> Format:
    """The format of an answer: the one ``format`` names, else the best that ``Accept`` allows (RFC 9110, 12.5.1).

    Args:
        accept: the header's value; absent, empty or ``*/*`` means JSON.
        requested: a format's name or extension; takes precedence over ``accept``.

    Raises:
        InvalidField: ``requested`` is unknown; the message lists the formats.
        NotAcceptable: ``accept`` allows none; the message lists the media types.
    """
    if requested:
        return _named(requested)
    ranges = [_parse_range(item) for item in (accept or "*/*").split(",") if item.strip(" \t;")]
    scored = [(max(_quality(name, ranges) for name in (form.media_type, *form.aliases)), form) for form in FORMATS]
    quality, best = max(scored, key=lambda pair: pair[0], default=(0.0, FORMATS[0]))
    if ranges and quality <= 0:
        raise NotAcceptable(accept or "", [form.media_type for form in FORMATS])
    return best


def require_kind(form: Format, kind: str) -> None:
    """Raise InvalidField (422) for a format that documents of this ``Document.kind`` do not have."""
    if kind == KIND and form.recording is None:
        others = ", ".join(other.name for other in FORMATS if other.recording)
        raise InvalidField(
            f"format: {form.name} needs {form.lacks}, which a recording has not; for recordings there are {others}",
            param="format",
        )
    if kind != KIND and not form.lacks:
        others = ", ".join(other.name for other in FORMATS if other.lacks)
        raise InvalidField(
            f"format: {form.name} has the times of a recording, this file is {kind}; for it there are {others}",
            param="format",
        )


def stream_of(form: Format, document: Document) -> Stream | None:
    """What writes this document; None: the PDF, which searchable_pdf makes from the file. Raises: InvalidField."""
    require_kind(form, document.kind)
    return form.recording if document.kind == KIND else form.stream


def _named(requested: str) -> Format:
    name = requested.strip().lower()
    for form in FORMATS:
        if name in (form.name, form.extension):
            return form
    known = ", ".join(form.name for form in FORMATS)
    raise InvalidField(f"format: '{requested[:80]}' is not known; there are {known}", param="format")


def _parse_range(item: str) -> tuple[str, float]:
    """A media range and its weight ``q``, 0 if malformed; other parameters are ignored."""
    media_range, *parameters = (field.strip().lower() for field in item.split(";"))
    weight = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = min(1.0, max(0.0, float(value)))
            except ValueError:
                weight = 0.0
    return ("*/*" if media_range == "*" else media_range), weight  # Java's URLConnection sends "*; q=.2"


def _quality(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """The weight of the most specific range that matches a media type."""
    kind = media_type.split("/", maxsplit=1)[0]
    for pattern in (media_type, f"{kind}/*", "*/*"):
        weights = [weight for media_range, weight in ranges if media_range == pattern]
        if weights:
            return max(weights)
    return 0.0
