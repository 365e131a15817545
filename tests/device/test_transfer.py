"""Moving tensors and containers to a device, and preparing a model for inference."""

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

from backend.device import default_device, transfer
from backend.device.records import DeviceType, GPUInfo, MachineFacts
from backend.device.transfer import move_to_device, optimize_model_for_inference, torch_dtype

META = torch.device("meta")  # a device that every machine has, and that is not the CPU
CPU = MachineFacts(2, "a processor", (), 2**33, why_no_gpu="no NVIDIA driver answers")


@pytest.fixture(autouse=True)
def _a_machine_without_gpu(device: str) -> Iterator[None]:
    """A CPU machine, or the real one with ``--device``."""
    if device == "cpu":
        default_device.configure(CPU)
    yield
    default_device.reset()


class Pair(NamedTuple):
    left: torch.Tensor
    right: str


Plain = namedtuple("Plain", "one two")  # noqa: PYI024  # the untyped kind is moved too


@dataclass
class Batch:
    ids: torch.Tensor
    name: str = "a name"
    length: int = field(init=False, default=3)


@dataclass(frozen=True, slots=True)
class Frozen:
    ids: torch.Tensor
    more: dict[str, torch.Tensor]


def tensors(obj: Any) -> list[torch.Tensor]:
    """Every tensor in ``obj``, collected without the code under test."""
    if isinstance(obj, torch.Tensor):
        return [obj]
    if isinstance(obj, nn.Module):
        return list(obj.parameters())
    if isinstance(obj, PackedSequence):
        return [obj.data]
    if hasattr(obj, "items"):
        return [tensor for value in obj.values() for tensor in tensors(value)]
    if isinstance(obj, list | tuple):
        return [tensor for value in obj for tensor in tensors(value)]
    names = getattr(obj, "__dataclass_fields__", ())
    return [tensor for name in names for tensor in tensors(getattr(obj, name))]


MADE: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.ones(2),
    "module": lambda: nn.Linear(2, 2),
    "dict": lambda: {"a": torch.ones(1), "b": [torch.ones(1), {"c": torch.ones(1)}]},
    "ordered-dict": lambda: OrderedDict(z=torch.ones(1), a=torch.ones(1)),
    "list": lambda: [torch.ones(1), "text"],
    "tuple": lambda: (torch.ones(1), None, 3),
    "typed-named-tuple": lambda: Pair(torch.ones(1), "kept"),
    "plain-named-tuple": lambda: Plain(torch.ones(1), [torch.ones(2)]),
    "dataclass": lambda: Batch(torch.ones(1)),
    "frozen-dataclass": lambda: Frozen(torch.ones(1), {"a": torch.ones(2)}),
    "batch-encoding": lambda: BatchEncoding({"input_ids": torch.ones(1, 2), "texts": ["one"]}),
    "model-output": lambda: BaseModelOutput(last_hidden_state=torch.ones(1), hidden_states=(torch.ones(1),)),
    "packed-sequence": lambda: pack_sequence([torch.ones(3), torch.ones(2)]),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_every_tensor_is_moved(make: Callable[[], Any]):
    """The container keeps its type."""
    obj = make()
    moved = move_to_device(obj, META)

    assert type(obj) is type(moved)
    assert tensors(moved)
    assert {META} == {tensor.device for tensor in tensors(moved)}


@pytest.mark.parametrize("make", [make for name, make in MADE.items() if name != "module"])
def test_the_callers_container_is_not_changed(make: Callable[[], Any]):
    """Containers are copied; only modules move in place, as in torch."""
    obj = make()
    move_to_device(obj, META)

    assert {torch.device("cpu")} == {tensor.device for tensor in tensors(obj)}


@pytest.mark.parametrize(
    "obj", ["text", None, torch.Size([2]), {"a": 1}, [1, [2]], range(3), torch.Tensor, Batch], ids=repr
)
def test_an_object_without_tensors_is_returned_itself(obj: object):
    """Not even copied."""
    assert obj is move_to_device(obj, META)


def test_a_container_on_the_device_is_returned_itself():
    batch = {"ids": torch.ones(2), "pair": Pair(torch.ones(1), "kept")}

    assert batch is move_to_device(batch, "cpu")


