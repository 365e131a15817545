"""Fields benchmark: what this service reads of invoices, receipts and tables, beside plain patterns.

    python -m benchmarks.fields                  # fields_dev, papers of the generator, and texts without fields
    python -m benchmarks.fields --quick          # every fourth of fields_dev, few others: for development
    python -m benchmarks.fields --set FOLDER     # papers made elsewhere, in its format, for the generator's

Exit status: 1 when a target is missed.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fields_client import Reading, read_files, read_texts
from benchmarks.fields_made import made_papers
from benchmarks.fields_peers import by_regexes
from benchmarks.fields_scores import FIELDS, Answer, Scores, calibration, score_fields, summary, sureness
from benchmarks.fields_table_scores import score_tables
from benchmarks.fields_tables import OURS, PATTERNS, fields_section, missed
from benchmarks.machine import facts
from benchmarks.peers import ours, running
from benchmarks.results import spread, write
from benchmarks.texts import DATA

RESULT = Path(__file__).parent / "results" / "fields.json"
_TEXTS_OF_A_KIND = 40
_MADE = 100  # papers of the generator, and as many scans
_WITHOUT_FIELDS = ("contract", "financial_report", "court_decision", "medical_report", "article")
_ANSWERABLE = (*FIELDS, "TaxDetails", "Items")


@dataclass(frozen=True, slots=True)
class Sample:
    """A document with its truth."""

    name: str
    file: Path
    truth: Mapping[str, Any]
    is_made: bool  # by the generator, or of the folder that --set names


Split = Callable[[Sample], bool]


SPLITS: Mapping[str, Split] = {
    "made, digital": lambda sample: _is_made(sample, "digital"),
    "made, scans": lambda sample: _is_made(sample, "scan"),
    "fields_dev, digital": lambda sample: _is_dev(sample, "generated", "digital"),
    "fields_dev, scans": lambda sample: _is_dev(sample, "generated", "scan"),
    "real invoices": lambda sample: not sample.is_made and sample.truth["source"] == "real",
    "receipts (SROIE)": lambda sample: sample.truth["source"] == "sroie",
    "tables, digital": lambda sample: sample.truth["doc_type"] == "table" and sample.truth["medium"] == "digital",
    "tables, scans": lambda sample: sample.truth["doc_type"] == "table" and sample.truth["medium"] == "scan",
}


def _is_made(sample: Sample, medium: str) -> bool:
    return sample.is_made and sample.truth["medium"] == medium and sample.truth["doc_type"] != "table"


def _is_dev(sample: Sample, source: str, medium: str) -> bool:
    truth = sample.truth
    is_same = (truth["source"], truth["medium"]) == (source, medium)
    return not sample.is_made and is_same and truth["doc_type"] != "table"


def samples_of(folder: Path, *, is_made: bool, every: int = 1) -> list[Sample]:
    """The documents of a set, by name."""
    samples = []
    for path in sorted((folder / "truth").glob("*.json"))[::every]:
        truth = json.loads(path.read_text(encoding="utf-8"))
        samples.append(Sample(path.stem, folder / truth["file"], truth, is_made))
    return samples


def measure(samples: list[Sample], data: Path, *, is_quick: bool) -> dict[str, Any]:
    """The content of the result file beside ``facts``."""
    with tempfile.TemporaryDirectory(prefix="fields-") as folder:
        work = Path(folder)
        with running(ours(work / "state"), work) as server:
            readings = read_files(server.port, [sample.file for sample in samples])
            texts = without_fields(data, 5 if is_quick else _TEXTS_OF_A_KIND)
            text_answers = read_texts(server.port, texts) if texts else []
    if not any(sample.is_made for sample in samples):
        for is_scan in (False, True):
            for truth, reading in made_papers(10 if is_quick else _MADE, is_scan=is_scan):
                samples.append(Sample("made", Path(), truth, is_made=True))
                readings.append(reading)
    answers = {
        OURS: [reading.answer for reading in readings],
        PATTERNS: [by_regexes(reading.text) for reading in readings],
    }
    seconds = {OURS: spread(reading.fields_s / max(1, reading.pages) for reading in readings)}
    return {
        "splits": {
            name: {reader: figures for reader in answers if (figures := _figures(samples, answers[reader], split))}
            for name, split in SPLITS.items()
        },
        "calibration": {
            name: calibration(values)
            for name, is_made in (("made", True), ("others", False))
            if (values := _sureness(samples, answers[OURS], is_made=is_made))
        },
        "inventions": inventions(samples, answers[OURS], text_answers),
        "seconds_a_page": seconds,
        "failed": _failed(samples, readings),
    }


def score(truth: Mapping[str, Any], answer: Answer) -> Scores:
    """Everything that the truth of a document asks."""
    scores = score_fields(truth, answer)
    if "tables" in truth["labelled"]:
        scores.relations = score_tables(truth["tables"], answer.tables)
    return scores


def _figures(samples: Sequence[Sample], answers: Sequence[Answer], split: Split) -> dict[str, Any] | None:
    chosen = [
        score(sample.truth, answer)
        for sample, answer in zip(samples, answers, strict=True)
        if split(sample) and sample.truth["doc_type"] != "other"
    ]
    return summary(chosen) if chosen else None


def _sureness(samples: Sequence[Sample], answers: Sequence[Answer], *, is_made: bool) -> list[tuple[float, bool]]:
    pairs = zip(samples, answers, strict=True)
    return [value for sample, answer in pairs if sample.is_made == is_made for value in sureness(sample.truth, answer)]


def inventions(samples: Sequence[Sample], answers: Sequence[Answer], texts: Sequence[Answer]) -> dict[str, float]:
    """Fields answered where there are none, as a share of those that could be answered."""
    empty = [answer for sample, answer in zip(samples, answers, strict=True) if sample.truth["doc_type"] == "other"]
    empty += texts
    answered = sum(name in answer.fields for answer in empty for name in _ANSWERABLE)
    possible = len(empty) * len(_ANSWERABLE)
    return {"documents": len(empty), "answered": answered, "share": answered / possible if possible else 0.0}


def without_fields(data: Path, most: int) -> list[str]:
    """Texts of contracts, reports, decisions and articles, so many of each kind."""
    path = data / "cls_doctype_text" / "train.jsonl"
    if not path.exists():
        return []
    by_kind: dict[str, list[str]] = {kind: [] for kind in _WITHOUT_FIELDS}
    with path.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if len(by_kind.get(record["label"], [""] * most)) < most:
                by_kind[record["label"]].append(record["text"])
    return [text for texts in by_kind.values() for text in texts]


def _failed(samples: Iterable[Sample], readings: Iterable[Reading]) -> dict[str, str]:
    return {sample.name: reading.error for sample, reading in zip(samples, readings, strict=True) if reading.error}


def main() -> None:
    """Measure, print the tables, write the result of a whole run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fields", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few documents: for development")
    parser.add_argument(
        "--set", type=Path, help="a folder of papers in the format of fields_dev, in place of the generator's"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where the result goes (default: results/, for a whole run)")
    flags = parser.parse_args()
    samples = samples_of(flags.data / "fields_dev", is_made=False, every=4 if flags.quick else 1)
    samples += samples_of(flags.set, is_made=True) if flags.set else []
    result = {**facts(), "quick": flags.quick}
    result |= measure(samples, flags.data, is_quick=flags.quick)
    print(fields_section(result))
    if out := flags.out or (None if flags.quick else RESULT):
        write(out, result)
    sys.exit(bool(missed(result)) and not flags.quick)


if __name__ == "__main__":
    main()
