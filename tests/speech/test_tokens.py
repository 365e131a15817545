"""Whisper's tokens: prompts, languages, and words."""

import pytest

from backend.errors import ModelUnavailable
from backend.speech.model_files import SpeechTokens
from tests.tiny_whispers import bundled_folder


@pytest.fixture(scope="module")
def tokens() -> SpeechTokens:
    """The bundled model's."""
    return SpeechTokens.read((bundled_folder() / "tokenizer.json").read_bytes(), "here", is_multilingual=True)


@pytest.fixture(scope="module")
def english() -> SpeechTokens:
    """The same file, read as an English model's."""
    return SpeechTokens.read((bundled_folder() / "tokenizer.json").read_bytes(), "here", is_multilingual=False)


def test_languages(tokens: SpeechTokens, english: SpeechTokens) -> None:
    """A multilingual model has 99 languages, an English one has one."""
    assert 99 == len(tokens.languages)
    assert 50262 == tokens.languages["es"]
    assert {"en": 0} == english.languages


def test_prompt(tokens: SpeechTokens, english: SpeechTokens) -> None:
    """Language and task follow the beginning; what was said before stands before it and is bounded."""
    before = list(range(1000, 1500))

    assert [50258, 50262, 50359] == tokens.prompt("transcribe", "es")
    assert [50258, 50262, 50358] == tokens.prompt("translate", "es")
    assert [50258] == english.prompt("transcribe", "en")
    assert [50361, *before[-223:], 50258, 50262, 50359] == tokens.prompt("transcribe", "es", before)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_prompt_has_no_tokens(tokens: SpeechTokens, text: str) -> None:
    """Spaces are no prompt."""
    assert () == tokens.encode(text)


def test_a_prompt_has_no_control_tokens(tokens: SpeechTokens) -> None:
    """A caller's "<|endoftext|>" is text, as it would be in a transcript."""
    text = "<|startoftranscript|> <|endoftext|> <|notimestamps|> <|0.00|> <|es|>"

    assert max(tokens.encode(text)) < tokens.end
    assert text == tokens.decode(tokens.encode(text)).strip()


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        pytest.param(" ¿Qué tal, señor?", "es", [" ¿Qué", " tal", ",", " señor", "?"], id="marks-stand-alone"),
        pytest.param(" The end.", "en", [" The", " end", "."], id="a-full-stop"),
        pytest.param("東京です", "ja", ["東", "京", "です"], id="no-spaces"),
        pytest.param(" 👩🏽 ok", "en", [" 👩🏽", " ok"], id="characters-of-several-tokens"),
    ],
)
def test_words(tokens: SpeechTokens, text: str, language: str, expected: list[str]) -> None:
    """Words are whole characters, and nothing of the text is lost."""
    ids = tokens._tokenizer.encode(text, add_special_tokens=False).ids

    words = tokens.words(ids, language)

    assert text == "".join(word for word, _ in words)
    assert ids == [token for _, parts in words for token in parts]
    assert expected == [word for word, _ in words]


def test_a_broken_character_is_kept(tokens: SpeechTokens) -> None:
    """Half a character, as a random model writes it, ends no loop and loses no token."""
    ids = tokens._tokenizer.encode("é👩", add_special_tokens=False).ids[:-1]

    assert ids == [token for _, parts in tokens.words(ids, "es") for token in parts]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["¿Qué hora es?", "Son las 3.", "Gracias."], id="sentences"),
        pytest.param(["東京です。", "カタカナ。"], id="no-spaces"),
        pytest.param(["👩🏽 ok", "é"], id="characters-of-several-tokens"),
    ],
)
def test_tokens_are_split_as_their_text_is(tokens: SpeechTokens, texts: list[str]) -> None:
    """Each piece has its own; a time stays with the text before it, the first with the first text."""
    gap = "" if texts[0].endswith("。") else " "
    ids = tokens._tokenizer.encode(gap + gap.join(texts), add_special_tokens=False).ids
    begin, end = tokens.first_time, tokens.first_time + 100

    parts = tokens.split([begin, *ids, end], texts)

    assert texts == [tokens.decode(part).strip() for part in parts]
    assert (begin, *ids, end) == tuple(token for part in parts for token in part)
    assert [()] == tokens.split([], ["of no tokens"])


def test_another_model_s_tokenizer_is_refused() -> None:
    """The error says which token is missing."""
    content = b'{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}'

    with pytest.raises(ModelUnavailable, match="endoftext"):
        SpeechTokens.read(content, "here", is_multilingual=True)
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        SpeechTokens.read(b"{", "here", is_multilingual=True)
