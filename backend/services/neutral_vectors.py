"""The embedding model's vectors of neutral texts, from which calibrated scores start."""

from __future__ import annotations

from backend.engines.neutral_texts import ALL_NEUTRAL_TEXTS, unrelated_cosine
from backend.models.encoder import Vectors
from backend.services.catalog import LoadedModel
from backend.services.embeddings import EmbeddingService, EmbedOptions
from backend.services.inference import Urgency

QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("passage", "document")  # E5's name, sentence-transformers' name
_OPTIONS_KEPT = 16  # of one model


class NeutralVectors:
    """Embeds the neutral texts once a model and options, at the first request. Belongs to the loop's thread."""

    def __init__(self, embeddings: EmbeddingService) -> None:
        self._embeddings = embeddings
        self._model: LoadedModel | None = None
        self._vectors: dict[EmbedOptions, Vectors] = {}

    async def get(self, model: LoadedModel, options: EmbedOptions, urgency: Urgency) -> Vectors:
        """(neutral texts, width) of length 1, in the order of ``ALL_NEUTRAL_TEXTS``. Raises: as EmbeddingService."""
        if self._model is not model or len(self._vectors) >= _OPTIONS_KEPT:
            self._model, self._vectors = model, {}
        options = options._replace(truncate="end", normalize=True)
        vectors = self._vectors.get(options)
        if vectors is None:
            embedded = await self._embeddings.embed_in_chunks(model, ALL_NEUTRAL_TEXTS, options, urgency)
            vectors = embedded.vectors
            if self._model is model:  # else it was swapped meanwhile
                self._vectors[options] = vectors
        return vectors

    async def unrelated_cosine(
        self, model: LoadedModel, first: EmbedOptions, second: EmbedOptions, urgency: Urgency
    ) -> float:
        """The mean cosine of unrelated texts, each side embedded with its options. Raises: as EmbeddingService."""
        return unrelated_cosine(await self.get(model, first, urgency), await self.get(model, second, urgency))
