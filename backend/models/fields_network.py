"""The network that reads a page's words, in numpy: a field for each word, and whether a value begins with it.

Seven layers of width 256 on some hundred words: 30 ms of one core for a page of 130 words, 190 ms for one of 525.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from backend.errors import ModelUnavailable
from backend.models.bundled_encoders.converted_folder import is_sound
from backend.models.bundled_encoders.recipes import FULL, student_recipe
from backend.models.checkpoint_tensors import WEIGHTS, Rows
from backend.models.fields_features import PageArrays, page_arrays, relations
from backend.models.model_files import BUNDLED_ADAPTERS, BUNDLED_FAST, BUNDLED_FULL, resolve
from backend.models.numpy_layers import linear, sigmoid, softmax
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.models.unpacked_folder import INSTALLED
from backend.models.weights import Linear
from backend.telemetry import log_event
from backend.word_cache import word_cache

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
