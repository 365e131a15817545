"""OCR metrics: character error rate, with and without the order of a page, and word recall against the ground truth."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

_PASSAGE = 3  # letters of a passage that may stand anywhere; shorter ones are there by chance
_SPACE = ord(" ")
_TAKEN = (-1, -2)  # letters of a passage that was found, in one text and the other
_EDGES = ".,;:!?()[]{}\"'*-_«»“”|\u2018\u2019"  # punctuation stripped from words


@dataclass(frozen=True, slots=True)
class Score:
    """Edit distance and word matches of one page."""

    edits: int  # character insertions, deletions and replacements
    characters: int  # of the ground truth
    found_words: int  # words of the ground truth in the OCR text, with multiplicity
    words: int  # of the ground truth
    order_free_edits: int  # those that no other order of the page would spare

    @property
    def cer(self) -> float:
        """Character error rate: edits per character of the ground truth; may exceed 1.0."""
        return self.edits / max(1, self.characters)

    @property
    def order_free_cer(self) -> float:
        """What is left of ``cer`` when the passages of the page are read in the ground truth's order."""
        return self.order_free_edits / max(1, self.characters)

    @property
    def recall(self) -> float:
        return self.found_words / max(1, self.words)


def score(ocr_raw: str, truth: str, *, folds_case: bool = False) -> Score:
    """Compare two texts; white space, line breaks and Unicode composition (NFC) are ignored.

    Args:
        folds_case: for ground truth in upper case. Words are always compared without case.
    """
    ocr_text, truth_text = plain(ocr_raw), plain(truth)
    if folds_case:
        ocr_text, truth_text = ocr_text.casefold(), truth_text.casefold()
    truth_words, in_order = words(truth), Levenshtein.distance(ocr_text, truth_text)
    return Score(
        edits=in_order,
        characters=len(truth_text),
        found_words=(words(ocr_raw) & truth_words).total(),
        words=truth_words.total(),
        order_free_edits=min(in_order, order_free_edits(ocr_text, truth_text)),
    )


def plain(text: str) -> str:
    """NFC-normalized text with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> Counter[str]:
    """Counts of the words, casefolded and without punctuation at their ends."""
    return Counter(word for token in plain(text).casefold().split() if (word := token.strip(_EDGES)))


def order_free_edits(first: str, second: str) -> int:
    """Letters in no passage that both texts have, wherever it stands: of the text that has more of them.

    Spaces between passages may stand anywhere, too; only how many are left counts.

    Source: greedy string tiling (Wise, 1993): the longest common passages first, none shorter than `_PASSAGE`.
    """
    one, other = (_code_points(text).astype(np.int64) if text else np.zeros(0, np.int64) for text in (first, second))
    while passages := _common_passages(one, other):
        for length, one_end, other_end in sorted(passages, key=lambda passage: -passage[0]):
            here, there = slice(one_end - length, one_end), slice(other_end - length, other_end)
            if one[here].min() >= 0 and other[there].min() >= 0:
                one[here], other[there] = _TAKEN
    letters = max(int((left > _SPACE).sum()) for left in (one, other))
    return letters + abs(int((one == _SPACE).sum()) - int((other == _SPACE).sum()))


def _common_passages(one: NDArray[np.int64], other: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Those that cannot be longer: length, and where each ends in both. Letters below 0 are in none."""
    passages = []
    lengths = np.zeros(len(other) + 2, np.int64)  # of the passage up to each letter; the last cell stays 0
    for end in range(len(one) + 1):
        longer = np.zeros_like(lengths)
        if end < len(one):
            longer[1:-1] = np.where(other == one[end], lengths[:-2] + 1, 0)
        ends = np.flatnonzero((lengths[:-1] >= _PASSAGE) & (longer[1:] == 0))
        passages += [(int(lengths[other_end]), end, int(other_end)) for other_end in ends]
        lengths = longer
    return passages


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def summed(scores: Sequence[Score]) -> dict[str, float]:
    """Metrics of a data set: means over its pages, and ``…_micro`` over all characters and words."""
    characters, words = sum(score.characters for score in scores), sum(score.words for score in scores)
    return {
        "cer": sum(score.cer for score in scores) / len(scores),
        "order_free_cer": sum(score.order_free_cer for score in scores) / len(scores),
        "recall": sum(score.recall for score in scores) / len(scores),
        "cer_micro": sum(score.edits for score in scores) / max(1, characters),
        "recall_micro": sum(score.found_words for score in scores) / max(1, words),
    }
