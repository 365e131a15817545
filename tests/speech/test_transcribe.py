"""The speech engine: a piece's text does not depend on its batch, and nothing that it is given breaks it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from backend.files.speech_records import SpokenLanguage
from backend.speech import transcribe
from backend.speech.model_files import resolve_speech_model
from backend.speech.records import WHOLE_WINDOW, DecodedPiece, DecodingOptions, SpeechPiece, window_frames
from backend.speech.transcribe import SpeechEngine, compression_ratio
from backend.speech.whisper import LoadedWhisper, SpeechPlacement, WhisperSource
from tests.tiny_whispers import DATA, TinyWhispers, bundled_folder, sound

QUICK = DecodingOptions(language="es", beams=2)


@pytest.fixture(scope="module")
def engine(tiny_whispers: TinyWhispers) -> SpeechEngine:
    """With a tiny random model."""
    return SpeechEngine(tiny_whispers.source())


def run(engine: SpeechEngine, pieces: Sequence[SpeechPiece]) -> Sequence[DecodedPiece]:
    """As a lane runs a batch."""
    return engine.finish(engine.forward(engine.prepare(pieces)))


@pytest.mark.parametrize("options", [QUICK, replace(QUICK, language=None), replace(QUICK, with_words=True)])
def test_batch_equals_single(engine: SpeechEngine, options: DecodingOptions) -> None:
    """Every piece has the text, and nearly the numbers, that it has alone, whatever its neighbours."""
    pieces = [SpeechPiece(sound(seconds, seed), options) for seed, seconds in enumerate((1.0, 2.9, 1.1, 6.0, 0.4))]

    together = run(engine, pieces)

    for piece, decoded in zip(pieces, together, strict=True):
        alone = run(engine, [piece])[0]
        assert [part.text for part in alone.segments] == [part.text for part in decoded.segments]
        assert [part.tokens for part in alone.segments] == [part.tokens for part in decoded.segments]
        assert alone.language.code == decoded.language.code
        assert alone.avg_logprob == pytest.approx(decoded.avg_logprob, abs=1e-3)


def test_words_of_several_languages_in_one_call(engine: SpeechEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one window in several languages, one without a text: each gets its own words."""
    found = iter(["es", "en", "es"])
    real = transcribe._languages

    def languages(*arguments: Any) -> list[SpokenLanguage]:
        return [SpokenLanguage(next(found), 0.9) for _ in real(*arguments)]

    monkeypatch.setattr(transcribe, "_languages", languages)
    pieces = [SpeechPiece(sound(1.0, seed), replace(QUICK, language=None, with_words=True)) for seed in range(3)]

    together = run(engine, pieces)

    for piece, decoded in zip(pieces, together, strict=True):
        monkeypatch.setattr(transcribe, "_languages", lambda *_, code=decoded.language: [code])
        assert run(engine, [piece])[0].segments == decoded.segments
        assert all(part.words for part in decoded.segments)


@dataclass
class CountingSource:
    """Gives a model that counts its calls."""

    whisper: LoadedWhisper
    calls: list[str] = field(default_factory=list)

    def get(self) -> LoadedWhisper:
        return replace(self.whisper, model=self)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.whisper.model, name)
        if not callable(real):
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            return real(*arguments, **named)

        return call


def test_pieces_of_other_requests_share_a_call(tiny_whispers: TinyWhispers) -> None:
    """Language, task, prompt and words are each piece's own: they do not part a batch, and change nobody's text."""
    source = CountingSource(tiny_whispers.source().get())
    several = [
        QUICK,
        replace(QUICK, language="en"),
        replace(QUICK, language=None),
        replace(QUICK, task="translate"),
        replace(QUICK, with_words=True),
        replace(QUICK, language=None, with_words=True),
    ]
    prompted = [replace(options, prompt=tuple(range(300, 310))) for options in several[:2]]
    prompted[1] = replace(prompted[1], prompt=tuple(range(500, 510)))
    pieces = [SpeechPiece(sound(1.5, seed), options) for seed, options in enumerate([*several, *prompted])]

    together = run(SpeechEngine(source), pieces)
    counted = [source.calls.count(name) for name in ("encode", "generate")]

    assert [2, 2] == counted  # prompts of another length are another call
    for piece, decoded in zip(pieces, together, strict=True):
        alone = run(SpeechEngine(source), [piece])[0]
        assert [part.tokens for part in alone.segments] == [part.tokens for part in decoded.segments]
        assert [part.words for part in alone.segments] == [part.words for part in decoded.segments]
        assert alone.language.code == decoded.language.code
        assert piece.options.with_words is any(part.words for part in decoded.segments)


