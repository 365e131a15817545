"""Cuts speech into pieces that a model hears at once: at pauses, and where there are none, where it is quietest.

Audio comes stretch by stretch. What may go on in the next one is carried over to it, so that no word is cut where a
stretch ends. Pure: positions are samples from the beginning of the audio at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from backend.files.speech_records import SAMPLE_RATE

if TYPE_CHECKING:
    from numpy import float32, int16
    from numpy.typing import NDArray

_FRAME = SAMPLE_RATE // 50  # 20 ms, over which loudness is measured
_SMOOTHED_FRAMES = 5  # a dip of 20 ms may be a plosive within a word; one of 100 ms is between words
_FIRST_RATIO = 1 / 3  # of a piece, before which it is not ended at a pause while there are later ones


class Stretch(NamedTuple):
    """Samples from ``start`` up to ``end``."""

    start: int
    end: int


class AudioPiece(NamedTuple):
    """Samples that are decoded at once, the short pauses in them included."""

    start: int
    end: int
    stretches: tuple[Stretch, ...]  # in which somebody speaks, by start
    pause: int  # samples before somebody speaks again, as far as is known; 0: cut amid speech

    @property
    def ends_in_speech(self) -> bool:
        """No pause was found to end it at."""
        return not self.pause

    @property
    def speech(self) -> int:
        """Samples in which somebody speaks."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class PieceLimits:
    """Lengths in samples."""

    most: int = 30 * SAMPLE_RATE  # of a piece
    most_unbroken: int = 28 * SAMPLE_RATE  # of speech without a pause; then it is cut where it is quietest
    joined_pause: int = SAMPLE_RATE  # up to which a pause stays within a piece: the model hears what stands around it
    context: int = SAMPLE_RATE  # of silent audio that is looked at again, as somebody may begin to speak at its end


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a stretch of audio, and what of it goes on in the next stretch."""

    pieces: tuple[AudioPiece, ...]  # in order, none overlaps another
    keep_from: int  # the samples from here on come before those of the next stretch
    open_speech: tuple[Stretch, ...]  # what is known of them; counted from ``keep_from``


def cut_pieces(
    speech: Sequence[tuple[int, int]],
    samples: NDArray[int16],
    *,
    is_last: bool,
    known: Sequence[Stretch] = (),
    limits: PieceLimits | None = None,
) -> Cut:
    """Cut a stretch of audio. Every sample of speech is in one piece, or kept for the next stretch.

    Args:
        speech: where somebody speaks, by start.
        is_last: nothing follows: nothing is kept.
        known: `Cut.open_speech` of the stretch before, whose kept samples ``samples`` begin with: a detector that
            starts amid speech may find its first word too late.
    """
    limits, length = limits or PieceLimits(), len(samples)
    groups = _groups(_unbroken(_merged([*known, *speech], length), samples, limits), limits)
    open_group: list[Stretch] = []
    if groups and not is_last and groups[-1][-1].end + limits.joined_pause > length:
        open_group = groups.pop()
    following = [*groups, open_group] if open_group else [*groups, [Stretch(length + 1, length + 1)]]
    pieces = tuple(_piece(group, after) for group, after in pairwise(following))
    if open_group:
        keep_from = open_group[0].start
    else:
        last_end = pieces[-1].end if pieces else 0
        keep_from = length if is_last else max(last_end, length - limits.context)
    shifted = tuple(Stretch(start - keep_from, end - keep_from) for start, end in open_group)
    return Cut(pieces, keep_from, shifted)


def quietest(samples: NDArray[int16], start: int, end: int) -> int:
    """The middle of the quietest tenth of a second between two places; of equal ones the last."""
    frame = max(1, min(_FRAME, (end - start) // _SMOOTHED_FRAMES))
    frames = (end - start) // frame
    part = samples[start : start + frames * frame].astype(np.float32)
    energies: NDArray[float32] = np.square(part).reshape(frames, frame).mean(axis=1)
    width = min(_SMOOTHED_FRAMES, frames)
    smooth = np.convolve(energies, np.ones(width, np.float32), mode="valid")
    index = len(smooth) - 1 - int(np.argmin(smooth[::-1]))
    return start + index * frame + width * frame // 2


def _merged(stretches: Sequence[tuple[int, int]], length: int) -> list[Stretch]:
    """Their union within the audio, by start."""
    merged: list[Stretch] = []
    for start, end in sorted((max(0, start), min(end, length)) for start, end in stretches):
        if merged and start <= merged[-1].end:
            merged[-1] = Stretch(merged[-1].start, max(merged[-1].end, end))
        elif start < end:
            merged.append(Stretch(start, end))
    return merged


def _unbroken(speech: Sequence[Stretch], samples: NDArray[int16], limits: PieceLimits) -> list[Stretch]:
    """The same speech, its stretches cut where they are too long."""
    parts: list[Stretch] = []
    for start, end in speech:
        first = start
        while end - first > limits.most_unbroken:
            at = quietest(samples, first + limits.most_unbroken // 2, first + limits.most_unbroken)
            parts.append(Stretch(first, at))
            first = at
        parts.append(Stretch(first, end))
    return parts


def _groups(speech: Sequence[Stretch], limits: PieceLimits) -> list[list[Stretch]]:
    """Stretches that share a piece. A group that would be too long ends at its longest pause."""
    groups: list[list[Stretch]] = []
    for stretch in speech:
        if not groups or stretch.start - groups[-1][-1].end > limits.joined_pause:
            groups.append([stretch])
            continue
        groups[-1].append(stretch)
        while groups[-1][-1].end - groups[-1][0].start > limits.most:
            at = _longest_pause(groups[-1], limits)
            groups[-1:] = [groups[-1][:at], groups[-1][at:]]
    return groups


def _longest_pause(group: Sequence[Stretch], limits: PieceLimits) -> int:
    """Before which stretch the longest pause is; near the beginning only for want of others. Ties: the last."""
    first = group[0].start
    pauses = [(later.start - earlier.end, index) for index, (earlier, later) in enumerate(pairwise(group), 1)]
    late = [pause for pause in pauses if group[pause[1] - 1].end - first >= limits.most * _FIRST_RATIO]
    return max(late or pauses)[1]


def _piece(group: Sequence[Stretch], after: Sequence[Stretch]) -> AudioPiece:
    end = group[-1].end
    return AudioPiece(group[0].start, end, tuple(group), after[0].start - end)
