"""How speech is cut into pieces: at pauses, never losing a sample, whatever stretches the audio comes in."""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.files.speech_records import SAMPLE_RATE as RATE
from backend.speech.pieces import AudioPiece, PieceLimits, Stretch, cut_pieces, quietest

LIMITS = PieceLimits(most=30, most_unbroken=28, joined_pause=3, context=3)  # samples, to keep the cases readable


def sound(length: int) -> NDArray[np.int16]:
    return np.full(length, 1000, np.int16)


def ends(pieces: tuple[AudioPiece, ...]) -> list[tuple[int, int]]:
    return [(piece.start, piece.end) for piece in pieces]


@pytest.mark.parametrize(
    ("speech", "expected"),
    [
        pytest.param([], [], id="nobody-speaks"),
        pytest.param([(5, 10)], [(5, 10)], id="one-phrase"),
        pytest.param([(5, 10), (12, 20)], [(5, 20)], id="a-short-pause-stays-within"),
        pytest.param([(5, 10), (14, 20)], [(5, 10), (14, 20)], id="a-long-pause-separates"),
        pytest.param([(0, 10), (13, 20), (21, 29), (31, 35)], [(0, 10), (13, 35)], id="full-ends-at-the-longest-pause"),
        pytest.param([(0, 2), (5, 20), (21, 33)], [(0, 20), (21, 33)], id="not-at-one-near-the-beginning"),
        pytest.param([(0, 20), (18, 25)], [(0, 25)], id="overlapping-stretches-are-one"),
        pytest.param([(-4, 5), (95, 130)], [(0, 5), (95, 100)], id="beyond-the-audio"),
    ],
)
def test_pieces_end_at_pauses(speech: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """A piece holds what short pauses join, up to its length; then it ends at the longest of its later pauses."""
    cut = cut_pieces(speech, sound(100), is_last=True, limits=LIMITS)

    assert expected == ends(cut.pieces)
    assert (100, ()) == (cut.keep_from, cut.open_speech)


def test_speech_without_a_pause_is_cut_where_it_is_quietest() -> None:
    """Half a minute of uninterrupted speech cannot be decoded at once: it is cut between two words."""
    samples = np.random.default_rng(0).normal(0, 3000, 40 * RATE).astype(np.int16)
    samples[20 * RATE : 20 * RATE + RATE // 5] //= 100

    cut = cut_pieces([(0, 40 * RATE)], samples, is_last=True)
    first, second = cut.pieces

    assert 20 * RATE < first.end < 20 * RATE + RATE // 5
    assert (first.end, 40 * RATE) == (second.start, second.end)
    assert [True, False] == [piece.ends_in_speech for piece in cut.pieces]


@pytest.mark.parametrize("length", [1, 100, 320, 1599, 1600, 5000])
def test_the_quietest_place_lies_within(length: int) -> None:
    """Also where less is looked at than one measurement takes."""
    assert 500 <= quietest(sound(10_000), 500, 500 + length) <= 500 + max(length, RATE // 50)


def test_silence_keeps_only_its_end() -> None:
    """An hour of silence is never kept: only its last second, in which a word may begin."""
    cut = cut_pieces([], sound(100), is_last=False, limits=LIMITS)

    assert ((), 97) == (cut.pieces, cut.keep_from)


def test_speech_at_the_end_goes_on_in_the_next_stretch() -> None:
    """What may not have ended is kept whole, with what is known of it."""
    cut = cut_pieces([(5, 50), (90, 94), (96, 99)], sound(100), is_last=False, limits=PieceLimits(60, 50, 3, 3))

    assert [(5, 50)] == ends(cut.pieces)
    assert (90, (Stretch(0, 4), Stretch(6, 9))) == (cut.keep_from, cut.open_speech)


def decoded(spoken: NDArray[np.bool_], start: int, end: int, clipped: int) -> list[tuple[int, int]]:
    """Where somebody speaks between two samples, as a detector that misses the first ``clipped`` ones of its audio."""
    part = spoken[start:end].copy()
    part[:clipped] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[False], part, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


@pytest.mark.parametrize("seed", range(300))
def test_every_sample_of_speech_is_in_one_piece(seed: int) -> None:
    """Whatever is spoken and however the audio is cut into stretches: once each, in order, none too long."""
    chance = random.Random(seed)
    spoken = np.zeros(chance.randint(1, 600), np.bool_)
    at = chance.randint(0, 10)
    while at < len(spoken):
        end = at + chance.choice([1, 3, 8, 20, 45, 90])
        spoken[at:end] = True
        at = end + chance.choice([1, 2, 3, 4, 7, 30])
    samples = np.random.default_rng(seed).integers(-99, 99, len(spoken)).astype(np.int16)
    pieces: list[AudioPiece] = []
    kept, known, done = 0, tuple[Stretch, ...](), 0
    while done < len(spoken):
        begins = done
        done = min(len(spoken), done + chance.choice([5, 30, 60, 61]))
        clipped = 2 if known and begins else 0
        cut = cut_pieces(
            decoded(spoken, kept, done, clipped),
            samples[kept:done],
            is_last=done == len(spoken),
            known=known,
            limits=LIMITS,
        )
        pieces += [AudioPiece(kept + piece.start, kept + piece.end, *piece[2:]) for piece in cut.pieces]
        assert done - (kept + cut.keep_from) <= max(LIMITS.most + LIMITS.joined_pause, LIMITS.context)
        kept, known = kept + cut.keep_from, cut.open_speech
    covered = np.zeros(len(spoken), np.int8)
    for piece in pieces:
        covered[piece.start : piece.end] += 1

    assert bool((covered[spoken] == 1).all())
    assert covered.max(initial=0) <= 1
    assert sorted(pieces) == pieces
    assert all(piece.end - piece.start <= LIMITS.most for piece in pieces)
    assert all(piece.speech <= piece.end - piece.start for piece in pieces)
