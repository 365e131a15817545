"""Records of the search service: what a search may ask for, and its hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from backend.files.pages import Box
from backend.search.filters import Filter
from backend.search.records import StoredChunk, StoreFile

Ranker = Literal["auto", "none"]  # auto: a cross-encoder reranks where one is configured


@dataclass(frozen=True, slots=True)
class SearchOptions:
    limit: int = 10  # 1 to 50
    filters: Filter | None = None
    ranker: Ranker = "auto"
    score_threshold: float = 0.0
    vector_weight: float = 1.0  # of the fusion; 0 leaves vectors out, so that no encoder is needed
    keyword_weight: float = 1.0


class PageBox(NamedTuple):
    """A box on a page, in page units."""

    page: int
    box: Box


@dataclass(frozen=True, slots=True)
class Highlight:
    """Words of the query in a chunk."""

    start: int  # in the chunk's text
    end: int
    places: tuple[PageBox, ...]


@dataclass(frozen=True, slots=True)
class HitScores:
    """None where the chunk was not in that ranking."""

    vector: float | None = None  # cosine
    keyword: float | None = None  # BM25
    rerank: float | None = None  # 0 to 1


@dataclass(frozen=True, slots=True)
class Hit:
    file: StoreFile
    chunk: StoredChunk
    score: float  # 0 to 1: the reranker's, or that of the fusion
    scores: HitScores
    pages: tuple[int, ...]  # on which the chunk stands; empty for plain text
    places: tuple[PageBox, ...]  # of its lines
    highlights: tuple[Highlight, ...]
    duplicates: tuple[str, ...] = ()  # ids of other files with the same bytes, whose equal chunk would be a hit too


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    queries: tuple[str, ...]
    hits: Sequence[Hit]
    has_more: bool
    tokens: int  # of the queries, and of what was reranked
    warnings: tuple[str, ...] = field(default=())  # attributes that no file has, a query longer than the model reads
