"""The state of a training run in one object: task, model, optimizer, progress, and events for observers."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torch.optim import Optimizer

from backend.device.facts.torch_source import Torch
from backend.device.plan.placement import LoaderSettings, Placement
from backend.training.data.batches import EffectiveBatchSampler, MicroBatchLoader
from backend.training.records import INTERVENTIONS, EventKind, Observer, StepEvent, Task, TrainingConfig
from backend.training.trainer.distributed import ProcessGroup
from backend.training.trainer.model_setup import (
    LearningRate,
    ModelSetup,
    make_optimizer,
    make_schedule,
    supported_dtypes,
)
from backend.training.trainer.precision import MixedPrecision, PrecisionFallback, has_tf32, precisions_for
from backend.training.trainer.train_step import (
    BatchIterator,
    FaultSource,
    MicroBatchSize,
    StepResult,
    ThrashDetector,
    TrainStep,
)

_ENDLESS_STEPS = 2**63
KEPT_ON_RESTORE = ("micro_batches", "precision_fallback", "best")  # what the run found out so far, kept by a restore


class RunProgress:
    """Steps taken, and the loss of each epoch as its effective batches come in."""

    def __init__(self) -> None:
        self.steps = 0  # that changed the weights
        self._total, self._weight = 0.0, 0.0  # of the current epoch
        self._last = math.nan  # mean loss of the last whole epoch
        self._steps_in = Counter[str]()

    @property
    def loss(self) -> float:
        """Mean loss of the current epoch, or of the last one when none has begun; NaN before the first step."""
        return self._total / self._weight if self._weight else self._last

    @property
    def steps_by_precision(self) -> dict[str, int]:
        """How many of the steps were computed in which precision."""
        return dict(self._steps_in)

    def add_step(self, total: float, weight: float, *, applied: bool, precision: str) -> None:
        """Count an effective batch with finite losses of this sum and weight."""
        self.steps += applied
        if applied:
            self._steps_in[precision] += 1
        self._total, self._weight = self._total + total, self._weight + weight

    def end_epoch(self) -> None:
        """The next batch belongs to another epoch."""
        self._last, self._total, self._weight = self.loss, 0.0, 0.0

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "steps": self.steps,
            "total": self._total,
            "weight": self._weight,
            "last": self._last,
            "steps_in": self.steps_by_precision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it."""
        self.steps = int(state["steps"])
        self._total, self._weight, self._last = float(state["total"]), float(state["weight"]), float(state["last"])
        self._steps_in = Counter(state.get("steps_in", {}))  # absent in checkpoints before 2026-11-23


