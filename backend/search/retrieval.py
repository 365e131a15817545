"""The use case behind ``POST /v1/vector_stores/{id}/search``: hybrid search with the place of each hit on its page."""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from backend.abandoned import together
from backend.errors import InferenceFailed, InvalidField, StorageCorrupt, Unavailable, WrongEncoder
from backend.files.pages import Box, bounding_box
from backend.lanes.inference import Urgency, offload
from backend.models.calibration import relevance
from backend.models.encoder import Vectors
from backend.search.attributes import with_id_forms
from backend.search.document_chunks import PASSAGE, QUERY, identity_of
from backend.search.filters import Comparison, Filter, keys_of
from backend.search.keywords import Identifiers, matched_spans, query_identifiers, query_terms, word_coverage
from backend.search.records import (
    ChunkContent,
    KeywordQuery,
    PlacedWord,
    Ranked,
    Scalar,
    StoredChunk,
    StoreFile,
    VectorStore,
)
from backend.search.storage import SearchStorage
from backend.search.vector_stores import VectorStoreService
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import RERANKER
from backend.telemetry import Telemetry, log_event
from backend.text.embeddings import EmbeddingService
from backend.text.neutral_vectors import NeutralVectors
from backend.text.reranking import RerankService
from backend.tracing.spans import record_last

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


class Ranking(NamedTuple):
    """Chunks by one score, best first."""

    ranked: Sequence[Ranked]
    weight: float = 1.0  # not negative
    floor: float = 0.0  # the score of a chunk that has nothing to do with the query
    # The best hit counts fully if it is this far above the floor, and in proportion if it is less: the nearest of
    # unrelated chunks is not a good hit.
    least_range: float = 0.0


def fuse(rankings: Sequence[Ranking]) -> list[Ranked]:
    """The chunks of all rankings, best first; scores from 0 to 1, where 1 is the best hit of every ranking.

    A chunk that a ranking does not have gets nothing from it. Of equal scores the one that an earlier ranking names
    first comes first.
    """
    counted = [ranking for ranking in rankings if ranking.weight > 0]
    heaviest = max((ranking.weight for ranking in counted), default=1.0)
    total = sum(ranking.weight / heaviest for ranking in counted)  # divided first: no sum is infinite
    scores: dict[int, float] = {}
    for ranking in counted:
        share = ranking.weight / heaviest / total
        for chunk_id, score in _scaled(ranking):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + share * score
    ordered = sorted(scores.items(), key=lambda item: -item[1])
    return [Ranked(chunk_id, min(1.0, max(0.0, score))) for chunk_id, score in ordered]


def _scaled(ranking: Ranking) -> list[Ranked]:
    """Scores below the floor stay in their order, below 0."""
    if not ranking.ranked:
        return []
    above = max(ranking.ranked[0].score - ranking.floor, ranking.least_range)
    if above <= 0:
        above = 1.0
    return [Ranked(chunk_id, (score - ranking.floor) / above) for chunk_id, score in ranking.ranked]


_ATTRIBUTES_READ = 1_000  # names of a store's attributes that a filter is compared with
_ATTRIBUTES_NAMED = 10  # in a warning


async def filter_warnings(storage: SearchStorage, store_id: str, filters: Filter | None) -> tuple[str, ...]:
    """One for each attribute of the filter that no file has, or that has values of other types only."""
    if filters is None:
        return ()
    keys = tuple(dict.fromkeys(keys_of(filters)))
    known = await storage.attribute_keys(store_id, _ATTRIBUTES_READ)
    unknown = [key for key in keys if key not in known]
    kinds = await storage.attribute_types(store_id, [key for key in keys if key in known])
    if len(known) == _ATTRIBUTES_READ:  # there may be more, behind these
        unknown = [key for key in unknown if key < known[-1]]
    named = ", ".join(known[:_ATTRIBUTES_NAMED]) + (", …" if len(known) > _ATTRIBUTES_NAMED else "")
    there = f"they have {named}" if known else "they have none"
    warnings = [f"filters: no file of this store has the attribute '{key:.64}'; {there}" for key in unknown]
    for key, held in kinds.items():
        asked = {_type(value) for comparison in _comparisons(filters, key) for value in _values(comparison)}
        if held and (strange := sorted(asked - held)):
            warnings.append(
                f"filters: '{key:.64}' holds {' and '.join(sorted(held))} in this store, and is compared with "
                f"{' and '.join(strange)}, which no value equals"
            )
    return tuple(warnings)


