"""docs/device.md and docs/training.md: their examples run, names, fields and flags exist, and tables are complete."""

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
from backend.training.cli import TASKS, make_parser
from backend.training.records import MixedPrecisionConfig, TrainingConfig

DOCS = Path(__file__).resolve().parents[1] / "docs"
DEVICE, TRAINING = ((DOCS / name).read_text(encoding="utf-8") for name in ("device.md", "training.md"))


def sections(page: str) -> dict[str, str]:
    """By their headings."""
    return {part.partition("\n")[0]: part for part in re.split(r"^## ", page, flags=re.MULTILINE)}


BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{title.lower().replace(' ', '-').strip('#-')}-{number}")
    for page in (DEVICE, TRAINING)
    for title, part in sections(page).items()
    for number, code in enumerate(BLOCK.findall(part))
]
CALLS = {  # methods that the guides call; the page must name them
    *("GPUManager.setup_device", "GPUManager.get_device", "GPUManager.get_gpu_info", "GPUManager.get_memory_usage"),
    *("GPUManager.supports_amp", "GPUManager.get_amp_dtype", "GPUManager.optimize_model_for_gpu"),
    *("GPUManager.empty_cache", "GPUManager.clear_memory", "GPUMemoryOptimizer.optimize_model_memory"),
    *("GPUMemoryOptimizer.optimize_batch_size", "GPUMemoryOptimizer.profile_memory_usage"),
    *("GPUConfig.get_gpu_info", "GPUConfig.detect_platform", "GPUConfig.check_flash_attention", "GPUConfig.config"),
}
FLAGS = set(re.findall(r"`(--[a-z0-9][a-z0-9-]*)", TRAINING))
OTHERS = {"--nproc-per-node", "--minutes"}  # of torchrun, of tools.train_answers
FLAGS_OF_GUIDES = {
    *("--epochs", "--batch-size", "--no-amp", "--use-amp", "--no-compile", "--use-compile", "--num-workers"),
    *("--no-channels-last", "--use-gradient-checkpointing", "--grad-accum", "--focal-loss", "--label-smoothing"),
}


def known_flags() -> set[str]:
    """The flags of the command line, but for the parser's own help."""
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", make_parser().format_help())) - {"--help"}


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
    """Each one runs by itself, with nothing defined elsewhere, and what it asserts holds."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs", "exec"), names)

    assert len(names) > 2


def test_every_name_of_guides_is_on_a_page():
    theirs = [name for name, module in NAMES.items() if not module.startswith("backend.training")]
    assert [] == [name for name in theirs if not re.search(rf"\b{name}\b", DEVICE + TRAINING)]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+(?:\.[a-z_]+)+)`", DEVICE)) | CALLS))
def test_dotted_names_exist(name: str):
    """Names like `GPUManager.empty_cache`, with every call of the guides among them."""
    owner, _, attribute = name.partition(".")

    assert hasattr(getattr(backend.device, owner), attribute)
    assert f"`{name}`" in DEVICE


def test_fields_of_the_config():
    """The table has all of them."""
    table = re.search(r"^\| field of `GPUConfig`.*?\n\n", DEVICE, re.MULTILINE | re.DOTALL)

    assert table
    assert {field.name for field in fields(GPUConfig)} - {"choice_file"} == set(
        re.findall(r"`([a-z][a-z0-9_]+)`", "\n".join(line.split("|")[1] for line in table.group().splitlines() if line))
    )


def test_flags_exist():
    """Every flag on the page is one that the command line takes."""
    assert set() == FLAGS - known_flags() - OTHERS


def test_flags_are_documented():
    """Every flag that the command line takes is on the page; and those of the guides have the same names."""
    assert set() == known_flags() - set(re.findall(r"--[a-z0-9][a-z0-9-]*", TRAINING))
    assert set() == FLAGS_OF_GUIDES - known_flags()


def test_settings_are_documented():
    """Every field of the two records is in the table of settings."""
    documented = set(re.findall(r"`([a-z][a-z0-9_]+)`", sections(TRAINING)["Every setting"]))
    known = {field.name for record in (TrainingConfig, MixedPrecisionConfig) for field in fields(record)}

    assert {"enabled", "mixed_precision"} == known - documented


def test_tasks_are_documented():
    """The table of tasks has them all."""
    assert {*TASKS, "plan"} == set(re.findall(r"^\| `([a-z-]+)` \|", sections(TRAINING)["Train a task"], re.MULTILINE))
