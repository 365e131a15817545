"""Similarity of one text with others: cosines, and what people would make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.lanes.inference import Urgency
from backend.models.calibration import likeness
from backend.text.embeddings import EmbeddingResult, EmbeddingService, EmbedOptions
from backend.text.neutral_vectors import NeutralVectors


@dataclass(frozen=True, slots=True)
class SimilarityResult:
    """The similarity of each sentence with the source, in the order of the sentences."""

    cosines: tuple[float, ...]
    scores: tuple[float, ...]  # 0 nothing in common, 1 the same meaning; comparable between models
    embedded: EmbeddingResult  # of the source, then of the sentences


class SimilarityService:
    """The use case behind ``/v1/similarity``. Belongs to the loop's thread."""

    def __init__(self, embeddings: EmbeddingService, neutral: NeutralVectors) -> None:
        self._embeddings, self._neutral = embeddings, neutral

    async def compare(
        self,
        source: str,
        sentences: Sequence[str],
        options: EmbedOptions | None = None,
        *,
        model: str | None = None,
        urgency: Urgency = Urgency(),
    ) -> SimilarityResult:
        """Cosine and calibrated score of ``source`` with each sentence. Raises: as EmbeddingService.embed."""
        options = (options or EmbedOptions())._replace(normalize=True)
        cosines, embedded = await self._embeddings.similarity(source, sentences, options, model=model, urgency=urgency)
        unrelated = await self._neutral.unrelated_cosine(embedded.model, options, options, urgency)
        return SimilarityResult(tuple(cosines), tuple(likeness(np.array(cosines), unrelated).tolist()), embedded)
