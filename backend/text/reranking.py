"""Reranking: orders documents by relevance to a query, with a cross-encoder or the embedding model.

The embedding model compares tokens (`late_interaction`) of the documents whose vectors are nearest to the query's.
Query and documents get its prompts for them (E5's ``query: `` and ``passage: ``), where it has such prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from backend.abandoned import together
from backend.lanes.inference import Timing, Urgency, UsageCounter, offload
from backend.models.calibration import relevance
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid
from backend.models.tokenizer import Truncate
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import RERANKER
from backend.telemetry import Telemetry
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.late_interaction import asking, has_token_meanings, read_tokens, relevance_of, token_cosines
from backend.text.neutral_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS, NeutralVectors
from backend.text.scoring import ScoringService

BY_TOKENS = 20  # different documents that are compared token by token: those nearest by their vectors


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """One document and its relevance."""

    index: int  # in the request
    score: float  # 0 to 1: how likely the document answers the query, were half of the documents to; of one model
    raw_score: float  # the cross-encoder's logit, or the cosine: of tokens (turned ones'), or behind these of vectors


@dataclass(frozen=True, slots=True)
class RerankResult:
    """The documents, best first; equal scores in the request's order."""

    results: tuple[RankedDocument, ...]
    model: str
    timing: Timing
    tokens: int
    truncated: tuple[int, ...]  # documents that were cut, by index


@dataclass(frozen=True, slots=True)
class _Scored:
    """Documents with their scores, in the request's order."""

    raw: Vectors  # (documents)
    scores: Vectors  # (documents), 0 to 1
    truncated: Sequence[bool]
    model: str
    tokens: int
    timing: Timing


class _Compared(NamedTuple):
    """How a request's query and documents are compared by the embedding model."""

    model: LoadedModel
    of_query: EmbedOptions
    of_documents: EmbedOptions
    urgency: Urgency


