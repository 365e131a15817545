"""Seconds of several OCR engines for the same work, round by round, and their ratios to ours."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.ocr_searchable import OCRMYPDF
from benchmarks.results import spread

AUTO, TESSERACT, RAPIDOCR, BEFORE = "ours", "ours-tesseract", "ours-rapidocr", "before"
SINGLE, DOUBTFUL, MIXED, SEARCHABLE = "single", "doubtful", "mixed", "searchable"

# (work, reader) -> our time is to be at most so many times the reader's.
TARGETS: Mapping[tuple[str, str], float] = {
    (SINGLE, BEFORE): 0.6,
    (DOUBTFUL, RAPIDOCR): 1.15,
    (MIXED, BEFORE): 1 / 1.3,
    (SEARCHABLE, OCRMYPDF): 1.0,
}


@dataclass(frozen=True, slots=True)
class Timing:
    """What a reader took for one work in one round."""

    work: str
    reader: str
    round: int
    pages: int
    seconds: float
    cer: float | None = None  # where the texts were compared with their truth


@dataclass(slots=True)
class Timings:
    """The timings of a run."""

    records: list[Timing] = field(default_factory=list)

    def add(self, timing: Timing) -> None:
        """Record a timing and print it to stderr."""
        self.records.append(timing)
        print(
            f"round {timing.round + 1}: {timing.work}, {timing.reader}: {timing.pages} pages in {timing.seconds:.2f} s",
            file=sys.stderr,
        )

    def as_json(self) -> list[dict[str, Any]]:
        """A row for each work and reader: seconds, our time over its within each round, and the target for that."""
        seconds: dict[tuple[str, str], dict[int, float]] = {}
        newest: dict[tuple[str, str], Timing] = {}
        for record in self.records:
            key = record.work, record.reader
            seconds.setdefault(key, {})[record.round] = record.seconds
            newest[key] = record
        return [
            {
                "work": work,
                "reader": reader,
                "pages": newest[work, reader].pages,
                "cer": newest[work, reader].cer,
                "seconds": spread(rounds.values()),
                "ours_over": spread(seconds[work, AUTO][index] / taken_s for index, taken_s in rounds.items()),
                "target": TARGETS.get((work, reader)),
            }
            for (work, reader), rounds in seconds.items()
        ]
