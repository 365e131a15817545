"""Names printed on a page and what stands beside them: "Matrícula: 1234 BCD", columns, and names above their values.

By words and boxes alone; what a name means is for `own_fields`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from backend.abandoned import require_wanted
from backend.files.pages import Page, Word
from backend.text.own_labels import plain_of
from backend.text.own_values import BOXES
from backend.word_cache import word_cache

NAME_WORDS = 7  # of a printed name, at most
EDGES = " :.·…_-*#"
_TIGHT = 0.8  # of the gap over a name, at most, is the gap between it and a value set below it
_GAP = 0.9  # of a word's height: a wider one parts columns
_PROSE = 8  # words: a longer segment is a sentence, and begins with a name only where a mark says so
_BELOW = 2.6  # heights between the tops of a name and of what stands below it
_NEXT_LINE, _MAX_LINES = 2.2, 50  # heights between the tops of lines of a list, and of its lines
_ABBREVIATED = 3  # letters before a point: "S.A.", "Avda."
_MAX_COLUMNS = 60  # each is compared with those of the next rows: 5,000 would take hours
_OF = frozenset({"de", "del", "of"})
_LEADER = re.compile(r"[.…_·\-]{3,}")  # "Total ........ 12"
_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
_EMPTY = frozenset(
    {"no", "n", "nº", "n.º", "num", "numero", "number", "nr", "de", "del", "la", "el", "of", "the", "a", "al"}
)

Segment: TypeAlias = tuple[int, int]  # its row and column


@dataclass(frozen=True, slots=True)
class Beside:
    """Where the value of a name may stand."""

    where: str  # "after", "right of", "below": the name
    segment: Segment
    words: tuple[Word, ...]
    lines: tuple[tuple[Word, ...], ...] = ()  # that go on below them, as those of a list do


@dataclass(frozen=True, slots=True)
class PrintedName:
    """The beginning of a segment as a possible name, and the places of its value, the likeliest first."""

    text: str
    segment: Segment  # one has several beginnings
    beside: tuple[Beside, ...]
    is_likely: bool  # it is set apart from its value, has no digit, and stands where names do
    with_colon: bool


@dataclass(frozen=True, slots=True)
class _Segment:
    """Words of one row that stand together."""

    words: tuple[Word, ...]

    @property
    def left(self) -> float:
        return self.words[0].box.left

    @property
    def right(self) -> float:
        return self.words[-1].box.right

    @property
    def top(self) -> float:
        return min(word.box.top for word in self.words)

    @property
    def height(self) -> float:
        return max(word.box.height for word in self.words)


@word_cache(16_384)
def content_of(name: str) -> str:
    """The words that tell a name from others: "Nº de matrícula" -> "matricula"."""
    words = [word.strip(EDGES) for word in plain_of(name).split()]
    return " ".join(word for word in words if word not in _EMPTY) or " ".join(words)


def printed_names(page: Page) -> list[PrintedName]:
    """Every beginning of every segment of the page that could be a name with a value, row by row."""
    rows = [row for row in _rows(page.words) if len(row) <= _MAX_COLUMNS]
    names: list[PrintedName] = []
    for row, segments in enumerate(rows):
        is_heading = _is_heading(rows, row)
        for column, segment in enumerate(segments):
            require_wanted()
            counts = range(1, min(NAME_WORDS, len(segment.words)) + 1)
            found = (_name(rows, row, column, count, is_heading=is_heading) for count in counts)
            names += filter(None, found)
    return names


def _name(
    rows: Sequence[Sequence[_Segment]], row: int, column: int, count: int, *, is_heading: bool
) -> PrintedName | None:
    segment = rows[row][column]
    text = " ".join(word.text for word in segment.words[:count]).strip(EDGES)
    beside = tuple(_beside(rows, row, column, count, is_heading=is_heading)) if _LETTER.search(text) else ()
    if not beside:
        return None
    following = segment.words[count].text if count < len(segment.words) else ""
    with_colon = segment.words[count - 1].text.endswith(":") or following == ":"
    is_apart = with_colon or not following or _begins_value(following)
    is_alone = len(rows[row]) == 1 and len(segment.words) <= _PROSE and following[:1].isupper()
    if not (is_apart or is_alone):  # "Letrada Ana Ruiz", but neither "avería comunicada" nor a sentence
        return None
    is_first = with_colon or column % 2 == 0 or is_heading  # names and values take turns on a row
    return PrintedName(text, (row, column), beside, is_apart and is_first and not _DIGIT.search(text), with_colon)


def _begins_value(word: str) -> bool:
    return word == ":" or any(map(str.isdigit, word)) or word[0] in BOXES or _LEADER.fullmatch(word) is not None


def _beside(
    rows: Sequence[Sequence[_Segment]], row: int, column: int, count: int, *, is_heading: bool
) -> Iterator[Beside]:
    if rest := _spoken(rows[row][column].words[count:]):
        yield Beside("after", (row, column), rest, _wrapped(rows, row, column))
        return
    others = range(column + 1, len(rows[row]))
    right = next(
        (
            Beside("right of", (row, at), words, _lines(rows, row, at, column))
            for at in others
            if (words := _spoken(rows[row][at].words))
        ),
        None,
    )
    below = _below(rows, row, column)
    places = [right, below]
    if is_heading:
        places.reverse()
    yield from (place for place in places if place is not None)


def _below(rows: Sequence[Sequence[_Segment]], row: int, column: int) -> Beside | None:
    segment = rows[row][column]
    for under in range(row + 1, min(row + 3, len(rows))):
        for at, other in enumerate(rows[under]):
            near = other.top - segment.top <= _BELOW * max(segment.height, other.height)
            if near and other.left < segment.right and segment.left < other.right and (words := _spoken(other.words)):
                return Beside("below", (under, at), words, _lines(rows, under, at, at))
    return None


def _lines(rows: Sequence[Sequence[_Segment]], row: int, column: int, name: int) -> tuple[tuple[Word, ...], ...]:
    """What stands below a segment, as close and as far right as it, where the name's column has nothing."""
    above, found = rows[row][column], list[tuple[Word, ...]]()
    for under in rows[row + 1 : row + 1 + _MAX_LINES]:
        next_one = next((one for one in under if abs(one.left - above.left) < above.height), None)
        is_other = name != column and any(one.left < above.left - above.height for one in under)
        if next_one is None or is_other or next_one.top - above.top > _NEXT_LINE * above.height:
            break
        if any(word.text.endswith(":") for word in next_one.words):
            break
        found.append(_spoken(next_one.words))
        above = next_one
    return tuple(filter(None, found))


