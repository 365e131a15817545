"""JSON with all fields of a document, in a fixed order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import orjson

from backend.files.pages import Box, Document, Page, Word, printable_line
from backend.reasons import reasons_in
from backend.speech.pages import seconds_of

_SECOND_DIGITS = 3
_BOX_DIGITS = 2  # a hundredth of a point or pixel
_CONFIDENCE_DIGITS = 4
_WORDS_AT_ONCE = 1_000  # a page may have hundreds of thousands, and the writer holds Python's lock to its end


def stream_json(document: Document) -> Iterator[bytes]:
    """One JSON object, in pieces."""
    head = orjson.dumps(document_fields(document))
    yield head[:-1] + b',"pages":'
    yield from written_pages(document)
    yield b"}"


def document_fields(document: Document) -> dict[str, Any]:
    """The fields of a document without its pages."""
    return {
        "kind": document.kind,
        "page_count": document.page_count,
        "sha256": document.sha256,
        "metadata": {name: printable_line(value) for name, value in document.metadata.items()},
    }


def written_pages(document: Document, omitted: Collection[str] = ()) -> Iterator[bytes]:
    """The list of its pages as JSON, in pieces; a recording's are its minutes.

    Args:
        omitted: fields that are left out.
    """
    end_s = 0.0
    for index, (page, start) in enumerate(zip(document.pages, document.page_starts, strict=True)):
        is_spoken = page.source == "speech"
        fields = minute_fields(page, start, end_s) if is_spoken else page_fields(page, start)
        end_s = page.width
        head = orjson.dumps({name: value for name, value in fields.items() if name not in omitted})
        yield (b"," if index else b"[") + head[:-1]
        if "words" not in omitted:
            yield b',"words":['
            write = spoken_word_fields if is_spoken else word_fields
            for first in range(0, len(page.words), _WORDS_AT_ONCE):
                words = orjson.dumps([write(word) for word in page.words[first : first + _WORDS_AT_ONCE]])
                yield (b"," if first else b"") + words[1:-1]
            yield b"]"
        yield b"}"
    yield b"]" if document.pages else b"[]"


def page_fields(page: Page, start: int) -> dict[str, Any]:
    """The fields of a page, without its words.

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
    }


def minute_fields(page: Page, start: int, start_s: float) -> dict[str, Any]:
    """The fields of a minute of a recording: as a page's, with seconds for boxes.

    Args:
        start_s: the end of the minute before it.
    """
    fields = page_fields(page, start)
    for of_paper in ("width", "height", "units_per_inch", "rotation"):
        del fields[of_paper]
    number = fields.pop("number")
    times = {"start_s": round(start_s, _SECOND_DIGITS), "end_s": round(page.width, _SECOND_DIGITS)}
    return {"number": number, **times, **fields}


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