@pytest.mark.parametrize(
    ("changed", "calls"),
    [
        ({"beams": 3}, 2), ({"temperature": 0.5}, 2), ({"whole_window": True}, 2), ({"prompt": (300,)}, 2),
        ({"language": "de"}, 1),
    ],
)  # fmt: skip
def test_what_a_call_has_once_parts_a_batch(tiny_whispers: TinyWhispers, changed: dict[str, Any], calls: int) -> None:
    """Beams, temperature, window and the prompt's length."""
    source = CountingSource(tiny_whispers.source().get())
    run(SpeechEngine(source), [SpeechPiece(sound(1.5), QUICK), SpeechPiece(sound(1.5, 1), replace(QUICK, **changed))])

    assert calls == source.calls.count("generate")


@pytest.mark.parametrize("language", ["es", None])
def test_words_of_a_text_that_is_known(tiny_whispers: TinyWhispers, language: str | None) -> None:
    """They are those that come with the text, and the text is not written again."""
    source = CountingSource(tiny_whispers.source().get())
    engine = SpeechEngine(source)
    asked = replace(QUICK, language=language, with_words=True)
    samples = sound(2.0)
    whole = run(engine, [SpeechPiece(samples, asked)])[0]
    text = run(engine, [SpeechPiece(samples, replace(asked, with_words=False))])[0]
    source.calls.clear()
    aligned = run(engine, [SpeechPiece(samples, asked, written=text)])[0]

    assert whole == aligned
    assert any(part.words for part in aligned.segments)
    assert [part._replace(words=()) for part in whole.segments] == list(text.segments)
    assert ["encode", "align"] == source.calls


def test_options_do_not_mix(engine: SpeechEngine) -> None:
    """Pieces with other options share a batch, and each is decoded by its own."""
    samples = sound(1.5)
    several = [
        QUICK,
        replace(QUICK, language="en"),
        replace(QUICK, whole_window=True),
        replace(QUICK, task="translate"),
    ]
    pieces = [SpeechPiece(samples, options) for options in several]

    for piece, decoded in zip(pieces, run(engine, pieces), strict=True):
        assert run(engine, [piece])[0].segments == decoded.segments
        assert piece.options.language == decoded.language.code


@pytest.mark.parametrize("count", [0, 1, 1599])
def test_pieces_without_anything_to_hear(engine: SpeechEngine, count: int) -> None:
    """They get no text, and the model is not asked, alone or beside others."""
    nothing = SpeechPiece(np.zeros(count, np.int16), QUICK)
    beside = SpeechPiece(sound(1.0), QUICK)

    alone, mixed = run(engine, [nothing])[0], run(engine, [nothing, beside, nothing])

    assert () == alone.segments
    assert 1.0 == alone.no_speech_prob
    assert [alone, alone] == [mixed[0], mixed[2]]
    assert mixed[1].segments == run(engine, [beside])[0].segments


def test_the_model_is_not_loaded_for_nothing(tiny_whispers: TinyWhispers) -> None:
    """An empty piece does not cost the model's memory."""
    source = tiny_whispers.source()
    run(SpeechEngine(source), [SpeechPiece(np.zeros(10, np.int16), QUICK)])

    assert not source.is_loaded


def test_a_piece_that_is_too_long_is_an_error(engine: SpeechEngine) -> None:
    """It would lose its end without a word."""
    with pytest.raises(ValueError, match="is over 480000"):
        engine.prepare([SpeechPiece(np.zeros(480_001, np.int16), QUICK)])


def test_a_sampled_text_differs_and_is_marked(engine: SpeechEngine) -> None:
    """A temperature above 0 samples."""
    decoded = run(engine, [SpeechPiece(sound(1.0), replace(QUICK, temperature=1.0))])[0]

    assert 1.0 == decoded.temperature


def test_a_prompt_is_no_part_of_the_text(engine: SpeechEngine) -> None:
    """Tokens of what was said before change nothing but the probabilities."""
    tokens = tuple(range(300, 900))  # more than the decoder takes
    decoded = run(engine, [SpeechPiece(sound(1.0), replace(QUICK, prompt=tokens))])[0]

    assert np.isfinite(decoded.avg_logprob)


