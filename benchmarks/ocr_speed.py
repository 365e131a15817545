"""How fast pages are read: our service over HTTP and its peers on the same clean pages, round after round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ocr_client import Refused, first_page_s, read, read_all
from benchmarks.ocr_pages import Drawn, clean_page, digital_pdf, scanned_pdf
from benchmarks.ocr_peers import READERS, cores, read_apart
from benchmarks.ocr_scores import score, summed
from benchmarks.peers import ours, running
from benchmarks.results import Spread, spread

AUTO, TESSERACT = "ours", "ours-tesseract"
ENGINES: Mapping[str, str] = {AUTO: "auto", TESSERACT: "tesseract"}
LANGUAGE = "es,en"
CLIENTS_A_CORE = 2  # one page is decoded and sent while another one is read

# The bars. Rates: ours over the peer's. Times: at most.
TARGETS: Mapping[str, float] = {"pytesseract": 15.0, "pytesseract-pool": 1.25}
AUTO_TARGET = 1.5  # times the time of Tesseract alone
DIGITAL_TARGET_S = 3.0
FIRST_PAGE_TARGET_S = 2.0

DIGITAL, DIGITAL_AGAIN, FIRST_PAGE = "digital", "digital_again", "first_page"
DIGITAL_PAGES = 100
_PASSES = 3  # of ours in a round: one is over in two seconds


@dataclass(frozen=True, slots=True)
class Pass:
    """A reader's reading of all pages in one round."""

    reader: str
    round: int
    pages_per_s: float


@dataclass(slots=True)
class Speed:
    """What a run has measured; filled by it."""

    passes: list[Pass] = field(default_factory=list)
    texts: dict[str, Sequence[str]] = field(default_factory=dict)  # reader -> the pages as it last read them
    seconds: dict[str, list[float]] = field(default_factory=dict)  # DIGITAL and its like -> a number a round
    unmeasured: dict[str, str] = field(default_factory=dict)

    def add(self, reader: str, index: int, seconds: float, texts: Sequence[str]) -> None:
        """Keep one pass and say so on stderr."""
        self.passes.append(Pass(reader, index, len(texts) / seconds))
        self.texts[reader] = texts
        print(f"round {index + 1}: {reader}: {len(texts) / seconds:.2f} pages/s", file=sys.stderr)

    def took(self, what: str, seconds: float) -> None:
        """Keep a time and say so on stderr."""
        self.seconds.setdefault(what, []).append(seconds)
        print(f"{what}: {seconds:.2f} s", file=sys.stderr)


def measure(work: Path, page_count: int, rounds: int, peers: Sequence[str] = tuple(READERS)) -> dict[str, Any]:
    """Every reader once a round. Our service starts anew in each, so that its first answer is a first one.

    Raises: RuntimeError when a peer fails or our service refuses a page: a refusal is quick and would look like speed.
    """
    pages, found = [clean_page(number) for number in range(page_count)], Speed()
    files = _written(pages, work)
    for index in range(rounds):
        for name in peers:
            reading = read_apart(name, files)
            found.add(name, index, reading.seconds, reading.texts)
        _measure_ours(work, pages, index, found)
    return as_json(found, [page.text for page in pages])


def _written(pages: Sequence[Drawn], work: Path) -> list[Path]:
    files = [work / f"page-{number}.png" for number in range(len(pages))]
    for file, page in zip(files, pages, strict=True):
        file.write_bytes(page.png)
    return files


def _measure_ours(work: Path, pages: Sequence[Drawn], index: int, found: Speed) -> None:
    clients, images = CLIENTS_A_CORE * cores(), [page.png for page in pages]
    with running(ours(work / "state"), work) as server:
        for what in (DIGITAL, DIGITAL_AGAIN):
            found.took(what, _digital_s(server.port, f"{what} {index}"))
        _first_page(server.port, pages, found)
        for engine in ENGINES.values():  # every lane has then read a page
            read_all(server.port, images[:clients], clients, language=LANGUAGE, engine=engine)
        for _ in range(_PASSES):
            for name, engine in ENGINES.items():
                read_once = partial(read_all, server.port, images, clients, language=LANGUAGE, engine=engine)
                seconds, answers = _timed(read_once)
                found.add(name, index, seconds, [answer["text"] for answer in answers])


def _digital_s(port: int, seed: str) -> float:
    """Seconds for a PDF that nobody has seen. Raises: RuntimeError where less than its text came back."""
    file = digital_pdf(seed, DIGITAL_PAGES)
    seconds, answer = _timed(lambda: read(port, file))
    sources = {page["source"] for page in answer["pages"]}
    if sources != {"text_layer"} or len(answer["pages"]) != DIGITAL_PAGES:
        raise RuntimeError(f"{len(answer['pages'])} pages came back of {DIGITAL_PAGES}, read by {sources}")
    return seconds


def _first_page(port: int, pages: Sequence[Drawn], found: Speed) -> None:
    try:
        found.took(FIRST_PAGE, first_page_s(port, scanned_pdf(pages), language=LANGUAGE, features="text,words"))
    except Refused as refused:
        if refused.status != 404:
            raise
        found.unmeasured[FIRST_PAGE] = "the service has no jobs"


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.perf_counter()
    answer = work()
    return time.perf_counter() - started_s, answer


def as_json(found: Speed, truths: Sequence[str]) -> dict[str, Any]:
    """The part of the result file that a run of speed gives."""
    rates = rates_of(found.passes)
    kept = {what: spread(times) for what, times in found.seconds.items()}
    rows = [
        {
            "reader": name,
            "pages_per_s": spread(of_rounds),
            "ours_over": _ratio(rates[AUTO], of_rounds),
            "target": TARGETS.get(name),
            "cer": summed([score(*pair) for pair in zip(found.texts[name], truths, strict=True)])["cer"],
        }
        for name, of_rounds in rates.items()
    ]
    times = _ratio(rates[TESSERACT], rates[AUTO])
    return {"speed": rows, "auto_over_tesseract_time": times, "seconds": kept, "unmeasured": found.unmeasured}


def rates_of(passes: Sequence[Pass]) -> dict[str, list[float]]:
    """Reader -> pages a second of each round; several passes of one round are one rate, of all their pages."""
    times: dict[str, dict[int, list[float]]] = {}
    for one in passes:
        times.setdefault(one.reader, {}).setdefault(one.round, []).append(1 / one.pages_per_s)
    return {
        reader: [len(some) / sum(some) for _, some in sorted(by_round.items())] for reader, by_round in times.items()
    }


def _ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Each of one round, where both stood side by side."""
    return spread(mine / theirs for mine, theirs in zip(over, under, strict=True))
