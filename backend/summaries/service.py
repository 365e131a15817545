"""Summaries: of the text's own sentences, or written by a model, with the sentences of the text each one rests on."""

from __future__ import annotations

import re

import numpy as np

from backend.errors import InvalidField
from backend.lanes.inference import Urgency
from backend.models.calibration import likeness
from backend.models.encoder import normalized
from backend.reasons import because
from backend.serving.catalog import Catalog
from backend.summaries.records import (
    DEFAULT_SENTENCES,
    Method,
    Source,
    Summary,
    SummaryOptions,
    SummaryResult,
    WrittenSentence,
)
from backend.summaries.writers import Reading, Writer, Writers, reading_of
from backend.text.analysis import Analysis, AnalysisService
from backend.text.embeddings import EmbeddingService, EmbedOptions
from backend.text.key_sentences import SummaryLength
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


class SummaryService:
    """The use case behind ``/v1/summarize`` and the feature ``summary`` of documents. Belongs to the loop's thread."""

    def __init__(self, analysis: AnalysisService, writers: Writers, support: SupportFinder) -> None:
        self._analysis, self._writers, self._support = analysis, writers, support

    def check(self, options: SummaryOptions) -> None:
        """Refuse what cannot be done here, before a file is read. Raises: InvalidField, ModelPending."""
        self._writer(options)

    def length(self, options: SummaryOptions) -> SummaryLength:
        """How long an extract the analysis must make: the summary itself, or what its writer reads.

        Raises: InvalidField where no model is set that writes.
        """
        writer = self._writer(options)
        if writer is not None:
            return SummaryLength(tokens=writer.most_read_tokens)
        if options.sentences is None and options.max_tokens is None:
            return SummaryLength(sentences=DEFAULT_SENTENCES)
        return SummaryLength(options.sentences, options.max_tokens)

    async def summarize(
        self,
        text: str,
        options: SummaryOptions,
        *,
        urgency: Urgency = Urgency(),
    ) -> SummaryResult:
        """The summary of a text of any length.

        Raises: InvalidField for a method that is not configured; ModelPending, UpstreamFailed, Overloaded, Unavailable,
            DeadlineExceeded, InferenceFailed for the service.
        """
        analysis = await self._analysis.analyze(
            text, features=("language",), summary=self.length(options), urgency=urgency
        )
        summary = await self.finish(text, analysis, options, urgency)
        return SummaryResult(summary, analysis.tokens + summary.tokens, analysis.timing)

    async def finish(self, text: str, analysis: Analysis, options: SummaryOptions, urgency: Urgency) -> Summary:
        """The summary from the analysis of the text, which was made with `length`. Raises: as `summarize`."""
        writer = self._writer(options)
        extract = analysis.summary
        warnings = _unused_options(options, "extractive" if writer is None else writer.method)
        if writer is None:
            joined = " ".join(_on_one_line(sentence.text) for sentence in extract)
            warnings += () if extract else (_why_empty(text, analysis, options),)
            return Summary("extractive", analysis.model, joined, analysis.language, extract, warnings=warnings)
        reading = await reading_of(text, extract, writer)
        if not reading.text:
            why = (_why_empty(text, analysis, options),)
            return Summary(writer.method, writer.name, "", analysis.language, warnings=warnings + why)
        written = await writer.write(reading, options, analysis.language, urgency)
        sentences = await self._support.find(written.text, reading, urgency, most=options.sentences)
        return Summary(
            method=writer.method,
            model=written.model,
            text=" ".join(sentence.text for sentence in sentences),
            language=analysis.language,
            written=sentences,
            coverage=reading.coverage,
            warnings=warnings if sentences else (*warnings, because("wrote_nothing", model=written.model)),
            tokens=written.tokens,
        )

    def _writer(self, options: SummaryOptions) -> Writer | None:
        """Who writes the summary; None for an extract. Raises: InvalidField, ModelPending."""
        if options.method == "extractive":
            return None
        model = self._writers.model() if options.method in ("abstractive", "model") else None
        writer = model or (self._writers.api() if options.method in ("abstractive", "api") else None)
        if writer is None:
            setting = {"model": "SUMMARY_MODEL", "api": "SUMMARY_URL"}.get(
                options.method, "SUMMARY_MODEL or SUMMARY_URL"
            )
            raise InvalidField(
                f"method: no model that writes summaries is configured for {options.method!r}; set {setting}, or leave "
                "method out for a summary of the text's own sentences",
                param="method",
            )
        return writer


def _on_one_line(sentence: str) -> str:
    """A sentence without the line breaks of its paragraph or page."""
    return " ".join(sentence.split())


NO_TEXT = because("nothing_to_read")


def _why_empty(text: str, analysis: Analysis, options: SummaryOptions) -> str:
    """Why no sentence was chosen, and what to do about it."""
    if not any(map(str.isalnum, text)):
        return NO_TEXT
    if analysis.shortest_candidate is None or options.max_tokens is None:
        return because("no_whole_sentence")
    return because("sentences_too_long", tokens=analysis.shortest_candidate, limit=options.max_tokens)


def _unused_options(options: SummaryOptions, method: Method) -> tuple[str, ...]:
    """The options that the method does not use."""
    if method == "model":
        return ()
    given = [name for name, is_set in (("min_tokens", options.min_tokens > 0), ("beams", options.beams > 1)) if is_set]
    return (because("not_used_by_method", options=given, method=method),) if given else ()
