"""The result of a card: one JSON file, filled by any number of runs, with the verdict of every target."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.part_process import DONE, LATE, NOT_RUN, PartRecord
from benchmarks.gpu_check.parts import PARTS
from benchmarks.gpu_check.targets import verdicts

FOLDER = Path(__file__).parents[1] / "results" / "gpu"


def file_name(device_name: str) -> str:
    """The file of a card: nvidia-h200.json for "NVIDIA H200"."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") + ".json"


def read(path: Path) -> dict[str, Any]:
    """The file's content; empty where there is none yet. Raises: ValueError when it is no result of this check."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "parts" not in content:
        raise ValueError(f"{path} is no result of gpu_check: it has no parts; name another folder with --results")
    return content


def write(path: Path, circumstances: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Write the records beside those of earlier runs, and judge all of them.

    A part that had a result keeps it where the new run has none.
    """
    earlier = read(path)
    parts = merged(earlier.get("parts", {}), records)
    content = {**earlier, **circumstances, "targets": verdicts(results_of(parts)), "parts": parts}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return content


def merged(earlier: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All parts in their order: the new record, unless it did not run, or failed where the earlier one did not."""
    both = {**{part.name: PartRecord(NOT_RUN).as_json() for part in PARTS}, **earlier}
    for name, record in records.items():
        if record["status"] == DONE or (record["status"] != NOT_RUN and not _is_done(both.get(name))):
            both[name] = dict(record)
    return both


def results_of(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Part -> what it measured, of those that ended well or had rows when their time was up."""
    usable = (DONE, LATE)
    return {name: record["result"] for name, record in parts.items() if record["status"] in usable and record["result"]}


def merge_files(paths: Sequence[Path], folder: Path = FOLDER) -> list[Path]:
    """Merge results that came from elsewhere into the files of ``folder``; the files written."""
    written = []
    for path in paths:
        content = read(path)
        if not content:
            raise ValueError(f"{path} does not exist")
        ran = {name: record for name, record in content["parts"].items() if record["status"] != NOT_RUN}
        rest = {name: value for name, value in content.items() if name not in ("parts", "targets")}
        target = folder / path.name
        write(target, rest, ran)
        written.append(target)
    return written


def _is_done(record: Mapping[str, Any] | None) -> bool:
    return record is not None and record["status"] == DONE