def _comparisons(filters: Filter, key: str) -> Iterator[Comparison]:
    if not isinstance(filters, Comparison):
        for part in filters.filters:
            yield from _comparisons(part, key)
    elif filters.key == key:
        yield filters


def _values(comparison: Comparison) -> tuple[Scalar, ...]:
    return comparison.value if isinstance(comparison.value, tuple) else (comparison.value,)


def _type(value: Scalar) -> str:
    return "texts" if isinstance(value, str) else "booleans" if isinstance(value, bool) else "numbers"


def line_places(words: Iterable[PlacedWord]) -> tuple[PageBox, ...]:
    """One box a line, around the words of it that are given; in the order of the lines' first words."""
    lines: dict[tuple[int, int], list[Box]] = {}
    for word in words:
        lines.setdefault((word.page, word.line), []).append(word.box)
    return tuple(PageBox(page, bounding_box(boxes)) for (page, _), boxes in lines.items())


def pages_of(words: Iterable[PlacedWord]) -> tuple[int, ...]:
    """The numbers of the pages on which words stand, ascending."""
    return tuple(sorted({word.page for word in words}))


def highlights_of(chunk: StoredChunk, query: KeywordQuery, language: str | None) -> tuple[Highlight, ...]:
    """The words of the query in a chunk, with the boxes of the printed words that they touch."""
    spans = matched_spans(chunk.text, query, language)
    starts = [word.start for word in chunk.words]
    return tuple(Highlight(start, end, line_places(_between(chunk.words, starts, start, end))) for start, end in spans)


def _between(words: Sequence[PlacedWord], starts: Sequence[int], start: int, end: int) -> Iterable[PlacedWord]:
    """The words that overlap a span; ``starts`` are theirs."""
    first = max(0, bisect_right(starts, start) - 1)
    for word in words[first:]:
        if word.start >= end:
            return
        if word.end > start:
            yield word


def without_equal(
    ranked: Sequence[Ranked], contents: Iterable[ChunkContent]
) -> tuple[list[Ranked], Mapping[int, tuple[str, ...]]]:
    """Of equal chunks the best one, in the order of the ranking; and for it the other files that have it, best first.

    A chunk that ``contents`` lacks is equal to none.
    """
    known = {content.chunk_id: content for content in contents}
    firsts: dict[tuple[object, ...], int] = {}
    kept: list[Ranked] = []
    others: dict[int, list[str]] = {}
    for candidate in ranked:
        content = known.get(candidate.chunk_id)
        first = candidate.chunk_id if content is None else firsts.setdefault(content[2:], candidate.chunk_id)
        if content is None or first == candidate.chunk_id:
            kept.append(candidate)
        else:
            others.setdefault(first, []).append(content.file_id)
    return kept, {chunk_id: tuple(file_ids) for chunk_id, file_ids in others.items()}


_log = logging.getLogger(__name__)
_DEPTH = 100  # chunks of each ranking; 50 to 1,000 find the same (benchmarks/evaluation/search.py)
_DEEPER = 8  # times as many, where equal chunks leave too few
_DEEPEST = 6_400  # then no deeper: 409,600 chunks took 1.4 s of a core for each search (measured)
_RERANKED = 50  # chunks that a cross-encoder reads: as many as an answer can have
# Of the way from unrelated texts to equal ones, where a document begins to be a likely answer
# (`models.calibration.relevance`).
_MIN_RANGE = 0.2
# At equal weights of the request, how much the best cosine counts beside the best BM25: chosen with every other
# question of XQuAD and TAT-QA (benchmarks/evaluation/search.py).
_VECTOR_FACTOR = 1.5
# The same where a query has nothing but numbers and codes: what they are near to says next to nothing.
_VECTOR_FACTOR_OF_CODES = 0.1
# What holding a query's identifier counts, for what all else can: who has none gets at most half of the best score.
_HOLDING = 2.0
_TOUCH_S = 60.0  # between two notes that a store is in use
_TOUCHED_KEPT = 10_000
_INLINE_CHARS = 20_000  # of hits; looking for the query's words in more would hold up the loop
_INLINE_QUERY_CHARS = 500  # of all queries; reading 20,000 takes up to half a second
INLINE_RANKED = 1_000  # chunks of all rankings; joining 51,200 takes 0.16 s


