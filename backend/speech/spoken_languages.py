"""Whether a piece is in one language: Whisper is asked for that of short windows of what its encoder made of the piece.

A window costs one step of the decoder. Of 127 windows of 4 s from recordings in one language none was taken for another
with a score of 0.7, and 2 of 70 windows from recordings in two languages had the wrong one of the two first (Whisper
base); of 2 s it would be one in thirty, and one in seven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.speech.engine_records import LanguageRun
from backend.speech.whisper import LoadedWhisper

_ROWS_A_SECOND = 50  # of the encoder's output
_LEAST_S = 4.0  # a shorter piece is in one language
_WINDOW_S = 4.0  # in which a language is told well
_FINER_S, _STEP_S = 3.0, 1.0  # windows that overlap, which tell where a language changes
_SURE = 0.7  # score of a window from which its language counts
_SUSPECT = 0.5  # score of the piece's own language in a window, below which windows that overlap are looked at
_DENIED, _LEAST_DENIED = 0.1, 5  # so many windows that give the piece's own language less say another, if unsurely
_LEAST_SCORE = 0.01  # a score below says no more than this
_SWITCH = 4.0  # what a change of language must gain, in nats: about one second of clear speech

Scores = Mapping[str, float]


def language_runs(whisper: LoadedWhisper, encoded: NDArray[Any], seconds: float, own: str) -> tuple[LanguageRun, ...]:
    """Where which language is spoken in a piece; empty where it is one.

    Shapes: encoded (rows of 0.02 s, width).

    Args:
        own: the language of the piece as a whole.
    """
    if seconds < _LEAST_S:
        return ()
    count = max(1, round(seconds / _WINDOW_S))
    coarse = _scores(whisper, encoded, [index * seconds / count for index in range(count)], seconds / count)
    if all(scores.get(own, 0.0) >= _SUSPECT for scores in coarse):
        return ()
    length_s = min(_FINER_S, seconds)
    starts_s = [_STEP_S * index for index in range(1 + int((seconds - length_s) / _STEP_S))]
    finer = _scores(whisper, encoded, starts_s, length_s)
    codes = _sure_of([*coarse, *finer], own)
    if len(codes) == 1:
        return ()
    evidence = np.zeros((math.ceil(seconds / _STEP_S), len(codes)))
    for start_s, scores in zip(starts_s, finer, strict=True):
        first = int(start_s / _STEP_S)
        evidence[first : first + round(length_s / _STEP_S)] += [_log(scores, code) for code in codes]
    path = _best_path(evidence * _STEP_S / _FINER_S)  # at the ends fewer windows speak, and say less
    return _runs([codes[index] for index in path], finer, seconds)


def _scores(whisper: LoadedWhisper, encoded: NDArray[Any], starts_s: Sequence[float], length_s: float) -> list[Scores]:
    """The scores of all languages in windows of one length."""
    import ctranslate2  # loaded with the model

    rows = min(len(encoded), int(length_s * _ROWS_A_SECOND))
    firsts = [min(round(start_s * _ROWS_A_SECOND), len(encoded) - rows) for start_s in starts_s]
    windows = np.ascontiguousarray(np.stack([encoded[first : first + rows] for first in firsts]))
    found = whisper.model.detect_language(ctranslate2.StorageView.from_array(windows))
    return [{token[2:-2]: float(score) for token, score in scores} for scores in found]


def _sure_of(windows: Sequence[Scores], own: str) -> list[str]:
    """The languages that may be spoken: the piece's own, those that a window is sure of, and what others rather are."""
    codes = [own]
    for scores in windows:
        code = max(scores, key=scores.__getitem__)
        if scores[code] >= _SURE and code not in codes:
            codes.append(code)
    denied = [scores for scores in windows if scores.get(own, 0.0) < _DENIED]
    if len(denied) >= _LEAST_DENIED:
        others = sorted({code for scores in denied for code in scores} - {own})
        code = max(others, key=lambda other: sum(scores.get(other, 0.0) for scores in denied))
        codes += [] if code in codes else [code]
    return codes


def _log(scores: Scores, code: str) -> float:
    return math.log(max(_LEAST_SCORE, scores.get(code, 0.0)))


def _best_path(evidence: NDArray[np.float64]) -> list[int]:
    """The column of each row, such that their sum less the cost of changes is the highest (Viterbi)."""
    best, came_from = evidence[0], []
    for row in evidence[1:]:
        other = int(np.argmax(best))
        stays = best >= best[other] - _SWITCH
        came_from.append(np.where(stays, np.arange(len(best)), other))
        best = np.where(stays, best, best[other] - _SWITCH) + row
    path = [int(np.argmax(best))]
    for columns in reversed(came_from):
        path.append(int(columns[path[-1]]))
    return path[::-1]


def _runs(codes: Sequence[str], windows: Sequence[Scores], seconds: float) -> tuple[LanguageRun, ...]:
    """The runs of equal codes, one a step.

    Args:
        windows: that begin a step after another; the last steps have none of their own.
    """
    runs, at = [], 0
    for code, steps in groupby(codes):
        end = at + len(list(steps))
        own = windows[min(at, len(windows) - 1) : end]
        score = sum(scores.get(code, 0.0) for scores in own) / len(own)
        runs.append(LanguageRun(code, at * _STEP_S, min(seconds, end * _STEP_S), round(score, 4)))
        at = end
    return tuple(runs) if len(runs) > 1 else ()
