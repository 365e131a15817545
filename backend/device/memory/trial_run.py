"""A model run on made-up inputs without leaving a trace: what profiles and memory probes share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (  # until torch offers it publicly; stable since 2.0
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.func import functional_call

from backend.device.memory.dry_run import StoragePeak

Mode = Literal["inference", "training"]  # a forward pass, or a forward and a backward pass
MakeInputs = Callable[[int], Any]  # count of samples -> what the model is called with; a mapping is spread


def made_up(model: nn.Module, sample_shape: Sequence[int]) -> MakeInputs:
    """Makes inputs for ``model``: a function from a count of samples to a batch on the model's device.

    Token ids (with a mask of ones where the model takes ``input_ids``) for a model that begins with an embedding,
    else normal numbers in the model's dtype. The values do not matter: time and memory depend on shapes.

    Shapes: ``sample_shape`` is one sample, without the batch; a token model's is ``(tokens,)``.
    """
    shape = tuple(int(one) for one in sample_shape)
    if any(one < 1 for one in shape):
        raise ValueError(f"input shape {shape}: every dimension must be at least 1")
    words = _vocabulary(model)

    def make(count: int) -> Any:
        device, dtype = where(model)
        if words is None:
            return torch.randn(count, *shape, device=device, dtype=dtype)
        ids = torch.randint(words, (count, *shape), device=device)
        if "input_ids" not in inspect.signature(model.forward).parameters:
            return ids
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def takes_tokens(model: nn.Module) -> bool:
    """Whether the model is fed token ids rather than numbers."""
    return _vocabulary(model) is not None


def where(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and floating dtype of the first parameter; the CPU and torch's default for a model without one."""
    for one in model.parameters():
        if one.is_floating_point():
            return one.device, one.dtype
    return torch.device("cpu"), torch.get_default_dtype()


def call(model: Callable[..., Any], inputs: Any) -> Any:
    """The model's output for what a ``MakeInputs`` made."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def forward(model: Callable[..., Any], inputs: Any) -> None:
    """One pass as in serving."""
    with torch.inference_mode():
        call(model, inputs)


def forward_backward(model: Callable[..., Any], inputs: Any) -> None:
    """One pass as in training: forward, a sum of all floating outputs as the loss, and its gradients."""
    with torch.enable_grad():
        outputs = [one for one in tensors_in(call(model, inputs)) if one.requires_grad]
        if not outputs:
            raise ValueError("the model has no output that gradients flow from; nothing to train")
        torch.stack([one.float().sum() for one in outputs]).sum().backward()  # type: ignore[no-untyped-call]


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Leaves ``model`` as it was found, whatever happens inside.

    Put back: the device, the mode of every submodule, gradients, buffers (the statistics of batch norm) and torch's
    random numbers. Not put back: weights, which nothing here changes.
    """
    homes = {one.device for one in model.parameters()}
    modes = {one: one.training for one in model.modules()}
    grads = {one: one.grad for one in model.parameters()}
    buffers = [  # a move replaces buffers, so each is known by its place
        (module, name, buffer, buffer.detach().clone())
        for module in modes
        for name, buffer in module.named_buffers(recurse=False)
    ]
    for one in grads:
        one.grad = None
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # asking a card that sleeps would wake it
    cuda = list(range(torch.cuda.device_count())) if started else []
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        for parameter in grads:
            parameter.grad = None
        if len(homes) == 1:
            model.to(homes.pop())
        for parameter, grad in grads.items():
            parameter.grad = grad
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for module, name, buffer, saved in buffers:
                setattr(module, name, buffer.copy_(saved))


def imagined_peak_bytes(model: nn.Module, make: MakeInputs, count: int, mode: Mode) -> int:
    """The most memory that a batch would take above the weights, inputs and gradients included; nothing is computed.

    Shapes alone pass through the model (fake tensors), so a large batch costs no memory and little time. A model that
    looks at values is run in earnest instead: then ``count`` samples really are computed.
    """
    # Neither inference_mode nor torch's fused encoder layer: what they take inside would not be seen.
    run = forward_backward if mode == "training" else torch.no_grad()(call)
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
            weights: dict[str, Tensor] = {name: fake.from_tensor(one) for name, one in named}
            stand_in = partial(_functional, model, weights)
            return _peak_bytes(run, stand_in, weights.values(), make, count)
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException):
        return _peak_bytes(run, model, [*model.parameters(), *model.buffers()], make, count)
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fused)


def _functional(model: nn.Module, weights: dict[str, Tensor], /, *args: Any, **named: Any) -> Any:
    return functional_call(model, weights, args, named)


def _peak_bytes(
    run: Callable[[Callable[..., Any], Any], object],
    model: Callable[..., Any],
    weights: Iterable[Tensor],
    make: MakeInputs,
    count: int,
) -> int:
    tracker, own = StoragePeak(), [one.untyped_storage() for one in weights]  # held, so that their ids stay theirs
    tracker.ignore(own)
    with tracker:
        run(model, make(count))
        return int(tracker.peak_bytes)


def weights_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers; what is shared counts once."""
    return sum({id(one): one.nbytes for one in [*model.parameters(), *model.buffers()]}.values())


def _vocabulary(model: nn.Module) -> int | None:
    """How many token ids the model knows; None where it is not fed with ids."""
    config = getattr(model, "config", None)
    size = getattr(config, "vocab_size", None)
    if isinstance(size, int) and "input_ids" in inspect.signature(model.forward).parameters:
        return size
    first = next((one for one in model.modules() if not list(one.children())), None)
    return first.num_embeddings if isinstance(first, nn.Embedding | nn.EmbeddingBag) else None


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Every tensor in mappings, lists and tuples, however nested."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from tensors_in(one)
    elif isinstance(output, list | tuple):
        for one in output:
            yield from tensors_in(one)
