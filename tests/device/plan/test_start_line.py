"""The line of the start log that tells what computes."""

import logging
from dataclasses import replace

import torch

from backend.bootstrap import models
from backend.config import load_settings
from backend.device.facts.torch_source import installed_build
from backend.device.plan.placement import EVENT, start_line
from backend.device.records import TorchBuild
from backend.telemetry import Telemetry
from tests.device.fakes import APPLE, CPU, ON_APPLE, ON_CARD, ON_CPU, ON_OTHER, TWO_CARDS, FakeDriver

BUILD = TorchBuild("2.13.0+cu129", "12.9")


def test_cards():
    """Each with its number in this process, memory and compute capability."""
    expected = {
        "torch": "2.13.0+cu129",
        "cuda": "12.9",
        "driver": "580.95.05",
        "device": "cuda:0 (NVIDIA L4, 24.0 GiB, compute capability 8.9); "
        "cuda:1 (Tesla T4, 16.0 GiB, compute capability 7.5)",
    }

    assert expected == start_line(replace(TWO_CARDS, torch=BUILD), (ON_CARD, ON_OTHER), TorchBuild())


def test_no_card():
    """The first reason of the placement is why, in one line; torch is told as installed, though not imported."""
    placement = replace(ON_CPU, why=("CPU: the driver said\nsomething long",))
    line = start_line(CPU, (placement,), TorchBuild("2.13.0+cpu"))

    assert "2.13.0+cpu" == line["torch"]
    assert ("none", "not asked") == (line["cuda"], line["driver"])
    assert "cpu (a processor, 2 cores)" == line["device"]
    assert "CPU: the driver said something long" == line["why"]


def test_other_accelerators():
    assert "mps (Apple M3, 12.0 GiB)" == start_line(APPLE, (ON_APPLE,), BUILD)["device"]
    assert "none (ROCm 7.1)" == start_line(TWO_CARDS, (ON_CARD,), TorchBuild("2.13.0", hip="7.1"))["cuda"]


def test_the_installed_build_is_read_from_its_files():
    """What an import would tell."""
    assert TorchBuild(torch.__version__, torch.version.cuda or "", torch.version.hip or "") == installed_build()


def test_every_start_logs_it(tmp_path, caplog, monkeypatch):
    """Once, as one line."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(models, "place_all", lambda *_: (ON_CPU,))
    models.choose_devices(load_settings(state_dir=tmp_path, use_gpu=False), Telemetry(), FakeDriver())
    [record] = [record for record in caplog.records if record.getMessage() == EVENT]

    assert ["torch", "cuda", "driver", "device", "why"] == list(record.fields)
    assert "CPU: no NVIDIA driver answers" == record.fields["why"]
