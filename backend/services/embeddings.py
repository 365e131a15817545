"""Texts or token ids in, vectors out: cache, then tokenizer, then lanes, and equal texts computed once."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import cast

from backend.batching.batcher import Batcher
from backend.batching.job import Priority
from backend.cache.keys import CacheNamespace
from backend.cache.store import CachedVector, VectorCache
from backend.errors import DeadlineExceeded, InvalidField
from backend.ml.embeddings import TASK, finished
from backend.models.encoder import Vectors
from backend.models.tokens import TokenPiece, Tokens, Truncate
from backend.services.catalog import Catalog, LoadedModel
from backend.services.coalescing import Flight, Flights
from backend.services.embedded import Embedded, EmbedOptions, Timing
from backend.telemetry import Telemetry

# Below this the tokenizer is faster than a hop to another thread and back (30 us a sentence, about 90 us the hop).
_INLINE_CHARS = 4_000
_RECIPES_KEPT = 512  # distinct options seen lately
Input = str | Sequence[int]
Inputs = Sequence[str] | Sequence[Sequence[int]]  # one kind a request


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A model and one set of options, resolved."""

    model: LoadedModel
    prompt: str
    truncate: Truncate
    normalize: bool
    dimensions: int | None
    namespace: CacheNamespace


@dataclass(slots=True)
class _Work:
    """One request's distinct inputs by key; done when every key has a value."""

    recipe: _Recipe
    keys: list[bytes]  # of every input, in order
    inputs: dict[bytes, Input]  # distinct ones
    priority: Priority
    deadline_s: float
    values: dict[bytes, CachedVector]  # those found or computed so far

    def missing(self) -> list[bytes]:
        return [key for key in self.inputs if key not in self.values]

    def places(self, keys: list[bytes]) -> list[int]:
        """Where in the request each of ``keys`` stands first, for messages about it."""
        if len(keys) == len(self.keys):
            return list(range(len(keys)))
        first = {key: index for index, key in reversed(list(enumerate(self.keys)))}
        return [first[key] for key in keys]


