"""Seconds of several OCR engines for the same work, round by round, and their ratios to ours."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.ocr_searchable import OCRMYPDF
from benchmarks.results import Spread, spread

AUTO, TESSERACT, RAPIDOCR, BEFORE = "ours", "ours-tesseract", "ours-rapidocr", "before"
CLEAN, SINGLE, DOUBTFUL, MIXED, SEARCHABLE = "clean", "single", "doubtful", "mixed", "searchable"

# (work, reader) -> our time is to be at most so many times the reader's.
TARGETS: Mapping[tuple[str, str], float] = {
    (SINGLE, BEFORE): 0.6,
    (DOUBTFUL, RAPIDOCR): 1.15,
    (MIXED, BEFORE): 1 / 1.3,
    (SEARCHABLE, OCRMYPDF): 1.0,
}


@dataclass(frozen=True, slots=True)
class Timing:
    """What a reader took for one work, once in a round or several times."""

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

    def seconds_a_page(self, work: str, reader: str) -> list[float]:
        """Of each round."""
        mine = [record for record in self.records if (record.work, record.reader) == (work, reader)]
        rounds = [[record for record in mine if record.round == index] for index in sorted({one.round for one in mine})]
        return [sum(one.seconds for one in each) / sum(one.pages for one in each) for each in rounds]

    def rows(self) -> Iterator[tuple[Timing, list[float]]]:
        """Each work and reader: its last timing, and its seconds a page of each round."""
        newest = {(record.work, record.reader): record for record in self.records}
        for (work, reader), record in newest.items():
            yield record, self.seconds_a_page(work, reader)

    def ours_over(self, record: Timing, seconds: Sequence[float]) -> Spread:
        """Our time over the reader's, within each round."""
        ours = self.seconds_a_page(record.work, AUTO)
        return spread(own / other for own, other in zip(ours, seconds, strict=True))

    def as_json(self) -> list[dict[str, Any]]:
        """A row for each reader of all works but clean pages."""
        return [
            {
                "work": record.work,
                "reader": record.reader,
                "pages": record.pages,
                "cer": record.cer,
                "seconds": spread(each * record.pages for each in seconds),
                "ours_over": self.ours_over(record, seconds),
                "target": TARGETS.get((record.work, record.reader)),
            }
            for record, seconds in self.rows()
            if record.work != CLEAN
        ]
