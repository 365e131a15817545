"""Telling text from scrambled text by letter bigrams."""

import json
import random
import re
import string
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from backend.files import text_files
from backend.files.text_files import MIN_BIGRAM_SCORE, TABLE, score_bigrams

ENGLISH = (
    "The supplier shall deliver the goods within thirty days of the order. Payment is due on receipt of the invoice, "
    "and interest accrues on any amount outstanding after that date at the rate agreed between the parties."
)
SPANISH = (
    "El proveedor entregará la mercancía en un plazo de treinta días desde la fecha del pedido. El pago se efectuará "
    "mediante transferencia bancaria a la cuenta indicada en la factura, y devengará intereses de demora."
)


def scrambled(text: str, seed: int) -> str:
    """The text with letters permuted."""
    letters = list(string.ascii_lowercase)
    random.Random(seed).shuffle(letters)
    return text.lower().translate(str.maketrans(string.ascii_lowercase, "".join(letters)))


@pytest.mark.parametrize("text", [ENGLISH, SPANISH, ENGLISH.upper()], ids=["english", "spanish", "capitals"])
def test_languages(text: str):
    """Paragraphs are above the threshold, also in capitals."""
    assert score_bigrams(text).mean > MIN_BIGRAM_SCORE


@pytest.mark.parametrize("text", [ENGLISH, SPANISH], ids=["english", "spanish"])
@pytest.mark.parametrize("seed", range(20))
def test_swapped_letters(text: str, seed: int):
    """Permuted letters are below it."""
    assert score_bigrams(scrambled(text, seed)).mean < MIN_BIGRAM_SCORE


def test_glyph_numbers_taken_for_characters():
    """The most common broken font: every character code is 29 too low."""
    shifted = "".join(chr(ord(character) - 29) if character != " " else " " for character in ENGLISH)

    assert score_bigrams(shifted).mean < MIN_BIGRAM_SCORE


def test_only_neighbours_within_a_word_count():
    """Digits, blanks and other scripts separate letters; accents do not."""
    assert score_bigrams("a1b c ñ").total == 0


def test_a_long_text_is_counted_in_parts(monkeypatch: pytest.MonkeyPatch):
    """No pair is lost, or counted twice, where two meet."""
    text = "La factura del mes de marzo, con IVA. " * 5
    whole = score_bigrams(text)
    monkeypatch.setattr(text_files, "_SLICE_CHARS", 7)

    assert whole == score_bigrams(text)
    assert score_bigrams("año").total == 2
    assert score_bigrams("при вет").total == 0


@pytest.mark.slow
def test_the_table_matches_the_texts(data_dir: Path):
    """The mean of twelve languages, as the module says."""
    expected = np.array([[int(digit) for digit in row] for row in TABLE])

    share = np.zeros((26, 26))
    for text in _texts(data_dir):
        counts = _counts(text)
        share += counts / counts.sum()
    share = share / share.sum() + 1e-6
    digits = np.clip(np.round(9 + np.log2(share / share.sum(axis=1, keepdims=True))), 0, 9)

    assert np.abs(expected - digits).max() == 0


def _texts(data_dir: Path) -> list[str]:
    texts = []
    for code in ("en", "es", "ca", "gl", "eu", "pt", "fr", "de", "it"):
        lines = (data_dir / f"cls_sib200/{code}_train.tsv").read_text(encoding="utf-8").split("\n")[1:]
        texts.append(" ".join(line.split("\t")[2] for line in lines if line.count("\t") >= 2))
    for name in ("ner_swedish/sv_webnews_train.conll", "ner_europeana/nl_europeana_train.conll"):
        lines = (data_dir / name).read_text(encoding="utf-8").split("\n")
        texts.append(" ".join(line.split("\t")[0] for line in lines if line.strip())[:100_000])
    lines = (data_dir / "retr_xquad/ro_corpus.jsonl").read_text(encoding="utf-8").splitlines()
    texts.append(" ".join(json.loads(line)["text"] for line in lines))
    return texts


def _counts(text: str) -> np.ndarray:
    counts = np.zeros((26, 26))
    folded = "".join(mark for mark in unicodedata.normalize("NFKD", text).lower() if not unicodedata.combining(mark))
    for word in re.findall("[a-z]{2,}", folded):
        for first, second in pairwise(word):
            counts[ord(first) - 97, ord(second) - 97] += 1
    return counts
