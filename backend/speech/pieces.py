"""Finds speech and cuts it into pieces that a model hears at once: at pauses, else where it is quietest.

Silero's network, and a threshold with hysteresis, tell where somebody speaks. Audio comes stretch by stretch; what may
go on in the next one is carried over to it, so that no word is cut where a stretch ends. Positions are samples from the
beginning of the audio at hand.
"""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from backend.errors import ModelUnavailable
from backend.files.speech_records import SAMPLE_RATE
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.speech.records import SpeechSpan, activity_cost

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


WINDOW = 512  # samples, 0.032 s: each gets one probability
_CONTEXT = 64  # samples before a window that it is decoded with
_STATE = 128  # numbers of each of the two states of the network
_WINDOWS_AT_ONCE = 2048  # 65 s; the state goes on to the next run
_PACKAGE, _FILE = "faster_whisper", "assets/silero_vad_v6.onnx"


def silero_file() -> Path:
    """The network's file; nothing of the package that holds it is imported.

    Raises: ModelUnavailable when it is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (file := Path(folder) / _FILE).is_file():
            return file
    raise ModelUnavailable(
        f"the detector of speech ({_FILE} of faster-whisper) is not installed; pip install 'financia-inference[speech]'"
    )


class SileroNetwork:
    """The network, read at the first use. Any number of threads may run it at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        self._session: Any = None
        self._lock = threading.Lock()

    def probabilities(self, samples: NDArray[np.int16]) -> NDArray[np.float32]:
        """How likely somebody speaks in each window. Shapes: (n) -> (ceil(n / WINDOW)). 1.6 ms a second of audio."""
        count = -(-len(samples) // WINDOW)
        if not count:
            return np.zeros(0, np.float32)
        session = self._opened()
        audio = np.zeros(_CONTEXT + count * WINDOW, np.float32)
        audio[_CONTEXT : _CONTEXT + len(samples)] = samples
        audio /= 32768.0
        windows = np.lib.stride_tricks.sliding_window_view(audio, _CONTEXT + WINDOW)[::WINDOW]
        h = c = np.zeros((1, 1, _STATE), np.float32)
        parts = []
        for first in range(0, count, _WINDOWS_AT_ONCE):
            batch = np.ascontiguousarray(windows[first : first + _WINDOWS_AT_ONCE])
            output, h, c = session.run(None, {"input": batch, "h": h, "c": c})
            parts.append(output.reshape(-1))
        return np.concatenate(parts)

    def release(self) -> None:
        """Forget the network until its next use; a run that goes on keeps it to its end."""
        self._session = None

    def _opened(self) -> Any:
        session = self._session
        if session is not None:
            return session
        with self._lock:
            if self._session is None:
                self._session = _open(self._file)
            return self._session


def _open(file: Path) -> Any:
    import onnxruntime  # 60 MB that a service without speech or ONNX does not need

    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # a lane is one thread
    options.enable_cpu_mem_arena = False  # it would keep the most that a run ever took
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except RuntimeError as error:  # onnxruntime's own
        raise ModelUnavailable(f"ONNX Runtime refuses {file.name}: {error}") from error


TASK = "speech_activity"  # the engine's name, and a label of its metrics
Result = TypeVar("Result")
_BUDGET = activity_cost(60 * SAMPLE_RATE)  # of a batch: a slice of a minute, or several short files


@dataclass(frozen=True, slots=True)
class ActivityRules:
    """What counts as speech. Of 100 recordings every stretch has a window over 0.75; a frog has 0.62 at best."""

    begins: float = 0.5  # a probability from which somebody speaks
    ends: float = 0.35  # below it nobody does any more
    sure: float = 0.7  # that one window of a stretch must have
    silence_s: float = 0.5  # two stretches with less between them are one
    least_s: float = 0.1  # a shorter stretch is a click
    pad_s: float = 0.2  # kept on both sides: quiet beginnings and endings


class SamplesEngine(Generic[Result]):
    """Runs one network on int16 samples (n), 16 kHz: each payload by itself, on the CPU."""

    __slots__ = ()
    budget = _BUDGET
    batch_limits: BatchLimits = UnlimitedBatches()
    padding_cost = 0.0
    launch_cost = 0

    def hear(self, samples: NDArray[np.int16]) -> Result:
        """The result of one payload."""
        raise NotImplementedError

    def on(self, device_index: int) -> Self:  # noqa: ARG002 - always on the CPU
        return self

    def prepare(self, payloads: Sequence[NDArray[np.int16]]) -> Sequence[NDArray[np.int16]]:
        return payloads

    def forward(self, prepared: Sequence[NDArray[np.int16]]) -> list[Result]:
        return [self.hear(samples) for samples in prepared]

    def finish(self, output: list[Result]) -> Sequence[Result]:
        return output


@dataclass(frozen=True, slots=True)
class SpeechActivityEngine(SamplesEngine["tuple[SpeechSpan, ...]"]):
    """Payload: int16 samples (n), 16 kHz; result: tuple of `SpeechSpan`, in order, none overlapping."""

    network: SileroNetwork
    rules: ActivityRules = ActivityRules()
    name = TASK

    def hear(self, samples: NDArray[np.int16]) -> tuple[SpeechSpan, ...]:
        return speech_spans(self.network.probabilities(samples), len(samples), self.rules)


def speech_spans(probabilities: NDArray[np.float32], samples: int, rules: ActivityRules) -> tuple[SpeechSpan, ...]:
    """Where somebody speaks, from the probability of each window.

    Args:
        samples: of the audio; the last window may be partly beyond its end.
    """
    return _padded(_stretches(probabilities, rules), samples, round(rules.pad_s * SAMPLE_RATE))


def _stretches(probabilities: NDArray[np.float32], rules: ActivityRules) -> list[tuple[int, int]]:
    """Runs of windows with speech: from one that is likely to the last before a silence that is long enough."""
    least_silence, least = _windows(rules.silence_s), _windows(rules.least_s)
    found: list[tuple[int, int]] = []
    begin, last = -1, -1  # of the stretch that goes on; last window that was not silent
    for index, probability in enumerate(probabilities):
        if probability >= rules.begins and begin < 0:
            begin = index
        if begin >= 0 and probability >= rules.ends:
            last = index
        if begin >= 0 and index - last >= least_silence:
            found.append((begin, last + 1))
            begin = -1
    if begin >= 0:
        found.append((begin, last + 1))
    return [
        (start, stop)
        for start, stop in found
        if stop - start >= least and probabilities[start:stop].max() >= rules.sure
    ]


def _padded(parts: Sequence[tuple[int, int]], samples: int, pad: int) -> tuple[SpeechSpan, ...]:
    """Windows as samples, with a margin on both sides; a gap that is shorter than both margins is halved."""
    spans: list[SpeechSpan] = []
    for index, (start, stop) in enumerate(parts):
        before = parts[index - 1][1] * WINDOW if index else 0
        after = parts[index + 1][0] * WINDOW if index + 1 < len(parts) else samples
        first, last = start * WINDOW, min(samples, stop * WINDOW)
        room_before = first - before if not index else (first - before) // 2
        room_after = after - last if index + 1 == len(parts) else -(-(after - last) // 2)
        spans.append(SpeechSpan(first - min(pad, room_before), last + min(pad, max(0, room_after))))
    return tuple(spans)


def _windows(seconds: float) -> int:
    return max(1, round(seconds * SAMPLE_RATE / WINDOW))
