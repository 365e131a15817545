"""Activation checkpointing changes memory, and nothing else."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from backend.device.memory import trial_run
from backend.training.memory import checkpoint_activations


class Residual(nn.Module):
    """A block as vision models have them, with statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + self.body(images)


def vision() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(*(Residual() for _ in range(4))), nn.Flatten())


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def language() -> nn.Module:
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


MODELS = [
    pytest.param(vision, (3, 8, 8), id="vision"),
    pytest.param(transformer, (12, 16), id="torch-transformer"),
    pytest.param(language, (12,), id="transformers"),
]


def train_step(model: nn.Module, inputs: object) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients and statistics after one step with fixed random numbers."""
    torch.manual_seed(1)
    trial_run.forward_backward(model.train(), inputs)
    return [one.grad for one in model.parameters() if one.grad is not None], list(model.buffers())


@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_gradients_and_statistics_are_equal(make: Callable[[], nn.Module], shape: tuple[int, ...]):
    """Bit for bit, dropout and batch norm included: each batch is counted once."""
    torch.manual_seed(0)
    plain = make()
    checkpointed = copy.deepcopy(plain)
    checkpoint_activations(checkpointed)
    inputs = trial_run.synthetic_inputs(plain, shape)(5)

    for expected, found in zip(train_step(plain, inputs), train_step(checkpointed, inputs), strict=True):
        assert 0 < len(expected) == len(found) or not expected
        assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_it_takes_less_memory(make: Callable[[], nn.Module], shape: tuple[int, ...]):
    """A training step of many samples needs less."""
    model = make().train()
    inputs = trial_run.synthetic_inputs(model, shape)
    before = trial_run.predict_peak_bytes(model, inputs, 64, "training")
    checkpoint_activations(model)

    assert trial_run.predict_peak_bytes(model, inputs, 64, "training") < 0.8 * before


@pytest.mark.parametrize(("training", "expected"), [(True, 2), (False, 1)])
def test_only_training_computes_twice(training: bool, expected: int):
    """A frozen part in evaluation mode, through which gradients flow, is not slowed down."""
    calls: list[int] = []

    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            calls.append(id(self))
            return self.inner(inputs)

    model = nn.Sequential(Counted(), Counted()).train(training)
    checkpoint_activations(model)
    model(torch.ones(1, 2)).sum().backward()

    assert [expected] * 2 == [calls.count(id(one)) for one in model]


def test_the_returned_sentence():
    """How many blocks, whose way, or that there was nothing to do; a second time changes nothing."""
    model = vision()

    assert "activation checkpointing of 4 blocks" == checkpoint_activations(model)
    assert "no blocks to checkpoint" == checkpoint_activations(model)
    assert "no blocks to checkpoint" == checkpoint_activations(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert "activation checkpointing, the model's own" == checkpoint_activations(language())


def test_outermost_blocks():
    """Blocks inside blocks are left: recomputing an outer one recomputes them."""
    experts = [nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(2)]) for _ in range(3)]

    class Layer(nn.Module):
        def __init__(self, inner: nn.ModuleList) -> None:
            super().__init__()
            self.experts = inner

    model = nn.Sequential(*(Layer(one) for one in experts))
    checkpoint_activations(model)

    assert [True] * 3 == ["forward" in vars(one) for one in model]
    assert not any("forward" in vars(one) for inner in experts for one in inner)


def test_it_survives_copies_and_pickles():
    """A copy computes with its own weights, not with those of the original."""
    model = vision()
    checkpoint_activations(model)
    images = torch.randn(2, 3, 8, 8)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()

    for one in copies:
        output = one.train()(images)
        output.sum().backward()

        assert bool(output.any())
        assert all(parameter.grad is not None for parameter in one.parameters())
        assert all(parameter.grad is None for parameter in model.parameters())
