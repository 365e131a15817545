"""Micro-batches come in order with any number of workers, prepared ahead, and name the example that cannot be made."""

import threading
from collections.abc import Sequence

import pytest
import torch

from backend.device.faults import FaultKind, classify
from backend.device.plan.placement import LoaderSettings
from backend.errors import BadData
from backend.training.data.batches import MicroBatchLoader, collation_epoch, micro_batches

WORKERS = [0, 1, 4]


def settings(workers: int, *, pinned: bool = False) -> LoaderSettings:
    return LoaderSettings(workers, pinned, 2 if workers else None)


def collate(indices: Sequence[int]) -> dict:
    """The indices themselves, and random numbers that depend on example and epoch alone."""
    noise = [
        torch.rand(2, generator=torch.Generator().manual_seed(1000 * collation_epoch() + index)) for index in indices
    ]
    return {
        "indices": torch.tensor(list(indices)),
        "noise": torch.stack(noise),
        "names": [str(index) for index in indices],
    }


def failing_on(bad: set[int], error: Exception):
    def made(indices: Sequence[int]) -> dict:
        if bad & set(indices):
            raise error
        return collate(indices)

    return made


@pytest.mark.parametrize("workers", WORKERS)
def test_order_and_content_do_not_depend_on_workers(workers, device):
    """The same batches in the same order as made by hand, augmentation included, on the device."""
    cuts = micro_batches(range(50), 7)
    with MicroBatchLoader(collate, settings(workers, pinned=True), device) as loader:
        for epoch in (0, 1):
            batches = list(loader.load(cuts, epoch=epoch))

            assert [batch["names"] for batch in batches] == [[str(index) for index in cut] for cut in cuts]
            assert {str(batch["indices"].device) for batch in batches} == {device}
            first = torch.rand(2, generator=torch.Generator().manual_seed(1000 * epoch))
            assert torch.equal(batches[0]["noise"][0].cpu(), first)
    assert collation_epoch() == 0


@pytest.mark.parametrize("workers", WORKERS)
def test_cuts_are_taken_as_they_come_due(workers):
    """Only a few are prepared ahead (workers x prefetch): a change of the micro-batch wastes little."""
    taken = []

    def cuts():
        for index in range(1000):
            taken.append(index)
            yield [index]

    with MicroBatchLoader(collate, settings(workers), "cpu") as loader:
        batches = loader.load(cuts())
        next(batches)
        assert len(taken) == 1 + 2 * workers
        batches.close()
        again = [batch["names"] for batch in loader.load([[5, 6], [7]])]

    assert again == [["5", "6"], ["7"]]


@pytest.mark.parametrize("workers", WORKERS)
def test_the_example_that_fails_is_named(workers):
    """Batches before it arrive; then the error says which example, and why, with the cause behind it."""
    cause = ValueError("row 12 has no label")
    with MicroBatchLoader(failing_on({12}, cause), settings(workers), "cpu") as loader:
        batches = loader.load(micro_batches(range(30), 5))
        assert [next(batches)["names"][0], next(batches)["names"][0]] == ["0", "5"]

        with pytest.raises(BadData, match=r"example\(s\) 12 cannot .*: ValueError: row 12 has no label") as caught:
            next(batches)

    assert caught.value.__cause__ is cause


def test_many_that_fail_are_counted():
    """A message names a few and counts the rest; our own errors speak for themselves."""
    bad = set(range(9))
    with MicroBatchLoader(failing_on(bad, BadData("a.tsv:3: no label")), settings(0), "cpu") as loader:
        with pytest.raises(BadData, match=r"example\(s\) 0, 1, 2, 3, 4 and 4 more cannot .* batch: a\.tsv:3: no label"):
            next(loader.load([list(range(10))]))


def test_a_batch_that_only_fails_together():
    """Where each example can be made alone, all of the batch are named."""

    def made(indices: Sequence[int]) -> dict:
        if len(indices) > 1:
            raise RuntimeError("stack expects each tensor to be equal size")
        return collate(indices)

    with MicroBatchLoader(made, settings(0), "cpu") as loader:
        with pytest.raises(BadData, match=r"example\(s\) 3, 4 cannot"):
            next(loader.load([[3, 4]]))


@pytest.mark.parametrize("workers", WORKERS)
def test_out_of_memory_errors_are_not_wrapped(workers):
    """The training loop must recognize them to retry with smaller micro-batches."""
    with MicroBatchLoader(failing_on({0}, MemoryError()), settings(workers), "cpu") as loader:
        with pytest.raises(MemoryError) as caught:
            next(loader.load([[0]]))

    assert classify(caught.value).kind is FaultKind.OUT_OF_MEMORY


def test_threads_end_with_the_loader():
    """Nothing is left running, and nothing was begun without workers."""
    with MicroBatchLoader(collate, settings(3), "cpu") as loader:
        list(loader.load([[0], [1], [2]]))
        assert any(thread.name.startswith("collate") for thread in threading.enumerate())

    assert not any(thread.name.startswith("collate") for thread in threading.enumerate())


def test_pinned_memory(device):
    """Where a GPU is fed, tensors are pinned on the worker and copied without waiting; the values arrive."""
    if not device.startswith("cuda"):
        pytest.skip("pinning needs --device cuda:0")
    loader = MicroBatchLoader(collate, settings(2, pinned=True), device)

    assert all(
        tensor.is_pinned() for tensor in loader._pinned(collate([1, 2])).values() if isinstance(tensor, torch.Tensor)
    )
    batches = list(loader.load([[1, 2]]))
    loader.close()
    assert [1, 2] == batches[0]["indices"].tolist()


def test_pinning_that_is_refused_costs_speed_alone(monkeypatch, caplog):
    """The driver's limit on locked memory is told once; batches go on unpinned."""

    def refuse(self, device=None):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    loader = MicroBatchLoader(collate, settings(0), "cpu")
    loader._pins = True  # as on a GPU

    batches = [batch["names"] for batch in loader.load([[0], [1]])]

    assert batches == [["0"], ["1"]]
    assert [record.getMessage() for record in caplog.records] == ["memory cannot be pinned; copies will wait"]
