"""IntegratedGPUTrainingSystem: any model, loader, criterion and optimizer; recovery from exhausted memory and NaN."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from backend.device import GPUConfig
from backend.errors import DoesNotFit, TrainingFailed
from backend.gpu_toolkit import manager as manager_module
from backend.gpu_toolkit.training_system import count_items, take_part, weight_of
from backend.training import IntegratedGPUTrainingSystem, MixedPrecisionConfig

OFF = MixedPrecisionConfig(enabled=False)


class Limited(nn.Module):
    """Runs out of memory above so many items, with torch's error."""

    def __init__(self, most: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        self.most = most
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.layers(x)


@pytest.fixture
def system(device: str) -> Iterator[Callable[..., IntegratedGPUTrainingSystem]]:
    """Makes systems on the device under test, and cleans them up."""
    made: list[IntegratedGPUTrainingSystem] = []

    def make(mixed: MixedPrecisionConfig | None = None, **config: Any) -> IntegratedGPUTrainingSystem:
        made.append(IntegratedGPUTrainingSystem(GPUConfig(device=device, num_workers=0, **config), mixed))
        return made[-1]

    yield make
    for each in made:
        each.cleanup()


def dataset(count: int = 50) -> TensorDataset:
    """Classes that a small net can learn."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(count, 6, generator=generator)
    return TensorDataset(x, x[:, :4].argmax(1))


def vector(model: nn.Module) -> Tensor:
    """All weights as one vector on the CPU."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().cpu()


def trained(made: IntegratedGPUTrainingSystem, most: int, criterion: nn.Module, epochs: int = 2) -> tuple[Any, Limited]:
    """Two epochs in batches of 16, the last of which is smaller."""
    model = Limited(most)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(dataset(), batch_size=16)
    return made.training_loop(model, loader, criterion, optimizer, num_epochs=epochs), model


@pytest.mark.slow  # five seconds each
@pytest.mark.parametrize(
    "criterion",
    [
        pytest.param(nn.CrossEntropyLoss(), id="mean"),
        pytest.param(nn.CrossEntropyLoss(reduction="sum"), id="sum"),
        pytest.param(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.5, 2.0])), id="class-weights"),
        pytest.param(nn.CrossEntropyLoss(ignore_index=2), id="ignored-class"),
        pytest.param(nn.CrossEntropyLoss(label_smoothing=0.1), id="smoothing"),
    ],
)
def test_a_small_memory_changes_nothing(system: Callable[..., IntegratedGPUTrainingSystem], criterion: nn.Module):
    """Batches in parts give the weights of whole batches."""
    whole, model = trained(system(OFF), 1000, criterion.to(system(OFF).device))
    parts, small = trained(system(OFF), 5, criterion)

    torch.testing.assert_close(vector(model), vector(small), atol=1e-6, rtol=0)
    assert whole["final_loss"] == pytest.approx(parts["final_loss"], abs=1e-5)
    assert (2, 4) == (parts["out_of_memory"], parts["micro_batch"])
    assert [16, 8, 4, 4, 4, 4] == small.sizes[:6]
    assert 4 == max(small.sizes[2:])


@pytest.mark.slow
def test_one_item_does_not_fit(system: Callable[..., IntegratedGPUTrainingSystem]):
    """The run ends with advice instead of halving for ever."""
    with pytest.raises(DoesNotFit, match=r"one item alone needs more memory .* checkpoint activations"):
        trained(system(OFF), 0, nn.CrossEntropyLoss())


@pytest.mark.slow
def test_loss_that_is_not_finite(system: Callable[..., IntegratedGPUTrainingSystem]):
    """The batch runs again in the next precision; when that does not help either, the run ends with an error."""
    model = nn.Linear(6, 4)
    before = vector(model)
    x, y = torch.full((4, 6), float("inf")), torch.zeros(4, dtype=torch.long)
    made = system(MixedPrecisionConfig(dtype="bfloat16"))

    with pytest.raises(TrainingFailed, match="the loss was not finite, in fp32 too"):
        made.training_loop(model, [(x, y)], nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))
    assert "bf16" in made.trainer.events[0]
    assert torch.equal(before, vector(model))


