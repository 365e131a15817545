"""Splitting a batch that fails whole: exactly one outcome an item, in order, and nothing held of what failed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.device.batch_split import in_parts, let_go, split_and_retry
from backend.device.faults import Fault, FaultKind
from backend.errors import DeviceLost, DoesNotFit

OOM = "CUDA out of memory. Tried to allocate 2.50 GiB."


class Bytes:
    """A stand-in for a tensor that can be watched."""


class Device:
    """Runs items of a cost under a limit, as a card does; ``poison`` fails for another reason. Notes every run."""

    def __init__(self, limit: int, poison: Sequence[int] = ()) -> None:
        self.limit, self.poison = limit, frozenset(poison)
        self.runs: list[list[int]] = []

    def __call__(self, part: Sequence[int]) -> list[int]:
        self.runs.append(list(part))
        if sum(part) > self.limit:
            raise torch.OutOfMemoryError(OOM)
        if self.poison.intersection(part):
            raise ValueError("bad item")
        return [-item for item in part]


def name_of(error: Exception, part: Sequence[int]) -> str:
    """The simplest judge: an error's name."""
    return type(error).__name__


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(0, 200), st.sets(st.integers(1, 50), max_size=5))
def test_every_item_gets_the_outcome_it_would_get_alone(items, limit, poison):
    """For any limit and any bad items: in order, as if each had run by itself."""
    alone = Device(limit, poison)

    def expected(item: int) -> int | str:
        try:
            return alone([item])[0]
        except (RuntimeError, ValueError) as error:
            return type(error).__name__

    assert [expected(item) for item in items] == in_parts(items, Device(limit, poison), name_of)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(50, 300))
def test_exhausted_memory_changes_no_result(items, limit):
    """Whatever the limit, as long as each item fits alone: equal to the run without one, in order."""
    assert Device(10**9)(items) == split_and_retry(items, Device(limit))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=64), st.integers(9, 60))
def test_misses_are_few(items, limit):
    """A limit is met at most once for each halving, and every item runs to its end once."""
    device = Device(limit)
    misses: list[int] = []

    split_and_retry(items, device, missed=lambda fault, part: misses.append(len(part)))

    assert len(misses) <= len(items).bit_length()
    assert misses == sorted(misses, reverse=True)
    assert items == [item for run in device.runs if sum(run) <= limit for item in run]


def test_the_parts_of_a_failed_batch():
    """Halves, the first first; the whole other half runs at once when its own half is sound."""
    device = Device(10**9, poison=[3])

    assert [-1, -2, "ValueError", -4, -5, -6, -7, -8] == in_parts([1, 2, 3, 4, 5, 6, 7, 8], device, name_of)
    assert [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], [1, 2], [3, 4], [3], [4], [5, 6, 7, 8]] == device.runs


@pytest.mark.parametrize("results", [[], [1], [1, 2, 3]], ids=["none", "too-few", "too-many"])
def test_a_wrong_number_of_results(results):
    """Results that cannot be told apart are nobody's; the same from one item alone is its error."""
    errors: list[str] = []

    def judge(error: Exception, part: Sequence[str]) -> str:
        errors.append(str(error))
        return "error"

    outcomes = in_parts(["a", "b"], lambda part: results if len(part) == 2 else ["sound"], judge)

    assert ["sound", "sound"] == outcomes
    assert [f"{len(results)} results came back for 2 items"] == errors


def test_nothing_to_run():
    """No items, no run, no outcome."""
    device = Device(0)

    assert ([], []) == (in_parts([], device, name_of), split_and_retry([], device))
    assert [] == device.runs


def test_the_judge_sees_every_failed_part():
    """Also those that will be split, so that limits are lowered at each miss."""
    seen: list[int] = []

    def judge(error: Exception, part: Sequence[int]) -> str:
        seen.append(len(part))
        return "error"

    in_parts([1, 1, 9, 1], Device(8), judge)

    assert [4, 2, 1] == seen


def test_the_judge_may_end_everything():
    """A lost device: nothing more is run."""
    device = Device(0)

    def judge(error: Exception, part: Sequence[int]) -> str:
        raise DeviceLost("the context is dead") from error

    with pytest.raises(DeviceLost):
        in_parts([1, 2, 3, 4], device, judge)

    assert [[1, 2, 3, 4]] == device.runs


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=["interrupt", "exit"])
def test_an_interrupt_is_no_failure(error):
    """It passes through at once."""

    def run(part: Sequence[int]) -> list[int]:
        raise error

    with pytest.raises(type(error)):
        in_parts([1, 2], run, name_of)


