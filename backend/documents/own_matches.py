"""How likely each printed name tells what a label asks for, by a network of one layer over what speaks for the pair.

Pure: arithmetic on names, the values beside them, and vectors of the bundled encoder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz, process

from backend.abandoned import require_wanted
from backend.documents.printed_names import Beside, PrintedName, Segment, content_of
from backend.models.encoder import Vectors
from backend.models.model_files import BUNDLED_ADAPTERS
from backend.models.numpy_layers import sigmoid
from backend.text.own_labels import BOOLEAN, INTEGER, NUMBER, STRING, OwnLabel, plain_of, words_of
from backend.text.own_values import ReadValue

# What a text may be about: how near a label is to each tells which values it can have.
NOTIONS = (
    "persona: quién", "person: who", "empresa, organización", "company, organisation",
    "número, código, referencia, identificador", "number, code, reference, identifier",
    "lugar, dirección, ciudad: dónde", "place, address, town: where",
    "día, fecha, hora: cuándo", "day, date, time: when", "cantidad, medida: cuánto", "quantity, measure: how much",
    "objeto, descripción: qué", "thing, description: what",
)  # fmt: skip
_FILE = BUNDLED_ADAPTERS / "own-names" / "weights.npz"
_TIMES = re.compile(r"\d{1,4}[./\- ·]\w{1,9}[./\- ·]\d{2,4}|^\d{1,2}[:h.]\d{2}")
_UNIT = re.compile(r"\([^()]*\)")
_NUMBERS = (INTEGER, NUMBER)
_STEM = 5  # letters of a word that tell it: "penalty", "penalties"
_SPELT = 70.0  # of 100: names less alike are of other words
_MANY_COLONS = 3  # the page's way to print a name

Read = Sequence[tuple[ReadValue, Beside]]  # what stands beside a name as a label's kind of value


@dataclass(frozen=True, slots=True)
class Candidates:
    """A page's names for labels, with their vectors once what all names have in common is taken out."""

    names: Sequence[PrintedName]
    in_prose: Sequence[bool]  # whether the value beside it begins in a sentence
    text: str  # of the page
    printed: Vectors  # (names, width)
    notions: Vectors  # (NOTIONS, width)


def likelihoods(
    page: Candidates, labels: Sequence[OwnLabel], own: Vectors, prompts: Vectors, read: Sequence[Sequence[Read]]
) -> Vectors:
    """How likely each name is each label's. Shapes: own and prompts (labels, width) -> (labels, names).

    Args:
        own, prompts: vectors of the labels' names, and of these with their descriptions.
        read: of each label, by name, what stands there; nothing there makes 0.
    """
    rows = evidence(page, labels, own, prompts, read)
    weights = _weights()
    hidden = np.maximum(0, (rows - weights["mean"]) / weights["scale"] @ weights["hidden"] + weights["hidden_bias"])
    scores = sigmoid((hidden @ weights["out"] + weights["out_bias"]).astype(np.float32))
    return np.where(_readable(read), scores, 0.0)


def score_of(likelihood: float) -> float:
    """How many of 1 such names are right, once no other label or name took theirs. Fitted on made papers."""
    slope, offset = _weights()["calibration"]
    odds = np.log(likelihood / (1 - likelihood + 1e-6))
    return float(sigmoid(np.array(slope * odds + offset)))


@cache
def _weights() -> dict[str, NDArray[np.float32]]:
    with np.load(_FILE) as stored:
        return {name: stored[name] for name in stored.files}


def evidence(
    page: Candidates, labels: Sequence[OwnLabel], own: Vectors, prompts: Vectors, read: Sequence[Sequence[Read]]
) -> Vectors:
    """What speaks for each pair. Shape: (labels, names, features) float32."""
    require_wanted()
    readable, near = _readable(read), _nearness(page, own + prompts) / 2
    by_name, by_prompt = own @ page.printed.T, prompts @ page.printed.T
    meant = np.where(readable, (by_name + by_prompt) / 2, -1.0)
    of_pairs = [
        by_name, by_prompt, np.maximum(by_name, by_prompt),
        _over_other_names(meant, page.names), _margin(meant, axis=0), *_spelling(page.names, labels),
        near @ _nearness(page, page.printed).T,
    ]  # fmt: skip
    kinds = [
        (bool(label.kind != STRING or label.choices), label.many, label.kind in _NUMBERS, label.kind == BOOLEAN)
        for label in labels
    ]
    of_labels = np.array(kinds, np.float32)[:, None, :]
    of_values, shapes = _of_values(page, read)
    is_free = 1 - of_labels[..., :1]
    weighed = np.concatenate((near, np.full((len(labels), 1), 0.1)), axis=1)[:, None, :, None]
    crossed = weighed * (shapes * is_free)[:, :, None, :]
    shape = (len(labels), len(page.names))
    parts = (
        np.stack(of_pairs, axis=-1), np.broadcast_to(of_labels, (*shape, of_labels.shape[-1])),
        np.broadcast_to(_of_names(page, read), (*shape, 6)), of_values, crossed.reshape(*shape, -1),
    )  # fmt: skip
    return np.concatenate(parts, axis=-1).astype(np.float32)


def _readable(read: Sequence[Sequence[Read]]) -> NDArray[np.bool_]:
    return np.array([[bool(values) for values in row] for row in read])


