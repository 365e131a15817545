"""Texts or token ids in, vectors out."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from backend.errors import InvalidField
from backend.lanes.cache.store import CachedVector, CacheNamespace, VectorCache
from backend.lanes.engine import Engine
from backend.lanes.inference import Inference, InferenceResult, Timing, Urgency, UsageCounter
from backend.lanes.text_work import TokenBudget, slices_of
from backend.models.encoder import Vectors, normalized
from backend.models.tokenizer import InputName, TokenArrays, TokenizedText, Tokens, Truncate, numbered_input
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import ANALYSIS, EMBEDDINGS, finished
from backend.telemetry import Telemetry

_PIPELINES_KEPT = 512  # distinct options seen lately
_LONG_CHARS_PER_TOKEN = 2  # a longer text is cut into windows first; a shorter one is embedded first, it mostly fits
_WINDOWS_AT_ONCE = 64  # a text of 1 MB has a thousand
MAX_TOKEN_VECTORS = 32_768  # of a request: 50 MB at width 384, 350 MB as JSON
Input = str | Sequence[int]
Inputs = Sequence[str] | Sequence[Sequence[int]]  # one kind a request
_WindowIds = tuple[NDArray[np.int32], int]  # the ids of a window, and how many of its tokens no other window covers
_TextVector = tuple[Vectors, int]  # a text's vector and its tokens


# A named tuple: made for every request, at half the cost of a frozen dataclass.
class EmbedOptions(NamedTuple):
    """What a request may choose. ``None`` is the model's default."""

    truncate: Truncate = "end"
    prompt_name: str | None = None
    prompts: tuple[str, ...] = ()  # names by preference: the first that the model has, and no error where it has none
    normalize: bool | None = None
    dimensions: int | None = None


@dataclass(slots=True)
class EmbeddingResult:
    """One vector an input, in the order of the inputs."""

    rows: Sequence[CachedVector] = field(repr=False)  # never in a log or a task's name: asyncio prints results
    timing: Timing
    model: LoadedModel
    keys: Sequence[bytes] = field(default=(), repr=False)  # of the rows in the cache; empty where nothing is cached
    computed: Collection[bytes] = field(default=(), repr=False)  # keys that the cache did not have
    cache: VectorCache | None = field(default=None, repr=False)

    @property
    def cache_hits(self) -> int:
        """Inputs that were not computed for this request."""
        return len([key for key in self.keys if key not in self.computed])

    @property
    def vectors(self) -> Vectors:
        """(inputs, width) float32, C-contiguous; a new array at each call."""
        return np.array([row.vector for row in self.rows])

    @property
    def tokens(self) -> list[int]:
        """Tokens of each input, special tokens included."""
        return [row.tokens for row in self.rows]

    @property
    def truncated(self) -> list[bool]:
        """Which inputs were cut at the model's length."""
        return [row.truncated for row in self.rows]

    def keep_fragment(self, index: int, form: str, fragment: bytes) -> None:
        """Have the cache keep a vector as it was serialised in a form such as "float"; its row has it from then on.

        From a text's second request on: formatting 384 floats takes as long as finding them. A text requested once is
        not worth the memory.
        """
        if self.cache is not None and self.keys[index] not in self.computed:
            self.cache.keep_fragment(self.keys[index], form, fragment)


@dataclass(frozen=True, slots=True)
class TextVectors:
    """Vectors of untruncated texts. Shapes: vectors (texts, width) float32, normalised where the model's are."""

    vectors: Vectors
    tokens: tuple[int, ...]  # of each text; special tokens of its windows included
    timing: Timing
    model: LoadedModel