class Holder:
    """Fails with a large local in its frame, in ways that hold it: raised, chained, during handling, in a group."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.held: list[weakref.ref[Bytes]] = []
        self.alive_at_retry: list[bool] = []

    def __call__(self, part: Sequence[int]) -> list[int]:
        self.alive_at_retry.append(any(reference() is not None for reference in self.held))
        if len(part) > 1:
            getattr(self, self.how)()
        return list(part)

    def raised(self) -> None:
        activations = Bytes()
        self.held.append(weakref.ref(activations))
        raise torch.OutOfMemoryError(OOM)

    def chained(self) -> None:
        try:
            self.raised()
        except RuntimeError as error:
            raise ValueError("the engine failed") from error

    def implicit(self) -> None:
        try:
            self.raised()
        except RuntimeError:
            raise ValueError("cleaning up failed too")  # noqa: B904  # the case is about the implicit context

    def grouped(self) -> None:
        try:
            self.raised()
        except RuntimeError as error:
            group = ExceptionGroup("lanes", [error])
        raise group


@pytest.mark.parametrize("how", ["raised", "chained", "implicit", "grouped"])
def test_what_failed_is_let_go_of_before_the_halves_run(how):
    """The frames of the failed run would hold its tensors exactly while the halves need the memory."""
    device = Holder(how)

    assert [1, 2, 3, 4] == in_parts([1, 2, 3, 4], device, name_of)
    assert [False] * 7 == device.alive_at_retry
    assert 3 == len(device.held)


@pytest.mark.parametrize("how", ["raised", "chained", "implicit", "grouped"])
def test_an_error_kept_by_its_item_holds_nothing(how):
    """The outcome of a lone item may carry its cause for long: not the memory with it."""
    device = Holder(how)

    outcomes = in_parts([1], lambda part: device([*part, *part]), lambda error, part: error)

    assert [True] == [isinstance(outcome, Exception) for outcome in outcomes]
    assert [None] == [reference() for reference in device.held]


def test_let_go_survives_frames_that_run():
    """Its own caller's frame is in the traceback and must stay as it is."""
    mine = Bytes()
    try:
        raise ValueError
    except ValueError as error:
        let_go(error)

    assert isinstance(mine, Bytes)


def test_a_lone_item_that_does_not_fit():
    """DoesNotFit, from the library's own error; the items before it had run."""
    device = Device(10)

    with pytest.raises(DoesNotFit, match=r"one item does not fit: CUDA out of memory") as caught:
        split_and_retry([1, 2, 30, 4], device)

    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert [1, 2] in device.runs


def test_advice_for_a_lone_item():
    """Whoever knows the numbers writes the message."""
    with pytest.raises(DoesNotFit, match=r"^item 30 needs 2684354560 bytes$"):
        split_and_retry([30], Device(10), advise=lambda fault, item: f"item {item} needs {fault.requested_bytes} bytes")


def test_a_lone_item_is_tried_again_after_memory_was_given_back():
    """What fails at the driver does not know what torch's cache holds; once, not forever."""
    device = Device(10)

    def free() -> None:
        device.limit = 30

    assert [-30] == split_and_retry([30], device, free=free)

    device = Device(10)
    with pytest.raises(DoesNotFit):
        split_and_retry([30], device, free=lambda: None)

    assert [[30], [30]] == device.runs


def test_each_lone_item_has_its_second_try():
    """Not only the first of the batch."""
    device, freed = Device(10), list[int]()

    def free() -> None:
        freed.append(device.limit)
        device.limit = (15, 20, 30)[len(freed) - 1]

    assert [-20, -30] == split_and_retry([20, 30], device, free=free)


def test_misses_are_told():
    """With the fault and the part, before memory is given back."""
    told: list[tuple[Fault, int]] = []

    split_and_retry([5, 5, 5, 5], Device(10), missed=lambda fault, part: told.append((fault, len(part))))

    assert [(Fault(FaultKind.OUT_OF_MEMORY, "torch", OOM, 5 * 2**29), 4)] == told


@pytest.mark.parametrize(
    "error", [ValueError("bad item"), RuntimeError("CUDA error: device-side assert triggered")], ids=["other", "dead"]
)
def test_other_errors_are_raised_as_they_are(error):
    """Splitting is for memory: an error of the code or a dead context would fail again."""
    runs: list[int] = []

    def run(part: Sequence[int]) -> list[int]:
        runs.append(len(part))
        raise error

    with pytest.raises(type(error)) as caught:
        split_and_retry([1, 2], run)

    assert error is caught.value
    assert [2] == runs


def test_real_memory_of_the_device(device):
    """On a card (--device cuda:0) a batch that cannot be allocated whole is answered in parts; a CPU likewise."""
    huge = 2**50  # more than any machine has: refused by allocator and driver alike

    def run(part: Sequence[int]) -> list[int]:
        torch.empty(huge if len(part) > 2 else 16, dtype=torch.uint8, device=device)
        return [item + int(torch.ones(1, device=device).item()) for item in part]

    assert [2, 3, 4, 5, 6] == split_and_retry([1, 2, 3, 4, 5], run)
