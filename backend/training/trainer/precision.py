"""The precision of a run: which ones it may use, autocast, the gradient scaler, and the fallback when numbers break.

After numbers that are not finite comes the next precision, and an error when there is none left. After a clean stretch
in a lower precision the one above is tried again; each fall from a precision that was tried again doubles the stretch,
so a run that cannot bear it falls a logarithmic number of times. No other trainer falls back by itself; transformers'
even reports a run of NaN as "loss 0.0".
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import _refresh_per_optimizer_state  # until torch offers a way to discard a step
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from backend.device.plan.attention import flash_preferred
from backend.device.plan.precision import amp_dtype, fp32_precision, set_fp32_precision, torch_dtype
from backend.device.records import DeviceType
from backend.errors import BadSettings, TrainingFailed
from backend.training.records import MixedPrecisionConfig, TrainingConfig
from backend.training.trainer.model_setup import parameters_of

_TF32_SINCE = (8, 0)  # compute capability: Ampere


def precisions_for(
    config: TrainingConfig, kind: DeviceType, native: Sequence[str], *, tf32: bool = False
) -> tuple[tuple[str, ...], str]:
    """PURE: the precisions that this run may use, in the order in which it falls back, and why it starts so.

    Half precision that is asked for by name is granted even where it is emulated; the fallback goes down to bf16 only
    where the hardware has it, and to tf32 only on cards that do.

    Args:
        native: half dtypes that hardware and model support, best first, and "fp32" (``Placement.dtypes``).

    Raises: BadSettings for float16 on a CPU.
    """
    wish = config.short_dtype
    below = (*(("tf32",) if tf32 else ()), "fp32")
    if not config.use_amp or not config.mixed_precision.enabled:
        return ("fp32",), "fp32: mixed precision is off"
    if wish == "fp16" and kind is DeviceType.CPU:
        raise BadSettings(["dtype=float16 on a CPU: it computes it slowly and overflows; use bfloat16 or auto"])
    start = wish if wish != "auto" else amp_dtype(native)
    if start is None:
        return below, f"{below[0]}: half precision gains nothing here"
    why = f"{start}: {'as asked' if wish != 'auto' else 'the best that device and model bear'}"
    if start == "fp16" and "bf16" in native:
        return ("fp16", "bf16", *below), why
    return (start, *below), why


def has_tf32(device: torch.device) -> bool:
    """Whether this card multiplies float32 on tensor cores."""
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= _TF32_SINCE


class MixedPrecision:
    """The precision in use: autocast, how float32 is multiplied, and the scaler that float16 alone needs.

    The training loop and ``MixedPrecisionTrainer`` both take their optimizer steps through it.

    Args:
        name: "fp16", "bf16", "tf32" or "fp32".
    """

    def __init__(self, device: torch.device, config: MixedPrecisionConfig, name: str) -> None:
        self._device, self._config = device, config
        self.name = name
        self.scaler: ClampedGradScaler | None = None
        self.switch_to(name)

    def switch_to(self, name: str) -> None:
        """From the next step on compute in this precision; a scaler starts anew."""
        self.name = name
        scaled = name == "fp16" and self._config.scales
        self.scaler = ClampedGradScaler(self._device.type, self._config) if scaled else None
        if self.scaler is not None:
            self.scaler.scale(torch.zeros((), device=self._device))  # made now: a rank may never have a loss
        if self._device.type == "cuda":  # beside half precision some products stay in float32: TF32 is finer than bf16
            set_fp32_precision("ieee" if name == "fp32" else "tf32")

    def autocast(self) -> AbstractContextManager[object]:
        """Around forward passes."""
        if self.name not in ("bf16", "fp16"):
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch_dtype(self.name))

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of ``loss``, scaled where float16 needs it."""
        torch.autograd.backward(loss if self.scaler is None else self.scaler.scale(loss))

    def clip_gradients(self, optimizer: Optimizer, max_norm: float | None, *, factor: float = 1.0) -> Tensor:
        """Unscale, multiply by ``factor`` and clip the gradients; their norm before clipping, still on the device."""
        parameters = parameters_of(optimizer)
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.scaler is not None and grads:
            self.scaler.unscale_(optimizer)
        if grads and factor != 1:
            torch._foreach_mul_(grads, factor)  # torch's optimizers' own; one kernel
        norm = get_total_norm(grads).to(self._device)
        if max_norm is not None:
            clip_grads_with_norm_(parameters, max_norm, norm)
        return norm

    def step(self, optimizer: Optimizer, *, finite: bool) -> None:
        """Change the weights if the gradients are finite; adapt the scale either way."""
        if self.scaler is None:
            if finite:
                optimizer.step()
            return
        if finite:
            self.scaler.step(optimizer)
        self.scaler.update()

    def discard(self, optimizer: Optimizer) -> None:
        """Drop the gradients and what the scaler knows of them, as if their backward passes had not been."""
        optimizer.zero_grad(set_to_none=True)
        if self.scaler is not None:
            self.scaler.discard_step()

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"precision": self.name, "scaler": None if self.scaler is None else self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from it; the caller replaces a precision that this machine does not have (``switch_to``)."""
        self.switch_to(state["precision"] if "precision" in state else state["rung"])  # its name before 2026-11-27
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


class ClampedGradScaler(torch.amp.GradScaler):
    """Scales the loss so that float16's small gradients do not vanish, between a smallest and a largest scale.

    torch's has no limits: thirty bad steps take it from 65536 to 6e-05, where every gradient is lost. This one stays
    within ``min_scale`` and ``max_scale``, and lowers the scale only at the ``hysteresis``-th bad step in a row, as
    Megatron-LM does; each further one in the same row lowers it again.

    Args:
        device: kind of the device, "cuda", "cpu" or "mps".
    """

    def __init__(self, device: str, config: MixedPrecisionConfig) -> None:
        super().__init__(
            device,
            init_scale=config.initial_scale,
            growth_factor=config.growth_factor,
            backoff_factor=config.backoff_factor,
            growth_interval=config.growth_interval,
        )
        self._min, self._max, self._hysteresis = config.min_scale, config.max_scale, config.hysteresis
        self._bad_in_row = 0

    @property
    def at_min_scale(self) -> bool:
        """Whether the scale cannot fall any further."""
        return bool(self.get_scale() <= self._min)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """After each step, taken or not: raise, keep or lower the scale. Waits for the device."""
        if self._enabled and new_scale is None and self._tolerates_bad_step():
            self.discard_step()
            return
        super().update(new_scale)
        if self._enabled and self._scale is not None:
            self._scale.clamp_(self._min, self._max)

    def discard_step(self) -> None:
        """The current step will not be taken: it ran out of memory midway, and runs again from its beginning.

        Without this the next ``unscale_`` raises, for it was called already.
        """
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**super().state_dict(), "bad_in_row": self._bad_in_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        super().load_state_dict(state_dict)
        self._bad_in_row = int(state_dict["bad_in_row"])

    def _tolerates_bad_step(self) -> bool:
        """Whether the step was bad, and not yet one too many."""
        states = self._per_optimizer_states.values()
        bad = any(found_inf.item() for state in states for found_inf in state["found_inf_per_device"].values())
        self._bad_in_row = self._bad_in_row + 1 if bad else 0
        if not 0 < self._bad_in_row < self._hysteresis:
            return False
        if self._growth_tracker is not None:
            self._growth_tracker.zero_()
        return True


@contextlib.contextmanager
def torch_settings(config: TrainingConfig, device: torch.device) -> Iterator[None]:
    """Set what a run changes in torch for the whole process; restore it at the end."""
    deterministic, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    if config.deterministic:
        torch.use_deterministic_algorithms(mode=True)
    try:
        with _card_settings() if device.type == "cuda" else contextlib.nullcontext():
            yield
    finally:
        torch.use_deterministic_algorithms(mode=deterministic, warn_only=warn_only)


@contextlib.contextmanager
def _card_settings() -> Iterator[None]:
    """How a card attends and multiplies in float32, which ``MixedPrecision`` changes: at the end as before."""
    fp32 = fp32_precision()
    try:
        with flash_preferred():
            yield
    finally:
        set_fp32_precision(fp32)


_DROPS = 2  # in a run; the second goes to full precision, for tf32 has no wider range than bf16
_FAILURES_IN_FULL_PRECISION = 2  # the first is tried again, the second excludes examples
_STRIKES = 2  # failures of an example before it is excluded
_MIN_SCALE_STEPS = 4  # bad steps in a row at the smallest scale: the scale is not what is wrong
_WINDOW_STEPS, _SKIPPED_RATIO = 100, 0.1  # of a run that works, one step in 2000 is skipped (torch's growth interval)
_SHOWN_EXAMPLES = 8  # in one message


@dataclass(frozen=True, slots=True)
class NumericFailure:
    """A loss, gradient or weight that is not finite, and the examples it came with."""

    reason: str  # one sentence without its full stop
    examples: tuple[int, ...] = ()  # suspects; empty where nobody can tell


class PrecisionFallback:
    """Which precision a run uses, when it falls back to the next, and when it returns. All ranks hold the same.

    Args:
        precisions: in the order of fallback (``precision.precisions_for``).
        recovery_interval: clean steps in a lower precision before the one above is tried again; None: never.
    """

    def __init__(self, precisions: Sequence[str], recovery_interval: int | None = None) -> None:
        self._precisions = tuple(precisions)
        self._interval = recovery_interval
        self._index = 0
        self._drops = 0  # since the run began or recovered
        self._clean_steps = 0  # since the precision changed or something failed; below 0: steps that are run again
        self._falls_after_recovery = 0  # each doubles the next stretch
        self._recovered = False  # whether the precision in use was reached by recovery
        self._last_failures = 0  # in the last precision
        self._strikes = Counter[int]()
        self._skipped: deque[bool] = deque(maxlen=_WINDOW_STEPS)
        self._at_min_scale = 0

    @property
    def precision(self) -> str:
        """The precision in use."""
        return self._precisions[self._index]

    @property
    def excluded(self) -> tuple[int, ...]:
        """Examples that failed twice, in order."""
        return tuple(sorted(index for index, strikes in self._strikes.items() if strikes >= _STRIKES))

    @property
    def clean_steps_to_recover(self) -> int | None:
        """How long a clean stretch must be now; None where the precision above is never tried again."""
        return None if self._interval is None else self._interval * 2**self._falls_after_recovery

    @property
    def recovery_is_due(self) -> bool:
        """Whether the precision above should be tried from the next step on."""
        needed = self.clean_steps_to_recover
        return self._index > 0 and needed is not None and self._clean_steps >= needed

    def after_clean_step(self) -> None:
        """After each step that changed the weights."""
        self._clean_steps += 1

    def recover(self) -> str:
        """Go back up to the precision above, only when it is due; returns a sentence for people.

        Examples that failed there once, and not in this one, are no suspects any more.
        """
        before, stretch = self.precision, self._clean_steps
        self._strikes = Counter({index: self._strikes[index] for index in self.excluded})
        self._index -= 1
        self._drops, self._clean_steps, self._recovered = 0, 0, True
        self.reset_skipped()
        return f"{stretch} clean steps in {before}: back to {self.precision}"

    def after_scaled_step(self, *, skipped: bool, at_min_scale: bool) -> NumericFailure | None:
        """After each step with a scaler: whether so many were skipped that the precision is at fault."""
        self._skipped.append(skipped)
        self._at_min_scale = self._at_min_scale + 1 if skipped and at_min_scale else 0
        if self._at_min_scale >= _MIN_SCALE_STEPS:
            return NumericFailure(
                f"gradients were not finite in {_MIN_SCALE_STEPS} steps in a row at the smallest loss scale"
            )
        ratio = sum(self._skipped) / _WINDOW_STEPS
        if len(self._skipped) == _WINDOW_STEPS and ratio > _SKIPPED_RATIO:
            return NumericFailure(
                f"{ratio:.0%} of the last {_WINDOW_STEPS} steps were skipped for gradients that overflowed"
            )
        return None

    def reset_skipped(self) -> None:
        """Forget the skipped steps: the run went back, or computes in another precision."""
        self._skipped.clear()
        self._at_min_scale = 0

    def fall_back(self, failure: NumericFailure, *, lost_steps: int = 0) -> str:
        """After a failure: restore the snapshot, then go on in ``precision`` without ``excluded``.

        Returns: what was decided, as a sentence for people.

        Args:
            lost_steps: that are run again in the lower precision, up to the one that failed; the clean stretch begins
                after them, or the precision above would meet the same step again.

        Raises: TrainingFailed, naming the examples, when there is no way left.
        """
        before, known = self.precision, set(self.excluded)
        self._strikes.update(set(failure.examples))
        newly_excluded = [index for index in self.excluded if index not in known]
        self._clean_steps = -lost_steps
        if self._index < len(self._precisions) - 1:
            self._falls_after_recovery += self._recovered
            self._recovered = False
            self._drops += 1
            self._index = self._index + 1 if self._drops < _DROPS else len(self._precisions) - 1
        else:
            self._last_failures += 1
            if self._last_failures > (_FAILURES_IN_FULL_PRECISION if newly_excluded else 1):
                raise TrainingFailed(self._refusal(failure))
        return self._message(failure, before, newly_excluded)

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        strikes = {str(index): count for index, count in self._strikes.items()}
        return {
            "precision": self.precision,
            "drops": self._drops,
            "failures_in_last": self._last_failures,
            "strikes": strikes,
            "clean_steps": self._clean_steps,
            "falls_after_recovery": self._falls_after_recovery,
            "recovered": self._recovered,
            "skipped": list(self._skipped),
            "at_min_scale": self._at_min_scale,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; a precision that this machine does not have leaves the run at its best one."""
        old = {"rung": "precision", "at_bottom": "failures_in_last"}  # names before 2026-11-27
        state = {old.get(name, name): value for name, value in state.items()}
        if state["precision"] in self._precisions:
            self._index = self._precisions.index(state["precision"])
        self._drops, self._last_failures = int(state["drops"]), int(state["failures_in_last"])
        self._strikes = Counter({int(index): int(count) for index, count in state["strikes"].items()})
        self._clean_steps = int(state.get("clean_steps", 0))  # of here on: absent in checkpoints before 2026-11-23
        self._falls_after_recovery = int(state.get("falls_after_recovery", 0))
        self._recovered = bool(state.get("recovered", False))
        self._skipped = deque(map(bool, state.get("skipped", ())), maxlen=_WINDOW_STEPS)
        self._at_min_scale = int(state.get("at_min_scale", 0))

    def _message(self, failure: NumericFailure, before: str, excluded: Sequence[int]) -> str:
        step = f"from {before} to {self.precision}" if before != self.precision else f"once more in {self.precision}"
        without = f", without example(s) {list_examples(excluded)}, which failed twice" if excluded else ""
        return f"{failure.reason}{_with(failure.examples)}: back to the last good snapshot, {step}{without}"

    def _refusal(self, failure: NumericFailure) -> str:
        advice = "look at them first; otherwise lower the learning rate or clip gradients more (max_grad_norm)"
        if not failure.examples:
            advice = "lower the learning rate or clip gradients more (max_grad_norm)"
        return f"{failure.reason}{_with(failure.examples)}, in {self.precision} too: {advice}"


def find_bad_examples(examples: Sequence[int], is_bad: Callable[[Sequence[int]], bool]) -> list[int]:
    """Those examples that are bad alone, found by halving: a few calls where few are bad.

    Args:
        is_bad: whether these examples together break.
    """
    bad: list[int] = []
    waiting = [list(examples)]
    while waiting:
        part = waiting.pop()
        if not part or not is_bad(part):
            continue
        if len(part) == 1:
            bad += part
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
    return bad


def list_examples(examples: Iterable[int]) -> str:
    """Indices for people: the first few, and how many more."""
    indices = list(examples)
    more = f" and {len(indices) - _SHOWN_EXAMPLES} more" if len(indices) > _SHOWN_EXAMPLES else ""
    return ", ".join(str(index) for index in indices[:_SHOWN_EXAMPLES]) + more


def _with(examples: Sequence[int]) -> str:
    return f" with example(s) {list_examples(examples)}" if examples else ""
