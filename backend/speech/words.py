"""When each word was said: the decoder's attention, followed through the text, and punctuation put to its word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from backend.files.speech_records import SpeechTask, SpokenLanguage
from backend.speech.model_files import has_spaces
from backend.speech.records import TimedText, TimedWord
from backend.speech.whisper import LoadedWhisper, on_host

_ATTENTION_S = 0.02  # between two places of the encoder's output
_BEFORE_A_WORD = frozenset("\"'“¿¡([{-«\u2018„")
_AFTER_A_WORD = frozenset(
    "\"'.。,\uff0c!\uff01?\uff1f:\uff1a”)]}、…»\u2019;"
)  # also the wide ones of Chinese and Japanese
_SENTENCE_ENDS = frozenset(".。!\uff01?\uff1f")
_LONGEST_S = 1.4  # of a word at the end of a sentence: attention wanders off in the pause after it


# How likely a word is wrong, by how little the model expected it, its neighbours and its segment (roots of nats).
# Logistic regression on 4,674 words of 70 Spanish and English clips, as they are, under noise and a quarter faster, 607
# of them wrong. Of the clips as they are, half of them unseen by the fit (mean of 20 halves): AUC .89 and ECE .03, and
# .86 by the mean probability of a word's tokens; with each of 22 sources left out .89.
_INTERCEPT, _OWN, _NEIGHBOURS, _SEGMENT = -4.94, 2.60, 0.54, 1.88
_MAX_NATS = 8.0


@dataclass(slots=True)
class _Word:
    """A word as the attention has it."""

    text: str
    start_s: float
    end_s: float
    nats: float  # of its tokens: how little the model expected them
    confidence: float = 0.0  # that it is right, 0 to 1; known once all words of the piece are


def align_words(
    whisper: LoadedWhisper,
    encoded: Any,
    texts: Sequence[tuple[TimedText, ...]],
    *,
    languages: Sequence[SpokenLanguage],
    tasks: Sequence[SpeechTask],
    seconds: Sequence[float],
) -> list[tuple[TimedText, ...]]:
    """The segments of each piece with their words; their own times stay those that the model wrote.

    Args:
        encoded: the encoder's output for the pieces, in their order.
        texts: of each piece; of one whose words are not wanted none.
        seconds: length of each piece.
    """
    aligned = list(texts)
    by_start: dict[tuple[SpeechTask, str], list[int]] = {}
    for index, (segments, decoded, task) in enumerate(zip(texts, languages, tasks, strict=True)):
        if segments:
            by_start.setdefault((task, decoded.code or "en"), []).append(index)
    for (task, language), indices in by_start.items():
        rows = encoded_rows(encoded, indices)
        tokens = [
            [[token for token in text.tokens if token < whisper.tokens.end] for text in texts[index]]
            for index in indices
        ]
        found = whisper.model.align(
            rows,
            whisper.tokens.start(task, language),
            [[token for part in parts for token in part] for parts in tokens],
            [max(2, int(seconds[index] * 100)) for index in indices],
        )
        for index, parts, alignment in zip(indices, tokens, found, strict=True):
            written_in = "en" if task == "translate" else language
            words = _words(whisper, parts, alignment, written_in)
            aligned[index] = tuple(map(_bounded, texts[index], words))
    return aligned


def encoded_rows(encoded: Any, indices: Sequence[int]) -> Any:
    """The encoder's output for some of its pieces, by index in their order."""
    import ctranslate2  # loaded with the model

    if len(indices) == encoded.shape[0]:
        return encoded
    return ctranslate2.StorageView.from_array(np.ascontiguousarray(on_host(encoded)[list(indices)]))


def _words(whisper: LoadedWhisper, parts: Sequence[list[int]], alignment: Any, language: str) -> list[list[_Word]]:
    """The words of each segment in order, so that they joined by spaces are its text, where spaces are written.

    Args:
        parts: the text tokens of each segment.
    """
    if not alignment.alignments:
        return [[] for _ in parts]
    token_of, place_of = np.array(alignment.alignments).T
    begins_s = place_of[np.diff(token_of, prepend=-1).astype(bool)] * _ATTENTION_S  # of each token
    segments: list[list[_Word]] = []
    first, last = 0, len(begins_s) - 1
    for part in parts:
        segments.append([])
        for text, tokens in whisper.tokens.words(part, language):
            end = first + len(tokens)
            nats = -float(np.log(np.maximum(alignment.text_token_probs[first:end], 1e-6)).sum())
            times = float(begins_s[min(first, last)]), float(begins_s[min(end, last)])
            segments[-1].append(_Word(text, *times, nats))
            first = end
    _shorten([word for words in segments for word in words])
    join = _joined_by_spaces if has_spaces(language) else _joined_by_marks
    joined = [join(words) for words in segments]
    _set_confidences(joined)
    return joined


