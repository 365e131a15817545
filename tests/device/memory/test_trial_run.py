"""Runs on synthetic inputs: inputs, restored state, and predicted memory peaks."""

from typing import Any

import pytest
import torch
from torch import nn

from backend.device.memory import trial_run


class Tokens(nn.Module):
    """A model that is fed as those of transformers are."""

    def __init__(self, words: int = 11) -> None:
        super().__init__()
        self.config = type("Config", (), {"vocab_size": words})()
        self.table = nn.Embedding(words, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.table(input_ids) * attention_mask[..., None])}


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that a trial could change."""
    return {
        "weights": {name: one.clone() for name, one in model.state_dict().items()},
        "grads": [one.grad for one in model.parameters()],
        "modes": [one.training for one in model.modules()],
        "devices": [one.device for one in model.parameters()],
        "random": torch.get_rng_state(),
    }


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two states agree; gradients must be the very same tensors."""
    return (
        all(torch.equal(left["weights"][name], right["weights"][name]) for name in left["weights"])
        and all(one is other for one, other in zip(left["grads"], right["grads"], strict=True))
        and (left["modes"], left["devices"]) == (right["modes"], right["devices"])
        and torch.equal(left["random"], right["random"])
    )


@pytest.mark.parametrize(
    ("model", "shape", "expected"),
    [
        pytest.param(nn.Linear(5, 2), (5,), [(3, 5), torch.float32], id="features"),
        pytest.param(nn.Conv2d(1, 2, 3).bfloat16(), (1, 8, 8), [(3, 1, 8, 8), torch.bfloat16], id="pixels-in-bf16"),
        pytest.param(nn.Sequential(nn.Embedding(7, 2)), (6,), [(3, 6), torch.int64], id="an-embedding-first"),
        pytest.param(nn.ReLU(), (2, 2), [(3, 2, 2), torch.float32], id="no-weights"),
    ],
)
def test_synthetic_features(model: nn.Module, shape: tuple[int, ...], expected: list[object]):
    """The batch comes first, and the numbers are of the kind that the model eats."""
    inputs = trial_run.synthetic_inputs(model, shape)(3)

    assert expected == [tuple(inputs.shape), inputs.dtype]


def test_synthetic_tokens():
    """A model that takes input_ids gets ids it knows and a mask without padding."""
    model = Tokens(words=11)
    inputs = trial_run.synthetic_inputs(model, (9,))(40)

    assert {"input_ids": (40, 9), "attention_mask": (40, 9)} == {name: tuple(one.shape) for name, one in inputs.items()}
    assert 0 <= int(inputs["input_ids"].min()) <= int(inputs["input_ids"].max()) < 11
    assert bool(inputs["attention_mask"].all())
    assert trial_run.takes_tokens(model)


@pytest.mark.parametrize("run", [trial_run.forward, trial_run.forward_backward])
def test_restored_state(run: Any, device: str):
    """Statistics, gradients, modes, place and random numbers are afterwards as before, whatever ran in between."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model(torch.randn(8, 4)).sum().backward()
    model[2].eval()
    before = state(model)

    with trial_run.restored_state(model):
        assert all(one.grad is None for one in model.parameters())
        model.to(device).train()
        run(model, trial_run.synthetic_inputs(model, (4,))(16))
        during = state(model)

    assert not same(before, during)
    assert same(before, state(model))


def test_restored_state_after_an_error():
    """An error passes through, and the model is put back all the same."""
    model = nn.Sequential(nn.BatchNorm1d(4))
    before = state(model)

    def fail() -> None:
        with trial_run.restored_state(model):
            model(torch.randn(5, 4))
            raise RuntimeError("as planned")

    with pytest.raises(RuntimeError, match="as planned"):
        fail()

    assert same(before, state(model))


def test_forward_backward_reaches_every_weight():
    """Gradients flow from every output, nested ones included."""
    model = Tokens()

    trial_run.forward_backward(model, trial_run.synthetic_inputs(model, (3,))(2))

    assert all(one.grad is not None for one in model.parameters())


def test_forward_backward_of_a_frozen_model():
    """Where nothing can be trained, the message says so."""
    model = nn.Linear(2, 2).requires_grad_(requires_grad=False)

    with pytest.raises(ValueError, match="nothing to train"):
        trial_run.forward_backward(model, torch.ones(1, 2))


def test_weights_count_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("table", torch.zeros(10, dtype=torch.int8))

    assert 4 * 4 * 4 + 10 == trial_run.weights_bytes(model)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_predicted_peak_equals_the_real_one(mode: trial_run.Mode):
    """Shapes alone give to the byte what computing gives, for any count, and leave nothing behind."""
    model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)).train(mode == "training")
    make = trial_run.synthetic_inputs(model, (8,))
    before = state(model)
    predicted = [trial_run.predict_peak_bytes(model, make, count, mode) for count in (2, 64)]
    unchanged = same(before, state(model))
    run = trial_run.forward_backward if mode == "training" else torch.no_grad()(trial_run.call_model)
    weights = [*model.parameters(), *model.buffers()]
    real = [trial_run.peak_bytes(lambda: run(model, make(count)), weights) for count in (2, 64)]  # noqa: B023

    assert unchanged
    assert 0 < predicted[0] < predicted[1]
    assert real[1] == predicted[1]  # the first real one also allocates the gradients