def _wrapped(rows: Sequence[Sequence[_Segment]], row: int, column: int) -> tuple[tuple[Word, ...], ...]:
    """The lines on which an enumeration goes on whose line ends with a comma."""
    found, last = list[tuple[Word, ...]](), rows[row][column]
    for under in rows[row + 1 :]:
        if not last.words[-1].text.endswith((",", ";")) or len(found) == _MAX_LINES:
            break
        last = under[min(column, len(under) - 1)]
        found.append(_spoken(last.words))
    return tuple(filter(None, found))


def _is_heading(rows: Sequence[Sequence[_Segment]], row: int) -> bool:
    """Whether the row has names for the values of the next one, column by column.

    Digits tell, where they stand below a first or third column, in which names are where names and values take turns;
    or the row stands closer to the next one than to the one before, and its columns begin where the next one's do.
    """
    if row + 1 >= len(rows) or abs(len(rows[row]) - len(rows[row + 1])) > 1 or any(map(_has_digit, rows[row])):
        return False
    step = 2 if len(rows[row]) % 2 == 0 else 1  # an odd number of columns has no turns to take
    if len(rows[row]) > 1 and any(map(_has_digit, rows[row + 1][::step])):
        return True
    return _is_over(rows, row)


def _is_over(rows: Sequence[Sequence[_Segment]], row: int) -> bool:
    own, under = rows[row], rows[row + 1]
    tolerance = max(segment.height for segment in own)
    aligned = sum(any(abs(one.left - other.left) < tolerance for other in under) for one in own)
    if aligned < len(own) or len(under) > len(own) or any(len(one.words) > NAME_WORDS for one in own):
        return False
    below = _top(under) - _bottom(own)
    return row > 0 and below < _TIGHT * (_top(own) - _bottom(rows[row - 1]))


def _top(row: Sequence[_Segment]) -> float:
    return min(segment.top for segment in row)


def _bottom(row: Sequence[_Segment]) -> float:
    return max(word.box.bottom for segment in row for word in segment.words)


def _has_digit(segment: _Segment) -> bool:
    return any(_DIGIT.search(word.text) for word in segment.words)


def _spoken(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words without marks that lead to a value."""
    return tuple(word for word in words if word.text.strip(EDGES))


def _rows(words: Sequence[Word]) -> Iterator[list[_Segment]]:
    """The words of a page row by row, from the top, each row cut at its gaps."""
    row: list[Word] = []
    for word in sorted(words, key=lambda word: word.box.top + word.box.bottom):
        if row and (word.box.top + word.box.bottom) / 2 > row[0].box.bottom:
            yield list(_segments(row))
            row = []
        row.append(word)
    if row:
        yield list(_segments(row))


def _segments(row: Sequence[Word]) -> Iterator[_Segment]:
    ordered = sorted(row, key=lambda word: word.box.left)
    begin = 0
    for index, (word, following) in enumerate(pairwise(ordered), 1):
        gap = following.box.left - word.box.right
        if gap > _GAP * max(word.box.height, following.box.height):
            yield from _pairs(ordered[begin:index])
            begin = index
    yield from _pairs(ordered[begin:])


def _pairs(words: Sequence[Word]) -> Iterator[_Segment]:
    """Cuts "Fecha: 12/03/2026 Lugar de entrega: Soria" before the second name, which begins with a capital."""
    begin = 0
    for index, word in enumerate(words):
        if not word.text.endswith(":") or word.text == ":":
            continue
        first = next((at for at in range(index, max(begin, index - 5), -1) if _begins_sentence(words, at)), None)
        if first is not None:  # "It was so decided. Budget: 12,800"
            yield _Segment(tuple(words[begin:first]))
            begin = first
        elif index and any(":" in one.text for one in words[begin:index]):
            capital = next((at for at in range(index, max(begin, index - 4), -1) if words[at].text[0].isupper()), index)
            while capital - 2 > begin and words[capital - 1].text in _OF:
                capital -= 2
            yield _Segment(tuple(words[begin:capital]))
            begin = capital
    yield _Segment(tuple(words[begin:]))


def _begins_sentence(words: Sequence[Word], at: int) -> bool:
    before = words[at - 1].text
    return before.endswith(".") and len(before.rstrip(".")) > _ABBREVIATED and words[at].text[0].isupper()
