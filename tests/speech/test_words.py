"""Words of a segment: joined by spaces they are its text, and their times are those of what is decoded of them."""

import itertools
from types import SimpleNamespace

import pytest

from backend.speech import words as module
from backend.speech.model_files import SpeechTokens
from backend.speech.whisper import LoadedWhisper
from tests.tiny_whispers import bundled_folder

TEXTS = (
    " The invoice number 4,711 is for 12,500 dollars.",
    " S.A. since R.1700-1980-14, between 2000-24",
    " ¿Qué tal, señor? (bien) - Hola; a 3.50€/h y 50% «sí» ... x@y.es",
    " it's 10:30 a.m. - don't \"stop\" me: U.S.-based, 1,234.56",
    " - Hola . ya",
)


@pytest.fixture(scope="module")
def tokens() -> SpeechTokens:
    """The bundled model's."""
    return SpeechTokens.read((bundled_folder() / "tokenizer.json").read_bytes(), "here", is_multilingual=True)


def words_of(tokens: SpeechTokens, text: str, language: str) -> list[module._Word]:
    """The words of a text whose tokens are decoded one every 0.2 s."""
    ids = tokens._tokenizer.encode(text, add_special_tokens=False).ids
    alignment = SimpleNamespace(
        alignments=[(index, index * 10) for index in range(len(ids) + 1)], text_token_probs=[0.5] * len(ids)
    )
    [words] = module._words(SimpleNamespace(tokens=tokens), [list(ids)], alignment, language)  # type: ignore[arg-type]
    return words


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("language", ["en", "es"])
def test_words_joined_by_spaces_are_the_text(tokens: SpeechTokens, text: str, language: str) -> None:
    """No number and no abbreviation is torn, and none has a space within."""
    words = words_of(tokens, text, language)
    times = [time for word in words for time in (word.start_s, word.end_s)]

    assert text.split() == [word.text.strip() for word in words]
    assert times == sorted(times)


def test_a_number_lasts_to_its_last_digit(tokens: SpeechTokens) -> None:
    """It begins with the first part and ends with the last; a mark after it adds no time."""
    [word] = words_of(tokens, " 4,711", "en")
    [ended] = words_of(tokens, " 4,711.", "en")

    assert word.start_s < word.end_s
    assert (word.start_s, word.end_s) == (ended.start_s, ended.end_s)


def test_languages_without_spaces_keep_the_cuts(tokens: SpeechTokens) -> None:
    """Marks stand with the word before them."""
    assert ["東", "京", "です。"] == [word.text for word in words_of(tokens, "東京です。", "ja")]


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        pytest.param(
            " number 4,711 is 12,500.50 dollars.",
            "en",
            ["number", "4,711", "is", "12,500.50", "dollars."],
            id="numbers",
        ),
        pytest.param(" Acme S.A. R.1700-1980-14", "es", ["Acme", "S.A.", "R.1700-1980-14"], id="abbreviations"),
        pytest.param(" in 2000-24, a@b.es", "en", ["in", "2000-24,", "a@b.es"], id="ranges-and-addresses"),
        pytest.param(" «¿Qué?», dijo (ella)", "es", ["«¿Qué?»,", "dijo", "(ella)"], id="marks"),
        pytest.param(" uno - dos", "es", ["uno", "-", "dos"], id="a-dash-between-spaces"),
        pytest.param("東京です。", "ja", ["東", "京", "です。"], id="no-spaces"),
    ],
)
def test_a_word_is_what_is_written_without_a_space(
    tokens: SpeechTokens, text: str, language: str, expected: list[str]
) -> None:
    """Numbers and abbreviations are not torn at their marks; a word lasts from its first token to its last."""
    ids = tokens._tokenizer.encode(text, add_special_tokens=False).ids
    places = [(index, 10 * index) for index in range(len(ids) + 1)]
    alignment = SimpleNamespace(alignments=places, text_token_probs=[0.9] * len(ids))

    [words] = module._words(LoadedWhisper(None, tokens, 80), [ids], alignment, language)

    assert expected == [word.text.strip() for word in words]
    assert all(first.end_s <= second.start_s + 1e-9 for first, second in itertools.pairwise(words))


def confidences(tokens: SpeechTokens, *probabilities: float) -> list[float]:
    """Of the words of a segment, each of one token that the model gave such a probability."""
    ids = tokens._tokenizer.encode(" la casa del señor es de ella", add_special_tokens=False).ids[: len(probabilities)]
    places = [(index, 10 * index) for index in range(len(ids) + 1)]
    alignment = SimpleNamespace(alignments=places, text_token_probs=list(probabilities))
    [words] = module._words(LoadedWhisper(None, tokens, 80), [ids], alignment, "es")
    assert len(probabilities) == len(words)
    return [word.confidence for word in words]


def test_a_word_is_doubted_with_what_stands_around_it(tokens: SpeechTokens) -> None:
    """An unexpected word is doubtful, more so beside another and in an unlikely segment; an expected one is not."""
    alone = confidences(tokens, 0.99, 0.99, 0.2, 0.99, 0.99)
    beside = confidences(tokens, 0.99, 0.2, 0.2, 0.99, 0.99)
    doubtful = confidences(tokens, 0.3, 0.99, 0.2, 0.99, 0.3)

    assert alone[2] < 0.65 < alone[0]
    assert beside[2] < alone[2]
    assert doubtful[2] < alone[2]
    assert alone[0] > 0.9
    assert alone[0] > alone[1] > alone[2]


def test_confidences_of_what_the_model_never_expected_are_finite(tokens: SpeechTokens) -> None:
    """Zero is no logarithm."""
    assert all(0.0 <= confidence < 0.1 for confidence in confidences(tokens, 0.0, 0.0, 0.0))