@dataclass(frozen=True, slots=True)
class _Question:
    """A search as it was asked."""

    store: VectorStore
    queries: Sequence[str]
    terms: Sequence[KeywordQuery]  # of each query
    identifiers: Sequence[Identifiers]  # of each query
    options: SearchOptions
    urgency: Urgency


@dataclass(frozen=True, slots=True)
class _Rankings:
    """The rankings of all queries by one kind of score, and what making them took."""

    rankings: Sequence[Ranking] = ()
    holding: Sequence[Ranking] = ()  # the chunks that hold a query's identifiers, by the share that they hold
    unrelated: float = 0.0  # the mean cosine of unrelated texts
    tokens: int = 0
    warnings: tuple[str, ...] = ()
    vectors: Sequence[Vectors] = ()  # of the queries

    @property
    def size(self) -> int:
        return sum(len(ranking.ranked) for ranking in (*self.rankings, *self.holding))

    def are_cut(self, depth: int) -> bool:
        """Whether there may be more chunks than were asked for."""
        return any(len(ranking.ranked) >= depth for ranking in self.rankings)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The chunks of all rankings, best first, with each one's best score in the rankings of each kind.

    Of chunks with equal content there is one, and ``duplicates`` has the files of the others.
    """

    ranked: Sequence[Ranked]
    cosines: Mapping[int, float]
    bm25: Mapping[int, float]
    held: Mapping[int, float] = field(default_factory=dict)  # the share of the query's identifiers
    reranked: Mapping[int, float] = field(default_factory=dict)
    duplicates: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    are_cut: bool = False  # there may be more behind the equal ones


class SearchService:
    """Used on the event loop only.

    Args:
        now: Unix seconds.
    """

    def __init__(
        self,
        stores: VectorStoreService,
        storage: SearchStorage,
        catalog: Catalog,
        embeddings: EmbeddingService,
        *,
        neutral: NeutralVectors,
        reranking: RerankService,
        telemetry: Telemetry,
        now: Callable[[], float],
    ) -> None:
        self._stores, self._storage, self._catalog = stores, storage, catalog
        self._embeddings, self._neutral, self._reranking = embeddings, neutral, reranking
        self._telemetry, self._now = telemetry, now
        self._unrelated: tuple[str, float] = "", 0.0  # by the model's fingerprint
        self._touched: dict[str, float] = {}  # by store, when its last activity was written
        self._touching: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until what was noted of stores is written."""
        await asyncio.gather(*self._touching)

    async def search(
        self, owner: str, store_id: str, queries: Sequence[str], options: SearchOptions, urgency: Urgency
    ) -> SearchAnswer:
        """The best chunks of a store for one or several queries.

        Unless a cross-encoder gives them, scores are relative to the best hit of this search, and the best hit has what
        is likely of it: by its cosine, by the share of the query's words that it has, or by an identifier it holds.

        Raises: InvalidField for a query without a letter or digit; NotFound;
            WrongEncoder (409) for a store whose vectors are another model's, unless vectors have no
            weight; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed, StorageCorrupt for the service.
        """
        started_s = time.perf_counter()
        await offload(partial(_check_queries, queries), sum(map(len, queries)), _INLINE_QUERY_CHARS)
        store = await self._stores.find(owner, store_id)
        if not store.chunks:
            return SearchAnswer(tuple(queries), (), has_more=False, tokens=0)
        model = self._catalog.embedding()
        if options.vector_weight > 0:
            _check_encoder(store, model)
        self._note_activity(store)
        if options.filters is not None:
            options = replace(options, filters=with_id_forms(options.filters))
        terms, identifiers = await _terms_of(queries)
        question = _Question(store, queries, terms, identifiers, options, urgency)
        by_vectors, candidates = await self._candidates(question, model)
        answer = await self._answer(question, candidates)
        warnings = (
            *by_vectors.warnings,
            *_cut_candidates(candidates),
            *await filter_warnings(self._storage, store.id, options.filters),
            *answer.warnings,
        )
        self._observe("total", started_s)
        return replace(answer, tokens=by_vectors.tokens + answer.tokens, warnings=warnings)

    async def _candidates(self, question: _Question, model: LoadedModel) -> tuple[_Rankings, _Candidates]:
        """All candidates; of those by vectors what embedding them took.

        Where equal chunks take the places of others, deeper rankings, until there are hits enough, no more chunks, or
        `_DEEPEST` is reached.
        """
        depth = _DEPTH
        by_vectors, by_words = await together(self._by_vectors(question, model), self._by_words(question, depth))
        candidates = await self._joined(question, by_vectors, by_words)
        while len(candidates.ranked) <= question.options.limit and (
            by_vectors.are_cut(depth) or by_words.are_cut(depth)
        ):
            if depth >= _DEEPEST:
                return by_vectors, replace(candidates, are_cut=True)
            depth = min(depth * _DEEPER, _DEEPEST)
            by_vectors, by_words = await together(
                self._nearest(question, by_vectors, depth), self._by_words(question, depth)
            )
            candidates = await self._joined(question, by_vectors, by_words)
        return by_vectors, candidates

    async def _by_vectors(self, question: _Question, model: LoadedModel) -> _Rankings:
        options = question.options
        if options.vector_weight <= 0:
            return _Rankings()
        started_s = time.perf_counter()
        embedded = await self._embeddings.embed_with_model(
            model, question.queries, QUERY, question.urgency, named=_query_name
        )
        unrelated = await self._unrelated_cosine(model, question.urgency)
        self._observe("embed", started_s)
        asked = _Rankings(
            unrelated=unrelated,
            tokens=sum(embedded.tokens),
            warnings=_cut_queries(embedded.truncated, model),
            vectors=tuple(embedded.vectors),
        )
        return await self._nearest(question, asked, _DEPTH)

    async def _nearest(self, question: _Question, asked: _Rankings, depth: int) -> _Rankings:
        """The rankings of the vectors of queries that were embedded before."""
        options, unrelated = question.options, asked.unrelated
        if not asked.vectors:
            return asked
        started_s = time.perf_counter()
        ranked = await together(
            *(self._storage.nearest(question.store, vector, options.filters, depth) for vector in asked.vectors)
        )
        self._observe("vector", started_s)
        least = _MIN_RANGE * (1 - unrelated)
        rankings = [
            Ranking(chunks, _vector_factor(one, options) * options.vector_weight, unrelated, least)
            for chunks, one in zip(ranked, question.identifiers, strict=True)
        ]
        return replace(asked, rankings=rankings)

    async def _unrelated_cosine(self, model: LoadedModel, urgency: Urgency) -> float:
        """The mean cosine of a query and a passage that have nothing in common; computed once a model."""
        known, cosine = self._unrelated
        if known != model.spec.fingerprint:
            cosine = await self._neutral.unrelated_cosine(model, QUERY, PASSAGE, urgency)
            self._unrelated = model.spec.fingerprint, cosine
        return cosine

    async def _by_words(self, question: _Question, depth: int) -> _Rankings:
        options = question.options
        if options.keyword_weight <= 0:
            return _Rankings()
        started_s = time.perf_counter()
        ranked = await together(
            *(
                self._storage.matching(question.store, terms, options.filters, depth)
                for terms in question.terms
                if terms.terms
            )
        )
        holding = await together(*(self._holding(question, one, depth) for one in question.identifiers if one.wanted))
        self._observe("keyword", started_s)
        return _Rankings(
            [Ranking(chunks, options.keyword_weight) for chunks in ranked],
            [Ranking(chunks, least_range=1.0) for chunks in holding if chunks],
        )

    async def _holding(self, question: _Question, identifiers: Identifiers, depth: int) -> list[Ranked]:
        """The chunks that hold identifiers of a query, with the share that they hold."""
        found = await together(
            *(
                self._storage.matching(question.store, spellings, question.options.filters, depth)
                for spellings in identifiers.wanted
            )
        )

        def shares() -> list[Ranked]:
            held = Counter(chunk.chunk_id for chunks in found for chunk in chunks)
            return [Ranked(chunk_id, count / len(identifiers.wanted)) for chunk_id, count in held.most_common()]

        return await offload(shares, sum(map(len, found)), INLINE_RANKED)

    async def _joined(self, question: _Question, by_vectors: _Rankings, by_words: _Rankings) -> _Candidates:
        """All rankings as one, of equal chunks one; its best score is how likely that is a hit."""
        size = by_vectors.size + by_words.size
        fused = await offload(lambda: _fused(by_vectors, by_words), size, INLINE_RANKED)
        contents = await self._storage.chunk_contents(question.store.id, [one.chunk_id for one in fused])
        candidates = await offload(lambda: _distinct(fused, contents, by_vectors, by_words), size, INLINE_RANKED)
        ranked = candidates.ranked
        if not ranked or ranked[0].score <= 0:
            return candidates
        scale = await self._likely(question, candidates, by_vectors) / ranked[0].score
        return replace(candidates, ranked=[Ranked(chunk_id, score * scale) for chunk_id, score in ranked])

    async def _likely(self, question: _Question, candidates: _Candidates, by_vectors: _Rankings) -> float:
        """How likely the best candidate is a hit: by its words, the identifiers it holds, or its cosine."""
        best = candidates.ranked[0].chunk_id
        likely = candidates.held.get(best, 0.0)
        has_meaning = question.options.keyword_weight <= 0 or not all(one.alone for one in question.identifiers)
        if has_meaning and best in candidates.cosines:
            likely = max(likely, float(relevance(np.array(candidates.cosines[best]), by_vectors.unrelated)))
        if likely < 1 and best in candidates.bm25:
            for chunk in await self._read(question.store, candidates.ranked, 1):
                coverage = partial(_coverage, chunk.text, question.queries)
                likely = max(likely, await offload(coverage, len(chunk.text), _INLINE_CHARS))
        return likely

    async def _answer(self, question: _Question, candidates: _Candidates) -> SearchAnswer:
        """The hits of the best candidates; those that were deleted meanwhile are passed over."""
        tokens, warnings = 0, tuple[str, ...]()
        if question.options.ranker == "auto" and self._catalog.of(RERANKER) is not None:
            candidates, tokens, warnings = await self._reranked(question, candidates)
        limit, threshold = question.options.limit, question.options.score_threshold
        ranked = [candidate for candidate in candidates.ranked if candidate.score >= threshold]
        chunks = await self._read(question.store, ranked, limit)
        hits = await self._hits(question, chunks, candidates)
        return SearchAnswer(tuple(question.queries), hits, len(ranked) > limit, tokens, warnings)

    async def _reranked(self, question: _Question, candidates: _Candidates) -> tuple[_Candidates, int, tuple[str, ...]]:
        """The first candidates in the order of the cross-encoder, the tokens that it read, and warnings.

        A chunk's score is that for the query it suits best. Where chunks hold what a query names, it counts less than
        that, as cosines do: a cross-encoder takes one number for another. Where it fails, the candidates as they are,
        with a warning: they are good without it.
        """
        started_s = time.perf_counter()
        most = max(_RERANKED, question.options.limit + 1)
        chunks = await self._read(question.store, candidates.ranked, most)
        texts, scores, tokens = [chunk.text for chunk in chunks], dict.fromkeys((chunk.id for chunk in chunks), 0.0), 0
        for query in question.queries if texts else ():
            try:
                result = await self._reranking.rerank(query, texts, urgency=question.urgency)
            except InferenceFailed as error:
                log_event(_log, logging.WARNING, "search without reranking", error=type(error).__name__)
                return candidates, tokens, (f"the cross-encoder failed, so hits stand as they were before it: {error}",)
            tokens += result.tokens
            for document in result.results:
                chunk_id = chunks[document.index].id
                scores[chunk_id] = max(document.score, scores[chunk_id])
        ranked = [Ranked(chunk_id, _with_held(score, candidates, chunk_id)) for chunk_id, score in scores.items()]
        ranked.sort(key=lambda one: -one.score)
        self._observe("rerank", started_s)
        return replace(candidates, ranked=ranked, reranked=scores), tokens, ()

    async def _read(self, store: VectorStore, ranked: Sequence[Ranked], count: int) -> list[StoredChunk]:
        """So many chunks, best first, if there are as many."""
        chunks: list[StoredChunk] = []
        first = 0
        while len(chunks) < count and first < len(ranked):
            stop = first + count - len(chunks)
            chunks += await self._storage.chunks(store.id, [one.chunk_id for one in ranked[first:stop]])
            first = stop
        return chunks

    async def _hits(self, question: _Question, chunks: Sequence[StoredChunk], candidates: _Candidates) -> list[Hit]:
        file_ids = list(dict.fromkeys(chunk.file_id for chunk in chunks))
        records = await together(*(self._storage.store_file(question.store.id, file_id) for file_id in file_ids))
        files = {record.file_id: record for record in records if record is not None}
        there = [(files[chunk.file_id], chunk) for chunk in chunks if chunk.file_id in files]
        scores, terms = dict(candidates.ranked), _merged(question.terms)

        def build() -> list[Hit]:
            return [_hit(file, chunk, scores[chunk.id], candidates, terms) for file, chunk in there]

        return await offload(build, sum(len(chunk.text) for _, chunk in there), _INLINE_CHARS)

    def _note_activity(self, store: VectorStore) -> None:
        """Note that a store is in use, at most once a minute. No search waits for it: others may be writing a lot."""
        now_s = self._now()
        if now_s - max(store.last_active_s, self._touched.get(store.id, 0.0)) < _TOUCH_S:
            return
        if len(self._touched) >= _TOUCHED_KEPT:
            self._touched.clear()
        self._touched[store.id] = now_s
        task = asyncio.create_task(self._touch(store.id, now_s))
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def _touch(self, store_id: str, now_s: float) -> None:
        """A storage that cannot be written is still searched."""
        try:
            await self._storage.touch_store(store_id, now_s)
        except (Unavailable, StorageCorrupt) as error:
            log_event(_log, logging.WARNING, "last activity not written", error=str(error))

    def _observe(self, stage: str, started_s: float) -> None:
        self._telemetry.search_duration_seconds.labels(stage).observe(seconds := time.perf_counter() - started_s)
        record_last(f"search {stage}", seconds)


