"""Answers of searches: OpenAI's results, with the place of each hit on its page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from backend.api.responses.embeddings import Usage
from backend.api.responses.vector_stores import PageSizeAnswer, attributes_answer, page_size_answers, text_answer
from backend.files.pages import Box
from backend.search.search_records import Highlight, Hit, Place, SearchAnswer
from backend.speech.pages import seconds_of

Sides = tuple[float, float, float, float]
_BOX_DIGITS = 2
_SCORE_DIGITS = 6
_SECOND_DIGITS = 3


class PlaceAnswer(TypedDict):
    """A rectangle on a page as it stands upright, or a stretch of a recording."""

    page: int
    box: NotRequired[Annotated[Sides, Field(description="Left, top, right, bottom, in page units.")]]
    start_s: NotRequired[Annotated[float, Field(description="Of a recording, from the beginning of the file.")]]
    end_s: NotRequired[float]


class HighlightAnswer(TypedDict):
    """Words of the query; `start` and `end` count code points of the hit's text."""

    start: int
    end: int
    boxes: list[PlaceAnswer]


class ContentAnswer(TypedDict):
    """A text."""

    type: Literal["text"]
    text: str


class HitScoresAnswer(TypedDict):
    """The scores behind a hit's; null where it was not in that ranking."""

    vector: Annotated[float | None, Field(description="Cosine.")]
    keyword: Annotated[float | None, Field(description="BM25.")]
    rerank: Annotated[float | None, Field(description="The cross-encoder's, 0 to 1.")]


class HitAnswer(TypedDict):
    """OpenAI's search result, and its place on paper."""

    file_id: str
    filename: str
    score: Annotated[
        float, Field(description="0 to 1: the cross-encoder's where there is one; else 1 is the best of both.")
    ]
    attributes: Annotated[dict[str, str | float | bool], Field(description="The caller's own.")]
    content: list[ContentAnswer]
    chunk_id: Annotated[str, Field(description="Ours, as are the fields below.")]
    chunk_index: Annotated[int, Field(description="In its file, from 0.")]
    start: Annotated[int, Field(description="In the file's text, in code points.")]
    end: int
    page: Annotated[
        int | None, Field(description="Where the query's words first stand, else where it begins; null for plain text.")
    ]
    pages: list[int]
    start_s: Annotated[
        float | None, Field(description="Of a recording: where the query's words are first said, else where it begins.")
    ]
    end_s: Annotated[float | None, Field(description="Of a recording: where it ends; null on paper.")]
    boxes: Annotated[list[PlaceAnswer], Field(description="Of its lines; of a recording its segments.")]
    highlights: list[HighlightAnswer]
    scores: HitScoresAnswer
    duplicates: Annotated[
        list[str],
        Field(description="Ids of other files with the same bytes: their equal passages are this hit, not others."),
    ]
    page_sizes: Annotated[list[PageSizeAnswer], Field(description="Of its pages.")]


class SearchPageAnswer(TypedDict):
    """OpenAI's page of search results."""

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[HitAnswer]
    has_more: Annotated[bool, Field(description="Whether there are hits beyond max_num_results.")]
    next_page: None
    warnings: Annotated[
        list[str],
        Field(
            description="Unknown members and attributes, files still being read, a query longer than the model reads."
        ),
    ]
    usage: Usage


def search_answer(answer: SearchAnswer) -> SearchPageAnswer:
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(answer.queries),
        "data": [_hit(hit) for hit in answer.hits],
        "has_more": answer.has_more,
        "next_page": None,
        "warnings": list(answer.warnings),
        "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
    }


def _hit(hit: Hit) -> HitAnswer:
    pages, is_spoken = frozenset(hit.pages), any(page.is_time for page in hit.file.pages)
    start_s, end_s = _seconds(hit) if is_spoken else (None, None)
    return {
        "file_id": hit.file.file_id,
        "filename": hit.file.name,
        "score": round(hit.score, _SCORE_DIGITS),
        "attributes": attributes_answer(hit.file.attributes),
        "content": [{"type": "text", "text": text_answer(hit.chunk.text)}],
        "chunk_id": str(hit.chunk.id),
        "chunk_index": hit.chunk.index,
        "start": hit.chunk.start,
        "end": hit.chunk.end,
        "page": _page(hit),
        "pages": list(hit.pages),
        "start_s": start_s,
        "end_s": end_s,
        "boxes": _places(hit.places, is_spoken=is_spoken),
        "highlights": [_highlight(highlight, is_spoken=is_spoken) for highlight in hit.highlights],
        "scores": {
            "vector": _rounded(hit.scores.vector),
            "keyword": _rounded(hit.scores.keyword),
            "rerank": _rounded(hit.scores.rerank),
        },
        "duplicates": list(hit.duplicates),
        "page_sizes": [page for page in page_size_answers(hit.file.pages) if page["page"] in pages],
    }


def _page(hit: Hit) -> int | None:
    """The page to open."""
    words = next((highlight.places[0].page for highlight in hit.highlights if highlight.places), None)
    return words if words is not None else next(iter(hit.pages), None)


def _seconds(hit: Hit) -> tuple[float | None, float | None]:
    """When to begin to listen, and where the hit ends."""
    said = next((highlight.places[0] for highlight in hit.highlights if highlight.places), None)
    first = said or next(iter(hit.places), None)
    if first is None:
        return None, None
    return round(first.box.left, _SECOND_DIGITS), round(max(place.box.right for place in hit.places), _SECOND_DIGITS)


def _highlight(highlight: Highlight, *, is_spoken: bool) -> HighlightAnswer:
    places = _places(highlight.places, is_spoken=is_spoken)
    return {"start": highlight.start, "end": highlight.end, "boxes": places}


def _places(places: Iterable[Place], *, is_spoken: bool) -> list[PlaceAnswer]:
    return [_place(place, is_spoken=is_spoken) for place in places]


def _place(place: Place, *, is_spoken: bool) -> PlaceAnswer:
    if is_spoken:
        start_s, end_s = seconds_of(place.box)
        return {"page": place.page, "start_s": round(start_s, _SECOND_DIGITS), "end_s": round(end_s, _SECOND_DIGITS)}
    return {"page": place.page, "box": _sides(place.box)}


def _sides(box: Box) -> Sides:
    left, top, right, bottom = (round(side, _BOX_DIGITS) for side in box)
    return left, top, right, bottom


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, _SCORE_DIGITS)


SCHEMAS: tuple[type, ...] = (SearchPageAnswer,)
