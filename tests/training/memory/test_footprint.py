"""The estimate of a step equals what a real step takes, and the model is not touched."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from backend.device.memory import trial_run
from backend.training.lora import add_lora
from backend.training.memory import Footprint, estimate_footprints, longest_example_inputs


class Blocks(nn.Module):
    """A model of repeated blocks."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Branches(nn.Module):
    """A model whose control flow depends on its values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else x


def measured(model: nn.Module, shape: Sequence[int], count: int) -> int:
    """The peak above the weights of a real pass that adds to gradients, counted by the same tracker."""
    inputs = trial_run.synthetic_inputs(model, shape)(count)
    tracker = trial_run.StoragePeak()
    tracker.ignore(one.untyped_storage() for one in [*model.parameters(), *model.buffers()])
    with tracker:
        for one in model.parameters():
            one.grad = torch.zeros_like(one)
        trial_run.forward_backward(model, torch.empty_like(inputs))
        return tracker.peak_bytes


@pytest.mark.parametrize("count", [1, 7, 32])
def test_as_a_real_step(count: int):
    """The same bytes as a real step."""
    model = Blocks()

    full = estimate_footprints(model, trial_run.synthetic_inputs(model, (16, 64)), [count], half=None)[0]

    assert measured(copy.deepcopy(model).train(), (16, 64), count) == full.peaks[count]
    assert trial_run.weights_bytes(model) == full.weights_bytes == full.trained_bytes
    assert sum(one.numel() for one in model.parameters()) == full.trained


@pytest.mark.slow
def test_the_model_is_left_alone():
    """Weights, gradients, mode, forward and random numbers are what they were."""
    model = Blocks().eval()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()

    estimate_footprints(
        model, lambda count: torch.zeros(count, 4, 64), [1, 4], half="bf16", add_lora=lambda one: add_lora(one, 2)
    )

    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert all(one.grad is None and one.requires_grad for one in model.parameters())
    assert not model.training
    assert not any("forward" in vars(one) for one in model.modules())
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.slow
def test_ways():
    """Checkpointing takes fewer activations, LoRA trains fewer weights, half precision saves smaller activations."""
    model = Blocks(depth=6)
    inputs = trial_run.synthetic_inputs(model, (256, 64))

    full, lean, lora, both = estimate_footprints(
        model, inputs, [1, 64], half=None, add_lora=lambda one: add_lora(one, 2)
    )
    half = estimate_footprints(model, inputs, [64], half="bf16")[0]

    assert [(False, False), (True, False), (False, True), (True, True)] == [
        (one.checkpointing, one.lora) for one in (full, lean, lora, both)
    ]
    assert lean.peaks[64] < full.peaks[64]
    assert lora.trained < full.trained
    assert both.weights_bytes > full.weights_bytes
    assert half.peaks[64] < full.peaks[64]


def test_without_blocks():
    """A model without repeated blocks has no row for checkpointing."""
    model = nn.Linear(8, 2)
    inputs = trial_run.synthetic_inputs(model, (8,))

    assert [False] == [one.checkpointing for one in estimate_footprints(model, inputs, [1], half=None)]


def test_what_cannot_be_estimated():
    """A model that branches on values gives no estimate, instead of a wrong one."""
    assert () == estimate_footprints(Branches(), lambda count: torch.ones(count, 4), [1, 2], half=None)


def test_half_weights_are_counted_as_float32():
    """The loop converts them."""
    model = nn.Linear(8, 2)
    plain = estimate_footprints(model, lambda count: torch.ones(count, 8), [1], half=None)[0]
    stored = estimate_footprints(model.bfloat16(), lambda count: torch.ones(count, 8), [1], half=None)[0]

    assert plain == stored


def test_between_two_points():
    """Never too low: on the line between them; and nothing is invented outside."""
    one = Footprint(False, False, 100, 10, 40, {1: 100, 4: 130, 16: 1000})

    assert [100, 110, 120, 130, 203, 1000] == [one.peak_bytes(count) for count in (1, 2, 3, 4, 5, 16)]
    for outside in (0, 17):
        with pytest.raises(ValueError, match="foreseen were 1 to 16"):
            one.peak_bytes(outside)


@pytest.mark.slow
def test_the_line_lies_above():
    """Of every count between two estimated ones, for a real model."""
    model = Blocks(depth=3)
    inputs = trial_run.synthetic_inputs(model, (8, 64))
    ends = estimate_footprints(model, inputs, [1, 24], half=None)[0]
    every = estimate_footprints(model, inputs, list(range(1, 25)), half=None)[0]

    assert all(ends.peak_bytes(count) >= peak for count, peak in every.peaks.items())


def test_inputs_by_name():
    """What forward names, without the labels; the longest example as often as asked."""

    def collate(indices: Sequence[int]) -> dict[str, Any]:
        return {"x": torch.full((len(indices), 2), indices[0]), "labels": torch.zeros(1), "weight": 3.0}

    inputs = longest_example_inputs(Blocks(), collate, longest=5)

    assert ["x"] == list(inputs(3))
    assert torch.equal(torch.full((3, 2), 5), inputs(3)["x"])


def test_image_inputs():
    """Images travel as whole numbers under a name of their own; without a tensor there is no input."""
    inputs = longest_example_inputs(
        Blocks(), lambda indices: {"pixels": torch.zeros(len(indices), 3, 2, 2, dtype=torch.uint8)}, 0
    )

    assert ((2, 3, 2, 2), torch.float32) == (tuple(inputs(2).shape), inputs(2).dtype)
    with pytest.raises(ValueError, match="nothing for Blocks"):
        longest_example_inputs(Blocks(), lambda indices: {"weight": 1.0}, 0)(1)


def test_through_a_wrapper():
    """peft's wrapper takes anything; the model inside names its arguments."""
    model = add_lora(Blocks(), 2)
    inputs = longest_example_inputs(
        model, lambda indices: {"x": torch.zeros(len(indices), 64), "targets": torch.zeros(1)}, 0
    )

    found = estimate_footprints(model, inputs, [1], half=None)

    assert ["x"] == list(inputs(1))
    assert [True, True] == [one.lora for one in found]