class EmbeddingService:
    """The use case behind every embedding route. Belongs to the loop's thread."""

    def __init__(self, catalog: Catalog, batcher: Batcher, cache: VectorCache, telemetry: Telemetry) -> None:
        self._catalog, self._batcher, self._cache = catalog, batcher, cache
        self._flights = Flights(telemetry)
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenize")
        self._recipes: dict[tuple[str | None, EmbedOptions], _Recipe] = {}
        self._inputs = telemetry.inputs_total.labels(TASK)
        self._tokens = telemetry.tokens_total.labels(TASK)
        self._truncated = telemetry.truncated_total

    async def embed(
        self,
        inputs: Inputs,
        options: EmbedOptions | None = None,
        *,
        model: str | None = None,
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> Embedded:
        """One vector an input.

        Args:
            inputs: texts, or lists of token ids of this model's own tokenizer; at least one.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, InvalidField, TooLarge, TokenIdsOutOfRange for the request; Overloaded,
            Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        recipe = self._recipe(model, options or EmbedOptions())
        started = time.perf_counter()
        keys = _keys(inputs, recipe)
        found = self._cache.lookup_local(keys)
        rows = [row for row in found if row is not None]
        cache_s = time.perf_counter() - started
        if len(rows) == len(keys):  # nothing to wait for
            return self._answer(Embedded(rows, Timing(cache_s), recipe.model, keys, (), self._cache))
        hits = {key: row for key, row in zip(keys, found, strict=True) if row is not None}
        work = _Work(recipe, keys, dict(zip(keys, inputs, strict=True)), priority, deadline_s, hits)
        return self._answer(await self._work(work, started))

    async def tokenize(
        self, inputs: Sequence[str], *, add_special_tokens: bool = True, prompt_name: str | None = None
    ) -> list[list[TokenPiece]]:
        """Every token of each text with its place; nothing is cut."""
        recipe = self._recipe(None, EmbedOptions(prompt_name=prompt_name))
        texts = [recipe.prompt + text for text in inputs]
        split = partial(recipe.model.tokenizer.pieces, texts, add_special_tokens=add_special_tokens)
        return await asyncio.get_running_loop().run_in_executor(self._threads, split)

    async def similarity(
        self,
        source: str,
        sentences: Sequence[str],
        options: EmbedOptions | None = None,
        *,
        deadline_s: float = math.inf,
    ) -> tuple[list[float], Embedded]:
        """Cosine of ``source`` with each sentence."""
        wished = options or EmbedOptions()
        chosen = EmbedOptions(wished.truncate, wished.prompt_name, True, wished.dimensions)
        embedded = await self.embed([source, *sentences], chosen, deadline_s=deadline_s)
        vectors = embedded.vectors
        scores: Vectors = vectors[1:] @ vectors[0]
        return scores.tolist(), embedded

    def close(self) -> None:
        """Let the tokenizer's threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _work(self, work: _Work, started: float) -> Embedded:
        missing = work.missing()
        fetched = await self._cache.lookup(missing)
        work.values |= {key: row for key, row in zip(missing, fetched, strict=True) if row is not None}
        timing = Timing(time.perf_counter() - started)
        missing = work.missing()
        if missing:
            timing = await self._compute(work, missing, timing)
        rows = [work.values[key] for key in work.keys]
        return Embedded(rows, timing, work.recipe.model, work.keys, frozenset(missing), self._cache)

    async def _compute(self, work: _Work, keys: list[bytes], timing: Timing) -> Timing:
        recipe, started = work.recipe, time.perf_counter()
        tokens = await self._tokenize(work, keys)
        tokenize_s = time.perf_counter() - started
        flights = self._board(work, keys, tokens)
        try:
            pooled = [await flight.landing() for flight in flights]
        except DeadlineExceeded:
            if all(flight.job.deadline_s >= work.deadline_s for flight in flights):
                raise
            return await self._compute(work, keys, timing)  # it was the deadline of a caller whose job we shared
        finally:
            self._flights.leave(flights)
        vectors = finished(pooled, dimensions=recipe.dimensions, normalize=recipe.normalize)
        self._keep(work, keys, tokens, vectors)
        queue_s, inference_s = (max(stage) for stage in zip(*(flight.stages() for flight in flights), strict=True))
        return Timing(timing.cache_s, tokenize_s, queue_s, inference_s)

    def _board(self, work: _Work, keys: list[bytes], tokens: list[Tokens]) -> list[Flight]:
        engine, priority, deadline_s = work.recipe.model.engine, work.priority, work.deadline_s
        submit = partial(self._batcher.submit, engine, priority=priority, deadline_s=deadline_s)
        flights = self._flights.board(keys, tokens, submit)
        for flight in flights:
            self._batcher.promote(flight.job, priority)
        return flights

    def _keep(self, work: _Work, keys: list[bytes], tokens: list[Tokens], vectors: Vectors) -> None:
        rows = zip(vectors, tokens, strict=True)
        values = [CachedVector(vector, len(one.ids), one.truncated) for vector, one in rows]
        work.values.update(zip(keys, values, strict=True))
        self._cache.store(keys, values)

    async def _tokenize(self, work: _Work, keys: list[bytes]) -> list[Tokens]:
        tokenizer, truncate = work.recipe.model.tokenizer, work.recipe.truncate
        inputs, places = [work.inputs[key] for key in keys], work.places(keys)
        texts = [one for one in inputs if isinstance(one, str)]
        if not texts:
            return tokenizer.accept(cast("list[Sequence[int]]", inputs), truncate, places=places)
        encode = partial(tokenizer.encode, texts, truncate, prompt=work.recipe.prompt, places=places)
        if sum(map(len, texts)) <= _INLINE_CHARS:
            return encode()
        return await asyncio.get_running_loop().run_in_executor(self._threads, encode)

    def _answer(self, embedded: Embedded) -> Embedded:
        """Count it on its way out."""
        self._inputs.inc(len(embedded.rows))
        self._tokens.inc(sum(embedded.tokens))
        if cut := sum(embedded.truncated):
            self._truncated.inc(cut)
        return embedded

    def _recipe(self, name: str | None, options: EmbedOptions) -> _Recipe:
        model = self._catalog.embedding(name)
        recipe = self._recipes.get((name, options))
        if recipe is None or recipe.model is not model:
            if (
                recipe is not None or len(self._recipes) >= _RECIPES_KEPT
            ):  # another model serves now: let the old one go
                self._recipes.clear()
            recipe = _resolve(model, options)
            self._recipes[name, options] = recipe
        return recipe


def _resolve(model: LoadedModel, options: EmbedOptions) -> _Recipe:
    spec = model.spec
    if options.dimensions is not None and not 1 <= options.dimensions <= spec.width:
        raise InvalidField(
            f"dimensions: {options.dimensions} is not between 1 and {spec.width}, the model's width", param="dimensions"
        )
    name = options.prompt_name or spec.default_prompt
    if name is not None and name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise InvalidField(f"prompt_name: {name!r} is not one of this model's prompts ({known})", param="prompt_name")
    prompt = spec.prompts[name] if name else ""
    normalize = spec.normalize if options.normalize is None else options.normalize
    parameters = (prompt, options.truncate, str(normalize), str(options.dimensions or spec.width))
    namespace = CacheNamespace(spec.name, spec.revision, spec.sha256, model.runtime, model.dtype).narrow(
        TASK, *parameters
    )
    return _Recipe(model, prompt, options.truncate, normalize, options.dimensions, namespace)


def _keys(inputs: Inputs, recipe: _Recipe) -> list[bytes]:
    """The cache key of each input. Raises: TokenIdsOutOfRange."""
    namespace = recipe.namespace
    if isinstance(inputs[0], str):
        return [namespace.key("text", text) for text in cast("Sequence[str]", inputs)]
    ids = cast("Sequence[Sequence[int]]", inputs)
    recipe.model.tokenizer.check(ids)
    return [namespace.key("ids", one) for one in ids]
