"""Where somebody speaks: hysteresis, silences, margins, and the real detector on recordings."""

import numpy as np
import pytest

from backend.speech.pieces import WINDOW, ActivityRules, SileroNetwork, SpeechActivityEngine, silero_file, speech_spans
from backend.speech.records import DecodingOptions, SpeechPiece, activity_cost
from tests.tiny_whispers import DATA, sound

RULES = ActivityRules(begins=0.5, ends=0.35, silence_s=0.32, least_s=0.064, pad_s=0.032)


def spans(probabilities: list[float], rules: ActivityRules = RULES) -> list[tuple[int, int]]:
    """Spans in windows of 512 samples."""
    numbers = np.array(probabilities, np.float32)
    found = speech_spans(numbers, len(numbers) * WINDOW, rules)
    return [(span.start // WINDOW, span.end // WINDOW) for span in found]


@pytest.mark.parametrize(
    ("probabilities", "expected"),
    [
        pytest.param([0.0] * 20, [], id="silence"),
        pytest.param([], [], id="nothing"),
        pytest.param([1.0] * 20, [(0, 20)], id="speech-throughout"),
        pytest.param([0.0] * 5 + [0.9] * 5 + [0.0] * 20, [(4, 11)], id="a-margin-on-both-sides"),
        pytest.param([0.0] * 5 + [0.9] + [0.0] * 20, [], id="a-click"),
        pytest.param([0.9] * 5 + [0.0] * 5 + [0.9] * 5, [(0, 15)], id="a-short-silence"),
        pytest.param([0.9] * 5 + [0.0] * 12 + [0.9] * 5, [(0, 6), (16, 22)], id="a-long-silence"),
        pytest.param([0.9] * 5 + [0.4] * 12 + [0.9] * 5, [(0, 22)], id="doubtful-windows-go-on"),
        pytest.param([0.4] * 20, [], id="doubtful-windows-do-not-begin"),
        pytest.param([0.6] * 20, [], id="a-frog"),
    ],
)
def test_spans(probabilities: list[float], expected: list[tuple[int, int]]) -> None:
    """A stretch begins with a likely window and ends before a silence that is long enough."""
    assert expected == spans(probabilities)


def test_margins_share_a_short_gap() -> None:
    """Neighbours never overlap, whatever the margin."""
    rules = ActivityRules(silence_s=0.32, least_s=0.064, pad_s=1.0)
    first, second = spans([0.9] * 5 + [0.0] * 12 + [0.9] * 5, rules)

    assert (0, 11) == first
    assert (11, 22) == second


def test_a_long_stretch_stays_whole() -> None:
    """Whoever makes pieces of it cuts it, and tells a cut amid speech from a pause."""
    assert [(0, 2000)] == spans([0.99] * 2000)


def test_its_cost_has_the_unit_of_the_pieces() -> None:
    """A lane is shared: looking for speech in a minute counts a small part of hearing it; a batch holds a minute."""
    minute = np.zeros(60 * 16_000, np.int16)
    decoded = 2 * SpeechPiece(minute[: len(minute) // 2], DecodingOptions()).cost

    assert 20 <= decoded / activity_cost(len(minute)) <= 50
    assert activity_cost(len(minute)) == SpeechActivityEngine.budget
    assert 1 == activity_cost(0)


@pytest.fixture(scope="module")
def engine() -> SpeechActivityEngine:
    """With the real network."""
    pytest.importorskip("faster_whisper", reason="the extra [speech] is not installed")
    return SpeechActivityEngine(SileroNetwork(silero_file()))


@pytest.mark.parametrize("count", [0, 1, 511, 512, 16_000])
def test_silence_of_any_length(engine: SpeechActivityEngine, count: int) -> None:
    """Nobody speaks, and nothing fails."""
    assert [()] == list(engine.finish(engine.forward(engine.prepare([np.zeros(count, np.int16)]))))


def test_equals_faster_whisper_s_network() -> None:
    """The probabilities are those of the reference."""
    vad = pytest.importorskip("faster_whisper.vad")
    samples = sound(70.0)
    audio = np.pad(samples.astype(np.float32) / 32768, (0, -len(samples) % WINDOW))
    expected = vad.get_vad_model()(audio).reshape(-1)
    network = SileroNetwork(silero_file())

    assert np.allclose(expected, network.probabilities(samples), atol=1e-4)
    network.release()
    assert np.allclose(expected, network.probabilities(samples), atol=1e-4)


@pytest.mark.slow
def test_recordings(engine: SpeechActivityEngine) -> None:
    """Speech is found in every clip, be it 1.8 s long or from a telephone, and none where nobody speaks."""
    decode_audio = pytest.importorskip("faster_whisper.audio").decode_audio
    names = ["en_short_spk2_snt2.wav", "es_stamp_compact_disc.ogg", "es_phone_vm-nobox.wav", "es_format_8khz.mpga"]
    silent = ["none_silence_10s.wav", "none_white_noise.mp3", "none_tone.ogg", "none_music.mp3", "none_frog.ogg"]
    if not DATA.is_dir():
        pytest.skip("the recordings are not here")
    payloads = [(decode_audio(str(DATA / name)) * 32767).astype(np.int16) for name in names + silent]

    found = [bool(result) for result in engine.finish(engine.forward(engine.prepare(payloads)))]

    assert [True] * len(names) + [False] * len(silent) == found


def test_a_phrase_under_a_second() -> None:
    """One short word is speech."""
    pytest.importorskip("faster_whisper", reason="the extra [speech] is not installed")
    if not (DATA / "en_jfk.ogg").is_file():
        pytest.skip("the recordings are not here")
    samples = (pytest.importorskip("faster_whisper.audio").decode_audio(str(DATA / "en_jfk.ogg")) * 32767).astype(
        np.int16
    )
    engine = SpeechActivityEngine(SileroNetwork(silero_file()))

    assert 1 == len(engine.forward([samples[int(0.3 * 16_000) : int(1.0 * 16_000)]])[0])
