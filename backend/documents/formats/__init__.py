"""The formats an answer can have, and which one a request means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backend.documents.formats.alto import alto_parts
from backend.documents.formats.hocr import hocr_parts
from backend.documents.formats.markdown import markdown_parts
from backend.documents.formats.plain_json import json_parts
from backend.documents.formats.plain_text import text_parts
from backend.documents.pages import Document
from backend.errors import InvalidField, NotAcceptable


@dataclass(frozen=True, slots=True)
class Format:
    """One form of an answer."""

    name: str  # what the request's ``format`` says
    media_type: str
    extension: str  # without its dot
    parts: Callable[[Document], Iterator[bytes]] | None  # None: the PDF, which searchable_pdf makes of the file itself
    also: tuple[str, ...] = ()  # other media types that mean it

    @property
    def content_type(self) -> str:
        """What the answer's header says."""
        return self.media_type if self.media_type.startswith("application/") else f"{self.media_type}; charset=utf-8"


# In the order of preference where a request leaves the choice. hOCR's and ALTO's own types are those that IIIF viewers
# and digital libraries use; neither is registered.
FORMATS: tuple[Format, ...] = (
    Format("json", "application/json", "json", json_parts),
    Format("text", "text/plain", "txt", text_parts),
    Format("markdown", "text/markdown", "md", markdown_parts, ("text/x-markdown",)),
    Format("hocr", "text/vnd.hocr+html", "hocr", hocr_parts, ("text/html", "application/xhtml+xml")),
    Format("alto", "application/alto+xml", "xml", alto_parts, ("application/xml+alto", "application/xml", "text/xml")),
    Format("pdf", "application/pdf", "pdf", None),
)


def negotiate(accept: str | None, wished: str | None = None) -> Format:
    """The format of an answer: what ``format`` names, else the best that ``Accept`` allows (RFC 9110, 12.5.1).

    Args:
        accept: the header's value; absent, empty or ``*/*`` means JSON.
        wished: a format's name or extension; it goes before ``accept``.

    Raises:
        InvalidField: ``wished`` is no format; the message lists them.
        NotAcceptable: ``accept`` allows none of them; the message lists them.
    """
    if wished:
        return _named(wished)
    ranges = [_read_range(item) for item in (accept or "*/*").split(",") if item.strip(" \t;")]
    scored = [(max(_quality(media_type, ranges) for media_type in (one.media_type, *one.also)), one) for one in FORMATS]
    quality, best = max(scored, key=lambda pair: pair[0], default=(0.0, FORMATS[0]))
    if ranges and quality <= 0:
        raise NotAcceptable(accept or "", [one.media_type for one in FORMATS])
    return best


def _named(wished: str) -> Format:
    name = wished.strip().lower()
    for one in FORMATS:
        if name in (one.name, one.extension):
            return one
    known = ", ".join(one.name for one in FORMATS)
    raise InvalidField(f"format: '{wished[:80]}' is not known; there are {known}", param="format")


def _read_range(item: str) -> tuple[str, float]:
    """A media range and its weight; one that cannot be read weighs nothing, parameters but ``q`` are passed over."""
    media_range, *parameters = (part.strip().lower() for part in item.split(";"))
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
    """The weight of the most exact range that a media type is in."""
    kind = media_type.split("/", maxsplit=1)[0]
    for exactness in (media_type, f"{kind}/*", "*/*"):
        weights = [weight for media_range, weight in ranges if media_range == exactness]
        if weights:
            return max(weights)
    return 0.0
