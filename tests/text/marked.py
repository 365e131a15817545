"""Annotated texts, and precision and recall of found entities against the annotations, by type.

A line of ``data/patterns.jsonl`` is ``{"about", "text"}``; an entity in the text is written
``[[IBAN|ES91 2100 …|ES912100…|true]]``: type, text, value, validity; ``-`` means None.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.text.entity_merge import PATTERN, Entity

PATTERNS = Path(__file__).parent / "data" / "patterns.jsonl"
_MARK = re.compile(r"\[\[(?P<type>[A-Z_]+)\|(?P<text>[^|]+)\|(?P<value>[^|]*)\|(?P<valid>true|false|-)\]\]")
_VALID = {"true": True, "false": False, "-": None}


@dataclass(frozen=True, slots=True)
class Marked:
    """A text and its annotated entities."""

    about: str
    text: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """One type's counts over all texts; a match is right when type and both ends agree."""

    marked: int
    found: int
    right: int
    values: int  # right ones whose value and validity agree too

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.marked if self.marked else 1.0


def read_marked(path: Path = PATTERNS) -> list[Marked]:
    """The annotated texts of a file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [unmark(row["about"], row["text"]) for row in rows]


def unmark(about: str, marked: str) -> Marked:
    """Parse a text with marks."""
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
    """Compare the entities from ``find`` with the annotated ones, by type."""
    marked: Counter[str] = Counter()
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for marked_text in texts:
        expected = {(entity.type, entity.start, entity.end): entity for entity in marked_text.entities}
        entities = find(marked_text.text)
        marked.update(entity.type for entity in marked_text.entities)
        found.update(entity.type for entity in entities)
        for entity in entities:
            annotated = expected.get((entity.type, entity.start, entity.end))
            if annotated is not None:
                right[entity.type] += 1
                values[entity.type] += (annotated.value, annotated.valid) == (entity.value, entity.valid)
    return {kind: Score(marked[kind], found[kind], right[kind], values[kind]) for kind in sorted(marked | found)}


def table(scores: dict[str, Score]) -> str:
    """The scores as a Markdown table."""
    lines = ["| type | marked | precision | recall | value right |", "|---|---|---|---|---|"]
    for kind, counts in scores.items():
        share = counts.values / counts.right if counts.right else 1.0
        lines.append(f"| {kind} | {counts.marked} | {counts.precision:.3f} | {counts.recall:.3f} | {share:.3f} |")
    return "\n".join(lines)
