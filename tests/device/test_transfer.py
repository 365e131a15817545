"""Moving whatever holds tensors, and making a model ready to serve."""

from __future__ import annotations

import logging
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

from backend.device import process_state, transfer
from backend.device.facts.machine import DeviceType, GPUInfo, MachineFacts
from backend.device.transfer import move_to_device, optimize_model_for_inference, torch_dtype
from backend.errors import DeviceUnavailable

META = torch.device("meta")  # a device that every machine has, and that is not the CPU
CPU = MachineFacts(2, "a processor", (), 2**33, why_no_gpu="no NVIDIA driver answers")


@pytest.fixture(autouse=True)
def _a_machine_without_gpu(device: str) -> Iterator[None]:
    """What "auto" means here; the real machine where a real device was asked for."""
    if device == "cpu":
        process_state.adopt(CPU)
    yield
    process_state.forget()


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
    """Every tensor in ``obj``, by our own walk."""
    if isinstance(obj, torch.Tensor):
        return [obj]
    if isinstance(obj, nn.Module):
        return list(obj.parameters())
    if isinstance(obj, PackedSequence):
        return [obj.data]
    if hasattr(obj, "items"):
        return [found for one in obj.values() for found in tensors(one)]
    if isinstance(obj, list | tuple):
        return [found for one in obj for found in tensors(one)]
    names = getattr(obj, "__dataclass_fields__", ())
    return [found for name in names for found in tensors(getattr(obj, name))]


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
def test_everything_arrives(make: Callable[[], Any]):
    """Every tensor inside is on the device, in a container of the same type."""
    obj = make()
    moved = move_to_device(obj, META)

    assert type(obj) is type(moved)
    assert tensors(moved)
    assert {META} == {one.device for one in tensors(moved)}


@pytest.mark.parametrize("make", [make for name, make in MADE.items() if name != "module"])
def test_the_callers_own_is_not_changed(make: Callable[[], Any]):
    """Containers are copied; only modules move in place, as everywhere in torch."""
    obj = make()
    move_to_device(obj, META)

    assert {torch.device("cpu")} == {one.device for one in tensors(obj)}


@pytest.mark.parametrize(
    "obj",
    ["text", 3, None, torch.float32, torch.Size([2]), {"a": 1}, [1, [2]], range(3), {1, 2}, torch.Tensor, Batch],
    ids=repr,
)
def test_what_holds_no_tensor_is_returned_itself(obj: object):
    """Not even copied."""
    assert obj is move_to_device(obj, META)


def test_what_is_there_already_is_returned_itself():
    """Moving twice costs nothing."""
    batch = {"ids": torch.ones(2), "pair": Pair(torch.ones(1), "kept")}

    assert batch is move_to_device(batch, "cpu")


def test_the_rest_of_a_container_is_kept():
    """Order, factories, names and values that are no tensors stay."""
    counted = defaultdict(list, {"a": [torch.ones(1)]})
    moved = move_to_device(counted, META)
    ordered = move_to_device(MADE["ordered-dict"](), META)
    batch = move_to_device(Batch(torch.ones(1)), META)

    assert [] == moved["never asked for"]
    assert ["z", "a"] == list(ordered)
    assert ("a name", 3) == (batch.name, batch.length)
    assert ["one"] == move_to_device(MADE["batch-encoding"](), META)["texts"]


def test_one_tensor_stays_one():
    """What shared memory shares it afterwards."""
    shared = torch.ones(2)
    moved = move_to_device({"a": shared, "b": [shared]}, META)

    assert moved["a"] is moved["b"][0]


def test_auto_is_the_device_of_the_process(device: str):
    """ "auto" needs no argument; values survive the way there and back."""
    values = torch.arange(6.0).reshape(2, 3)
    there = move_to_device({"x": values}, device)
    back = move_to_device(there, "cpu", non_blocking=True)

    assert torch.device(device).type == there["x"].device.type
    assert torch.equal(values, back["x"])
    assert process_state.torch_device().type == move_to_device(values).device.type


def test_a_device_that_is_not_there():
    """An explicit wish is never ignored."""
    with pytest.raises(DeviceUnavailable, match="mps"):
        move_to_device(torch.ones(1), "mps")


class Convolutional(nn.Module):
    """Convolution, statistics and dropout: what evaluation mode is for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images).mean((2, 3)))


def test_inference_gives_the_same_answers(device: str):
    """What an evaluation-mode model says, it says after optimising; no gradients are kept."""
    torch.manual_seed(0)
    model, images = Convolutional(), torch.randn(4, 3, 8, 8)
    expected = model.eval()(images).detach()

    ready = optimize_model_for_inference(model.train(), device)
    found = ready(images.to(device, dtype=next(ready.parameters()).dtype))

    assert ready is model
    assert not ready.training
    assert not found.requires_grad
    # bf16 keeps 8 bits: two layers of values around 1 differ in the second decimal
    assert torch.allclose(expected, found.float().cpu(), atol=1e-5 if device == "cpu" else 2e-2)


def test_inference_dtype_as_asked():
    """A wish for a dtype is granted on every device, in either way of writing it."""
    half = optimize_model_for_inference(nn.Linear(4, 4), "cpu", "bfloat16")
    whole = optimize_model_for_inference(nn.Linear(4, 4).double(), "cpu", torch.float32)

    assert (torch.bfloat16, torch.float32) == (half.weight.dtype, whole.weight.dtype)


def test_inference_keeps_the_dtype_on_a_cpu():
    """There a narrower one pays only on some processors, which is measured elsewhere."""
    assert torch.float32 == optimize_model_for_inference(nn.Linear(4, 4), "cpu").weight.dtype


def test_inference_lays_channels_last():
    """The layout that convolutions of the vendor's libraries want."""
    model = optimize_model_for_inference(Convolutional(), "cpu")

    assert model.body[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_inference_leaves_a_quantised_model_alone():
    """Casting would destroy what its weights mean."""
    model = nn.Linear(4, 4)
    model.is_quantized = True

    assert torch.float32 == optimize_model_for_inference(model, "cpu", "bf16").weight.dtype


def test_inference_says_what_it_did(caplog: pytest.LogCaptureFixture):
    """One event in the log with every step."""
    with caplog.at_level(logging.INFO):
        optimize_model_for_inference(Convolutional(), "cpu", "bf16")

    (record,) = [one for one in caplog.records if one.message == "model optimized for inference"]
    assert ["evaluation mode", "no gradients", "torch.bfloat16 as asked", "on cpu", "channels last"] == record.fields[
        "done"
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("bf16", torch.bfloat16), ("float16", torch.float16), (torch.float64, torch.float64)],
)
def test_torch_dtype(name: str | torch.dtype, expected: torch.dtype):
    """Our names and torch's."""
    assert expected is torch_dtype(name)


def test_an_unknown_dtype():
    """The message lists what there is."""
    with pytest.raises(ValueError, match=r"'int3'.*bf16"):
        torch_dtype("int3")


CARD = GPUInfo(0, "a card", "GPU-1", 2**36, (9, 0), bf16=True)
OLD_CARD = GPUInfo(0, "Tesla T4", "GPU-2", 2**34, (7, 5), bf16=False)


class Configured(nn.Linear):
    """A model that says of which architecture it is."""

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
    """The best dtype of the card that the model bears."""
    process_state.adopt(MachineFacts(2, "a processor", (), 2**33, (card,), DeviceType.CUDA))

    assert expected == transfer._inference_dtype(model, torch.device("cuda:0"))[0]
