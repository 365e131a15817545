"""Texts in, entities out: names by the model, numbers and dates by patterns; offsets are in the caller's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from backend.errors import InvalidField, NotFound, UnknownModel
from backend.lanes.inference import Inference, Timing, Urgency, UsageCounter, WindowPipeline
from backend.lanes.text_work import slices_of
from backend.models.encoder import Vectors
from backend.models.token_head import Tag, read_tags, types_of
from backend.models.tokenizer import Windows
from backend.serving.catalog import Catalog, LoadedModel
from backend.serving.engines.heads import NER, decode
from backend.telemetry import Telemetry
from backend.text.entity_merge import MODEL, PATTERN, Entity, Lost, merge
from backend.text.patterns import PATTERN_TYPES, find_patterns
from backend.text.patterns.companies import LEGAL_FORM

SOURCES = (MODEL, PATTERN)
_PATTERN_WORK = 16  # times the tokenizer's cost of a character: 4 us
_TextCandidates = tuple[str, Sequence[Entity]]  # a text, and what the model found in it
_Merged = tuple[tuple[Entity, ...], tuple[Lost, ...]]  # the entities of a text, and those that lost to them
_ORGANISATION = "ORG"
_LETTER = re.compile(r"\w")  # or digit: marks alone are no name
_OVERLAP = 128  # tokens; each word then has 64 of context on its cut side, in windows long enough for that


@dataclass(frozen=True, slots=True)
class TextEntities:
    """The entities of one text."""

    entities: tuple[Entity, ...]  # in the order of the text; they never overlap
    coverage: float  # share of its characters, blanks aside, that could be read
    tokens: int  # processed by the model: special tokens and the windows' overlaps included
    lost: tuple[Lost, ...] = ()  # candidates that overlapped with one of these


@dataclass(frozen=True, slots=True)
class EntityResult:
    """The entities of each text, in the order of the texts."""

    rows: tuple[TextEntities, ...]
    model: str  # the served name; "patterns" where no model was used
    timing: Timing

    @property
    def tokens(self) -> int:
        """Tokens of the whole request."""
        return sum(row.tokens for row in self.rows)


class NoEntityModel(UnknownModel):
    """No token classifier is loaded, so no model name is known."""

    def __init__(self, name: str | None = None) -> None:
        NotFound.__init__(
            self,
            "model: no model for entities is loaded here; set NER_MODEL to a folder or a hub id of a token classifier "
            "(python -m backend.training ner makes one) and restart, or ask for sources: ['pattern']",
            param="model",
        )
        self.name, self.known = name or "", ()


class EntityService:
    """The use case behind ``/v1/entities``. Belongs to the loop's thread."""

    def __init__(self, catalog: Catalog, inference: Inference, telemetry: Telemetry) -> None:
        self._catalog, self._inference = catalog, inference
        self._usage = UsageCounter(telemetry, NER)

    async def find(
        self,
        texts: Sequence[str],
        *,
        types: Collection[str] | None = None,
        min_score: float = 0.0,
        sources: Collection[str] | None = None,
        model: str | None = None,
        urgency: Urgency = Urgency(),
    ) -> EntityResult:
        """The entities of each text, whatever its length; equal texts are processed once.

        Args:
            types: the kinds to answer with; unset: all.
            min_score: the least score of an entity, 0 to 1.
            sources: of ``SOURCES``; unset: patterns, and the model where one is loaded.
            deadline_s: on the monotonic clock; work that would be late never reaches the device.

        Raises: UnknownModel, InvalidField, TooLarge for the request; Overloaded, Unavailable, DeadlineExceeded,
            InferenceFailed for the service.
        """
        loaded = self._model(model, sources)
        wanted = _wanted(types, loaded)
        distinct = list(dict.fromkeys(texts))
        candidates: list[list[Entity]] = [[] for _ in distinct]
        coverages, timing = [(1.0, 0)] * len(distinct), Timing()
        if loaded is not None:
            candidates, coverages, timing = await self._run_model(loaded, distinct, urgency)
        with_patterns = sources is None or PATTERN in sources
        merge_all = partial(_merge_all, with_patterns=with_patterns, wanted=wanted, min_score=min_score)
        merged = await self._merged(merge_all, list(zip(distinct, candidates, strict=True)), with_patterns)
        rows = {
            text: TextEntities(entities, coverage, tokens, lost)
            for text, (entities, lost), (coverage, tokens) in zip(distinct, merged, coverages, strict=True)
        }
        result = EntityResult(tuple(rows[text] for text in texts), loaded.name if loaded else "patterns", timing)
        self._usage.count(len(texts), result.tokens)
        return result

    def _model(self, name: str | None, sources: Collection[str] | None) -> LoadedModel | None:
        """The model to use; None where only patterns are wanted, or available."""
        loaded = self._catalog.of(NER)
        if sources is not None and MODEL not in sources:
            return None
        if name is not None and (loaded is None or name not in loaded.names):
            error = self._catalog.unknown(name, loaded.names if loaded else ())
            raise error if loaded else NoEntityModel(name)
        if loaded is None and sources is not None:
            raise NoEntityModel(name)
        return loaded

    async def _run_model(
        self, loaded: LoadedModel, texts: Sequence[str], urgency: Urgency
    ) -> tuple[list[list[Entity]], list[tuple[float, int]], Timing]:
        """The model's entities of each text, and its coverage and tokens."""
        text_work, budget, sizes = self._inference.text_work, self._inference.token_budget(), list(map(len, texts))
        overlap = min(_OVERLAP, loaded.tokenizer.max_tokens // 4)
        cut = [await text_work.windows(loaded.tokenizer, text, overlap, budget) for text in texts]
        pipeline = WindowPipeline(loaded.engine, loaded.namespace(NER))
        result = await self._inference.run(pipeline, [window for text in cut for window in text.windows], urgency)
        rows = iter(result.rows)
        probabilities = [
            [next(rows).vector.reshape(-1, len(loaded.labels)) for _ in windows.windows] for windows in cut
        ]
        decode_all = partial(_decode, tags=_tags(loaded.labels))
        entities = await text_work.run_slices(decode_all, list(zip(texts, cut, probabilities, strict=True)), sizes)
        return entities, [(windows.coverage, windows.tokens) for windows in cut], result.timing

    async def _merged(
        self,
        merge_all: Callable[[Sequence[_TextCandidates]], Sequence[_Merged]],
        texts: Sequence[_TextCandidates],
        with_patterns: bool,
    ) -> list[_Merged]:
        factor = _PATTERN_WORK if with_patterns else 1
        sizes = [len(text) * factor for text, _ in texts]
        merged: list[_Merged] = []
        for start, stop in slices_of(sizes):
            work = partial(merge_all, texts[start:stop])
            merged += await self._inference.text_work.run_long(work, sum(sizes[start:stop]), inline=True)
        return merged


@lru_cache(maxsize=16)
def _tags(labels: tuple[str, ...]) -> tuple[Tag, ...]:
    return read_tags(labels)


@lru_cache(maxsize=16)
def _types(labels: tuple[str, ...]) -> tuple[str, ...]:
    return types_of(_tags(labels))


def _wanted(types: Collection[str] | None, loaded: LoadedModel | None) -> frozenset[str]:
    """The kinds to answer with. Raises: InvalidField for one that neither patterns nor the model know."""
    known = sorted({*PATTERN_TYPES, *(_types(loaded.labels) if loaded else ())})
    for name in types or ():
        if name not in known:
            raise InvalidField(
                f"types: {name!r} is not one of the entity types here ({', '.join(known)})", param="types"
            )
    return frozenset(known if types is None else types)


def _merge_all(
    texts: Sequence[_TextCandidates], *, with_patterns: bool, wanted: Collection[str], min_score: float
) -> list[_Merged]:
    """Each text's entities, and the overlapping candidates that lost to them.

    A candidate whose score is too low competes with no other; one of an unwanted type does, so that asking for fewer
    types never shows an entity that asking for all would not.
    """
    results = []
    for text, by_model in texts:
        entities = [*by_model, *(find_patterns(text) if with_patterns else ())]
        merged = merge([entity for entity in entities if entity.score >= min_score], wanted)
        results.append((tuple(merged.kept), tuple(merged.lost)))
    return results


def _decode(texts: Sequence[tuple[str, Windows, Sequence[Vectors]]], tags: Sequence[Tag]) -> list[list[Entity]]:
    return [_entities(text, windows, scores, tags) for text, windows, scores in texts]


def _entities(text: str, cut: Windows, probabilities: Sequence[Vectors], tags: Sequence[Tag]) -> list[Entity]:
    """The entities of one text.

    A token in several windows counts in the one that owns it; a word's label is that of its first token.
    """
    if not cut.windows:
        return []
    owned = [slice(window.own_start, window.own_stop) for window in cut.windows]
    words = np.concatenate([window.words[part] for window, part in zip(cut.windows, owned, strict=True)])
    stops = np.concatenate([window.offsets[part, 1] for window, part in zip(cut.windows, owned, strict=True)])
    scores = np.concatenate([rows[part] for rows, part in zip(probabilities, owned, strict=True)])
    pieces = np.flatnonzero(words >= 0)  # a token of blanks belongs to no word
    if not len(pieces):
        return []
    numbers, firsts = np.unique(words[pieces], return_index=True)
    starts, ends = cut.words[numbers].T
    last_stops = np.maximum.reduceat(stops[pieces], firsts)
    spans = decode(scores[pieces[firsts]], tags)
    opens = starts[[span.first for span in spans]].tolist()
    lasts = [span.last for span in spans]
    closes = [_end(text, *place) for place in zip(ends[lasts].tolist(), last_stops[lasts].tolist(), strict=True)]
    bounds = _with_legal_forms(text, list(zip([span.type for span in spans], opens, closes, strict=True)))
    return [
        _entity(span.type, text, start, end, span.score)
        for span, (start, end) in zip(spans, bounds, strict=True)
        if _LETTER.search(text, start, end)
    ]


def _end(text: str, word_end: int, token_end: int) -> int:
    """Where an entity ends whose last word's last token may cover further words.

    The second half of a compound of ideograms belongs to it, the full stop of the token ")." does not.
    """
    return token_end if text[word_end:token_end].isalnum() else word_end


def _with_legal_forms(text: str, spans: Sequence[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """First and past-last character of each entity, with the legal form that follows an organisation.

    Taggers leave out the form behind a comma ("Hermanos Soler, S.L."), or tag it as an organisation of its own, which
    is left empty. A form that another entity reaches beyond is not taken.

    Args:
        spans: type, first and past-last character of the entities, in order.
    """
    bounds = [(start, end) for _, start, end in spans]
    for index, (kind, start, end) in enumerate(spans):
        following = text[end : end + 1]
        form = LEGAL_FORM.match(text, end + (following == ",")) if kind == _ORGANISATION else None
        if form is None or bounds[index][0] == bounds[index][1]:
            continue
        inside = index + 1
        while inside < len(spans) and spans[inside][0] == _ORGANISATION and spans[inside][2] <= form.end():
            inside += 1
        if inside == len(spans) or spans[inside][1] >= form.end():
            bounds[index] = (start, form.end())
            bounds[index + 1 : inside] = [(end, end)] * (inside - index - 1)
    return bounds


def _entity(kind: str, text: str, start: int, end: int, score: float) -> Entity:
    surface = text[start:end].rstrip()
    return Entity(kind, surface, start, start + len(surface), score, MODEL)
