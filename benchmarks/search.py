"""Search benchmark: speed, memory and exactness of the embedded storage, adding files, and other libraries beside it.

    python -m benchmarks.search                      # all; over an hour on 2 cores, most of it adding a million chunks
    python -m benchmarks.search --quick              # small stores, few trials: for development
    python -m benchmarks.search --sizes 10000 100000 --parts sizes adding

Each store runs in a process of its own, one after the other. txtai, chromadb and qdrant-client get an environment of
their own (`--venv`). Exit status: 1 when a goal is missed, 2 when something could not be measured.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, facts
from benchmarks.results import write
from benchmarks.search_corpus import Corpus
from benchmarks.search_data import prepared
from benchmarks.search_peers import (
    OURS,
    VENV,
    Contestant,
    StepFailed,
    add_and_ask,
    crash,
    install,
    ours,
    peer,
    run_json,
)
from benchmarks.search_tables import missed, search_section

RESULT = Path(__file__).parent / "results" / "search.json"
WORK = ROOT / "build" / "search"
PARTS = ("sizes", "service", "adding", "peers", "crash")
PEERS = ("txtai", "chromadb", "qdrant")
MISSED, UNMEASURED = 1, 2
_SIZES = (10_000, 100_000, 1_000_000)
_PEER_SIZES = (10_000, 100_000)
_SLOWEST = {"qdrant": 10_000}  # its local mode commits each point: 100,000 take most of an hour
_CRASH_CHUNKS = 4_000


class Run:
    """One run: which stores, where, and what could not be measured."""

    def __init__(self, corpus: Path, work: Path, venv: Path) -> None:
        self.unmeasured: dict[str, str] = {}
        self._corpus, self._work, self._venv = corpus, work, venv

    def sizes(self, sizes: list[int]) -> dict[str, Any]:
        """Our storage, by its number of chunks."""
        measured: dict[str, Any] = {}
        for size in sizes:
            corpus, folder = Corpus(self._corpus, size), self._folder(OURS, size)
            self._try(f"{size:,} chunks", measured, str(size), partial(add_and_ask, ours(), corpus, folder))
        return measured

    def service(self, size: int) -> dict[str, Any]:
        """Searches by a text through the service, over a store of `sizes`."""
        corpus, state = Corpus(self._corpus, size), self._folder(OURS, size).parent
        options = [f"--folder={state}", f"--corpus={corpus.folder}", f"--chunks={size}"]
        measured: dict[str, Any] = {}
        self._try("searches through the service", measured, "searches", partial(_service, "search", *options))
        return {"chunks": size, **measured.get("searches", {})}

    def adding(self, texts: int, rounds: int) -> dict[str, Any]:
        """Files added through the service beside embedding alone."""
        state = self._work / "state"
        options = [f"--folder={state}", f"--texts={texts}", f"--rounds={rounds}"]
        measured: dict[str, Any] = {}
        self._try("adding through the service", measured, "adding", partial(_service, "add", *options))
        return {"texts": texts, **measured.get("adding", {})}

    def peers(self, sizes: list[int], names: list[str]) -> dict[str, Any]:
        """All stores of the same chunks, one after the other."""
        measured: dict[str, Any] = {}
        for size in sizes:
            rows: dict[str, Any] = {}
            for name in (OURS, *names):
                if size > _SLOWEST.get(name, size):
                    continue
                corpus, folder = Corpus(self._corpus, size), self._work / "peers" / name / "search"
                contestant = self._contestant(name, TXTAI_SAVE="close")
                self._try(f"{name}, {size:,} chunks", rows, name, partial(add_and_ask, contestant, corpus, folder))
                shutil.rmtree(folder, ignore_errors=True)
            measured[str(size)] = rows
        return measured

    def crash(self, names: list[str], trials: int) -> dict[str, Any]:
        """What SIGKILL in the middle of adding leaves."""
        measured: dict[str, Any] = {}
        corpus = Corpus(self._corpus, _CRASH_CHUNKS)
        for name in (OURS, *names):
            folder = self._work / "crash" / name
            trial = partial(crash, self._contestant(name), corpus, folder, trials=trials)
            self._try(f"{name}, killed", measured, name, trial)
            shutil.rmtree(folder, ignore_errors=True)
        return measured

    def _folder(self, name: str, size: int) -> Path:
        """The storage's folder; the one above it can be a STATE_DIR."""
        return self._work / f"{name}-{size}" / "search"

    def _contestant(self, name: str, **env: str) -> Contestant:
        return ours() if name == OURS else peer(name, self._venv, **env)

    def _try(self, title: str, measured: dict[str, Any], key: str, measure: Callable[[], dict[str, Any]]) -> None:
        print(f"measuring {title}", file=sys.stderr)
        try:
            measured[key] = measure()
        except StepFailed as error:
            self.unmeasured[title] = str(error)
            print(f"{title}: {error}", file=sys.stderr)


