"""docs/device.md: its examples run, and the names in it exist."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import backend.device
from backend.device import default_device
from backend.device.facts.machine import probe
from backend.gpu_toolkit import manager
from backend.gpu_toolkit.gpu_config import GPUConfig
from backend.lazy_exports import NAMES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "device.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{title.lower().replace(' ', '-').strip('#-')}-{number}")
    for title, part in SECTIONS.items()
    for number, code in enumerate(BLOCK.findall(part))
]
CALLS = {  # methods that the guides call; the page must name them
    *("GPUManager.setup_device", "GPUManager.get_device", "GPUManager.get_gpu_info", "GPUManager.get_memory_usage"),
    *("GPUManager.supports_amp", "GPUManager.get_amp_dtype", "GPUManager.optimize_model_for_gpu"),
    *("GPUManager.empty_cache", "GPUManager.clear_memory", "GPUMemoryOptimizer.optimize_model_memory"),
    *("GPUMemoryOptimizer.optimize_batch_size", "GPUMemoryOptimizer.profile_memory_usage"),
    *("GPUConfig.get_gpu_info", "GPUConfig.detect_platform", "GPUConfig.check_flash_attention", "GPUConfig.config"),
}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    """This machine, without its GPUs unless ``--device`` names one, and a new manager."""
    monkeypatch.setattr(manager, "process_manager", None)
    default_device.configure(probe(look_for_gpu=device != "cpu"))
    yield
    default_device.reset()


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES)
def test_examples(code: str):
    """Each one runs by itself."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/device.md", "exec"), names)

    assert len(names) > 2


def test_every_name_of_guides_is_on_a_page():
    pages = PAGE + (DOCS / "training.md").read_text(encoding="utf-8")

    theirs = [name for name, module in NAMES.items() if not module.startswith("backend.training")]
    assert [] == [name for name in theirs if not re.search(rf"\b{name}\b", pages)]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+(?:\.[a-z_]+)+)`", PAGE)) | CALLS))
def test_dotted_names_exist(name: str):
    """Names like `GPUManager.empty_cache`, with every call of the guides among them."""
    owner, _, attribute = name.partition(".")

    assert hasattr(getattr(backend.device, owner), attribute)
    assert f"`{name}`" in PAGE


def test_fields_of_the_config():
    """The table has all of them."""
    table = re.search(r"^\| field of `GPUConfig`.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)

    assert table
    assert {field.name for field in fields(GPUConfig)} - {"choice_file"} == set(
        re.findall(r"`([a-z][a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in table.group().splitlines() if line))
    )
