"""The embedding model's vectors of neutral texts, from which calibrated scores start."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from backend.lanes.cache.store import cached_for
from backend.lanes.inference import Urgency, count_started
from backend.lanes.work_queue import Priority
from backend.models.encoder import Vectors
from backend.serving.catalog import LoadedModel
from backend.serving.engines.heads import finished
from backend.serving.engines.neutral_texts import ALL_NEUTRAL_TEXTS, different_subjects, unrelated_cosine
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.late_interaction import asking, read_tokens, token_cosines

Result = TypeVar("Result")
QUERY_PROMPTS = ("query",)
DOCUMENT_PROMPTS = ("passage", "document")  # E5's name, sentence-transformers' name


class NeutralVectors:
    """Embeds the neutral texts once a model and prompt, at the first request. Belongs to the loop's thread.

    They take seconds of a busy CPU: when the first request ends without them, they are finished for the next one.
    """

    def __init__(self, embeddings: EmbeddingService) -> None:
        self._embeddings = embeddings
        self._model: LoadedModel | None = None
        self._vectors: dict[EmbedOptions, Vectors] = {}
        self._by_tokens: dict[tuple[EmbedOptions, EmbedOptions], float] = {}
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, model: LoadedModel, options: EmbedOptions, urgency: Urgency) -> Vectors:
        """(neutral texts, dimensions) of length 1, in the order of ``ALL_NEUTRAL_TEXTS``. Raises: as EmbeddingService.

        They are cut here: embedded anew for each of hundreds of ``dimensions``, they cost fifty texts a request.
        """
        self._forget_others(model)
        whole = options._replace(truncate="end", normalize=False, dimensions=None)
        vectors = self._vectors.get(whole)
        if vectors is None:

            async def embed(urgency: Urgency) -> Vectors:
                embedded = await self._embeddings.embed_in_chunks(model, ALL_NEUTRAL_TEXTS, whole, urgency)
                if self._model is model:  # else it was swapped meanwhile
                    self._vectors[whole] = embedded.vectors
                return embedded.vectors

            vectors = await self._to_end((id(model), whole), embed, urgency)
        return finished(vectors, dimensions=options.dimensions, normalize=True)

    async def unrelated_cosine(
        self, model: LoadedModel, first: EmbedOptions, second: EmbedOptions, urgency: Urgency
    ) -> float:
        """The mean cosine of unrelated texts, each side embedded with its options. Raises: as EmbeddingService."""
        return unrelated_cosine(await self.get(model, first, urgency), await self.get(model, second, urgency))

    async def unrelated_by_tokens(
        self, model: LoadedModel, first: EmbedOptions, second: EmbedOptions, urgency: Urgency
    ) -> float:
        """The same of cosines of tokens, as `late_interaction` compares a query with a document."""
        self._forget_others(model)
        sides = first._replace(truncate="end"), second._replace(truncate="end")
        unrelated = self._by_tokens.get(sides)
        if unrelated is None:

            async def compare(urgency: Urgency) -> float:
                queries, documents = [
                    (await read_tokens(self._embeddings, model, ALL_NEUTRAL_TEXTS, side, urgency))[0] for side in sides
                ]
                cosines = await asyncio.to_thread(
                    lambda: np.array([token_cosines(asking(one, model), documents) for one in queries])
                )
                mean = float(cosines[different_subjects()].mean())
                if self._model is model:  # else it was swapped meanwhile
                    self._by_tokens[sides] = mean
                return mean

            unrelated = await self._to_end((id(model), sides), compare, urgency)
        return unrelated

    async def _to_end(
        self, key: Hashable, work: Callable[[Urgency], Coroutine[Any, Any, Result]], urgency: Urgency
    ) -> Result:
        """What ``work`` returns, for all who ask meanwhile; nobody pays for it. Jobs have time to do it themselves."""
        with cached_for(""), count_started():
            if urgency.priority is Priority.BULK:
                return await work(urgency)
            task = self._tasks.get(key)
            if task is None:
                task = self._tasks[key] = asyncio.create_task(work(urgency._replace(deadline_s=math.inf)))
                task.add_done_callback(partial(self._ended, key))
        return await asyncio.shield(task)

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: whoever waited may be gone

    def _forget_others(self, model: LoadedModel) -> None:
        if self._model is not model:
            self._model, self._vectors, self._by_tokens = model, {}, {}
