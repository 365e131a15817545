"""Runs of the toy task in several processes that torchrun starts: ``python -m torch.distributed.run … FOLDER``.

Every scenario also runs alone, in the test itself. Rank 0 writes the weights and what the run reported to FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from backend.training.records import TrainingConfig
from backend.training.trainer.distributed import init_process_group
from backend.training.trainer.loop import train
from tests.toy_training import Faults, RecordingObserver, ToyTask, plain_config, weights_of


class OnRank(Faults):
    """Breaks one rank alone; the others do not know."""

    is_faulty = True

    def before(self, step: int, indices: Sequence[int]) -> None:
        if self.is_faulty:
            super().before(step, indices)


@dataclass(frozen=True)
class Scenario:
    """One run; ``faults`` gets the rank."""

    config: TrainingConfig
    faults: Callable[[int], Faults | None] = lambda rank: None
    task: Callable[[], ToyTask] = ToyTask
    resumes: bool = False  # stopped midway by rank 1 alone, then resumed


def _short_on(rank: int, wanted: int) -> Faults:
    faults = OnRank(fits=2, fits_until=4)
    faults.is_faulty = rank == wanted
    return faults


SCENARIOS = {
    "plain": Scenario(plain_config()),
    "split": Scenario(plain_config(micro_batch=2)),
    "fewer-examples-than-ranks": Scenario(plain_config(batch_size=1, epochs=1)),
    "last-batch-of-one": Scenario(plain_config(batch_size=41, epochs=3)),
    "memory-on-rank-1": Scenario(plain_config(), lambda rank: _short_on(rank, 1)),
    "a-bad-example": Scenario(plain_config(), lambda rank: Faults(broken=lambda step, indices: 17 in indices)),
    "resumed": Scenario(plain_config(checkpoint_every=5), resumes=True),
}


def main(folder: Path) -> None:
    group = init_process_group("cpu")
    rank = group.rank
    for name, scenario in SCENARIOS.items():
        task, notes = scenario.task(), RecordingObserver()
        output = folder / f"{name}-output"
        if scenario.resumes:
            stop = _stop_after(task, 7, rank)
            train(task, scenario.config, output=output, stop=stop)
            task = scenario.task()
        result = train(
            task,
            scenario.config,
            output=output,
            resume=scenario.resumes,
            observers=[notes],
            faults=scenario.faults(rank),
        )
        facts = {
            "loss": result.loss,
            "steps": result.steps,
            "metrics": dict(result.metrics),
            "micro_batch": result.micro_batch,
            "skipped": list(result.skipped),
            "events": [event.kind for event in result.events],
            "observed": len(notes.events),
        }
        (folder / f"{name}-{rank}.json").write_text(json.dumps(facts))
        torch.save(weights_of(task.model), folder / f"{name}-{rank}.pt")
    group.shutdown()
    # Everything is written. On a busy machine one interpreter in hundreds aborts at its end, in gloo's threads
    # ("terminate called without an active exception"), which torchrun would report as a failed rank.
    os._exit(0)


def _stop_after(task: ToyTask, losses: int, rank: int):  # type: ignore[no-untyped-def]
    """An event that rank 1 sets in its seventh micro-batch."""
    import threading

    event, plain = threading.Event(), task.loss
    seen: list[int] = []

    def loss(model: nn.Module, batch: dict):  # type: ignore[no-untyped-def]
        seen.append(1)
        if rank == 1 and len(seen) == losses:
            event.set()
        return plain(model, batch)

    task.loss = loss  # type: ignore[method-assign]
    return event


if __name__ == "__main__":
    main(Path(sys.argv[1]))
