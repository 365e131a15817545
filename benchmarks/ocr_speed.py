"""OCR speed: this service over HTTP, an earlier commit of it, and their peers on the same pages, round after round."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ocr_client import first_page_s, read, read_all
from benchmarks.ocr_comparisons import (
    CLIENTS_A_CORE,
    ENGINES,
    LANGUAGE,
    Workloads,
    prepare,
    time_before,
    time_ocrmypdf,
    time_ours,
    time_peers,
    warm_up,
)
from benchmarks.ocr_pages import DrawnPage, clean_page, digital_pdf, scanned_pdf
from benchmarks.ocr_peers import PEERS, cores, run_in_subprocess
from benchmarks.ocr_scores import score, summed
from benchmarks.ocr_searchable import OCRMYPDF
from benchmarks.ocr_timings import AUTO, BEFORE, CLEAN, DOUBTFUL, TESSERACT, Timing, Timings
from benchmarks.peers import ours, running
from benchmarks.results import spread

# Targets. Rates: ours over the peer's. Times: at most.
TARGETS: Mapping[str, float] = {"pytesseract": 15.0, "pytesseract-pool": 1.25}
AUTO_TARGET = 1.5  # times the time of Tesseract alone
DIGITAL_TARGET_S = 3.0
FIRST_PAGE_TARGET_S = 2.0

DIGITAL, DIGITAL_AGAIN, FIRST_PAGE = "digital", "digital_again", "first_page"
DIGITAL_PAGES = 100
_PASSES = 2  # of ours in a round: a pass takes only seconds
_CLEAN_ENGINES = (AUTO, TESSERACT)  # RapidOCR alone is compared on the pages that are its own
_BEFORE_LIMIT_PAGE_S = "300"  # an earlier commit refused pages that took long; their time is what is asked here


@dataclass(slots=True)
class SpeedResults:
    """The measurements of a run."""

    seconds: dict[str, list[float]] = field(default_factory=dict)  # DIGITAL, … -> a duration per round
    timings: Timings = field(default_factory=Timings)
    unmeasured: dict[str, str] = field(default_factory=dict)

    def took(self, name: str, seconds: float) -> None:
        """Record a duration and print it to stderr."""
        self.seconds.setdefault(name, []).append(seconds)
        print(f"{name}: {seconds:.2f} s", file=sys.stderr)


def measure(work: Path, page_count: int, rounds: int, data: Path, before: Path | None = None) -> dict[str, Any]:
    """Run every OCR engine once per round. Our service restarts in each, so that first requests are cold.

    Args:
        data: the folder of sets, for pages of several kinds.
        before: a checkout of another commit of this service, which is measured in the same rounds.

    Raises: RuntimeError when a peer fails or our service refuses a page: refusals are fast and would distort the rate.
    """
    run = _SpeedRun(work, [clean_page(number) for number in range(page_count)], prepare(work / "workloads", data))
    for index in range(rounds):
        run.time_peers(index)
        run.time_ocrmypdf(index)
        if before is not None:
            run.time_before(index, before)
        run.time_ours(index)
    if not any(record.work == DOUBTFUL for record in run.results.timings.records):
        run.results.unmeasured[DOUBTFUL] = "RapidOCR was chosen for no page"
    return as_json(run.results)


@dataclass(frozen=True, slots=True)
class _SpeedRun:
    """What a run reads, and its results so far."""

    work: Path  # files of the run and logs of the servers
    pages: Sequence[DrawnPage]  # clean ones
    workloads: Workloads
    results: SpeedResults = field(default_factory=SpeedResults)

    def time_ocrmypdf(self, index: int) -> None:
        try:
            self.results.timings.add(time_ocrmypdf(index, self.workloads))
        except subprocess.CalledProcessError as error:
            self.results.unmeasured[OCRMYPDF] = f"{Path(error.cmd[0]).name} ended with status {error.returncode}"

    def time_peers(self, index: int) -> None:
        files = [self.work / f"page-{number}.png" for number in range(len(self.pages))]
        for file, page in zip(files, self.pages, strict=True):
            file.write_bytes(page.png)
        for name, peer in PEERS.items():
            peer_result = run_in_subprocess(name, files[: peer.pages])
            self._add_clean(name, index, peer_result.seconds, peer_result.texts)
        for timing in time_peers(index, self.workloads):
            self.results.timings.add(timing)

    def time_before(self, index: int, checkout: Path) -> None:
        service = ours(self.work / "state-before", name=BEFORE, LIMIT_PAGE_S=_BEFORE_LIMIT_PAGE_S)
        with running(replace(service, cwd=checkout), self.work) as server:
            warm_up(server.port, list(ENGINES.values()))
            self._time_clean(server.port, index, BEFORE, "auto")
            for timing in time_before(server.port, index, self.workloads, BEFORE):
                self.results.timings.add(timing)

    def time_ours(self, index: int) -> None:
        with running(ours(self.work / "state"), self.work) as server:
            for name in (DIGITAL, DIGITAL_AGAIN):
                self.results.took(name, _digital_s(server.port, f"{name} {index}"))
            file = scanned_pdf([page.png for page in self.pages])
            self.results.took(FIRST_PAGE, first_page_s(server.port, file, language=LANGUAGE, features="text,words"))
            warm_up(server.port, list(ENGINES.values()))
            for _ in range(_PASSES):
                for name in _CLEAN_ENGINES:
                    self._time_clean(server.port, index, name, ENGINES[name])
            for timing in time_ours(server.port, index, self.workloads):
                self.results.timings.add(timing)

    def _time_clean(self, port: int, index: int, reader: str, engine: str) -> None:
        images, clients = [page.png for page in self.pages], CLIENTS_A_CORE * cores()
        seconds, answers = _timed(partial(read_all, port, images, clients, language=LANGUAGE, engine=engine))
        self._add_clean(reader, index, seconds, [answer["text"] for answer in answers])

    def _add_clean(self, reader: str, index: int, seconds: float, texts: Sequence[str]) -> None:
        """A reader of fewer pages read the first ones."""
        truths = [page.text for page in self.pages]
        cer = summed([score(*pair) for pair in zip(texts, truths, strict=False)])["cer"]
        self.results.timings.add(Timing(CLEAN, reader, index, len(texts), seconds, cer))


def _digital_s(port: int, seed: str) -> float:
    """Seconds for a new PDF. Raises: RuntimeError unless the text layer of all pages came back."""
    file = digital_pdf(seed, DIGITAL_PAGES)
    seconds, answer = _timed(lambda: read(port, file))
    sources = {page["source"] for page in answer["pages"]}
    if sources != {"text_layer"} or len(answer["pages"]) != DIGITAL_PAGES:
        raise RuntimeError(f"{len(answer['pages'])} pages came back of {DIGITAL_PAGES}, read by {sources}")
    return seconds


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.perf_counter()
    answer = work()
    return time.perf_counter() - started_s, answer


def as_json(results: SpeedResults) -> dict[str, Any]:
    """The speed part of the result file."""
    timings = results.timings
    rows = [
        {
            "reader": record.reader,
            "pages_per_s": spread(1 / each for each in seconds),
            "ours_over": spread(
                other / own for own, other in zip(timings.seconds_a_page(CLEAN, AUTO), seconds, strict=True)
            ),
            "target": TARGETS.get(record.reader),
            "cer": record.cer,
        }
        for record, seconds in timings.rows()
        if record.work == CLEAN
    ]
    tesseract = next(record for record, _ in timings.rows() if (record.work, record.reader) == (CLEAN, TESSERACT))
    return {
        "speed": rows,
        "comparisons": timings.as_json(),
        "auto_over_tesseract_time": timings.ours_over(tesseract, timings.seconds_a_page(CLEAN, TESSERACT)),
        "seconds": {name: spread(times) for name, times in results.seconds.items()},
        "unmeasured": results.unmeasured,
    }
