"""Who speaks: an operator's ONNX model makes a vector of a voice, and segments with like vectors are one speaker's.

The model takes audio (batch, samples) in -1 to 1 at 16 kHz, or 80 log-mel features (batch, frames, 80) as WeSpeaker's
and 3D-Speaker's do, and gives a vector a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import ModelUnavailable
from backend.files.speech_records import SAMPLE_RATE
from backend.speech.pieces import SamplesEngine
from backend.speech.records import activity_cost

TASK = "speaker_voices"  # the engine's name, and a label of its metrics
_LONGEST_S, _MIN_S = 10.0, 0.25  # of a segment that is listened to, from its middle; in less no voice is told
_FEATURES, _WINDOW, _HOP, _FFT = 80, 400, 160, 512
_LOWEST_HZ = 20.0
_COST = 30  # times what looking for speech in the same audio costs
# Cosine from which a segment is a speaker's, and two speakers are one: what recipes of WeSpeaker and 3D-Speaker take.
_SAME = 0.5
_SETTLING_S = 1.0  # of speech in a segment that may be the first of a new speaker
MAX_SPEAKERS = 20

Voice = NDArray[np.float32]  # (width) of unit length


class SpeakerNetwork:
    """The model of a file. Any number of threads may run it at once.

    Raises: ModelUnavailable for a file that is absent, or no such model.
    """

    def __init__(self, file: Path) -> None:
        import onnxruntime  # 60 MB that a service without it does not need

        try:
            content = file.read_bytes()
        except OSError as error:
            raise ModelUnavailable(f"SPEAKER_MODEL: {file} cannot be read: {error.strerror}") from error
        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = options.intra_op_num_threads = 1  # a lane is one thread
        options.log_severity_level = 4
        try:
            self._session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own have no common class
            raise ModelUnavailable(f"SPEAKER_MODEL: ONNX Runtime refuses {file}: {error}") from error
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._input, *others = self._session.get_inputs()
        self._takes_features = len(self._input.shape) == len(("batch", "frames", "features"))
        width = self._input.shape[-1] if self._takes_features else _FEATURES
        if others or len(self._input.shape) not in {2, 3} or (isinstance(width, int) and width != _FEATURES):
            raise ModelUnavailable(
                f"SPEAKER_MODEL: {file} takes {[each.shape for each in (self._input, *others)]}; it must take audio "
                f"(batch, samples) or features (batch, frames, {_FEATURES}), and nothing else"
            )
        try:
            short, long = (self.voice(np.arange(seconds * SAMPLE_RATE, dtype=np.int16)) for seconds in (1, 2))
        except Exception as error:  # as above
            raise ModelUnavailable(f"SPEAKER_MODEL: {file} does not run: {error}") from error
        if short.shape != long.shape:
            raise ModelUnavailable(
                f"SPEAKER_MODEL: the vectors of {file} grow with the audio; it is no model of voices"
            )

    def voice(self, samples: NDArray[np.int16]) -> Voice:
        """The vector of what is said. Shapes: (samples) -> (width)."""
        features = fbank(samples) if self._takes_features else samples.astype(np.float32) / 32768.0
        vector = np.asarray(self._session.run(None, {self._input.name: features[None]})[0], np.float32).reshape(-1)
        length = float(np.linalg.norm(vector))
        return vector / length if np.isfinite(length) and length > 0 else np.zeros_like(vector)


def fbank(samples: NDArray[np.int16]) -> NDArray[np.float32]:
    """Kaldi's log-mel features without dither, less their mean over time. Shapes: (samples) -> (frames, 80).

    Source: kaldi, feat/feature-fbank.cc; 25 ms every 10 ms, Hamming windows, as WeSpeaker computes them.
    """
    audio = np.pad(samples.astype(np.float32), (0, max(0, _WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(audio, _WINDOW)[::_HOP]
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    power = np.abs(np.fft.rfft((frames - 0.97 * before) * np.hamming(_WINDOW), _FFT)) ** 2
    features = np.log(np.maximum(power[:, : _FFT // 2] @ _mel_banks(), np.finfo(np.float32).eps))
    centred: NDArray[np.float32] = (features - features.mean(axis=0)).astype(np.float32)
    return centred


@cache
def _mel_banks() -> NDArray[np.float64]:
    """Kaldi's triangles, even on the mel scale. Shapes: (256, 80)."""

    def mel(hz: NDArray[np.float64] | float) -> Any:
        return 1127.0 * np.log(1.0 + np.asarray(hz) / 700.0)

    edges = np.linspace(mel(_LOWEST_HZ), mel(SAMPLE_RATE / 2), _FEATURES + 2)
    bins = mel(np.arange(_FFT // 2) * SAMPLE_RATE / _FFT)[:, None]
    rising, falling = (bins - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - bins) / np.diff(edges)[1:]
    banks: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    return banks


@dataclass(frozen=True, slots=True)
class VoiceEngine(SamplesEngine[Voice]):
    """Payload: int16 samples (n) of a segment, 16 kHz; result: its `Voice`."""

    network: SpeakerNetwork
    name = TASK

    def hear(self, samples: NDArray[np.int16]) -> Voice:
        return self.network.voice(samples)


def listened(samples: NDArray[np.int16], start_s: float, end_s: float) -> NDArray[np.int16] | None:
    """The middle of a segment of a piece; None where it is too short for a voice."""
    first, last = round(start_s * SAMPLE_RATE), round(end_s * SAMPLE_RATE)
    spare = max(0, last - first - round(_LONGEST_S * SAMPLE_RATE)) // 2
    part = samples[max(0, first + spare) : max(0, last - spare)]
    return part.copy() if len(part) >= _MIN_S * SAMPLE_RATE else None


def voice_cost(samples: NDArray[np.int16]) -> int:
    """What it counts in the queue, in the unit of `SpeechPiece.cost`."""
    return _COST * activity_cost(len(samples))


def tell_apart(voices: Sequence[Voice | None], seconds: Sequence[float]) -> list[int]:
    """The speaker of each segment in order, numbered as they first speak.

    A segment joins the speaker whose mean voice it is most like, or is the first of a new one; speakers who turn out
    alike are one. A segment without a voice of its own is taken for the one before. In time linear in the segments.

    Args:
        seconds: that each segment lasts.
    """
    sums: list[Voice] = []
    order = sorted(range(len(voices)), key=lambda index: seconds[index] < _SETTLING_S)  # long ones first, in order
    for index in order:
        voice = voices[index]
        if voice is None or not voice.any():
            continue
        scores = [float(voice @ each) / max(1e-9, float(np.linalg.norm(each))) for each in sums]
        best = int(np.argmax(scores)) if scores else -1
        may_begin = not sums or (seconds[index] >= _SETTLING_S and len(sums) < MAX_SPEAKERS)
        if (best < 0 or scores[best] < _SAME) and may_begin:
            sums.append(voice * seconds[index])
        else:
            sums[best] = sums[best] + voice * seconds[index]
    return _numbered(voices, _merged(sums))


def _merged(sums: list[Voice]) -> list[Voice]:
    """Mean voices of unit length, no two of them alike."""
    while True:
        means = [each / max(1e-9, float(np.linalg.norm(each))) for each in sums]
        pairs = [(float(means[i] @ means[j]), i, j) for i in range(len(sums)) for j in range(i)]
        likeness, later, earlier = max(pairs, default=(0.0, 0, 0))
        if likeness < _SAME:
            return means
        sums[earlier] = sums[earlier] + sums.pop(later)


def _numbered(voices: Sequence[Voice | None], means: Sequence[Voice]) -> list[int]:
    numbers: dict[int, int] = {}
    speakers: list[int] = []
    for voice in voices:
        if voice is None or not voice.any() or not means:
            speakers.append(speakers[-1] if speakers else 0)
            continue
        nearest = int(np.argmax([float(voice @ mean) for mean in means]))
        speakers.append(numbers.setdefault(nearest, len(numbers)))
    return speakers
