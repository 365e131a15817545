"""``POST /v1/vector_stores/{id}/search``: hybrid search whose hits point at their place on the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from rapidfuzz.distance import Levenshtein
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from backend.api.json_io import read_json, written_json
from backend.api.parameters import path_id
from backend.api.request_context import Handle, call_service, context_of, limits_of
from backend.api.request_fields import (
    TEXT,
    Texts,
    UpTo50,
    WireRequest,
    check_chars,
    reads,
    reads_unless_null,
    require_no_empty_items,
    require_not_empty,
    require_texts,
    wrong_type,
)
from backend.api.routes.embeddings import Usage
from backend.api.routes.files import FILE_ID
from backend.api.routes.store_files import PageSizeAnswer, attributes_answer, page_size_answers, text_answer
from backend.api.routes.vector_stores import KEY_SCHEMA, KIND, SCALAR_SCHEMAS, STORE_PARAMETER, check_key, check_scalar
from backend.api.routing import REQUEST_TIMEOUT, post
from backend.errors import InvalidField, TooLarge, param_of
from backend.files.pages import Box
from backend.lanes.inference import Urgency
from backend.search.filters import COMPARISONS, Comparison, Compound, Filter
from backend.search.records import Scalar, VectorStore
from backend.search.retrieval import Highlight, Hit, PageBox, Ranker, SearchAnswer, SearchOptions, SearchService
from backend.search.vector_stores import VectorStoreService
from backend.speech.pages import seconds_of

_search_of: Handle[SearchService] = Handle("search")
_vector_stores_of: Handle[VectorStoreService] = Handle("vector_stores")

_TYPO_LETTERS = 2  # wrong, missing or too many
_MAX_CHECKED = 20  # of one object; the others are counted


def unknown_members(names: Iterable[str], known: Sequence[str], location: str = "") -> tuple[str, ...]:
    """A warning for each name that is not known. Raises: InvalidField for one within two letters of a known one.

    Args:
        location: of the object in the request, such as ``ranking_options``; empty for the body.
    """
    unknown = [name for name in names if name not in known]
    for name in unknown[:_MAX_CHECKED]:
        meant = _nearest(name, known)
        if meant is not None:
            at = _at(name, location)
            raise InvalidField(f"{at}: is not a member; did you mean '{meant}'?")
    named = tuple(f"{_at(name, location):.80}: is not a member, and was ignored" for name in unknown[:_MAX_CHECKED])
    left = len(unknown) - len(named)
    return (*named, f"{location or 'body'}: {left:,} more unknown members were ignored") if left else named


def _at(name: str, location: str) -> str:
    return f"{location}.{name}" if location else name


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that this one most likely misspells."""
    near = [(Levenshtein.distance(name.lower(), one, score_cutoff=_TYPO_LETTERS), one) for one in known]
    letters, meant = min(near)
    return meant if letters <= _TYPO_LETTERS else None


_COMPOUNDS = ("and", "or")
_ORDERS = ("gt", "gte", "lt", "lte")
_LISTS = ("in", "nin")
_MAX_COMPARISONS = 100
_MAX_LEVELS = 16  # nobody writes so many; storages recurse
_MAX_VALUES = 1_000  # of one "in"


_VALUES = {"type": "array", "maxItems": _MAX_VALUES, "items": {"anyOf": SCALAR_SCHEMAS}}


class ComparisonFilter(BaseModel):
    """Compares an attribute of files with a value; for `in` and `nin` with several."""

    key: Annotated[str, WithJsonSchema(KEY_SCHEMA)]
    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    value: Annotated[Any, WithJsonSchema({"anyOf": [*SCALAR_SCHEMAS, _VALUES]})]


class CompoundFilter(BaseModel):
    """Joins filters, which may be compound again."""

    type: Literal["and", "or"]
    filters: list[ComparisonFilter | CompoundFilter] = Field(min_length=1)


def read_filter(value: Any, location: str = "filters") -> Filter:
    """A filter. Raises: InvalidField, TooLarge; their messages name where, such as ``filters.filters[1].value``."""
    return _Reader().read(value, location, 1)


