"""Embeddings, classes, pages and full analysis on the CPU and on each card, in one run; then each training option.

    python -m benchmarks.devices            # CPU and every card; a card that is absent is not measured
    python -m benchmarks.devices --quick    # small and one round: for development

A server for each device, its cache off, all running at the same time and asked in turns (CPU, card, CPU, card): one
that is not asked costs nothing, and a card's ratio is of one round. What computes there is what the service chose.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from benchmarks.client import RequestRefused, ask
from benchmarks.machine import ROOT, facts
from benchmarks.ocr_client import read_all
from benchmarks.ocr_pages import clean_page, sentences
from benchmarks.peers import Server, ours, running
from benchmarks.results import spread, write

# task -> what stands in the table; the amounts are those that guides promise numbers for
TITLES = {
    "embeddings": "embeddings of {} documents",
    "classes": "classes of {} documents, one request",
    "pages": "{} scanned pages read, engine as chosen",
    "rapidocr": "{} scanned pages read by RapidOCR",
    "analysis": "full analysis of {} documents",
}
TASKS = tuple(TITLES)
_SENTENCES = 20  # of a document: half a page of text, about 400 tokens, which every encoder takes whole
_CLIENTS = 8  # that ask for pages and analyses at the same time
RESULT = Path(__file__).parent / "results" / "devices.json"
CPU = "cpu"
_CARDS = (
    "import json, torch\n"
    "count = torch.cuda.device_count() if torch.cuda.is_available() else 0\n"
    "print(json.dumps({f'cuda:{index}': torch.cuda.get_device_name(index) for index in range(count)}))"
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many things a pass of each task takes, and how often."""

    embeddings: int  # documents
    classes: int  # documents
    pages: int  # read by Tesseract or RapidOCR, as the service chooses
    rapidocr: int  # pages read by RapidOCR, whose networks run on a card
    analysis: int  # documents
    rounds: int

    def of(self, task: str) -> int:
        """The things of one pass."""
        return int(getattr(self, task))


FULL = Effort(embeddings=100, classes=32, pages=20, rapidocr=20, analysis=20, rounds=3)
QUICK = Effort(embeddings=4, classes=4, pages=1, rapidocr=1, analysis=1, rounds=1)


def cards() -> dict[str, str]:
    """Torch's name of each card, by its device string; asked in a process of its own, which keeps no context."""
    completed = subprocess.run([sys.executable, "-c", _CARDS], cwd=ROOT, check=False, capture_output=True, text=True)
    found: dict[str, str] = json.loads(completed.stdout) if completed.returncode == 0 else {}
    return found


def measure_tasks(
    devices: Sequence[str], effort: Effort, folder: Path, settings: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Any]:
    """Seconds of every task on every device, and the CPU's time as a multiple of each other device's.

    Args:
        settings: further environment variables of a device's server.
    """
    seconds: dict[tuple[str, str], list[float]] = {}
    faults: dict[str, str] = {}
    with _servers(devices, folder, settings or {}, settled=effort is not QUICK) as servers:
        on = {device: ask(server.port, "/v1/models") for device, server in servers.items()}
        for index in range(-1, effort.rounds):  # the first pass warms up and does not count
            for task, device in product(TASKS, servers):
                if f"{task} on {device}" in faults:
                    continue
                count = effort.of(task)
                try:
                    took_s = run_task(servers[device].port, task, count, (index + 1) * count)
                except (RequestRefused, OSError) as error:  # of this task; the others are measured
                    faults[f"{task} on {device}"] = str(error)
                    continue
                if index >= 0:
                    seconds.setdefault((task, device), []).append(took_s)
                    print(f"round {index + 1}: {task} on {device}: {took_s:.3f} s", flush=True)
    return {"effort": asdict(effort), "on": on, "rows": rows_of(seconds, devices, effort), "faults": faults}


