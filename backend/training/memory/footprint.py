"""What a training step of a model takes, foreseen: shapes pass through a copy of it that has no numbers."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (  # until torch offers it publicly; stable since 2.0
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

from backend.device.memory import trial_run
from backend.device.memory.dry_run import StoragePeak
from backend.training.memory.activation_checkpointing import checkpoint_activations

AddLora = Callable[[nn.Module], nn.Module]
Fed = trial_run.MakeInputs  # a batch of so many of the largest items


@dataclass(frozen=True, slots=True)
class Footprint:
    """A model trained in one way; bytes."""

    checkpointing: bool
    lora: bool  # added here or there already
    weights_bytes: int  # parameters and buffers
    trained: int  # parameters that get gradients, and two moments of AdamW each
    trained_bytes: int  # theirs
    peaks: Mapping[int, int]  # items at once -> the most above the weights: inputs, activations and gradients

    def peak_bytes(self, count: int) -> int:
        """Of ``count`` items: as foreseen, or on the line between two neighbours that were.

        The true curve is the highest of several straight lines (one a moment of the step), so it bends upwards only
        and the line between two of its points lies above it: never too little memory.

        Raises: ValueError for a count outside those that were foreseen.
        """
        below = max((one for one in self.peaks if one <= count), default=None)
        above = min((one for one in self.peaks if one >= count), default=None)
        if below is None or above is None:
            raise ValueError(f"{count} items: foreseen were {min(self.peaks)} to {max(self.peaks)}")
        if below == above:
            return self.peaks[below]
        share = (count - below) / (above - below)
        return math.ceil(self.peaks[below] + share * (self.peaks[above] - self.peaks[below]))


def footprints(
    model: nn.Module, fed: Fed, counts: Sequence[int], *, half: str | None, add_lora: AddLora | None = None
) -> tuple[Footprint, ...]:
    """The model trained in full, with activations computed again, and both with LoRA where ``add_lora`` is given.

    Nothing is computed and no memory taken: about a second a count for six layers. A way that cannot be foreseen is
    left out: of a model whose course depends on the numbers themselves, or without blocks to compute again.

    Args:
        counts: of items at once; between two of them a straight line is never too low, see ``Footprint.peak_bytes``.
        half: "bf16" or "fp16" under autocast, None for float32.
        add_lora: as ``lora.add_lora``; it may change what it is given.
    """
    ways = [(None, False), (None, True), *([(add_lora, False), (add_lora, True)] if add_lora else [])]
    batches = {count: fed(count) for count in sorted(set(counts))}  # in earnest: collation may look at the numbers
    found = [_footprint(model, batches, half, lora, checkpointing=again) for lora, again in ways]
    return tuple(one for one in found if one)


def fed_by(model: nn.Module, collate: Callable[[Sequence[int]], Mapping[str, Any]], longest: int) -> Fed:
    """Feeds the longest example, as often as asked, in the way the task collates it.

    Of the batch the model gets what its ``forward`` names, less labels; else the first tensor as numbers, which is how
    images travel. Raises: ValueError where the batch has neither.
    """
    inner = getattr(model, "get_base_model", lambda: model)()  # peft's wrapper takes anything
    takes = inspect.signature(inner.forward).parameters

    def make(count: int) -> Any:
        batch = collate([longest] * count)
        if known := {name: value for name, value in batch.items() if name in takes and name != "labels"}:
            return known
        first = next((one for one in batch.values() if isinstance(one, Tensor) and one.ndim > 1), None)
        if first is None:
            raise ValueError(f"a batch of {', '.join(batch)} has nothing for {type(model).__name__}")
        return first.float()

    return make


def made_up(model: nn.Module, sample_shape: Sequence[int]) -> Fed:
    """Feeds made-up items of one shape, without the batch: (tokens,) or (channels, height, width)."""
    return trial_run.made_up(model, sample_shape)


def _footprint(
    model: nn.Module, batches: Mapping[int, Any], half: str | None, lora: AddLora | None, *, checkpointing: bool
) -> Footprint | None:
    unforeseen = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)  # what it takes inside would not be seen
    try:
        bones = _copied(model, "meta")  # peft cannot work among fake tensors
        with torch.random.fork_rng(devices=[]):  # it draws its matrices in earnest
            bones = lora(bones) if lora else bones
        with FakeTensorMode(allow_non_fake_inputs=True):
            shadow = _copied(bones, "cpu")
            if checkpointing and checkpoint_activations(shadow).startswith("no "):
                return None
            return _measured(shadow.train(), batches, half, checkpointing=checkpointing, lora=lora is not None)
    except unforeseen:
        return None
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fused)


def _copied(model: nn.Module, device: str) -> nn.Module:
    """The same modules over empty tensors of the same shapes; ours to change. Half precision becomes float32, as the
    loop has it.
    """  # noqa: D205  # one thought
    memo: dict[int, Any] = {}
    for one in model.parameters():
        memo[id(one)] = nn.Parameter(_empty(one, device), requires_grad=one.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = _empty(buffer, device)
    return copy.deepcopy(model, memo)


def _shape_of(batch: Any) -> Any:
    """The batch over tensors that have no numbers."""
    if isinstance(batch, Tensor):
        return torch.empty_like(batch, device="cpu")
    if isinstance(batch, Mapping):
        return {name: _shape_of(one) for name, one in batch.items()}
    return tuple(map(_shape_of, batch)) if isinstance(batch, tuple) else batch


def _empty(one: Tensor, device: str) -> Tensor:
    half = one.dtype in (torch.float16, torch.bfloat16)
    return torch.empty_like(one, device=device, dtype=torch.float32 if half else one.dtype)


def _measured(
    model: nn.Module, batches: Mapping[int, Any], half: str | None, *, checkpointing: bool, lora: bool
) -> Footprint:
    stays = {id(one): one for one in [*model.parameters(), *model.buffers()]}.values()
    trained = [one for one in model.parameters() if one.requires_grad]
    return Footprint(
        checkpointing=checkpointing,
        lora=lora or any(hasattr(one, "peft_config") for one in model.modules()),
        weights_bytes=sum(one.untyped_storage().nbytes() for one in stays),
        trained=sum(one.numel() for one in trained),
        trained_bytes=sum(one.nbytes for one in trained),
        peaks={count: _peak_bytes(model, list(stays), batch, half) for count, batch in batches.items()},
    )


def _peak_bytes(model: nn.Module, stays: list[Tensor], batch: Any, half: str | None) -> int:
    tracker, own = StoragePeak(), [one.untyped_storage() for one in stays]  # held, so that their ids stay theirs
    tracker.ignore(own)

    def run(*args: Any, **kwargs: Any) -> Any:  # either half is as wide as the other, and a CPU casts as a card does
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            return model(*args, **kwargs)

    try:
        with torch.random.fork_rng(devices=[]), tracker:
            for one in model.parameters():  # those of the micro-batches before
                one.grad = torch.zeros_like(one) if one.requires_grad else None
            trial_run.forward_backward(run, _shape_of(batch))
            return tracker.peak_bytes
    finally:
        model.zero_grad(set_to_none=True)
