"""Texts or token ids in, vectors out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from backend.batching.work_item import Priority
from backend.cache.keys import CacheNamespace
from backend.cache.store import VectorCache
from backend.engines.embeddings import TASK, finished
from backend.engines.engine import Engine
from backend.errors import InvalidField
from backend.models.encoder import Vectors
from backend.models.tokenizer import InputName, TokenPiece, Tokens, numbered_input
from backend.models.vectors import normalized
from backend.services.catalog import Catalog, LoadedModel
from backend.services.embedding_options import Embedded, EmbedOptions
from backend.services.inference import Inference, Inferred, Timing, Urgency, Usage
from backend.telemetry import Telemetry

_RECIPES_KEPT = 512  # distinct options seen lately
_SURELY_LONG = 2  # characters a token above which a text is cut first; a shorter one is embedded first, it mostly fits
_SEVERAL = 2
_WINDOWS_AT_ONCE = 64  # a text of 1 MB has a thousand
Input = str | Sequence[int]
Inputs = Sequence[str] | Sequence[Sequence[int]]  # one kind a request
_Piece = tuple[list[int], int]  # the ids of a window, and how many tokens it answers for
_Read = tuple[Vectors, int]  # a text's vector and its tokens


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A model and one set of options, resolved; inference.Recipe."""

    model: LoadedModel
    prompt: str
    options: EmbedOptions
    normalize: bool
    namespace: CacheNamespace
    keeps: bool = True
    named: InputName = numbered_input

    @property
    def engine(self) -> Engine:
        return self.model.engine

    def key(self, one: Input) -> bytes:
        if isinstance(one, str):
            return self.namespace.key("text", one)
        return self.namespace.key("ids", one)

    def characters(self, one: Input) -> int:
        return len(one) if isinstance(one, str) else 0

    def encode(self, inputs: Sequence[Input], places: Sequence[int]) -> list[Tokens]:
        tokenizer, truncate = self.model.tokenizer, self.options.truncate
        if isinstance(inputs[0], str):
            texts = cast("Sequence[str]", inputs)
            return tokenizer.encode(texts, truncate, prompt=self.prompt, places=places, named=self.named)
        return tokenizer.accept(cast("Sequence[Sequence[int]]", inputs), truncate, places=places)

    def finish(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return list(finished(rows, dimensions=self.options.dimensions, normalize=self.normalize))


@dataclass(frozen=True, slots=True)
class Whole:
    """Vectors of whole texts. Shapes: vectors (texts, width) float32, normalised where the model's are."""

    vectors: Vectors
    tokens: tuple[int, ...]  # read for each text; special tokens of its windows included
    timing: Timing
    model: LoadedModel


class EmbeddingService:
    """The use case behind every embedding route. Belongs to the loop's thread."""

    def __init__(self, catalog: Catalog, inference: Inference, cache: VectorCache, telemetry: Telemetry) -> None:
        self._catalog, self._inference, self._cache = catalog, inference, cache
        self._recipes: dict[EmbedOptions, _Recipe] = {}
        self._usage = Usage(telemetry, TASK)

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
        loaded = self._catalog.embedding(model)
        if not isinstance(inputs[0], str):
            loaded.tokenizer.check(cast("Sequence[Sequence[int]]", inputs))
        embedded = await self.embed_with(loaded, inputs, options or EmbedOptions(), Urgency(priority, deadline_s))
        self._usage.count(len(inputs), sum(embedded.tokens), sum(embedded.truncated))
        return embedded

    async def embed_with(
        self,
        model: LoadedModel,
        inputs: Inputs,
        options: EmbedOptions,
        urgency: Urgency,
        *,
        named: InputName = numbered_input,
    ) -> Embedded:
        """The same for another use case, whose own usage counts the inputs: by the model that it began with.

        Args:
            inputs: token ids are taken as they are: only those of the model's own tokenizer.
            named: what messages call a text of them.
        """
        recipe = self._recipe(model, options)
        if named is not numbered_input:
            recipe = replace(recipe, named=named)
        return self._embedded(model, await self._inference.run(recipe, inputs, urgency))

    async def embed_in_parts(
        self, model: LoadedModel, inputs: Inputs, options: EmbedOptions, urgency: Urgency
    ) -> Embedded:
        """The same for more inputs than a request may have; any number, also none."""
        return self._embedded(model, await self._inference.run_in_parts(self._recipe(model, options), inputs, urgency))

    async def embed_whole(
        self, texts: Sequence[str], *, priority: Priority = Priority.INTERACTIVE, deadline_s: float = math.inf
    ) -> Whole:
        """One vector a text however long it is: of its windows', each weighing as many tokens as it answers for.

        With mean pooling this is the mean of all tokens. A text that fits the model has the vector ``embed`` gives it.
        One model reads all of them, also where another takes its place meanwhile. Usage is the caller's to count.

        Raises: as ``embed``.
        """
        model, urgency = self._catalog.embedding(), Urgency(priority, deadline_s)
        distinct = list(dict.fromkeys(texts))
        pieces = await self._cut(model, [one for one in distinct if len(one) > _SURELY_LONG * model.spec.max_tokens])
        short = [text for text in distinct if len(pieces.get(text, ())) < _SEVERAL]
        read, timing = await self._fitting(model, short, urgency)
        pieces |= await self._cut(model, [text for text in short if text not in read])
        joined, more = await self._joined(model, {text: pieces[text] for text in distinct if text not in read}, urgency)
        read |= joined
        vectors = np.array([read[text][0] for text in texts])
        return Whole(vectors, tuple(read[text][1] for text in texts), timing.then(more), model)

    async def _cut(self, model: LoadedModel, texts: Sequence[str]) -> dict[str, list[_Piece]]:
        def cut() -> dict[str, list[_Piece]]:
            return {
                text: [
                    (window.ids.tolist(), window.own_stop - window.own_start)
                    for window in model.tokenizer.windows(text, 0).windows
                ]
                for text in texts
            }

        return await self._inference.off_loop(cut, sum(map(len, texts)))

    async def _fitting(
        self, model: LoadedModel, texts: Sequence[str], urgency: Urgency
    ) -> tuple[dict[str, _Read], Timing]:
        """Those of the texts that fit the model."""
        embedded = await self.embed_in_parts(model, texts, EmbedOptions(), urgency)
        rows = zip(texts, embedded.rows, strict=True)
        return {text: (row.vector, row.tokens) for text, row in rows if not row.truncated}, embedded.timing

    async def _joined(
        self, model: LoadedModel, texts: Mapping[str, Sequence[_Piece]], urgency: Urgency
    ) -> tuple[dict[str, _Read], Timing]:
        """The texts' vectors from those of their pieces, some at a time whichever text they are of."""
        if not texts:
            return {}, Timing()
        sums, timing = np.zeros((len(texts), model.spec.width)), Timing()
        pieces = [(place, *piece) for place, own in enumerate(texts.values()) for piece in own]
        for first in range(0, len(pieces), _WINDOWS_AT_ONCE):
            places, ids, weights = zip(*pieces[first : first + _WINDOWS_AT_ONCE], strict=True)
            embedded = await self.embed_with(model, ids, EmbedOptions(normalize=False), urgency)
            np.add.at(sums, np.array(places), np.array(weights)[:, None] * embedded.vectors)
            timing = timing.then(embedded.timing)
        totals = np.array([sum(weight for _, weight in own) for own in texts.values()]).reshape(-1, 1)
        means = (sums / totals).astype(np.float32)
        vectors = normalized(means) if model.spec.normalize else means
        counts = (sum(len(ids) for ids, _ in own) for own in texts.values())
        return dict(zip(texts, zip(vectors, counts, strict=True), strict=True)), timing

    async def tokenize(
        self, inputs: Sequence[str], *, add_special_tokens: bool = True, prompt_name: str | None = None
    ) -> list[list[TokenPiece]]:
        """Every token of each text with its place; nothing is cut."""
        recipe = self._recipe(self._catalog.embedding(), EmbedOptions(prompt_name=prompt_name))
        texts = [recipe.prompt + text for text in inputs]
        split = partial(recipe.model.tokenizer.pieces, texts, add_special_tokens=add_special_tokens)
        return await self._inference.off_loop(split, sum(map(len, texts)))

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

    def _embedded(self, model: LoadedModel, found: Inferred) -> Embedded:
        return Embedded(found.rows, found.timing, model, found.keys, found.computed, self._cache)

    def _recipe(self, model: LoadedModel, options: EmbedOptions) -> _Recipe:
        recipe = self._recipes.get(options)
        if recipe is None or recipe.model is not model:
            if (
                recipe is not None or len(self._recipes) >= _RECIPES_KEPT
            ):  # another model serves now: let the old one go
                self._recipes.clear()
            recipe = _resolve(model, options)
            self._recipes[options] = recipe
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
    return _Recipe(model, prompt, options, normalize, model.namespace(TASK, *parameters))
