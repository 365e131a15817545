"""Summaries: of the text's own sentences, or written by a model from these."""

from __future__ import annotations

import math

from backend.errors import InvalidField
from backend.lanes.inference import Urgency
from backend.lanes.work_item import Priority
from backend.reasons import because
from backend.summaries.model_writer import Writers
from backend.summaries.records import DEFAULT_SENTENCES, Method, Summary, SummaryOptions, SummaryResult
from backend.summaries.support import SupportFinder
from backend.summaries.writing import Writer, reading_of
from backend.text.analysis import Analysis, AnalysisService
from backend.text.key_sentences import SummaryLength


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
        priority: Priority = Priority.INTERACTIVE,
        deadline_s: float = math.inf,
    ) -> SummaryResult:
        """The summary of a text of any length.

        Raises: InvalidField for a method that is not configured; ModelPending, UpstreamFailed, Overloaded, Unavailable,
            DeadlineExceeded, InferenceFailed for the service.
        """
        analysis = await self._analysis.analyze(
            text, features=("language",), summary=self.length(options), priority=priority, deadline_s=deadline_s
        )
        summary = await self.finish(text, analysis, options, Urgency(priority, deadline_s))
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
