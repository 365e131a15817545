"""Fields in the caller's words on the pages of a document, by the names that are printed beside their values.

A printed name is a label's where it is spelt like it, or means the same by the encoder's vectors. What stands beside it
is the value if it can be read as the kind that was asked for; a label that no name is like has no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson
from rapidfuzz import fuzz

from backend.documents.printed_names import EDGES, PrintedName, Segment, printed_names
from backend.documents.records import OwnField, OwnValue
from backend.files.pages import Document, Page, Word, locate
from backend.lanes.inference import Urgency
from backend.lanes.text_work import TextWork
from backend.models.encoder import Vectors
from backend.models.vectors import normalized
from backend.reasons import because
from backend.text.embeddings import EmbeddingService
from backend.text.entity_merge import Entity
from backend.text.own_labels import OwnLabel, read_labels, words_of
from backend.text.own_values import ReadValue, plain_of, read_value
from backend.text.patterns import find_patterns

_SPELT = 86.0  # of 100: how like two spellings of one name are
# Cosine of a printed name and a label once what all names have in common is taken out. Of made papers with other names
# than the caller's, 77 of 100 fields reach it, and 13 of 100 labels that the paper does not have.
_MEANT = 0.25
_BY_SPELLING = 0.97  # of such fields are right
_MANY = 3  # names with colons
_MOST_NAMES = 400  # of a page whose meaning is looked at
_COMMON = (
    "fecha", "date", "nombre", "name", "número", "number", "importe", "amount", "dirección", "address", "tipo", "type",
    "observaciones", "remarks", "referencia", "reference", "estado", "status", "cantidad", "quantity", "descripción",
    "description", "teléfono", "phone", "empresa", "company", "total", "hora", "time", "lugar", "place", "código",
)  # fmt: skip
_EMPTY = frozenset(
    {"no", "n", "nº", "n.º", "num", "numero", "number", "nr", "de", "del", "la", "el", "of", "the", "a", "al"}
)


@dataclass(frozen=True, slots=True)
class _Told:
    """A printed name and the label that it tells."""

    label: int
    name: PrintedName
    score: float  # 0 to 1


@dataclass(frozen=True, slots=True)
class _PageNames:
    """What is printed on a page."""

    page: Page
    patterns: Sequence[Entity]
    spelt: Sequence[_Told]  # names that are spelt as labels
    others: Sequence[PrintedName]  # in which names of the other labels are looked for by their meaning


@dataclass(frozen=True, slots=True)
class OwnFields:
    """Finds what a caller's labels ask for on paper."""

    embeddings: EmbeddingService
    text_work: TextWork

    async def asked(self, document: Document, schema: str, urgency: Urgency) -> tuple[tuple[OwnField, ...], int]:
        """`find` for ``DocumentOptions.schema``; nothing where it is empty."""
        if not schema:
            return (), 0
        return await self.find(document, read_labels(orjson.loads(schema)), urgency)

    async def find(
        self, document: Document, labels: Sequence[OwnLabel], urgency: Urgency
    ) -> tuple[tuple[OwnField, ...], int]:
        """The fields that were found, in the labels' order, and the tokens that were read for them.

        Raises: what `EmbeddingService.embed` raises.
        """
        tokens, found = 0, []
        for page, first in zip(document.pages, document.page_starts, strict=True):
            names = await self.text_work.run_long(partial(_names, page, labels))
            meant, spent = await self._meant(names, labels, urgency)
            tokens += spent
            read = partial(_values, document, first, names, labels, [*names.spelt, *meant])
            found.append(await self.text_work.run_long(read))
        fields = []
        for index, label in enumerate(labels):
            values = [value for page_values in found for value in page_values.get(index, ())]
            if values:
                best = max(values, key=lambda value: value.score)
                fields.append(OwnField(label.path, tuple(values) if label.many else (best,), label.many))
        return tuple(fields), tokens

    async def _meant(self, names: _PageNames, labels: Sequence[OwnLabel], urgency: Urgency) -> tuple[list[_Told], int]:
        """Names that mean labels whose own names are not on the page; and the tokens that were read."""
        told = {one.label for one in names.spelt}
        asked = [index for index in range(len(labels)) if index not in told]
        if not asked or not names.others:
            return [], 0
        texts = [
            *_COMMON, *(name.text for name in names.others),
            *(words_of(labels[index].path[-1]) for index in asked), *(labels[index].prompt for index in asked),
        ]  # fmt: skip
        priority, deadline_s = urgency
        embedded = await self.embeddings.embed_untruncated(texts, priority=priority, deadline_s=deadline_s)
        pairs = _pairs(embedded.vectors, len(names.others), len(asked))
        return [_Told(asked[label], names.others[name], score) for label, name, score in pairs], sum(embedded.tokens)


