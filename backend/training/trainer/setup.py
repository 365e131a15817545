"""The parts of a run, made and joined: what is told to compute where, in which order, and with what to fall back on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch.optim import Optimizer

from backend.device.plan.placement import LoaderSettings, Placement
from backend.training.data.micro_batch_loader import MicroBatchLoader
from backend.training.data.sampling import EffectiveBatchSampler
from backend.training.records import Task, TrainingConfig
from backend.training.trainer.batch_iterator import Feed
from backend.training.trainer.checkpoint_manager import Shelf
from backend.training.trainer.distributed import Ranks
from backend.training.trainer.model_setup import ReadyModel
from backend.training.trainer.oom_retry import MicroBatches, ThrashWatch
from backend.training.trainer.optimizers import make_optimizer
from backend.training.trainer.precision import Numerics, bearable, has_tf32, rungs_for
from backend.training.trainer.precision_fallback import Health, Ladder
from backend.training.trainer.schedules import LearningRate, make_schedule
from backend.training.trainer.snapshot import Keeper, Part
from backend.training.trainer.train_step import FaultSource, Stepper
from backend.training.trainer.trainer_state import Best, Standing

_ENDLESS_STEPS = 2**63


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that the loop moves."""

    ready: ReadyModel
    optimizer: Optimizer
    batches: EffectiveBatchSampler
    feed: Feed
    stepper: Stepper
    schedule: LearningRate
    numerics: Numerics
    ladder: Ladder
    health: Health
    micro: MicroBatches
    thrash: ThrashWatch
    standing: Standing
    best: Best
    steps_planned: int  # optimizer steps of the whole run
    why: tuple[str, ...]  # what was chosen, one sentence each


def assemble(
    task: Task,
    config: TrainingConfig,
    ranks: Ranks,
    *,
    where: Placement,
    loader: MicroBatchLoader,
    faults: FaultSource,
) -> Parts:
    """Bring the model to its device and make the rest around it. Raises: BadSettings, BadData without examples."""
    native = bearable(where, task.model)  # before half-precision weights become float32
    ready = ReadyModel(task.model, config, ranks.device)
    ranks.align(task.model, weights=True)
    rungs, why = rungs_for(config, where.type, native, tf32=has_tf32(ranks.device))
    numerics = Numerics(ranks.device, config.mixed_precision, rungs[0])
    optimizer = make_optimizer(task.model, config, ranks.device)
    batches = EffectiveBatchSampler(
        task.lengths, config.batch_size, seed=config.seed, group_by_length=config.group_by_length
    )
    planned = min(config.epochs * batches.steps_per_epoch, config.max_steps or _ENDLESS_STEPS)
    whole = -(-config.batch_size // ranks.count)
    return Parts(
        ready=ready,
        optimizer=optimizer,
        batches=batches,
        feed=Feed(batches, loader, rank=ranks.rank, ranks=ranks.count, splittable=task.splittable),
        stepper=Stepper(task, ready, optimizer, numerics, ranks, config=config, faults=faults),
        schedule=make_schedule(config.schedule, optimizer, steps=planned, warmup_ratio=config.warmup_ratio),
        numerics=numerics,
        ladder=Ladder(rungs),
        health=Health(),
        micro=MicroBatches(min(config.micro_batch or whole, whole)),
        thrash=ThrashWatch(),
        standing=Standing(),
        best=Best(task.goal, config.patience),
        steps_planned=planned,
        why=(why, *ready.done),
    )


def loader_settings(where: Placement, config: TrainingConfig) -> LoaderSettings:
    """Of the placement, with the number of workers that was asked for."""
    if config.num_workers is None:
        return where.loader
    ahead = (where.loader.prefetch_factor or 2) if config.num_workers else None
    return replace(where.loader, num_workers=config.num_workers, prefetch_factor=ahead)


def shelf_of(parts: Parts, task: Task, config: TrainingConfig, output: Path | None, ranks: Ranks) -> Shelf:
    """Where the run keeps what it can return to: everything that a later step depends on."""
    kept: Mapping[str, Part] = {
        "batches": (parts.batches.state, parts.batches.load),
        "stepper": (parts.stepper.state, parts.stepper.load),
        "schedule": (parts.schedule.state_dict, parts.schedule.load_state_dict),
        "ladder": (parts.ladder.state, parts.ladder.load),
        "numerics": (parts.numerics.state, parts.numerics.load),
        "micro_batches": (parts.micro.state, parts.micro.load),
        "standing": (parts.standing.state, parts.standing.load),
        "best": (parts.best.state, parts.best.load),
    }
    keeper = Keeper(task.model, parts.optimizer, kept)
    return Shelf(task, config, output=output, ranks=ranks, keeper=keeper, optimizer=parts.optimizer)
