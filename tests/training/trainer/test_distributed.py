"""Which card a rank opens; test_ddp.py trains with two of them."""

import os
from collections.abc import Iterator

import pytest
import torch

from backend.device import default_device
from backend.device.default_device import LocalRank
from backend.device.facts.simulated import facts
from backend.training.trainer import distributed


class FakeAccelerator:
    """Takes what accelerate takes, and starts nothing."""

    process_index, num_processes = 1, 2

    def __init__(self, **options: object) -> None:
        self.options = options


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The cards that this process, rank 1 of 2, makes its current one."""
    cards: list[str] = []
    default_device.configure(facts("ada-and-blackwell"))
    monkeypatch.setattr(torch.cuda, "set_device", cards.append)
    monkeypatch.setattr(distributed, "Accelerator", FakeAccelerator)
    monkeypatch.setattr(distributed, "local_rank", lambda: LocalRank(1, 2, by_torchrun=True))
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "")
    yield cards
    default_device.reset()


@pytest.mark.parametrize(("device", "expected"), [("auto", "cuda:1"), ("cuda:1,cuda:0", "cuda:0")])
def test_a_rank_opens_its_own_card_only(opened, monkeypatch, device, expected):
    """The card with most free memory would be the same one for all; accelerate is told which it is."""
    group = distributed.init_process_group(device)

    assert [expected] == opened
    assert expected == os.environ["ACCELERATE_TORCH_DEVICE"]
    assert (expected, torch.device(expected), 1) == (group.placement.device, group.device, group.rank)


def test_a_rank_waits_on_its_own_card(opened, monkeypatch):
    """NCCL would open the card of the rank's number for a barrier."""
    barriers: list[list[int]] = []

    def barrier(*, device_ids: list[int]) -> None:
        barriers.append(device_ids)

    monkeypatch.setattr(torch.distributed, "barrier", barrier)
    distributed.init_process_group("cuda:1,cuda:0").barrier()

    assert [[0]] == barriers


def test_one_rank_on_each_of_several_machines(opened, monkeypatch):
    """The card that it chose is the one that accelerate sends from: not number 0 because it is the first rank here."""
    monkeypatch.setattr(distributed, "local_rank", lambda: LocalRank(0, 1, by_torchrun=True))
    group = distributed.init_process_group("cuda:1")

    assert ["cuda:1"] == opened
    assert "cuda:1" == os.environ["ACCELERATE_TORCH_DEVICE"] == str(group.device)


def test_a_lone_process_changes_nothing(opened, monkeypatch):
    """The current card and the environment stay as they are."""
    monkeypatch.setattr(distributed, "local_rank", LocalRank)
    group = distributed.init_process_group("cuda:1")

    assert [] == opened
    assert "" == os.environ["ACCELERATE_TORCH_DEVICE"]
    assert "cuda:1" == group.placement.device
