"""The chunks that the search benchmark stores, and what it asks: read from a folder that `search_data` has filled.

Needs numpy only: the processes of other libraries read it too.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
CHUNKS_OF_A_FILE = 20
DEPTH = 10  # hits of a search


class Chunk(NamedTuple):
    text: str
    language: str


class Filter(NamedTuple):
    """Keeps the chunks of every ``of``-th file."""

    name: str
    of: int

    def keeps(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = rows // CHUNKS_OF_A_FILE % self.of == self.value
        return kept

    @property
    def value(self) -> int:
        return 7


FILTERS = {"hundredth": Filter("hundredth", 100), "thousandth": Filter("thousandth", 1000)}


def attributes_of(row: int) -> dict[str, float]:
    """The attributes of a chunk's file."""
    file = row // CHUNKS_OF_A_FILE
    return {name: float(file % one.of) for name, one in FILTERS.items()}


@dataclass(frozen=True, slots=True)
class Corpus:
    """The first ``count`` chunks of a folder. Vectors are of unit length."""

    folder: Path
    count: int

    @property
    def vectors(self) -> Vectors:
        """Shape (count, width), mapped and not read yet."""
        mapped: Vectors = np.load(self.folder / "vectors.npy", mmap_mode="r")[: self.count]
        return mapped

    @property
    def encoder(self) -> dict[str, Any]:
        """Fields of the EncoderIdentity."""
        encoder: dict[str, Any] = self._json("encoder.json")
        return encoder

    @property
    def queries(self) -> list[str]:
        queries: list[str] = self._json("queries.json")
        return queries

    @property
    def query_vectors(self) -> Vectors:
        vectors: Vectors = np.load(self.folder / "query_vectors.npy")
        return vectors

    def chunks(self, first: int = 0) -> Iterator[Chunk]:
        """From the chunk ``first`` on, in order."""
        with (self.folder / "texts.jsonl").open(encoding="utf-8") as lines:
            for row, line in enumerate(lines):
                if row >= self.count:
                    return
                if row >= first:
                    yield Chunk(*json.loads(line))

    def exact(self, where: Filter | None = None) -> NDArray[np.int64]:
        """The rows of the DEPTH highest cosines of each query in float32. Shape (queries, up to DEPTH)."""
        rows = np.arange(self.count)
        if where is not None:
            rows = rows[where.keeps(rows)]
        return nearest_rows(self.vectors, rows, self.query_vectors)

    def _json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


def nearest_rows(
    vectors: Vectors, rows: NDArray[np.int64], queries: Vectors, depth: int = DEPTH, at_once: int = 50_000
) -> NDArray[np.int64]:
    """Among ``rows`` of ``vectors`` those of the highest products, best first."""
    scores, found = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    for first in range(0, len(rows), at_once):
        part = rows[first : first + at_once]
        scores = np.concatenate([scores, queries @ np.asarray(vectors[part]).T], axis=1)
        found = np.concatenate([found, np.broadcast_to(part, (len(queries), len(part)))], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        scores, found = np.take_along_axis(scores, best, 1), np.take_along_axis(found, best, 1)
    return found


def recall(found: Sequence[Sequence[int]], exact: NDArray[np.int64]) -> float:
    """The share of the exact hits that were found."""
    hits = sum(len(set(rows) & set(truth.tolist())) for rows, truth in zip(found, exact, strict=True))
    return hits / exact.size if exact.size else 1.0