def _service(*arguments: str) -> dict[str, Any]:
    return run_json([sys.executable, "-m", "benchmarks.search_service", *arguments], {"LOG_LEVEL": "WARNING"})


def measure(flags: argparse.Namespace) -> dict[str, Any]:
    """The content of the result file beside ``facts``."""
    sizes = [1_000] if flags.quick else flags.sizes
    peer_sizes = [1_000] if flags.quick else flags.peer_sizes
    prepared(flags.work / "corpus", max(*sizes, *peer_sizes, _CRASH_CHUNKS))
    run, result = Run(flags.work / "corpus", flags.work, flags.venv), {}
    names = list(flags.peers)
    if names and {"peers", "crash"} & set(flags.parts):
        try:
            install(flags.venv)
        except (OSError, subprocess.CalledProcessError) as error:
            run.unmeasured["txtai, chromadb and qdrant-client"] = str(error)[:200]
            names = []
    if "sizes" in flags.parts:
        result["sizes"] = run.sizes(sizes)
    if "service" in flags.parts:
        result["service"] = run.service(min(sizes, key=lambda size: abs(size - 100_000)))
    if "adding" in flags.parts:
        result["adding"] = run.adding(flags.texts or (100 if flags.quick else 2_000), 1 if flags.quick else 3)
    if "peers" in flags.parts:
        result["peers"] = run.peers(peer_sizes, names)
    if "crash" in flags.parts:
        result["crash"] = run.crash(names, 1 if flags.quick else flags.trials)
    return {**result, "unmeasured": run.unmeasured}


def _updated(before: dict[str, Any], measured: dict[str, Any], circumstances: dict[str, Any]) -> dict[str, Any]:
    """An earlier result with parts measured since, perhaps elsewhere: the ``circumstances`` of each are kept."""
    return before | measured | {"later": before.get("later", {}) | circumstances}


def main() -> None:
    """Measure, print the tables, write the result of a whole run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few chunks: for development")
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES, help="chunks of our stores")
    parser.add_argument("--peer-sizes", type=int, nargs="+", default=_PEER_SIZES)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--texts", type=int, help="paragraphs added through the service (default 2000)")
    parser.add_argument("--trials", type=int, default=5, help="processes killed of each store")
    parser.add_argument("--work", type=Path, default=WORK, help="chunks and stores (default: %(default)s)")
    parser.add_argument("--venv", type=Path, default=VENV, help="environment of the other libraries")
    parser.add_argument("--update", action="store_true", help="keep what the result has of other parts")
    parser.add_argument("--out", type=Path, help="where the result goes (default: results/, unless --quick)")
    flags = parser.parse_args()
    out = flags.out or (None if flags.quick else RESULT)
    before = json.loads(out.read_text(encoding="utf-8")) if flags.update and out and out.exists() else {}
    circumstances, measured = facts(), measure(flags)
    if before:
        result = _updated(before, measured, dict.fromkeys(flags.parts, circumstances))
    else:
        result = circumstances | measured
    print(search_section(result))
    if out:
        write(out, result)
    sys.exit(UNMEASURED if result["unmeasured"] else MISSED if missed(result) and not flags.quick else 0)


if __name__ == "__main__":
    main()
