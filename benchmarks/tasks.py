"""What classes, entities and analyses cost beside the embeddings of the same texts: one process, round after round.

    python -m benchmarks.tasks           # the services, then the same over HTTP; on a machine that does nothing else
    python -m benchmarks.tasks --quick   # one short round, for development

No text repeats within a pass and the cache is off, so every pass computes everything. Each round runs every task once
on the same texts, and a task's ratio is against the embedding of its own round: a machine that slows down does so for
both.
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
from benchmarks.load import Shape, run_apart
from benchmarks.machine import facts
from benchmarks.peers import ours, running
from benchmarks.results import Spread, spread
from benchmarks.texts import distinct_texts

RESULT = Path(__file__).parent / "results" / "tasks.json"
EMBED = "embeddings"
# The bar, as times the embedding of the same text; an analysis also reads token by token, and has none.
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
    """How texts are sent: so many in a request, by so many clients who each wait for their answer."""

    texts: int
    clients: int

    @property
    def name(self) -> str:
        """As tables show it."""
        one = "one text" if self.texts == 1 else f"{self.texts} texts"
        return f"{one}, {self.clients} clients"

    def takes(self, task: str) -> bool:
        """An analysis is of one text."""
        return task != "analysis" or self.texts == 1


LOADS = (Load(1, 32), Load(32, 4))


@dataclass(frozen=True, slots=True)
class Pass:
    """One task once over the texts."""

    over: str  # SERVICES or HTTP
    load: Load
    task: str
    round: int
    texts_per_s: float


Ask = Callable[[Sequence[str]], Awaitable[object]]


def asks(services: Services) -> dict[str, Ask]:
    """Each task as its route calls it, for the texts of one request."""
    return {
        EMBED: services.embeddings.embed,
        "classes": services.classification.classify,
        "entities": services.entities.find,
        "analysis": lambda texts: services.analysis.analyze(texts[0]),
    }


async def texts_per_s(ask: Ask, texts: Sequence[str], load: Load) -> float:
    """The rate of one pass in which every client takes the next request as soon as its last one is answered."""
    waiting = iter([texts[at : at + load.texts] for at in range(0, len(texts), load.texts)])

    async def client() -> None:
        for some in waiting:
            await ask(some)

    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(load.clients)))
    return len(texts) / (time.perf_counter() - started_s)


async def over_services(state: Path, texts: Sequence[str], rounds: int) -> list[Pass]:
    """Every load and task in each round, in this process. The first start tunes.

    Raises: RuntimeError where a task would be done by less than its model.
    """
    services = await build(load_settings(state_dir=state, cache_enabled=False))
    passes = []
    try:
        if services.catalog.ner() is None:
            raise RuntimeError("no model for entities is loaded: patterns alone would look fast")
        for ask in asks(services).values():
            await texts_per_s(ask, texts[:_WARM_UP], LOADS[0])
        for index in range(rounds):
            for load in LOADS:
                for task, ask in asks(services).items():
                    if load.takes(task):
                        rate = await texts_per_s(ask, texts, load)
                        passes.append(_told(Pass(SERVICES, load, task, index, rate)))
    finally:
        await services.close()
    return passes


def over_http(state: Path, rounds: int, duration_s: float) -> list[Pass]:
    """The same on a server in a process of its own. Embeddings travel as base64, which costs the least."""
    passes = []
    with running(ours(state), state) as server:
        for index in range(rounds):
            for load in LOADS:
                for task, path in PATHS.items():
                    if load.takes(task):
                        rate = _rate(server.port, _shape(task, path, load, duration_s))
                        passes.append(_told(Pass(HTTP, load, task, index, rate)))
    return passes


def _shape(task: str, path: str, load: Load, duration_s: float) -> Shape:
    vectors = "base64" if task == EMBED else ""
    return Shape(load.clients, texts=load.texts, path=path, encoding_format=vectors, duration_s=duration_s)


def _rate(port: int, shape: Shape) -> float:
    """Texts a second. Raises: RuntimeError for any answer but 200: a refusal is quick and would look like speed."""
    report = run_apart(port, shape)
    if report.statuses.keys() - {"200"}:
        raise RuntimeError(f"{shape.path} answered {report.statuses}")
    return report.texts_per_s


def _told(one: Pass) -> Pass:
    print(
        f"round {one.round + 1}: {one.over}: {one.load.name}: {one.task}: {one.texts_per_s:.1f} texts/s",
        file=sys.stderr,
    )
    return one


def rows_of(passes: Sequence[Pass]) -> list[dict[str, Any]]:
    """A row for each task, load and way: its rate, and how often the time of an embedding a text takes."""
    rates = {(one.over, one.load, one.task, one.round): one.texts_per_s for one in passes}
    rows = []
    for over, load, task in dict.fromkeys((one.over, one.load, one.task) for one in passes):
        rounds = [number for way, how, what, number in rates if (way, how, what) == (over, load, task)]
        own: Spread = spread(rates[over, load, task, number] for number in rounds)
        times = spread(rates[over, load, EMBED, number] / rates[over, load, task, number] for number in rounds)
        rows.append(
            {
                "task": task,
                "over": over,
                "load": load.name,
                "texts_per_s": own,
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
    about, texts = facts(), distinct_texts(count)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            passes = runner.run(over_services(Path(folder), texts, rounds))
        if not flags.quick:
            passes += over_http(Path(folder), rounds, duration_s=5.0)
    result = {**about, "shape": {"texts": count, "rounds": rounds}, "rows": rows_of(passes)}
    print(json.dumps(result["rows"], indent=1))
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
