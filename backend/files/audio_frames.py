"""Turns decoded frames of any rate, format and number of channels into 16 kHz mono. Runs in the workers only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from av.audio.frame import AudioFrame
from av.audio.plane import AudioPlane
from av.audio.resampler import AudioResampler
from numpy.typing import NDArray

from backend.errors import TooLarge, UnreadableFile
from backend.files.channel_mix import mixed
from backend.files.limits import FileLimits
from backend.files.spoken_language import SAMPLE_RATE

RATES = (4_000, 400_000)  # Hz; a file that claims 1 Hz would be 16,000 times as large resampled
_MIXED_S = 0.5  # of sound at once: the channels are weighed over it
_DTYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "flt": "f4", "dbl": "f8"}
_SAMPLES_PER_S = 2 * 48_000  # of all channels together, for each second of LIMIT_AUDIO_S: stereo at 48 kHz
# Samples of all channels for each byte of the file, beyond those of ten minutes. Speech has up to 130 (Opus at
# 6 kbit/s), silence in the usual blocks up to 800, an hour of it in eight channels in FLAC's largest blocks 15,000.
_SAMPLES_PER_BYTE, _FREE_SAMPLES = 1000, 600 * _SAMPLES_PER_S
_Form = tuple[int, str, int]  # rate, format, channels


def check_form(rate: int, channels: int, limits: FileLimits) -> None:
    """Raises: UnreadableFile for a rate that no recording has; TooLarge over LIMIT_AUDIO_CHANNELS."""
    if not RATES[0] <= rate <= RATES[1]:
        raise UnreadableFile(
            f"file: its sound has {rate} samples a second; {RATES[0]} to {RATES[1]} are read. Convert it to 16000"
        )
    if channels < 1:
        raise UnreadableFile("file: its sound has 0 channels; it is damaged")
    if channels > limits.audio_channels:
        raise TooLarge("file: channels", channels, limits.audio_channels, "LIMIT_AUDIO_CHANNELS", param="file")


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """How much sound a file may hold."""

    limits: FileLimits
    file_bytes: int

    def check_seconds(self, seconds: float) -> None:
        """Raises: TooLarge."""
        if seconds > self.limits.audio_s:
            raise TooLarge("file: seconds of audio, at least", math.ceil(seconds), self.limits.audio_s, "LIMIT_AUDIO_S")

    def check_samples(self, samples: int, rate: int, channels: int) -> None:
        """Raises: TooLarge. ``samples``: of all channels together."""
        what = f"file: samples of its {channels} channels at {rate} Hz, at least"
        most = round(self.limits.audio_s * _SAMPLES_PER_S)
        if samples > most:
            raise TooLarge(what, samples, most, "LIMIT_AUDIO_S")
        if samples > (packed := self.most_packed):
            raise TooLarge(
                what,
                samples,
                packed,
                f"{_SAMPLES_PER_BYTE} for each of its {self.file_bytes} bytes",
                advice="It is silence for the most part; send it in parts, with fewer channels, or in another format",
            )

    @property
    def most_packed(self) -> int:
        """Samples of all channels that a file of this size may unpack to."""
        return _FREE_SAMPLES + _SAMPLES_PER_BYTE * self.file_bytes


class MonoSound:
    """Takes frames in order, gives samples of int16 at 16 kHz, and counts. For one thread.

    What comes out does not depend on how the frames are handed in.
    """

    def __init__(self, limits: SampleLimits) -> None:
        self._limits = limits
        self._seconds_before = 0.0  # taken in other forms
        self._form_samples = 0  # taken in this form
        self._samples = 0  # of all channels
        self._form: _Form | None = None
        self._waiting: list[NDArray[Any]] = []  # (samples, channels) as they are stored, not mixed yet
        self._waiting_samples = 0
        self._resampler: AudioResampler | None = None

    @property
    def seconds(self) -> float:
        """Taken so far."""
        return self._seconds_before + (self._form_samples / self._form[0] if self._form else 0.0)

    def add(self, frame: AudioFrame) -> Iterator[NDArray[np.int16]]:
        """The samples that a frame completes. Raises: UnreadableFile, TooLarge."""
        form = (frame.sample_rate, frame.format.packed.name, frame.layout.nb_channels)
        check_form(form[0], form[2], self._limits.limits)
        if form != self._form:  # the first, or a stream of several recordings, joined
            yield from self.finish()
            self._seconds_before, self._form_samples, self._form = self.seconds, 0, form
        self._count(frame.samples, form)
        self._waiting.append(_stored(frame))
        self._waiting_samples += frame.samples
        if self._waiting_samples >= _MIXED_S * form[0]:
            yield from self._mix()

    def finish(self) -> Iterator[NDArray[np.int16]]:
        """What is left when no frame follows."""
        if self._waiting:
            yield from self._mix()
        if self._resampler is not None:
            for frame in self._resampler.resample(None):
                yield _samples(frame)
        self._resampler = None

    def _count(self, samples: int, form: _Form) -> None:
        rate, _, channels = form
        self._form_samples += samples
        self._samples += samples * channels
        self._limits.check_seconds(self.seconds)
        self._limits.check_samples(self._samples, rate, channels)

    def _mix(self) -> Iterator[NDArray[np.int16]]:
        assert self._form is not None
        rate, *_ = self._form
        channels = _as_float(np.concatenate(self._waiting))
        self._waiting, self._waiting_samples = [], 0
        mono = np.ascontiguousarray(mixed(channels))[np.newaxis]
        frame = AudioFrame.from_ndarray(mono, format="flt", layout="mono")
        frame.sample_rate = rate
        if self._resampler is None:
            self._resampler = AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE)
        for resampled in self._resampler.resample(frame):
            yield _samples(resampled)


def _stored(frame: AudioFrame) -> NDArray[Any]:
    """The samples of a frame as they are stored: (samples, channels)."""
    name = frame.format.packed.name
    if name not in _DTYPES:
        raise UnreadableFile(f"file: its samples are of a format that is not read here ({name}); convert it to 16 bit")
    dtype, channels = _DTYPES[name], frame.layout.nb_channels
    if channels == 1 or not frame.format.is_planar:
        return np.frombuffer(_buffer(frame, 0), dtype, frame.samples * channels).reshape(-1, channels)
    # not `frame.planes`: of eight channels it finds a ninth, behind the end of the array (PyAV 18.1)
    planes = [np.frombuffer(_buffer(frame, index), dtype, frame.samples) for index in range(channels)]
    return np.stack(planes, axis=1)


def _as_float(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Samples from -1 to 1. A float that is no number is silence."""
    if stored.dtype == np.uint8:
        return (stored.astype(np.float32) - np.float32(128.0)) * np.float32(1 / 128)
    values = stored.astype(np.float32)
    if stored.dtype.kind == "i":
        values *= np.float32(-1.0 / np.iinfo(stored.dtype).min)
        return values
    if not np.isfinite(values.sum()):
        values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=-1.0)
    return np.clip(values, -1.0, 1.0, out=values)


def _samples(frame: AudioFrame) -> NDArray[np.int16]:
    return np.frombuffer(_buffer(frame, 0), np.int16, frame.samples)


def _buffer(frame: AudioFrame, plane: int) -> memoryview:
    return memoryview(cast("bytes", AudioPlane(frame, plane)))
