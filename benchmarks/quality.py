"""How good the answers are on sets with known answers: classes, names, patterns, ranking, likeness, languages.

    python -m benchmarks.quality                                  # the bundled models, as served; minutes on two cores
    python -m benchmarks.quality --quick --sets names,zero-shot   # few examples of some sets
    python -m benchmarks.quality --ner-model FOLDER --sets names  # your own model in the same table

The service runs in this process with its default settings (and those of the environment) and a folder of its own for
what it measures and learns. Exit status: 1 when a target is missed, 2 when something could not be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from backend.errors import FinanciaError
from benchmarks.judging import classes, names, patterns, texts
from benchmarks.judging.records import Bench, Judge, Row, Unmeasured
from benchmarks.machine import facts
from benchmarks.quality_tables import quality_table
from benchmarks.texts import DATA

RESULT = Path(__file__).parent / "results" / "quality.json"
JUDGES: tuple[Judge, ...] = (*classes.JUDGES, *names.JUDGES, *patterns.JUDGES, *texts.JUDGES)
_MODELS = ("embedding_model", "ner_model", "classifier_model", "reranker_model")
MISSED, UNMEASURED = 1, 2


async def measure(
    settings: Mapping[str, Any], judges: Sequence[Judge], *, data: Path, is_quick: bool = False
) -> dict[str, Any]:
    """Start the service with these settings and let every judge ask it; what the result file says beside ``facts``.

    Raises: FinanciaError when the service does not start.
    """
    services = await build(load_settings(**settings))
    bench = Bench(services, data, is_quick)
    rows: list[Row] = []
    unmeasured: dict[str, str] = {}
    try:
        for one in judges:
            started_s = time.perf_counter()
            try:
                rows += await one.run(bench)
            except (Unmeasured, FinanciaError) as error:  # of a foreign model: no labels, too short for a pair
                unmeasured[one.name] = str(error)
            print(
                f"{one.name}: {time.perf_counter() - started_s:.1f} s {unmeasured.get(one.name, '')}", file=sys.stderr
            )
        models = _models(services)
    finally:
        await services.close()
    return {"models": models, "rows": [asdict(row) for row in rows], "unmeasured": unmeasured}


def _models(services: Services) -> list[dict[str, Any]]:
    """Which models answered, and in which arithmetic."""
    kept = ("task", "name", "source", "revision")
    reports = [model.report() for model in services.catalog.models()]
    choices = [model.choice for model in services.catalog.models()]
    return [
        {name: report[name] for name in kept} | {"runtime": choice.runtime, "dtype": choice.dtype}
        for report, choice in zip(reports, choices, strict=True)
    ]


def chosen(names_of: str) -> list[Judge]:
    """The judges of a list of names or tasks with commas between; all of an empty one. Raises: ValueError."""
    wished = [name.strip() for name in names_of.split(",") if name.strip()]
    known = {one.name for one in JUDGES} | {one.task for one in JUDGES}
    if strange := sorted(set(wished) - known):
        raise ValueError(f"{strange[0]} is none of {', '.join(sorted(known))}")
    return [one for one in JUDGES if not wished or one.name in wished or one.task in wished]


def status_of(result: Mapping[str, Any]) -> int:
    """The exit status. Few examples say nothing about a target, so a quick run misses none."""
    if result["unmeasured"]:
        return UNMEASURED
    return MISSED if not result["quick"] and any(Row(**row).is_short for row in result["rows"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few examples of each set: for development")
    parser.add_argument("--sets", default="", help="names or tasks with commas between; an unknown one lists them all")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of sets (default: %(default)s)")
    parser.add_argument("--precision", help="as PRECISION")
    parser.add_argument("--runtime", help="as RUNTIME")
    for name in _MODELS:
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"as {name.upper()}: a folder, or a hub id")
    parser.add_argument(
        "--out", type=Path, help=f"where the result goes (default: results/{RESULT.name} for a run of everything)"
    )
    return parser


def main() -> None:
    """Measure, print the table, keep the result."""
    parser = _parser()
    flags = parser.parse_args()
    try:
        judges = chosen(flags.sets)
    except ValueError as error:
        parser.error(f"--sets: {error}")
    wishes = {name: value for name in ("precision", "runtime", *_MODELS) if (value := getattr(flags, name))}
    about, started_s = facts(), time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="quality-") as state,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        settings = {"state_dir": Path(state), **wishes}
        try:
            measured = runner.run(measure(settings, judges, data=flags.data, is_quick=flags.quick))
        except FinanciaError as error:
            sys.exit(f"the service does not start: {error}")
    result = {**about, "quick": flags.quick, "settings": wishes, "took_s": time.perf_counter() - started_s, **measured}
    print(quality_table(result))
    for name, reason in result["unmeasured"].items():
        print(f"not measured: {name}: {reason}")
    whole = not (flags.quick or flags.sets or wishes)
    if out := flags.out or (RESULT if whole else None):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(status_of(result))


if __name__ == "__main__":
    main()