class _Reader:
    """Reads one filter, and counts its comparisons."""

    def __init__(self) -> None:
        self._comparisons = 0

    def read(self, value: Any, location: str, level: int) -> Filter:
        if not isinstance(value, Mapping):
            raise wrong_type(location, value, "an object with key, type and value, or with type (and, or) and filters")
        if level > _MAX_LEVELS:
            raise TooLarge("filters: levels", level, _MAX_LEVELS, "fixed", param="filters")
        kind = value.get("type")
        if kind in _COMPOUNDS:
            return self._compound(value, kind, location, level)
        if type(kind) is str and kind in COMPARISONS:
            return self._comparison(value, kind, location)
        known = ", ".join((*COMPARISONS, *_COMPOUNDS))
        got = "nothing" if "type" not in value else repr(kind)
        raise InvalidField(f"{location}.type: must be one of {known}, got {got:.60}")

    def _compound(self, value: Mapping[str, Any], kind: Any, location: str, level: int) -> Compound:
        filters = value.get("filters")
        if type(filters) is not list:
            raise wrong_type(f"{location}.filters", filters, "a list of filters")
        if not filters:
            raise InvalidField(f"{location}.filters: must have one filter at least")
        parts = [self.read(part, f"{location}.filters[{index}]", level + 1) for index, part in enumerate(filters)]
        return Compound(kind, tuple(parts))

    def _comparison(self, value: Mapping[str, Any], kind: Any, location: str) -> Comparison:
        self._comparisons += 1
        if self._comparisons > _MAX_COMPARISONS:
            raise TooLarge("filters: comparisons", self._comparisons, _MAX_COMPARISONS, "fixed", param="filters")
        key = check_key(value.get("key"), f"{location}.key")
        if "value" not in value:
            raise InvalidField(f"{location}.value: is missing")
        return Comparison(key, kind, _value(value["value"], kind, f"{location}.value"))


def _value(value: Any, kind: str, location: str) -> Scalar | tuple[Scalar, ...]:
    if kind in _LISTS:
        return _values(value, kind, location)
    if type(value) is list:
        raise wrong_type(
            location, value, f"a text, a number or a boolean ('{kind}' compares with one; 'in' with several)"
        )
    scalar = check_scalar(value, location)
    if kind in _ORDERS and type(scalar) is bool:
        raise wrong_type(location, value, f"a number or a text ('{kind}' compares by order)")
    return scalar


def _values(value: Any, kind: str, location: str) -> tuple[Scalar, ...]:
    if type(value) is not list:
        raise wrong_type(location, value, f"a list of values for '{kind}'")
    if len(value) > _MAX_VALUES:
        raise TooLarge(f"{location}: values", len(value), _MAX_VALUES, "fixed", param=param_of(location))
    return tuple(check_scalar(item, f"{location}[{index}]") for index, item in enumerate(value))


FilterField = Annotated[
    Any, reads_unless_null(read_filter, json_schema_input_type=ComparisonFilter | CompoundFilter | None)
]
_MAX_QUERIES = 16  # each is searched
_MAX_WEIGHT = 1e6
RankerName = Literal["auto", "none", "default-2024-11-15", "default_2024_08_21"]


class HybridSearch(BaseModel):
    """How much vectors and words count; 0 leaves them out."""

    embedding_weight: float | None = Field(1.0, ge=0.0, le=_MAX_WEIGHT)
    text_weight: float | None = Field(1.0, ge=0.0, le=_MAX_WEIGHT)


