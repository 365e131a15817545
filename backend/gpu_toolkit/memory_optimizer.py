"""The largest batch that fits a device, and ways to make it larger: measured on CUDA, else predicted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from backend.device import default_device
from backend.device.faults import FaultKind, classify
from backend.device.memory import trial_run
from backend.device.memory.device_memory import (
    MemoryUsage,
    format_bytes,
    gpu_memory_guard,
    headroom_bytes,
    read_memory_usage,
)
from backend.device.memory.probe import PREDICTION_SAFETY, SAFETY, CudaMeter, measure
from backend.errors import DoesNotFit
from backend.gpu_toolkit.gpu_config import GIB
from backend.telemetry import log_event
from backend.training.memory import checkpoint_activations
from backend.training.trainer.model_setup import use_efficient_attention

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=nn.Module)
MAX_BATCH_SIZE = 1024  # a small model would fill the host or exceed CUDA's grid (Lightning#11295, #20614)
ADAM_STATES = 2.0  # of the weights' bytes: AdamW keeps two moments of each
_LENGTH = 1  # key of the only table entry: the shape is fixed


def get_optimal_batch_size(
    model: nn.Module,
    input_shape: Sequence[int],
    device: str | torch.device = "auto",
    *,
    mode: trial_run.Mode = "inference",
    target_memory_gb: float | None = None,
    max_batch_size: int = MAX_BATCH_SIZE,
    optimizer_states: float = ADAM_STATES,
    make_inputs: trial_run.MakeInputs | None = None,
    read_usage: Callable[[str], MemoryUsage] = read_memory_usage,
) -> int:
    """The largest batch that fits, with a margin; the model's state is restored.

    On a CUDA card batches are run, from one sample up and never far beyond what fits; elsewhere, and where running out
    of memory could harm the host (WSL2), their memory is predicted with fake tensors.

    Args:
        input_shape: one sample, without the batch: (64, 469), (3, 224, 224), or (128,) tokens.
        mode: "training" also counts gradients and the optimizer's state; without them the result is far too large.
        target_memory_gb: GiB for weights, state and batch together; by default the free memory of the device.
        optimizer_states: in training, of the weights' bytes: 2 for AdamW, 1 for SGD with momentum, 0 for plain SGD.
        make_inputs: makes the inputs of a batch, for models with other inputs.

    Raises: DoesNotFit with numbers when not even one sample fits.
    """
    if max_batch_size < 1 or (target_memory_gb is not None and target_memory_gb <= 0):
        raise ValueError(f"max_batch_size {max_batch_size} and target_memory_gb {target_memory_gb} must be above 0")
    probe = _BatchProbe(model, input_shape, default_device.torch_device(device), mode, make_inputs)
    with gpu_memory_guard(device=str(probe.device), read_usage=read_usage), trial_run.restored_state(model):
        fixed, available = probe.load(target_memory_gb, optimizer_states if mode == "training" else 0.0, read_usage)
        batch_size = largest_count(probe.peak_bytes, available, max_batch_size)
        if batch_size < 1:
            needed = trial_run.predict_peak_bytes(model, probe.make, 1, mode)
            raise DoesNotFit(
                f"one sample of {tuple(input_shape)} needs {format_bytes(needed)} beside {format_bytes(fixed)} of "
                f"weights and state, and {format_bytes(max(0, available))} are left on {probe.device}: "
                "shorten the sample, use a smaller model or bf16, or checkpoint activations"
            )
        return batch_size


def largest_count(peak_bytes: Callable[[int], int | None], available_bytes: int, max_count: int) -> int:
    """PURE: the largest count up to ``max_count`` whose peak fits ``available_bytes``, or up to a 16th less; else 0.

    The peak is the maximum over several phases (forward, first gradients, all gradients), each linear in the count with
    an intercept of at least 0. So twice the count never needs more than twice the memory, and no attempt takes more
    than twice the available bytes. A larger count also never needs less than the line through the last two attempts
    predicts, which bounds the result. Two small batches alone are not enough: in training the memory of gradients
    hides the slope of the activations.

    Args:
        peak_bytes: count -> peak of that batch; None when it ran out of memory.
    """
    low, low_peak = 0, 0  # fits
    high, high_peak = 1, peak_bytes(1)  # the last attempt
    while high_peak is not None and high_peak <= available_bytes:
        slope = max(1.0, (high_peak - low_peak) / (high - low)) if low else 1.0  # one point has no slope
        low, low_peak = high, high_peak
        bound = min(max_count, low + int((available_bytes - low_peak) / slope))
        if bound <= low:
            return low
        high = min(2 * low, bound)
        high_peak = peak_bytes(high)
    while high - low > max(1, low // 16):  # bisect between what fits and what does not
        middle = (low + high) // 2
        peak = peak_bytes(middle)
        low, high = (middle, high) if peak is not None and peak <= available_bytes else (low, middle)
    return low


class GPUMemoryOptimizer:
    """Reduces a model's memory for training, finds the largest batch, and profiles memory by batch size.

    Every ``input_shape`` here begins with the batch size, as training guides write it: (32, 784). Only
    ``profile_memory_usage`` and ``optimize_model_memory`` use that size.

    Args:
        device: "auto", "cuda:1", "mps", "cpu" or torch's.
        max_batch_size: upper bound, also when more would fit.
    """

    def __init__(
        self,
        device: str | torch.device = "auto",
        *,
        max_batch_size: int = MAX_BATCH_SIZE,
        optimizer_states: float = ADAM_STATES,
        read_usage: Callable[[str], MemoryUsage] = read_memory_usage,
    ) -> None:
        self._device, self._max, self._states, self._read_usage = device, max_batch_size, optimizer_states, read_usage

    def optimize_model_memory(self, model: _Model, input_shape: Sequence[int] | None = None) -> _Model:
        """Checkpoint activations and switch to scaled-dot-product attention where supported; gradients stay equal.

        Changes ``model`` and returns it. Logs what was done and, with ``input_shape``, the predicted peak of that batch
        before and after.
        """
        before = self._predicted(model, input_shape)
        done = [*use_efficient_attention(model), checkpoint_activations(model)]
        saved = {"before_bytes": before, "after_bytes": self._predicted(model, input_shape)} if input_shape else {}
        log_event(_log, logging.INFO, "model memory optimized", model=type(model).__name__, done=done, **saved)
        return model

    def optimize_batch_size(
        self, model: nn.Module, input_shape: Sequence[int], target_memory_gb: float | None = None
    ) -> int:
        """The largest batch for training with this memory. Raises: as ``get_optimal_batch_size``."""
        return get_optimal_batch_size(
            model,
            _sample(input_shape),
            self._device,
            mode="training",
            target_memory_gb=target_memory_gb,
            max_batch_size=self._max,
            optimizer_states=self._states,
            read_usage=self._read_usage,
        )

    def profile_memory_usage(
        self, model: nn.Module, input_shape: Sequence[int], batch_sizes: Sequence[int] | None = None
    ) -> dict[int, dict[str, Any]]:
        """Batch size -> memory of a training step: weights, gradients, the optimizer's state and activations.

        Args:
            batch_sizes: by default the powers of two up to the batch of ``input_shape``, and that batch.

        Returns: for each ``memory_used_bytes`` and ``memory_used_gb`` in all, ``batch_bytes`` above weights and state,
        ``fits`` on the device now, and ``source``: "measured" on a CUDA card where it ran, else "predicted".
        """
        sizes = sorted(set(batch_sizes or _powers_up_to(int(input_shape[0]))))
        if sizes[0] < 1:
            raise ValueError(f"batch sizes {sizes}: at least 1")
        probe = _BatchProbe(model, _sample(input_shape), default_device.torch_device(self._device), "training", None)
        with gpu_memory_guard(device=str(probe.device), read_usage=self._read_usage), trial_run.restored_state(model):
            fixed, available = probe.load(None, self._states, self._read_usage)
            return {size: self._row(probe, fixed, available, size) for size in sizes}

    def _row(self, probe: _BatchProbe, fixed: int, available: int, size: int) -> dict[str, Any]:
        batch, source = probe.predicted_bytes(size), "predicted"
        if probe.runs and batch <= available and (measured := probe.peak_bytes(size)) is not None:
            batch, source = measured, "measured"
        used = fixed + batch
        return {
            "memory_used_bytes": used,
            "memory_used_gb": used / GIB,
            "batch_bytes": batch,
            "fits": batch <= available,
            "source": source,
        }

    def _predicted(self, model: nn.Module, input_shape: Sequence[int] | None) -> int | None:
        if not input_shape:
            return None
        with trial_run.restored_state(model):
            model.train()
            make = trial_run.synthetic_inputs(model, _sample(input_shape))
            return trial_run.predict_peak_bytes(model, make, int(input_shape[0]), "training")


class _BatchProbe:
    """Measures or predicts the memory of a model's batches on a device. Use it inside ``trial_run.restored_state``."""

    def __init__(
        self,
        model: nn.Module,
        sample_shape: Sequence[int],
        device: torch.device,
        mode: trial_run.Mode,
        make_inputs: trial_run.MakeInputs | None,
    ) -> None:
        self.device = device
        self._model, self._mode = model, mode
        self.make = make_inputs or trial_run.synthetic_inputs(model, sample_shape)

    @property
    def runs(self) -> bool:
        """Whether batches are really run: on CUDA, unless running out of memory could harm the host (WSL2)."""
        return self.device.type == "cuda" and not default_device.machine_facts().platform.wsl

    def load(
        self, target_memory_gb: float | None, states: float, read_usage: Callable[[str], MemoryUsage]
    ) -> tuple[int, int]:
        """Move the model to the device; returns the bytes of weights and optimizer state, and those left for a batch.

        Raises: DoesNotFit when the weights alone are too large.
        """
        weights = trial_run.weights_bytes(self._model)
        state = int(states * sum(weight.nbytes for weight in self._model.parameters() if weight.requires_grad))
        try:
            self._model.train(self._mode == "training").to(self.device)
        except RuntimeError as error:
            if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
                raise
            raise DoesNotFit(
                f"the weights alone need {format_bytes(weights)}, more than is free on {self.device}"
            ) from error
        now = read_usage(str(self.device))
        available = headroom_bytes(now.stats, now.free_bytes, now.ceiling_bytes) - state  # weights are loaded already
        if target_memory_gb is not None:
            available = min(available, int(target_memory_gb * GIB) - weights - state)
        return weights + state, available

    def peak_bytes(self, count: int) -> int | None:
        """Peak of a batch above weights and optimizer state, with a margin; None when it ran out of memory."""
        if not self.runs:
            return self.predicted_bytes(count)
        try:
            table = measure(self._run, CudaMeter(str(self.device)), [_LENGTH], counts=[count], safety=SAFETY)
        except DoesNotFit:
            return None
        return table.peak_bytes(_LENGTH, count)

    def predicted_bytes(self, count: int) -> int:
        """The predicted peak, with a margin."""
        return int(trial_run.predict_peak_bytes(self._model, self.make, count, self._mode) * PREDICTION_SAFETY)

    def _run(self, count: int, length: int) -> None:  # noqa: ARG002  # the shape is fixed
        run = trial_run.forward_backward if self._mode == "training" else trial_run.forward
        try:
            run(self._model, self.make(count))
        finally:  # gradients belong to this batch's peak, not to the baseline of the next
            self._model.zero_grad(set_to_none=True)


def _sample(input_shape: Sequence[int]) -> tuple[int, ...]:
    if len(input_shape) < 2 or input_shape[0] < 1:
        raise ValueError(f"input_shape {tuple(input_shape)}: the batch first, then one sample, for example (32, 784)")
    return tuple(input_shape[1:])


def _powers_up_to(last: int) -> list[int]:
    return [*(1 << power for power in range(last.bit_length()) if 1 << power < last), last]
