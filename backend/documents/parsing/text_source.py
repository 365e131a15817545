"""Whether a page's text comes from its own layer or from OCR, and why. Pure: cheap numbers in, a decision out."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from backend.documents.pages import Source
from backend.documents.parsing.letter_pairs import PairScore, score_pairs
from backend.documents.parsing.records import LayerStats, TextLayer

SourceWish = Literal["auto", "text_layer", "ocr"]

_FEW_CHARACTERS = 10  # Tika's number: less is a page number or a stamp
_STAMPED = 100  # visible characters on a scan: a header that a scanner or a court puts on it, not its text
_SCAN_RATIO = 0.5  # of the page under images
_UNMAPPED_RATIO = 0.1  # of glyphs; bullets and arrows of symbol fonts stay below
_REPLACED_RATIO = 0.05  # of characters
_ODD_RATIO = 0.3  # of characters that are no letters, digits or punctuation
_LEAST_PAIR_SCORE = 4.1  # between the worst language, 4.4, and the best scramble, 3.8 (letter_pairs)
_LEAST_PAIRS = 60  # fewer tell nothing: codes, abbreviations
_LATIN_SHARE = 0.5  # of the letters, for the pairs to speak for the page
_ODD_CATEGORIES = frozenset({"So", "Sk", "Cc", "Co", "Cn", "Cs"})  # pictures, bare accents, private and no characters


@dataclass(frozen=True, slots=True)
class ChosenSource:
    """Where a page's text comes from."""

    source: Source
    why: str  # one sentence


@dataclass(frozen=True, slots=True)
class Legibility:
    """How much a text looks like one."""

    pairs: PairScore
    latin_share: float  # of its letters
    odd_ratio: float  # of its characters


def choose_source(layer: TextLayer, wish: SourceWish = "auto") -> ChosenSource:
    """The page's own text where it can be trusted, else OCR. A wish is obeyed, whatever the page is like.

    OCR's invisible text over a scan counts like any other: it is trusted where it reads like text.
    """
    if wish != "auto":
        return ChosenSource(wish, "asked for")
    return _by_content(layer.stats) or _by_glyphs(layer.stats) or _by_language(layer)


def judge(text: str) -> Legibility:
    """Numbers about a text, whatever its script."""
    counts = Counter(text)  # few different characters, whatever the length
    inked = sum(count for character, count in counts.items() if not character.isspace())
    letters = sum(count for character, count in counts.items() if character.isalpha())
    latin = sum(count for character, count in counts.items() if character.isalpha() and _is_latin(character))
    odd = sum(count for character, count in counts.items() if _is_odd(character))
    return Legibility(score_pairs(text), latin / max(letters, 1), odd / max(inked, 1))


def _by_content(stats: LayerStats) -> ChosenSource | None:
    """What is on the page at all."""
    if not stats.objects:
        return ChosenSource("text_layer", "the page is blank: nothing is drawn on it")
    if not stats.characters:
        return ChosenSource("ocr", "it has no text of its own")
    if stats.characters < _FEW_CHARACTERS and stats.drawings:
        return ChosenSource("ocr", f"its own text has {stats.characters} characters, and more is drawn on it")
    visible = stats.characters - stats.invisible
    if stats.image_ratio >= _SCAN_RATIO and visible < _STAMPED and stats.invisible < _STAMPED:
        share = f"{stats.image_ratio:.0%}"
        return ChosenSource("ocr", f"images cover {share} of it and its own text has {stats.characters} characters")
    return None


def _by_glyphs(stats: LayerStats) -> ChosenSource | None:
    """Whether its glyphs have characters."""
    if stats.unmapped_ratio >= _UNMAPPED_RATIO:
        return ChosenSource("ocr", f"{stats.unmapped_ratio:.0%} of its glyphs are mapped to no character")
    replaced = stats.replaced / max(stats.characters, 1)
    if replaced >= _REPLACED_RATIO:
        return ChosenSource("ocr", f"{replaced:.0%} of its characters are replacements or private")
    return None


def _by_language(layer: TextLayer) -> ChosenSource:
    """Whether its characters are text."""
    legible = judge(layer.text)
    if legible.odd_ratio > _ODD_RATIO:
        return ChosenSource(
            "ocr", f"{legible.odd_ratio:.0%} of its own characters are neither letters, digits nor punctuation"
        )
    is_judged = legible.pairs.pairs >= _LEAST_PAIRS and legible.latin_share >= _LATIN_SHARE
    if is_judged and legible.pairs.mean < _LEAST_PAIR_SCORE:
        return ChosenSource(
            "ocr", "the letters of its own text follow each other as in no language: its fonts are mis-mapped"
        )
    stats = layer.stats
    origin = "an earlier OCR's text layer" if stats.invisible > stats.characters / 2 else "its own text"
    return ChosenSource("text_layer", f"{origin} of {stats.characters} characters is sound")


def _is_latin(letter: str) -> bool:
    return letter < "\u0250" or "\u1e00" <= letter < "\u1f00"


def _is_odd(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character) in _ODD_CATEGORIES