def _nearness(page: Candidates, vectors: Vectors) -> Vectors:
    """How much nearer texts are to each notion than to all of them. Shape: (texts, notions)."""
    cosines = (vectors @ page.notions.T).reshape(len(vectors), -1, 2).max(axis=2)
    return np.asarray(cosines - cosines.mean(axis=1, keepdims=True), np.float32)


def _margin(rows: Vectors, axis: int) -> Vectors:
    """By how much each is over the best of the others."""
    if rows.shape[axis] < 2:
        return rows + 1
    ordered = np.sort(rows, axis=axis)
    first, second = np.take(ordered, [-1], axis), np.take(ordered, [-2], axis)
    return np.asarray(rows - np.where(rows == first, second, first), np.float32)


def _over_other_names(meant: Vectors, names: Sequence[PrintedName]) -> Vectors:
    """`_margin` over names of other segments."""
    numbers: dict[Segment, int] = {}
    of_name = np.array([numbers.setdefault(name.segment, len(numbers)) for name in names])
    best = np.stack([meant[:, of_name == at].max(axis=1) for at in range(len(numbers))], axis=1)
    return np.asarray(meant + (_margin(best, axis=1) - best)[:, of_name], np.float32)


def _spelling(names: Sequence[PrintedName], labels: Sequence[OwnLabel]) -> list[Vectors]:
    """How like names are spelt to labels, and which part of the words of each the other has."""
    own = [words_of(label.path[-1]) for label in labels]
    wanted, printed = [content_of(text) for text in own], [content_of(name.text) for name in names]
    bare = [content_of(_UNIT.sub("", name.text)) or text for name, text in zip(names, printed, strict=True)]
    alike = np.maximum(*(process.cdist(wanted, texts, scorer=fuzz.ratio) for texts in (printed, bare)))
    stems, of_names = [_stems(text) for text in own], [_stems(name.text) for name in names]
    of_prompts = [_stems(label.prompt) for label in labels]
    described = [[_part(name, prompt) for name in of_names] for prompt in of_prompts]
    named = [[_part(label, name) for name in of_names] for label in stems]
    return [(np.maximum(alike - _SPELT, 0) / (100 - _SPELT)) ** 2, np.array(described), np.array(named)]


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in re.findall(r"\w+", plain_of(text)) if len(word) > 2)


def _part(words: frozenset[str], others: frozenset[str]) -> float:
    return len(words & others) / len(words) if words else 0.0


def _of_names(page: Candidates, read: Sequence[Sequence[Read]]) -> Vectors:
    """What a name is by itself. Shape: (names, 6)."""
    values = _segments_of_values(page.names, read)
    with_colon = sum(name.with_colon for name in page.names) >= _MANY_COLONS
    rows = [
        (
            name.is_likely, name.with_colon, with_colon and not name.with_colon, in_prose, name.segment in values,
            len(name.text.split()) / 7,
        )
        for name, in_prose in zip(page.names, page.in_prose, strict=True)
    ]  # fmt: skip
    return np.array(rows, np.float32)


def _segments_of_values(names: Sequence[PrintedName], read: Sequence[Sequence[Read]]) -> Collection[Segment]:
    """Where values of likely names stand that are set apart from them."""
    return {
        values[0][1].segment
        for row in read
        for name, values in zip(names, row, strict=True)
        if values and name.is_likely and values[0][1].segment != name.segment
    }


def _of_values(page: Candidates, read: Sequence[Sequence[Read]]) -> tuple[Vectors, Vectors]:
    """Where each name's value stands, and what it looks like. Shapes: (labels, names, 7 and 9)."""
    likely = {
        name.segment for row in read for name, values in zip(page.names, row, strict=True) if values and name.is_likely
    }
    distinct = {id(row): row for row in read}  # labels of one kind share theirs
    known = {key: _of_row(page, row, likely) for key, row in distinct.items()}
    return np.stack([known[id(row)][0] for row in read]), np.stack([known[id(row)][1] for row in read])


def _of_row(page: Candidates, row: Sequence[Read], likely: Collection[Segment]) -> tuple[Vectors, Vectors]:
    places, shapes = np.zeros((len(row), 7), np.float32), np.zeros((len(row), 9), np.float32)
    count = len({values[0][0].start for values in row if values})
    for at, (name, values) in enumerate(zip(page.names, row, strict=True)):
        if values:
            value, place = values[0]
            length = place.words[-1].end - place.words[0].start
            is_name = place.where != "after" and place.segment in likely
            places[at] = (
                place.where == "below", place.where == "right of", place is not name.beside[0], is_name,
                (value.end - value.start) / max(1, length), 1 / count, count == 1,
            )  # fmt: skip
            shapes[at] = _shape(page.text[value.start : value.end])
    return places, shapes


def _shape(value: str) -> tuple[bool, ...]:
    """What a value looks like: a time, number, code, name, name of one word, words, many words, mark, address."""
    words = value.split()
    digits, letters = sum(map(str.isdigit, value)), sum(map(str.isalpha, value))
    capitals = sum(word[0].isupper() for word in words)
    time = _TIMES.search(value) is not None
    return (
        time, digits > 0 and not letters and not time, digits > 0 and letters > 0 and len(words) <= 3 and not time,
        not digits and len(words) > 1 and capitals >= len(words) - 1, not digits and len(words) == 1 and capitals > 0,
        not digits and letters > 0 and not words[0][0].isupper(), len(words) > 5, letters + digits <= 2, "@" in value,
    )  # fmt: skip
