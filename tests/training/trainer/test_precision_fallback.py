"""After a failure: back to the last good snapshot in the next precision; in the end an error that names examples."""

import json
import math
from collections.abc import Sequence

import pytest
import torch

from backend.device.records import DeviceType
from backend.errors import BadSettings, TrainingFailed
from backend.training.records import MixedPrecisionConfig, TrainingResult
from backend.training.trainer.loop import train
from backend.training.trainer.precision import (
    NumericFailure,
    PrecisionFallback,
    find_bad_examples,
    precisions_for,
)
from tests.toy_training import Faults, RecordingObserver, ToyTask, difference, plain_config, same_bits, weights_of

ALL = ("fp16", "bf16", "tf32", "fp32")


def once(step: int) -> Faults:
    """NaN at one step, the first time it is reached."""
    done: list[int] = []

    def broken(now: int, indices: Sequence[int]) -> bool:
        if now == step and not done:
            done.append(now)
            return True
        return False

    return Faults(broken=broken)


@pytest.mark.parametrize(
    ("kind", "native", "settings", "tf32", "expected"),
    [
        pytest.param("cuda", ["bf16", "fp16", "fp32"], {}, True, ["bf16", "tf32", "fp32"], id="ampere"),
        pytest.param("cuda", ["bf16", "fp16", "fp32"], {"dtype": "float16"}, True, list(ALL), id="ampere-fp16-asked"),
        pytest.param("cuda", ["fp16", "fp32"], {}, False, ["fp16", "fp32"], id="turing-has-no-bf16-to-fall-to"),
        pytest.param("cuda", ["fp32"], {}, False, ["fp32"], id="pascal"),
        pytest.param("cpu", ["fp32"], {}, False, ["fp32"], id="cpu"),
        pytest.param("cpu", ["bf16", "fp32"], {}, False, ["bf16", "fp32"], id="cpu-with-bf16"),
        pytest.param(
            "cpu", ["fp32"], {"dtype": "bfloat16"}, False, ["bf16", "fp32"], id="an-explicit-dtype-is-granted"
        ),
        pytest.param("cuda", ["bf16", "fp32"], {"enabled": False}, True, ["fp32"], id="off"),
    ],
)
def test_precisions(kind: str, native: list[str], settings: dict, tf32: bool, expected: list[str]) -> None:
    """Down to bf16 only where the hardware has it, to tf32 only on cards that do, and to fp32 everywhere."""
    config = plain_config(use_amp=True, mixed_precision=MixedPrecisionConfig(**settings))

    assert expected == list(precisions_for(config, DeviceType(kind), native, tf32=tf32)[0])


def test_fp16_on_a_cpu_is_refused() -> None:
    """The error gives the reason before anything runs."""
    config = plain_config(use_amp=True, mixed_precision=MixedPrecisionConfig(dtype="float16"))
    with pytest.raises(BadSettings, match="float16 on a CPU"):
        train(ToyTask(), config, output=None)


@pytest.mark.parametrize(
    ("precisions", "failures", "expected"),
    [
        pytest.param(ALL, 2, ["bf16", "fp32"], id="the-second-drop-goes-to-the-bottom"),
        pytest.param(ALL[1:], 2, ["tf32", "fp32"], id="one-precision-each"),
        pytest.param(("fp16", "fp32"), 2, ["fp32", "fp32"], id="then-once-more"),
        pytest.param(("fp32",), 1, ["fp32"], id="nowhere-to-fall-try-again"),
    ],
)
def test_the_order_of_fallback(precisions: tuple[str, ...], failures: int, expected: list[str]) -> None:
    """At most two drops; in full precision one more try."""
    fallback = PrecisionFallback(precisions)

    reached = []
    for _ in range(failures):
        fallback.fall_back(NumericFailure("the loss was not finite"))
        reached.append(fallback.precision)

    assert expected == reached


def test_examples_are_excluded_once() -> None:
    """The next failure in full precision ends the run, though it has new suspects; the error names a few."""
    fallback = PrecisionFallback(("fp32",))
    for examples in (range(40), range(20)):
        fallback.fall_back(NumericFailure("x", tuple(examples)))

    with pytest.raises(TrainingFailed, match="and 12 more"):
        fallback.fall_back(NumericFailure("x", tuple(range(20, 40))))