async def _terms_of(queries: Sequence[str]) -> tuple[Sequence[KeywordQuery], Sequence[Identifiers]]:
    """The terms and the identifiers of each query; of long ones read beside the event loop."""

    def read() -> tuple[Sequence[KeywordQuery], Sequence[Identifiers]]:
        return [query_terms(query) for query in queries], [query_identifiers(query) for query in queries]

    return await offload(read, sum(map(len, queries)), _INLINE_QUERY_CHARS)


def _check_queries(queries: Sequence[str]) -> None:
    for index, query in enumerate(queries):
        if not any(map(str.isalnum, query)):
            raise InvalidField(
                f"query[{index}]: {query[:64]!r} has no letter and no digit, so there is nothing to look for; send "
                "a word, a number or a question",
                param=_query_name(index),
            )


def _vector_factor(identifiers: Identifiers, options: SearchOptions) -> float:
    is_code = identifiers.alone and options.keyword_weight > 0
    return _VECTOR_FACTOR_OF_CODES if is_code else _VECTOR_FACTOR


def _coverage(text: str, queries: Sequence[str]) -> float:
    return max(word_coverage(text, None, query) for query in queries)


def _check_encoder(store: VectorStore, model: LoadedModel) -> None:
    serving, stored = identity_of(model), store.encoder
    if stored is None or stored.fingerprint == serving.fingerprint:
        return
    change = store.reembedding
    if change is not None and change.encoder.fingerprint == serving.fingerprint:
        step = f"it is being re-embedded ({change.chunks_done:,} of {change.chunks_total:,} chunks)"
    else:
        step = f"POST /v1/vector_stores/{store.id}/reembed embeds it anew"
    raise WrongEncoder(
        f"vector_store_id: its vectors are those of {stored.name}, and {serving.name} serves; {step}; until then only "
        "words can be searched: set ranking_options.hybrid_search.embedding_weight to 0",
        param="vector_store_id",
    )


