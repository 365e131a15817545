"""Where a long text may be cut so that the tokens of its slices, one after the other, are those of the whole.

Only BERT's tokenizers are cut (lower or mixed case, WordPiece after BERT's normalizer and pre-tokenizer): they read a
text character by character and word by word, so no word depends on its neighbours. SentencePiece merges blanks and
byte-level BPE puts a word's blank into it: their texts stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

SLICE_CHARS: Final = 65_536  # tens of milliseconds of a thread, of which 10 ms hold the interpreter lock

# After blanks, whatever follows; between two ideographs; after an ASCII punctuation mark before another ASCII character
# that is no blank: each of these ends a word for BERT's pre-tokenizer, whatever stands around.
_CUT = re.compile(r"[ \t\n\r]+|(?<=[\u4e00-\u9fff])(?=[\u4e00-\u9fff])|(?<=[!-/:-@\[-`{-~])(?=[!-~])")


@dataclass(frozen=True, slots=True)
class TextSlicer:
    """Finds the places where a tokenizer's texts may be cut."""

    special: tuple[str, ...] = ()  # texts that are one token wherever they stand: never cut
    reach: int = 0  # of the longest of them
    cuts: bool = True  # False leaves every text whole

    def slices(self, text: str, size: int = SLICE_CHARS, start: int = 0) -> Iterator[tuple[int, int]]:
        """First and past-last character of each slice from ``start`` on, at least ``size`` long except for the last."""
        while start < len(text):
            stop = self.cut_after(text, start + size)
            yield start, stop
            start = stop

    def cut_after(self, text: str, position: int) -> int:
        """The first place at or after ``position`` where the text may be cut; its end where there is none."""
        while self.cuts and position < len(text):
            match = _CUT.search(text, position)
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
    is_bert = (
        isinstance(tokenizer.model, models.WordPiece)
        and isinstance(tokenizer.normalizer, normalizers.BertNormalizer)
        and tokenizer.normalizer.handle_chinese_chars
        and isinstance(tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
    )
    if not is_bert or any(
        token.normalized or token.lstrip or token.rstrip or token.single_word or re.search(r"\s", token.content)
        for token in added
    ):
        return TextSlicer(cuts=False)
    special = tuple(token.content for token in added)
    return TextSlicer(special, max(map(len, special), default=0))