def test_state_comes_back() -> None:
    """A resumed run does not go back to the precision that failed."""
    fallback, other, elsewhere = PrecisionFallback(ALL), PrecisionFallback(ALL), PrecisionFallback(("fp32",))
    fallback.fall_back(NumericFailure("x", (5,)))
    state = json.loads(json.dumps(fallback.state_dict()))
    other.load_state_dict(state)
    elsewhere.load_state_dict(state)

    assert ("bf16", "fp32") == (other.precision, elsewhere.precision)

    other.fall_back(NumericFailure("x", (5,)))

    assert (5,) == other.excluded


@pytest.mark.parametrize(
    ("skips", "floor", "expected"),
    [
        pytest.param("ssss", "ffff", "4 steps in a row", id="at-the-floor"),
        pytest.param("ssgss", "fffff", None, id="a-good-step-between"),
        pytest.param("ssssss", "......", None, id="still-falling"),
        pytest.param("s" * 11 + "g" * 89, "." * 100, "11% of the last 100", id="one-in-ten"),
        pytest.param("s" * 10 + "g" * 90, "." * 100, None, id="not-more-than-one-in-ten"),
        pytest.param("s" * 50, "." * 50, None, id="no-judgement-before-the-window-is-full"),
    ],
)
def test_skipped_steps(skips: str, floor: str, expected: str | None) -> None:
    """Skipped steps are normal for a scaler until they are too many."""
    fallback = PrecisionFallback(ALL)
    failures = [
        fallback.after_scaled_step(skipped=skipped == "s", at_min_scale=at == "f")
        for skipped, at in zip(skips, floor, strict=True)
    ]
    failures = [failure for failure in failures if failure is not None]

    assert (expected is None) == (not failures)
    assert expected is None or expected in failures[0].reason


def test_suspects_are_found_by_halving() -> None:
    """Two bad ones among 64 take some 22 calls, not 64."""
    calls = []

    def is_bad(part: Sequence[int]) -> bool:
        calls.append(part)
        return bool({3, 40} & set(part))

    assert [3, 40] == find_bad_examples(range(64), is_bad)
    assert len(calls) < 30


def test_nan_at_a_step_ends_with_a_finite_loss() -> None:
    """The run goes back and ends as one that never failed; an event says what happened."""
    calm, hit, notes = ToyTask(), ToyTask(), RecordingObserver()
    expected = train(calm, plain_config(), output=None)
    result = train(hit, plain_config(), output=None, faults=once(7), observers=[notes])

    assert math.isfinite(result.loss)
    assert result.loss > 0
    assert expected.loss == result.loss
    assert same_bits(weights_of(calm.model), weights_of(hit.model))
    assert ["precision"] == [event.kind for event in result.events]
    assert "step 7: the loss was not finite with example(s)" in result.events[0].message
    assert 6 == result.events[0].step  # the snapshot of step 6 is in force again


def test_one_bad_example_is_found_and_left_out() -> None:
    """Example 17 alone breaks the loss, always: it alone is named and excluded, and the run trains on the rest."""
    notes = RecordingObserver()
    faults = Faults(broken=lambda step, indices: 17 in indices)
    result = train(ToyTask(), plain_config(), output=None, faults=faults, observers=[notes])

    assert (17,) == result.skipped
    assert [[17], [17]] == [event.values["examples"] for event in result.events]
    assert math.isfinite(result.loss)
    assert all(math.isfinite(event.values["loss"]) for event in notes.of("step"))


def test_everything_broken_never_ends_as_a_loss_of_zero() -> None:
    """transformers trains weights of NaN to the end and reports 0.0; here the run fails, naming examples."""
    notes = RecordingObserver()
    with pytest.raises(TrainingFailed, match=r"step 5: the loss was not finite with example\(s\) \d"):
        train(
            ToyTask(), plain_config(), output=None, faults=Faults(broken=lambda step, _: step >= 5), observers=[notes]
        )

    assert notes.of("stop")
    assert not notes.of("end")


def test_weights_that_are_broken_from_the_start() -> None:
    """No loss is finite: the run fails in its first step."""
    task = ToyTask()
    torch.nn.init.constant_(task.model[0].weight, float("nan"))
    with pytest.raises(TrainingFailed, match="step 0"):
        train(task, plain_config(), output=None)


