"""MixedPrecisionTrainer: the weights of torch by hand, and no step with numbers that are not finite."""

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from backend.errors import TrainingFailed
from backend.gpu_toolkit import mixed_precision
from backend.gpu_toolkit.mixed_precision import MixedPrecisionTrainer
from backend.training.records import MixedPrecisionConfig

OFF = MixedPrecisionConfig(enabled=False)


class Named(nn.Module):
    """Takes named arguments and returns a mapping, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(x) * scale}


def model() -> nn.Module:
    """A small model with fixed weights."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def batch(count: int = 12) -> tuple[Tensor, Tensor]:
    """Data and classes."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, 4, generator=generator), torch.randint(3, (count,), generator=generator)


def weights(one: nn.Module) -> Tensor:
    """All weights of a model as one vector."""
    return nn.utils.parameters_to_vector(one.parameters()).detach().clone()


def one_step(trainer: MixedPrecisionTrainer, net: nn.Module, optimizer: torch.optim.Optimizer, data: Any) -> bool:
    """One step as guides write it."""
    x, y = data
    predictions = trainer.forward_pass(net, x)
    loss = trainer.compute_loss(nn.CrossEntropyLoss(), predictions, y)
    trainer.backward_pass(loss, optimizer)
    return trainer.optimizer_step(optimizer)


def scaled(monkeypatch: pytest.MonkeyPatch, **config: Any) -> MixedPrecisionTrainer:
    """A trainer with a scaler on the CPU, which only tests may have."""
    monkeypatch.setattr(mixed_precision, "precisions_for", lambda *args, **rest: (("fp16", "fp32"), "fp16: for a test"))
    return MixedPrecisionTrainer(MixedPrecisionConfig(**config), "cpu")


def test_as_torch_by_hand():
    """Without mixed precision every step is torch's own, clipping included."""
    ours, plain = model(), model()
    trainer = MixedPrecisionTrainer(OFF, "cpu", max_grad_norm=0.1)
    our_optimizer, optimizer = (torch.optim.Adam(one.parameters(), lr=0.01) for one in (ours, plain))
    for _ in range(5):
        assert one_step(trainer, ours, our_optimizer, batch())
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(batch()[0]), batch()[1]).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        optimizer.step()

    assert torch.equal(weights(plain), weights(ours))
    assert (5, 0, "fp32", None) == (trainer.steps, trainer.skipped, trainer.precision, trainer.scale)
    assert all(one.grad is None for one in ours.parameters())


def test_accumulation():
    """Three equal parts give the gradient of the whole."""
    whole, parts = model(), model()
    x, y = batch(12)
    trainer = MixedPrecisionTrainer(OFF, "cpu")
    one_step(trainer, whole, torch.optim.SGD(whole.parameters(), lr=0.1), (x, y))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    for first in range(0, 12, 4):
        predictions = trainer.forward_pass(parts, x[first : first + 4])
        loss = trainer.compute_loss(nn.CrossEntropyLoss(), predictions, y[first : first + 4])
        trainer.backward_pass(loss, optimizer, parts=3)
    trainer.optimizer_step(optimizer)

    torch.testing.assert_close(weights(whole), weights(parts), atol=1e-6, rtol=0)


def test_bfloat16():
    """The forward pass is in half precision, the loss in float32, the weights too; no scaler."""
    net = model()
    trainer = MixedPrecisionTrainer(MixedPrecisionConfig(dtype="bfloat16"), "cpu")
    predictions = trainer.forward_pass(net, batch()[0])
    loss = trainer.compute_loss(nn.CrossEntropyLoss(), predictions, batch()[1])

    assert ("bf16", None) == (trainer.precision, trainer.scale)
    assert (torch.bfloat16, torch.float32) == (predictions.dtype, loss.dtype)
    assert {torch.float32} == {one.dtype for one in net.parameters()}
    assert one_step(trainer, net, torch.optim.SGD(net.parameters(), lr=0.1), batch())


def test_binary_cross_entropy():
    """torch refuses it under autocast; here the criterion runs outside."""
    net = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    trainer = MixedPrecisionTrainer(MixedPrecisionConfig(dtype="bfloat16"), "cpu")
    loss = trainer.compute_loss(nn.BCELoss(), trainer.forward_pass(net, batch()[0]), torch.ones(12, 1))

    assert torch.isfinite(loss)


def test_mappings():
    """Named arguments in, a mapping out; half-precision outputs reach the criterion in float32."""
    net, seen = Named(), []
    trainer = MixedPrecisionTrainer(MixedPrecisionConfig(dtype="bfloat16"), "cpu")
    predictions = trainer.forward_pass(net, {"x": torch.ones(2, 4), "scale": torch.ones(1, dtype=torch.bfloat16)})

    def criterion(answer: Any, target: Tensor) -> Tensor:
        seen.append(answer["logits"].dtype)
        return (answer["logits"] - target).square().mean()

    trainer.backward_pass(trainer.compute_loss(criterion, predictions, torch.zeros(2, 3)))

    assert [torch.float32] == seen
    assert net.layer.weight.grad is not None


