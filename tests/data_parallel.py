"""Runs of the toy task in several processes that torchrun starts: ``python -m torch.distributed.run … FOLDER``.

Every scenario also runs alone, in the test itself. Rank 0 writes the weights and what the run reported to FOLDER.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from backend.gpu_toolkit import GPUConfig, GPUMemoryOptimizer, IntegratedGPUTrainingSystem
from backend.training.records import MixedPrecisionConfig, TrainingConfig
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
    precisions: tuple[str, ...] = ("fp32",)  # tf32 is float32 on a CPU, so that results can be compared


def _short_on(rank: int, wanted: int) -> Faults:
    faults = OnRank(fits=2, fits_until=4)
    faults.is_faulty = rank == wanted
    return faults


def _once_on(rank: int, wanted: int) -> Faults:
    """NaN at step 4, once."""
    left = [rank == wanted]

    def broken(step: int, indices: Sequence[int]) -> bool:
        return step == 4 and bool(left) and left.pop()

    return Faults(broken=broken)


def use_precisions(scenario: Scenario) -> Any:
    """While entered, runs may use the scenario's."""
    chosen = lambda *args, **options: (scenario.precisions, "a test")  # noqa: E731
    return mock.patch("backend.training.trainer.trainer_state.precisions_for", chosen)


SCENARIOS = {
    "plain": Scenario(plain_config()),
    "split": Scenario(plain_config(micro_batch=2)),
    "fewer-examples-than-ranks": Scenario(plain_config(batch_size=1, epochs=1)),
    "last-batch-of-one": Scenario(plain_config(batch_size=41, epochs=3)),
    "memory-on-rank-1": Scenario(plain_config(), lambda rank: _short_on(rank, 1)),
    "a-bad-example": Scenario(plain_config(), lambda rank: Faults(broken=lambda step, indices: 17 in indices)),
    "resumed": Scenario(plain_config(checkpoint_every=5), resumes=True),
    "falls-and-recovers": Scenario(
        plain_config(mixed_precision=MixedPrecisionConfig(recovery_interval=2)),
        lambda rank: _once_on(rank, 1),
        precisions=("tf32", "fp32"),
    ),
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
        with use_precisions(scenario):
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
            "precisions": dict(result.steps_by_precision),
            "observed": len(notes.events),
        }
        (folder / f"{name}-{rank}.json").write_text(json.dumps(facts))
        torch.save(weights_of(task.model), folder / f"{name}-{rank}.pt")
    _guide(folder, rank)
    group.shutdown()
    # Everything is written. On a busy machine one interpreter in hundreds aborts at its end, in gloo's threads
    # ("terminate called without an active exception"), which torchrun would report as a failed rank.
    os._exit(0)


def guide_batches(rank: int | None) -> list[tuple[Tensor, Tensor]]:
    """Six batches of 8, or this rank's half of each."""
    generator = torch.Generator().manual_seed(5)
    inputs, classes = torch.randn(6, 8, 6, generator=generator), torch.randint(3, (6, 8), generator=generator)
    part = slice(None) if rank is None else slice(4 * rank, 4 * rank + 4)
    return [(x[part], y[part]) for x, y in zip(inputs, classes, strict=True)]


def guide_model(seed: int) -> nn.Module:
    """A network with these weights."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


class BrokenOnce(nn.CrossEntropyLoss):
    """NaN for the third batch, once."""

    calls = 0

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(logits, targets) * (float("nan") if self.calls == 3 else 1.0)


def _guide(folder: Path, rank: int) -> None:
    """``IntegratedGPUTrainingSystem`` as document 001 has it, distributed; rank 1 has other weights and meets a NaN."""
    system = IntegratedGPUTrainingSystem(
        GPUConfig(device="cpu", enable_distributed=True, enable_mixed_precision=False, num_workers=0)
    )
    model = guide_model(rank)
    system.memory_optimizer = GPUMemoryOptimizer("cpu", max_batch_size=16 >> rank)
    info = system.setup_training(model, (4, 6))
    criterion = BrokenOnce() if rank == 1 else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stats = system.training_loop(model, guide_batches(rank), criterion, optimizer)
    system.cleanup()
    facts = {name: stats[name] for name in ("steps", "skipped_steps", "events")}
    (folder / f"guide-{rank}.json").write_text(json.dumps({**facts, "batch_size": info["optimal_batch_size"]}))
    torch.save(weights_of(model), folder / f"guide-{rank}.pt")


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
