"""Training of one's own model with one's own loader, criterion and optimizer, by the name that guides use."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from backend.device.watch.monitor import GPUPerformanceMonitor
from backend.errors import DoesNotFit
from backend.gpu_toolkit.batch_parts import cut, items_in, pair_of, weight_of
from backend.gpu_toolkit.gpu_config import GPUConfig
from backend.gpu_toolkit.manager import GPUManager
from backend.gpu_toolkit.memory_optimizer import GPUMemoryOptimizer
from backend.gpu_toolkit.mixed_precision import Criterion, MixedPrecisionTrainer
from backend.telemetry import log_event
from backend.training.lora import trainable_report
from backend.training.records import MixedPrecisionConfig
from backend.training.trainer.oom_retry import MicroBatches, Miss, until_miss

_log = logging.getLogger(__name__)


class IntegratedGPUTrainingSystem:
    """Device, memory, mixed precision and monitoring around a training loop.

    Batches that do not fit run in parts, with the gradient of the whole: the part of each loss is weighed by its items,
    for criteria that average over items (torch's default) or sum. Batch norm sees the parts.

    Args:
        gpu_config: device, memory, checkpointing, loader.
        mixed_precision_config: half precision and scaler; ``enable_mixed_precision=False`` overrules it.

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
        mixed = mixed_precision_config or MixedPrecisionConfig()
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
        """Make the model ready and say what was found.

        Args:
            input_shape: the batch first, then one item: (32, 784). Its number of items does not matter.
            target_memory_gb: GiB for the model, its training and a batch; by default what is free.

        Returns: ``optimal_batch_size``, the largest that fits, checked at its own size; ``model``, to call (parallel
        where the config asks); ``device``, ``precision`` and ``why``; ``loader``, arguments for a DataLoader;
        ``trainable_parameters``, ``total_parameters`` and ``memory``.

        Raises: DoesNotFit with numbers when one item alone is too large.
        """
        self.trainer.adopt(model)
        prepared = self._prepared[model] = self.gpu_manager.optimize_model_for_gpu(model)
        count = trainable_report(model)
        return {
            "optimal_batch_size": self.memory_optimizer.optimize_batch_size(model, input_shape, target_memory_gb),
            "model": prepared,
            "device": str(self.device),
            "precision": self.trainer.precision,
            "why": (*self.gpu_manager.placement.why, self.trainer.why),
            "loader": asdict(self.gpu_manager.loader_settings()),
            "trainable_parameters": count.trainable,
            "total_parameters": count.total,
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
            on_epoch: told the number of an epoch, from 0, and its numbers; for evaluation, or to print.

        Returns: ``epochs``, for each ``loss`` (mean over items), ``steps``, ``duration_s``, ``step_s`` and
        ``items_per_s``; and in all ``final_loss``, ``steps``, ``skipped_steps``, ``precision``, ``scale``,
        ``micro_batch`` (None while every batch fits), ``out_of_memory``, ``events`` and ``device_metrics``.

        Raises: DoesNotFit when one item alone is too large; TrainingFailed when numbers break in full precision too.
        """
        run = _Run(self.trainer, self._prepared.get(model, model), criterion, optimizer, scheduler)
        epochs: list[dict[str, Any]] = []
        with self.monitor:
            for epoch in range(num_epochs):
                began, steps_before = self._clock(), run.steps
                model.train()
                loss = run.epoch(train_loader)
                duration = self._clock() - began
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
            "scale": self.trainer.scale,
            "micro_batch": run.micro.limit if run.micro else None,
            "out_of_memory": run.micro.misses if run.micro else 0,
            "events": tuple(self.trainer.events),
            "device_metrics": self.monitor.get_latest_metrics(),
        }

    def cleanup(self) -> int:
        """Stop watching and give torch's unused memory back; the bytes that it gave. What you still hold stays."""
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
        self.micro: MicroBatches | None = None  # until a batch did not fit
        self.steps = self.skipped = self.items_of_epoch = 0

    def epoch(self, loader: Iterable[Any]) -> float:
        """One pass over the data; the mean loss of an item."""
        total, self.items_of_epoch = torch.zeros((), dtype=torch.float64), 0
        for batch in loader:
            data, targets = pair_of(batch)
            count = items_in(data)
            total += self._step(data, targets, count).double().cpu() * count
            self.items_of_epoch += count
        if not self.items_of_epoch:
            raise ValueError("the loader gave no batch; with drop_last it needs a whole one")
        return float(total) / self.items_of_epoch

    def _step(self, data: Any, targets: Any, count: int) -> Tensor:
        """One batch, again in smaller parts as long as it does not fit, and once more where the precision fell."""
        while True:
            falls = len(self._trainer.events)
            loss = self._backward(data, targets, count)
            if loss is None:
                continue
            if self._trainer.optimizer_step(self._optimizer):
                self.steps += 1
                if self._scheduler is not None:
                    self._scheduler.step()
                return loss
            if len(self._trainer.events) == falls:  # the scaler looks for its scale: torch goes on with the next batch
                self.skipped += 1
                return loss

    def _backward(self, data: Any, targets: Any, count: int) -> Tensor | None:
        """The gradients of a batch and its loss; None when memory ran out, and the next parts will be smaller."""
        size = min(self.micro.limit, count) if self.micro else count
        cuts = [range(first, min(count, first + size)) for first in range(0, count, size)]
        whole = weight_of(self._criterion, targets, count)
        losses: list[Tensor] = []

        def run(items: Sequence[int]) -> None:
            part = slice(items[0], items[-1] + 1)
            own = cut(targets, part, count)
            share = weight_of(self._criterion, own, len(items)) / whole if len(cuts) > 1 and whole else 1.0
            if not share:  # nothing in it counts, and a mean over nothing is not a number
                return
            predictions = self._trainer.forward_pass(self._model, cut(data, part, count))
            loss = self._trainer.compute_loss(self._criterion, predictions, own) * share
            self._trainer.backward_pass(loss, self._optimizer)
            losses.append(loss.detach())

        if isinstance(self._model, DistributedDataParallel):  # the others would wait for this process for ever
            run(range(count))
            return losses[0]
        miss = until_miss(cuts, run)
        if miss is None:
            if self.micro:
                self.micro.passed()
            return torch.stack(losses).sum()
        self._shrink(miss)
        return None

    def _shrink(self, miss: Miss) -> None:
        self._trainer.drop(self._optimizer)
        self.micro = self.micro or MicroBatches(miss.items)
        if not self.micro.missed([miss.items]):
            raise DoesNotFit(
                f"one item alone needs more memory than {self._trainer.device} has ({miss.fault.message}); checkpoint "
                "activations (enable_gradient_checkpointing=True), shorten the item or use a smaller model"
            )
        note = f"{miss.items} items did not fit: parts of {self.micro.limit} from here on, with the same gradients"
        log_event(_log, logging.WARNING, "out of memory", note=note)


def _row(loss: float, items: int, steps: int, duration_s: float) -> dict[str, Any]:
    rate = items / duration_s if duration_s > 0 else None
    step_s = duration_s / steps if steps else None
    return {"loss": loss, "steps": steps, "duration_s": duration_s, "step_s": step_s, "items_per_s": rate}
