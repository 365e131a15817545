"""How a run of the soak test, or of restarts, ends: its result kept or printed, its files kept where it failed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn


def keep(result: dict[str, Any], out: Path | None) -> None:
    """Write the result, or print it: a short run is no replacement for the published one."""
    text = json.dumps(result, indent=1) + "\n"
    if out is None:
        print(text)
    else:
        out.write_text(text, encoding="utf-8")


def leave(work: Path, *, passed: bool) -> NoReturn:
    """Exit with 0 or 1. The processes' files in ``work`` are removed where nothing is to be looked for in them."""
    if passed:
        shutil.rmtree(work)
    else:
        print(f"logs: {work}", file=sys.stderr)
    sys.exit(0 if passed else 1)
