"""Precision, recall and F1 of whole entities: scores a NER model on CoNLL files.

python -m tools.score_ner backend/models/bundled/ner FILE.conll …  --types PER,ORG,LOC --relabel PER_LEGAL=PER
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as transformers_logging

from backend.errors import FinanciaError
from backend.training.tasks.ner_prediction import score_files


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table with a row per file; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.score_ner", description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--types", default="", help="kinds to score, with commas between; all unless said")
    parser.add_argument("--relabel", default="", help="FROM=TO of the files' kinds, with commas between")
    options = parser.parse_args(arguments)
    types = tuple(filter(None, options.types.split(",")))
    relabel = dict(item.split("=", 1) for item in options.relabel.split(",") if item)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        reports = score_files(options.model, options.files, types=types, relabel=relabel)
    except FinanciaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    rows = ["| set | precision | recall | F1 | by kind |", "| --- | --- | --- | --- | --- |"]
    for name, report in reports.items():
        scores = " | ".join(f"{report.scores.get(metric, 0.0):.4f}" for metric in ("precision", "recall", "f1"))
        kinds = ", ".join(f"{row.label} {row.f1 or 0:.3f} ({row.support})" for row in report.per_class)
        rows.append(f"| {name} | {scores} | {kinds} |")
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
