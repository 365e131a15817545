"""``IntegratedGPUTrainingSystem``: trains any model with any loader, criterion and optimizer, over our loop's parts."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from backend.device.memory.device_memory import release
from backend.device.memory.trial_run import tensors_in
from backend.device.watch.monitor import GPUPerformanceMonitor
from backend.errors import DoesNotFit
from backend.gpu_toolkit.gpu_config import GPUConfig
from backend.gpu_toolkit.manager import GPUManager
from backend.gpu_toolkit.memory_optimizer import GPUMemoryOptimizer
from backend.gpu_toolkit.mixed_precision import Criterion, MixedPrecisionTrainer
from backend.telemetry import log_event
from backend.training.records import MixedPrecisionConfig
from backend.training.trainer.train_step import FailedAttempt, MicroBatchSize, OutOfMemoryGuard

_log = logging.getLogger(__name__)


class IntegratedGPUTrainingSystem:
    """Device, memory, mixed precision and monitoring around a training loop.

    Batches that do not fit run in parts, with the gradient of the whole: the loss of each part is weighted by its
    items, for criteria that average over items (torch's default) or sum. Batch norm sees the parts.

    Args:
        gpu_config: device, memory, checkpointing, loader.
        mixed_precision_config: half precision and scaler; ``enable_mixed_precision=False`` turns it off.

    Raises: BadSettings for wrong combinations (float16 on a CPU), DeviceUnavailable.
    """

    def __init__(
        self,
        gpu_config: GPUConfig | None = None,
        mixed_precision_config: MixedPrecisionConfig | None = None,
        *,
        max_grad_norm: float | None = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.gpu_config = gpu_config or GPUConfig()
        mixed = mixed_precision_config if mixed_precision_config is not None else MixedPrecisionConfig()
        if not self.gpu_config.enable_mixed_precision:
            mixed = replace(mixed, enabled=False)
        self.gpu_manager = GPUManager(self.gpu_config)
        self.device = self.gpu_manager.get_device()
        self.trainer = MixedPrecisionTrainer(mixed, self.device, max_grad_norm=max_grad_norm)
        self.memory_optimizer = GPUMemoryOptimizer(self.device)
        self.monitor = GPUPerformanceMonitor(str(self.device))
        self._clock = clock
        self._prepared = WeakKeyDictionary[nn.Module, nn.Module]()

    def setup_training(
        self, model: nn.Module, input_shape: Sequence[int], *, target_memory_gb: float | None = None
    ) -> dict[str, Any]:
        """Prepare the model, and find the batch size that fits.

        Args:
            input_shape: the batch first, then one item: (32, 784). Its number of items does not matter.
            target_memory_gb: GiB for the model, its training and a batch; by default what is free.

        Returns: ``optimal_batch_size``, the largest that fits in every process that trains this model, checked at its
        own size; ``model``, to call (parallel where the config asks); ``device``, ``precision`` and ``why``;
        ``loader``, arguments for a DataLoader; ``trainable_parameters``, ``total_parameters`` and ``memory``.

        Raises: DoesNotFit with numbers when one item alone is too large.
        """
        self.trainer.adopt(model)
        self.gpu_manager.prepare_model(model)
        # Before DistributedDataParallel, whose hooks would send the gradients of every batch that is tried.
        batch_size = self.memory_optimizer.optimize_batch_size(model, input_shape, target_memory_gb)
        prepared = self._prepared[model] = self.gpu_manager.parallelize(model)
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
        return {
            "optimal_batch_size": self._smallest_of_all_ranks(batch_size),
            "model": prepared,
            "device": str(self.device),
            "precision": self.trainer.precision,
            "why": (*self.gpu_manager.placement.why, self.trainer.why),
            "loader": asdict(self.gpu_manager.loader_settings()),
            "trainable_parameters": sum(size for size, learns in sizes if learns),
            "total_parameters": sum(size for size, _ in sizes),
            "memory": self.gpu_manager.get_memory_usage(),
        }

    def training_loop(
        self,
        model: nn.Module,
        train_loader: Iterable[Any],
        criterion: Criterion,
        optimizer: Optimizer,
        num_epochs: int = 1,
        *,
        scheduler: Any = None,
        on_epoch: Callable[[int, Mapping[str, Any]], object] | None = None,
    ) -> dict[str, Any]:
        """Train; batches are pairs (data, targets).

        Args:
            scheduler: torch's; stepped after each change of the weights, not after a skipped step.
            on_epoch: called with the number of each epoch, from 0, and its numbers; for evaluation, or to print.

        Returns: ``epochs``, for each ``loss`` (mean over items), ``steps``, ``duration_s``, ``step_s`` and
        ``items_per_s``; and in all ``final_loss``, ``steps``, ``skipped_steps``, ``precision`` (at the end),
        ``steps_by_precision``, ``scale``, ``micro_batch`` (None while every batch fits), ``out_of_memory``, ``events``
        and ``device_metrics``.

        Raises: DoesNotFit when one item alone is too large; TrainingFailed when numbers break in full precision too.
        """
        run = _Run(self.trainer, self._prepared.get(model, model), criterion, optimizer, scheduler)
        epochs: list[dict[str, Any]] = []
        with self.monitor:
            for epoch in range(num_epochs):
                start, steps_before = self._clock(), run.steps
                model.train()
                loss = run.epoch(train_loader)
                duration = self._clock() - start
                steps = run.steps - steps_before
                epochs.append(_row(loss, run.items_of_epoch, steps, duration))
                log_event(_log, logging.INFO, "epoch trained", epoch=epoch, **epochs[-1])
                self.gpu_manager.empty_cache(run.steps)
                if on_epoch:
                    on_epoch(epoch, epochs[-1])
        return {
            "epochs": epochs,
            "final_loss": epochs[-1]["loss"] if epochs else None,
            "steps": run.steps,
            "skipped_steps": run.skipped,
            "precision": self.trainer.precision,
            "steps_by_precision": dict(self.trainer.steps_by_precision),
            "scale": self.trainer.scale,
            "micro_batch": run.micro_batch.limit if run.micro_batch.retries else None,
            "out_of_memory": run.micro_batch.retries,
            "events": tuple(self.trainer.events),
            "device_metrics": self.monitor.get_latest_metrics(),
        }

    def _smallest_of_all_ranks(self, batch_size: int) -> int:
        """With fewer items on one rank the others would wait for its missing steps for ever."""
        if not self.gpu_config.enable_distributed:
            return batch_size
        smallest = torch.tensor(batch_size, device=self.device)
        torch.distributed.all_reduce(smallest, op=torch.distributed.ReduceOp.MIN)
        return int(smallest)

    def cleanup(self) -> int:
        """Stop the monitor and free torch's unused memory; the bytes that were freed. What is referenced stays."""
        self.monitor.stop_monitoring()
        self._prepared.clear()
        return self.gpu_manager.clear_memory()


class _Run:
    """The steps of one call of ``training_loop``."""

    def __init__(
        self,
        trainer: MixedPrecisionTrainer,
        model: nn.Module,
        criterion: Criterion,
        optimizer: Optimizer,
        scheduler: Any,
    ) -> None:
        self._trainer, self._model, self._criterion = trainer, model, criterion
        self._optimizer, self._scheduler = optimizer, scheduler
        self.micro_batch = MicroBatchSize(sys.maxsize)  # until a batch does not fit
        self.steps = self.skipped = self.items_of_epoch = 0

    def epoch(self, loader: Iterable[Any]) -> float:
        """One pass over the data; the mean loss of an item."""
        total, self.items_of_epoch = torch.zeros((), dtype=torch.float64), 0
        for batch in loader:
            data, targets = split_pair(batch)
            count = count_items(data)
            total += self._step(data, targets, count).double().cpu() * count
            self.items_of_epoch += count
        if not self.items_of_epoch:
            raise ValueError("the loader gave no batch; with drop_last it needs a whole one")
        return float(total) / self.items_of_epoch

    def _step(self, data: Any, targets: Any, count: int) -> Tensor:
        """One batch, in parts that fit into memory, and once more where the precision fell back."""
        while True:
            fallbacks = len(self._trainer.events)
            while isinstance(loss := self._backward(data, targets, count), FailedAttempt):
                self._shrink(loss)
            self.micro_batch.succeeded()
            if self._trainer.optimizer_step(self._optimizer):
                self.steps += 1
                if self._scheduler is not None:
                    self._scheduler.step()
                return loss
            if len(self._trainer.events) == fallbacks:  # the scaler looks for its scale: torch takes the next batch
                self.skipped += 1
                return loss

    def _backward(self, data: Any, targets: Any, count: int) -> Tensor | FailedAttempt:
        """The gradients of a batch in parts that fit, and its loss."""
        size = min(self.micro_batch.limit, count)
        parts = [range(first, min(count, first + size)) for first in range(0, count, size)]
        total_weight = weight_of(self._criterion, targets, count)
        losses: list[Tensor] = []

        def run(items: Sequence[int]) -> None:
            part = slice(items[0], items[-1] + 1)
            part_targets = take_part(targets, part, count)
            share = 1.0
            if len(parts) > 1 and total_weight:
                share = weight_of(self._criterion, part_targets, len(items)) / total_weight
            if not share:  # nothing in it counts, and a mean over nothing is not a number
                return
            predictions = self._trainer.forward_pass(self._model, take_part(data, part, count))
            loss = self._trainer.compute_loss(self._criterion, predictions, part_targets) * share
            self._trainer.backward_pass(loss, self._optimizer)
            losses.append(loss.detach())

        if isinstance(self._model, DistributedDataParallel):  # the others would wait for this process for ever
            run(range(count))
            return losses[0]
        for items in parts:
            with OutOfMemoryGuard() as guard:
                run(items)
            if guard.fault is not None:
                return FailedAttempt([len(items)], guard.fault.message)
        return torch.stack(losses).sum()

    def _shrink(self, failed: FailedAttempt) -> None:
        """Smaller parts in the next attempt. Raises: DoesNotFit when one item alone failed twice."""
        self._trainer.drop(self._optimizer)
        again = self.micro_batch.shrink(failed.out_of_memory)
        release(str(self._trainer.device))
        if not again:
            raise DoesNotFit(
                f"one item alone needs more memory than {self._trainer.device} has ({failed.message}); checkpoint "
                "activations (enable_gradient_checkpointing=True), shorten the item or use a smaller model"
            )
        items, limit = failed.out_of_memory[0], self.micro_batch.limit
        note = f"{items} items did not fit: parts of {limit} from here on, with the same gradients"
        log_event(_log, logging.WARNING, "out of memory", note=note)


def _row(loss: float, items: int, steps: int, duration_s: float) -> dict[str, Any]:
    rate = items / duration_s if duration_s > 0 else None
    step_s = duration_s / steps if steps else None
    return {"loss": loss, "steps": steps, "duration_s": duration_s, "step_s": step_s, "items_per_s": rate}


def split_pair(batch: Any) -> tuple[Any, Any]:
    """Data and targets. Raises: ValueError for anything but a pair."""
    if isinstance(batch, list | tuple) and len(batch) == 2:
        return batch[0], batch[1]
    raise ValueError(f"a batch of {type(batch).__name__}: pairs (data, targets) are needed")


def count_items(data: Any) -> int:
    """The number of items: the first dimension of the first tensor. Raises: ValueError without one."""
    first = next(tensors_in(data), None)
    if first is None or first.ndim == 0:
        raise ValueError("a batch without a tensor of items: they are counted along the first dimension")
    return len(first)


def take_part(data: Any, part: slice, count: int) -> Any:
    """Those items of every tensor that has ``count`` of them; other tensors and values stay whole."""
    if isinstance(data, Tensor):
        return data[part] if data.ndim and len(data) == count else data
    if isinstance(data, Mapping):
        return {name: take_part(value, part, count) for name, value in data.items()}
    if isinstance(data, list | tuple) and not hasattr(data, "_fields"):
        return type(data)(take_part(value, part, count) for value in data)
    return data


def weight_of(criterion: Any, targets: Any, count: int) -> float:
    """What the criterion's mean is taken over: items, or for cross entropy the weights of the classes that count.

    0 for a criterion that sums: its parts add up as they are.
    """
    if getattr(criterion, "reduction", "mean") == "sum":
        return 0.0
    classes = isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss) and isinstance(targets, Tensor)
    if not classes or targets.is_floating_point():
        return float(count)
    counted = targets[targets != criterion.ignore_index]
    if criterion.weight is None:
        return float(counted.numel())
    return float(criterion.weight[counted.to(criterion.weight.device)].sum())
