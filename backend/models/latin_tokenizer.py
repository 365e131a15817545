"""A tokenizer of many scripts with the pieces of Latin and Greek alone in memory, and the tokens of the whole.

A Unigram model takes of its pieces only those that stand in the text, so one without the pieces of other scripts gives
a text of none of them the same tokens, and so does one made of the pieces that stand in a text of any script. The
bundled encoder's 250,002 pieces take 280 MB and a call that holds the interpreter lock for 0.6 to 0.9 s; the 120,000
without letters of other scripts take 105 MB (docs/engine.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer, models

from backend.errors import TooLarge
from backend.models.text_slices import SLICE_CHARS, is_unigram
from backend.word_cache import word_cache

_WORDS_KEPT = 4_096
# In a slice of a text: no language has half of it, and a tokenizer of more holds the interpreter lock for 0.2 s.
_MOST_PIECES = 65_536
_OVERLAP_CHARS = 64  # of two parts of a word: four times the longest piece
_SMALLEST_BYTES = 4_000_000  # of a tokenizer.json that is worth it: some 100,000 pieces
# Any character that may come from, or become under NFKC, one of another script than Latin and Greek. Signs, emoji and
# the private characters of fonts are of no script; a few signs stand for Hebrew letters or Chinese brackets.
OTHER_SCRIPTS = re.compile(
    "[^\x00-\u03ff\u1d00-\u1d77\u1d79-\u2134\u2139-\u2328\u232b-\u2bff\ue000-\uf8ff\ufb00-\ufb06\ufe0f\ufeff\ufffd"
    "\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"
)


class _PieceTable:
    """All pieces of a tokenizer with their scores, found by their hashes: 12 MB, where a dict has 38 more.

    The dict held the interpreter lock for 0.2 to 0.3 s when the first text of another script came. Of 250,002 hashes
    two are equal once in a billion runs.
    """

    def __init__(self, vocabulary: Sequence[tuple[str, float]]) -> None:
        pieces = [piece for piece, _ in vocabulary]
        encoded = [piece.encode() for piece in pieces]
        self._packed = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        self._scores = np.array([score for _, score in vocabulary])
        self._numbers = _Hashed(pieces, range(len(pieces)))
        longest = {piece[:2]: len(piece) for piece in sorted(pieces, key=len)}  # by its first two characters
        self._longest = _Hashed(list(longest), longest.values())

    def __len__(self) -> int:
        return len(self._scores)

    def piece(self, number: int) -> str:
        return self._packed[self._ends[number] : self._ends[number + 1]].decode()

    def number(self, piece: str) -> int | None:
        [number] = self._numbers.of([piece])
        return None if number < 0 else int(number)

    def rows(self, numbers: Sequence[int]) -> list[tuple[str, float]]:
        """As the library takes them."""
        return [(self.piece(number), float(self._scores[number])) for number in numbers]

    @cached_property
    def numbers_in(self) -> Callable[[str], tuple[int, ...]]:
        """Gives the numbers of all pieces that stand anywhere in a word.

        Knows no table: in a cycle it would stay in memory when its model is swapped, as the service freezes objects.
        """
        longest_of, numbers_of = self._longest.of, self._numbers.of

        @word_cache(_WORDS_KEPT)
        def numbers_in(word: str) -> tuple[int, ...]:
            longest = longest_of([word[start : start + 2] for start in range(len(word))])
            stops = np.minimum(np.arange(len(word)) + np.maximum(longest, 1), len(word)).tolist()
            pieces = [word[start : end + 1] for start, stop in enumerate(stops) for end in range(start, stop)]
            numbers = numbers_of(pieces)
            return tuple(np.unique(numbers[numbers >= 0]).tolist())

        return numbers_in


class _Hashed:
    """Numbers of texts, found by the texts' hashes; not negative. Of equal texts the last counts, as in a dict."""

    def __init__(self, texts: Sequence[str], numbers: Iterable[int]) -> None:
        hashes = _hashes(texts)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._numbers = hashes[order], np.fromiter(numbers, np.int32, len(texts))[order]

    def of(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """The number of each text; -1 for one that has none."""
        hashes = _hashes(texts)
        places = np.searchsorted(self._hashes, hashes, side="right") - 1  # -1 is the last, which differs
        return np.where(self._hashes[places] == hashes, self._numbers[places], -1)


def _hashes(texts: Sequence[str]) -> NDArray[np.int64]:
    """Of their UTF-8, for texts of one and of two bytes a character may have the same bytes in memory, and hash."""
    return np.fromiter(map(hash, map(str.encode, texts)), np.int64, len(texts))


@dataclass(frozen=True, slots=True)
class _Part:
    """A tokenizer of some of the pieces. ``kept``: the whole's id of each of them."""

    tokenizer: Tokenizer
    kept: NDArray[np.int64]

    def encoded(self, method: str, texts: Mapping[int, Any], specials: bool) -> dict[int, Encoding]:
        encodings = getattr(self.tokenizer, method)(list(texts.values()), add_special_tokens=specials)
        return {index: _renumbered(encoding, self.kept) for index, encoding in zip(texts, encodings, strict=True)}


class LatinTokenizer:
    """The pieces of Latin and Greek script, and for other texts those that stand in them; with the ids of the whole.

    Safe from any thread.

    Args:
        latin: has its ids in ascending order.
        base: of the special tokens and of the pieces for unknown characters alone.
        unknown: the index of the unknown token in ``base``.
    """

    def __init__(self, latin: _Part, base: _Part, unknown: int, table: _PieceTable) -> None:
        self.latin = latin
        self._base, self._unknown, self._table = base, unknown, table
        self._added = list(base.tokenizer.get_added_tokens_decoder().values())
        self._special = re.compile("|".join(re.escape(token.content) for token in self._added) or "(?!)")

    def encode_batch(self, texts: Sequence[Any], *, add_special_tokens: bool = True) -> list[Encoding]:
        """As of ``Tokenizer``, of texts or pairs of them."""
        return self._encoded("encode_batch", texts, add_special_tokens)

    def encode_batch_fast(self, texts: Sequence[Any], *, add_special_tokens: bool = True) -> list[Encoding]:
        """As of ``Tokenizer``: without offsets."""
        return self._encoded("encode_batch_fast", texts, add_special_tokens)

    def decode_batch(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool = True) -> list[str]:
        """As of ``Tokenizer``."""
        part, indices = self.latin, [self._latin_indices(ids) for ids in sequences]
        if any(-1 in row for row in indices):
            part = self._part_of(chain.from_iterable(sequences))
            index_of = {number: index for index, number in enumerate(part.kept.tolist())}
            indices = [[index_of[number] for number in ids if number in index_of] for ids in sequences]
        texts: list[str] = part.tokenizer.decode_batch(indices, skip_special_tokens=skip_special_tokens)
        return texts

    def token_to_id(self, token: str) -> int | None:
        """As of ``Tokenizer``."""
        if OTHER_SCRIPTS.search(token):
            return self._table.number(token)
        index = self.latin.tokenizer.token_to_id(token)
        return None if index is None else int(self.latin.kept[index])

    def id_to_token(self, number: int) -> str | None:
        """As of ``Tokenizer``."""
        [index] = self._latin_indices([number])
        if index >= 0:
            return self.latin.tokenizer.id_to_token(index)
        return self._table.piece(number) if 0 <= number < len(self._table) else None

    def _latin_indices(self, numbers: Sequence[int]) -> list[int]:
        """In the pieces of Latin and Greek script; -1 for others."""
        kept, ids = self.latin.kept, np.asarray(numbers, np.int64)
        indices = np.minimum(np.searchsorted(kept, ids), len(kept) - 1)
        found: list[int] = np.where(kept[indices] == ids, indices, -1).tolist()
        return found

    def _encoded(self, method: str, texts: Sequence[Any], specials: bool) -> list[Encoding]:
        others = {index: text for index, text in enumerate(texts) if _has_other_scripts(text)}
        latin = {index: text for index, text in enumerate(texts) if index not in others}
        encodings = self.latin.encoded(method, latin, specials)
        if others:
            words = set(chain.from_iterable(map(self._words, others.values())))
            numbers = set(chain.from_iterable(map(self._table.numbers_in, words)))
            if len(numbers) > _MOST_PIECES:
                advice = "Write it with blanks or line breaks, or send it in parts."
                raise TooLarge("different tokens of a text", len(numbers), _MOST_PIECES, "fixed", advice=advice)
            encodings |= self._part_of(numbers).encoded(method, others, specials)
        return [encodings[index] for index in range(len(texts))]

    def _part_of(self, numbers: Iterable[int]) -> _Part:
        """Of these pieces and the base's."""
        base, table = self._base, self._table
        kept = base.kept.tolist()
        kept += sorted(number for number in set(numbers).difference(kept) if number < len(table))
        tokenizer = Tokenizer(models.Unigram(table.rows(kept), self._unknown))
        for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            setattr(tokenizer, part, getattr(base.tokenizer, part))
        tokenizer.add_tokens(self._added)
        return _Part(tokenizer, np.array(kept, np.int64))

    def _words(self, text: str | tuple[str, str]) -> Iterator[str]:
        """The words that the model reads; a word of more than SLICE_CHARS comes in parts that overlap.

        Normalising holds the interpreter lock: 0.3 s for a million characters at once.
        """
        for whole in [text] if isinstance(text, str) else text:
            for start in range(0, len(whole), SLICE_CHARS):
                part = self._special.sub(" ", whole[start : start + SLICE_CHARS + _OVERLAP_CHARS])
                blanks = self._base.tokenizer.normalizer.normalize_str(part).replace("\u2581", " ")
                yield from map("\u2581".__add__, blanks.split(" "))


class _Renumbered:
    """An encoding whose ids are the whole tokenizer's."""

    def __init__(self, encoding: Encoding, kept: NDArray[np.int64]) -> None:
        self._encoding, self._kept = encoding, kept

    @property
    def ids(self) -> list[int]:
        numbers: list[int] = self._kept[self._encoding.ids].tolist()
        return numbers

    @property
    def overflowing(self) -> list[Encoding]:
        return [_renumbered(part, self._kept) for part in self._encoding.overflowing]

    def __len__(self) -> int:
        return len(self._encoding)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoding, name)


