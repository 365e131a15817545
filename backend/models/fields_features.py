"""What the network that reads fields is told of a page's words: their shapes, check digits, sums and places."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from stdnum import iban
from stdnum.es import nif
from stdnum.eu import vat

from backend.word_cache import word_cache

SHAPES, ENDS = 2048, 4096  # rows of the tables of shapes, and of first and last letters
_MAX_SUMMED = 60  # amounts of a page whose sums are looked for
_AMOUNT = re.compile(
    r"^[^\d\w]*(?:[A-Z]{0,3}|[€$£]|RM|R\$)?[-\u2212(]?\s?(\d{1,3}(?:[., '\u2019]\d{3})*|\d+)([.,]\d{1,2})?\)?-?\s?"
    r"(?:[€$£]|EUR|[A-Z]{3})?[^\d\w]*$"
)
_DATE = re.compile(
    r"^\W*(?:\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2})|\d{4}[./-]\d{1,2}[./-]\d{1,2}"
    r"|\d{1,2}[-./ ]?[a-zA-Zç]{3,9}[-./ ]\d{2,4})\W*$"
)
_SIGNS = "€$£%"
Array = NDArray[np.float32]


class PageArrays(NamedTuple):
    """A page as arrays, one row a word."""

    texts: list[str]
    shapes: NDArray[np.int32]
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]
    facts: Array  # (words, FACTS)
    places: Array  # (words, 4): left, right, middle height and height in median heights


class _Text(NamedTuple):
    shape: int
    start: int
    stop: int
    facts: tuple[float, ...]
    cents: int | None  # where they are printed
    number: int | None  # in hundredths
    rate: float | None


def _hash(text: str, rows: int) -> int:
    return zlib.crc32(text.encode()) % rows


def shape_of(text: str) -> str:
    """The word's shape: capitals, small letters and figures; of long runs three."""
    shape = "".join("9" if c.isdigit() else "A" if c.isupper() else "a" if c.isalpha() else c for c in text)
    return re.sub(r"(.)\1{3,}", r"\1\1\1\1", shape)


def cents_of(text: str) -> int | None:
    """The amount in hundredths that a word prints; None where it is none."""
    match = _AMOUNT.match(text)
    if match is None or len(text) > 18:
        return None
    part = (match[2] or "")[1:]
    whole = re.sub(r"\D", "", match[1])
    if len(whole) > 12:
        return None
    return int(whole) * 100 + int((part + "00")[:2])


def _is_tax_id(text: str) -> bool:
    return bool(nif.is_valid(text) or (text[:2].isalpha() and vat.is_valid(text)))


@word_cache(65_536)
def _text(text: str) -> _Text:
    letters = sum(c.isalpha() for c in text)
    figures = sum(c.isdigit() for c in text)
    compact = re.sub(r"[^A-Za-z0-9]", "", text.rpartition(":")[2]).upper()
    cents = cents_of(text)
    printed = bool(re.search(r"[.,]\d\d(?!\d)", text))
    percent = "%" in text
    long_id = 8 <= len(compact) <= 15 and figures >= 6
    facts = (
        float(figures > 0), float(letters > 0), figures / max(1, len(text)), min(len(text), 20) / 10,
        float(text.isupper()), float(text.istitle()), float(text.islower()), float(text.isdigit()),
        float(text.endswith(":")), float("." in text), float("," in text), float("/" in text), float("-" in text),
        float("@" in text or "www" in text.lower()), float(percent), float(any(c in _SIGNS for c in text)),
        float(cents is not None and printed), float(cents is not None and not printed),
        0.0 if cents is None else np.log1p(cents) / 10, float(text[:1] in "-\u2212(" or text[-1:] == "-"),
        float(bool(_DATE.match(text))), float(len(text) == 4 and text.isdigit() and text[:2] in ("19", "20")),
        float(len(text) == 5 and text.isdigit()), float(len(text) <= 2 and text.isdigit()),
        float(long_id and _is_tax_id(compact)), float(long_id), float(bool(re.match(r"^[A-Z]{2}\d{2}", compact))),
        float(15 <= len(compact) <= 34 and iban.is_valid(compact)), float(text.endswith(",")),
        float(letters > 0 and figures > 0),
    )  # fmt: skip
    rate = None
    if cents is not None and 0 < cents <= 3000:
        rate = cents / 100
    lower = text.lower()
    return _Text(
        _hash(shape_of(text), SHAPES),
        _hash(lower[:3], ENDS),
        _hash("$" + lower[-3:], ENDS),
        facts,
        cents if printed and not percent else None,
        cents,
        rate,
    )


