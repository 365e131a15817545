"""docs/training.md: its examples run, its flags and names exist, and its tables are complete."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from backend.device import default_device
from backend.device.facts.machine import probe
from backend.training import IntegratedGPUTrainingSystem, MixedPrecisionTrainer
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
FEATURES = re.findall(r"^\| (\d{3}) \| (.+?) \| (.+?) \|$", SECTIONS["Where the guides' features are"], re.MULTILINE)
FLAGS = set(re.findall(r"`(--[a-z0-9][a-z0-9-]*)", PAGE))
OTHERS = {"--nproc-per-node"}  # torchrun's
FLAGS_OF_GUIDES = {
    *("--epochs", "--batch-size", "--no-amp", "--use-amp", "--no-compile", "--use-compile", "--num-workers"),
    *("--no-channels-last", "--use-gradient-checkpointing", "--grad-accum", "--focal-loss", "--label-smoothing"),
}
CALLS = {
    *("MixedPrecisionTrainer.forward_pass", "MixedPrecisionTrainer.compute_loss"),
    *("MixedPrecisionTrainer.backward_pass", "MixedPrecisionTrainer.optimizer_step"),
    *("IntegratedGPUTrainingSystem.setup_training", "IntegratedGPUTrainingSystem.training_loop"),
    "IntegratedGPUTrainingSystem.cleanup",
}


def known_flags() -> set[str]:
    """The flags of the command line, but for the parser's own help."""
    return {name for action in make_parser()._actions for name in action.option_strings} - {"-h", "--help"}


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


def test_sections_with_examples():
    """A text encoder, a CNN on images, a diffusion U-Net, the classes of the guides and the planner."""
    with_code = {title for title, part in SECTIONS.items() if BLOCK.search(part)}

    assert {"A text encoder", "A CNN on images", "A small diffusion U-Net", "Train any model"} <= with_code
    assert {"Mixed precision in a loop of your own", "See what fits"} <= with_code


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


def test_features_of_every_document():
    """Each document has its rows, each row an answer, each refusal its reason."""
    assert {"000", "001", "002", "003"} == {document for document, _, _ in FEATURES}
    assert all(feature.strip() and here.strip() for _, feature, here in FEATURES)
    assert all(len(here) > len("refused: ") + 15 for _, _, here in FEATURES if here.startswith("refused"))
    counts = Counter(document for document, _, _ in FEATURES)
    assert all(counts[document] >= least for document, least in (("001", 20), ("002", 7), ("003", 25)))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_methods_of_the_guides(name: str):
    """On the page, and a method that is there."""
    owner, _, method = name.partition(".")

    assert f"`{name}`" in PAGE
    assert callable(
        getattr({each.__name__: each for each in (MixedPrecisionTrainer, IntegratedGPUTrainingSystem)}[owner], method)
    )
