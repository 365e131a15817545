"""Finds the lines of a text that head what follows them, by their form: numbered clauses, capitals, lines alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_LINE = re.compile(r"[^\n\r\v\f\x85\u2028\u2029]+")
_MOST_CHARACTERS, _MOST_WORDS = 90, 12  # of a heading
_MOST_LINES = 3  # title, chapter and clause; more short lines one after another are a list, a form or a table
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
    lines = [(start, end) for start, end in map(_stripped, _LINE.finditer(text)) if start < end]
    found: list[Span] = []
    run: list[tuple[Span, str]] = []
    for index, (start, end) in enumerate(lines):
        kind = _kind(text, lines, index) if end - start <= _MOST_CHARACTERS else None
        if kind is not None:
            run.append(((start, end), kind))
            continue
        found += _joined(run)
        run = []
    return found  # what nothing follows heads nothing


def _joined(run: Sequence[tuple[Span, str]]) -> Iterator[Span]:
    """The span of lines that follow one another; none of a list, whose items are counted or many."""
    kinds = [kind for _, kind in run if kind]
    if run and len(run) <= _MOST_LINES and len(kinds) == len(set(kinds)):
        yield run[0][0][0], run[-1][0][1]


def _kind(text: str, lines: Sequence[Span], index: int) -> str | None:
    """How a heading is counted, empty for one that is not; None for a line that is no heading."""
    start, end = lines[index]
    line = text[start:end]
    if len(line.split()) > _MOST_WORDS or COLUMNS.search(line):
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
