"""Finds printed labels ("Nº factura", "Base imponible", "Bill to") in the rows of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from backend.abandoned import require_wanted
from backend.files.pages import Word
from backend.files.visual_rows import Cell
from backend.text.patterns.folding import fold
from backend.word_cache import word_cache

_LETTERS = re.compile(r"[^\W_]+")
_GLUED = re.compile(r"(?<=^[^\W\d_]{3})(?=\d)|(?<=^[^\W\d_]{4})(?=\d)")  # "IRPF7%", "IVA21%": a label and its number
_distance = Levenshtein.distance
_LONG_WORD = 5  # letters; a shorter word with a slip is another word
_LONG = 6  # letters; OCR's slips are forgiven in phrases as long as that:
_LETTERS_A_SLIP = 6  # one for so many of them
_KEPT_CELLS = 1024  # with their labels, a vocabulary
_MAX_TOKENS = 14  # of a phrase as printed: letter-spaced words come in pieces


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """A label in a cell."""

    label: str  # the key of the vocabulary: usually a field's name
    phrase: str  # of the vocabulary
    cell: Cell
    first: int  # index of its first word in the cell
    last: int  # index after its last word

    @property
    def words(self) -> tuple[Word, ...]:
        return self.cell.words[self.first : self.last]

    @property
    def rest(self) -> tuple[Word, ...]:
        """The words of the cell after the label."""
        return self.cell.words[self.last :]


@word_cache(4096)
def tokens_of(text: str) -> tuple[str, ...]:
    """Letters and digits of a text without accents, in lower case: ("n", "factura") of "Nº Factura:".

    Ordinal signs and points vanish: "N.º", "Nº", "No." are ("n",) or ("no",).
    """
    return tuple(_LETTERS.findall(fold(text).text.lower().replace("º", "").replace("ª", "")))


@word_cache(4096)
def _pieces_of(word: str) -> tuple[str, ...]:
    """The tokens of a word, with a short label parted from the number it is glued to."""
    return tuple(piece for token in tokens_of(word) for piece in _GLUED.split(token, maxsplit=1))


class Vocabulary:
    """Labels by phrases. The longest phrase that matches at a place counts.

    Phrases are compared without accents, capitals, punctuation and spaces: "N.º  FACTURA", "Nºfactura" and the
    letter-spaced "F A C T U R A" are what they say.

    Args:
        phrases: label -> its phrases, in any language.
    """

    def __init__(self, phrases: Mapping[str, Iterable[str]]) -> None:
        self._exact: dict[str, tuple[str, str]] = {}
        for label, texts in phrases.items():
            for phrase in texts:
                self._exact.setdefault("".join(tokens_of(phrase)), (label, phrase))
        self._longest: dict[str, int] = {}  # letters, by the first one
        for key in self._exact:
            self._longest[key[0]] = max(len(key), self._longest.get(key[0], 0))
        # Long ones by first letter, length as read and, where a letter is missing or too many, by last letter: there a
        # difference is another word, or the next one's beginning.
        self._near: dict[tuple[str, int, str], list[str]] = {}
        for key in sorted((key for key in self._exact if len(key) >= _LONG), key=len):
            size = len(key)
            for read, last in ((size, ""), (size - 1, key[-1]), (size + 1, key[-1])):
                self._near.setdefault((key[0], read, last), []).append(key)
        self._in_words = word_cache(_KEPT_CELLS)(self._read)  # one rule after another asks for a cell's

    def find(self, cell: Cell) -> list[LabelMatch]:
        """The labels in a cell, left to right, without overlaps. Raises: CallerGone once nobody waits for them."""
        require_wanted()
        found = self._in_words("\n".join([word.text for word in cell.words]))
        return [LabelMatch(label, phrase, cell, first, last) for label, phrase, first, last in found]

    def _read(self, words: str) -> tuple[tuple[str, str, int, int], ...]:
        """The labels in some lines of a word each: label, phrase, index of its first word and after its last."""
        pieces = [(piece, index) for index, word in enumerate(words.split("\n")) for piece in _pieces_of(word)]
        tokens = [token for token, _ in pieces]
        found: list[tuple[str, str, int, int]] = []
        position = 0
        while position < len(tokens):
            match = self._at(tokens, position) if tokens[position][0] in self._longest else None
            if match is None:
                position += 1
                continue
            count, label, phrase = match
            found.append((label, phrase, pieces[position][1], pieces[position + count - 1][1] + 1))
            position += count
        return tuple(found)

    def _at(self, tokens: Sequence[str], start: int) -> tuple[int, str, str] | None:
        """The longest phrase that begins with a token: how many it takes, its label, itself."""
        best: tuple[int, str, str] | None = None
        longest = self._longest[tokens[start][0]] + 1
        joined = ""
        for count, token in enumerate(tokens[start : start + _MAX_TOKENS], 1):
            joined += token
            if len(joined) > longest:
                break
            key = joined if joined in self._exact else None
            if key is None and len(joined) >= _LONG:
                key = self._misread(joined, tokens[start : start + count])
            if key is not None:
                best = (count, *self._exact[key])
        return best

    def _misread(self, joined: str, tokens: Sequence[str]) -> str | None:
        """The first of the phrases that some letters must be, with few of them misread; None where none is near."""
        first, size = joined[0], len(joined)
        most = max(1, size // _LETTERS_A_SLIP)
        for key in self._near.get((first, size, ""), []) + self._near.get((first, size, joined[-1]), []):
            if _distance(key, joined, score_cutoff=most) <= most and self._is_slip(key, tokens):
                return key
        return None

    def _is_slip(self, key: str, tokens: Sequence[str]) -> bool:
        """Whether a phrase was misread, and not another one printed."""
        return _short_words_agree(tokens_of(self._exact[key][1]), tokens)


def _short_words_agree(expected: Sequence[str], read: Sequence[str]) -> bool:
    """Whether no short word was taken for another: "Total incl. GST" is not "Total excl. GST"."""
    if any(token.isdigit() and token not in expected for token in read):
        return False  # "Total 6%" is not "Totale"
    if len(expected) != len(read):
        return True
    return all(a == b or min(len(a), len(b)) >= _LONG_WORD for a, b in zip(expected, read, strict=True))
