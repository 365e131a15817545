"""JSON with all fields of a document, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from backend.files.pages import Box, Document, Page, Word, printable_line
from backend.reasons import reasons_in
from backend.speech.pages import seconds_of

_SECOND_DIGITS = 3
_BOX_DIGITS = 2  # a hundredth of a point or pixel
_CONFIDENCE_DIGITS = 4


def stream_json(document: Document) -> Iterator[bytes]:
    """One JSON object, page by page."""
    head = orjson.dumps(document_fields(document))
    yield head[:-1] + b',"pages":['
    for index, page in enumerate(pages_fields(document)):
        yield (b"," if index else b"") + orjson.dumps(page)
    yield b"]}"


def document_fields(document: Document) -> dict[str, Any]:
    """The fields of a document without its pages."""
    return {
        "kind": document.kind,
        "page_count": document.page_count,
        "sha256": document.sha256,
        "metadata": {name: printable_line(value) for name, value in document.metadata.items()},
    }


def pages_fields(document: Document) -> Iterator[dict[str, Any]]:
    """The fields of its pages; a recording's are its minutes."""
    end_s = 0.0
    for page, start in zip(document.pages, document.page_starts, strict=True):
        if page.source == "speech":
            yield minute_fields(page, start, end_s)
            end_s = page.width
        else:
            yield page_fields(page, start)


def page_fields(page: Page, start: int) -> dict[str, Any]:
    """The fields of a page.

    Args:
        start: where its text begins in the document's; spans of its words are relative to the page's own text.
    """
    return {
        "number": page.number,
        "width": round(page.width, _BOX_DIGITS),
        "height": round(page.height, _BOX_DIGITS),
        "units_per_inch": round(page.units_per_inch, _BOX_DIGITS),
        "rotation": page.rotation,
        "source": page.source,
        "why": page.why,
        "reasons": reasons_in(page.why),
        "engine": page.engine,
        "confidence": None if page.confidence is None else round(page.confidence, _CONFIDENCE_DIGITS),
        "language": page.language,
        "incomplete": page.incomplete,
        **({"part": page.part} if page.part else {}),
        "start": start,
        "text": page.text,
        "words": [word_fields(word) for word in page.words],
    }


def minute_fields(page: Page, start: int, start_s: float) -> dict[str, Any]:
    """The fields of a minute of a recording: as a page's, with seconds for boxes.

    Args:
        start_s: the end of the minute before it.
    """
    fields = page_fields(page, start)
    for of_paper in ("width", "height", "units_per_inch", "rotation", "words"):
        del fields[of_paper]
    number = fields.pop("number")
    times = {"start_s": round(start_s, _SECOND_DIGITS), "end_s": round(page.width, _SECOND_DIGITS)}
    return {"number": number, **times, **fields, "words": [spoken_word_fields(word) for word in page.words]}


def spoken_word_fields(word: Word) -> dict[str, Any]:
    fields = word_fields(word)
    text = fields.pop("text")
    del fields["box"]
    return {"text": text, **seconds(word.box), **fields}


def word_fields(word: Word) -> dict[str, Any]:
    return {
        "text": word.text,
        "box": sides(word.box),
        "confidence": round(word.confidence, _CONFIDENCE_DIGITS),
        "start": word.start,
        "end": word.end,
        "line": word.line,
        "block": word.block,
    }


def seconds(box: Box) -> dict[str, float]:
    """A box on the axis of time as ``start_s`` and ``end_s``, rounded."""
    start_s, end_s = seconds_of(box)
    return {"start_s": round(start_s, _SECOND_DIGITS), "end_s": round(end_s, _SECOND_DIGITS)}


def sides(box: Box) -> list[float]:
    """A box as rounded left, top, right, bottom."""
    return [round(side, _BOX_DIGITS) for side in box]
