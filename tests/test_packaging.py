"""What the service imports is what its installation brings: test packages must not hide a missing one."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def name_of(requirement: str) -> str:
    """The normalised distribution of a requirement line."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0]).lower()


def installed_with_the_service() -> set[str]:
    """The runtime dependencies and everything that those need in turn, extras left out."""
    waiting = [name_of(one) for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [name_of(one) for one in requires(name) or () if ";" not in one]
    return found


def imported_by_the_service() -> dict[str, str]:
    """Top-level modules from outside, with a file that imports each."""
    modules: dict[str, str] = {}
    for file in (ROOT / "backend").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            modules |= {name.partition(".")[0]: file.name for name in names}
    return {name: file for name, file in modules.items() if name not in sys.stdlib_module_names and name != "backend"}


def test_every_import_of_the_service_is_installed_with_it() -> None:
    """``make serve`` installs no test package, so none may be needed."""
    owners, runtime = packages_distributions(), installed_with_the_service()
    absent = {
        name: file
        for name, file in imported_by_the_service().items()
        if not {name_of(owner) for owner in owners.get(name, [name])} & runtime
    }

    assert {} == absent
