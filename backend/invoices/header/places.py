"""Where the value of a label may stand: behind it, in the next cell, or below it.

A label is never the value of another one: a place ends where a label begins.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from backend.files.pages import Box, Word, bounding_box
from backend.files.visual_rows import Cell, PageRows
from backend.invoices.header.labels import LABELS
from backend.invoices.items.find import ItemLines
from backend.invoices.label_match import LabelMatch, tokens_of

_LABEL_AND_VALUE = re.compile(
    r"(?P<label>[^\W\d_]{1,24}(?:\.[^\W\d_]{1,12}){0,2}\.?[:#º°№=]{1,8}\.?|#|(?:n\.?o|nr|num|ref)\.|n\.?[º°]|[^\W\d_]{4,40}(?=\d\d?[/.-]\d\d?[/.-]\d))"
    r"(?P<value>[^\W_].*|\(.*)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?:", re.IGNORECASE)


def with_labels_apart(page: PageRows) -> PageRows:
    """The page with such words split, each part with its share of the box."""
    rows = tuple(replace(row, cells=tuple(map(_separated, row.cells))) for row in page.rows)
    return PageRows(page.page, page.start, page.slope, rows)


def _separated(cell: Cell) -> Cell:
    words = tuple(part for word in cell.words for part in _parts(word))
    return cell if len(words) == len(cell.words) else replace(cell, words=words)


def _parts(word: Word) -> tuple[Word, ...]:
    match = None if word.text.isalpha() else _LABEL_AND_VALUE.fullmatch(word.text)
    if match is None or _ADDRESS.match(word.text):
        return (word,)
    cut = match.end("label")
    middle = word.box.left + word.box.width * cut / len(word.text)
    left = Box(word.box.left, word.box.top, middle, word.box.bottom)
    right = Box(middle, word.box.top, word.box.right, word.box.bottom)
    return (
        replace(word, text=word.text[:cut], box=left, end=word.start + cut),
        replace(word, text=word.text[cut:], box=right, start=word.start + cut),
    )


Position = Literal["behind", "beside", "below"]

_SHORT = 2  # letters
_LONG_CELL = 80  # words; a cell with more is no form, and its tail is not looked at
_MOST_BELOW = 3  # rows, and:
_MOST_DROP = 4.5  # line heights from a label to a value below it
_MARGIN = 1.0  # line heights that a value below may stand beside its label
_TRUST: dict[Position, float] = {"behind": 1.0, "beside": 0.95, "below": 0.88}
_WORDS_BETWEEN = 0.9  # "Fecha de adeudo estimada" with a date in the next cell
_BARE_LABELS = ("title", "number", "reference", "other")  # with more words behind them they are none
_DATE_LABELS = ("date", "due", "other_date", "operation_date")
_FIRST_DATES, _SECOND_DATES = ("date", "plain_date"), ("other_date", "operation_date", "other")
_BACKGROUND = ("other", "other_id", "term")
_LINKS = {
    "de", "del", "la", "el", "en", "su", "por", "al", "a", "y", "of", "from", "to", "in", "at", "your", "the", "by",
    "and", "der", "des", "di", "da", "do", "dans", "votre", "le", "les", "auf", "von", "ihrem", "seu", "vostro", "nel",
}  # fmt: skip
_EACH_ROW_DOWN = 0.06
_FAR = 0.4  # of the page's width: a value beside its label is nearer than that, or trusted less
_FAR_TRUST = 0.85


class Place(NamedTuple):
    """Words in which a label's value may stand."""

    words: tuple[Word, ...]  # never empty
    position: Position
    trust: float  # 0 to 1: how usual a value is there
    cell: Cell


@dataclass(frozen=True)
class LabelledPage:
    """A page with the labels on it; rows of goods have none."""

    page: PageRows  # words of labels and values apart
    labels: tuple[LabelMatch, ...]  # top to bottom, left to right

    @cached_property
    def labels_of(self) -> dict[tuple[int, float], list[LabelMatch]]:
        """By row and left edge of their cell."""
        found: dict[tuple[int, float], list[LabelMatch]] = {}
        for match in self.labels:
            found.setdefault(_key(match.cell), []).append(match)
        return found

    @cached_property
    def height(self) -> float:
        """Of a line, page units."""
        return self.page.line_height

    def places(self, label: LabelMatch) -> Iterator[Place]:
        """The places of a label's value, the most usual first."""
        behind = self._until_label(label.cell, label.last)
        if _has_letter_or_digit(behind):
            yield Place(behind, "behind", _TRUST["behind"], label.cell)
        if not _has_letter_or_digit(behind):
            yield from self._beside(label, 1.0)
        elif label.label not in _BARE_LABELS and not _has_digit(behind):
            yield from self._beside(label, _WORDS_BETWEEN)
        yield from self._below(label)

    def until(self, place: Place, kinds: Collection[str]) -> tuple[Word, ...]:
        """The words of a place and those behind it, to the next label of some kinds."""
        first = place.cell.words.index(place.words[0])
        labels = self.labels_of.get(_key(place.cell), ())
        stops = (label.first for label in labels if label.first >= first and label.label in kinds)
        return place.cell.words[first : min(stops, default=first + _LONG_CELL)]

    def _until_label(self, cell: Cell, first: int) -> tuple[Word, ...]:
        """The words of a cell from an index to the next label."""
        stops = (other.first for other in self.labels_of.get(_key(cell), ()) if other.first >= first)
        return cell.words[first : min(stops, default=first + _LONG_CELL)]

    def _beside(self, label: LabelMatch, trust: float) -> Iterator[Place]:
        if any(other.first >= label.last for other in self.labels_of.get(_key(label.cell), ())):
            return
        cells = self.page.rows[label.cell.row].cells
        following = [cell for cell in cells if cell.box.left >= label.cell.box.right]
        while following and not _has_letter_or_digit(following[0].words):
            following = following[1:]
        if not following:
            return
        words = self._until_label(following[0], 0)
        if words:
            gap = following[0].box.left - label.cell.box.right
            far = gap > _FAR * self.page.page.width
            yield Place(words, "beside", trust * _TRUST["beside"] * (_FAR_TRUST if far else 1), following[0])

    def _below(self, label: LabelMatch) -> Iterator[Place]:
        own = bounding_box(self.page.level(word.box) for word in label.words)
        left, right = self._column(label, own.left, own.right)
        margin = _MARGIN * self.height
        steps = 0
        for row in self.page.rows[label.cell.row + 1 : label.cell.row + 1 + 2 * _MOST_BELOW]:
            if row.box.top - own.bottom > _MOST_DROP * self.height or steps == _MOST_BELOW:
                return
            under = [c for c in row.cells if c.box.left < own.right + margin and own.left - margin < c.box.right]
            if not under:
                continue
            cell = min(under, key=lambda c: _misalignment(c.box, own))
            words = tuple(
                word for word in cell.words[:_LONG_CELL] if left <= (word.box.left + word.box.right) / 2 <= right
            )
            taken = {id(word) for other in self.labels_of.get(_key(cell), ()) for word in other.words}
            if any(id(word) in taken for word in words):
                return
            if words:
                yield Place(words, "below", _TRUST["below"] - _EACH_ROW_DOWN * steps, cell)
            steps += 1

    def _column(self, label: LabelMatch, left: float, right: float) -> tuple[float, float]:
        """The horizontal range of a label's column: up to the labels beside it."""
        others = [
            bounding_box(word.box for word in other.words)
            for cell in self.page.rows[label.cell.row].cells
            for other in self.labels_of.get(_key(cell), ())
            if other is not label
        ]
        lower = max(((box.right + left) / 2 for box in others if box.right <= left), default=float("-inf"))
        upper = min((max(right, box.left) for box in others if box.left >= right), default=float("inf"))
        return lower, upper


