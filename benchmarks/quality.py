"""Quality benchmark on labelled data sets: classes, entities, patterns, ranking, similarity, languages.

    python -m benchmarks.quality                                  # the bundled models, as served; minutes on two cores
    python -m benchmarks.quality --quick --sets names,zero-shot   # few examples of some data sets
    python -m benchmarks.quality --ner-model FOLDER --sets names  # your own model in the same table

The service runs in this process with its default settings (and those of the environment) and a temporary state
folder. Exit status: 1 when a target is missed, 2 when something could not be measured.
"""

import argparse
import asyncio
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
from benchmarks.evaluation import classification, entities, own_words, patterns, search, text_tasks
from benchmarks.evaluation.records import Evaluation, EvaluationContext, NotMeasured, Row
from benchmarks.machine import facts
from benchmarks.quality_tables import quality_table
from benchmarks.results import write
from benchmarks.texts import DATA

RESULT = Path(__file__).parent / "results" / "quality.json"
EVALUATIONS: tuple[Evaluation, ...] = (
    *classification.EVALUATIONS, *entities.EVALUATIONS, *patterns.EVALUATIONS, *text_tasks.EVALUATIONS,
    *own_words.EVALUATIONS, *search.EVALUATIONS,
)  # fmt: skip
_MODELS = ("embedding_model", "ner_model", "classifier_model", "reranker_model")
MISSED, UNMEASURED = 1, 2


async def measure(
    settings: Mapping[str, Any], evaluations: Sequence[Evaluation], *, data: Path, is_quick: bool = False
) -> dict[str, Any]:
    """Start the service with these settings and run the evaluations; the content of the result file beside ``facts``.

    Raises: FinanciaError when the service does not start.
    """
    services = await build(load_settings(**settings))
    context = EvaluationContext(services, data, is_quick)
    rows: list[Row] = []
    unmeasured: dict[str, str] = {}
    try:
        for evaluation in evaluations:
            started_s = time.perf_counter()
            try:
                rows += await evaluation.run(context)
            except (NotMeasured, FinanciaError) as error:  # of a foreign model: no labels, too short for a pair
                unmeasured[evaluation.name] = str(error)
            print(
                f"{evaluation.name}: {time.perf_counter() - started_s:.1f} s {unmeasured.get(evaluation.name, '')}",
                file=sys.stderr,
            )
        models = _models(services)
    finally:
        await services.close()
    return {"models": models, "rows": [asdict(row) for row in rows], "unmeasured": unmeasured}


def _models(services: Services) -> list[dict[str, Any]]:
    """The loaded models with runtime and dtype."""
    fields = ("task", "name", "source", "revision")
    reports = [model.report() for model in services.catalog.models()]
    choices = [model.choice for model in services.catalog.models()]
    return [
        {name: report[name] for name in fields} | {"runtime": choice.runtime, "dtype": choice.dtype}
        for report, choice in zip(reports, choices, strict=True)
    ]


def chosen(names: str) -> list[Evaluation]:
    """The evaluations of a comma-separated list of names or tasks; all for an empty one. Raises: ValueError."""
    requested = [name.strip() for name in names.split(",") if name.strip()]
    known = {evaluation.name for evaluation in EVALUATIONS} | {evaluation.task for evaluation in EVALUATIONS}
    if unknown := sorted(set(requested) - known):
        raise ValueError(f"{unknown[0]} is none of {', '.join(sorted(known))}")
    return [
        evaluation
        for evaluation in EVALUATIONS
        if not requested or evaluation.name in requested or evaluation.task in requested
    ]


def status_of(result: Mapping[str, Any]) -> int:
    """The exit status. A quick run, with few examples, misses no target."""
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
    """Measure, print the table, write the result."""
    parser = _parser()
    flags = parser.parse_args()
    try:
        evaluations = chosen(flags.sets)
    except ValueError as error:
        parser.error(f"--sets: {error}")
    overrides = {name: value for name in ("precision", "runtime", *_MODELS) if (value := getattr(flags, name))}
    environment, started_s = facts(), time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="quality-") as state,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        settings = {"state_dir": Path(state), **overrides}
        try:
            measured = runner.run(measure(settings, evaluations, data=flags.data, is_quick=flags.quick))
        except FinanciaError as error:
            sys.exit(f"the service does not start: {error}")
    result = {
        **environment,
        "quick": flags.quick,
        "settings": overrides,
        "took_s": time.perf_counter() - started_s,
        **measured,
    }
    print(quality_table(result))
    for name, reason in result["unmeasured"].items():
        print(f"not measured: {name}: {reason}")
    is_complete = not (flags.quick or flags.sets or overrides)
    if out := flags.out or (RESULT if is_complete else None):
        write(out, result)
    sys.exit(status_of(result))


if __name__ == "__main__":
    main()