def _renumbered(encoding: Encoding, kept: NDArray[np.int64]) -> Encoding:
    return cast("Encoding", _Renumbered(encoding, kept))  # the library's class cannot be made


def _has_other_scripts(text: str | tuple[str, str]) -> bool:
    return any(OTHER_SCRIPTS.search(part) for part in ([text] if isinstance(text, str) else text))


def read_tokenizer(file: Path) -> Tokenizer | LatinTokenizer:
    """The tokenizer without truncation and padding; in two parts where it is large and of the bundled one's kind.

    Raises: Exception of the library for a file that is no tokenizer; OSError.
    """
    in_parts = _in_parts(file) if file.stat().st_size >= _SMALLEST_BYTES else None
    return in_parts or _without_padding(Tokenizer.from_file(str(file)))


def _without_padding(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _in_parts(file: Path) -> LatinTokenizer | None:
    """None for a tokenizer of another kind."""
    content = json.loads(file.read_bytes())
    model, template = content["model"], content.get("post_processor") or {}
    if model.get("type") != "Unigram" or model.get("byte_fallback") or template.get("type") != "TemplateProcessing":
        return None
    vocabulary, added = model["vocab"], content["added_tokens"]
    if not all(token["id"] < len(vocabulary) and token["content"] == vocabulary[token["id"]][0] for token in added):
        return None
    least = min(range(len(vocabulary)), key=lambda number: vocabulary[number][1])  # what unknown characters score by
    framing = chain.from_iterable(token["ids"] for token in template["special_tokens"].values())
    base_kept = sorted({least, model["unk_id"], *(token["id"] for token in added), *framing})
    latin = {number for number, (piece, _) in enumerate(vocabulary) if not OTHER_SCRIPTS.search(piece)}
    kept = sorted(latin.union(base_kept))
    part = _with_pieces(content, kept)
    if not is_unigram(part.tokenizer):
        return None
    base, unknown = _with_pieces(content, base_kept), base_kept.index(model["unk_id"])
    return LatinTokenizer(part, base, unknown, _PieceTable(vocabulary))


def _with_pieces(content: dict[str, Any], kept: Sequence[int]) -> _Part:
    """A tokenizer.json's, with these of its pieces alone, numbered from 0."""
    index_of = {number: index for index, number in enumerate(kept)}
    model, template = content["model"], content["post_processor"]
    special = {
        name: token | {"ids": [index_of[number] for number in token["ids"]]}
        for name, token in template["special_tokens"].items()
    }
    reduced = content | {
        "model": model | {"vocab": [model["vocab"][number] for number in kept], "unk_id": index_of[model["unk_id"]]},
        "added_tokens": [token | {"id": index_of[token["id"]]} for token in content["added_tokens"]],
        "post_processor": template | {"special_tokens": special},
    }
    tokenizer = _without_padding(Tokenizer.from_str(json.dumps(reduced, ensure_ascii=False)))
    return _Part(tokenizer, np.array(kept, np.int64))
