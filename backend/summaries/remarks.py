"""What an answer says beside a summary: why it is empty, and which options it does not use."""

from __future__ import annotations

from backend.reasons import because
from backend.summaries.records import Method, SummaryOptions
from backend.text.analysis import Analysis

NO_TEXT = because("nothing_to_read")


def why_empty(text: str, analysis: Analysis, options: SummaryOptions) -> str:
    """Why no sentence was chosen, and what to do about it."""
    if not any(map(str.isalnum, text)):
        return NO_TEXT
    if analysis.shortest_candidate is None or options.max_tokens is None:
        return because("no_whole_sentence")
    return because("sentences_too_long", tokens=analysis.shortest_candidate, limit=options.max_tokens)


def unused_options(options: SummaryOptions, method: Method) -> tuple[str, ...]:
    """The options that the method does not use."""
    if method == "model":
        return ()
    given = [name for name, is_set in (("min_tokens", options.min_tokens > 0), ("beams", options.beams > 1)) if is_set]
    return (because("not_used_by_method", options=given, method=method),) if given else ()
