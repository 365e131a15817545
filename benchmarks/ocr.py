"""OCR benchmark: speed and quality of this service over HTTP and of its peers, in one run; results as JSON.

    python -m benchmarks.ocr                   # speed and quality, on an idle machine
    python -m benchmarks.ocr --quick           # few pages, one round, for development
    python -m benchmarks.ocr --parts quality   # a part alone is printed, and written only with --out
    python -m benchmarks.ocr --memory          # memory growth over 10,000 pages; a separate result
    python -m benchmarks.ocr --before ../old   # beside the service of another checkout, in the same rounds

Peers need the program tesseract with Spanish and English. Their texts of the data sets are cached in build/, since
they do not change. Exit status: 1 when a target is missed, 2 when something could not be measured.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ocr_memory, ocr_quality, ocr_speed
from benchmarks.machine import commit, facts
from benchmarks.ocr_comparisons import CLIENTS_A_CORE
from benchmarks.ocr_pages import DPI, font_name
from benchmarks.ocr_peers import LANGUAGES, cores, versions
from benchmarks.ocr_tables import memory_section, missed, ocr_section
from benchmarks.results import write
from benchmarks.texts import DATA

RESULTS = Path(__file__).parent / "results"
RESULT, MEMORY = RESULTS / "ocr.json", RESULTS / "ocr_memory.json"
SPEED, QUALITY = "speed", "quality"
MISSED, UNMEASURED = 1, 2
_PAGES, _QUICK_PAGES, _ROUNDS = 8, 4, 2
_MEMORY_PAGES = 10_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is read."""

    pages: int  # clean ones
    rounds: int
    is_quick: bool = False  # a part of the data sets


def measure(parts: list[str], effort: Effort, data: Path, before: Path | None = None) -> dict[str, Any]:
    """Run the requested parts in order; returns the content of the result file beside ``facts``."""
    result: dict[str, Any] = {"unmeasured": {}}
    with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
        work = Path(folder)
        measurements = {
            SPEED: lambda: ocr_speed.measure(work, effort.pages, effort.rounds, data, before),
            QUALITY: lambda: ocr_quality.measure(data, work, is_quick=effort.is_quick),
        }
        for part in parts:
            started_s = time.perf_counter()
            result_of_part = measurements[part]()
            unmeasured = result["unmeasured"] | result_of_part.pop("unmeasured")
            result |= {**result_of_part, "unmeasured": unmeasured, f"{part}_took_s": time.perf_counter() - started_s}
    return result


def measure_memory(pages: int) -> dict[str, Any]:
    """Measure memory growth over thousands of pages."""
    with tempfile.TemporaryDirectory(prefix="ocr-") as folder:
        return ocr_memory.measure(Path(folder), pages)


def status_of(result: Mapping[str, Any]) -> int:
    """The exit status. A quick run, with few pages, misses no target."""
    if result.get("unmeasured"):
        return UNMEASURED
    return MISSED if not result["quick"] and missed(result) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ocr", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few pages, one round: for development")
    parser.add_argument("--parts", default=f"{SPEED},{QUALITY}", help="which, in which order (default: %(default)s)")
    parser.add_argument("--memory", action="store_true", help="instead: resident memory over many pages")
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit, measured in the same rounds")
    parser.add_argument("--pages", type=int, help=f"default {_PAGES}, with --memory {_MEMORY_PAGES}")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where the result goes (default: results/, for a run of everything)")
    return parser


def main() -> None:
    """Measure, print the tables, write the result."""
    parser = _parser()
    flags = parser.parse_args()
    parts = flags.parts.split(",")
    if unknown := sorted(set(parts) - {SPEED, QUALITY}):
        parser.error(f"--parts: {unknown[0]} is neither {SPEED} nor {QUALITY}")
    result: dict[str, Any] = {**facts(), "quick": flags.quick}
    if flags.memory:
        pages = flags.pages or (ocr_memory.MIN_PAGES if flags.quick else _MEMORY_PAGES)
        result |= measure_memory(pages)
        default_out = MEMORY
    else:
        default_pages, rounds = (_QUICK_PAGES, 1) if flags.quick else (_PAGES, flags.rounds)
        effort = Effort(flags.pages or default_pages, rounds, flags.quick)
        clients = cores() * CLIENTS_A_CORE
        shape = {"pages": effort.pages, "dpi": DPI, "font": font_name(), "rounds": rounds, "clients": clients}
        before = flags.before and commit(flags.before)
        result |= {"readers": versions(), "languages": LANGUAGES, "shape": shape, "before": before}
        result |= measure(parts, effort, flags.data, flags.before and flags.before.resolve())
        default_out = RESULT
    print(memory_section(result) if flags.memory else ocr_section(result))
    is_complete = not flags.quick and (flags.memory or {SPEED, QUALITY} <= set(parts))
    if out := flags.out or (default_out if is_complete else None):
        write(out, result)
    sys.exit(status_of(result))


if __name__ == "__main__":
    main()