def _fused(by_vectors: _Rankings, by_words: _Rankings) -> list[Ranked]:
    """All rankings as one. What holds what a query names stands before all that does not."""
    rankings = [*by_vectors.rankings, *by_words.rankings]
    rest = sum(ranking.weight for ranking in rankings)
    return fuse([*rankings, *(ranking._replace(weight=_HOLDING * rest) for ranking in by_words.holding)])


def _distinct(
    fused: Sequence[Ranked], contents: Sequence[ChunkContent], by_vectors: _Rankings, by_words: _Rankings
) -> _Candidates:
    """Of equal chunks one, with the scores of each."""
    ranked, duplicates = without_equal(fused, contents)
    cosines, bm25, held = map(_best, (by_vectors.rankings, by_words.rankings, by_words.holding))
    return _Candidates(ranked, cosines, bm25, held=held, duplicates=duplicates)


def _with_held(score: float, candidates: _Candidates, chunk_id: int) -> float:
    """The cross-encoder's score, and above it which share of the query's identifiers a chunk holds, if any does."""
    if not any(candidates.held.values()):
        return score
    return (_HOLDING * candidates.held.get(chunk_id, 0.0) + score) / (_HOLDING + 1)


def _best(rankings: Sequence[Ranking]) -> dict[int, float]:
    scores: dict[int, float] = {}
    for ranking in rankings:
        for chunk_id, score in ranking.ranked:
            scores[chunk_id] = max(score, scores.get(chunk_id, score))
    return scores


