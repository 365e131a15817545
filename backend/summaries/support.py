"""Which sentences of a text each written sentence rests on, by the embedding model's vectors and by its numbers."""

from __future__ import annotations

import re

import numpy as np

from backend.lanes.inference import Urgency
from backend.models.calibration import likeness
from backend.models.encoder import normalized
from backend.reasons import because
from backend.serving.catalog import Catalog
from backend.summaries.records import Source, WrittenSentence
from backend.summaries.writing import Reading
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.neutral_vectors import NeutralVectors
from backend.text.sentences import sentence_spans

_MAX_SOURCES = 3
# Of 0 to 1, the likeness that people would give two sentences; below it one does not tell the other. Of the thresholds
# in benchmarks/results/summary_support.json, 0.35 and 0.4 tell best, and 0.4 finds more of what is not in the text.
NEAR = 0.4
_BESIDE_BEST = 0.1  # likeness below that of the nearest at which another is still named
_NUMBER = re.compile(r"\d(?:[\d.,'\u00a0\u202f]*\d)?")
_SEPARATORS = str.maketrans("", "", ".,'\u00a0\u202f")


class SupportFinder:
    """Belongs to the loop's thread. The sentences' vectors are cached as those of /v1/embeddings are."""

    def __init__(self, catalog: Catalog, embeddings: EmbeddingService, neutral: NeutralVectors) -> None:
        self.catalog, self._embeddings, self._neutral = catalog, embeddings, neutral

    async def find(
        self, written: str, reading: Reading, urgency: Urgency, *, most: int | None
    ) -> tuple[WrittenSentence, ...]:
        """The sentences of what was written, ``most`` of them, with those of the text that they rest on.

        Raises: as EmbeddingService.embed.
        """
        texts = [written[start:end] for start, end in sentence_spans(written).tolist()][:most]
        if not texts or not reading.sentences:
            return tuple(WrittenSentence(text, (), unsupported=True, why=because("nothing_was_read")) for text in texts)
        model, options = self.catalog.embedding(), EmbedOptions(truncate="end", normalize=True)
        embedded = await self._embeddings.embed_in_chunks(model, [*texts, *reading.sentences], options, urgency)
        unrelated = await self._neutral.unrelated_cosine(model, options, options, urgency)
        vectors = normalized(embedded.vectors)
        cosines = vectors[: len(texts)] @ vectors[len(texts) :].T
        return tuple(supported(text, row, reading, unrelated, NEAR) for text, row in zip(texts, cosines, strict=True))


def supported(text: str, cosines: np.ndarray, reading: Reading, unrelated: float, least: float) -> WrittenSentence:
    """A written sentence with the sentences of the text that are near to it and say its numbers.

    Args:
        cosines: of its vector and those of the text's sentences, (n,).
        unrelated: cosine of sentences that have nothing to do with each other.
        least: likeness from which on a sentence is near.
    """
    alike = likeness(cosines, unrelated)
    order = np.argsort(-alike, kind="stable")[:_MAX_SOURCES]
    candidates = [int(index) for index in order if alike[index] >= least]
    near = [index for index in candidates if alike[index] >= alike[candidates[0]] - _BESIDE_BEST]
    told = {number for index in near for number in _numbers(reading.sentences[index])}
    missing = _numbers(text) - told  # of two sentences joined, the second may be less near
    near += [index for index in candidates[len(near) :] if missing & _numbers(reading.sentences[index])]
    sources = tuple(
        Source(reading.sentences[index], *reading.places[index], round(float(cosines[index]), 4)) for index in near
    )
    if not near:
        return WrittenSentence(text, (), unsupported=True, why=because("no_sentence_near"))
    known = {number for index in near for number in _numbers(reading.sentences[index])}
    unknown = [number for number in _NUMBER.findall(text) if number.translate(_SEPARATORS) not in known]
    why = because("numbers_unknown", numbers=unknown[:3]) if unknown else ""
    return WrittenSentence(text, sources, unsupported=bool(unknown), why=why)


def _numbers(text: str) -> set[str]:
    return {number.translate(_SEPARATORS) for number in _NUMBER.findall(text)}