def rows_of(
    seconds: dict[tuple[str, str], list[float]], devices: Sequence[str], effort: Effort
) -> list[dict[str, Any]]:
    """A row for each task; devices without a time are left out of it."""
    rows = []
    for task in TASKS:
        times = {device: seconds[task, device] for device in devices if seconds.get((task, device))}
        base = times.get(CPU, [])
        ratios = {
            device: spread(cpu_s / took_s for cpu_s, took_s in zip(base, values, strict=False))
            for device, values in times.items()
            if device != CPU and base
        }
        row = {"task": task, "title": TITLES[task].format(effort.of(task)), "count": effort.of(task)}
        rows.append({**row, "seconds": {name: spread(values) for name, values in times.items()}, "ratios": ratios})
    return rows


@contextmanager
def _servers(
    devices: Sequence[str], folder: Path, settings: Mapping[str, Mapping[str, str]], *, settled: bool
) -> Iterator[dict[str, Server]]:
    """The devices' servers, started one after the other: a first start measures, alone on the machine.

    Args:
        settled: wait until that is done; a busy machine may put it off for long.
    """
    with ExitStack() as stack:
        servers = {}
        for device in devices:
            state = folder / device.replace(":", "-")
            state.mkdir()
            options = {"DEVICE": device, "SPEECH_MODEL": "none", **settings.get(device, {})}
            peer = ours(state, name=state.name, **options)
            peer = peer if settled else replace(peer, settling=())
            servers[device] = stack.enter_context(running(peer, folder))
        yield servers


def training(device: str, *, quick: bool) -> dict[str, Any]:
    """The training options on one device, in a process of their own: torch's threads would stay."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        out = Path(folder) / "training.json"
        argv = [sys.executable, "-m", "benchmarks.training", f"--device={device}", f"--out={out}"]
        completed = subprocess.run([*argv, *(("--quick",) if quick else ())], cwd=ROOT, check=False)
        if completed.returncode:
            return {"device": device, "rows": [], "faults": {"all": f"exit status {completed.returncode}"}}
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


def run_task(port: int, task: str, count: int, first: int) -> float:
    """Seconds until the service has answered for ``count`` things, the ``first`` one being that number.

    Raises: RequestRefused for a status but 200; OSError when nothing answers.
    """
    send = _prepared(port, task, count, first)
    started_s = time.perf_counter()
    send()
    return time.perf_counter() - started_s


def _prepared(port: int, task: str, count: int, first: int) -> Callable[[], object]:
    """The requests of a pass, made before it is timed."""
    if task in ("pages", "rapidocr"):
        pages = [clean_page(first + index).png for index in range(count)]
        fields = {"engine": "rapidocr"} if task == "rapidocr" else {}
        return lambda: read_all(port, pages, min(_CLIENTS, count), source="ocr", **fields)
    texts = documents(count, first)
    if task == "analysis":
        return lambda: _send_all(port, "/v1/analyze", texts)
    path = "/v1/embeddings" if task == "embeddings" else "/v1/classify"
    return lambda: ask(port, path, {"input": texts})


def documents(count: int, first: int) -> list[str]:
    """Texts, other words in each."""
    return [" ".join(islice(sentences(f"document {first + index}"), _SENTENCES)) for index in range(count)]


def _send_all(port: int, path: str, texts: Sequence[str]) -> None:
    with ThreadPoolExecutor(min(_CLIENTS, len(texts))) as pool:
        list(pool.map(lambda text: ask(port, path, {"input": text}), texts))


def main() -> None:
    """Measure what is there and write ``results/devices.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.devices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and one round: for development")
    parser.add_argument("--no-training", action="store_true", help="the tasks alone")
    parser.add_argument("--out", type=Path, default=RESULT)
    flags = parser.parse_args()
    environment, found = facts(), cards()
    devices = [CPU, *found]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        tasks = measure_tasks(devices, QUICK if flags.quick else FULL, Path(folder))
    result = {**environment, "cards": found, **tasks}
    write(flags.out, result)
    result["training"] = []
    for device in () if flags.no_training else devices:
        result["training"].append(training(device, quick=flags.quick))
        write(flags.out, result)


if __name__ == "__main__":
    main()
