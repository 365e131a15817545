"""Runs models on synthetic inputs, with real or fake tensors, to profile them or to predict their memory.

Fake tensors have shapes and storages but no bytes, so a 7 GB model runs on a laptop in a second. The workspaces of
kernels and the allocator's rounding are not seen: measured peaks are a little higher. Imports torch at once.
"""

from __future__ import annotations

import inspect
import weakref
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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

Inputs = Mapping[str, Any] | tuple[Any, ...]  # of model(**inputs) or model(*inputs)
Mode = Literal["inference", "training"]  # a forward pass, or a forward and a backward pass
MakeInputs = Callable[[int], Any]  # count of samples -> inputs of the model; a mapping becomes keyword arguments


def synthetic_inputs(model: nn.Module, sample_shape: Sequence[int]) -> MakeInputs:
    """A function from a count of samples to a synthetic batch on the model's device.

    Token ids (with an attention mask of ones where the model takes ``input_ids``) for a model that starts with an
    embedding, else normal numbers in the model's dtype. Time and memory depend on shapes only, not on the values.

    Shapes: ``sample_shape`` is one sample, without the batch; a token model's is ``(tokens,)``.
    """
    shape = tuple(int(size) for size in sample_shape)
    if any(size < 1 for size in shape):
        raise ValueError(f"input shape {shape}: every dimension must be at least 1")
    vocabulary_size = _vocabulary_size(model)

    def make(count: int) -> Any:
        device, dtype = device_and_dtype(model)
        if vocabulary_size is None:
            return torch.randn(count, *shape, device=device, dtype=dtype)
        ids = torch.randint(vocabulary_size, (count, *shape), device=device)
        if "input_ids" not in inspect.signature(model.forward).parameters:
            return ids
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def takes_tokens(model: nn.Module) -> bool:
    """Whether the model's input is token ids rather than numbers."""
    return _vocabulary_size(model) is not None


def device_and_dtype(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and dtype of the first floating-point parameter; the CPU and torch's default for a model without one."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return torch.device("cpu"), torch.get_default_dtype()


def call_model(model: Callable[..., Any], inputs: Any) -> Any:
    """Call the model with the inputs of a ``MakeInputs``."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def forward(model: Callable[..., Any], inputs: Any) -> None:
    """One forward pass as in serving."""
    with torch.inference_mode():
        call_model(model, inputs)


def forward_backward(model: Callable[..., Any], inputs: Any) -> None:
    """One forward and backward pass; the loss is the sum of all floating-point outputs."""
    with torch.enable_grad():
        outputs = [output for output in tensors_in(call_model(model, inputs)) if output.requires_grad]
        if not outputs:
            raise ValueError("the model has no output that gradients flow from; nothing to train")
        torch.stack([output.float().sum() for output in outputs]).sum().backward()  # type: ignore[no-untyped-call]


@contextmanager
def restored_state(model: nn.Module) -> Iterator[None]:
    """Restore ``model`` when the block ends, also after an error.

    Restored are the device, the mode of every submodule, gradients, buffers (the statistics of batch norm) and torch's
    random state. Weights are not: nothing here changes them.
    """
    devices = {parameter.device for parameter in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    grads = {parameter: parameter.grad for parameter in model.parameters()}
    buffers = [  # moving a model replaces its buffers, so each is found again by module and name
        (module, name, buffer, buffer.detach().clone())
        for module in modes
        for name, buffer in module.named_buffers(recurse=False)
    ]
    for parameter in grads:
        parameter.grad = None
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # device_count would wake an idle card
    cuda = list(range(torch.cuda.device_count())) if initialized else []
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        for parameter in grads:
            parameter.grad = None
        if len(devices) == 1:
            model.to(devices.pop())
        for parameter, grad in grads.items():
            parameter.grad = grad
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for module, name, buffer, saved in buffers:
                setattr(module, name, buffer.copy_(saved))


class StoragePeak(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own lacks annotations
    """Counts the bytes of every storage that an operation creates, until the storage is freed.

    Agrees to the byte with torch.distributed._tools.MemTracker, which is private and imports torch.distributed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.live_bytes = self.peak_bytes = 0
        self._known = set[int]()  # ids of live storages: torch keeps one Python object per storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count the storages of its results."""
        results = func(*args, **(kwargs or {}))
        for tensor in tree_iter(results):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return results

    def ignore(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """Leave out storages that exist already, such as weights. The caller keeps them alive: they are known by id."""
        self._known.update(map(id, storages))

    def _count(self, storage: torch.UntypedStorage) -> None:
        if id(storage) in self._known:
            return
        self._known.add(id(storage))
        self.live_bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        weakref.finalize(storage, self._free, id(storage), storage.nbytes()).atexit = False

    def _free(self, identity: int, count_bytes: int) -> None:
        self._known.discard(identity)
        self.live_bytes -= count_bytes


def dry_run(
    make_model: Callable[[], nn.Module], make_inputs: Callable[[int, int], Inputs], shapes: list[tuple[int, int]]
) -> tuple[int, dict[tuple[int, int], int]]:
    """Bytes of the weights (and buffers), and the peak above weights and inputs of a forward pass per (length, count).

    Args:
        make_model: builds the model on the CPU from its configuration; loads nothing.
        make_inputs: (count, length) -> the inputs of the model's forward.
    """
    run = torch.no_grad()(call_model)  # not inference_mode: it would hide what attention allocates inside
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = make_model().eval()
        tensors = [*model.parameters(), *model.buffers()]
        storages = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in tensors)}
        peaks = {
            (length, count): peak_bytes(partial(run, model, make_inputs(count, length)), tensors)
            for length, count in shapes
        }
    return sum(storage.nbytes() for storage in storages.values()), peaks  # tied weights share one storage