def test_a_broken_loss_changes_nothing():
    """The step is skipped and the precision falls back; in float32 it is an error with advice."""
    net = model()
    trainer = MixedPrecisionTrainer(MixedPrecisionConfig(dtype="bfloat16"), "cpu")
    optimizer = torch.optim.Adam(net.parameters())
    before, bad = weights(net), (torch.full((2, 4), float("nan")), torch.zeros(2, dtype=torch.long))

    assert not one_step(trainer, net, optimizer, bad)
    assert ("fp32", 0, 1) == (trainer.precision, trainer.steps, trainer.skipped)
    assert ["step 0: the loss was not finite; from bf16 to fp32, no weight was changed"] == trainer.events
    assert one_step(trainer, net, optimizer, batch())
    after = weights(net)
    assert not one_step(trainer, net, optimizer, bad)
    with pytest.raises(TrainingFailed, match="in fp32 too: lower the learning rate"):
        one_step(trainer, net, optimizer, bad)

    assert not torch.equal(before, after)
    assert torch.equal(after, weights(net))


def test_a_broken_gradient_changes_nothing():
    """The loss may be finite where its gradient is not: the root of zero."""
    net = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(net.weight)
    trainer = MixedPrecisionTrainer(OFF, "cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = trainer.compute_loss(lambda answer, _: answer.abs().sqrt().sum(), trainer.forward_pass(net, batch()[0]), 0)
    trainer.backward_pass(loss, optimizer)

    assert torch.isfinite(loss)
    assert not trainer.optimizer_step(optimizer)
    assert torch.equal(torch.zeros(4), weights(net))
    assert "a gradient was not finite" in trainer.events[0]


def test_the_scaler_looks_for_its_scale(monkeypatch: pytest.MonkeyPatch):
    """An overflow skips the step and lowers the scale; that alone is no reason to leave float16."""
    net = nn.Linear(4, 1)
    trainer = scaled(monkeypatch, hysteresis=1, initial_scale=2.0**16)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    before = weights(net)

    def loss_of(factor: float) -> Tensor:
        predictions = trainer.forward_pass(net, batch()[0])
        return trainer.compute_loss(lambda answer, _: (answer * factor).sum(), predictions, 0)

    trainer.backward_pass(loss_of(1e35), optimizer)  # finite, and not when multiplied by 65536
    skipped = not trainer.optimizer_step(optimizer)

    assert skipped
    assert torch.equal(before, weights(net))
    assert (2.0**15, "fp16", []) == (trainer.scale, trainer.precision, trainer.events)

    trainer.backward_pass(loss_of(1e-3), optimizer)
    assert trainer.optimizer_step(optimizer)
    assert (1, 1) == (trainer.steps, trainer.skipped)


def test_its_state_comes_back():
    """A loop of one's own that stops and goes on returns to bf16 at the step at which it would have."""
    config = MixedPrecisionConfig(dtype="bfloat16", recovery_interval=3)
    bad = torch.full((2, 4), float("nan")), torch.zeros(2, dtype=torch.long)
    first, second = MixedPrecisionTrainer(config, "cpu"), MixedPrecisionTrainer(config, "cpu")
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for data in (bad, batch(), batch()):
        one_step(first, net, optimizer, data)
    other = copy.deepcopy(net)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    resumed = torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(2):
        one_step(first, net, optimizer, batch())
        one_step(second, other, resumed, batch())

    assert ("bf16", first.events) == (second.precision, second.events)
    assert first.state_dict() == second.state_dict()
    assert torch.equal(weights(net), weights(other))


def test_the_scaler_comes_back(monkeypatch: pytest.MonkeyPatch):
    """With its scale, and without it where the device has other precisions."""
    elsewhere = MixedPrecisionTrainer(OFF, "cpu")
    first, second = scaled(monkeypatch, initial_scale=2.0, growth_interval=1), scaled(monkeypatch)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss = first.compute_loss(lambda answer, _: answer.sum(), first.forward_pass(net, batch()[0]), 0)
    first.backward_pass(loss, optimizer)
    first.optimizer_step(optimizer)
    second.load_state_dict(first.state_dict())
    elsewhere.load_state_dict(first.state_dict())

    assert ("fp16", 4.0) == (second.precision, second.scale)
    assert ("fp32", None) == (elsewhere.precision, elsewhere.scale)


def test_fields_that_are_assigned_later():
    """As guides do when numbers break: they count from the next step on, not in the middle of one."""
    config, net = MixedPrecisionConfig(dtype="bfloat16"), model()
    trainer = MixedPrecisionTrainer(config, "cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss = trainer.compute_loss(nn.CrossEntropyLoss(), trainer.forward_pass(net, batch()[0]), batch()[1])
    trainer.backward_pass(loss, optimizer, parts=2)
    config.enabled = False
    predictions = trainer.forward_pass(net, batch()[0])
    in_the_middle = trainer.precision, predictions.dtype
    trainer.backward_pass(trainer.compute_loss(nn.CrossEntropyLoss(), predictions, batch()[1]), optimizer, parts=2)
    trainer.optimizer_step(optimizer)
    predictions = trainer.forward_pass(net, batch()[0])

    assert ("bf16", torch.bfloat16) == in_the_middle
    assert ("fp32", torch.float32) == (trainer.precision, predictions.dtype)


def test_drop():
    """A step may be abandoned midway."""
    net = model()
    trainer = MixedPrecisionTrainer(OFF, "cpu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trainer.backward_pass(trainer.forward_pass(net, batch()[0]).sum() * float("nan"), optimizer)
    trainer.drop(optimizer)

    assert one_step(trainer, net, optimizer, batch())


def test_half_precision_weights():
    """Become float32: a small update is lost in half precision."""
    net = copy.deepcopy(model()).bfloat16()
    MixedPrecisionTrainer(OFF, "cpu").forward_pass(net, batch()[0])

    assert {torch.float32} == {one.dtype for one in net.parameters()}
