"""Cost of classification, entities and analysis relative to the embeddings of the same texts.

    python -m benchmarks.tasks           # the services, then the same over HTTP; on an idle machine
    python -m benchmarks.tasks --quick   # one short round, for development

No text repeats within a pass and the cache is off, so every pass computes everything. Each round runs every task once
on the same texts, and a task's ratio is against the embeddings of the same round, so that a slowdown of the machine
affects both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from backend.bootstrap.services import Services, build
from backend.config import load_settings
from benchmarks.load import Shape, run_in_subprocess
from benchmarks.machine import facts
from benchmarks.peers import ours, running
from benchmarks.results import Spread, spread
from benchmarks.texts import distinct_texts

RESULT = Path(__file__).parent / "results" / "tasks.json"
EMBED = "embeddings"
# Targets, as multiples of the embeddings' time; an analysis also classifies each token and has no target.
TARGETS: Mapping[str, float] = {"classes": 1.3, "entities": 1.3}
PATHS: Mapping[str, str] = {
    EMBED: "/v1/embeddings",
    "classes": "/v1/classify",
    "entities": "/v1/entities",
    "analysis": "/v1/analyze",
}
SERVICES, HTTP = "services", "HTTP"
_WARM_UP = 64  # texts of each task before the first round


@dataclass(frozen=True, slots=True)
class Load:
    """Texts per request and number of clients, each waiting for its response."""

    texts: int
    clients: int

    @property
    def name(self) -> str:
        """Its name in the tables."""
        per_request = "one text" if self.texts == 1 else f"{self.texts} texts"
        return f"{per_request}, {self.clients} clients"

    def takes(self, task: str) -> bool:
        """Whether the task takes this many texts: an analysis is of one text."""
        return task != "analysis" or self.texts == 1


LOADS = (Load(1, 32), Load(32, 4))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one task over the texts."""

    over: str  # SERVICES or HTTP
    load: Load
    task: str
    round: int
    texts_per_s: float


TaskCall = Callable[[Sequence[str]], Awaitable[object]]


def task_calls(services: Services) -> dict[str, TaskCall]:
    """The service call of each task, for the texts of one request."""
    return {
        EMBED: services.embeddings.embed,
        "classes": services.classification.classify,
        "entities": services.entities.find,
        "analysis": lambda texts: services.analysis.analyze(texts[0]),
    }


async def texts_per_s(call: TaskCall, texts: Sequence[str], load: Load) -> float:
    """Texts per second of one pass; every client sends its next request when its last one is answered."""
    request_texts = iter([texts[first : first + load.texts] for first in range(0, len(texts), load.texts)])

    async def client() -> None:
        for texts_of_request in request_texts:
            await call(texts_of_request)

    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(load.clients)))
    return len(texts) / (time.perf_counter() - started_s)


async def over_services(state: Path, texts: Sequence[str], rounds: int) -> list[Pass]:
    """Run every load and task in each round, in this process.

    Raises: RuntimeError without a model for entities.
    """
    services = await build(load_settings(state_dir=state, cache_enabled=False))
    passes = []
    try:
        if services.catalog.ner() is None:
            raise RuntimeError("no model for entities is loaded: patterns alone would look fast")
        for call in task_calls(services).values():
            await texts_per_s(call, texts[:_WARM_UP], LOADS[0])
        for index in range(rounds):
            for load in LOADS:
                for task, call in task_calls(services).items():
                    if load.takes(task):
                        rate = await texts_per_s(call, texts, load)
                        passes.append(_print_pass(Pass(SERVICES, load, task, index, rate)))
    finally:
        await services.close()
    return passes


def over_http(state: Path, rounds: int, duration_s: float) -> list[Pass]:
    """Run every load and task over HTTP on a separate server. Embeddings are sent as base64, the cheapest encoding."""
    passes = []
    with running(ours(state), state) as server:
        for index in range(rounds):
            for load in LOADS:
                for task, path in PATHS.items():
                    if load.takes(task):
                        rate = _rate(server.port, _shape(task, path, load, duration_s))
                        passes.append(_print_pass(Pass(HTTP, load, task, index, rate)))
    return passes


def _shape(task: str, path: str, load: Load, duration_s: float) -> Shape:
    vectors = "base64" if task == EMBED else ""
    return Shape(load.clients, texts=load.texts, path=path, encoding_format=vectors, duration_s=duration_s)


def _rate(port: int, shape: Shape) -> float:
    """Texts per second. Raises: RuntimeError for any status but 200: refusals are fast and would distort the rate."""
    report = run_in_subprocess(port, shape)
    if report.statuses.keys() - {"200"}:
        raise RuntimeError(f"{shape.path} answered {report.statuses}")
    return report.texts_per_s


def _print_pass(task_pass: Pass) -> Pass:
    print(
        f"round {task_pass.round + 1}: {task_pass.over}: {task_pass.load.name}: {task_pass.task}: "
        f"{task_pass.texts_per_s:.1f} texts/s",
        file=sys.stderr,
    )
    return task_pass


def rows_of(passes: Sequence[Pass]) -> list[dict[str, Any]]:
    """A row per task, load and transport: its rate, and its time as a multiple of the embeddings' time."""
    rates = {
        (task_pass.over, task_pass.load, task_pass.task, task_pass.round): task_pass.texts_per_s for task_pass in passes
    }
    rows = []
    for over, load, task in dict.fromkeys((task_pass.over, task_pass.load, task_pass.task) for task_pass in passes):
        rounds = [
            number
            for pass_over, pass_load, pass_task, number in rates
            if (pass_over, pass_load, pass_task) == (over, load, task)
        ]
        rate: Spread = spread(rates[over, load, task, number] for number in rounds)
        times = spread(rates[over, load, EMBED, number] / rates[over, load, task, number] for number in rounds)
        rows.append(
            {
                "task": task,
                "over": over,
                "load": load.name,
                "texts_per_s": rate,
                "times_the_embedding": times,
                "target": TARGETS.get(task),
            }
        )
    return rows


def main() -> None:
    """Measure and write ``results/tasks.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tasks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few texts, one round, no HTTP: for development")
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULT)
    flags = parser.parse_args()
    count, rounds = (128, 1) if flags.quick else (flags.texts, flags.rounds)
    environment, texts = facts(), distinct_texts(count)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            passes = runner.run(over_services(Path(folder), texts, rounds))
        if not flags.quick:
            passes += over_http(Path(folder), rounds, duration_s=5.0)
    result = {**environment, "shape": {"texts": count, "rounds": rounds}, "rows": rows_of(passes)}
    print(json.dumps(result["rows"], indent=1))
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