class RankingOptions(BaseModel):
    """How hits are ranked."""

    ranker: RankerName | None = Field("auto", description="none: no cross-encoder, where one is configured.")
    score_threshold: float | None = Field(0.0, ge=0.0, le=1.0, description="Least score of a hit.")
    hybrid_search: HybridSearch | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranking options as they were read."""

    ranker: Ranker = "auto"
    score_threshold: float = 0.0
    vector_weight: float = 1.0
    keyword_weight: float = 1.0
    warnings: tuple[str, ...] = ()


def _number(value: Any, location: str, usual: float, most: float) -> float:
    if value is None:
        return usual
    if type(value) not in (int, float):
        raise wrong_type(location, value, "a number")
    if not (0 <= value <= most and math.isfinite(value)):
        raise InvalidField(f"{location}: must be 0 to {most:g}, got {value!r:.40}")
    return float(value)


def _read_ranking(value: Any, location: str) -> Ranking:
    if value is None:
        return Ranking()
    if type(value) is not dict:
        raise wrong_type(location, value, "an object")
    warnings = unknown_members(value, tuple(RankingOptions.model_fields), location)
    ranker = value.get("ranker")
    if ranker is not None and ranker not in get_args(RankerName):
        known = ", ".join(get_args(RankerName))
        raise InvalidField(f"{location}.ranker: must be one of {known}, got {ranker!r:.60}")
    hybrid = value.get("hybrid_search")
    if hybrid is None:
        hybrid = {}
    if type(hybrid) is not dict:
        raise wrong_type(f"{location}.hybrid_search", hybrid, "an object")
    warnings += unknown_members(hybrid, tuple(HybridSearch.model_fields), f"{location}.hybrid_search")
    vectors = _number(hybrid.get("embedding_weight"), f"{location}.hybrid_search.embedding_weight", 1.0, _MAX_WEIGHT)
    words = _number(hybrid.get("text_weight"), f"{location}.hybrid_search.text_weight", 1.0, _MAX_WEIGHT)
    if not vectors and not words:
        raise InvalidField(f"{location}.hybrid_search: one of the weights must be more than 0")
    return Ranking(
        ranker="none" if ranker == "none" else "auto",
        score_threshold=_number(value.get("score_threshold"), f"{location}.score_threshold", 0.0, 1.0),
        vector_weight=vectors,
        keyword_weight=words,
        warnings=warnings,
    )


def _read_query(value: Any, name: str) -> Texts:
    """One text becomes a list of one."""
    queries = value if type(value) is list else [value]
    if type(value) not in (str, list):
        raise wrong_type(name, value, "a text or a list of texts")
    require_not_empty(queries, name)
    require_texts(queries, name)
    if len(queries) > _MAX_QUERIES:
        raise TooLarge(name, len(queries), _MAX_QUERIES, "fixed", advice="Send several requests.", param=name)
    require_no_empty_items([query.strip() for query in queries], name)
    return queries


_QUERY = {**TEXT, "pattern": r"\S"}
QueryField = Annotated[
    Any,
    reads(_read_query),
    WithJsonSchema({"oneOf": [_QUERY, {"type": "array", "minItems": 1, "maxItems": _MAX_QUERIES, "items": _QUERY}]}),
]
RankingField = Annotated[Any, reads(_read_ranking, json_schema_input_type=RankingOptions | None)]


class SearchRequest(WireRequest):
    """`POST /v1/vector_stores/{id}/search`: a likely typo of a member is refused, another unknown one is warned of."""

    model_config = ConfigDict(strict=True, extra="allow")
    _warnings: tuple[str, ...] = ()

    query: QueryField = Field(description="What to look for; of several queries each is searched, and all are joined.")
    filters: FilterField = Field(None, description="Only files whose attributes fit.")
    max_num_results: UpTo50 | None = Field(10, description="Most hits to answer with.")
    ranking_options: RankingField = Field(None, validate_default=True)
    rewrite_query: bool | None = Field(False, description="Accepted and ignored: queries are searched as they are.")

    @model_validator(mode="after")
    def _check_members(self) -> SearchRequest:
        ranking: Ranking = self.ranking_options
        unknown = unknown_members(self.model_extra or (), tuple(SearchRequest.model_fields))
        self._warnings = (*unknown, *ranking.warnings)
        return self

    def warnings(self) -> tuple[str, ...]:
        """Of members that were ignored."""
        return self._warnings

    def options(self) -> SearchOptions:
        """The options of the search service."""
        ranking: Ranking = self.ranking_options
        return SearchOptions(
            limit=10 if self.max_num_results is None else self.max_num_results,
            filters=self.filters,
            ranker=ranking.ranker,
            score_threshold=ranking.score_threshold,
            vector_weight=ranking.vector_weight,
            keyword_weight=ranking.keyword_weight,
        )


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
    part: Annotated[
        str | None,
        Field(description="The sheet, slide, chapter or attachment that `page` is of; null where the file has none."),
    ]
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
    page = _page(hit)
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
        "page": page,
        "pages": list(hit.pages),
        "part": next((size.part for size in hit.file.pages if size.number == page and size.part), None),
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


def _places(places: Iterable[PageBox], *, is_spoken: bool) -> list[PlaceAnswer]:
    return [_place(place, is_spoken=is_spoken) for place in places]


def _place(place: PageBox, *, is_spoken: bool) -> PlaceAnswer:
    if is_spoken:
        start_s, end_s = seconds_of(place.box)
        return {"page": place.page, "start_s": round(start_s, _SECOND_DIGITS), "end_s": round(end_s, _SECOND_DIGITS)}
    return {"page": place.page, "box": _sides(place.box)}


def _sides(box: Box) -> Sides:
    left, top, right, bottom = (round(side, _BOX_DIGITS) for side in box)
    return left, top, right, bottom


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, _SCORE_DIGITS)


async def search(request: Request) -> Response:
    """The chunks of a vector store that answer a query best: by meaning and by words, reranked where that is set up.

    A hit has OpenAI's fields, and its place: `page`, `boxes` of its lines, `highlights` of the query's words with their
    boxes; of a recording, seconds. Filters look at the caller's attributes, then at those found in the document
    (`found_attributes` of its file). 409 `wrong_encoder`: another model made the vectors of this store; `POST
    …/reembed`.
    """
    context = context_of(request)
    store_id = path_id(request, KIND)
    body = await read_json(request, SearchRequest)
    characters = check_chars(body.query, limits_of(request), "query")
    options = body.options()

    async def work(*, urgency: Urgency) -> SearchAnswer:
        owner = context.caller.owner
        found = await _search_of(request).search(owner, store_id, body.query, options, urgency)
        store = await _vector_stores_of(request).find(owner, store_id)
        return replace(found, warnings=(*body.warnings(), *_of_files_to_come(store), *found.warnings))

    answer = await call_service(request, work, characters=characters)
    context.meter.charge("tokens", answer.tokens)
    places = sum(len(hit.places) + len(hit.highlights) for hit in answer.hits)
    return await written_json(partial(search_answer, answer), places)


def _of_files_to_come(store: VectorStore) -> tuple[str, ...]:
    """A warning while files of the store are still being read: an answer without their hits looks complete."""
    count = store.counts.get("in_progress", 0)
    if not count:
        return ()
    files = "1 file of this store is" if count == 1 else f"{count:,} files of this store are"
    return (f"{files} still being read and cannot be found yet; GET /v1/vector_stores/{store.id} tells when",)


_HIT: dict[str, Any] = {
    "file_id": FILE_ID, "filename": "factura-017.pdf", "score": 0.9836, "attributes": {"year": 2026},
    "content": [{"type": "text", "text": "Vencimiento: 31 de marzo de 2026"}], "chunk_id": "48", "chunk_index": 1,
    "start": 412, "end": 444, "page": 1, "pages": [1], "part": None, "start_s": None, "end_s": None,
    "boxes": [{"page": 1, "box": [56.7, 640.1, 260.4, 652.3]}],
    "highlights": [{"start": 0, "end": 11, "boxes": [{"page": 1, "box": [56.7, 640.1, 118.2, 652.3]}]}],
    "scores": {"vector": 0.871, "keyword": 6.42, "rerank": None}, "duplicates": [],
    "page_sizes": [{"page": 1, "width": 595.0, "height": 842.0, "rotation": 0}],
}  # fmt: skip
_EXAMPLE = {
    "object": "vector_store.search_results.page", "search_query": ["¿Cuándo vence la factura?"], "data": [_HIT],
    "has_more": False, "next_page": None, "warnings": [], "usage": {"prompt_tokens": 9, "total_tokens": 9},
}  # fmt: skip
ROUTES = (
    post(
        "/v1/vector_stores/{id}/search",
        search,
        tag="OpenAI",
        request=SearchRequest,
        examples={
            "a question": {"query": "¿Cuándo vence la factura?", "max_num_results": 5},
            "with filters": {
                "query": "factura",
                "filters": {
                    "type": "and",
                    "filters": [
                        {"key": "vendor_tax_id", "type": "eq", "value": "B12345674"},
                        {"key": "invoice_total", "type": "gt", "value": 1000},
                    ],
                },
                "ranking_options": {
                    "ranker": "auto",
                    "score_threshold": 0.2,
                    "hybrid_search": {"embedding_weight": 1, "text_weight": 2},
                },
            },
        },
        schema=SearchPageAnswer,
        example=_EXAMPLE,
        errors=(400, 404, 409, 413, 415, 422, 429, 504, 507),
        parameters=(STORE_PARAMETER, REQUEST_TIMEOUT),
    ),
)
