"""The request to search a vector store: OpenAI's, with the weights of its hybrid search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo, WithJsonSchema, model_validator

from backend.api.requests.fields import TEXT, UpTo50, WireRequest
from backend.api.requests.places import param_of, wrong_type_at
from backend.api.requests.search_filters import FilterField
from backend.api.requests.unknown_members import unknown_members
from backend.api.requests.validation import (
    Texts,
    require_no_empty_items,
    require_not_empty,
    require_texts,
)
from backend.errors import InvalidField, TooLarge
from backend.search.search_records import Ranker, SearchOptions

_MOST_QUERIES = 16  # each is searched
_MOST_WEIGHT = 1e6
RankerName = Literal["auto", "none", "default-2024-11-15", "default_2024_08_21"]


class HybridSearch(BaseModel):
    """How much vectors and words count; 0 leaves them out."""

    embedding_weight: float | None = Field(1.0, ge=0.0, le=_MOST_WEIGHT)
    text_weight: float | None = Field(1.0, ge=0.0, le=_MOST_WEIGHT)


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


def _number(value: Any, place: str, usual: float, most: float) -> float:
    if value is None:
        return usual
    if type(value) not in (int, float):
        raise wrong_type_at(place, value, "a number")
    if not (0 <= value <= most and math.isfinite(value)):
        raise InvalidField(f"{place}: must be 0 to {most:g}, got {value!r:.40}", param=param_of(place))
    return float(value)


def _read_ranking(value: Any, info: ValidationInfo) -> Ranking:
    place = info.field_name or "ranking_options"
    if value is None:
        return Ranking()
    if type(value) is not dict:
        raise wrong_type_at(place, value, "an object")
    warnings = unknown_members(value, tuple(RankingOptions.model_fields), place)
    ranker = value.get("ranker")
    if ranker is not None and ranker not in get_args(RankerName):
        known = ", ".join(get_args(RankerName))
        raise InvalidField(f"{place}.ranker: must be one of {known}, got {ranker!r:.60}", param=place)
    hybrid = value.get("hybrid_search")
    if hybrid is None:
        hybrid = {}
    if type(hybrid) is not dict:
        raise wrong_type_at(f"{place}.hybrid_search", hybrid, "an object")
    warnings += unknown_members(hybrid, tuple(HybridSearch.model_fields), f"{place}.hybrid_search")
    vectors = _number(hybrid.get("embedding_weight"), f"{place}.hybrid_search.embedding_weight", 1.0, _MOST_WEIGHT)
    words = _number(hybrid.get("text_weight"), f"{place}.hybrid_search.text_weight", 1.0, _MOST_WEIGHT)
    if not vectors and not words:
        raise InvalidField(f"{place}.hybrid_search: one of the weights must be more than 0", param=place)
    return Ranking(
        ranker="none" if ranker == "none" else "auto",
        score_threshold=_number(value.get("score_threshold"), f"{place}.score_threshold", 0.0, 1.0),
        vector_weight=vectors,
        keyword_weight=words,
        warnings=warnings,
    )


def _read_query(value: Any, info: ValidationInfo) -> Texts:
    """One text becomes a list of one."""
    name = info.field_name or "query"
    queries = value if type(value) is list else [value]
    if type(value) not in (str, list):
        raise wrong_type_at(name, value, "a text or a list of texts")
    require_not_empty(queries, name)
    require_texts(queries, name)
    if len(queries) > _MOST_QUERIES:
        raise TooLarge(name, len(queries), _MOST_QUERIES, "fixed", advice="Send several requests.", param=name)
    require_no_empty_items([query.strip() for query in queries], name)
    return queries


_QUERY = {**TEXT, "pattern": r"\S"}
QueryField = Annotated[
    Any,
    PlainValidator(_read_query),
    WithJsonSchema({"oneOf": [_QUERY, {"type": "array", "minItems": 1, "maxItems": _MOST_QUERIES, "items": _QUERY}]}),
]
RankingField = Annotated[Any, PlainValidator(_read_ranking, json_schema_input_type=RankingOptions | None)]


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
            where=self.filters,
            ranker=ranking.ranker,
            score_threshold=ranking.score_threshold,
            vector_weight=ranking.vector_weight,
            keyword_weight=ranking.keyword_weight,
        )


REQUESTS: tuple[type[BaseModel], ...] = (SearchRequest,)
