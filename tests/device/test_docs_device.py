"""The page about the device floor tells the truth: its examples run, and the names it gives exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import backend.device
from backend.device import _MODULES, process_state
from backend.device.facts.machine import probe
from backend.gpu_toolkit import manager
from backend.gpu_toolkit.gpu_config import GPUConfig

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "device.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{title.lower().replace(' ', '-').strip('#-')}-{number}")
    for title, part in SECTIONS.items()
    for number, code in enumerate(BLOCK.findall(part))
]
FEATURES = re.findall(r"^\| (\d{3}) \| (.+?) \| (.+?) \|$", SECTIONS["Where the guides' features are"], re.MULTILINE)
CALLS = {  # what the documents call on an object, and where the page must name it
    *("GPUManager.setup_device", "GPUManager.get_device", "GPUManager.get_gpu_info", "GPUManager.get_memory_usage"),
    *("GPUManager.supports_amp", "GPUManager.get_amp_dtype", "GPUManager.optimize_model_for_gpu"),
    *("GPUManager.empty_cache", "GPUManager.clear_memory", "GPUMemoryOptimizer.optimize_model_memory"),
    *("GPUMemoryOptimizer.optimize_batch_size", "GPUMemoryOptimizer.profile_memory_usage"),
    *("GPUConfig.get_gpu_info", "GPUConfig.detect_platform", "GPUConfig.check_flash_attention", "GPUConfig.config"),
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    """This machine, without its cards unless one was asked for; no manager of another test."""
    monkeypatch.setattr(manager, "_manager", None)
    process_state.adopt(probe(look_for_gpu=device != "cpu"))
    yield
    process_state.forget()


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples(code: str):
    """Each one runs by itself, with nothing defined elsewhere."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/device.md", "exec"), names)

    assert len(names) > 2


def test_there_are_examples():
    """Of every section that is about doing something."""
    without = [title for title, part in SECTIONS.items() if not BLOCK.search(part)]

    assert ["Where the guides' features are", "What guides get wrong"] == without


def test_every_door_is_on_the_page():
    """What can be imported from backend.device is written about."""
    assert [] == [name for name in _MODULES if f"`{name}" not in PAGE and f" {name}" not in PAGE]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+(?:\.[a-z_]+)+)`", PAGE)) | CALLS))
def test_dotted_names_exist(name: str):
    """`GPUManager.empty_cache` is a method of GPUManager; and every call of the documents is among them."""
    owner, _, attribute = name.partition(".")

    assert hasattr(getattr(backend.device, owner), attribute)
    assert f"`{name}`" in PAGE


def test_fields_of_the_config():
    """The table has them all, with their defaults."""
    told = re.search(r"^\| field of `GPUConfig`.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)

    assert told
    assert {one.name for one in fields(GPUConfig)} - {"choice_file"} == set(
        re.findall(r"`([a-z][a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in told.group().splitlines() if line))
    )


def test_features_of_every_document():
    """Each of the four documents has its rows, and each row has an answer."""
    assert {"000", "001", "002", "004"} == {document for document, _, _ in FEATURES}
    assert all(feature.strip() and here.strip() for _, feature, here in FEATURES)
    assert 60 < len(FEATURES)
