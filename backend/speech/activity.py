"""The engine that finds where somebody speaks: Silero's network, and a threshold with hysteresis."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.files.speech_records import SAMPLE_RATE
from backend.lanes.engine import BatchLimits, UnlimitedBatches
from backend.speech.records import SpeechSpan, activity_cost

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


class SpeechDetector(Protocol):
    """Tells how likely somebody speaks in each window of 512 samples."""

    def probabilities(self, samples: NDArray[np.int16]) -> NDArray[np.float32]: ...


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

    network: SpeechDetector
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
