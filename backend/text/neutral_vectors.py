"""The embedding model's vectors of neutral texts, from which calibrated scores start."""

from __future__ import annotations

from backend.lanes.cache.scope import cached_for_all
from backend.lanes.inference import Urgency
from backend.models.encoder import Vectors
from backend.serving.catalog import LoadedModel
from backend.serving.engines.embeddings import finished
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, unrelated_cosine
from backend.text.embeddings import EmbeddingService, EmbedOptions

QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("passage", "document")  # E5's name, sentence-transformers' name


class NeutralVectors:
    """Embeds the neutral texts once a model and prompt, at the first request. Belongs to the loop's thread."""

    def __init__(self, embeddings: EmbeddingService) -> None:
        self._embeddings = embeddings
        self._model: LoadedModel | None = None
        self._vectors: dict[EmbedOptions, Vectors] = {}

    async def get(self, model: LoadedModel, options: EmbedOptions, urgency: Urgency) -> Vectors:
        """(neutral texts, dimensions) of length 1, in the order of ``ALL_NEUTRAL_TEXTS``. Raises: as EmbeddingService.

        They are cut here: embedded anew for each of hundreds of ``dimensions``, they cost fifty texts a request.
        """
        if self._model is not model:
            self._model, self._vectors = model, {}
        whole = options._replace(truncate="end", normalize=False, dimensions=None)
        vectors = self._vectors.get(whole)
        if vectors is None:
            with cached_for_all():
                embedded = await self._embeddings.embed_in_chunks(model, ALL_NEUTRAL_TEXTS, whole, urgency)
            vectors = embedded.vectors
            if self._model is model:  # else it was swapped meanwhile
                self._vectors[whole] = vectors
        return finished(vectors, dimensions=options.dimensions, normalize=True)

    async def unrelated_cosine(
        self, model: LoadedModel, first: EmbedOptions, second: EmbedOptions, urgency: Urgency
    ) -> float:
        """The mean cosine of unrelated texts, each side embedded with its options. Raises: as EmbeddingService."""
        return unrelated_cosine(await self.get(model, first, urgency), await self.get(model, second, urgency))
