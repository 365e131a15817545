"""Runs the stores of the search benchmark, each step in a process of its own, also those that are killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT, program_of
from benchmarks.search_contestant import CRASH_BATCH
from benchmarks.search_corpus import Corpus

OURS = "ours"
VENV = ROOT / ".venv-search"
REQUIREMENTS = ("torch==2.13.0", "txtai==9.14.0", "chromadb==1.5.9", "qdrant-client==1.20.0")
_STEP_TIMEOUT_S = 3600.0
_MIN_ACKNOWLEDGED, _MAX_ACKNOWLEDGED = 3, 12  # batches before the process is killed
_MAX_LATE_S = 0.05  # after the last of them: it is killed in the middle of the next


class StepFailed(Exception):
    """A step ended with an error; its last words."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A store and the Python that has its library."""

    name: str
    python: Path
    env: Mapping[str, str]

    def argv(self, step: str, corpus: Corpus, folder: Path) -> list[str]:
        options = [f"--corpus={corpus.folder}", f"--chunks={corpus.count}", f"--folder={folder}"]
        return [str(self.python), "-m", "benchmarks.search_contestant", self.name, step, *options]


def ours(name: str = OURS) -> Contestant:
    return Contestant(name, Path(sys.executable), {})


def peer(name: str, venv: Path, **env: str) -> Contestant:
    quiet = {"HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "False", "TOKENIZERS_PARALLELISM": "false"}
    return Contestant(name, venv / "bin" / "python", quiet | env)


def install(venv: Path = VENV) -> None:
    """Create the environment of the peers unless it is there. Raises: CalledProcessError."""
    program_of(venv, "chroma", REQUIREMENTS[:1], REQUIREMENTS)  # torch alone first, as for infinity


def run_step(contestant: Contestant, step: str, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """The result of a step. Raises: StepFailed."""
    return run_json(contestant.argv(step, corpus, folder), contestant.env)


def run_json(argv: list[str], env: Mapping[str, str]) -> dict[str, Any]:
    """The JSON that a command prints in its last line. Raises: StepFailed."""
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise StepFailed(f"not done after {_STEP_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        raise StepFailed(_last_words(done.stderr) or f"status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def add_and_ask(contestant: Contestant, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Adding, the size on the disk, and searching after a restart. Raises: StepFailed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    added = run_step(contestant, "add", corpus, folder)
    seconds = added["add_s"] + added["close_s"]
    adding = {"seconds": seconds, "chunks_per_s": corpus.count / seconds, "peak_bytes": added["peak_bytes"]}
    return {"adding": adding, "disk_bytes": disk_bytes(folder), **run_step(contestant, "ask", corpus, folder)}


def crash(contestant: Contestant, corpus: Corpus, folder: Path, *, trials: int, seed: int = 18) -> dict[str, Any]:
    """Kill adding processes with SIGKILL, each at another moment: what of the acknowledged chunks is there afterwards.

    Counts trials: `failed` did not open or could not be searched; `lost` had acknowledged chunks that were gone.
    """
    rng = random.Random(seed)
    summary: dict[str, Any] = {"trials": trials, "failed": 0, "lost": 0, "acknowledged": 0, "gone": 0, "unfound": 0}
    errors: dict[str, int] = {}
    for _ in range(trials):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        most = min(_MAX_ACKNOWLEDGED, corpus.count // CRASH_BATCH - 1)
        batches, late_s = rng.randint(min(_MIN_ACKNOWLEDGED, most), most), rng.uniform(0.0, _MAX_LATE_S)
        acknowledged = _killed(contestant.argv("add-until-killed", corpus, folder), contestant.env, batches, late_s)
        summary["acknowledged"] += acknowledged
        try:
            found = run_step(contestant, "check", Corpus(corpus.folder, acknowledged), folder)
        except StepFailed as error:
            summary["failed"] += 1
            summary["gone"] += acknowledged
            errors[str(error)] = errors.get(str(error), 0) + 1
            continue
        summary["lost"] += found["lost"] > 0
        summary["gone"] += found["lost"]
        summary["unfound"] += found["unfound"] > 0
    return {**summary, "errors": errors}


def _killed(argv: list[str], env: Mapping[str, str], batches: int, late_s: float) -> int:
    """How many chunks a process had acknowledged when it was killed. Raises: StepFailed."""
    with subprocess.Popen(
        argv, cwd=ROOT, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(batches)]
        if not lines[-1]:
            process.wait()
            raise StepFailed(_last_words(process.stderr.read()))
        time.sleep(late_s)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        lines += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(lines[-1])


def disk_bytes(folder: Path) -> int:
    """What the files of a folder occupy."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _last_words(errors: str) -> str:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
