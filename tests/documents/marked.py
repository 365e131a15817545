"""Texts with their entities marked inside, and how well found ones agree with them: precision and recall by type.

A line of ``data/patterns.jsonl`` is ``{"about", "text"}``; in the text ``[[IBAN|ES91 2100 …|ES912100…|true]]`` stands
for its second field, an entity of this type, value and validity; ``-`` says None.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.documents.entities import PATTERN, Entity

PATTERNS = Path(__file__).parent / "data" / "patterns.jsonl"
_MARK = re.compile(r"\[\[(?P<type>[A-Z_]+)\|(?P<text>[^|]+)\|(?P<value>[^|]*)\|(?P<valid>true|false|-)\]\]")
_VALID = {"true": True, "false": False, "-": None}


@dataclass(frozen=True, slots=True)
class Marked:
    """A text and what it holds."""

    about: str
    text: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """One type's counts over all texts; a find is right when type and both ends agree."""

    marked: int
    found: int
    right: int
    values: int  # of the right ones: with the marked value and validity too

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.marked if self.marked else 1.0


def read_marked(path: Path = PATTERNS) -> list[Marked]:
    """The texts of a file, marks taken out."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [unmark(row["about"], row["text"]) for row in rows]


def unmark(about: str, marked: str) -> Marked:
    """A text without its marks, and the entities that they name."""
    pieces: list[str] = []
    entities = []
    place = end = 0
    for match in _MARK.finditer(marked):
        pieces += [marked[end : match.start()], match["text"]]
        start = place + match.start() - end
        place, end = start + len(match["text"]), match.end()
        value = None if match["value"] == "-" else match["value"]
        entities.append(Entity(match["type"], match["text"], start, place, 1.0, PATTERN, value, _VALID[match["valid"]]))
    return Marked(about, "".join([*pieces, marked[end:]]), tuple(entities))


def score(texts: Iterable[Marked], find: Callable[[str], Sequence[Entity]]) -> dict[str, Score]:
    """How the entities that ``find`` gives agree with the marked ones, by type."""
    marked: Counter[str] = Counter()
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for one in texts:
        expected = {(entity.type, entity.start, entity.end): entity for entity in one.entities}
        given = find(one.text)
        marked.update(entity.type for entity in one.entities)
        found.update(entity.type for entity in given)
        for entity in given:
            twin = expected.get((entity.type, entity.start, entity.end))
            if twin is not None:
                right[entity.type] += 1
                values[entity.type] += (twin.value, twin.valid) == (entity.value, entity.valid)
    return {kind: Score(marked[kind], found[kind], right[kind], values[kind]) for kind in sorted(marked | found)}


def table(scores: dict[str, Score]) -> str:
    """The scores as a Markdown table."""
    lines = ["| type | marked | precision | recall | value right |", "|---|---|---|---|---|"]
    for kind, one in scores.items():
        share = one.values / one.right if one.right else 1.0
        lines.append(f"| {kind} | {one.marked} | {one.precision:.3f} | {one.recall:.3f} | {share:.3f} |")
    return "\n".join(lines)
