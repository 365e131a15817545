"""Reranking: orders documents by relevance to a query, with a cross-encoder or the embedding model's vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.batching.work_item import Priority
from backend.engines.scoring import RERANKER
from backend.models.encoder import Vectors
from backend.models.numpy_layers import sigmoid
from backend.models.tokenizer import Truncate
from backend.services.catalog import Catalog, LoadedModel
from backend.services.embeddings import EmbeddingService, EmbedOptions
from backend.services.inference import Timing, Urgency, Usage
from backend.services.scoring import ScoringService
from backend.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """One document and its relevance."""

    index: int  # in the request
    score: float  # 0 to 1; comparable among the documents of one model
    raw_score: float  # the cross-encoder's logit, or the cosine


@dataclass(frozen=True, slots=True)
class RerankResult:
    """The documents, best first; equal scores in the request's order."""

    results: tuple[RankedDocument, ...]
    model: str
    timing: Timing
    tokens: int
    truncated: tuple[int, ...]  # documents that were cut, by index


class RerankService:
    """The use case behind every rerank route. Belongs to the loop's thread."""

    def __init__(
        self, catalog: Catalog, embeddings: EmbeddingService, scoring: ScoringService, telemetry: Telemetry
    ) -> None:
        self._catalog, self._embeddings, self._scoring = catalog, embeddings, scoring
        self._usage = Usage(telemetry, RERANKER)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        model: str | None = None,
        truncate: Truncate = "end",
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
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
            logits = await self._scoring.logits(
                cross,
                [(query, document) for document in documents],
                Urgency(priority, deadline_s),
                cut="none" if truncate == "none" else "longest",
                param="documents",
            )
            raw = logits.values[:, 0]
            scores = sigmoid(raw)  # as text-embeddings-inference gives it, whatever the model's own activation
            name, tokens, truncated, timing = cross.name, sum(logits.tokens), logits.truncated, logits.timing
        else:
            embedded = await self._embeddings.embed_with_model(
                self._catalog.embedding(),
                [query, *documents],
                EmbedOptions(truncate=truncate, normalize=True),
                Urgency(priority, deadline_s),
                named=_input_name,
            )
            vectors = embedded.vectors
            raw = vectors[1:] @ vectors[0]
            scores = np.clip(raw, 0.0, 1.0)  # a negative cosine means no relevance
            name, tokens = embedded.model.name, sum(embedded.tokens)
            truncated, timing = tuple(embedded.truncated[1:]), embedded.timing
        truncated_documents = tuple(index for index, was_cut in enumerate(truncated) if was_cut)
        self._usage.count(len(documents), tokens, len(truncated_documents))
        return RerankResult(_ordered(raw, scores, top_n), name, timing, tokens, truncated_documents)

    def _cross_encoder(self, name: str | None) -> LoadedModel | None:
        """The cross-encoder to use, or None for the embedding model. Raises: UnknownModel with the names of both."""
        cross, embedding = self._catalog.of(RERANKER), self._catalog.embedding()
        if name is None or (cross is not None and name in cross.names):
            return cross
        if name in embedding.names:
            return None
        raise self._catalog.unknown(name, [*(cross.names if cross else ()), *embedding.names])


def _input_name(place: int) -> str:
    """What messages call an input: the query comes first, then the documents."""
    return f"documents[{place - 1}]" if place else "query"


def _ordered(raw: Vectors, scores: Vectors, top_n: int | None) -> tuple[RankedDocument, ...]:
    """Best first, by the raw scores: clipped or saturated scores keep their order."""
    order = np.argsort(-raw, kind="stable")[:top_n]
    return tuple(RankedDocument(int(index), float(scores[index]), float(raw[index])) for index in order)
