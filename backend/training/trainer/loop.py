"""The training loop: epochs of effective batches, evaluations, checkpoints, and the recovery from every fault."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from backend.device.facts.torch_source import Torch
from backend.device.faults import Fault
from backend.device.memory.device_memory import release
from backend.errors import DoesNotFit, FinanciaError, TrainingFailed
from backend.training.data.batches import MicroBatchLoader
from backend.training.records import Observer, Task, TrainingConfig, TrainingResult
from backend.training.trainer.checkpoints import CheckpointManager, non_finite_tensors
from backend.training.trainer.distributed import init_process_group
from backend.training.trainer.precision import NumericFailure, list_examples, torch_settings
from backend.training.trainer.train_step import (
    Accumulated,
    ChunkedLoss,
    FailedAttempt,
    FaultSource,
    OutOfMemoryGuard,
    StepResult,
    does_not_fit,
    seed_step,
)
from backend.training.trainer.trainer_state import TrainerState, loader_settings

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
        observers: get every event on rank 0 alone, and are closed at the end whatever happens.
        faults: breaks the run on purpose; for tests.
        stop: when set (by a signal handler), the run ends after the current step with a checkpoint and the reason
            "interrupted".

    Raises: TrainingFailed when numbers break in full precision too; DoesNotFit when one item alone needs more memory
    than there is; BadCheckpoint for a checkpoint of another model or run, or in the way of a new one; BadData;
    BadSettings; DeviceUnavailable.
    """
    with contextlib.ExitStack() as stack:
        for observer in observers:
            stack.callback(observer.close)
        group = init_process_group(config.device)
        placement = group.placement
        stack.enter_context(torch_settings(config, group.device))
        loader = stack.enter_context(MicroBatchLoader(task.collate, loader_settings(placement, config), group.device))
        state = TrainerState.create(
            task, config, group, placement=placement, loader=loader, observers=observers, faults=faults, stop=stop
        )
        stack.callback(state.iterator.stop)
        try:
            return _Trainer(state, CheckpointManager(state, output)).run(resume=resume)
        except FinanciaError as error:
            state.notify("stop", message=str(error))
            raise


