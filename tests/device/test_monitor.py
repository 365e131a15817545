"""How full the device is, in one shape on every kind of machine."""

from __future__ import annotations

import json
from types import SimpleNamespace

import psutil
import pytest
import torch

from backend.device import monitor
from backend.device.facts import DeviceType, GPUInfo, MachineFacts, probe
from backend.device.plan import Placement

CPU = MachineFacts(2, "a processor", (), 2**33, why_no_gpu="no NVIDIA driver answers")
CARD = GPUInfo(0, "a card", "GPU-1", 2**36, (9, 0), bf16=True)
ON_CPU = Placement("cpu", 2, 1, 1, ("CPU: no NVIDIA driver answers",))


def test_memory_of_a_cpu():
    """This process's own, of what the machine or the control group allows."""
    found = monitor.memory(CPU, ON_CPU)

    assert found.total_bytes == 2**33
    assert 2**20 < found.used_bytes < psutil.virtual_memory().total


def test_memory_of_a_cuda_card(monkeypatch):
    """Used is what is not free, of the placement's own card."""
    asked: list[str] = []

    def mem_get_info(device: str) -> tuple[int, int]:
        asked.append(device)
        return 3 * 2**30, 8 * 2**30

    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    facts = MachineFacts(2, "a processor", (), 2**33, (CARD, CARD), DeviceType.CUDA)

    found = monitor.memory(facts, Placement("cuda:1", 1, 1, 2, ("asked for",)))

    assert (5 * 2**30, 8 * 2**30, ["cuda:1"]) == (found.used_bytes, found.total_bytes, asked)


def test_memory_of_an_apple(monkeypatch):
    """What the driver gave, of what it recommends."""
    monkeypatch.setattr(torch, "mps", SimpleNamespace(driver_allocated_memory=lambda: 2**30))
    facts = MachineFacts(2, "a processor", (), 2**33, (CARD,), DeviceType.MPS)

    found = monitor.memory(facts, Placement("mps", 1, 1, 2, ("asked for",)))

    assert (2**30, CARD.total_bytes) == (found.used_bytes, found.total_bytes)


@pytest.mark.parametrize(
    ("facts", "placement", "available"),
    [
        pytest.param(CPU, ON_CPU, False, id="cpu"),
        pytest.param(
            MachineFacts(2, "a processor", (), 2**33, (CARD,), DeviceType.CUDA),
            Placement("cuda:0", 1, 1, 2, ("a card: automatic choice",)),
            True,
            id="cuda",
        ),
    ],
)
def test_snapshot_has_one_shape(monkeypatch, facts, placement, available):
    """The same fields with and without a GPU, ready for JSON, with the reason for the choice."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 2))

    found = json.loads(json.dumps(monitor.snapshot(facts, placement)))

    assert {"available", "type", "device", "reason", "gpus", "memory"} == set(found)
    assert (available, placement.device, placement.why[0]) == (found["available"], found["device"], found["reason"])
    assert {"used_bytes", "total_bytes"} == set(found["memory"])
    assert len(facts.gpus) == len(found["gpus"])


def test_snapshot_of_the_asked_device(device):
    """On a real GPU the numbers are the driver's (--device cuda:0); on a CPU the process's."""
    facts = probe(look_for_gpu=device != "cpu")
    found = monitor.memory(facts, Placement(device, 1, 1, 1, ("asked for",)))

    assert 0 < found.used_bytes <= found.total_bytes
