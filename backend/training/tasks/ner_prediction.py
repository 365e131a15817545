"""Turns tagged sentences into token classifier inputs, and predicts tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from backend.models.tokenizer import TextTokenizer, TokenPiece
from backend.models.words import Ids, Offsets, word_of_pieces, word_places, word_spellings
from backend.training.data.batches import batches_within_budget, model_inputs, pad, to_model_device, windows
from backend.training.data.conll import OUTSIDE, Sentence, detokenize
from backend.training.losses import IGNORED
from backend.training.tasks.pretrained import special_ids

_SENTENCES_PER_CALL = 1024  # of the tokenizer; bounds the memory of the pieces


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence, or a window of one, as model input. All sequences have the same length."""

    ids: Sequence[int]
    words: Sequence[int]  # at each position: the index of the word it is the first piece of, or -100
    labels: Sequence[int]  # at each position: the label id of the word that begins there, or -100
    types: Sequence[int]  # at each position: how its word is written (models/words.py)
    uppercase_types: Sequence[int]  # the same for the text in upper case
    sentence: int  # index


def sentence_rows(sentences: Sequence[Sentence], tokenizer: TextTokenizer, labels: Sequence[str]) -> list[Row]:
    """Each sentence as one row, or as several windows where it is too long for the model."""
    label_ids = {label: number for number, label in enumerate(labels)}
    before, after = special_ids(tokenizer)
    max_pieces = tokenizer.max_tokens - len(before) - len(after)

    def with_special_tokens(values: Sequence[int], pad_id: int) -> list[int]:
        return [*([pad_id] * len(before)), *values, *([pad_id] * len(after))]

    rows: list[Row] = []
    for first in range(0, len(sentences), _SENTENCES_PER_CALL):
        chunk = sentences[first : first + _SENTENCES_PER_CALL]
        laid_out = [detokenize(sentence.words) for sentence in chunk]
        pieces = tokenizer.pieces([text for text, _ in laid_out], add_special_tokens=False)
        for index, (sentence, (text, spans), row) in enumerate(zip(chunk, laid_out, pieces, strict=True)):
            words, (types, uppercase_types) = first_pieces(row, text, spans), _spellings(row, text)
            tags = _piece_tags(row, text, words, sentence.tags)
            for window in windows(len(row), max_pieces):
                window_slice = slice(window.start, window.stop)
                own = range(window.own_start - window.start, window.own_stop - window.start)
                own_words = [word if place in own else IGNORED for place, word in enumerate(words[window_slice])]
                own_tags = [tag if place in own else "" for place, tag in enumerate(tags[window_slice])]
                ids = [*before, *(piece.id for piece in row[window_slice]), *after]
                numbers = with_special_tokens(own_words, IGNORED)
                targets = with_special_tokens([label_ids[tag] if tag else IGNORED for tag in own_tags], IGNORED)
                spelling = with_special_tokens(types[window_slice], 0)
                uppercase = with_special_tokens(uppercase_types[window_slice], 0)
                rows.append(Row(ids, numbers, targets, spelling, uppercase, sentence=first + index))
    return rows


def first_pieces(pieces: Sequence[TokenPiece], text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece the index of the word that it is the first piece of, or -100.

    A piece belongs to the word of its first character that is not a space. A word that shares its only piece with
    the previous word has none.
    """
    word_at = [IGNORED] * len(text)
    for number, (start, stop) in enumerate(spans):
        word_at[start:stop] = [number] * (stop - start)
    owners, last = [], -1
    for piece in pieces:
        start, stop = piece.start or 0, piece.stop or 0
        word = next((word_at[position] for position in range(start, stop) if word_at[position] != IGNORED), IGNORED)
        is_first = word > last
        owners.append(word if is_first else IGNORED)
        last = word if is_first else last
    return owners


def _piece_tags(pieces: Sequence[TokenPiece], text: str, words: Sequence[int], tags: Sequence[str]) -> list[str]:
    """The tag that each piece is taught, "" for none: those that begin a word of the data, or a word of serving.

    Serving cuts some words of the data ("Ltd.", "C/"), and reads a label from each part: an I- inside of a name.
    """
    numbers = word_of_pieces(_offsets(pieces), word_places(text), len(text))
    begins = set(np.unique(numbers, return_index=True)[1][int((numbers < 0).any()) :].tolist())
    taught, inside = [], OUTSIDE
    for place, word in enumerate(words):
        if word != IGNORED:
            taught.append(tags[word])
            inside = f"I{tags[word][1:]}" if tags[word] != OUTSIDE else OUTSIDE
        else:
            taught.append(inside if place in begins else "")
    return taught


def _offsets(pieces: Sequence[TokenPiece]) -> Offsets:
    return np.array([(piece.start or 0, piece.stop or 0) for piece in pieces], np.int64).reshape(-1, 2)


def _spellings(pieces: Sequence[TokenPiece], text: str) -> tuple[list[int], list[int]]:
    """The spelling type of each piece's word, as is and in upper case; words are split as in serving."""
    words = word_places(text)
    numbers = word_of_pieces(_offsets(pieces), words, len(text))

    def of_pieces(spellings: Ids) -> list[int]:
        of_each_piece: list[int] = np.append(spellings, 0)[numbers].tolist()  # -1, no word, takes the last
        return of_each_piece

    return of_pieces(word_spellings(text, words)), of_pieces(word_spellings(_uppercase(text), words))


def _uppercase(text: str) -> str:
    """Upper case of the same length: "ß", which would become two characters, stays."""
    return "".join(upper if len(upper := character.upper()) == 1 else character for character in text)


@torch.no_grad()
def predict(
    model: nn.Module,
    rows: Sequence[Row],
    sentences: Sequence[Sentence],
    labels: Sequence[str],
    *,
    pad_id: int,
    uses_spelling: bool,
) -> list[list[str]]:
    """A tag for each word of the sentences; O for words without a token."""
    tags = [[OUTSIDE] * len(sentence.words) for sentence in sentences]
    for group in batches_within_budget([len(row.ids) for row in rows]):
        batch_rows = [rows[index] for index in group]
        types = [row.types for row in batch_rows] if uses_spelling else None
        inputs = to_model_device(model, row_inputs(batch_rows, pad_id, types))
        predicted_ids: Tensor = model(**inputs).logits.argmax(-1).cpu()
        for row, label_ids in zip(batch_rows, predicted_ids.tolist(), strict=True):
            for word, label_id in zip(row.words, label_ids, strict=False):  # label_ids include padding
                if word != IGNORED:
                    tags[row.sentence][word] = labels[label_id]
    return tags


def row_inputs(rows: Sequence[Row], pad_id: int, types: Sequence[Sequence[int]] | None) -> dict[str, Tensor]:
    """Model inputs, each (batch, longest); with ``token_type_ids`` where ``types`` are given."""
    inputs = model_inputs([row.ids for row in rows], pad_id)
    return inputs if types is None else {**inputs, "token_type_ids": pad(types, 0)}
