"""The loop: epochs of effective batches, with evaluations, checkpoints, and every fault handed to who knows a way."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path

from backend.device.default_device import placement
from backend.device.faults import Fault
from backend.device.memory.release import release
from backend.errors import FinanciaError, TrainingFailed
from backend.training.data.micro_batch_loader import MicroBatchLoader
from backend.training.records import Observer, Task, TrainingConfig, TrainingResult
from backend.training.trainer.batch_retry import Attempts, Context
from backend.training.trainer.callbacks import Telling
from backend.training.trainer.checkpoint_manager import Shelf
from backend.training.trainer.distributed import join
from backend.training.trainer.evaluation import measured
from backend.training.trainer.oom_retry import does_not_fit
from backend.training.trainer.precision import torch_settings
from backend.training.trainer.precision_fallback import Trouble, named
from backend.training.trainer.setup import assemble, loader_settings, shelf_of
from backend.training.trainer.snapshot import broken_tensors
from backend.training.trainer.train_step import FaultSource, NoFaults, Update

__all__ = ["FaultSource", "train"]


def train(
    task: Task,
    config: TrainingConfig,
    *,
    output: Path | None,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    faults: FaultSource | None = None,
    stop: threading.Event | None = None,
) -> TrainingResult:
    """Train ``task.model`` in place; on return it holds the best evaluation's weights, or the last ones without any.

    Publishing is the caller's: ``task.publish(task.model, output, notes)`` on rank 0 when this returned. Under
    torchrun every process calls this; they share each effective batch and end with the same weights.

    Args:
        output: folder for checkpoints (``output/checkpoints``); None keeps nothing on disk.
        resume: go on from the latest checkpoint in ``output``; a run without one starts from the beginning.
        observers: told on rank 0 alone, and closed at the end whatever happens.
        faults: breaks the run on purpose; for tests.
        stop: when set (by a signal handler), the run ends after the step at hand with a checkpoint and the reason
            "interrupted".

    Raises: TrainingFailed when numbers break in full precision too; DoesNotFit when one item alone needs more memory
    than there is; BadCheckpoint for a checkpoint of another model or run, or in the way of a new one; BadData;
    BadSettings; DeviceUnavailable.
    """
    with contextlib.ExitStack() as stack:
        for observer in observers:
            stack.callback(observer.close)
        ranks, where = join(config.device), placement(config.device)
        stack.enter_context(torch_settings(config, ranks.device))
        loader = stack.enter_context(MicroBatchLoader(task.collate, loader_settings(where, config), ranks.device))
        broken = faults or NoFaults()
        parts = assemble(task, config, ranks, where=where, loader=loader, faults=broken)
        stack.callback(parts.feed.stop)
        telling = Telling(parts, observers if ranks.main else ())
        context = Context(task, config, ranks, parts, telling, broken, stop or threading.Event())
        try:
            return _Run(context, shelf_of(parts, task, config, output, ranks)).go(resume=resume)
        except FinanciaError as error:
            telling.tell("stop", message=str(error))
            raise


class _Run:
    """One call of ``train``. Every rank takes the same way through it: what decides was agreed on first."""

    def __init__(self, context: Context, shelf: Shelf) -> None:
        self._task, self._config, self._ranks = context.task, context.config, context.ranks
        self._parts, self._telling, self._tell = context.parts, context.telling, context.telling.tell
        self._shelf, self._attempts = shelf, Attempts(context)
        self._device = str(context.ranks.device)
        self._no_room_to_step = False  # memory ran out in the optimizer; a second time ends the run

    def go(self, *, resume: bool) -> TrainingResult:
        """From the start, or from where the checkpoint left off, to the end."""
        parts = self._parts
        resumed = self._shelf.begin(resume=resume)
        if parts.numerics.rung != parts.ladder.rung:  # a checkpoint from a machine with other precisions
            parts.numerics.use(parts.ladder.rung)
        self._tell(
            "start",
            {"steps": parts.steps_planned, "micro_batch": parts.micro.limit, "precision": parts.numerics.rung},
            "; ".join([*([f"resumed at step {resumed}"] if resumed is not None else []), *parts.why]),
        )
        self._shelf.remember()
        while (reason := self._over()) is None:
            trouble = self._step()
            if trouble is not None:
                self._fall(trouble)
        return self._end(reason)

    def _over(self) -> str | None:
        parts = self._parts
        if parts.batches.epoch >= self._config.epochs:
            return "epochs"
        if self._config.max_steps is not None and parts.standing.steps >= self._config.max_steps:
            return "max_steps"
        if parts.best.lost_patience:
            return "patience"
        return "interrupted" if self._attempts.interrupted else None

    def _step(self) -> Trouble | None:
        """One effective batch, and what is due after it."""
        parts = self._parts
        if parts.feed.is_empty:
            parts.feed.restart(parts.micro.limit)
        batch = parts.feed.due
        update = Update()
        if batch:
            gathered, weight = self._attempts.gather(batch)
            update = parts.stepper.update(gathered, weight, batch, parts.standing.steps)
        if update.trouble is not None:
            return update.trouble
        if update.fault is not None:
            self._make_room(update.fault)
            return None
        parts.feed.advance()
        sick = self._count(update, batch)
        self._attempts.after_step()
        return sick or self._boundary(update)

    def _make_room(self, fault: Fault) -> None:
        """Memory ran out in the optimizer, which may have changed half of the weights: back, with an empty cache."""
        release(self._device)
        if self._no_room_to_step:
            raise does_not_fit(fault.message, max(self._task.lengths), self._config, self._device)
        self._no_room_to_step = True
        self._go_back()
        message = f"memory ran out in the optimizer ({fault.message}): back to the last good snapshot"
        self._tell("out_of_memory", {"micro_batch": self._parts.micro.limit}, message)

    def _count(self, update: Update, batch: Sequence[int]) -> Trouble | None:
        """Book a step; what the scaler's skipped ones say about the precision."""
        parts, scaler = self._parts, self._parts.numerics.scaler
        parts.standing.count(update.total, update.weight, applied=update.applied)
        rate = parts.schedule.learning_rate
        if update.applied:
            parts.schedule.step()
        if update.weight:
            self._telling.step(update, rate, sum(self._task.lengths[index] for index in batch), self._device)
        if scaler is None or not update.weight:
            return None
        trouble = parts.health.step(skipped=not update.applied, at_floor=scaler.at_floor)
        return None if trouble is None else Trouble(trouble.what, tuple(sorted(batch)))

    def _boundary(self, update: Update) -> Trouble | None:
        """Evaluate, save and take a snapshot where it is due; never of weights that are not finite."""
        config, parts = self._config, self._parts
        steps, epoch_done = parts.standing.steps, parts.batches.position == 0
        ending = self._over()

        def due(every: int | None) -> bool:
            return epoch_done if every is None else update.applied and steps % every == 0

        evaluates = due(config.evaluate_every) or ending not in (None, "interrupted")
        saves = due(config.checkpoint_every) or ending is not None
        remembers = due(config.snapshot_every)
        if epoch_done:
            parts.standing.end_epoch()
        if not (evaluates or saves or remembers):
            return None
        self._ranks.align(self._task.model)
        if broken := broken_tensors(self._task.model):
            return Trouble(f"step {steps}: {len(broken)} weight(s) are not finite ({broken[0]})")
        score = None
        if evaluates and parts.best.evaluated != steps:
            improved, score = self._evaluate()
            saves = saves or (improved and score is not None)
        if saves or self._over() is not None:
            self._save(score)
        if remembers:
            self._shelf.remember()
        return None

    def _evaluate(self) -> tuple[bool, float | None]:
        """The field's metrics; whether they are the best so far, and what they score."""
        parts, steps = self._parts, self._parts.standing.steps
        mine = measured(self._task, self._parts.numerics, self._device)
        metrics = self._ranks.objects(mine)[0]  # rank 0's, so that all decide alike
        if not metrics:
            return False, None
        improved = parts.best.see(metrics, steps)
        if improved:
            self._shelf.keep_best()
        self._tell("evaluation", {**metrics, "best": improved})
        return improved, parts.best.score(metrics)

    def _save(self, score: float | None) -> None:
        made = self._shelf.save(self._parts.standing.steps, score)
        if made is not None:
            self._tell("checkpoint", {"folder": str(made)})

    def _fall(self, trouble: Trouble) -> None:
        """Back to the last good snapshot, one rung down. Raises: TrainingFailed when there is none."""
        parts, before = self._parts, self._parts.numerics.rung
        fall = parts.ladder.fall(trouble)
        self._go_back()
        self._tell(
            "precision",
            {"from": before, "to": fall.rung, "examples": list(trouble.examples), "left_out": list(fall.leave_out)},
            fall.message,
        )

    def _go_back(self) -> None:
        parts = self._parts
        self._shelf.go_back()
        if parts.numerics.rung != parts.ladder.rung:  # a scaler that stays goes on from where it was
            parts.numerics.use(parts.ladder.rung)
        parts.batches.leave_out(parts.ladder.left_out)
        parts.health.reset()
        parts.best.go_back()
        parts.feed.restart(parts.micro.limit)

    def _end(self, reason: str) -> TrainingResult:
        parts, steps = self._parts, self._parts.standing.steps
        loss = parts.standing.loss
        if reason != "interrupted" and not math.isfinite(loss):
            left = parts.ladder.left_out
            raise TrainingFailed(
                "nothing was learnt: no effective batch had an item with a label"
                + (f", and example(s) {named(left)} were left out for a loss that was not finite" if left else "")
            )
        if reason != "interrupted":
            self._shelf.bring_best(parts.best, steps)
        self._task.model.eval()
        result = TrainingResult(
            steps=steps,
            epochs=parts.batches.progress,
            loss=loss,
            metrics=parts.best.metrics,
            precision=parts.numerics.rung,
            micro_batch=parts.micro.limit,
            reason=reason,
            events=tuple(self._telling.interventions),
            skipped=parts.ladder.left_out,
        )
        if reason in ("interrupted", "patience"):
            self._tell("stop", message=f"ended early: {reason}")
        self._tell("end", {"loss": loss, "steps": steps, "reason": reason, **parts.best.metrics})
        return result
