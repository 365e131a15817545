"""Where a long text may be cut so that the tokens of its slices, one after the other, are those of the whole.

Two kinds of tokenizers are cut. BERT's (lower or mixed case, WordPiece after BERT's normalizer and pre-tokenizer) read
a text character by character and word by word, so no word depends on its neighbours. The bundled encoder's (Unigram
over words that begin with their blank, after NFKC) is cut before a blank that follows a letter, a digit or a mark of
ASCII: none of these has a normal form that ends in a blank, so no run of blanks, which becomes one, is cut. A word
without a blank, and text of scripts that write none, stays whole. So do all texts of other tokenizers: byte-level BPE
puts words together with blanks, and character maps of SentencePiece may do anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

SLICE_CHARS: Final = 65_536  # tens of milliseconds of a thread, of which 10 ms hold the interpreter lock

# After blanks, whatever follows; between two ideographs; after an ASCII punctuation mark before another ASCII character
# that is no blank: each of these ends a word for BERT's pre-tokenizer, whatever stands around.
_BERT_CUT = re.compile(r"[ \t\n\r]+|(?<=[\u4e00-\u9fff])(?=[\u4e00-\u9fff])|(?<=[!-/:-@\[-`{-~])(?=[!-~])")
_UNIGRAM_CUT = re.compile(r"(?=[ \t\n\r])(?<=[\w!-~])")  # blanks first: half the time where there are none
# As the bundled tokenizer.json has them; tokenizers shows its parts in this form alone.
UNIGRAM_NORMALIZER = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Nmt"},
        {"type": "NFKC"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ],
}
UNIGRAM_WORDS = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}


@dataclass(frozen=True, slots=True)
class TextSlicer:
    """Finds the places where a tokenizer's texts may be cut."""

    special: tuple[str, ...] = ()  # texts that are one token wherever they stand: never cut
    reach: int = 0  # of the longest of them
    cut: re.Pattern[str] | None = None  # matches end where a text may be cut; None leaves every text whole

    def slices(self, text: str, size: int = SLICE_CHARS, start: int = 0) -> Iterator[tuple[int, int]]:
        """First and past-last character of each slice from ``start`` on, at least ``size`` long except for the last."""
        while start < len(text):
            stop = self.cut_after(text, start + size)
            yield start, stop
            start = stop

    def cut_after(self, text: str, position: int) -> int:
        """The first place at or after ``position`` where the text may be cut; its end where there is none."""
        while self.cut is not None and position < len(text):
            match = self.cut.search(text, position)
            if match is None:
                break
            if not self._splits_special(text, match.end()):
                return match.end()
            position = match.end() + 1
        return len(text)

    def _splits_special(self, text: str, place: int) -> bool:
        around = text[max(0, place - self.reach) : place + self.reach]
        middle = min(place, self.reach)
        return any(
            around.find(special, max(0, middle - len(special) + 1), middle + len(special) - 1) >= 0
            for special in self.special
        )


def slicer_of(tokenizer: Tokenizer) -> TextSlicer:
    """The slicer for a tokenizer; one that never cuts for kinds whose words depend on their neighbours."""
    added = list(tokenizer.get_added_tokens_decoder().values())
    cut = _BERT_CUT if _is_bert(tokenizer) else _UNIGRAM_CUT if is_unigram(tokenizer) else None
    # A token that takes the blanks before it stays with them where texts are cut before blanks only.
    takes_blanks = any(token.rstrip or (token.lstrip and cut is not _UNIGRAM_CUT) for token in added)
    if takes_blanks or any(token.normalized or token.single_word or re.search(r"\s", token.content) for token in added):
        return TextSlicer()
    special = tuple(token.content for token in added)
    return TextSlicer(special, max(map(len, special), default=0), cut)


def _is_bert(tokenizer: Tokenizer) -> bool:
    return (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
        and tokenizer.normalizer.handle_chinese_chars
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
    )


def is_unigram(tokenizer: Tokenizer) -> bool:
    """Whether it is of the bundled encoder's kind."""
    return (
        isinstance(tokenizer.model, models.Unigram)
        and _settings(tokenizer.normalizer) == UNIGRAM_NORMALIZER
        and _settings(tokenizer.pre_tokenizer) == UNIGRAM_WORDS
    )


def _settings(part: normalizers.Normalizer | pre_tokenizers.PreTokenizer | None) -> object:
    return None if part is None else json.loads(part.__getstate__())
