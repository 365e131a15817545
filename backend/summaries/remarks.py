"""What an answer says beside a summary: why it is empty, and which options it does not use."""

from __future__ import annotations

from backend.summaries.records import Method, SummaryOptions
from backend.text.analysis import Analysis

NO_TEXT = "text: empty, because there is nothing to read: no letters and no figures"


def why_empty(text: str, analysis: Analysis, options: SummaryOptions) -> str:
    """Why no sentence was chosen, and what to do about it."""
    if not any(map(str.isalnum, text)):
        return NO_TEXT
    if analysis.shortest_candidate is None or options.max_tokens is None:
        return (
            "text: empty, because there is no whole sentence of 30 to 600 characters, only such as fields, headings or "
            "rows; the feature fields of POST /v1/documents tells what a form or an invoice says"
        )
    return (
        f"text: empty, because the shortest sentence, {analysis.shortest_candidate} tokens, is more than max_tokens, "
        f"{options.max_tokens}, and a sentence is never cut; raise max_tokens"
    )


def unused_options(options: SummaryOptions, method: Method) -> tuple[str, ...]:
    """The options that the method does not use."""
    if method == "model":
        return ()
    given = [name for name, is_set in (("min_tokens", options.min_tokens > 0), ("beams", options.beams > 1)) if is_set]
    return (f"{', '.join(given)}: not used by the method {method}, only by model (SUMMARY_MODEL)",) if given else ()