class RerankService:
    """The use case behind every rerank route. Belongs to the loop's thread."""

    def __init__(
        self,
        catalog: Catalog,
        embeddings: EmbeddingService,
        neutral: NeutralVectors,
        scoring: ScoringService,
        telemetry: Telemetry,
    ) -> None:
        self._catalog, self._embeddings, self._scoring = catalog, embeddings, scoring
        self._neutral = neutral
        self._usage = UsageCounter(telemetry, RERANKER)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        model: str | None = None,
        truncate: Truncate = "end",
        urgency: Urgency = Urgency(),
    ) -> RerankResult:
        """The documents by relevance to the query, the ``top_n`` best of them.

        Args:
            model: the cross-encoder's name or the embedding model's; unset: the cross-encoder where there is one.
            truncate: "none" refuses what does not fit; else the longer text of a pair is cut at its end (for vectors,
                each text at the end named).

        Raises: UnknownModel, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for
            the service.
        """
        cross = self._cross_encoder(model)
        if cross is not None:
            scored = await self._score_pairs(cross, query, documents, truncate, urgency)
        else:
            scored = await self._score_by_embeddings(query, documents, truncate, urgency)
        cut = tuple(index for index, was_cut in enumerate(scored.truncated) if was_cut)
        self._usage.count(len(documents), scored.tokens, len(cut))
        results = _ordered(scored.raw, scored.scores, top_n)
        return RerankResult(results, scored.model, scored.timing, scored.tokens, cut)

    async def _score_pairs(
        self, cross: LoadedModel, query: str, documents: Sequence[str], truncate: Truncate, urgency: Urgency
    ) -> _Scored:
        """By the cross-encoder, which reads query and document together."""
        logits = await self._scoring.logits(
            cross,
            [(query, document) for document in documents],
            urgency,
            cut="none" if truncate == "none" else "longest",
            param="documents",
        )
        raw = logits.values[:, 0]
        # The sigmoid as text-embeddings-inference gives it, whatever the model's own activation.
        return _Scored(raw, sigmoid(raw), logits.truncated, cross.name, sum(logits.tokens), logits.timing)

    async def _score_by_embeddings(
        self, query: str, documents: Sequence[str], truncate: Truncate, urgency: Urgency
    ) -> _Scored:
        """The nearest documents by the cosines of tokens; the others, behind them, by those of vectors."""
        model = self._catalog.embedding()
        of_query = EmbedOptions(truncate=truncate, prompts=QUERY_PROMPTS, normalize=True)
        compared = _Compared(model, of_query, of_query._replace(prompts=DOCUMENT_PROMPTS), urgency)
        if not has_token_meanings(model):
            return await self._score_by_vectors(compared, query, documents)
        if len(set(documents)) <= BY_TOKENS:
            return await self._score_by_tokens(compared, query, documents)
        by_vectors = await self._score_by_vectors(compared, query, documents)
        nearest = _nearest(documents, by_vectors.raw)
        by_tokens = await self._score_by_tokens(compared, query, [documents[index] for index in nearest])
        return _joined(by_vectors, by_tokens, nearest)

    async def _score_by_vectors(self, compared: _Compared, query: str, documents: Sequence[str]) -> _Scored:
        """By the cosines of query and documents."""
        model, of_query, of_documents, urgency = compared
        queried, embedded = await together(  # so that one batch may take both
            self._embeddings.embed_with_model(model, [query], of_query, urgency, named=_query_name),
            self._embeddings.embed_with_model(model, documents, of_documents, urgency, named="documents[{}]".format),
        )
        unrelated = await self._neutral.unrelated_cosine(model, of_query, of_documents, urgency)
        raw = embedded.vectors @ queried.vectors[0]
        tokens, timing = sum(queried.tokens) + sum(embedded.tokens), Timing(*map(max, queried.timing, embedded.timing))
        return _Scored(raw, relevance(raw, unrelated), embedded.truncated, model.name, tokens, timing)

    async def _score_by_tokens(self, compared: _Compared, query: str, documents: Sequence[str]) -> _Scored:
        """By the cosines of the query's tokens and the nearest ones of each document."""
        model, of_query, of_documents, urgency = compared
        ([asked], queried), (texts, read) = await together(
            read_tokens(self._embeddings, model, [query], of_query, urgency, named=_query_name),
            read_tokens(self._embeddings, model, documents, of_documents, urgency, named="documents[{}]".format),
        )
        unrelated = await self._neutral.unrelated_by_tokens(model, of_query, of_documents, urgency)
        work = len(asked.ids) * sum(text.vectors.size for text in texts)
        raw = await offload(lambda: token_cosines(asking(asked, model), texts), work)
        tokens, timing = sum(queried.tokens) + sum(read.tokens), Timing(*map(max, queried.timing, read.timing))
        return _Scored(raw, relevance_of(raw, unrelated, model), read.truncated, model.name, tokens, timing)

    def _cross_encoder(self, name: str | None) -> LoadedModel | None:
        """The cross-encoder to use, or None for the embedding model. Raises: UnknownModel with the names of both."""
        cross, embedding = self._catalog.of(RERANKER), self._catalog.embedding()
        if name is None or (cross is not None and name in cross.names):
            return cross
        if name in embedding.names:
            return None
        raise self._catalog.unknown(name, [*(cross.names if cross else ()), *embedding.names])


def _query_name(_: int) -> str:
    """What messages call the query."""
    return "query"


def _nearest(documents: Sequence[str], raw: Vectors) -> list[int]:
    """The documents to compare token by token, each with those that equal it; best first."""
    order = np.argsort(-raw, kind="stable").tolist()
    chosen = set(list(dict.fromkeys(documents[index] for index in order))[:BY_TOKENS])
    return [index for index in order if documents[index] in chosen]


def _joined(by_vectors: _Scored, by_tokens: _Scored, nearest: Sequence[int]) -> _Scored:
    """The nearest documents with their scores by tokens, and the others as far behind them as they must be."""
    raw, scores = by_vectors.raw.copy(), by_vectors.scores.copy()
    others = np.ones(len(raw), np.bool_)
    others[nearest] = False
    raw[others] += min(0.0, by_tokens.raw.min() - raw[others].max())
    scores[others] = np.minimum(scores[others], by_tokens.scores.min())
    raw[nearest], scores[nearest] = by_tokens.raw, by_tokens.scores
    return replace(by_vectors, raw=raw, scores=scores, timing=by_vectors.timing.then(by_tokens.timing))


def _ordered(raw: Vectors, scores: Vectors, top_n: int | None) -> tuple[RankedDocument, ...]:
    """Best first, by the raw scores: saturated scores keep their order."""
    order = np.argsort(-raw, kind="stable")[:top_n]
    return tuple(RankedDocument(int(index), float(scores[index]), float(raw[index])) for index in order)
