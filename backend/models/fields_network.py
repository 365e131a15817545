"""The network that reads a page's words, in numpy: a field for each word, and whether a value begins with it.

It is told of words their shapes, check digits, sums and places. Seven layers of width 256 on some hundred words: 30 ms
of one core for a page of 130 words, 190 ms for one of 525.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from stdnum import iban
from stdnum.es import nif
from stdnum.eu import vat

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.converted_folder import is_sound
from backend.models.bundled_encoders.recipes import FULL, student_recipe
from backend.models.checkpoint_tensors import WEIGHTS, Rows
from backend.models.model_files import BUNDLED_ADAPTERS, BUNDLED_FAST, BUNDLED_FULL, resolve
from backend.models.numpy_layers import linear, sigmoid, softmax
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.models.unpacked_folder import INSTALLED
from backend.models.weights import Linear
from backend.telemetry import log_event
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
    lower = text.lower()
    return _Text(
        _hash(shape_of(text), SHAPES),
        _hash(lower[:3], ENDS),
        _hash("$" + lower[-3:], ENDS),
        facts,
        cents if printed and not percent else None,
        cents,
        cents / 100 if cents is not None and 0 < cents <= 3000 else None,
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


FILE = BUNDLED_ADAPTERS / "fields" / "fields.safetensors"
# Of each word, in the order of the network's scores; what the trainer teaches.
LABELS = (
    "", "VendorName", "VendorAddress", "VendorTaxId", "CustomerName", "CustomerAddress", "CustomerTaxId", "InvoiceId",
    "InvoiceDate", "DueDate", "RectifiedInvoiceId", "PurchaseOrder", "SubTotal", "TotalTax", "TotalDiscount",
    "InvoiceTotal", "AmountDue", "IBAN", "WithholdingRate", "WithholdingAmount", "EquivalenceSurcharge", "TaxRate",
    "TaxBase", "TaxAmount", "ItemCode", "ItemDescription", "ItemQuantity", "ItemUnit", "ItemPrice", "ItemDiscount",
    "ItemTaxRate", "ItemAmount",
)  # fmt: skip
# Of each page, in the order of the network's scores.
KINDS = (
    "invoice", "simplified", "credit", "utility", "proforma", "delivery", "order", "quote", "payslip", "bank",
    "contract", "letter",
)  # fmt: skip
_HEADS = 8
_PIECES, _LONGEST = 8, 40  # sub-words of a word, and its characters
_SCALE = np.float32(20)  # of the encoder's vectors, to the size of the other inputs
_log = logging.getLogger(__name__)
Array = NDArray[np.float32]
_NOTHING = np.zeros(1, np.float32)  # the bias of a product


class Reading(NamedTuple):
    """What the network says of a page's words."""

    labels: Array  # (words, LABELS) probabilities
    begins: Array  # (words,) probability that a value begins with the word
    kinds: Array  # (KINDS,) probabilities of the page
    opens: float  # probability that a document begins with the page


class WordTable:
    """A word's vector: the mean of its sub-words' rows in the bundled encoder's table, which stays in its file."""

    def __init__(self, spec: ModelSpec) -> None:
        self._tokenizer = tokenizer_of(spec)
        self._rows = Rows(spec.folder / WEIGHTS, ("embeddings.word_embeddings.weight",))
        self.of = word_cache(20_000)(self._of)

    def _of(self, word: str) -> Array:
        ids = self._tokenizer.read(word, 0, _LONGEST).ids[:_PIECES].tolist()
        rows = [self._rows.row(number).astype(np.float32) for number in ids]
        return np.mean(rows, axis=0) if rows else np.zeros(self._rows.width, np.float32)


class Network:
    """Weights of one layer after another."""

    def __init__(self, weights: Path, words: WordTable) -> None:
        self._weights = {name: value.astype(np.float32) for name, value in load_file(weights).items()}
        self._words = words
        self._linears = {
            name.removesuffix(".weight"): self._linear_of(name)
            for name, value in self._weights.items()
            if name.endswith(".weight") and value.ndim > 1
        }
        self._layers = self._weights["places"].shape[1] // _HEADS

    def read(self, texts: list[str], boxes: NDArray[np.floating]) -> Reading:
        """Read one page. Shapes: boxes (words, 4), left, top, right, bottom on the levelled page in any unit."""
        page = page_arrays(texts, boxes)
        x = self._entered(page)
        near = relations(page.places).astype(np.intp)  # once: a look-up by other numbers converts them each time
        for layer in range(self._layers):
            bias = self._weights["places"][:, layer * _HEADS : (layer + 1) * _HEADS].T
            x = self._layer(f"blocks.{layer}.", x, bias, near)
        x = self._normal(x, "norm")
        begins = sigmoid(self._linear(x, "word"))[:, 0]
        page = self._linear(np.concatenate([x.mean(0), x.max(0)])[None], "page")[0]
        return Reading(softmax(self._linear(x, "label")), begins, softmax(page[:-1]), float(sigmoid(page[-1])))

    def _entered(self, page: PageArrays) -> Array:
        weights = self._weights
        ends = weights["ends.weight"]
        spelt = [weights["shape.weight"][page.shapes], ends[page.starts], ends[page.stops]]
        vectors = np.stack([self._words.of(text) for text in page.texts]) * _SCALE
        x = self._linear(vectors, "vector") + self._linear(page.facts.clip(-50, 50), "fact")
        return x + self._linear(np.concatenate(spelt, 1), "small")

    def _layer(self, name: str, x: Array, bias: Array, near: NDArray[np.intp]) -> Array:
        count, width = x.shape
        size = width // _HEADS
        mixed = self._linear(self._normal(x, name + "first"), name + "qkv")
        queries, keys, values = mixed.reshape(count, 3, _HEADS, size).transpose(1, 2, 0, 3)
        scaled = queries * np.float32(size**-0.5)
        heads = np.empty((count, width), np.float32)
        for head in range(_HEADS):  # one at a time: all of them on a full page are 16 MB, which no cache holds
            scores = linear(scaled[head], Linear(keys[head], _NOTHING))
            scores += bias[head].take(near)
            heads[:, head * size : (head + 1) * size] = linear(softmax(scores), Linear(values[head].T, _NOTHING))
        x = x + self._linear(heads, name + "out")
        grown = np.maximum(self._linear(self._normal(x, name + "second"), name + "up"), np.float32(0))
        return x + self._linear(grown, name + "down")

    def _linear_of(self, name: str) -> Linear:
        return Linear(self._weights[name], self._weights.get(name.replace(".weight", ".bias"), _NOTHING))

    def _linear(self, x: Array, name: str) -> Array:
        return linear(x, self._linears[name])

    def _normal(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
        result: Array = centred / spread * self._weights[name + ".weight"] + self._weights[name + ".bias"]
        return result


@lru_cache(maxsize=1)
def bundled_network() -> Network | None:
    """The network, loaded at its first use; None where the bundled encoder, whose words it knows, is not installed."""
    reason: object = "the bundled encoder is not installed"
    for source, recipe in ((BUNDLED_FULL, FULL), (BUNDLED_FAST, student_recipe())):  # with the same table of words
        if is_sound(INSTALLED / recipe.folder_name, recipe):
            try:
                return Network(FILE, WordTable(resolve(source)))
            except (OSError, SafetensorError, ModelUnavailable) as error:
                reason = error
    log_event(_log, logging.WARNING, "fields are read by rules alone", reason=reason)
    return None
