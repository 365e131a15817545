"""Scores of tables: neighbouring filled cells, as in ICDAR 2013's competition."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rapidfuzz import fuzz

from benchmarks.fields_scores import Count

_MIN_LIKENESS = 88  # of 100, of cells with letters; figures must be the same
_DASHES = re.compile(r"[\u2010-\u2015\u2212]")
_FIGURES = re.compile(r"[\d\s.,%€$£()+\-*:/]+")

TableJson = Mapping[str, Any]
Relation = tuple[str, str, str]  # text, neighbour's text, "right" or "down"


def score_tables(truth: Sequence[TableJson], given: Sequence[TableJson]) -> Count:
    """Counts of relations. A table over several pages may be answered in pieces or joined."""
    return max((_score(variant, given) for variant in _variants(truth)), key=lambda count: count.f1)


def _score(truth: Sequence[TableJson], given: Sequence[TableJson]) -> Count:
    """Tables are paired by what they share, most first; those left over count as missed or wrong."""
    expected, answered = [_relations(table) for table in truth], [_relations(table) for table in given if table]
    shared = sorted(
        ((_common(first, second), row, column)
         for row, first in enumerate(expected) for column, second in enumerate(answered)),
        reverse=True,
    )  # fmt: skip
    pairs: dict[int, int] = {}
    right = 0
    for number, row, column in shared:
        if number and row not in pairs and column not in pairs.values():
            pairs[row] = column
            right += number
    return Count(right, sum(map(len, answered)) - right, sum(map(len, expected)) - right)


def _variants(tables: Sequence[TableJson]) -> Iterator[Sequence[TableJson]]:
    yield tables
    if any(table.get("continues") for table in tables):
        joined: list[dict[str, Any]] = []
        for table in tables:
            if table.get("continues"):
                joined[-1]["rows"] = joined[-1]["rows"] + [
                    row for row in table["rows"] if not all(cell.get("header") for cell in row)
                ]
            else:
                joined.append(dict(table))
        yield joined


def _relations(table: TableJson) -> list[Relation]:
    """Empty cells are skipped: what stands on either side of them are neighbours."""
    places, texts = _grid(table)
    relations = set()
    for axis, way in ((0, "right"), (1, "down")):
        lines: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for place, index in places.items():
            lines[place[axis]].append((place[1 - axis], index))
        for line in lines.values():
            filled = [index for _, index in sorted(line) if texts[index]]
            relations |= {(left, right, way) for left, right in pairwise(filled) if left != right}
    return [(texts[a], texts[b], way) for a, b, way in relations]


def _grid(table: TableJson) -> tuple[dict[tuple[int, int], int], list[str]]:
    """The index of the cell at each row and column, spans filled in; the texts of the cells."""
    places: dict[tuple[int, int], int] = {}
    texts: list[str] = []

    def put(row: int, column: int, cell: TableJson) -> None:
        texts.append(_normal(str(cell.get("text") or "")))
        for y in range(row, row + max(1, cell.get("rowspan") or 1)):
            for x in range(column, column + max(1, cell.get("colspan") or 1)):
                places.setdefault((y, x), len(texts) - 1)

    if "cells" in table:
        for cell in table["cells"]:
            put(cell["row"], cell["column"], cell)
        return places, texts
    for row, cells in enumerate(table["rows"]):
        column = 0
        for cell in cells:
            while (row, column) in places:
                column += 1
            put(row, column, cell)
    return places, texts


def _normal(text: str) -> str:
    text = " ".join(_DASHES.sub("-", unicodedata.normalize("NFKC", text).casefold()).split())
    return text.replace(" ", "") if _FIGURES.fullmatch(text) else text


def is_near(first: str, second: str) -> bool:
    """The same text; letters may differ a little, as in scans, figures may not."""
    if first == second:
        return True
    if re.sub(r"\D", "", first) != re.sub(r"\D", "", second) or min(len(first), len(second)) < 4:
        return False
    return fuzz.ratio(first.replace(" ", ""), second.replace(" ", "")) >= _MIN_LIKENESS


def _are_near(first: Relation, second: Relation) -> bool:
    return first[2] == second[2] and is_near(first[0], second[0]) and is_near(first[1], second[1])


def _common(expected: Sequence[Relation], given: Sequence[Relation]) -> int:
    """How many relations of two tables agree, equal ones first."""
    first, second = Counter(expected), Counter(given)
    equal = first & second
    rest, number = list((second - equal).elements()), equal.total()
    for element in (first - equal).elements():
        match = next((other for other in rest if _are_near(element, other)), None)
        if match is not None:
            rest.remove(match)
            number += 1
    return number
