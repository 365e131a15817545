"""One step: the gradient of the effective batch however it was cut, and nothing applied that is not sound."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

from backend.errors import BadSettings, DoesNotFit, TrainingFailed
from backend.training.data.batches import micro_batches
from backend.training.lora import add_lora
from backend.training.records import LossPart, MixedPrecisionConfig, TrainingConfig
from backend.training.trainer import model_setup
from backend.training.trainer.distributed import init_process_group
from backend.training.trainer.loop import train
from backend.training.trainer.model_setup import ModelSetup, make_optimizer, parameter_groups
from backend.training.trainer.precision import MixedPrecision
from backend.training.trainer.train_step import FaultSource, StepResult, TrainStep
from tests.toy_training import Faults, ToyTask, difference, plain_config, same_bits, weights_of

CPU = torch.device("cpu")


def make_train_step(
    task: ToyTask, config: TrainingConfig | None = None, precision: str = "fp32", faults: Faults | None = None
) -> TrainStep:
    """On one rank, as the loop makes it."""
    config = config or plain_config(max_grad_norm=None)
    setup = ModelSetup(task.model, config, CPU)
    mixed = MixedPrecision(CPU, MixedPrecisionConfig(dtype="float16", initial_scale=8.0), precision)
    optimizer = make_optimizer(task.model, config, CPU)
    return TrainStep(
        task, setup, optimizer, mixed, init_process_group("cpu"), config=config, faults=faults or FaultSource()
    )


def take(train_step: TrainStep, task: ToyTask, batch: Sequence[int], micro_batch: int, step: int = 0) -> StepResult:
    """One optimizer step."""
    cuts = micro_batches(batch, micro_batch)
    accumulated = train_step.accumulate(cuts, iter([task.collate(cut) for cut in cuts]), step)

    assert accumulated.out_of_memory is None
    return train_step.update(accumulated, accumulated.weight, batch, step)


@pytest.mark.parametrize("micro_batch", [1, 3, 8, 20])
def test_the_gradient_is_that_of_the_mean_loss(micro_batch: int) -> None:
    """However it is split: the AdamW step that torch's mean cross entropy gives, although items weigh differently."""
    task, batch = ToyTask(), list(range(20))
    plain = copy.deepcopy(task.model)
    optimizer = make_optimizer(plain, plain_config(), CPU)
    loss = functional.cross_entropy(plain(task.inputs[batch]).flatten(0, 1), task.labels[batch].flatten())
    loss.backward()
    norm = math.hypot(*(float(one.grad.norm()) for one in plain.parameters() if one.grad is not None))
    optimizer.step()
    result = take(make_train_step(task), task, batch, micro_batch)

    assert result.applied
    assert abs(result.total / result.weight - float(loss.detach())) < 1e-6
    assert abs(result.grad_norm - norm) < 1e-6
    assert difference(weights_of(plain), weights_of(task.model)) < 1e-6


@pytest.mark.parametrize("guess", [-3, 0, 20])
def test_the_expected_weight_changes_no_bit(guess: int) -> None:
    """It only keeps half precision's numbers in range, by a power of two."""
    task, other = ToyTask(), ToyTask()
    take(make_train_step(task), task, range(12), 4)
    guessing = make_train_step(other)
    guessing.load_state_dict({"divisor": 2.0**guess})
    take(guessing, other, range(12), 4)

    assert same_bits(weights_of(task.model), weights_of(other.model))


def test_clipping_after_unscaling() -> None:
    """The reported norm is that before clipping; the applied gradients are clipped, with a scaler too."""
    norms = []
    for precision in ("fp32", "fp16"):
        task = ToyTask()
        config = plain_config(max_grad_norm=0.01)
        train_step = make_train_step(task, config, precision)
        seen: list[float] = []
        optimizer = train_step._optimizer
        optimizer.register_step_pre_hook(
            lambda opt, *_, seen=seen: seen.append(
                math.sqrt(sum(float(p.grad.square().sum()) for g in opt.param_groups for p in g["params"]))
            )
        )
        result = take(train_step, task, range(8), 4)
        norms.append(result.grad_norm)

        assert abs(seen[0] - 0.01) < 1e-4
    assert norms[0] > 0.1
    assert abs(norms[0] - norms[1]) < 0.02


def test_a_batch_without_labels_changes_nothing() -> None:
    """No loss of 0 is reported and no weight decays."""
    task = ToyTask()
    task.labels[:8] = -100
    before = weights_of(task.model)
    result = take(make_train_step(task), task, range(8), 4)

    assert (False, 0.0, None) == (result.applied, result.weight, result.failure)
    assert same_bits(before, weights_of(task.model))


def test_a_micro_batch_without_labels_may_even_be_nan() -> None:
    """A mean over no item is NaN in many a loss; its weight says that it does not count."""

    class Mean(ToyTask):
        def loss(self, model: nn.Module, batch: dict) -> LossPart:  # type: ignore[override]
            part = super().loss(model, batch)
            return part if part.weight else LossPart(part.total * float("nan"), 0.0)

    task, other = Mean(), ToyTask()
    for one in (task, other):
        one.labels[:4] = -100
    result = take(make_train_step(task), task, range(8), 4)
    take(make_train_step(other), other, range(8), 4)

    assert result.applied
    assert same_bits(weights_of(task.model), weights_of(other.model))


