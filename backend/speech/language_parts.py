"""Cuts a piece where the language changes: at the longest pause that is near, or else where it is quietest.

Pure: positions are samples from the piece's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from backend.files.spoken_language import SAMPLE_RATE
from backend.speech.engine_records import LanguageRun
from backend.speech.pieces import Stretch, quietest

if TYPE_CHECKING:
    from numpy import int16
    from numpy.typing import NDArray

_AROUND = round(1.5 * SAMPLE_RATE)  # how far from where the model says that it changes
_LEAST = SAMPLE_RATE  # of speech in a part: in less the model makes words of anything


class LanguagePart(NamedTuple):
    """Samples of a piece that are said in one language."""

    code: str
    start: int
    end: int
    stretches: tuple[Stretch, ...]  # in which somebody speaks, counted from ``start``

    @property
    def speech(self) -> int:
        """Samples in which somebody speaks."""
        return sum(end - start for start, end in self.stretches)

    def with_next(self, part: LanguagePart, code: str) -> LanguagePart:
        """Both as one."""
        shift = part.start - self.start
        shifted = [Stretch(start + shift, end + shift) for start, end in part.stretches]
        joined = list(self.stretches)
        if joined and shifted and joined[-1].end == shifted[0].start:
            shifted[0] = Stretch(joined.pop().start, shifted[0].end)
        return LanguagePart(code, self.start, part.end, (*joined, *shifted))


def cut_by_language(
    runs: Sequence[LanguageRun], samples: NDArray[int16], stretches: Sequence[Stretch]
) -> Iterator[LanguagePart]:
    """The parts of a piece, which together are all of it.

    Args:
        runs: of the whole piece, in order, at least two.
        stretches: in which somebody speaks.
    """
    borders = [0]
    for before, after in pairwise(runs):
        least = max(borders[-1] + 1, round(before.end_s * SAMPLE_RATE) - _AROUND)
        most = min(len(samples), round(min(after.start_s * SAMPLE_RATE + _AROUND, after.end_s * SAMPLE_RATE)))
        borders.append(_border(least, max(least + 1, most), samples, stretches))
    borders.append(len(samples))
    yield from _joined(_parts(runs, borders, stretches))


def _parts(runs: Sequence[LanguageRun], borders: Sequence[int], stretches: Sequence[Stretch]) -> Iterator[LanguagePart]:
    for run, (start, end) in zip(runs, pairwise(borders), strict=True):
        within = tuple(
            Stretch(max(first, start) - start, min(last, end) - start)
            for first, last in stretches
            if min(last, end) > max(first, start)
        )
        yield LanguagePart(run.code, start, end, within)


def _joined(parts: Iterator[LanguagePart]) -> Iterator[LanguagePart]:
    """Parts in each of which enough is said to be heard; one with less goes with the one before, or after, it."""
    waiting: LanguagePart | None = None
    for part in parts:
        if waiting is None:
            waiting = part
        elif part.speech < _LEAST:
            waiting = waiting.with_next(part, waiting.code)
        elif waiting.speech < _LEAST:
            waiting = waiting.with_next(part, part.code)
        else:
            yield waiting
            waiting = part
    if waiting is not None:
        yield waiting


def _border(least: int, most: int, samples: NDArray[int16], stretches: Sequence[Stretch]) -> int:
    """The middle of the longest pause between two places, else the quietest place."""
    pauses = [
        (min(later.start, most) - max(earlier.end, least), max(earlier.end, least), min(later.start, most))
        for earlier, later in pairwise(stretches)
    ]
    length, start, end = max(pauses, default=(0, 0, 0))
    return (start + end) // 2 if length > 0 else quietest(samples, least, most)