def predict_peak_bytes(model: nn.Module, make: MakeInputs, count: int, mode: Mode) -> int:
    """The peak of a batch above the weights, inputs and gradients included, predicted with fake tensors.

    A large batch costs no memory and little time. A model that depends on values cannot run on fake tensors: then a
    real batch of ``count`` samples is computed.
    """
    # Neither inference_mode nor torch's fused encoder layer: they would hide what is allocated inside.
    run = forward_backward if mode == "training" else torch.no_grad()(call_model)
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
            weights: dict[str, Tensor] = {name: fake.from_tensor(tensor) for name, tensor in named}
            fake_model = partial(_functional, model, weights)
            return peak_bytes(lambda: run(fake_model, make(count)), weights.values())
    except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException):
        return peak_bytes(lambda: run(model, make(count)), [*model.parameters(), *model.buffers()])
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fused)


def weights_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers; shared tensors count once."""
    return sum({id(tensor): tensor.nbytes for tensor in [*model.parameters(), *model.buffers()]}.values())


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Every tensor in mappings, lists and tuples, however nested."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from tensors_in(value)


def _functional(model: nn.Module, weights: dict[str, Tensor], /, *args: Any, **named: Any) -> Any:
    return functional_call(model, weights, args, named)


def peak_bytes(step: Callable[[], object], weights: Iterable[Tensor]) -> int:
    tracker, storages = StoragePeak(), [tensor.untyped_storage() for tensor in weights]
    tracker.ignore(storages)
    with tracker:
        step()
        return int(tracker.peak_bytes)


def _vocabulary_size(model: nn.Module) -> int | None:
    """How many token ids the model knows; None where its input is not token ids."""
    config = getattr(model, "config", None)
    size = getattr(config, "vocab_size", None)
    if isinstance(size, int) and "input_ids" in inspect.signature(model.forward).parameters:
        return size
    first = next((module for module in model.modules() if not list(module.children())), None)
    return first.num_embeddings if isinstance(first, nn.Embedding | nn.EmbeddingBag) else None