def _merged(queries: Sequence[KeywordQuery]) -> KeywordQuery:
    """What any of the queries looks for."""
    return KeywordQuery(
        tuple(dict.fromkeys(term for query in queries for term in query.terms)),
        tuple(dict.fromkeys(prefix for query in queries for prefix in query.prefixes)),
    )


def _hit(file: StoreFile, chunk: StoredChunk, score: float, candidates: _Candidates, terms: KeywordQuery) -> Hit:
    return Hit(
        file=file,
        chunk=chunk,
        score=score,
        scores=HitScores(
            candidates.cosines.get(chunk.id), candidates.bm25.get(chunk.id), candidates.reranked.get(chunk.id)
        ),
        pages=pages_of(chunk.words),
        places=line_places(chunk.words),
        highlights=highlights_of(chunk, terms, file.language),
        duplicates=candidates.duplicates.get(chunk.id, ()),
    )


def _cut_queries(truncated: Sequence[bool], model: LoadedModel) -> tuple[str, ...]:
    most = model.spec.max_tokens
    return tuple(
        f"query[{index}]: longer than the {most} tokens that {model.name} reads; its end counts only by its words"
        for index, was_cut in enumerate(truncated)
        if was_cut
    )


def _query_name(index: int) -> str:
    return f"query[{index}]"


def _cut_candidates(candidates: _Candidates) -> tuple[str, ...]:
    if not candidates.are_cut:
        return ()
    warning = (
        f"the {_DEEPEST:,} best chunks are copies of {len(candidates.ranked):,}, and no more were looked at: there may "
        "be more hits. Delete files that were added more than once: 'duplicates' of a hit names them"
    )
    return (warning,)