TEXT_FACTS = 30
PAGE_FACTS = 10  # sums and repetition, products of a line, numbers in groups
PLACE_FACTS = 24
FACTS = TEXT_FACTS + PAGE_FACTS + PLACE_FACTS


def page_arrays(texts: Sequence[str], boxes: NDArray[np.floating]) -> PageArrays:
    """The arrays of a page.

    Args:
        boxes: (words, 4), left, top, right, bottom in any unit.
    """
    found = [_text(text[:40]) for text in texts]
    count = len(texts)
    high = np.maximum(boxes[:, 3] - boxes[:, 1], 1e-3)
    unit = float(np.median(high)) or 1.0
    places = np.stack([boxes[:, 0], boxes[:, 2], (boxes[:, 1] + boxes[:, 3]) / 2, high], 1) / unit
    places[:, :2] -= places[:, 0].min()
    places[:, 2] -= places[:, 2].min()
    wide, tall = max(places[:, 1].max(), 1.0), max(places[:, 2].max(), 1.0)
    facts = np.zeros((count, FACTS), np.float32)
    facts[:, :TEXT_FACTS] = [text.facts for text in found]
    facts[:, TEXT_FACTS : TEXT_FACTS + 6] = _sums(found)
    _lines(found, texts, places, facts[:, TEXT_FACTS + 6 : TEXT_FACTS + PAGE_FACTS])
    at = np.stack([places[:, 0] / wide, places[:, 1] / wide, places[:, 2] / tall], 1)
    waves = np.concatenate([fn(np.pi * scale * at) for scale in (0.5, 1.5, 4) for fn in (np.sin, np.cos)], 1)
    facts[:, TEXT_FACTS + PAGE_FACTS : TEXT_FACTS + PAGE_FACTS + 18] = waves
    rest = [
        places[:, 3],
        np.log1p(places[:, 1] - places[:, 0]),
        np.full(count, wide / 60),
        np.full(count, tall / 60),
        np.full(count, np.log1p(count) / 5),
        at[:, 2],
    ]
    facts[:, TEXT_FACTS + PAGE_FACTS + 18 :] = np.stack(rest, 1)
    return PageArrays(
        list(texts), np.array([t.shape for t in found], np.int32), np.array([t.start for t in found], np.int32),
        np.array([t.stop for t in found], np.int32), facts, places.astype(np.float32),
    )  # fmt: skip


def _sums(found: Sequence[_Text]) -> Array:
    """Of each amount: is it a sum, a part of one, a rate's tax, a base, the greatest, and repeated."""
    out = np.zeros((len(found), 6), np.float32)
    counts = Counter(text.cents for text in found if text.cents)
    if not counts:
        return out
    values = sorted(counts, reverse=True)[:_MAX_SUMMED]
    known = set(values)
    sums: set[int] = set()
    parts: set[int] = set()
    for a, b in combinations(values, 2):
        if a + b in known:
            sums.add(a + b)
            parts.update((a, b))
    rates = {text.rate for text in found if text.rate}
    taxes: set[int] = set()
    bases: set[int] = set()
    for value in values:
        for rate in list(rates)[:20]:
            tax = round(value * rate / 100)
            if tax > 4 and (tax in known or tax - 1 in known or tax + 1 in known):
                bases.add(value)
                taxes.update((tax, tax - 1, tax + 1))
    for row, text in enumerate(found):
        if text.cents:
            c = text.cents
            out[row] = (c in sums, c in parts, c in taxes, c in bases, c == values[0], min(counts[c], 4) / 4)
    return out