@pytest.mark.slow
def test_a_schedule(system: Callable[..., IntegratedGPUTrainingSystem]):
    """The schedule is stepped after each change of the weights."""
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    system(OFF).training_loop(
        model, DataLoader(dataset(32), batch_size=16), nn.CrossEntropyLoss(), optimizer, scheduler=schedule
    )

    assert [0.25] == schedule.get_last_lr()


@pytest.mark.slow
def test_mixed_precision_off(system: Callable[..., IntegratedGPUTrainingSystem]):
    """GPUConfig overrules MixedPrecisionConfig."""
    assert "fp32" == system(MixedPrecisionConfig(), enable_mixed_precision=False).trainer.precision


@pytest.mark.slow
def test_clean_up(system: Callable[..., IntegratedGPUTrainingSystem]):
    """No thread stays, a second call does no harm, and the shared manager is not touched."""
    made = system(OFF)
    made.monitor.start_monitoring(0.05)
    made.cleanup()

    assert made.cleanup() >= 0
    assert not [thread for thread in threading.enumerate() if thread.name == "gpu-performance-monitor"]
    assert manager_module.process_manager is None or manager_module.process_manager is not made.gpu_manager


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loader", "message"),
    [([], "the loader gave no batch"), ([{"x": 1, "y": 2}], "a batch of dict"), ([("a", "b")], "without a tensor")],
)
def test_loaders_that_are_wrong(system: Callable[..., IntegratedGPUTrainingSystem], loader: list[Any], message: str):
    """An error, instead of a loss over nothing."""
    model = nn.Linear(6, 4)

    with pytest.raises(ValueError, match=message):
        system(OFF).training_loop(model, loader, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1))


ITEMS = torch.arange(6)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(ITEMS, ITEMS[2:4], id="tensor"),
        pytest.param(
            {"a": ITEMS, "b": torch.ones(3)}, {"a": ITEMS[2:4], "b": torch.ones(3)}, id="what-has-no-items-stays"
        ),
        pytest.param((ITEMS, [ITEMS, "text"]), (ITEMS[2:4], [ITEMS[2:4], "text"]), id="nested"),
        pytest.param(torch.tensor(1.0), torch.tensor(1.0), id="a-number"),
    ],
)
def test_take_part(data: Any, expected: Any):
    """Tensors of as many items are cut, other values stay."""
    assert str(expected) == str(take_part(data, slice(2, 4), 6))


def test_items():
    """Items are counted along the first dimension of the first tensor, however deep."""
    assert [6, 6, 6] == [count_items(data) for data in (ITEMS, {"n": 1, "x": ITEMS}, [("a", ITEMS)])]
    for wrong in (torch.tensor(1.0), "text", {}):
        with pytest.raises(ValueError, match="without a tensor of items"):
            count_items(wrong)


@pytest.mark.parametrize(
    ("criterion", "targets", "expected"),
    [
        pytest.param(nn.MSELoss(), torch.ones(3), 3.0, id="items"),
        pytest.param(nn.MSELoss(reduction="sum"), torch.ones(3), 0.0, id="sum"),
        pytest.param(nn.CrossEntropyLoss(), torch.tensor([0, 1, -100]), 2.0, id="ignored"),
        pytest.param(nn.CrossEntropyLoss(torch.tensor([1.0, 4.0])), torch.tensor([0, 1, 1]), 9.0, id="class-weights"),
        pytest.param(nn.CrossEntropyLoss(), torch.ones(3, 2), 3.0, id="soft-targets"),
        pytest.param(nn.NLLLoss(), torch.zeros(3, 5, dtype=torch.long), 15.0, id="tokens"),
        pytest.param(lambda answer, target: answer, torch.ones(3), 3.0, id="a-function"),
    ],
)
def test_weight(criterion: Any, targets: torch.Tensor, expected: float):
    """The weight is what torch divides by."""
    assert expected == weight_of(criterion, targets, len(targets))
