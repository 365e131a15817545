"""Precision fallback: the next precision after numbers that are not finite, and an error when there is none left.

After a clean stretch in a lower precision the one above is tried again; each fall from a precision that was tried again
doubles the stretch, so a run that cannot bear it falls a logarithmic number of times. The loop restores its last good
snapshot before it falls back. PURE but for its own counts: it touches no tensor. No other trainer falls back by itself;
transformers' even reports a run of NaN as "loss 0.0".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.errors import TrainingFailed

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


@dataclass(frozen=True, slots=True)
class Fallback:
    """What to do after a failure: restore the snapshot, then go on so."""

    precision: str
    excluded: tuple[int, ...]  # all examples excluded so far
    message: str  # one sentence for people


@dataclass(frozen=True, slots=True)
class Recovery:
    """The precision to go on in after a clean stretch in the one below it."""

    precision: str
    message: str  # one sentence for people


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

    def recover(self) -> Recovery:
        """Go back up to the precision above; only when it is due.

        Examples that failed there once, and not in this one, are no suspects any more.
        """
        before, stretch = self.precision, self._clean_steps
        self._strikes = Counter({index: self._strikes[index] for index in self.excluded})
        self._index -= 1
        self._drops, self._clean_steps, self._recovered = 0, 0, True
        self.reset_skipped()
        return Recovery(self.precision, f"{stretch} clean steps in {before}: back to {self.precision}")

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

    def fall_back(self, failure: NumericFailure, *, lost_steps: int = 0) -> Fallback:
        """How to go on.

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
        return Fallback(self.precision, self.excluded, self._message(failure, before, newly_excluded))

    def state_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        strikes = {str(index): count for index, count in self._strikes.items()}
        return {
            "rung": self.precision,
            "drops": self._drops,
            "at_bottom": self._last_failures,
            "strikes": strikes,
            "clean_steps": self._clean_steps,
            "falls_after_recovery": self._falls_after_recovery,
            "recovered": self._recovered,
            "skipped": list(self._skipped),
            "at_min_scale": self._at_min_scale,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; a precision that this machine does not have leaves the run at its best one."""
        if state["rung"] in self._precisions:
            self._index = self._precisions.index(state["rung"])
        self._drops, self._last_failures = int(state["drops"]), int(state["at_bottom"])
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
