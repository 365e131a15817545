"""Splitting a failed batch: exactly one outcome per item, in order, and the failed run's memory is released."""

import weakref
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.device.batch_split import bisect_on_failure, split_on_oom
from backend.errors import DeviceLost, DoesNotFit

OOM = "CUDA out of memory. Tried to allocate 2.50 GiB."


class Bytes:
    """A stand-in for a tensor, with weak references."""


class Device:
    """Out of memory when a part sums to over ``limit``; ``poison`` items raise ValueError. Records every run."""

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
    """The outcome of a failed item in these tests: the error's class name."""
    return type(error).__name__


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(0, 200), st.sets(st.integers(1, 50), max_size=5))
def test_every_item_has_the_outcome_of_running_alone(items, limit, poison):
    """For any limit and any bad items, in order."""
    alone = Device(limit, poison)

    def expected(item: int) -> int | str:
        try:
            return alone([item])[0]
        except (RuntimeError, ValueError) as error:
            return type(error).__name__

    assert [expected(item) for item in items] == bisect_on_failure(items, Device(limit, poison), name_of)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(50, 300))
def test_out_of_memory_changes_no_result(items, limit):
    """If each item fits alone, the results equal those without a limit."""
    assert Device(10**9)(items) == split_on_oom(items, Device(limit))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=64), st.integers(9, 60))
def test_failures_are_few(items, limit):
    """The limit is hit at most once per halving, and every item succeeds exactly once."""
    device = Device(limit)

    split_on_oom(items, device)

    failures = [len(run) for run in device.runs if sum(run) > limit]
    assert len(failures) <= len(items).bit_length()
    assert failures == sorted(failures, reverse=True)
    assert items == [item for run in device.runs if sum(run) <= limit for item in run]


@pytest.mark.parametrize("results", [[], [1], [1, 2, 3]], ids=["none", "too-few", "too-many"])
def test_a_wrong_number_of_results(results):
    """A part whose results cannot be matched to its items has failed."""
    errors: list[str] = []

    def on_failure(error: Exception, part: Sequence[str]) -> str:
        errors.append(str(error))
        return "error"

    outcomes = bisect_on_failure(["a", "b"], lambda part: results if len(part) == 2 else ["result"], on_failure)

    assert ["result", "result"] == outcomes
    assert [f"{len(results)} results came back for 2 items"] == errors


def test_on_failure_may_raise():
    """For example when the device is lost: nothing more is run."""
    device = Device(0)

    def on_failure(error: Exception, part: Sequence[int]) -> str:
        raise DeviceLost("the context is dead") from error

    with pytest.raises(DeviceLost):
        bisect_on_failure([1, 2, 3, 4], device, on_failure)

    assert [[1, 2, 3, 4]] == device.runs


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=["interrupt", "exit"])
def test_interrupts_are_not_caught(error):

    def run(part: Sequence[int]) -> list[int]:
        raise error

    with pytest.raises(type(error)):
        bisect_on_failure([1, 2], run, name_of)


class Holder:
    """Fails with a large local variable in its frame: raised, chained, raised during handling, or in a group."""

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
def test_memory_is_released_before_the_halves_run(how):
    """The frames of the failed run do not keep its tensors while the halves run."""
    device = Holder(how)

    assert [1, 2, 3, 4] == bisect_on_failure([1, 2, 3, 4], device, name_of)
    assert [False] * 7 == device.alive_at_retry
    assert 3 == len(device.held)


@pytest.mark.parametrize("how", ["raised", "chained", "implicit", "grouped"])
def test_an_error_that_is_an_outcome_keeps_no_memory(how):
    """The error of a single item may live long; its frames are cleared."""
    device = Holder(how)

    outcomes = bisect_on_failure([1], lambda part: device([*part, *part]), lambda error, part: error)

    assert [True] == [isinstance(outcome, Exception) for outcome in outcomes]
    assert [None] == [reference() for reference in device.held]


def test_a_single_item_that_does_not_fit():
    """DoesNotFit is raised from the library's error; the items before it have run."""
    device = Device(10)

    with pytest.raises(DoesNotFit, match=r"one item does not fit: CUDA out of memory") as caught:
        split_on_oom([1, 2, 30, 4], device)

    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert [1, 2] in device.runs


@pytest.mark.parametrize(
    "error", [ValueError("bad item"), RuntimeError("CUDA error: device-side assert triggered")], ids=["other", "dead"]
)
def test_other_errors_are_raised_as_they_are(error):
    """Only out-of-memory errors are retried."""
    runs: list[int] = []

    def run(part: Sequence[int]) -> list[int]:
        runs.append(len(part))
        raise error

    with pytest.raises(type(error)) as caught:
        split_on_oom([1, 2], run)

    assert error is caught.value
    assert [2] == runs


def test_real_memory_of_the_device(device):
    """A batch that cannot be allocated as a whole runs in parts, on a CPU or a card (--device cuda:0)."""
    huge = 2**50  # more than any machine has: refused by allocator and driver alike

    def run(part: Sequence[int]) -> list[int]:
        torch.empty(huge if len(part) > 2 else 16, dtype=torch.uint8, device=device)
        return [item + int(torch.ones(1, device=device).item()) for item in part]

    assert [2, 3, 4, 5, 6] == split_on_oom([1, 2, 3, 4, 5], run)