class NanGradient(torch.autograd.Function):
    """A finite loss whose gradient is not."""

    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad * float("nan")


def test_gradients_that_are_not_finite_change_no_weight() -> None:
    """The loss would show it only in the next step, when the weights are lost."""

    class Breaking(ToyTask):
        steps = 0

        def loss(self, model: torch.nn.Module, batch: dict):  # type: ignore[no-untyped-def, override]
            part = super().loss(model, batch)
            self.steps += 1
            return type(part)(NanGradient.apply(part.total), part.weight) if self.steps == 4 else part

    calm, hit = ToyTask(), Breaking()
    train(calm, plain_config(), output=None)
    result = train(hit, plain_config(), output=None)

    assert "its gradients were not" in result.events[0].message
    assert same_bits(weights_of(calm.model), weights_of(hit.model))


def test_a_broken_weight_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that no loss depends on (of an unused class) is found before the next snapshot would keep it."""
    calm, hit = ToyTask(), ToyTask()
    train(calm, plain_config(), output=None)
    real, calls = torch.optim.AdamW.step, []

    def step(self: torch.optim.AdamW, *args: object) -> object:
        calls.append(1)
        done = real(self, *args)
        if len(calls) == 6:
            hit.model[-1].bias.data[0] = float("inf")
        return done

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    result = train(hit, plain_config(), output=None)

    assert "weight(s) are not finite (4.bias)" in result.events[0].message
    assert same_bits(weights_of(calm.model), weights_of(hit.model))


def test_labels_that_are_all_ignored_are_no_loss_of_zero() -> None:
    """0/0: there is nothing to train on, and the error says so."""
    task = ToyTask()
    task.labels.fill_(-100)
    with pytest.raises(TrainingFailed, match="no effective batch had an item with a label"):
        train(task, plain_config(), output=None)


def in_fp16(
    monkeypatch: pytest.MonkeyPatch, task: ToyTask, notes: RecordingObserver, **settings: object
) -> TrainingResult:
    """A run in float16 on the CPU, which only tests do."""
    monkeypatch.setattr(
        "backend.training.trainer.trainer_state.precisions_for", lambda *args, **options: (("fp16", "fp32"), "a test")
    )
    mixed = MixedPrecisionConfig(dtype="float16", initial_scale=4.0, **settings)  # type: ignore[arg-type]
    return train(task, plain_config(use_amp=True, mixed_precision=mixed), output=None, observers=[notes])


def test_fp16_trains_with_a_scaler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that overflow are skipped and reported; the schedule counts the others."""
    notes = RecordingObserver()
    result = in_fp16(
        monkeypatch, ToyTask(), notes, growth_interval=1, growth_factor=16.0, max_scale=2.0**40, hysteresis=1
    )
    skipped = [event for event in notes.of("step") if event.values.get("skipped")]

    assert "fp16" == result.precision
    assert skipped
    assert result.steps == 12 - len(skipped)
    assert math.isfinite(result.loss)


def test_fp16_that_cannot_be_scaled_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that overflow at the smallest scale are not the scale's fault."""

    class Steep(ToyTask):
        def loss(self, model: torch.nn.Module, batch: dict):  # type: ignore[no-untyped-def, override]
            part = super().loss(model, batch)
            if torch.is_autocast_enabled("cpu"):
                return type(part)(NanGradient.apply(part.total), part.weight)
            return part

    notes = RecordingObserver()
    result = in_fp16(monkeypatch, Steep(), notes, hysteresis=1)

    assert "fp32" == result.precision
    assert "4 steps in a row at the smallest loss scale" in result.events[0].message
    assert 12 == result.steps


def test_bf16_trains_nearly_the_same() -> None:
    """Half precision is near full precision on a small task, and its weights stay float32."""
    full, half = ToyTask(), ToyTask()
    train(full, plain_config(), output=None)
    mixed = MixedPrecisionConfig(dtype="bfloat16")
    train(half, plain_config(use_amp=True, mixed_precision=mixed), output=None)

    assert 0 < difference(weights_of(full.model), weights_of(half.model)) < 0.1
    assert {torch.float32} == {one.dtype for one in half.model.parameters()}
