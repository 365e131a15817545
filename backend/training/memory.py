"""The memory of a training step: estimated on fake tensors, which have shapes alone, and saved by recomputing.

Activation checkpointing recomputes blocks of a model in the backward pass instead of keeping their activations.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (  # until torch offers it publicly; stable since 2.0
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from backend.device.memory import trial_run

AddLora = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model trained in one way; bytes."""

    checkpointing: bool
    lora: bool  # added for the estimate, or in the model already
    weights_bytes: int  # parameters and buffers
    trained: int  # parameters that get gradients, and two moments of AdamW each
    trained_bytes: int  # of those parameters
    peaks: Mapping[int, int]  # items at once -> the most above the weights: inputs, activations and gradients

    def peak_bytes(self, count: int) -> int:
        """Of ``count`` items: as estimated, or on the line between two neighbours that were.

        The true curve is the highest of several straight lines (one a moment of the step), so it bends upwards only
        and the line between two of its points lies above it: never too little memory.

        Raises: ValueError for a count outside those that were estimated.
        """
        below = max((known for known in self.peaks if known <= count), default=None)
        above = min((known for known in self.peaks if known >= count), default=None)
        if below is None or above is None:
            raise ValueError(f"{count} items: foreseen were {min(self.peaks)} to {max(self.peaks)}")
        if below == above:
            return self.peaks[below]
        share = (count - below) / (above - below)
        return math.ceil(self.peaks[below] + share * (self.peaks[above] - self.peaks[below]))


def estimate_footprints(
    model: nn.Module,
    make_inputs: trial_run.MakeInputs,
    counts: Sequence[int],
    *,
    half: str | None,
    add_lora: AddLora | None = None,
) -> tuple[Footprint, ...]:
    """The model trained in full, with activation checkpointing, and both with LoRA where ``add_lora`` is given.

    Nothing is computed and no memory taken: about a second a count for six layers. A way that cannot be estimated is
    left out: of a model whose control flow depends on values, or without blocks to checkpoint.

    Args:
        make_inputs: a batch of so many of the largest items.
        counts: of items at once; between two of them a straight line is never too low, see ``Footprint.peak_bytes``.
        half: "bf16" or "fp16" under autocast, None for float32.
        add_lora: as ``lora.add_lora``; it may change the model that it gets.
    """
    ways = [(None, False), (None, True), *([(add_lora, False), (add_lora, True)] if add_lora else [])]
    batches = {count: make_inputs(count) for count in sorted(set(counts))}  # real ones: collation may read values
    estimates = [_estimate(model, batches, half, lora, checkpointing=recompute) for lora, recompute in ways]
    return tuple(footprint for footprint in estimates if footprint)


def longest_example_inputs(
    model: nn.Module, collate: Callable[[Sequence[int]], Mapping[str, Any]], longest: int
) -> trial_run.MakeInputs:
    """Makes batches of the longest example, so many times, as the task collates it.

    Of the batch the model gets what its ``forward`` names, less labels; else the first tensor as floats, for images are
    collated as bytes. Raises: ValueError where the batch has neither.
    """
    inner = getattr(model, "get_base_model", lambda: model)()  # peft's wrapper takes any argument
    accepted = inspect.signature(inner.forward).parameters

    def make(count: int) -> Any:
        batch = collate([longest] * count)
        if inputs := {name: value for name, value in batch.items() if name in accepted and name != "labels"}:
            return inputs
        first = next((value for value in batch.values() if isinstance(value, Tensor) and value.ndim > 1), None)
        if first is None:
            raise ValueError(f"a batch of {', '.join(batch)} has nothing for {type(model).__name__}")
        return first.float()

    return make


def _estimate(
    model: nn.Module, batches: Mapping[int, Any], half: str | None, lora: AddLora | None, *, checkpointing: bool
) -> Footprint | None:
    not_traceable = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)  # the memory that it takes inside would not be seen
    try:
        skeleton = _copied(model, "meta")  # peft cannot work among fake tensors
        with torch.random.fork_rng(devices=[]):  # peft draws real random matrices
            skeleton = lora(skeleton) if lora else skeleton
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = _copied(skeleton, "cpu")
            if checkpointing and checkpoint_activations(fake).startswith("no "):
                return None
            return _measure(fake.train(), batches, half, checkpointing=checkpointing, lora=lora is not None)
    except not_traceable:
        return None
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fast_path)