def _names(page: Page, labels: Sequence[OwnLabel]) -> _PageNames:
    """The names on a page: those that are spelt as a label, and those whose meaning is to be looked at."""
    printed = printed_names(page)
    asked = [_content(words_of(label.path[-1])) for label in labels]
    best: dict[Segment, tuple[tuple[float, int, int], PrintedName]] = {}
    for name in printed:
        plain = _content(name.text)
        for index, wanted in enumerate(asked):
            alike = fuzz.ratio(plain, wanted, score_cutoff=_SPELT)
            rank = (alike, len(name.text), -index)
            if alike and (name.segment not in best or rank > best[name.segment][0]):
                best[name.segment] = (rank, name)
    others = [name for name in printed if name.is_likely and name.segment not in best]
    if sum(name.with_colon for name in printed) >= _MANY:  # the page's way to print a name
        others = [name for name in others if name.with_colon]
    spelt = [_Told(-rank[2], name, _BY_SPELLING * rank[0] / 100) for rank, name in best.values()]
    return _PageNames(page, find_patterns(page.text), spelt, others[:_MOST_NAMES])


def _content(name: str) -> str:
    """The words that tell a name from others: "Nº de matrícula" -> "matricula"."""
    words = [word.strip(EDGES) for word in plain_of(name).split()]
    return " ".join(word for word in words if word not in _EMPTY) or " ".join(words)


def _pairs(vectors: Vectors, names: int, labels: int) -> Iterator[tuple[int, int, float]]:
    """Labels and names, each once, the most alike first, with a score.

    Args:
        vectors: of ``_COMMON``, names, labels and prompts.
    """
    centre = vectors[: len(_COMMON)].mean(axis=0)
    printed, asked, described = np.split(normalized(vectors[len(_COMMON) :] - centre), [names, names + labels])
    alike = (asked + described) @ printed.T / 2
    while (best := float(alike.max())) > _MEANT:
        label, name = np.unravel_index(int(alike.argmax()), alike.shape)
        yield int(label), int(name), _score(best)
        alike[label], alike[:, name] = -1, -1


def _score(alike: float) -> float:
    return min(0.9, 0.5 + alike - _MEANT)


def _values(
    document: Document, first: int, names: _PageNames, labels: Sequence[OwnLabel], told: Sequence[_Told]
) -> dict[int, list[OwnValue]]:
    """The values on a page by label. Args: first, where the page's text begins in the document's."""
    named = {one.name.segment for one in told}
    found: dict[int, list[OwnValue]] = {}
    for one in told:
        for place in one.name.beside:
            if place.where != "after" and place.segment in named:
                continue
            if (value := _read(names, labels[one.label], place.words)) is not None:
                why = because("own_label", position=place.where, label=one.name.text)
                placed = _placed(document, first, names.page, value, score=one.score, why=why)
                found.setdefault(one.label, []).append(placed)
                break
    return found


def _read(names: _PageNames, label: OwnLabel, words: Sequence[Word]) -> ReadValue | None:
    start, end = words[0].start, words[-1].end
    if end - start > 2 * sum(len(word.text) + 1 for word in words):  # words of other columns lie between
        return None
    return read_value(label, names.page.text, start, end, names.patterns)


def _placed(document: Document, first: int, page: Page, value: ReadValue, *, score: float, why: str) -> OwnValue:
    text = " ".join(page.text[value.start : value.end].split())
    start, end = value.start + first, value.end + first
    places = tuple(locate(document, start, end))
    return OwnValue(orjson.dumps(value.value).decode(), text, start, end, round(score, 4), why, places, value.valid)
