"""docs/training.md: its examples run, its flags and names exist, and its tables are complete."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from backend.device import default_device
from backend.device.facts.machine import probe
from backend.training.cli import TASKS, make_parser
from backend.training.records import MixedPrecisionConfig, TrainingConfig

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(code, id=f"{title.lower().replace(' ', '-').strip('#-')}-{number}")
    for title, part in SECTIONS.items()
    for number, code in enumerate(BLOCK.findall(part))
]
FLAGS = set(re.findall(r"`(--[a-z0-9][a-z0-9-]*)", PAGE))
OTHERS = {"--nproc-per-node"}  # torchrun's
FLAGS_OF_GUIDES = {
    *("--epochs", "--batch-size", "--no-amp", "--use-amp", "--no-compile", "--use-compile", "--num-workers"),
    *("--no-channels-last", "--use-gradient-checkpointing", "--grad-accum", "--focal-loss", "--label-smoothing"),
}


def known_flags() -> set[str]:
    """The flags of the command line, but for the parser's own help."""
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", make_parser().format_help())) - {"--help"}


@pytest.fixture(autouse=True)
def _fresh(device: str) -> Iterator[None]:
    """This machine, without its cards unless the tests run on one."""
    default_device.configure(probe(look_for_gpu=device != "cpu"))
    yield
    default_device.reset()


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES)
def test_examples(code: str):
    """Each one runs by itself, with nothing defined elsewhere, and what it asserts holds."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/training.md", "exec"), names)

    assert len(names) > 2


def test_flags_exist():
    """Every flag on the page is one that the command line takes."""
    assert set() == FLAGS - known_flags() - OTHERS


def test_flags_are_documented():
    """Every flag that the command line takes is on the page; and those of the guides have the same names."""
    assert set() == known_flags() - set(re.findall(r"--[a-z0-9][a-z0-9-]*", PAGE))
    assert set() == FLAGS_OF_GUIDES - known_flags()


def test_settings_are_documented():
    """Every field of the two records is in the table of settings."""
    documented = set(re.findall(r"`([a-z][a-z0-9_]+)`", SECTIONS["Every setting"]))
    known = {field.name for record in (TrainingConfig, MixedPrecisionConfig) for field in fields(record)}

    assert {"enabled", "mixed_precision"} == known - documented


def test_tasks_are_documented():
    """The table of tasks has them all."""
    assert {*TASKS, "plan"} == set(re.findall(r"^\| `([a-z-]+)` \|", SECTIONS["Train a task"], re.MULTILINE))