def _copied(model: nn.Module, device: str) -> nn.Module:
    """The same modules over empty tensors of the same shapes; float32 for half precision, as in the loop."""
    memo: dict[int, Any] = {}
    for weight in model.parameters():
        memo[id(weight)] = nn.Parameter(_empty(weight, device), requires_grad=weight.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = _empty(buffer, device)
    return copy.deepcopy(model, memo)


def _empty(tensor: Tensor, device: str) -> Tensor:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return torch.empty_like(tensor, device=device, dtype=torch.float32 if half else tensor.dtype)


def _measure(
    model: nn.Module, batches: Mapping[int, Any], half: str | None, *, checkpointing: bool, lora: bool
) -> Footprint:
    weights = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}.values()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return Footprint(
        checkpointing=checkpointing,
        lora=lora or any(hasattr(module, "peft_config") for module in model.modules()),
        weights_bytes=sum(tensor.untyped_storage().nbytes() for tensor in weights),
        trained=sum(weight.numel() for weight in trained),
        trained_bytes=sum(weight.nbytes for weight in trained),
        peaks={count: _peak_bytes(model, list(weights), batch, half) for count, batch in batches.items()},
    )


def _peak_bytes(model: nn.Module, weights: list[Tensor], batch: Any, half: str | None) -> int:
    def run(*args: Any, **kwargs: Any) -> Any:  # either half is as wide as the other, and a CPU casts as a card does
        with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
            return model(*args, **kwargs)

    def step() -> None:
        for weight in model.parameters():  # gradients of the micro-batches before
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        trial_run.forward_backward(run, tree_map_only(Tensor, partial(torch.empty_like, device="cpu"), batch))

    try:
        with torch.random.fork_rng(devices=[]):
            return trial_run.peak_bytes(step, weights)
    finally:
        model.zero_grad(set_to_none=True)


_BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001  # torch's only name for all its batch norms


def checkpoint_activations(model: nn.Module) -> str:
    """Keep only the inputs of the model's repeated blocks for the backward pass; returns what was done, as a sentence.

    Uses the model's own method where it has one (transformers), else the members of the outermost list or sequence that
    holds at least two blocks of one kind. Gradients, random numbers (dropout) and the statistics of batch norm are as
    without it. Works in training only: evaluation and inference run as before. Calling it twice changes nothing.
    """
    if getattr(model, "supports_gradient_checkpointing", False) and _enable_own(model):
        return "activation checkpointing, the model's own"
    blocks = [block for block in _blocks(model) if "forward" not in vars(block)]  # those have a hook, or ours already
    for block in blocks:
        block.forward = partial(_recomputing_forward, block)
    return f"activation checkpointing of {len(blocks)} blocks" if blocks else "no blocks to checkpoint"


def _enable_own(model: nn.Module) -> bool:
    """Call transformers' method, which has another name since version 5."""
    for name in ("activation", "gradient"):
        if enable := getattr(model, f"{name}_checkpointing_enable", None):
            enable(**{f"{name}_checkpointing_kwargs": {"use_reentrant": False}})
            return True
    return False


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        composite = [child for child in module if any(child.children()) and any(True for _ in child.parameters())]
        kinds = Counter(type(child) for child in composite)
        if kinds and max(kinds.values()) >= 2:
            yield from composite
            return
    for child in module.children():
        yield from _blocks(child)


def _recomputing_forward(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    run = partial(type(block).forward, block)
    if not (block.training and torch.is_grad_enabled()):
        return run(*args, **kwargs)
    # non-reentrant: inputs without gradients and keyword arguments are allowed; torch recommends it
    return checkpoint(run, *args, use_reentrant=False, context_fn=partial(_contexts, block), **kwargs)


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Around the forward pass, and around its recomputation."""
    return nullcontext(), _frozen_statistics(block)


@contextmanager
def _frozen_statistics(block: nn.Module) -> Iterator[None]:
    """Give the recomputation copies of the running statistics, so that a batch is counted in them once."""
    norms = [module for module in block.modules() if isinstance(module, _BatchNorm)]
    originals = [(norm, name, buffer) for norm in norms for name, buffer in norm.named_buffers(recurse=False)]
    for norm, name, buffer in originals:
        setattr(norm, name, buffer.clone())
    try:
        yield
    finally:
        for norm, name, buffer in originals:
            setattr(norm, name, buffer)
