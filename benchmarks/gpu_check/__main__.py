"""Proves and measures what only a card can show, part by part, and writes one result file.

    python -m benchmarks.gpu_check                        # everything on cuda:0: half an hour
    python -m benchmarks.gpu_check --parts compute        # a group or parts: at most nine minutes a group
    python -m benchmarks.gpu_check --allow-cpu            # small and on the CPU: does every part run?
    python -m benchmarks.gpu_check --merge FILE           # a result from another machine into benchmarks/results/gpu

Each part runs in a process of its own within a time limit: one that fails, hangs or loses the card costs itself alone.
Nothing is downloaded. Parts of later runs are added to the same file, so a run may measure what is missing.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import result_file
from benchmarks.gpu_check.context import Effort
from benchmarks.gpu_check.part_process import DONE, NOT_POSSIBLE, NOT_RUN, PartRecord, run_part
from benchmarks.gpu_check.parts import GROUPS, PARTS, Part, chosen_parts
from benchmarks.machine import ROOT, facts

NO_CARD_EXIT = 3
_MIN_S = 10.0  # less is left than any part needs
_SLOWER_CPU = 5.0  # a part may take so many times its limit on a CPU, where only that it runs is of interest
_NAME = "import sys, torch; print(torch.cuda.get_device_name(sys.argv[1]) if torch.cuda.is_available() else '')"


def device_name(device: str) -> str:
    """The card's name as torch has it, "" without a card. Asked in a process of its own, which keeps no context."""
    argv = [sys.executable, "-c", _NAME, device]
    completed = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    return completed.stdout.strip() if completed.returncode == 0 else ""


def run(
    parts: list[Part], *, device: str, name: str, effort: Effort, out: Path, limit_s: float, logs: Path
) -> tuple[dict[str, Any], list[PartRecord]]:
    """Run the parts one after the other, and write the file after each: its content, and how each part went."""
    circumstances = {**facts(), "command": _command(), "device": device, "device_name": name, "effort": str(effort)}
    ends_s = time.monotonic() + limit_s
    content = result_file.write(out, circumstances, {})
    records = []
    for part in parts:
        allowed_s = part.limit_s * (_SLOWER_CPU if device == "cpu" else 1.0)
        left_s = min(allowed_s, ends_s - time.monotonic())
        if left_s < _MIN_S:
            record = PartRecord(NOT_RUN, f"--limit-s {limit_s:.0f} was used up")
        else:
            _say(f"{part.name}: {part.title}, at most {left_s:.0f} s")
            record = run_part(part, device=device, effort=effort, limit_s=left_s, log=logs / f"{part.name}.log")
        _say(f"{part.name}: {record.status}, {record.seconds} s {record.why}")
        content = result_file.write(out, circumstances, {part.name: record.as_json()})
        records.append(record)
    return content, records


def main() -> int:
    """Run the chosen parts. Exit status 0; 1 when a part did not end well; 3 without a card."""
    flags = _parser().parse_args()
    if flags.merge:
        for path in result_file.merge_files(flags.merge):
            _say(f"wrote {path}")
        return 0
    try:
        parts = chosen_parts([name for names in flags.parts for name in names.split(",") if name])
    except ValueError as error:
        _say(str(error))
        return 2
    name = device_name(flags.device)
    if not name and not flags.allow_cpu:
        _say(
            f"torch sees no card as {flags.device}: nothing is measured. `make check-gpu` says why; "
            "--allow-cpu runs every part small and on the CPU"
        )
        return NO_CARD_EXIT
    device, effort = (flags.device, flags.effort) if name else ("cpu", Effort.SMALL)
    name = name or "cpu"
    folder = flags.results or (result_file.FOLDER if device != "cpu" else ROOT / "build" / "gpu-check")
    logs = _log_folder()
    out = folder / result_file.file_name(name)
    options: dict[str, Any] = {"effort": effort, "out": out, "limit_s": flags.limit_s, "logs": logs}
    content, records = run(parts, device=device, name=name, **options)
    _say(_summary(content))
    _say(f"wrote {out}; `python -m benchmarks.render` writes the tables; logs of the parts: {logs}")
    return int(any(record.status not in (DONE, NOT_POSSIBLE) for record in records))


def _log_folder() -> Path:
    """In the checkout; elsewhere where that is read-only, as in a container."""
    folder = ROOT / "build" / "gpu-check" / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "card.log").touch()
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="gpu-check-logs-"))
    return folder


def _summary(content: Mapping[str, Any]) -> str:
    rows = []
    for row in content["targets"]:
        reached = "-" if row["reached"] is None else f"{row['reached']:.5g} {row['unit']}".strip()
        rows.append(f"{row['verdict']:<13} {row['target']}: {reached} (to reach: {row['to_reach']})")
    return "\n".join(rows)


def _command() -> str:
    return " ".join(["python", "-m", "benchmarks.gpu_check", *sys.argv[1:]])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = ", ".join(part.name for part in PARTS)
    groups = ", ".join(GROUPS)
    parser.add_argument("--parts", nargs="+", default=[], help=f"parts ({every}) or groups ({groups}); all unless said")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--allow-cpu", action="store_true", help="without a card: every part small, on the CPU")
    parser.add_argument("--effort", type=Effort, choices=list(Effort), default=Effort.FULL)
    parser.add_argument("--limit-s", type=float, default=3600.0, help="end after this long, whatever is left")
    parser.add_argument("--results", type=Path, help="folder of the result file, named after the card")
    parser.add_argument("--merge", type=Path, nargs="+", help="merge these result files and measure nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
