"""Who speaks: networks made here, voices that are told apart, and recordings of scripted speech."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backend.errors import ModelUnavailable
from backend.speech.speakers import MAX_SPEAKERS, SpeakerNetwork, fbank, tell_apart
from tests.fakes import GatedEngine
from tests.speech.conftest import open_speech
from tests.tiny_voices import voices


def tone(hz: float, seconds: float = 1.0) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * hz * np.arange(round(16_000 * seconds)) / 16_000)).astype(np.int16)


def test_a_model_of_audio(tmp_path: Path) -> None:
    """It hears samples between -1 and 1, and its vector has unit length."""
    voice = SpeakerNetwork(voices(tmp_path)).voice(np.array([-16384, 0, 16384, 8192] * 4000, np.int16))

    assert np.allclose([0.5**0.5, -(0.5**0.5)], voice)


def test_a_model_of_features(tmp_path: Path) -> None:
    """It hears 80 log-mel features a frame."""
    model = SpeakerNetwork(voices(tmp_path, shape=("batch", "frames", 80)))

    assert (160,) == model.voice(tone(440)).shape
    assert np.isclose(1.0, np.linalg.norm(model.voice(tone(440))))


def test_vectors_that_grow_with_the_audio_are_no_voices(tmp_path: Path) -> None:
    """A recogniser of phones, say."""
    with pytest.raises(ModelUnavailable, match="it is no model of voices"):
        SpeakerNetwork(voices(tmp_path, shape=("batch", "frames", 80), axis=2))


def test_silence_has_no_voice(tmp_path: Path) -> None:
    assert not SpeakerNetwork(voices(tmp_path)).voice(np.zeros(16_000, np.int16)).any()


def test_features_tell_where_a_tone_is() -> None:
    """A frame every 10 ms of 25 ms; the band of a tone is the loudest, and silence is none of them."""
    half = np.concatenate([np.zeros(8000, np.int16), tone(1000, 0.5)])
    features = fbank(half)
    mel = 1127.0 * np.log(1.0 + np.array([20.0, 1000.0, 8000.0]) / 700.0)
    band = round((mel[1] - mel[0]) / (mel[2] - mel[0]) * 81) - 1

    assert (98, 80) == features.shape
    assert abs(int(features[-10:].mean(axis=0).argmax()) - band) <= 1
    assert np.allclose(0.0, features.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "cannot be read", id="absent"),
        pytest.param(b"no network", "refuses", id="no-network"),
        pytest.param(("batch", "frames", 40), "must take audio", id="other-features"),
        pytest.param(("batch", 1, 2, 3), "must take audio", id="a-picture"),
    ],
)
def test_what_is_no_speaker_model_stops_the_start(
    tmp_path: Path, content: bytes | tuple[str | int, ...] | None, words: str
) -> None:
    """The setting is named, and what is wrong."""
    file = tmp_path / "voices.onnx"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        shape = content if len(content) == 3 else ("batch", 80, *content[2:])
        file = voices(tmp_path, shape=shape)

    with pytest.raises(ModelUnavailable, match=f"SPEAKER_MODEL.*{words}"):
        SpeakerNetwork(file)


def around(center: int, count: int, numbers: np.random.Generator, width: int = 64) -> list[np.ndarray]:
    """Voices near one of the axes."""
    vectors = np.eye(width, dtype=np.float32)[center] + 0.08 * numbers.standard_normal((count, width)).astype("f4")
    return list(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_speakers_are_numbered_as_they_first_speak() -> None:
    """Three who take turns, whatever the order of their vectors."""
    numbers = np.random.default_rng(3)
    turns = [5, 5, 9, 5, 2, 9, 2, 5] * 10
    heard = [around(speaker, 1, numbers)[0] for speaker in turns]

    told = tell_apart(heard, [2.0] * len(heard))

    assert [{5: 0, 9: 1, 2: 2}[speaker] for speaker in turns] == told


def test_short_segments_begin_no_speaker() -> None:
    """They are the most alike one's; without a voice, that of the segment before."""
    numbers = np.random.default_rng(4)
    [first], [second], [odd] = (around(center, 1, numbers) for center in (0, 1, 7))
    heard = [odd, first, None, second, odd, None]

    told = tell_apart(heard, [0.4, 3.0, 0.1, 3.0, 0.4, 0.1])

    assert told[1] == told[2] != told[3]
    assert {0, 1} == set(told)
    assert told[4] == told[5]


def test_speakers_are_bounded() -> None:
    """However unlike all voices are; of none at all there is one speaker."""
    heard = list(np.eye(500, dtype=np.float32))

    assert MAX_SPEAKERS == len(set(tell_apart(heard, [2.0] * 500)))
    assert [0, 0] == tell_apart([None, None], [1.0, 1.0])
    assert [] == tell_apart([], [])


class VoicesOfLevels(GatedEngine):
    """Levels below 1,000 are said by one, others by another."""

    def finish(self, output: Any) -> Sequence[Any]:
        return [np.array([level < 1000, level >= 1000], np.float32) for level in (samples.max() for samples in output)]


async def test_who_speaks_in_a_recording() -> None:
    """Each segment has its speaker where that was asked for, from the cache too; nobody where it was not.

    A sentence of the first that the second goes on with is two segments then.
    """
    engine = VoicesOfLevels(name="speaker_voices", budget=6000)
    said = ((100, 2.0), (0, 0.5), (5000, 2.0), (0, 0.5), (101, 2.0), (0, 1.5), (102, 0.1))
    engine.gate.set()
    async with open_speech(voices=engine) as speech:
        speech.whisper.unended = {100}
        plain = await speech.transcribe(*said, name="meeting")
        asked = [await speech.transcribe(*said, name="meeting", with_speakers=True) for _ in range(2)]

    assert [None] * 3 == [segment.speaker for segment in plain.transcript.segments]
    assert [True, False] == [transcription.lane_s > 0 for transcription in asked]
    for transcription in asked:
        assert [0, 1, 0, 0] == [segment.speaker for segment in transcription.transcript.segments]
