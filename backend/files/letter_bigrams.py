"""Frequencies of letter bigrams in languages of Latin script, to tell text from a scrambled text layer.

A font with a wrong map to Unicode yields plausible letters of no language, which every other check accepts. Bigrams
reveal it whatever the language: held out one at a time, twelve languages score at least 4.4 on every 100 characters,
and letters that were swapped at random at most 3.8.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

# Row: the first letter, column: the second, a to z, accents off. A digit is 9 + log2 of the share of the second after
# the first, rounded, at least 0: the mean of Spanish, English, Catalan, Galician, Basque, Portuguese, French, German,
# Italian, Swedish, Dutch and Romanian. tests/files/test_letter_bigrams.py recomputes it from public texts.
TABLE = (
    "33451342414646230656430112",
    "73007001620510500632500030",
    "70306006604401700314500000",
    "60018000600100600321500000",
    "42443242403547221765331203",
    "60016520700400700625500010",
    "61027033600404610644600010",
    "70007000601313600414400020",
    "52545340233547531466240203",
    "70036220305305710120620003",
    "60006013603433700445520020",
    "71147121611620600044520030",
    "74017000600042650021400000",
    "61466352502104500057420022",
    "33443331302557440664532101",
    "70007003500500740733500000",
    "00000000200000000000910000",
    "72347131602244611445421011",
    "61516113604331641057510000",
    "70007015600200600644501114",
    "53436231502557140655021203",
    "70007000700100600310210000",
    "70127005700203600131300010",
    "61417002700000560005420220",
    "62546241402455640464200020",
    "72007000704010500004603013",
)
_FIRST, _LAST = "a", "z"


class BigramScore(NamedTuple):
    """The mean table digit of a text's bigrams (about 5.4 in a language, 2.4 by chance), and how many there are."""

    mean: float
    total: int


def score_bigrams(text: str) -> BigramScore:
    """How common the letter bigrams of a text are. Letters of other scripts are ignored."""
    folds = {ord(character): _folded(character) for character in set(text)}  # some eighty, of thousands of characters
    plain = text.translate(folds)
    total = count = 0
    for (first, second), times in Counter(pairwise(plain)).items():
        if _FIRST <= first <= _LAST and _FIRST <= second <= _LAST:
            total += int(TABLE[ord(first) - 97][ord(second) - 97]) * times
            count += times
    return BigramScore(total / count if count else 0.0, count)


def _folded(character: str) -> str:
    """Lower case without accents; empty for a lone accent."""
    decomposed = unicodedata.normalize("NFKD", character.lower())
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))
