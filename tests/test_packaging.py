"""What the service imports is what its installation brings: test packages must not hide a missing one."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def name_of(requirement: str) -> str:
    """The normalised distribution of a requirement line."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]).lower()


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared(*extras: str) -> set[str]:
    """The distributions that ``extras`` name."""
    return {name_of(one) for extra in extras for one in PROJECT["optional-dependencies"][extra]}


def installed(*extras: str) -> set[str]:
    """The runtime dependencies, those of ``extras``, and everything that they need in turn."""
    waiting = [*map(name_of, PROJECT["dependencies"]), *declared(*extras)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [name_of(one) for one in requires(name) or () if ";" not in one]
    return found


def imported_by(files: Iterable[Path]) -> dict[str, str]:
    """Top-level modules from outside, with a file that imports each."""
    modules: dict[str, str] = {}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            modules |= {name.partition(".")[0]: file.name for name in names}
    return {name: file for name, file in modules.items() if name not in sys.stdlib_module_names and name != "backend"}


def absent(modules: dict[str, str], distributions: set[str]) -> dict[str, str]:
    """The modules that none of the distributions brings."""
    owners = packages_distributions()
    return {
        name: file
        for name, file in modules.items()
        if not {name_of(owner) for owner in owners.get(name, [name])} & distributions
    }


SCALEOUT = frozenset({ROOT / "backend" / "scaleout.py"})
TRITON = frozenset({ROOT / "backend" / "models" / "triton_kernels.py"})  # torch's builds for CUDA bring Triton
TRAINING = frozenset((ROOT / "backend" / "training").rglob("*.py"))


@pytest.mark.slow
def test_every_import_of_the_service_is_installed_with_it() -> None:
    """``make serve`` installs no test package, so none may be needed; speech is an extra that it installs too."""
    serving = set((ROOT / "backend").rglob("*.py")) - TRAINING

    assert {} == absent(imported_by(serving - SCALEOUT - TRITON), installed("speech"))


def test_ray_is_all_that_its_extra_adds() -> None:
    """``make test`` does not install Ray, so what Ray needs in turn cannot be looked up: nothing of it is imported."""
    assert declared("ray") == {"ray"}
    assert {} == absent(imported_by(SCALEOUT), installed("speech") | {"ray"})


def test_every_import_of_training_is_in_its_extra() -> None:
    """``pip install .[train]`` is all that training needs."""
    assert {} == absent(imported_by(TRAINING), installed("train"))