class BestEvaluation:
    """The best evaluation so far, and how many went by since.

    Args:
        goal: metric to compare by; higher is better.
        patience: evaluations without improvement after which to stop; None: never.
    """

    def __init__(self, goal: str, patience: int | None) -> None:
        self._goal, self._patience = goal, patience
        self.metrics: dict[str, float] = {}
        self.evaluated_step: int | None = None  # of the newest evaluation, while its weights are those of the run
        self._newest_is_best = False
        self._without_improvement = 0

    @property
    def out_of_patience(self) -> bool:
        """Whether it is time to stop."""
        return self._patience is not None and self._without_improvement >= self._patience

    def score(self, metrics: Mapping[str, float]) -> float | None:
        """The goal's value; None where it is absent or not a number."""
        value = metrics.get(self._goal)
        return None if value is None or math.isnan(value) else float(value)

    def update(self, metrics: Mapping[str, float], step: int) -> bool:
        """Add an evaluation; whether it is the best. Without any score so far the newest one is."""
        self.evaluated_step = step
        score, best = self.score(metrics), self.score(self.metrics)
        better = best is None or (score is not None and score > best)
        self._without_improvement = 0 if better else self._without_improvement + 1
        self._newest_is_best = better
        if better:
            self.metrics = dict(metrics)
        return better

    def is_at(self, step: int) -> bool:
        """Whether the weights of the run at this step are the best ones; True without any evaluation."""
        return not self.metrics or (self._newest_is_best and self.evaluated_step == step)

    def forget_step(self) -> None:
        """The run returned to earlier weights; what comes at the same step numbers is not what was evaluated."""
        self.evaluated_step = None

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "metrics": self.metrics,
            "evaluated": self.evaluated_step,
            "newest": self._newest_is_best,
            "stale": self._without_improvement,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it."""
        self.metrics, self.evaluated_step = dict(state["metrics"]), state["evaluated"]
        self._newest_is_best, self._without_improvement = bool(state["newest"]), int(state["stale"])


@dataclass(slots=True)
class TrainerState:
    """Everything that a run works with; used on the training thread. ``create`` puts it together."""

    task: Task
    config: TrainingConfig
    group: ProcessGroup
    optimizer: Optimizer
    schedule: LearningRate
    batches: EffectiveBatchSampler
    iterator: BatchIterator
    train_step: TrainStep
    precision: MixedPrecision
    fallback: PrecisionFallback
    micro_batch: MicroBatchSize
    progress: RunProgress
    best: BestEvaluation
    planned_steps: int  # optimizer steps of the whole run
    why: tuple[str, ...]  # what was chosen, one sentence each
    observers: Sequence[Observer]  # none on ranks other than 0
    faults: FaultSource
    stop: threading.Event
    thrash: ThrashDetector = field(default_factory=ThrashDetector)
    interventions: list[StepEvent] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        task: Task,
        config: TrainingConfig,
        group: ProcessGroup,
        *,
        placement: Placement,
        loader: MicroBatchLoader,
        observers: Sequence[Observer] = (),
        faults: FaultSource | None = None,
        stop: threading.Event | None = None,
    ) -> TrainerState:
        """Move the model to its device and build the rest around it. Raises: BadSettings, BadData without examples."""
        dtypes = supported_dtypes(placement, task.model)  # before half-precision weights become float32
        setup = ModelSetup(task.model, config, group.device)
        group.broadcast(task.model, weights=True)
        names, why = precisions_for(config, placement.type, dtypes, tf32=has_tf32(group.device))
        precision = MixedPrecision(group.device, config.mixed_precision, names[0])
        optimizer = make_optimizer(task.model, config, group.device)
        batches = EffectiveBatchSampler(
            task.lengths, config.effective_batch, seed=config.seed, group_by_length=config.group_by_length
        )
        planned = min(config.epochs * batches.steps_per_epoch, config.max_steps or _ENDLESS_STEPS)
        share = -(-config.effective_batch // group.size)
        faults = faults or FaultSource()
        return cls(
            task=task,
            config=config,
            group=group,
            optimizer=optimizer,
            schedule=make_schedule(config.schedule, optimizer, steps=planned, warmup_ratio=config.warmup_ratio),
            batches=batches,
            iterator=BatchIterator(batches, loader, group, splittable=task.splittable),
            train_step=TrainStep(task, setup, optimizer, precision, group, config=config, faults=faults),
            precision=precision,
            fallback=PrecisionFallback(names, config.mixed_precision.recovery_interval),
            micro_batch=MicroBatchSize(min(config.items_at_once or share, share)),
            progress=RunProgress(),
            best=BestEvaluation(task.goal, config.patience),
            planned_steps=planned,
            why=(why, *setup.changes),
            observers=observers if group.is_main else (),
            faults=faults,
            stop=stop or threading.Event(),
        )

    @property
    def model(self) -> nn.Module:
        return self.task.model

    @property
    def device(self) -> str:
        """Of this rank, as torch writes it: "cuda:0"."""
        return str(self.group.device)

    def state_dict(self) -> dict[str, Any]:
        """What a later step depends on beside weights and optimizer, under the keys of checkpoints."""
        return {name: read() for name, (read, _) in self._stateful().items()}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Restore those parts whose states are given."""
        for name, (_, load) in self._stateful().items():
            if name in states:
                load(states[name])

    def notify(self, kind: EventKind, values: Mapping[str, Any] | None = None, message: str = "") -> None:
        """Send an event to the observers, and keep interventions for the result."""
        event = StepEvent(kind, self.progress.steps, self.batches.progress, dict(values or {}), message)
        if kind in INTERVENTIONS:
            self.interventions.append(event)
        for observer in self.observers:
            observer.on_event(event)

    def notify_step(self, result: StepResult, learning_rate: float, tokens: int) -> None:
        """Send the event of an effective batch. A skipped one (float16) says so; what is not finite is left out."""
        scaler = self.precision.scaler
        values: dict[str, Any] = {
            "loss": result.total / result.weight,
            "learning_rate": learning_rate,
            "grad_norm": result.grad_norm if math.isfinite(result.grad_norm) else None,
            "micro_batch": self.micro_batch.limit,
            "precision": self.precision.name,
            "tokens": tokens,
            "scale": None if scaler is None else scaler.get_scale(),
            "skipped": None if result.applied else True,
            "memory_bytes": Torch().allocator(self.device).allocated_bytes or None,
        }
        self.notify("step", {name: value for name, value in values.items() if value is not None})

    def _stateful(self) -> dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], None]]]:
        """Key in checkpoints -> how to read the state of that part, and how to load it."""
        return {
            "batches": (self.batches.state, self.batches.load),
            "train_step": (self.train_step.state_dict, self.train_step.load_state_dict),
            "schedule": (self.schedule.state_dict, self.schedule.load_state_dict),
            "precision_fallback": (self.fallback.state_dict, self.fallback.load_state_dict),
            "precision": (self.precision.state_dict, self.precision.load_state_dict),
            "micro_batches": (self.micro_batch.state_dict, self.micro_batch.load_state_dict),
            "progress": (self.progress.state_dict, self.progress.load_state_dict),
            "best": (self.best.state_dict, self.best.load_state_dict),
        }


def loader_settings(placement: Placement, config: TrainingConfig) -> LoaderSettings:
    """Of the placement, with the configured number of workers."""
    if config.num_workers is None:
        return placement.loader
    prefetch = (placement.loader.prefetch_factor or 2) if config.num_workers else None
    return replace(placement.loader, num_workers=config.num_workers, prefetch_factor=prefetch)
