"""backend/ keeps its layers, and the check that says so finds a violation of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.architecture import LAYERS, LIBRARY_PACKAGES, read_project, violations


@pytest.fixture(scope="module")
def project():
    """backend/ as it stands."""
    return read_project()


def test_the_layers(project):
    """Every module imports its own package and lower layers only, knows only its libraries, and is of readable size."""
    found = [str(violation) for violation in violations(project)]

    assert found == [], "\n" + "\n".join(found)


def test_the_source_is_read(project):
    """A check that reads nothing would pass: known imports were seen, and every rule names packages that exist."""
    packages = {module.package for module in project.modules.values()}
    imports = {imported.target for imported in project.modules["backend.config"].imports}

    assert "backend.errors" in imports
    assert frozenset().union(*LAYERS) == packages - {""}
    assert frozenset().union(*LIBRARY_PACKAGES.values()) - {"scaleout"} <= packages


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({"lanes/a.py": "from backend.serving import b", "serving/b.py": ""}, "layer above", id="up"),
        pytest.param(
            {"invoices/a.py": "import backend.tables.b", "tables/b.py": "import backend.images.c", "images/c.py": ""},
            "layer beside",
            id="sideways",
        ),
        pytest.param(
            {"serving/a.py": "from backend.training import b", "training/b.py": ""},
            "'training' is imported by nobody",
            id="serving-imports-training",
        ),
        pytest.param({"cellar/a.py": ""}, "package 'cellar' is in no layer", id="unknown-package"),
        pytest.param(
            {"lanes/a.py": "def f():\n    import backend.lanes.b", "lanes/b.py": "import backend.lanes.a"},
            "import circle",
            id="a-circle-through-a-lazy-import",
        ),
        pytest.param({"serving/a.py": "def f():\n    import redis"}, "imports redis: only callers", id="library"),
        pytest.param(
            {"main.py": "from backend.models import a", "models/a.py": "import torch"},
            "imports torch when the service starts",
            id="torch-at-start",
        ),
        pytest.param({"lanes/a.py": "import backend.lanes.b", "lanes/b.py": ""}, "merge them into it", id="a-crumb"),
    ],
)
def test_violation(tmp_path: Path, files: dict[str, str], expected: str):
    """Each kind is found."""
    for name, source in {"__init__.py": "", **files}.items():
        path = tmp_path / "backend" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(f'"""A file."""\n{source}\n', encoding="utf-8")

    assert [str(violation) for violation in violations(read_project(tmp_path)) if expected in str(violation)]