def _set_confidences(segments: Sequence[Sequence[_Word]]) -> None:
    """Tell of each word of a piece how likely it is right."""
    nats = [np.minimum([word.nats for word in words], _MAX_NATS) for words in segments if words]
    if not nats:
        return
    own = np.sqrt(np.concatenate([np.zeros(1), *nats, np.zeros(1)]))
    segment = np.concatenate([np.full(len(words), np.sqrt(words.mean())) for words in nats])
    doubt = _INTERCEPT + _OWN * own[1:-1] + _NEIGHBOURS * (own[:-2] + own[2:]) + _SEGMENT * segment
    confidences = 1.0 / (1.0 + np.exp(doubt))
    for word, confidence in zip(chain.from_iterable(segments), confidences.tolist(), strict=True):
        word.confidence = confidence


def _shorten(words: list[_Word]) -> None:
    """Cut words around the end of a sentence, which must not last through the pause there.

    Source: faster-whisper, transcribe.py, add_word_timestamps.
    """
    lengths = [word.end_s - word.start_s for word in words if word.end_s > word.start_s]
    longest_s = min(_LONGEST_S, 2 * float(np.median(lengths))) if lengths else 0.0
    for index, word in enumerate(words[1:], 1):
        if word.end_s - word.start_s > longest_s:
            if word.text.strip() in _SENTENCE_ENDS:
                word.end_s = word.start_s + longest_s
            elif words[index - 1].text.strip() in _SENTENCE_ENDS:
                word.start_s = word.end_s - longest_s


def _joined_by_spaces(words: list[_Word]) -> list[_Word]:
    """Words as the text is spaced: what does not begin with a space belongs to the word before it."""
    joined: list[_Word] = []
    for word in words:
        if not joined or word.text[:1].isspace():
            joined.append(word)
        else:
            joined[-1] = _with_next(joined[-1], word)
    return joined


def _with_next(word: _Word, following: _Word) -> _Word:
    """A word and what follows it without a space; punctuation has no time and is not doubted."""
    text = word.text + following.text
    if not any(map(str.isalnum, following.text)):
        return _Word(text, word.start_s, word.end_s, word.nats)
    if not any(map(str.isalnum, word.text)):
        return _Word(text, following.start_s, following.end_s, following.nats)
    return _Word(text, word.start_s, following.end_s, word.nats + following.nats)


def _joined_by_marks(words: list[_Word]) -> list[_Word]:
    """Words with the punctuation before and after them, at the words' own times."""
    joined: list[_Word] = []
    opening: _Word | None = None  # punctuation that waits for its word
    for word in words:
        mark = word.text.strip()
        if joined and opening is None and mark and not word.text.startswith(" ") and set(mark) <= _AFTER_A_WORD:
            joined[-1].text += word.text
        elif mark and set(mark) <= _BEFORE_A_WORD and word.text.startswith(" "):
            opening = _merged(opening, word) if opening is not None else word
        else:
            joined.append(_merged(opening, word) if opening is not None else word)
            opening = None
    return [*joined, opening] if opening is not None else joined


def _merged(mark: _Word, word: _Word) -> _Word:
    return _Word(mark.text + word.text.lstrip(), word.start_s, word.end_s, word.nats)


def _bounded(text: TimedText, words: list[_Word]) -> TimedText:
    """A segment with its words, which end where the model wrote that the text does, if attention says much later."""
    if not words:
        return text
    first, last = words[0], words[-1]
    if first.end_s > text.start_s and first.start_s < text.start_s - 0.5:
        first.start_s = text.start_s
    if last.start_s < text.end_s < last.end_s - 0.5:
        last.end_s = text.end_s
    timed = tuple(
        TimedWord(word.text, round(word.start_s, 2), round(max(word.start_s, word.end_s), 2), round(word.confidence, 4))
        for word in words
    )
    return text._replace(words=timed)
