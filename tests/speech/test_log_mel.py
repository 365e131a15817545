"""Whisper's features: the same numbers as transformers and faster-whisper have."""

import numpy as np
import pytest

from backend.speech.transcribe import log_mel
from tests.tiny_whispers import sound

TOLERANCE = 2e-3  # float32 against transformers' float64; a feature is about 1


@pytest.mark.parametrize("mels", [80, 128])
def test_equals_transformers(mels: int) -> None:
    """A piece in the whole window has the features that the model was trained with."""
    transformers = pytest.importorskip("transformers")
    samples = sound(3.3)
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
    expected = extractor(samples.astype(np.float32) / 32768, sampling_rate=16_000, return_tensors="np")[
        "input_features"
    ]

    features = log_mel(samples, mels, 3000)

    assert (mels, 3000) == features.shape
    assert np.abs(expected[0] - features).max() < TOLERANCE


def test_equals_faster_whisper_within_the_audio() -> None:
    """The frames of the audio itself are those of faster-whisper."""
    extractor = pytest.importorskip("faster_whisper.feature_extractor").FeatureExtractor()
    samples = sound(2.0)
    expected = extractor(samples.astype(np.float32) / 32768)[:, :199]

    assert np.abs(expected - log_mel(samples, 80, 300)[:, :199]).max() < TOLERANCE


def test_a_shorter_window_is_the_beginning_of_the_whole() -> None:
    """What is decoded of a piece does not depend on the window's length."""
    samples = sound(1.7)

    assert np.allclose(log_mel(samples, 80, 3000)[:, :300], log_mel(samples, 80, 300), atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 159, 160, 400, 16_000])
def test_digital_silence_and_tiny_pieces(count: int) -> None:
    """Silence has finite features of one value, however little there is of it."""
    features = log_mel(np.zeros(count, np.int16), 80, 200)

    assert (80, 200) == features.shape
    assert np.allclose(-1.5, features)


def test_audio_beyond_the_window_is_left_out() -> None:
    """A piece that is longer than its window loses its end, not its beginning."""
    samples = sound(4.0)

    assert (80, 200) == log_mel(samples, 80, 200).shape