class _Trainer:
    """One call of ``train``. Every rank takes the same branches: they depend on values gathered from all ranks."""

    def __init__(self, state: TrainerState, checkpoints: CheckpointManager) -> None:
        self._state, self._checkpoints = state, checkpoints
        self._accumulation = _Accumulation(state)
        self._optimizer_ran_out = False  # of memory; a second time ends the run

    def run(self, *, resume: bool) -> TrainingResult:
        """Train from the start or the newest checkpoint to the end."""
        state = self._state
        resumed = self._checkpoints.start(resume=resume)
        self._use_fallback_precision()  # a checkpoint may come from a machine with other precisions
        state.notify(
            "start",
            {"steps": state.planned_steps, "micro_batch": state.micro_batch.limit, "precision": state.precision.name},
            "; ".join([*([f"resumed at step {resumed}"] if resumed is not None else []), *state.why]),
        )
        if resumed is None:
            self._checkpoints.take_snapshot()
        while (reason := self._end_reason()) is None:
            failure = self._step()
            if failure is not None:
                self._fall_back(failure)
        return self._end(reason)

    def _end_reason(self) -> str | None:
        state = self._state
        if state.batches.epoch >= state.config.epochs:
            return "epochs"
        if state.config.max_steps is not None and state.progress.steps >= state.config.max_steps:
            return "max_steps"
        if state.best.out_of_patience:
            return "patience"
        return "interrupted" if self._accumulation.interrupted else None

    def _step(self) -> NumericFailure | None:
        """Train on one effective batch, then evaluate and save where it is due."""
        state = self._state
        if state.iterator.is_empty:
            state.iterator.restart(state.micro_batch.limit)
        batch = state.iterator.current
        result = StepResult()
        if batch:
            accumulated, weight = self._accumulation.run(batch)
            result = state.train_step.update(accumulated, weight, batch, state.progress.steps)
        if result.failure is not None:
            return result.failure
        if result.out_of_memory is not None:
            self._recover_optimizer(result.out_of_memory)
            return None
        state.iterator.advance()
        overflow = self._count(result, batch)
        self._accumulation.after_step()
        return overflow or self._after_step(result)

    def _recover_optimizer(self, fault: Fault) -> None:
        """Memory ran out in the optimizer, which may have changed half of the weights: restore, with an empty cache."""
        state = self._state
        release(state.device)
        if self._optimizer_ran_out:
            raise does_not_fit(fault.message, max(state.task.lengths), state.config, state.device)
        self._optimizer_ran_out = True
        self._restore()
        message = f"memory ran out in the optimizer ({fault.message}): back to the last good snapshot"
        state.notify("out_of_memory", {"micro_batch": state.micro_batch.limit}, message)

    def _count(self, result: StepResult, batch: Sequence[int]) -> NumericFailure | None:
        """Count a step; the failure if the scaler skips too many."""
        state, scaler = self._state, self._state.precision.scaler
        state.progress.add_step(result.total, result.weight, applied=result.applied, precision=state.precision.name)
        rate = state.schedule.learning_rate
        if result.applied:
            state.schedule.step()
            state.fallback.after_clean_step()
        if result.weight:
            state.notify_step(result, rate, sum(state.task.lengths[index] for index in batch))
        if scaler is None or not result.weight:
            return None
        failure = state.fallback.after_scaled_step(skipped=not result.applied, at_min_scale=scaler.at_min_scale)
        return None if failure is None else NumericFailure(failure.reason, tuple(sorted(batch)))

    def _after_step(self, result: StepResult) -> NumericFailure | None:
        """Recover the precision, evaluate, save and take a snapshot where due; never of weights that are not finite."""
        state, config = self._state, self._state.config
        steps, epoch_done = state.progress.steps, state.batches.position == 0
        end_reason = self._end_reason()

        def due(every: int | None) -> bool:
            return epoch_done if every is None else result.applied and steps % every == 0

        evaluates = due(config.evaluate_every) or end_reason not in (None, "interrupted")
        saves = due(config.checkpoint_every) or end_reason is not None
        takes_snapshot = due(config.snapshot_every) or due(config.checkpoint_every)
        recovers = result.applied and state.fallback.recovery_is_due and end_reason in (None, "interrupted")
        if epoch_done:
            state.progress.end_epoch()
        if not (evaluates or saves or takes_snapshot or recovers):
            return None
        state.group.broadcast(state.model)
        if broken := non_finite_tensors(state.model):
            return NumericFailure(f"step {steps}: {len(broken)} weight(s) are not finite ({broken[0]})")
        if recovers:
            self._recover()
        score = None
        if evaluates and state.best.evaluated_step != steps:
            improved, score = self._evaluate()
            is_best = improved and score is not None
            saves, takes_snapshot = saves or is_best, takes_snapshot or is_best
        # A run that resumes from a checkpoint must go back, if numbers break, to where the run that went on would.
        if takes_snapshot or recovers:
            self._checkpoints.take_snapshot()
        if saves or self._end_reason() is not None:
            self._save(score)
        return None

    def _evaluate(self) -> tuple[bool, float | None]:
        """Whether the task's metrics are the best so far, and their score."""
        state = self._state
        metrics = state.group.gather_objects(_evaluate(state))[0]  # rank 0's, so that all decide alike
        if not metrics:
            return False, None
        improved = state.best.update(metrics, state.progress.steps)
        if improved:
            self._checkpoints.keep_best_weights()
        state.notify("evaluation", {**metrics, "best": improved})
        return improved, state.best.score(metrics)

    def _save(self, score: float | None) -> None:
        folder = self._checkpoints.save(score)
        if folder is not None:
            self._state.notify("checkpoint", {"folder": str(folder)})

    def _fall_back(self, failure: NumericFailure) -> None:
        """Back to the last good snapshot, in the next precision. Raises: TrainingFailed when there is none."""
        state, before = self._state, self._state.precision.name
        lost_steps = state.progress.steps + 1 - self._checkpoints.snapshot_steps
        message = state.fallback.fall_back(failure, lost_steps=lost_steps)
        self._restore()
        changed = {"from": before, "to": state.fallback.precision}
        left_out = list(state.fallback.excluded)
        state.notify("precision", {**changed, "examples": list(failure.examples), "left_out": left_out}, message)

    def _recover(self) -> None:
        """From the next step on in the precision above; should it break, the snapshot of this step is the way back."""
        state, before = self._state, self._state.precision.name
        message = state.fallback.recover()
        self._use_fallback_precision()
        state.notify("precision", {"from": before, "to": state.fallback.precision, "recovered": True}, message)

    def _restore(self) -> None:
        state = self._state
        self._checkpoints.restore_snapshot()
        self._use_fallback_precision()
        state.batches.leave_out(state.fallback.excluded)
        state.fallback.reset_skipped()
        state.best.forget_step()
        state.iterator.restart(state.micro_batch.limit)

    def _use_fallback_precision(self) -> None:
        if self._state.precision.name != self._state.fallback.precision:  # a scaler that stays keeps its scale
            self._state.precision.switch_to(self._state.fallback.precision)

    def _end(self, reason: str) -> TrainingResult:
        state = self._state
        steps, loss, excluded = state.progress.steps, state.progress.loss, state.fallback.excluded
        if reason != "interrupted" and not math.isfinite(loss):
            left_out = f", and example(s) {list_examples(excluded)} were left out for a loss that was not finite"
            raise TrainingFailed(
                "nothing was learnt: no effective batch had an item with a label" + (left_out if excluded else "")
            )
        if reason != "interrupted":
            self._checkpoints.load_best_weights()
        state.model.eval()
        result = TrainingResult(
            steps=steps,
            epochs=state.batches.progress,
            loss=loss,
            metrics=state.best.metrics,
            precision=state.precision.name,
            steps_by_precision=state.progress.steps_by_precision,
            micro_batch=state.micro_batch.limit,
            reason=reason,
            events=tuple(state.interventions),
            skipped=excluded,
        )
        if reason in ("interrupted", "patience"):
            state.notify("stop", message=f"ended early: {reason}")
        state.notify("end", {"loss": loss, "steps": steps, "reason": reason, **state.best.metrics})
        return result


