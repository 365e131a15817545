"""Sentences as a token classifier sees them: sub-words, the word each answers for, how it is written, its tag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.models.spelling import Ids, word_spellings
from backend.models.tokenizer import TextTokenizer, TokenPiece
from backend.models.words import word_of_pieces, word_places
from backend.training.data.conll import Sentence, as_text
from backend.training.data.text_batches import windows
from backend.training.losses import IGNORED
from backend.training.tasks.pretrained import special_ids

_TOKENIZED_AT_ONCE = 1024  # sentences; bounds the memory of their pieces


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence, or a window of one, as the model sees it. Equally long but for ``sentence``."""

    ids: Sequence[int]
    words: Sequence[int]  # of each position: the word it answers for, or -100
    labels: Sequence[int]  # of each position: the number of its word's tag, or -100
    types: Sequence[int]  # of each position: how its word is written (models/spelling.py)
    shouted: Sequence[int]  # the same, were the text all in capitals
    sentence: int


def sentence_rows(sentences: Sequence[Sentence], tokenizer: TextTokenizer, labels: Sequence[str]) -> list[Row]:
    """Every sentence as one row, or as windows where it is too long for the model."""
    numbers = {label: number for number, label in enumerate(labels)}
    before, after = special_ids(tokenizer)
    room = tokenizer.max_tokens - len(before) - len(after)

    def framed(values: Sequence[int], filling: int) -> list[int]:
        return [*([filling] * len(before)), *values, *([filling] * len(after))]

    rows: list[Row] = []
    for first in range(0, len(sentences), _TOKENIZED_AT_ONCE):
        some = sentences[first : first + _TOKENIZED_AT_ONCE]
        laid = [as_text(one.words) for one in some]
        pieces = tokenizer.pieces([text for text, _ in laid], add_special_tokens=False)
        for place, (one, (text, places), row) in enumerate(zip(some, laid, pieces, strict=True)):
            words, (types, shouted) = first_pieces(row, text, places), _spellings(row, text)
            for window in windows(len(row), room):
                part = slice(window.start, window.stop)
                own = framed(
                    [
                        word if window.own_start <= at < window.own_stop else IGNORED
                        for at, word in enumerate(words[part], start=window.start)
                    ],
                    IGNORED,
                )
                ids = [*before, *(piece.id for piece in row[part]), *after]
                tags = [IGNORED if word == IGNORED else numbers[one.tags[word]] for word in own]
                spelt = framed(types[part], 0), framed(shouted[part], 0)
                rows.append(Row(ids, own, tags, *spelt, sentence=first + place))
    return rows


def first_pieces(pieces: Sequence[TokenPiece], text: str, places: Sequence[tuple[int, int]]) -> list[int]:
    """Of each piece: the word that it is the first piece of, or -100.

    A piece belongs to the word of its first character that is not a space; a word that shares its only piece with
    the word before has none of its own.
    """
    word_at = [IGNORED] * len(text)
    for number, (start, stop) in enumerate(places):
        word_at[start:stop] = [number] * (stop - start)
    owners, last = [], -1
    for piece in pieces:
        start, stop = piece.start or 0, piece.stop or 0
        word = next((word_at[at] for at in range(start, stop) if word_at[at] != IGNORED), IGNORED)
        fresh = word > last
        owners.append(word if fresh else IGNORED)
        last = word if fresh else last
    return owners


def _spellings(pieces: Sequence[TokenPiece], text: str) -> tuple[list[int], list[int]]:
    """How the word of each piece is written, and would be in capitals: by the words that serving sees."""
    words = word_places(text)
    places = np.array([(piece.start or 0, piece.stop or 0) for piece in pieces], np.int64).reshape(-1, 2)
    numbers = word_of_pieces(places, words, len(text))

    def of_pieces(spellings: Ids) -> list[int]:
        found: list[int] = np.append(spellings, 0)[numbers].tolist()  # -1, of no word: the last
        return found

    return of_pieces(word_spellings(text, words)), of_pieces(word_spellings(_shouted(text), words))


def _shouted(text: str) -> str:
    """In capitals, every character at its place: "ß" would become two."""
    return "".join(high if len(high := one.upper()) == 1 else one for one in text)
