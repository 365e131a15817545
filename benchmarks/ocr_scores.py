"""OCR metrics: character error rate and word recall against the ground truth."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

_EDGES = ".,;:!?()[]{}\"'*-_«»“”|\u2018\u2019"  # punctuation stripped from words


@dataclass(frozen=True, slots=True)
class Score:
    """Edit distance and word matches of one page."""

    edits: int  # character insertions, deletions and replacements
    characters: int  # of the ground truth
    found_words: int  # words of the ground truth in the OCR text, with multiplicity
    words: int  # of the ground truth

    @property
    def cer(self) -> float:
        """Character error rate: edits per character of the ground truth; may exceed 1.0."""
        return self.edits / max(1, self.characters)

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
    truth_words = words(truth)
    return Score(
        edits=Levenshtein.distance(ocr_text, truth_text),
        characters=len(truth_text),
        found_words=(words(ocr_raw) & truth_words).total(),
        words=truth_words.total(),
    )


def plain(text: str) -> str:
    """NFC-normalized text with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> Counter[str]:
    """Counts of the words, casefolded and without punctuation at their ends."""
    return Counter(word for token in plain(text).casefold().split() if (word := token.strip(_EDGES)))


def summed(scores: Sequence[Score]) -> dict[str, float]:
    """Metrics of a data set: means over its pages."""
    return {
        "cer": sum(score.cer for score in scores) / len(scores),
        "recall": sum(score.recall for score in scores) / len(scores),
    }
