"""How large a batch may be, and how to make it larger: measured on a card, by a dry run elsewhere, never guessed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from backend.device import default_device
from backend.device.faults import FaultKind, classify
from backend.device.memory import trial_run
from backend.device.memory.device_memory import Books, gpu_memory_guard, headroom_bytes, read_books, readable
from backend.device.memory.probe import PREDICTION_SAFETY, SAFETY, CudaMeter, measure
from backend.errors import DoesNotFit
from backend.gpu_toolkit.device_info import GIB
from backend.telemetry import log_event
from backend.training.memory.activation_checkpointing import checkpoint_activations

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=nn.Module)
MAX_BATCH_SIZE = 1024  # without a bound a small model fills the host or passes CUDA's grid (Lightning#11295, #20614)
ADAM_STATES = 2.0  # of the weights' bytes: AdamW keeps two moments of each
_ONE = 1  # the only length there is here: the shape is fixed


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
    books: Callable[[str], Books] = read_books,
) -> int:
    """The largest batch that fits, with a margin; the model is left as it was.

    On a CUDA card batches are run, from one sample up and never far beyond what fits; elsewhere, and where running out
    of memory could harm the host (WSL2), they are imagined with fake tensors.

    Args:
        input_shape: one sample, without the batch: (64, 469), (3, 224, 224), or (128,) tokens.
        mode: "training" counts gradients and the optimizer's state too; an answer for inference is far too large.
        target_memory_gb: GiB for weights, state and batch together; by default what is free on the device now.
        optimizer_states: in training, of the weights' bytes: 2 for AdamW, 1 for SGD with momentum, 0 for plain SGD.
        make_inputs: makes the inputs of a batch, for models that are fed otherwise.

    Raises: DoesNotFit with numbers when not even one sample fits.
    """
    if max_batch_size < 1 or (target_memory_gb is not None and target_memory_gb <= 0):
        raise ValueError(f"max_batch_size {max_batch_size} and target_memory_gb {target_memory_gb} must be above 0")
    probe = _Probe(model, input_shape, default_device.torch_device(device), mode, make_inputs)
    with gpu_memory_guard(device=str(probe.device), books=books), trial_run.untouched(model):
        fixed, room = probe.bring(target_memory_gb, optimizer_states if mode == "training" else 0.0, books)
        most = largest_count(probe.peak_bytes, room, max_batch_size)
        if most < 1:
            one = trial_run.imagined_peak_bytes(model, probe.make, 1, mode)
            raise DoesNotFit(
                f"one sample of {tuple(input_shape)} needs {readable(one)} beside {readable(fixed)} of weights and "
                f"state, and {readable(max(0, room))} are left on {probe.device}: shorten the sample, use a smaller "
                "model or bf16, or checkpoint activations"
            )
        return most


def largest_count(peak_bytes: Callable[[int], int | None], room_bytes: int, most: int) -> int:
    """PURE: the largest count up to ``most`` whose peak is within ``room_bytes``, or at worst a 16th less; else 0.

    The peak is the highest of several moments (forward, the first gradients, all of them), each a straight line in the
    count with an intercept of at least 0. So twice the count never needs more than twice the memory: no attempt takes
    more than twice the room. And no larger count needs less than the line through the last two says, which bounds the
    answer. Two small batches alone would not do: in training the gradients hide how steep the activations are.

    Args:
        peak_bytes: of a batch of this count; None when it ran out of memory.
    """
    low, low_peak = 0, 0  # fits
    high, high_peak = 1, peak_bytes(1)  # tried last
    while high_peak is not None and high_peak <= room_bytes:
        slope = max(1.0, (high_peak - low_peak) / (high - low)) if low else 1.0  # an intercept is no slope
        low, low_peak = high, high_peak
        bound = min(most, low + int((room_bytes - low_peak) / slope))
        if bound <= low:
            return low
        high = min(2 * low, bound)
        high_peak = peak_bytes(high)
    while high - low > max(1, low // 16):  # between what fits and what does not
        middle = (low + high) // 2
        peak = peak_bytes(middle)
        low, high = (middle, high) if peak is not None and peak <= room_bytes else (low, middle)
    return low


class GPUMemoryOptimizer:
    """Memory for training: less of it for a model, the largest batch, and what each batch size takes.

    Every ``input_shape`` here begins with the batch, as training guides write it: (32, 784). Its number of samples
    matters to ``profile_memory_usage`` alone.

    Args:
        device: "auto", "cuda:1", "mps", "cpu" or torch's.
        max_batch_size: never more, whatever would fit.
    """

    def __init__(
        self,
        device: str | torch.device = "auto",
        *,
        max_batch_size: int = MAX_BATCH_SIZE,
        optimizer_states: float = ADAM_STATES,
        books: Callable[[str], Books] = read_books,
    ) -> None:
        self._device, self._max, self._states, self._books = device, max_batch_size, optimizer_states, books

    def optimize_model_memory(self, model: _Model, input_shape: Sequence[int] | None = None) -> _Model:
        """Checkpoint activations and compute attention without its matrix, where the model can; gradients stay equal.

        Changes ``model`` and returns it. What was done is logged; with ``input_shape`` also what it saves for that
        batch, by a dry run, because it differs from model to model.
        """
        before = self._imagined(model, input_shape)
        done = [_efficient_attention(model), checkpoint_activations(model)]
        saved = {"before_bytes": before, "after_bytes": self._imagined(model, input_shape)} if input_shape else {}
        log_event(_log, logging.INFO, "model memory optimized", model=type(model).__name__, done=done, **saved)
        return model

    def optimize_batch_size(
        self, model: nn.Module, input_shape: Sequence[int], target_memory_gb: float | None = None
    ) -> int:
        """The largest batch for training with this memory; see ``get_optimal_batch_size``. Raises: as that."""
        return get_optimal_batch_size(
            model,
            _sample(input_shape),
            self._device,
            mode="training",
            target_memory_gb=target_memory_gb,
            max_batch_size=self._max,
            optimizer_states=self._states,
            books=self._books,
        )

    def profile_memory_usage(
        self, model: nn.Module, input_shape: Sequence[int], batch_sizes: Sequence[int] | None = None
    ) -> dict[int, dict[str, Any]]:
        """Batch size -> what a training step takes: weights, gradients, the optimizer's state and activations.

        Args:
            batch_sizes: by default the powers of two up to the batch of ``input_shape``, and that one.

        Returns: for each ``memory_used_bytes`` and ``memory_used_gb`` in all, ``batch_bytes`` above weights and state,
        ``fits`` on the device now, and ``source``: "measured" on a CUDA card where it ran, else "predicted".
        """
        sizes = sorted(set(batch_sizes or _powers(int(input_shape[0]))))
        if sizes[0] < 1:
            raise ValueError(f"batch sizes {sizes}: at least 1")
        probe = _Probe(model, _sample(input_shape), default_device.torch_device(self._device), "training", None)
        with gpu_memory_guard(device=str(probe.device), books=self._books), trial_run.untouched(model):
            fixed, room = probe.bring(None, self._states, self._books)
            return {size: self._row(probe, fixed, room, size) for size in sizes}

    def _row(self, probe: _Probe, fixed: int, room: int, size: int) -> dict[str, Any]:
        batch, source = probe.imagined(size), "predicted"
        if probe.runs and batch <= room and (measured := probe.peak_bytes(size)) is not None:
            batch, source = measured, "measured"
        used = fixed + batch
        return {
            "memory_used_bytes": used,
            "memory_used_gb": used / GIB,
            "batch_bytes": batch,
            "fits": batch <= room,
            "source": source,
        }

    def _imagined(self, model: nn.Module, input_shape: Sequence[int] | None) -> int | None:
        if not input_shape:
            return None
        with trial_run.untouched(model):
            model.train()
            make = trial_run.made_up(model, _sample(input_shape))
            return trial_run.imagined_peak_bytes(model, make, int(input_shape[0]), "training")


class _Probe:
    """Batches of one model on one device. Call it with the model held by ``trial.untouched``."""

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
        self.make = make_inputs or trial_run.made_up(model, sample_shape)

    @property
    def runs(self) -> bool:
        """Whether batches are run: on a card, unless a failed attempt could harm the host (WSL2)."""
        return self.device.type == "cuda" and not default_device.machine_facts().platform.wsl

    def bring(self, target_memory_gb: float | None, states: float, books: Callable[[str], Books]) -> tuple[int, int]:
        """Move the model to the device; the bytes of weights and optimizer state, and the room for a batch beside them.

        Raises: DoesNotFit when the weights alone are too large.
        """
        weights = trial_run.weights_bytes(self._model)
        state = int(states * sum(one.nbytes for one in self._model.parameters() if one.requires_grad))
        try:
            self._model.train(self._mode == "training").to(self.device)
        except RuntimeError as error:
            if classify(error).kind is not FaultKind.OUT_OF_MEMORY:
                raise
            raise DoesNotFit(
                f"the weights alone need {readable(weights)}, more than is free on {self.device}"
            ) from error
        now = books(str(self.device))
        room = headroom_bytes(now.stats, now.free_bytes, now.ceiling_bytes) - state  # the weights are there already
        if target_memory_gb is not None:
            room = min(room, int(target_memory_gb * GIB) - weights - state)
        return weights + state, room

    def peak_bytes(self, count: int) -> int | None:
        """What a batch needs above weights and state, with a margin; None when it ran out of memory."""
        if not self.runs:
            return self.imagined(count)
        try:
            table = measure(self._run, CudaMeter(str(self.device)), [_ONE], counts=[count], safety=SAFETY)
        except DoesNotFit:
            return None
        return table.peak_bytes(_ONE, count)

    def imagined(self, count: int) -> int:
        """The same without running it."""
        return int(trial_run.imagined_peak_bytes(self._model, self.make, count, self._mode) * PREDICTION_SAFETY)

    def _run(self, count: int, length: int) -> None:  # noqa: ARG002  # the shape is fixed
        run = trial_run.forward_backward if self._mode == "training" else trial_run.forward
        try:
            run(self._model, self.make(count))
        finally:  # gradients are part of this batch's peak, not of what was there before the next
            self._model.zero_grad(set_to_none=True)


def _efficient_attention(model: nn.Module) -> str:
    config = getattr(model, "config", None)
    switch = getattr(model, "set_attn_implementation", None)
    if switch is None or getattr(config, "_attn_implementation", None) != "eager":
        return "attention as it is"
    try:
        switch("sdpa")
    except (ValueError, ImportError):  # a model that transformers has only an eager attention for
        return "attention as it is: the model has no other"
    return "scaled-dot-product attention"


def _sample(input_shape: Sequence[int]) -> tuple[int, ...]:
    if len(input_shape) < 2 or input_shape[0] < 1:
        raise ValueError(f"input_shape {tuple(input_shape)}: the batch first, then one sample, for example (32, 784)")
    return tuple(input_shape[1:])


def _powers(most: int) -> list[int]:
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]