@pytest.mark.parametrize("weight", [float("nan"), -1.0, float("inf")])
def test_an_invalid_loss_weight(weight: float) -> None:
    """A task's mistake is an error, not trained on."""

    class Odd(ToyTask):
        def loss(self, model: nn.Module, batch: dict) -> LossPart:  # type: ignore[override]
            return LossPart(super().loss(model, batch).total, weight)

    task = Odd()
    with pytest.raises(TrainingFailed, match="weight"):
        take(make_train_step(task), task, range(8), 8)


def test_nothing_is_applied_when_the_loss_breaks() -> None:
    """The examples that break it alone are found."""
    task = ToyTask()
    before = weights_of(task.model)
    train_step = make_train_step(task, faults=Faults(broken=lambda step, indices: 5 in indices))
    result = take(train_step, task, range(8), 4)

    assert (False, (5,)) == (result.applied, result.failure.examples)
    assert same_bits(before, weights_of(task.model))
    assert all(one.grad is None for one in task.model.parameters())


def test_a_micro_batch_that_breaks_only_together_is_named_whole() -> None:
    """A loss over pairs may break for no single example: all of the micro-batch are suspects."""
    task = ToyTask()
    train_step = make_train_step(task, faults=Faults(broken=lambda step, indices: len(indices) == 4 and 5 in indices))
    result = take(train_step, task, range(8), 4)

    assert (4, 5, 6, 7) == result.failure.examples


def test_a_step_runs_again_after_out_of_memory() -> None:
    """The half-done gradient is dropped, and the scaler's state with it: the step is what it would have been."""
    task, calm = ToyTask(), ToyTask()
    faults = Faults(fits=2)
    train_step = make_train_step(task, precision="fp16", faults=faults)
    cuts = [[0, 1], [2, 3, 4], [5]]
    accumulated = train_step.accumulate(cuts, iter([task.collate(cut) for cut in cuts]), 0)

    assert 3 == accumulated.out_of_memory.items
    train_step.discard()
    take(train_step, task, range(6), 2)
    take(make_train_step(calm, precision="fp16"), calm, range(6), 2)
    assert same_bits(weights_of(task.model), weights_of(calm.model))


def test_no_gradient_is_an_error() -> None:
    """A detached output would train nothing in silence; the first step is an error."""

    class Detached(ToyTask):
        def loss(self, model: nn.Module, batch: dict) -> LossPart:  # type: ignore[override]
            part = super().loss(model, batch)
            unused = sum(one.sum() for one in model.parameters()) * 0.0
            return LossPart(part.total.detach() + unused, part.weight)

    with pytest.raises(TrainingFailed, match="no gradient reached the weights"):
        train(Detached(), plain_config(), output=None)


def test_a_loss_of_zero_is_tolerated_for_some_steps() -> None:
    """A ranking loss of equal items is 0; ten such batches in a row are too many."""

    class Equal(ToyTask):
        empty = 3

        def loss(self, model: nn.Module, batch: dict) -> LossPart:  # type: ignore[override]
            part = super().loss(model, batch)
            self.empty -= 1
            return LossPart(part.total * 0.0, part.weight) if self.empty >= 0 else part

    task = Equal()

    assert 12 == train(task, plain_config(), output=None).steps
    task = Equal()
    task.empty = 100
    with pytest.raises(TrainingFailed, match="no gradient"):
        train(task, plain_config(), output=None)


def test_activation_checkpointing_gives_the_same_weights() -> None:
    """Recomputed, not approximated, with dropout too."""

    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.2), nn.Tanh())

    def task() -> ToyTask:
        torch.manual_seed(1)
        return ToyTask(model=nn.Sequential(nn.ModuleList([]), nn.Sequential(block(), block()), nn.Linear(6, 3))[1:])

    plain, checkpointed = task(), task()
    train(plain, plain_config(), output=None)
    train(checkpointed, plain_config(gradient_checkpointing=True), output=None)

    assert difference(weights_of(plain.model), weights_of(checkpointed.model)) < 1e-6


def test_decay_spares_biases_and_norms() -> None:
    """Weights of one dimension do not decay."""
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Embedding(3, 4))
    model[2].requires_grad_(requires_grad=False)
    decayed, plain = parameter_groups(model, 0.1)

    assert ([0.1], [(4, 4)]) == ([decayed["weight_decay"]], [tuple(one.shape) for one in decayed["params"]])
    assert (0.0, 3) == (plain["weight_decay"], len(plain["params"]))


