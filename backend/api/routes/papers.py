"""A paper in a JSON request: its text, its pages as they were answered, or the id of a stored document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from starlette.requests import Request

from backend.abandoned import require_wanted
from backend.api.request_context import Handle, limits_of, owner_of, services_of
from backend.api.request_fields import check_chars
from backend.errors import InvalidField, NotFound, TooLarge, param_of
from backend.files.pages import Box, Document, Page, RawWord, make_page
from backend.files.text_files import document_of_text
from backend.search.lessons import page_of
from backend.search.stored_documents import MAX_UNITS, StoredDocuments, is_box

_stored_documents_of: Handle[StoredDocuments] = Handle("stored_documents")

MAX_WORDS = 50_000  # of all papers of a request
_WORD = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "box": {"type": "array", "minItems": 4, "maxItems": 4, "items": {"type": "number"}},
    },
    "required": ["text", "box"],
}


def pages_schema(most_pages: int, *, least_words: int = 0) -> dict[str, Any]:
    """Pages of a request, or null. Args: least_words: of a page."""
    words = {"type": "array", "minItems": least_words, "items": _WORD}
    page = {"type": "object", "properties": {"words": words}, "required": ["words"]}
    pages = {"type": "array", "minItems": 1, "maxItems": most_pages, "items": page}
    return {"anyOf": [pages, {"type": "null"}]}


class SentPaper(Protocol):
    """A request, or a part of it, that has one of the three."""

    @property
    def input(self) -> str | None: ...

    @property
    def pages(self) -> list[Any] | None: ...

    @property
    def document(self) -> str | None:
        """The id of a stored document."""


async def read_paper(request: Request, paper: SentPaper, location: str, *, most_pages: int) -> Document:
    """The paper as a document; a text is a page set by a typewriter, and its words keep their places.

    Args:
        location: of the paper in the request, as "examples[0]"; empty where it is the request itself.
        most_pages: more of ``pages`` are refused, more of a stored document are not read.

    Raises: InvalidField, TooLarge, NotFound for the request; Unavailable.
    """
    inside = f"{location}." if location else ""
    text, pages, document = paper.input, paper.pages, paper.document
    sent = [name for name in ("input", "pages", "document") if getattr(paper, name) is not None]
    if len(sent) != 1:
        got = " and ".join(sent) or "none of them"
        raise InvalidField(
            f"{location}{': ' if location else ''}needs one of input, pages and document, got {got}",
            param=param_of(location) or "input",
        )
    if text is not None:
        check_chars([text], limits_of(request), f"{inside}input")
        return await services_of(request).text_work.run_long(partial(document_of_text, text), len(text))
    if pages is not None:
        read = partial(_wire_pages, pages, f"{inside}pages", most_pages, limits_of(request).text_chars)
        return _document(await services_of(request).text_work.run_long(read, _rough_chars(pages)))
    assert document is not None
    try:
        stored = await _stored_documents_of(request).pages(owner_of(request), document)
    except NotFound as error:
        raise NotFound(
            f"{inside}document: there is no stored document '{document[:64]}'", param=param_of(f"{inside}document")
        ) from error
    whole = [page for page in stored[:most_pages] if page.keys() >= {"words", "width"}]
    kept = await services_of(request).text_work.run_long(lambda: [page_of(page) for page in whole], _rough_chars(whole))
    return _document(kept)


def _document(pages: Sequence[Page]) -> Document:
    return Document("pages", tuple(pages), len(pages), "")


def _rough_chars(pages: Sequence[Any]) -> int:
    """Ten characters a word."""
    words = (page.get("words") for page in pages if isinstance(page, dict))
    return 10 * sum(len(each) for each in words if isinstance(each, list))


def _wire_pages(pages: Sequence[Any], location: str, most_pages: int, most_chars: int) -> list[Page]:
    if not 1 <= len(pages) <= most_pages:
        raise TooLarge(
            location,
            len(pages),
            most_pages,
            "a fixed limit",
            advice="Send those that matter.",
            param=param_of(location),
        )
    made: list[Page] = []
    for index, page in enumerate(pages):
        require_wanted()
        made.append(_wire_page(page, index, f"{location}[{index}]"))
    if (chars := sum(len(page.text) for page in made)) > most_chars:
        raise TooLarge(f"{location} characters", chars, most_chars, "LIMIT_TEXT_CHARS", param=param_of(location))
    return made


def _wire_page(page: Any, index: int, location: str) -> Page:
    words = page.get("words") if isinstance(page, dict) else None
    if not isinstance(words, list) or len(words) > MAX_WORDS:
        raise InvalidField(f"{location}: must be an object with words, each {{text, box}}")
    lines: dict[tuple[Any, Any], list[RawWord]] = {}
    for number, word in enumerate(words):
        box: Any = word.get("box") if isinstance(word, dict) else None
        if not is_box(box) or not isinstance(word.get("text"), str) or not word["text"]:
            raise InvalidField(
                f"{location}.words[{number}]: must be {{text, box}}, a text and its left, top, right, bottom"
            )
        block, number_of_line = (n if isinstance(n := word.get(name), int) else None for name in ("block", "line"))
        line = (None, box[1]) if number_of_line is None else (block, number_of_line)
        lines.setdefault(line, []).append(RawWord(word["text"], Box(*map(float, box))))
    right = max((word.box.right for line in lines.values() for word in line), default=1.0)
    bottom = max((word.box.bottom for line in lines.values() for word in line), default=1.0)
    width, height = (
        page[side] if _is_length(page.get(side)) else end for side, end in (("width", right), ("height", bottom))
    )
    return make_page(
        [lines.values()],
        number=index + 1,
        width=width,
        height=height,
        source="text_layer",
        why="as it was sent",
        engine="text",
    )


def _is_length(side: Any) -> bool:
    return type(side) in (int, float) and 0 < side <= MAX_UNITS