def _misalignment(box: Box, label: Box) -> float:
    """How far a value is from standing below its label: at its left edge, its middle or its right edge."""
    middle = abs(box.left + box.right - label.left - label.right) / 2
    return min(abs(box.left - label.left), middle, abs(box.right - label.right))


def labelled_page(page: PageRows, items: ItemLines | None) -> LabelledPage:
    """The labels of a page outside the lines of goods."""
    apart = with_labels_apart(page)
    labels: list[LabelMatch] = []
    for cell in apart.cells:
        if items is None or not items.contains(cell.page, cell.middle):
            labels += _compound(list(_labels_in(cell)))
    return LabelledPage(apart, tuple(labels))


def _compound(labels: Sequence[LabelMatch]) -> list[LabelMatch]:
    """Labels of a cell, those of dates with what belongs to them.

    "Día del adeudo en su banco" is one label; so is "Invoice date / Delivery date", whose first date is the first's.
    """
    joined: list[LabelMatch] = []
    for label in labels:
        last = joined[-1] if joined else None
        if last is not None and last.label in _DATE_LABELS and label.label in _BACKGROUND:
            between = label.cell.words[last.last : label.first]
            if between and all(word.text.lower() in _LINKS for word in between):
                joined[-1] = replace(last, last=label.last)
                continue
        if last is not None and _is_second(last, label):
            joined[-1] = replace(last, last=label.last)
            continue
        joined.append(label)
    return joined


def _is_second(first: LabelMatch, second: LabelMatch) -> bool:
    """Whether a label of a date follows another one behind a slash and nothing else."""
    if first.label not in _FIRST_DATES or second.label not in _SECOND_DATES:
        return False
    words = second.cell.words
    between = "".join(word.text for word in words[first.last : second.first])
    slashes = (words[first.last - 1].text[-1], between, words[second.first].text[0])
    return between in ("", "/") and "/" in slashes


def _labels_in(cell: Cell) -> Iterator[LabelMatch]:
    """The labels in a cell. None has a digit: a word with one is a value or a part of it."""
    words = cell.words[:_LONG_CELL]
    for has_digit, group in groupby(range(len(words)), lambda index: any(map(str.isdecimal, words[index].text))):
        if not has_digit:
            indexes = list(group)
            first = indexes[0]
            for match in _find(replace(cell, words=words[first : indexes[-1] + 1])):
                yield LabelMatch(match.label, match.phrase, cell, match.first + first, match.last + first)


def _find(run: Cell) -> list[LabelMatch]:
    """The labels in words without digits; a short word is never a misread one: "Factura A" is not "Factura N"."""
    found = LABELS.find(run)
    for match in found:
        last = tokens_of(match.words[-1].text)[-1:]
        if last and len(last[0]) <= _SHORT and match.last - match.first > 1 and tokens_of(match.phrase)[-1:] != last:
            head = _find(replace(run, words=run.words[: match.last - 1]))
            rest = _find(replace(run, words=run.words[match.last :]))
            shift = match.last
            return head + [replace(m, first=m.first + shift, last=m.last + shift) for m in rest]
    return found


def label_before(page: LabelledPage, label: LabelMatch) -> LabelMatch | None:
    """The label before another one in the same cell."""
    labels: Sequence[LabelMatch] = page.labels_of.get(_key(label.cell), ())
    return next((before for before, after in pairwise(labels) if after is label), None)


def _key(cell: Cell) -> tuple[int, float]:
    return cell.row, cell.box.left


def _has_digit(words: Sequence[Word]) -> bool:
    return any(character.isdecimal() for word in words for character in word.text)


def _has_letter_or_digit(words: Sequence[Word]) -> bool:
    return any(character.isalnum() for word in words for character in word.text)
