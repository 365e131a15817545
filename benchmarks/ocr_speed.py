"""OCR speed: this service over HTTP and its peers on the same clean pages, round after round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ocr_client import RequestRefused, first_page_s, read, read_all
from benchmarks.ocr_pages import DrawnPage, clean_page, digital_pdf, scanned_pdf
from benchmarks.ocr_peers import PEERS, cores, run_in_subprocess
from benchmarks.ocr_scores import score, summed
from benchmarks.peers import ours, running
from benchmarks.results import Spread, spread

AUTO, TESSERACT = "ours", "ours-tesseract"
ENGINES: Mapping[str, str] = {AUTO: "auto", TESSERACT: "tesseract"}
LANGUAGE = "es,en"
CLIENTS_A_CORE = 2  # one page is decoded and sent while another one is recognized

# Targets. Rates: ours over the peer's. Times: at most.
TARGETS: Mapping[str, float] = {"pytesseract": 15.0, "pytesseract-pool": 1.25}
AUTO_TARGET = 1.5  # times the time of Tesseract alone
DIGITAL_TARGET_S = 3.0
FIRST_PAGE_TARGET_S = 2.0

DIGITAL, DIGITAL_AGAIN, FIRST_PAGE = "digital", "digital_again", "first_page"
DIGITAL_PAGES = 100
_PASSES = 3  # of ours in a round: a pass takes only two seconds


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of an OCR engine over all pages."""

    reader: str
    round: int
    pages_per_s: float


@dataclass(slots=True)
class SpeedResults:
    """The measurements of a run."""

    passes: list[Pass] = field(default_factory=list)
    texts: dict[str, Sequence[str]] = field(default_factory=dict)  # reader -> texts of its last pass
    seconds: dict[str, list[float]] = field(default_factory=dict)  # DIGITAL, … -> a duration per round
    unmeasured: dict[str, str] = field(default_factory=dict)

    def add(self, reader: str, index: int, seconds: float, texts: Sequence[str]) -> None:
        """Record one pass and print it to stderr."""
        self.passes.append(Pass(reader, index, len(texts) / seconds))
        self.texts[reader] = texts
        print(f"round {index + 1}: {reader}: {len(texts) / seconds:.2f} pages/s", file=sys.stderr)

    def took(self, name: str, seconds: float) -> None:
        """Record a duration and print it to stderr."""
        self.seconds.setdefault(name, []).append(seconds)
        print(f"{name}: {seconds:.2f} s", file=sys.stderr)


def measure(work: Path, page_count: int, rounds: int, peers: Sequence[str] = tuple(PEERS)) -> dict[str, Any]:
    """Run every OCR engine once per round. Our service restarts in each, so that first requests are cold.

    Raises: RuntimeError when a peer fails or our service refuses a page: refusals are fast and would distort the rate.
    """
    pages, results = [clean_page(number) for number in range(page_count)], SpeedResults()
    files = _written(pages, work)
    for index in range(rounds):
        for name in peers:
            peer_result = run_in_subprocess(name, files)
            results.add(name, index, peer_result.seconds, peer_result.texts)
        _measure_ours(work, pages, index, results)
    return as_json(results, [page.text for page in pages])


def _written(pages: Sequence[DrawnPage], work: Path) -> list[Path]:
    files = [work / f"page-{number}.png" for number in range(len(pages))]
    for file, page in zip(files, pages, strict=True):
        file.write_bytes(page.png)
    return files


def _measure_ours(work: Path, pages: Sequence[DrawnPage], index: int, results: SpeedResults) -> None:
    clients, images = CLIENTS_A_CORE * cores(), [page.png for page in pages]
    with running(ours(work / "state"), work) as server:
        for name in (DIGITAL, DIGITAL_AGAIN):
            results.took(name, _digital_s(server.port, f"{name} {index}"))
        _first_page(server.port, pages, results)
        for engine in ENGINES.values():  # warm up every lane
            read_all(server.port, images[:clients], clients, language=LANGUAGE, engine=engine)
        for _ in range(_PASSES):
            for name, engine in ENGINES.items():
                read_once = partial(read_all, server.port, images, clients, language=LANGUAGE, engine=engine)
                seconds, answers = _timed(read_once)
                results.add(name, index, seconds, [answer["text"] for answer in answers])


def _digital_s(port: int, seed: str) -> float:
    """Seconds for a new PDF. Raises: RuntimeError unless the text layer of all pages came back."""
    file = digital_pdf(seed, DIGITAL_PAGES)
    seconds, answer = _timed(lambda: read(port, file))
    sources = {page["source"] for page in answer["pages"]}
    if sources != {"text_layer"} or len(answer["pages"]) != DIGITAL_PAGES:
        raise RuntimeError(f"{len(answer['pages'])} pages came back of {DIGITAL_PAGES}, read by {sources}")
    return seconds


def _first_page(port: int, pages: Sequence[DrawnPage], results: SpeedResults) -> None:
    try:
        results.took(FIRST_PAGE, first_page_s(port, scanned_pdf(pages), language=LANGUAGE, features="text,words"))
    except RequestRefused as error:
        if error.status != 404:
            raise
        results.unmeasured[FIRST_PAGE] = "the service has no jobs"


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.perf_counter()
    answer = work()
    return time.perf_counter() - started_s, answer


def as_json(results: SpeedResults, truths: Sequence[str]) -> dict[str, Any]:
    """The speed part of the result file."""
    rates = rates_of(results.passes)
    seconds = {name: spread(times) for name, times in results.seconds.items()}
    rows = [
        {
            "reader": name,
            "pages_per_s": spread(round_rates),
            "ours_over": _ratio(rates[AUTO], round_rates),
            "target": TARGETS.get(name),
            "cer": summed([score(*pair) for pair in zip(results.texts[name], truths, strict=True)])["cer"],
        }
        for name, round_rates in rates.items()
    ]
    times = _ratio(rates[TESSERACT], rates[AUTO])
    return {"speed": rows, "auto_over_tesseract_time": times, "seconds": seconds, "unmeasured": results.unmeasured}


def rates_of(passes: Sequence[Pass]) -> dict[str, list[float]]:
    """Reader -> pages per second of each round, over all passes of the round."""
    times: dict[str, dict[int, list[float]]] = {}
    for speed_pass in passes:
        times.setdefault(speed_pass.reader, {}).setdefault(speed_pass.round, []).append(1 / speed_pass.pages_per_s)
    return {
        reader: [len(times_of_round) / sum(times_of_round) for _, times_of_round in sorted(by_round.items())]
        for reader, by_round in times.items()
    }


def _ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Spread of the ratios within each round."""
    return spread(numerator / denominator for numerator, denominator in zip(numerators, denominators, strict=True))
