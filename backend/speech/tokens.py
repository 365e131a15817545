"""Whisper's tokens: prompts, times among the text, the languages, and which tokens make a word."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cached_property

from tokenizers import Tokenizer

from backend.errors import ModelUnavailable
from backend.files.speech_records import SpeechTask

SECONDS_PER_TOKEN = 0.02  # of the tokens that tell a time
MAX_TOKENS = 448  # of prompt and text together: the decoder's positions
MULTILINGUAL_TOKENS = 51_865  # a vocabulary as large as this has languages: OpenAI's own rule, and CTranslate2's
_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # words cannot be told by spaces
_BROKEN = "\N{REPLACEMENT CHARACTER}"  # a part of a character


def has_spaces(language: str) -> bool:
    """Whether a language writes spaces between its words."""
    return language not in _WITHOUT_SPACES


class SpeechTokens:
    """The tokenizer of a Whisper model. Safe on any thread.

    Raises: ModelUnavailable when it is not a Whisper's.
    """

    def __init__(self, tokenizer: Tokenizer, *, is_multilingual: bool) -> None:
        self._tokenizer = tokenizer
        self.end = self._id("<|endoftext|>")
        self.begin = self._id("<|startoftranscript|>")
        self.without_times = self._id("<|notimestamps|>")
        self.first_time = self.without_times + 1
        self._previous = self._id("<|startofprev|>")
        self._tasks = {"transcribe": self._id("<|transcribe|>"), "translate": self._id("<|translate|>")}
        self.is_multilingual = is_multilingual

    @classmethod
    def read(cls, content: bytes, where: str, *, is_multilingual: bool) -> SpeechTokens:
        """The tokens of a tokenizer.json. Raises: ModelUnavailable."""
        try:
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:
            raise ModelUnavailable(
                f"{where} cannot be read ({error}); copy tokenizer.json of the model there"
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a caller's "<|endoftext|>" is text
        return cls(tokenizer, is_multilingual=is_multilingual)

    @cached_property
    def languages(self) -> dict[str, int]:
        """ISO 639-1 code, or Whisper's own where there is none -> its token. {"en": 0} of an English model."""
        if not self.is_multilingual:
            return {"en": 0}
        first, last = self.begin + 1, min(self._tasks.values())
        return {str(self._tokenizer.id_to_token(number))[2:-2]: number for number in range(first, last)}

    def prompt(self, task: SpeechTask, language: str, before: Sequence[int] = ()) -> list[int]:
        """What the decoder starts from.

        Args:
            language: one of ``languages``.
            before: tokens of what was said before; of too many the last half of what the decoder holds counts.
        """
        start = self.start(task, language)
        return [self._previous, *before[-(MAX_TOKENS // 2 - 1) :], *start] if before else start

    def start(self, task: SpeechTask, language: str) -> list[int]:
        """The prompt without what was said before."""
        return [self.begin, self.languages[language], self._tasks[task]] if self.is_multilingual else [self.begin]

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text; empty for one of spaces."""
        stripped = text.strip()
        return tuple(self._tokenizer.encode(" " + stripped, add_special_tokens=False).ids) if stripped else ()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that are no text."""
        return str(self._tokenizer.decode([token for token in tokens if token < self.end]))

    def is_time(self, token: int) -> bool:
        return token >= self.first_time

    def seconds(self, token: int) -> float:
        """The time that a token tells, from the beginning of the audio."""
        return round((token - self.first_time) * SECONDS_PER_TOKEN, 2)

    def words(self, tokens: Sequence[int], language: str) -> list[tuple[str, list[int]]]:
        """Text tokens as words, each with the space before it and its tokens; punctuation stands alone.

        In languages without spaces every character is a word.
        """
        words: list[tuple[str, list[int]]] = []
        for text, parts in self._characters(tokens):
            alone = text.startswith(" ") or text.strip() in string.punctuation
            if alone or not words or not has_spaces(language):
                words.append((text, parts))
            else:
                words[-1] = (words[-1][0] + text, words[-1][1] + parts)
        return words

    def _characters(self, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
        """The shortest runs of tokens that are whole characters."""
        whole = self.decode(tokens)
        runs: list[tuple[str, list[int]]] = []
        parts: list[int] = []
        offset = 0
        for token in tokens:
            parts.append(token)
            text = self.decode(parts)
            broken = text.find(_BROKEN)
            if broken < 0 or whole[offset + broken : offset + broken + 1] == _BROKEN:  # the model's own broken text
                runs.append((text, parts))
                parts = []
                offset += len(text)
        if parts:
            runs.append((self.decode(parts), parts))
        return runs

    def _id(self, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise ModelUnavailable(f"tokenizer.json has no token {token}; it is not the tokenizer of a Whisper model")
        return int(number)