@pytest.mark.parametrize("lora", [False, True])
def test_a_head_has_a_rate_of_its_own(tiny, lora: bool) -> None:
    """The layers beside the encoder, and nothing else; without a rate there are no groups for them."""
    model = transformers.AutoModelForTokenClassification.from_pretrained(tiny.plain("bert"), num_labels=5)
    model = add_lora(model, 2, also=["token_type_embeddings"]) if lora else model
    names = {id(one): name for name, one in model.named_parameters()}

    groups = parameter_groups(model, 0.1, 0.5)
    apart = [[names[id(one)] for one in group["params"]] for group in groups if group.get("lr") == 0.5]
    assert [["weight"], ["bias"]] == [[name.rpartition(".")[2] for name in group] for group in apart]
    assert all("classifier" in name for group in apart for name in group)
    count = sum(one.requires_grad for one in model.parameters())
    assert count == sum(len(group["params"]) for group in groups)
    assert not any("lr" in group for group in parameter_groups(model, 0.1))


def test_nothing_to_train_is_refused() -> None:
    """So is an 8-bit optimizer where its kernels cannot run."""
    model = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    with pytest.raises(BadSettings, match="no weight that may be trained"):
        make_optimizer(model, plain_config(), CPU)
    with pytest.raises(BadSettings, match="CUDA"):
        make_optimizer(nn.Linear(2, 2), replace(plain_config(), eight_bit_optimizer=True), CPU)


def test_weights_in_half_precision_are_brought_to_float32() -> None:
    """Small updates would be lost in half precision; the run reports the change."""
    setup = ModelSetup(nn.Linear(2, 2).bfloat16(), plain_config(), CPU)

    assert {torch.float32} == {one.dtype for one in setup.model.parameters()}
    assert "float32" in setup.changes[0]


def test_channels_last_on_demand() -> None:
    """Weights and images in the layout that convolutions on a card want; on a CPU only where it is configured."""
    images = {"pixels": torch.rand(2, 3, 4, 4), "labels": torch.zeros(2)}
    plain = ModelSetup(nn.Conv2d(3, 4, 3), plain_config(), CPU)
    asked = ModelSetup(nn.Conv2d(3, 4, 3), plain_config(channels_last=True), CPU)

    assert images is plain.to_memory_format(images)
    assert asked.to_memory_format(images)["pixels"].is_contiguous(memory_format=torch.channels_last)
    assert asked.model.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with everything that torch.compile needs."""
    monkeypatch.setattr(model_setup, "compiler_fault", lambda _: "")


def test_compiling_where_nothing_can_be_built_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, with what is missing; nothing is compiled on the sly."""
    monkeypatch.setattr(model_setup, "compiler_fault", lambda _: "neither g++ nor clang++ is installed")
    with pytest.raises(BadSettings, match=r"compile: neither g\+\+"):
        train(ToyTask(), plain_config(compile=True), output=None)


def broken_compiler(error: Exception):  # type: ignore[no-untyped-def]
    """A torch.compile whose compiled model fails at its first call, as the real one does."""

    def compile_it(model: nn.Module, **options: object) -> object:
        def run(*args: object) -> object:
            raise error

        return run

    return compile_it


@pytest.mark.usefixtures("_compiler")
def test_a_failed_compilation_falls_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It logs a warning, and ends with the weights of a run that never compiled."""
    calm, task = ToyTask(), ToyTask()
    train(calm, plain_config(), output=None)
    monkeypatch.setattr(torch, "compile", broken_compiler(torch._dynamo.exc.Unsupported("no C++ compiler")))
    train(task, plain_config(compile=True), output=None)

    assert same_bits(weights_of(calm.model), weights_of(task.model))
    assert "compilation failed" in caplog.text


@pytest.mark.usefixtures("_compiler")
def test_an_error_of_the_model_is_raised_under_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come again uncompiled, and must not be hidden."""
    monkeypatch.setattr(torch, "compile", broken_compiler(ValueError("a bug in the model")))
    with pytest.raises(ValueError, match="a bug in the model"):
        train(ToyTask(), plain_config(compile=True), output=None)


def test_eager_attention_is_replaced() -> None:
    """A model on eager attention is switched to the fused one, where it has one; the change is reported."""

    class Attends(nn.Linear):
        config = type("Config", (), {"_attn_implementation": "eager"})()

        def set_attn_implementation(self, name: str) -> None:
            if refuses:
                raise ValueError(f"no {name} here")
            self.config._attn_implementation = name

    refuses = True
    kept = ModelSetup(Attends(2, 2), plain_config(), CPU)
    refuses = False
    switched = ModelSetup(Attends(2, 2), plain_config(), CPU)

    assert ([], ["scaled-dot-product attention"]) == (kept.changes, switched.changes)
    assert "sdpa" == switched.model.config._attn_implementation


def test_weights_that_do_not_fit() -> None:
    """The error says so before anything is trained."""

    class Huge(nn.Linear):
        def to(self, *args: object, **options: object) -> nn.Linear:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 90.00 GiB.")

    with pytest.raises(DoesNotFit, match="the weights alone"):
        ModelSetup(Huge(2, 2), plain_config(), CPU)


def test_a_broken_step_in_float16_leaves_the_scaler_usable() -> None:
    """Its gradients were unscaled already; the next step must be able to unscale its own."""
    task = ToyTask()
    train_step = make_train_step(task, precision="fp16", faults=Faults(broken=lambda step, indices: step == 0))

    assert take(train_step, task, range(8), 4).failure is not None
    assert take(train_step, task, range(8), 4, step=1).applied