def test_times_are_in_order_and_within_the_piece(engine: SpeechEngine) -> None:
    """Segments and words, even a random model's."""
    for seed in range(4):
        decoded = run(engine, [SpeechPiece(sound(2.5, seed), replace(QUICK, with_words=True))])[0]
        times = [time for part in decoded.segments for word in part.words for time in (word.start_s, word.end_s)]

        assert times == sorted(times)
        assert all(0 <= time <= 2.5 for time in times)
        for part in decoded.segments:
            assert 0 <= part.start_s <= part.end_s <= 2.5
            assert part.text.replace(" ", "") == "".join(word.text for word in part.words).replace(" ", "")


def test_128_mels(tiny_whispers: TinyWhispers) -> None:
    """The newer large models decode finer features."""
    decoded = run(SpeechEngine(tiny_whispers.source(128)), [SpeechPiece(sound(1.0), QUICK)])[0]

    assert "es" == decoded.language.code


def test_a_loop_ends_with_the_audio(engine: SpeechEngine) -> None:
    """A text has at most as many tokens as its audio may have, and not as the whole window."""
    samples = sound(2.0)
    most = transcribe._most_tokens(len(samples))

    for whole_window in (False, True):
        decoded = run(engine, [SpeechPiece(samples, replace(QUICK, whole_window=whole_window))])[0]
        assert sum(len(part.tokens) for part in decoded.segments) <= most
    assert 74 == most
    assert transcribe.MAX_TOKENS == transcribe._most_tokens(480_000)


def test_windows() -> None:
    """A window is the piece, a margin, and the rest of a step; never over 30 s."""
    assert WHOLE_WINDOW == window_frames(16_000, whole=True)
    assert WHOLE_WINDOW == window_frames(480_000, whole=False)
    for count in (1, 16_000, 100_000, 400_000):
        frames = window_frames(count, whole=False)
        assert count / 160 < frames <= WHOLE_WINDOW
        assert 10 * frames == SpeechPiece(np.zeros(count, np.int16), QUICK).cost


def test_compression_ratio() -> None:
    """A text that repeats itself is over Whisper's threshold, another is not."""
    assert 0.0 == compression_ratio("")
    assert compression_ratio("and so my fellow Americans ask not what your country") < 1.5
    assert compression_ratio("and so " * 40) > 2.4


@pytest.fixture(scope="module")
def real() -> SpeechEngine:
    """With the bundled weights."""
    bundled_folder()
    pytest.importorskip("ctranslate2")
    return SpeechEngine(WhisperSource(resolve_speech_model("bundled"), SpeechPlacement("cpu", 0, "int8", 1, 1, "")))


def clip(name: str) -> SpeechPiece:
    """A recording of the shared data, decoded."""
    if not (DATA / name).is_file():
        pytest.skip("the recordings are not here")
    decode_audio = pytest.importorskip("faster_whisper.audio").decode_audio
    samples = np.round(decode_audio(str(DATA / name)) * 32768).clip(-32768, 32767).astype(np.int16)
    return SpeechPiece(samples, DecodingOptions(with_words=True))


@pytest.mark.slow
def test_the_bundled_model_hears_english(real: SpeechEngine) -> None:
    """A public speech comes word for word, with the time of each."""
    decoded = run(real, [clip("en_jfk.ogg")])[0]
    words = [word for part in decoded.segments for word in part.words]

    assert "en" == decoded.language.code
    assert "ask not what your country can do for you" in " ".join(part.text for part in decoded.segments)
    assert " Americans," in [word.text for word in words]
    assert all(word.end_s >= word.start_s for word in words)
    assert min(word.confidence for word in words) > 0.3
    assert 7.5 < next(word.start_s for word in words[10:] if word.text == " ask") < 8.6


@pytest.mark.slow
def test_the_bundled_model_in_batches(real: SpeechEngine) -> None:
    """Two languages in one batch, found without being told; the texts are those of the pieces alone."""
    pieces = [clip("en_jfk.ogg"), clip("es_questions.flac"), clip("en_short_spk1_snt1.wav")]
    together = run(real, pieces)

    assert ["en", "es", "en"] == [decoded.language.code for decoded in together]
    for piece, decoded in zip(pieces, together, strict=True):
        alone = run(real, [piece])[0]
        assert [part.text for part in alone.segments] == [part.text for part in decoded.segments]
