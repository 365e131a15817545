"""What ``check_gpu --full`` says of the card: verdict, and the rows that are not good."""

import json
import subprocess
import sys
from typing import Any

from benchmarks.gpu_check.context import Context
from benchmarks.machine import ROOT


def measure(context: Context) -> dict[str, Any]:
    """Run the command as a user does. Raises: RuntimeError where it prints no report."""
    command = [sys.executable, "-m", "backend.check_gpu", "--json", "--full"]
    completed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    try:
        report = json.loads(completed.stdout)
    except ValueError as error:
        raise RuntimeError(f"check_gpu printed no JSON: {completed.stdout[-500:]}{completed.stderr[-500:]}") from error
    context.keep({"exit_status": completed.returncode, "verdict": report["verdict"]})
    rows = [row for row in report["rows"] if row["status"] not in ("ok", "info")]
    return {
        "exit_status": completed.returncode,
        "verdict": report["verdict"],
        "rows": rows,
        "placements": report["placements"],
    }