def _lines(found: Sequence[_Text], texts: Sequence[str], places: NDArray[np.floating], out: Array) -> None:
    """Of each word: is it the product of two numbers of its line, a factor, a part of an IBAN or tax id in groups."""
    order = np.argsort(places[:, 2], kind="stable")
    cuts = np.flatnonzero(np.diff(places[order, 2]) > 0.45) + 1
    for line in np.split(order, cuts):
        if len(line) < 2:
            continue
        words = [int(i) for i in line[np.argsort(places[line, 0], kind="stable")]]
        numbers = [(i, value) for i in words if (value := found[i].number) and "%" not in texts[i]]
        if 3 <= len(numbers) <= 8:
            amounts = {value: i for i, value in numbers if found[i].cents is not None}
            for (i, a), (j, b) in combinations(numbers, 2):
                product = round(a * b / 100)
                row = amounts.get(product)
                if row is not None and row not in (i, j) and 100 not in (a, b):
                    out[row, 0] = out[i, 1] = out[j, 1] = 1
        _groups(words, texts, places, out)


def _groups(words: list[int], texts: Sequence[str], places: NDArray[np.floating], out: Array) -> None:
    """Marks an IBAN or a tax id that a line prints in groups."""
    for k, i in enumerate(words):
        head = texts[i].rpartition(":")[2]
        if not _GROUP.match(head):
            continue
        run, text = [i], re.sub(r"[^A-Za-z0-9]", "", head).upper()
        for last, j in pairwise(words[k : k + 12]):
            if places[j, 0] - places[last, 1] > 1.5 or not any(c.isdigit() for c in texts[j]) or len(text) > 34:
                break
            run.append(j)
            text += re.sub(r"[^A-Za-z0-9]", "", texts[j]).upper()
            if len(run) < 7 and 9 <= len(text) <= 13 and _is_tax_id(text):
                out[run, 3] = 1
            if len(text) >= 15 and len(text) <= 34 and iban.is_valid(text):
                out[run, 2] = 1
                break


_GROUP = re.compile(r"^(?:[A-Z]{2}\d{0,4}|[A-Z]-?|\d{2,8}-?)$")
BUCKETS = 17 * 15


def relations(places: NDArray[np.floating]) -> NDArray[np.int16]:
    """Where each word stands as seen from each other one: a bucket of distance across and down."""
    left, right, middle = places[:, 0], places[:, 1], places[:, 2]
    down = middle[None, :] - middle[:, None]
    vertical = np.sign(down) * np.searchsorted(_DOWN, np.abs(down))
    gap_right = left[None, :] - right[:, None]  # of a word that stands to the right
    gap_left = left[:, None] - right[None, :]
    across = np.searchsorted(_ACROSS, np.maximum(gap_right, gap_left))
    sides = np.where(gap_right >= gap_left, across + 1, -across - 1)
    same_left = np.abs(left[None, :] - left[:, None]) < 0.6
    same_right = np.abs(right[None, :] - right[:, None]) < 0.6
    overlap = np.maximum(gap_right, gap_left) < -0.1
    horizontal = np.where(
        overlap,
        7 + same_left + 2 * same_right,
        np.where(sides > 0, 10 + np.minimum(sides, 6), 7 + np.maximum(sides, -7)),
    )
    return (np.clip(vertical, -7, 7).astype(np.int16) + 7) * 17 + horizontal.astype(np.int16)


_DOWN = np.array([0.55, 1.6, 2.6, 4.5, 8, 16, 30])
_ACROSS = np.array([0.55, 1.3, 3, 8, 20])