def test_everything_else_in_a_container_is_kept():
    """Order, default factories, names and other values."""
    counted = defaultdict(list, {"a": [torch.ones(1)]})
    moved = move_to_device(counted, META)
    ordered = move_to_device(MADE["ordered-dict"](), META)
    batch = move_to_device(Batch(torch.ones(1)), META)

    assert [] == moved["missing"]
    assert ["z", "a"] == list(ordered)
    assert ("a name", 3) == (batch.name, batch.length)
    assert ["one"] == move_to_device(MADE["batch-encoding"](), META)["texts"]


def test_a_shared_tensor_stays_shared():
    shared = torch.ones(2)
    moved = move_to_device({"a": shared, "b": [shared]}, META)

    assert moved["a"] is moved["b"][0]


def test_auto_is_the_device_of_the_process(device: str):
    """ "auto" is the default; values survive a round trip."""
    values = torch.arange(6.0).reshape(2, 3)
    moved = move_to_device({"x": values}, device)
    back = move_to_device(moved, "cpu", non_blocking=True)

    assert torch.device(device).type == moved["x"].device.type
    assert torch.equal(values, back["x"])
    assert default_device.torch_device().type == move_to_device(values).device.type


class Convolutional(nn.Module):
    """A model with layers that evaluation mode changes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3)))


def test_inference_gives_the_same_answers(device: str):
    """The outputs equal those in evaluation mode, without gradients."""
    torch.manual_seed(0)
    model, images = Convolutional(), torch.randn(4, 3, 8, 8)
    expected = model.eval()(images).detach()

    optimized = optimize_model_for_inference(model.train(), device)
    outputs = optimized(images.to(device, dtype=next(optimized.parameters()).dtype))

    assert optimized is model
    assert not optimized.training
    assert not outputs.requires_grad
    # bf16 keeps 8 bits: two layers of values around 1 differ in the second decimal
    assert torch.allclose(expected, outputs.float().cpu(), atol=1e-5 if device == "cpu" else 2e-2)


def test_inference_dtype_as_requested():
    """By our name or torch's."""
    half = optimize_model_for_inference(nn.Linear(4, 4), "cpu", "bfloat16")
    whole = optimize_model_for_inference(nn.Linear(4, 4).double(), "cpu", torch.float32)

    assert (torch.bfloat16, torch.float32) == (half.weight.dtype, whole.weight.dtype)


def test_inference_uses_channels_last():
    model = optimize_model_for_inference(Convolutional(), "cpu")

    assert model.body[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_inference_does_not_cast_a_quantized_model():
    model = nn.Linear(4, 4)
    model.is_quantized = True

    assert torch.float32 == optimize_model_for_inference(model, "cpu", "bf16").weight.dtype


def test_an_unknown_dtype():
    """The message lists the known ones."""
    with pytest.raises(ValueError, match=r"'int3'.*bf16"):
        torch_dtype("int3")


CARD = GPUInfo(0, "a card", "GPU-1", 2**36, (9, 0), bf16=True)
OLD_CARD = GPUInfo(0, "Tesla T4", "GPU-2", 2**34, (7, 5), bf16=False)


class Configured(nn.Linear):
    """A model with a transformers config."""

    def __init__(self, model_type: str, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(1, 1, dtype=dtype)
        self.config = type("Config", (), {"model_type": model_type, "dtype": dtype})()


@pytest.mark.parametrize(
    ("card", "model", "expected"),
    [
        pytest.param(CARD, nn.Linear(1, 1), torch.bfloat16, id="the-best-of-the-card"),
        pytest.param(OLD_CARD, nn.Linear(1, 1), torch.float16, id="no-bf16-by-emulation"),
        pytest.param(OLD_CARD, Configured("t5"), torch.float32, id="a-model-that-overflows-fp16"),
        pytest.param(OLD_CARD, Configured("bert", torch.bfloat16), torch.float32, id="bf16-weights-without-bf16"),
        pytest.param(CARD, Configured("bert", torch.float16), torch.float16, id="fp16-weights-stay"),
    ],
)
def test_inference_dtype_on_a_card(card: GPUInfo, model: nn.Module, expected: torch.dtype):
    """The best dtype of the card in which the model does not overflow."""
    default_device.configure(MachineFacts(2, "a processor", (), 2**33, (card,), DeviceType.CUDA))

    assert expected == transfer.inference_dtype(model, torch.device("cuda:0"))[0]
