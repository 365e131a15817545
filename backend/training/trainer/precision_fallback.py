"""What to do when numbers break: one rung down from the last good snapshot, and in the end a stop that names examples.

PURE but for its own counts: it touches no tensor. The guides of this field promise that precision falls back by itself,
and no trainer does it (research/gpu_training.md §7); transformers' even reports a run of NaN as "loss 0.0".
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.errors import TrainingFailed

_DROPS = 2  # in a run; the second goes to the bottom, for tf32 has no wider range than bf16
_FAILURES_AT_BOTTOM = 2  # borne in full precision: the first is tried again, the second leaves examples out
_STRIKES = 2  # failures of an example before it is left out
_FLOOR_STEPS = 4  # bad steps in a row at the scaler's floor: the scale is not what is wrong
_WINDOW_STEPS, _SKIPPED_RATIO = 100, 0.1  # of a run that works, one step in 2000 is skipped (torch's growth interval)
_NAMED = 8  # examples in one message


@dataclass(frozen=True, slots=True)
class Trouble:
    """Numbers that broke, and with which examples."""

    what: str  # one sentence without its full stop
    examples: tuple[int, ...] = ()  # suspects; empty where nobody can tell


@dataclass(frozen=True, slots=True)
class Fall:
    """What to do after trouble: go back to the snapshot, then this."""

    rung: str
    leave_out: tuple[int, ...]  # all examples left out so far
    message: str  # one sentence for people


class Health:
    """Judges the scaler's skipped steps; anew after each fall."""

    def __init__(self) -> None:
        self._window: deque[bool] = deque(maxlen=_WINDOW_STEPS)
        self._at_floor = 0

    def step(self, *, skipped: bool, at_floor: bool) -> Trouble | None:
        """After each step with a scaler: whether it was skipped, and whether the scale cannot fall further."""
        self._window.append(skipped)
        self._at_floor = self._at_floor + 1 if skipped and at_floor else 0
        if self._at_floor >= _FLOOR_STEPS:
            return Trouble(f"gradients were not finite in {_FLOOR_STEPS} steps in a row at the smallest loss scale")
        ratio = sum(self._window) / _WINDOW_STEPS
        if len(self._window) == _WINDOW_STEPS and ratio > _SKIPPED_RATIO:
            return Trouble(f"{ratio:.0%} of the last {_WINDOW_STEPS} steps were skipped for gradients that overflowed")
        return None

    def reset(self) -> None:
        """Forget what was seen: the precision is another now."""
        self._window.clear()
        self._at_floor = 0


class Ladder:
    """The rungs of a run, and where it stands. All ranks hold the same.

    Args:
        rungs: precisions, the best first (``numerics.rungs_for``).
    """

    def __init__(self, rungs: Sequence[str]) -> None:
        self._rungs = tuple(rungs)
        self._at = 0
        self._drops = 0
        self._at_bottom = 0  # failures on the last rung
        self._strikes = Counter[int]()

    @property
    def rung(self) -> str:
        """The precision in force."""
        return self._rungs[self._at]

    @property
    def left_out(self) -> tuple[int, ...]:
        """Examples that failed twice, in order."""
        return tuple(sorted(index for index, strikes in self._strikes.items() if strikes >= _STRIKES))

    def fall(self, trouble: Trouble) -> Fall:
        """Where to go from here. Raises: TrainingFailed, naming the examples, when there is nowhere left."""
        before, known = self.rung, set(self.left_out)
        self._strikes.update(set(trouble.examples))
        fresh = [index for index in self.left_out if index not in known]
        if self._at < len(self._rungs) - 1:
            self._drops += 1
            self._at = self._at + 1 if self._drops < _DROPS else len(self._rungs) - 1
        else:
            self._at_bottom += 1
            if self._at_bottom > (_FAILURES_AT_BOTTOM if fresh else 1):
                raise TrainingFailed(self._refusal(trouble))
        return Fall(self.rung, self.left_out, self._message(trouble, before, fresh))

    def state(self) -> dict[str, Any]:
        """Ready for JSON."""
        strikes = {str(index): count for index, count in self._strikes.items()}
        return {"rung": self.rung, "drops": self._drops, "at_bottom": self._at_bottom, "strikes": strikes}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; a rung that this machine does not have leaves the run at its best one."""
        if state["rung"] in self._rungs:
            self._at = self._rungs.index(state["rung"])
        self._drops, self._at_bottom = int(state["drops"]), int(state["at_bottom"])
        self._strikes = Counter({int(index): int(count) for index, count in state["strikes"].items()})

    def _message(self, trouble: Trouble, before: str, fresh: Sequence[int]) -> str:
        step = f"from {before} to {self.rung}" if before != self.rung else f"once more in {self.rung}"
        out = f", without example(s) {named(fresh)}, which failed twice" if fresh else ""
        return f"{trouble.what}{_with(trouble.examples)}: back to the last good snapshot, {step}{out}"

    def _refusal(self, trouble: Trouble) -> str:
        advice = "look at them first; otherwise lower the learning rate or clip gradients more (max_grad_norm)"
        if not trouble.examples:
            advice = "lower the learning rate or clip gradients more (max_grad_norm)"
        return f"{trouble.what}{_with(trouble.examples)}, in {self.rung} too: {advice}"


def suspects(examples: Sequence[int], is_bad: Callable[[Sequence[int]], bool]) -> list[int]:
    """Those examples that are bad alone, found by halving: a few calls where few are bad.

    Args:
        is_bad: whether these examples together break.
    """
    found: list[int] = []
    waiting = [list(examples)]
    while waiting:
        part = waiting.pop()
        if not part or not is_bad(part):
            continue
        if len(part) == 1:
            found += part
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
    return found


def named(examples: Iterable[int]) -> str:
    """Indices for people: the first few, and how many more."""
    listed = list(examples)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(str(index) for index in listed[:_NAMED]) + more


def _with(examples: Sequence[int]) -> str:
    return f" with example(s) {named(examples)}" if examples else ""