@dataclass(frozen=True, slots=True)
class _EmbeddingPipeline:
    """A model and one set of options, resolved; an inference.Pipeline."""

    model: LoadedModel
    prompt: str
    options: EmbedOptions
    normalize: bool
    namespace: CacheNamespace
    uses_cache: bool = True
    named: InputName = numbered_input

    @property
    def engine(self) -> Engine:
        return self.model.engine

    def key(self, text: Input) -> bytes:
        if isinstance(text, str):
            return self.namespace.key("text", text)
        return self.namespace.key("ids", text)

    def characters(self, text: Input) -> int:
        return len(text) if isinstance(text, str) else 0

    def tokenize(self, inputs: Sequence[Input], indices: Sequence[int]) -> list[Tokens]:
        tokenizer, truncate = self.model.tokenizer, self.options.truncate
        if isinstance(inputs[0], str):
            texts = cast("Sequence[str]", inputs)
            return tokenizer.encode(texts, truncate, prompt=self.prompt, indices=indices, named=self.named)
        return tokenizer.accept(cast("Sequence[Sequence[int]]", inputs), truncate, indices=indices)

    def postprocess(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return list(finished(rows, dimensions=self.options.dimensions, normalize=self.normalize))


@dataclass(frozen=True, slots=True)
class TokenVectorsResult:
    """The vectors of the tokens of each input, in the order of the inputs."""

    rows: Sequence[Vectors] = field(repr=False)  # (tokens, width) float32 each: special tokens too, never normalised
    tokens: Sequence[int]  # of each input
    truncated: Sequence[bool]
    timing: Timing
    ids: Sequence[NDArray[np.int64]] = field(default=(), repr=False)  # of the tokens of each input


@dataclass(frozen=True, slots=True)
class _TokenVectorPipeline:
    """Every token as a span of its own, which the analysis' engine sums; a Pipeline. Not cached: 400 KB a text."""

    texts: _EmbeddingPipeline
    namespace: CacheNamespace
    budget: TokenBudget
    uses_cache: bool = False
    ids: dict[bytes, NDArray[np.int64]] = field(default_factory=dict)  # of the tokens of each input, by its key

    @property
    def engine(self) -> Engine:
        return self.texts.model.token_engine

    def key(self, text: Input) -> bytes:
        return replace(self.texts, namespace=self.namespace).key(text)

    def characters(self, text: Input) -> int:
        return self.texts.characters(text)

    def tokenize(self, inputs: Sequence[Input], indices: Sequence[int]) -> list[Tokens]:
        tokens = self.texts.tokenize(inputs, indices)
        self.budget.add(sum(len(text.ids) for text in tokens))
        self.ids.update((self.key(text), read.ids) for text, read in zip(inputs, tokens, strict=True))
        return [replace(text, spans=_each_token(len(text.ids))) for text in tokens]

    def postprocess(self, rows: Sequence[Vectors]) -> list[Vectors]:
        return [row.reshape(-1, self.texts.model.spec.width)[1:] for row in rows]


class EmbeddingService:
    """The use case behind every embedding route. Belongs to the loop's thread."""

    def __init__(self, catalog: Catalog, inference: Inference, cache: VectorCache, telemetry: Telemetry) -> None:
        self._catalog, self._inference, self._cache = catalog, inference, cache
        self._pipelines: dict[EmbedOptions, _EmbeddingPipeline] = {}
        self._usage = UsageCounter(telemetry, EMBEDDINGS)

    async def embed(
        self,
        inputs: Inputs,
        options: EmbedOptions | None = None,
        *,
        model: str | None = None,
        urgency: Urgency = Urgency(),
    ) -> EmbeddingResult:
        """One vector an input.

        Args:
            inputs: texts, or lists of token ids of this model's own tokenizer; at least one.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, InvalidField, TooLarge, TokenIdsOutOfRange for the request; Overloaded,
            Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        loaded = self._picked(model, inputs)
        embedded = await self.embed_with_model(loaded, inputs, options or EmbedOptions(), urgency)
        self._usage.count(len(inputs), sum(embedded.tokens), sum(embedded.truncated))
        return embedded

    async def embed_with_model(
        self,
        model: LoadedModel,
        inputs: Inputs,
        options: EmbedOptions,
        urgency: Urgency,
        *,
        named: InputName = numbered_input,
    ) -> EmbeddingResult:
        """The same for another use case, which counts the usage itself and has already picked the model.

        Args:
            inputs: token ids are not checked: only those of the model's own tokenizer.
            named: what messages call an input of them.
        """
        pipeline = self._pipeline(model, options)
        if named is not numbered_input:
            pipeline = replace(pipeline, named=named)
        return self._result(model, await self._inference.run(pipeline, inputs, urgency))

    async def embed_in_chunks(
        self, model: LoadedModel, inputs: Inputs, options: EmbedOptions, urgency: Urgency
    ) -> EmbeddingResult:
        """The same for any number of inputs, more than a request may have, or none."""
        pipeline = self._pipeline(model, options)
        return self._result(model, await self._inference.run_in_chunks(pipeline, inputs, urgency))

    async def embed_untruncated(
        self,
        texts: Sequence[str],
        *,
        prompts: tuple[str, ...] = (),
        urgency: Urgency = Urgency(),
    ) -> TextVectors:
        """One vector a text, however long it is: the mean of its windows' vectors, weighted by their tokens.

        With mean pooling this is the mean of all tokens. A text that fits the model has the vector ``embed`` gives it.
        One model embeds all of them, even if it is swapped meanwhile. The caller counts the usage.

        Args:
            prompts: as in EmbedOptions; the prompt stands before the text, so in its first window.

        Raises: as ``embed``.
        """
        model = self._catalog.embedding()
        options = EmbedOptions(prompts=prompts)
        prompt = self._pipeline(model, options).prompt
        distinct, long_chars = list(dict.fromkeys(texts)), _LONG_CHARS_PER_TOKEN * model.spec.max_tokens
        windows = await self._windows_of(model, [text for text in distinct if len(text) > long_chars], prompt)
        short = [text for text in distinct if len(windows.get(text, ())) <= 1]
        vectors, timing = await self._embed_short(model, short, options, urgency)
        windows |= await self._windows_of(model, [text for text in short if text not in vectors], prompt)
        long = {text: windows[text] for text in distinct if text not in vectors}
        long_vectors, long_timing = await self._embed_long(model, long, urgency)
        vectors |= long_vectors
        tokens = tuple(vectors[text][1] for text in texts)
        return TextVectors(np.array([vectors[text][0] for text in texts]), tokens, timing.then(long_timing), model)

    async def token_starts(self, text: str, model: LoadedModel | None = None) -> tuple[LoadedModel, NDArray[np.int64]]:
        """The embedding model, unless another is given, and where each token of a text begins, special ones aside."""
        model = model or self._catalog.embedding()
        tokens = await self._inference.text_work.read(model.tokenizer, text)
        return model, tokens.offsets[:, 0].astype(np.int64)

    def prompt(self, model: LoadedModel, options: EmbedOptions) -> str:
        """What these options put before each text."""
        return self._pipeline(model, options).prompt

    async def _windows_of(self, model: LoadedModel, texts: Sequence[str], prompt: str) -> dict[str, list[_WindowIds]]:
        windows: dict[str, list[_WindowIds]] = {}
        for text in texts:
            cut = await self._inference.text_work.windows(model.tokenizer, prompt + text, 0)
            windows[text] = [
                (window.ids.astype(np.int32), window.own_stop - window.own_start) for window in cut.windows
            ]
        return windows

    async def _embed_short(
        self, model: LoadedModel, texts: Sequence[str], options: EmbedOptions, urgency: Urgency
    ) -> tuple[dict[str, _TextVector], Timing]:
        """The vectors of those texts that fit the model."""
        embedded = await self.embed_in_chunks(model, texts, options, urgency)
        rows = zip(texts, embedded.rows, strict=True)
        return {text: (row.vector, row.tokens) for text, row in rows if not row.truncated}, embedded.timing

    async def _embed_long(
        self, model: LoadedModel, texts: Mapping[str, Sequence[_WindowIds]], urgency: Urgency
    ) -> tuple[dict[str, _TextVector], Timing]:
        """The texts' vectors from those of their windows, some windows at a time, whichever text they belong to."""
        if not texts:
            return {}, Timing()
        sums, timing = np.zeros((len(texts), model.spec.width)), Timing()
        windows = [(place, *window) for place, text_windows in enumerate(texts.values()) for window in text_windows]
        for first in range(0, len(windows), _WINDOWS_AT_ONCE):
            places, ids, weights = zip(*windows[first : first + _WINDOWS_AT_ONCE], strict=True)
            lists = [window.tolist() for window in ids]
            embedded = await self.embed_with_model(model, lists, EmbedOptions(normalize=False), urgency)
            np.add.at(sums, np.array(places), np.array(weights)[:, None] * embedded.vectors)
            timing = timing.then(embedded.timing)
        totals = np.array([sum(weight for _, weight in text_windows) for text_windows in texts.values()]).reshape(-1, 1)
        means = (sums / totals).astype(np.float32)
        vectors = normalized(means) if model.spec.normalize else means
        tokens = (sum(len(ids) for ids, _ in text_windows) for text_windows in texts.values())
        return dict(zip(texts, zip(vectors, tokens, strict=True), strict=True)), timing

    async def token_vectors(
        self, inputs: Inputs, options: EmbedOptions, *, model: str | None = None, urgency: Urgency = Urgency()
    ) -> TokenVectorsResult:
        """The vectors of every token of each input, special tokens and the prompt's included.

        Args:
            inputs, model, deadline_s: as for ``embed``.
            options: how texts are read; vectors are neither cut nor normalised.

        Raises: as ``embed``; TooLarge for more than MAX_TOKEN_VECTORS together.
        """
        loaded = self._picked(model, inputs)
        read = await self.token_vectors_with_model(loaded, inputs, options, urgency)
        _vectors_budget().add(sum(read.tokens))  # equal inputs were read once
        self._usage.count(len(inputs), sum(read.tokens), sum(read.truncated))
        return read

    async def token_vectors_with_model(
        self,
        model: LoadedModel,
        inputs: Inputs,
        options: EmbedOptions,
        urgency: Urgency,
        *,
        named: InputName = numbered_input,
    ) -> TokenVectorsResult:
        """The same for another use case, which counts the usage itself and has already picked the model."""
        texts = replace(self._pipeline(model, options), named=named)
        namespace = model.namespace(ANALYSIS, "tokens", texts.prompt, options.truncate)
        pipeline = _TokenVectorPipeline(texts, namespace, _vectors_budget())
        result = await self._inference.run(pipeline, inputs, urgency)
        rows = result.rows
        return TokenVectorsResult(
            [row.vector for row in rows],
            [row.tokens for row in rows],
            [row.truncated for row in rows],
            result.timing,
            [pipeline.ids[pipeline.key(text)] for text in inputs],
        )

    async def tokenize(
        self,
        inputs: Sequence[str],
        *,
        add_special_tokens: bool = True,
        prompt_name: str | None = None,
        max_tokens: int = sys.maxsize,
        urgency: Urgency = Urgency(),  # noqa: ARG002 - nothing here waits for a lane: the caller's cancelling is enough
    ) -> list[TokenizedText]:
        """Every token of each text with its offsets in it, those of the prompt without; nothing is truncated.

        Args:
            max_tokens: of all texts together, special tokens aside.

        Raises: InvalidField for the prompt; TooLarge as soon as so many tokens have been read.
        """
        pipeline = self._pipeline(self._catalog.embedding(), EmbedOptions(prompt_name=prompt_name))
        tokenizer = pipeline.model.tokenizer
        before, after = tokenizer.special_pieces() if add_special_tokens else ([], [])
        budget = TokenBudget(
            max_tokens, "tokens of the answer", "LIMIT_TOKENIZE_TOKENS", "Send fewer or shorter texts."
        )
        texts = [pipeline.prompt + text for text in inputs]
        tokens: list[TokenArrays] = []
        for start, stop in slices_of(list(map(len, texts))):
            if stop - start == 1:
                tokens.append(await self._inference.text_work.read(tokenizer, texts[start], budget))
                continue
            read_each = partial(tokenizer.read_each, texts[start:stop])
            tokens += await self._inference.text_work.run(read_each, sum(map(len, texts[start:stop])))
            budget.add(sum(len(text.ids) for text in tokens[start:]))
        rows = zip(inputs, tokens, strict=True)
        return [TokenizedText(text, read, before, after, prompt=pipeline.prompt) for text, read in rows]

    async def similarity(
        self,
        source: str,
        sentences: Sequence[str],
        options: EmbedOptions | None = None,
        *,
        model: str | None = None,
        urgency: Urgency = Urgency(),
    ) -> tuple[list[float], EmbeddingResult]:
        """Cosine of ``source`` with each sentence. Raises: as ``embed``."""
        normalized_options = (options or EmbedOptions())._replace(normalize=True)
        embedded = await self.embed([source, *sentences], normalized_options, model=model, urgency=urgency)
        vectors = embedded.vectors
        scores: Vectors = vectors[1:] @ vectors[0]
        return scores.tolist(), embedded

    def _picked(self, name: str | None, inputs: Inputs) -> LoadedModel:
        """The model of a request, whose token ids are its own. Raises: as `embed` for the request."""
        model = self._catalog.embedding(name)
        if not isinstance(inputs[0], str):
            model.tokenizer.check(cast("Sequence[Sequence[int]]", inputs))
        return model

    def _result(self, model: LoadedModel, result: InferenceResult) -> EmbeddingResult:
        return EmbeddingResult(result.rows, result.timing, model, result.keys, result.computed, self._cache)

    def _pipeline(self, model: LoadedModel, options: EmbedOptions) -> _EmbeddingPipeline:
        pipeline = self._pipelines.get(options)
        if pipeline is None or pipeline.model is not model:
            if pipeline is not None or len(self._pipelines) >= _PIPELINES_KEPT:
                self._pipelines.clear()  # also once the model was swapped: the old one must leave memory
            pipeline = _resolve(model, options)
            self._pipelines[options] = pipeline
        return pipeline


def _each_token(count: int) -> NDArray[np.int64]:
    numbers = np.arange(count, dtype=np.int64)
    return np.stack([numbers, numbers + 1], axis=1)


def _vectors_budget() -> TokenBudget:
    return TokenBudget(MAX_TOKEN_VECTORS, "token vectors of the answer", "fixed", "Send fewer or shorter texts.")


def _resolve(model: LoadedModel, options: EmbedOptions) -> _EmbeddingPipeline:
    spec = model.spec
    if options.dimensions is not None and not 1 <= options.dimensions <= spec.width:
        raise InvalidField(
            f"dimensions: {options.dimensions} is not between 1 and {spec.width}, the model's width", param="dimensions"
        )
    preferred = next((name for name in options.prompts if name in spec.prompts), None)
    name = options.prompt_name or preferred or spec.default_prompt
    if name is not None and name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise InvalidField(f"prompt_name: {name!r} is not one of this model's prompts ({known})", param="prompt_name")
    prompt = spec.prompts[name] if name else ""
    normalize = spec.normalize if options.normalize is None else options.normalize
    parameters = (prompt, options.truncate, str(normalize), str(options.dimensions or spec.width))
    return _EmbeddingPipeline(model, prompt, options, normalize, model.namespace(EMBEDDINGS, *parameters))
