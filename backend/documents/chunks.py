"""Cuts a text into chunks of whole sentences that fit a model, with an overlap, keeping rows and headings together."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.models.words import Offsets
from backend.tables.records import Table
from backend.text.sentences import chunk_spans, sentence_spans

_HEADING_LINE = re.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")
_MAX_CHARACTERS, _MAX_WORDS = 90, 12  # of a heading
_MAX_LINES = 3  # title, chapter and clause; more short lines one after another are a list, a form or a table
_MARK = r"\s{0,2}(?:[.:)ªº]|\.?\s?[-\u2013\u2014])"
_ORDINALS = (
    r"primer[oa]|segund[oa]|tercer[oa]|cuart[oa]|quint[oa]|sext[oa]|s[eé]ptim[oa]|octav[oa]|noven[oa]|[uú]nic[oa]"
    r"|und[eé]cim[oa]|duod[eé]cim[oa]|(?:d[eé]cim[oa]|vig[eé]sim[oa]|trig[eé]sim[oa])(?:[\s-]?[a-zé]{5,8}[oa])?"
    r"|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
)
_CARDINALS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_PARTS = (
    r"cl[aá]usula|art[ií]culo|art\.|cap[ií]tulo|t[ií]tulo|secci[oó]n|anexo|apartado|disposici[oó]n"
    r"|clause|article|section|chapter|part|annex|appendix|schedule|exhibit"
)
_OPENING = re.compile(
    rf"(?P<ordinal>{_ORDINALS}){_MARK}(?=\s|$)|(?P<part>{_PARTS})\s{{1,3}}(?:\d|[ivxlc]{{1,7}}\b|[a-z]\b|(?:{_ORDINALS}|{_CARDINALS})\b)"
    r"|(?P<number>\d{1,3}(?:\.\d{1,3}){0,4})(?:[.)]|\.?\s?[-\u2013\u2014]|(?<=\d\.\d)|(?<=\d\.\d\d))\s"
    r"|(?P<roman>[ivxlc]{1,7})(?:[.)]|\.?\s?[-\u2013\u2014])\s",
    re.IGNORECASE,
)
COLUMNS = re.compile(r"\S(?:\t|\s{3,}|\s?\|\s?)\S")
_SENTENCE_ENDS = ".!?…,;"

Span = tuple[int, int]


def heading_spans(text: str) -> list[Span]:
    """First and past-last code point of each heading, in order; lines that head the same text are one. Linear."""
    lines = [(start, end) for start, end in map(_stripped, _HEADING_LINE.finditer(text)) if start < end]
    found: list[Span] = []
    run: list[tuple[Span, str]] = []
    for index, (start, end) in enumerate(lines):
        kind = _kind(text, lines, index) if end - start <= _MAX_CHARACTERS else None
        if kind is not None:
            run.append(((start, end), kind))
            continue
        found += _joined(run)
        run = []
    return found  # what nothing follows heads nothing


def _joined(run: Sequence[tuple[Span, str]]) -> Iterator[Span]:
    """The span of lines that follow one another; none of a list, whose items are counted or many."""
    kinds = [kind for _, kind in run if kind]
    if run and len(run) <= _MAX_LINES and len(kinds) == len(set(kinds)):
        yield run[0][0][0], run[-1][0][1]


def _kind(text: str, lines: Sequence[Span], index: int) -> str | None:
    """How a heading is counted, empty for one that is not; None for a line that is no heading."""
    start, end = lines[index]
    line = text[start:end]
    if len(line.split()) > _MAX_WORDS or COLUMNS.search(line):
        return None
    if opening := _OPENING.match(line):
        levels = opening["number"].count(".") if opening["number"] else 0
        return f"{opening.lastgroup} {(opening['part'] or '').lower()} {levels}"
    if line[-1] in _SENTENCE_ENDS or not line[0].isupper():
        return None
    return "" if (line.isupper() and len(line) > 3) or _stands_alone(text, lines, index) else None


def _stands_alone(text: str, lines: Sequence[Span], index: int) -> bool:
    """Whether blank lines are before and after a line."""
    before = text[lines[index - 1][1] : lines[index][0]] if index else "\n\n"
    after = text[lines[index][1] : lines[index + 1][0]] if index + 1 < len(lines) else ""
    return all(gap.count("\n") > 1 or "\f" in gap or "\r\n\r" in gap for gap in (before, after))


def _stripped(match: re.Match[str]) -> Span:
    line = match[0]
    start = match.end() - len(line.lstrip())
    return start, max(start, match.start() + len(line.rstrip()))


CHUNK_TOKENS = 256  # of a chunk at most: retrieval was measured with it, also for models that take more
SPECIAL_TOKENS = 2  # of those
_NOTHING: Offsets = np.empty((0, 2), np.int64)
_LINE = re.compile(r"[^\n]+")


def text_chunks(
    text: str, token_starts: NDArray[np.int64], max_tokens: int, *, overlap_tokens: int = 0, rows: Sequence[Span] = ()
) -> list[Span]:
    """Start and end of each chunk in the text, in order. Takes milliseconds a page: call it on a thread.

    A chunk has at most ``max_tokens``, of which the first ``overlap_tokens`` at most are the end of the chunk before:
    from the first sentence that begins there, else from the first word. A heading stands in the chunk of the sentence
    that it heads where both fit. The last chunk of a text without a token is the text itself; a blank text has none.

    Args:
        token_starts: (tokens) where each token of the text begins, ascending; without special tokens.
        rows: of tables, by start; one that fits a chunk is not cut.
    """
    if not text.strip():
        return []
    sentences = sentence_spans(text)
    most = max(1, max_tokens - overlap_tokens)
    units = joined(sentences, rows, token_starts, most)
    units = headed(units, heading_spans(text), rows, token_starts, most)
    spans = chunk_spans(token_starts, units, most) or [(0, len(text))]
    if overlap_tokens <= 0:
        return spans
    firsts: list[int] = sentences[:, 0].tolist()
    chunks = [spans[0]]
    for start, end in spans[1:]:
        earlier = _overlapping(text, start, token_starts, firsts, overlap_tokens)
        # A chunk shorter than the overlap would stand in the next one whole: that one repeats nothing then.
        chunks.append((earlier if earlier > chunks[-1][0] else start, end))
    return chunks


def joined(sentences: Offsets, rows: Sequence[Span], token_starts: NDArray[np.int64], most_tokens: int) -> Offsets:
    """The sentences, those that stand on one row of a table made one where it has at most ``most_tokens``."""
    if not len(rows) or not len(sentences):
        return sentences
    starts, ends = sentences[:, 0].tolist(), sentences[:, 1].tolist()
    spans: list[Span] = []
    done = 0  # sentences that are in ``spans``
    for row_start, row_end in rows:
        first, past = bisect_right(ends, row_start, lo=done), bisect_left(starts, row_end, lo=done)
        if past - first < 2:
            continue
        start, end = starts[first], ends[past - 1]
        if int(np.searchsorted(token_starts, end) - np.searchsorted(token_starts, start)) > most_tokens:
            continue
        spans += zip(starts[done:first], ends[done:first], strict=True)
        spans.append((start, end))
        done = past
    spans += zip(starts[done:], ends[done:], strict=True)
    return np.array(spans, np.int64).reshape(-1, 2) if spans else _NOTHING


def headed(
    units: Offsets, headings: Sequence[Span], rows: Sequence[Span], token_starts: NDArray[np.int64], most_tokens: int
) -> Offsets:
    """The sentences and rows, each heading made one with what follows it.

    Where both together have more than ``most_tokens``, only if what follows is cut anyway. Rows are no headings.
    """
    if not headings:
        return units
    starts, ends = units[:, 0].tolist(), units[:, 1].tolist()
    past_tokens = np.searchsorted(token_starts, units[:, 1]).tolist()
    row_starts = [row[0] for row in rows]
    spans: list[Span] = []
    done = 0  # units that are in ``spans``
    for start, end in headings:
        first, last = bisect_left(starts, start, lo=done), bisect_left(starts, end, lo=done) - 1
        if first >= len(starts) or starts[first] != start:
            continue
        row = bisect_right(row_starts, start) - 1
        if row >= 0 and start < rows[row][1]:
            continue
        last += ends[last] <= end  # else its last sentence goes on behind it
        if last >= len(starts) or last == first:
            continue
        tokens = past_tokens[last] - (past_tokens[first - 1] if first else 0)
        if most_tokens < tokens and past_tokens[last] - past_tokens[last - 1] <= most_tokens:
            continue
        spans += zip(starts[done:first], ends[done:first], strict=True)
        spans.append((start, ends[last]))
        done = last + 1
    spans += zip(starts[done:], ends[done:], strict=True)
    return np.array(spans, np.int64).reshape(-1, 2)


def table_rows(tables: Iterable[Table]) -> list[Span]:
    """The span of each row of tables whose words follow one another in the text; by start."""
    rows: list[Span] = []
    for table in tables:
        spans: dict[int, Span] = {}
        for cell in table.cells:
            if cell.start is None or cell.end is None or cell.rowspan > 1:
                continue
            start, end = spans.get(cell.row, (cell.start, cell.end))
            spans[cell.row] = min(start, cell.start), max(end, cell.end)
        found = sorted(spans.values())
        if all(before[1] <= after[0] for before, after in pairwise(found)):  # not cell by cell, column after column
            rows += found
    return sorted(rows)


def printed_rows(text: str, *, every_line: bool = False) -> list[Span]:
    """The lines of a plain text that are rows of a table: they have columns. Of a file of rows, all lines."""
    lines = (match.span() for match in _LINE.finditer(text) if not match[0].isspace())
    return [(start, end) for start, end in lines if every_line or COLUMNS.search(text, start, min(end, start + 400))]


def _overlapping(
    text: str, start: int, token_starts: NDArray[np.int64], sentences: Sequence[int], overlap_tokens: int
) -> int:
    """Where a chunk begins that repeats at most so many tokens before ``start``."""
    first = int(np.searchsorted(token_starts, start))
    earliest = max(0, first - overlap_tokens)
    if earliest == first:
        return start
    sentence = bisect_left(sentences, int(token_starts[earliest]))
    if sentence < len(sentences) and sentences[sentence] < start:
        return sentences[sentence]
    for place in token_starts[earliest:first].tolist():
        if place == 0 or text[place].isspace() or text[place - 1].isspace():
            return next(index for index in range(place, start + 1) if index == start or not text[index].isspace())
    return int(token_starts[earliest])
