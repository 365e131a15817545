"""Whisper's features: the log-mel spectrogram of audio and of the silence after it, computed with numpy alone."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from backend.files.spoken_language import SAMPLE_RATE

HOP = 160  # samples between two frames: 100 frames a second
_WINDOW = 400  # samples of a frame
_RANGE = 8.0  # what is quieter than the loudest value by more than this, in powers of ten, is silence
_LEAST_POWER = 1e-10
_LINEAR_HZ, _MEL_STEP_HZ = 1000.0, 200.0 / 3  # Slaney's scale: linear below, logarithmic above
_LOG_STEP = np.log(6.4) / 27.0


def log_mel(samples: NDArray[np.int16], mels: int, frames: int) -> NDArray[np.float32]:
    """The features of audio that is followed by silence up to ``frames``, as OpenAI's code and transformers have them.

    Shapes: samples (n) -> (mels, frames) float32. Audio beyond ``frames`` is left out.
    """
    audio = np.zeros(min(frames * HOP, len(samples) + _WINDOW), np.float32)  # the last frames reach into the silence
    count = min(len(samples), len(audio))
    audio[:count] = samples[:count]
    audio /= 32768.0
    if len(audio) <= _WINDOW:
        audio = np.pad(audio, (0, _WINDOW))
    log_power = np.log10(np.maximum(_mel_filters(mels) @ _power(audio), _LEAST_POWER))[:, :frames]
    floor = max(float(log_power.max(initial=np.log10(_LEAST_POWER))) - _RANGE, float(np.log10(_LEAST_POWER)))
    features = np.full((mels, frames), floor, np.float32)
    np.maximum(log_power, floor, out=features[:, : log_power.shape[1]])
    features += 4.0
    features /= 4.0
    return features


def _power(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Power by frequency and frame. Shapes: (n) -> (201, n // 160) float32."""
    padded = np.pad(audio, _WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP][: len(audio) // HOP]
    spectrum = np.fft.rfft(windows * _hann(), axis=-1)
    power: NDArray[np.float32] = (spectrum.real**2 + spectrum.imag**2).T.astype(np.float32)
    return power


@cache
def _hann() -> NDArray[np.float32]:
    return np.hanning(_WINDOW + 1)[:-1].astype(np.float32)


@cache
def _mel_filters(mels: int) -> NDArray[np.float32]:
    """Triangular filters on Slaney's scale, each of area one. Shapes: (mels, 201).

    Source: librosa.filters.mel, which OpenAI's mel_filters.npz was made with.
    """
    top = _LINEAR_HZ / _MEL_STEP_HZ + np.log(SAMPLE_RATE / 2 / _LINEAR_HZ) / _LOG_STEP
    points = np.linspace(0.0, top, mels + 2)
    linear_points = _LINEAR_HZ / _MEL_STEP_HZ
    edges_hz = np.where(
        points < linear_points,
        points * _MEL_STEP_HZ,
        _LINEAR_HZ * np.exp(_LOG_STEP * (points - linear_points)),
    )
    bins_hz = np.fft.rfftfreq(_WINDOW, 1.0 / SAMPLE_RATE)
    rising = (bins_hz - edges_hz[:-2, None]) / (edges_hz[1:-1] - edges_hz[:-2])[:, None]
    falling = (edges_hz[2:, None] - bins_hz) / (edges_hz[2:] - edges_hz[1:-1])[:, None]
    weights = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (edges_hz[2:] - edges_hz[:-2]))[:, None]
    filters: NDArray[np.float32] = weights.astype(np.float32)
    return filters
