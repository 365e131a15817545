"""Runs one part in a process of its own, so that a crash, a hang or a lost card costs that part alone.

python -m benchmarks.gpu_check.part_process NAME --device cuda:0 --effort full --out FILE
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from backend.config import load_settings, publish
from backend.device.facts.amx import disable_faulty_amx
from backend.device.facts.host import cpu, read_host
from backend.device.memory.device_memory import allocator_options
from benchmarks.gpu_check.context import Context, Effort, NotPossible
from benchmarks.gpu_check.parts import PARTS, Part
from benchmarks.machine import ROOT, commit

DONE, FAILED, LATE, NOT_POSSIBLE, NOT_RUN = "done", "failed", "out of time", "not possible", "not run"
_EXIT_NOT_POSSIBLE = 4
_LAST_LINES = 12  # of a failed part's output, kept in the result


@dataclass(frozen=True, slots=True)
class PartRecord:
    """How a part went, as the result file has it."""

    status: str
    why: str = ""  # what went wrong, or is absent
    seconds: float = 0.0
    commit: str = ""
    started: str = ""
    effort: str = ""
    result: dict[str, Any] | None = None  # of a part that failed or was late: what it had by then

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        names = ("status", "why", "seconds", "commit", "started", "effort", "result")
        return {name: getattr(self, name) for name in names}


def run_part(
    part: Part, *, device: str, effort: Effort, limit_s: float, log: Path, argv: tuple[str, ...] = ()
) -> PartRecord:
    """Run a part within ``limit_s`` and return its record; what it prints goes to ``log``.

    Args:
        argv: the command, for tests; unset: this module with the part's name.
    """
    started, started_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"gpu-check-{part.name}-") as folder:
        out = Path(folder) / "result.json"
        command = argv or (sys.executable, "-m", "benchmarks.gpu_check.part_process", part.name)
        options = (f"--device={device}", f"--effort={effort}", f"--out={out}")
        status = _ended([*command, *options], limit_s, log)
        result = json.loads(out.read_text(encoding="utf-8")) if out.exists() else None
    seconds = round(time.monotonic() - started_s, 1)
    state, why = _state(status, limit_s, log)
    return PartRecord(state, why, seconds, commit(), started, str(effort), result)


def _ended(command: list[str], limit_s: float, log: Path) -> int | None:
    """The exit status of the command; None where its time was up, when it is killed with all its children."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end_all(process)


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the part: its own process, and servers that it has started in sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _state(status: int | None, limit_s: float, log: Path) -> tuple[str, str]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    last = "\n".join(line[:300] for line in lines[-_LAST_LINES:])
    if status is None:
        return LATE, f"ended after {limit_s:.0f} s; its last lines: {last}"
    if status == _EXIT_NOT_POSSIBLE:
        return NOT_POSSIBLE, lines[-1] if lines else ""
    return (DONE, "") if status == 0 else (FAILED, f"exit status {status}: {last}")


def _prepare() -> None:
    """Set the environment as a start of the service does, before anything imports torch."""
    settings = load_settings()
    disable_faulty_amx(cpu()[1])
    publish(settings, allocator_options(settings.pytorch_alloc_conf or "", platform=read_host().platform))


def main() -> int:
    """Measure one part in this process and write its result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check.part_process", description=__doc__)
    parser.add_argument("name", choices=[part.name for part in PARTS])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--effort", type=Effort, choices=list(Effort), default=Effort.FULL)
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    _prepare()
    part = next(part for part in PARTS if part.name == flags.name)
    measure: Callable[[Context], dict[str, Any]]
    measure = importlib.import_module(f"benchmarks.gpu_check.{part.module}").measure
    with tempfile.TemporaryDirectory(prefix=f"gpu-check-{part.name}-") as folder:
        context = Context(flags.device, flags.effort, Path(folder), flags.out)
        try:
            context.keep(measure(context))
        except NotPossible as error:
            sys.stdout.write(f"{error}\n")
            return _EXIT_NOT_POSSIBLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