class _Accumulation:
    """Accumulates the gradients of effective batches, with micro-batches that fit into memory on every rank.

    Before a gradient is sent between ranks, all report whether they got through.
    """

    def __init__(self, state: TrainerState) -> None:
        self._state = state
        self._thrashing = False
        self.interrupted = False  # some rank was asked to stop

    def run(self, batch: Sequence[int]) -> tuple[Accumulated, float]:
        """This rank's gradients of an effective batch, and its weight on all ranks. Raises: DoesNotFit."""
        while isinstance(outcome := self._attempt(batch, self._state.micro_batch.limit), FailedAttempt):
            self._state.train_step.discard()
            self._state.iterator.stop()
            if any(outcome.out_of_memory):
                self._shrink(outcome)
        self._state.micro_batch.succeeded()
        return outcome

    def after_step(self) -> None:
        """Smaller micro-batches before memory runs out, where the allocator's retries say that it is near."""
        state, before = self._state, self._state.micro_batch.limit
        thrashing, self._thrashing = self._thrashing, False
        if not thrashing or not self._divisible or not state.micro_batch.shrink_slightly():
            return
        self._limit_chunks()
        state.iterator.restart(state.micro_batch.limit)
        state.notify(
            "thrash",
            {"micro_batch": state.micro_batch.limit, "before": before},
            f"the allocator had to empty its cache in step after step: {state.micro_batch.limit} items at once from "
            "now on",
        )

    def _attempt(self, batch: Sequence[int], limit: int) -> tuple[Accumulated, float] | FailedAttempt:
        state, group = self._state, self._state.group
        if state.iterator.is_empty:  # the attempt before failed
            state.iterator.restart(limit)
        position = state.batches.epoch * state.batches.steps_per_epoch + state.batches.position
        seed_step(state.config.seed, position, group.rank, group.device)
        splits = state.iterator.split(batch, limit)
        accumulated = state.train_step.accumulate(splits, state.iterator.loaded, state.progress.steps)
        failed = accumulated.out_of_memory
        rows = group.gather(
            0 if failed is None else failed.items,
            float(accumulated.compile_failed),
            accumulated.weight,
            float(failed is None and state.thrash.after_step(self._allocator_retries())),
            float(state.stop.is_set()),
        )
        failures, compile_failures, weights, thrashing, stops = zip(*rows, strict=True)
        self.interrupted = self.interrupted or any(stops)
        if any(failures) or any(compile_failures):
            return FailedAttempt([int(items) for items in failures], *([failed.fault.message] if failed else []))
        self._thrashing = any(thrashing)
        return accumulated, sum(weights)

    def _shrink(self, failed: FailedAttempt) -> None:
        """Less at once in the next attempt, with an empty cache. Raises: DoesNotFit when there is nothing smaller."""
        state, size, before = self._state, self._state.micro_batch, self._state.micro_batch.limit
        again = size.shrink(failed.out_of_memory, divisible=self._divisible)
        release(state.device)
        if not again:
            raise does_not_fit(failed.message, max(state.task.lengths), state.config, state.device)
        self._limit_chunks()
        state.notify(
            "out_of_memory",
            {"micro_batch": size.limit, "before": before, "retries": size.retries},
            f"memory ran out in a micro-batch of {max(failed.out_of_memory)} ({failed.message}): {size.limit} at once "
            "from now on, the same effective batch runs again",
        )

    @property
    def _divisible(self) -> bool:
        """Whether less can run at once."""
        return self._state.task.splittable or isinstance(self._state.task, ChunkedLoss)

    def _limit_chunks(self) -> None:
        task = self._state.task
        if not task.splittable and isinstance(task, ChunkedLoss):
            task.limit_chunk(self._state.micro_batch.limit)

    def _allocator_retries(self) -> int:
        state = self._state
        return Torch().allocator(state.device).retries + state.faults.retries(state.progress.steps)


@torch.no_grad()
def _evaluate(state: TrainerState) -> dict[str, float]:
    """The task's metrics, in the run's precision. Raises: DoesNotFit when memory runs out with an empty cache too."""
    state.model.eval()
    for _ in range(2):
        with OutOfMemoryGuard(), state.precision.autocast():
            return dict(state.task.evaluate(state.model))
        release(state.device)
    raise DoesNotFit(f"the evaluation needs more memory than {state.device} has, with its cache given back too")
