"""The house keeps its floors, and the reader of the floors sees every way to break them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.architecture import ENVIRONMENT_READERS, FLOORS, LIBRARY_ROOMS, faults, read_house

LONG_FILE = '"""Long."""\n' + "A = 1\n" * 500
LONG_FUNCTION = '"""Long."""\ndef run() -> None:\n' + "    print()\n" * 60


def build(root: Path, files: dict[str, str]) -> list[str]:
    """Write a house of ``files`` (path below backend/ -> source) and say what is wrong with it."""
    for name, source in {"__init__.py": "", **files}.items():
        path = root / "backend" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(
            source if source.startswith('"""') or not source else f'"""A file."""\n{source}', encoding="utf-8"
        )
    return [str(fault) for fault in faults(read_house(root))]


def test_the_house_has_no_faults():
    """Every module imports its own room and lower floors only, in its room, of readable size, under a telling name."""
    found = [str(fault) for fault in faults(read_house())]

    assert found == [], "\n" + "\n".join(found)


def test_the_house_is_read_at_all():
    """A check that reads nothing would pass: the known rooms are there and their imports were seen."""
    modules = read_house().modules

    assert {"backend.errors", "backend.telemetry", "backend.config"} <= modules.keys()
    assert "backend.errors" in [one.target for one in modules["backend.config"].imports]


def test_the_rules_name_rooms_that_exist():
    """A room is on one floor only, and every library's rooms are on some floor."""
    rooms = [room for floor in FLOORS for room in floor]

    assert sorted(set(rooms)) == sorted(rooms)
    assert frozenset().union(*LIBRARY_ROOMS.values()) <= set(rooms)
    assert all(reason for reason in ENVIRONMENT_READERS.values())


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"errors.py": "", "device/facts.py": "from backend import errors"}, id="a-lower-floor"),
        pytest.param(
            {"device/facts.py": "", "device/plan.py": "from backend.device.facts.machine import A"}, id="its-own-room"
        ),
        pytest.param({"engines/a.py": "from backend import __version__"}, id="the-version"),
        pytest.param({"models/a.py": "import torch.nn\n"}, id="torch-in-its-room"),
        pytest.param({"cache/a.py": "import redis.asyncio"}, id="redis-in-its-room"),
        pytest.param({"config.py": "import os\nA = os.environ['A']"}, id="config-reads-the-environment"),
        pytest.param(
            {"main.py": "from backend.models import a", "models/a.py": "def f():\n    import torch"}, id="lazy-torch"
        ),
        pytest.param({"training/a.py": "import torch", "main.py": ""}, id="torch-where-serving-never-comes"),
    ],
)
def test_allowed(tmp_path: Path, files: dict[str, str]):
    """What the floors allow raises no fault."""
    assert [] == build(tmp_path, files)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            {"engines/a.py": "from backend.services import b", "services/b.py": ""},
            "backend/engines/a.py:2: imports backend.services.b: 'services' is on a floor above 'engines'",
            id="upwards",
        ),
        pytest.param(
            {"batching/a.py": "import backend.cache.b", "cache/b.py": ""},
            "backend/batching/a.py:2: imports backend.cache.b: 'cache' is on a floor beside 'batching'",
            id="sideways",
        ),
        pytest.param(
            {"engines/a.py": "def f():\n    from backend.api import b", "api/b.py": ""},
            "backend/engines/a.py:3: imports backend.api.b: 'api' is on a floor above 'engines'",
            id="upwards-in-a-function",
        ),
        pytest.param(
            {"engines/a.py": "import typing\nif typing.TYPE_CHECKING:\n    from backend.config import Settings"},
            "backend/engines/a.py:4: imports backend.config: 'config' is on a floor above 'engines'",
            id="upwards-for-types",
        ),
        pytest.param(
            {"engines/a.py": "import importlib\nimportlib.import_module('backend.bootstrap.services')"},
            "backend/engines/a.py:3: imports backend.bootstrap.services: 'bootstrap' is on a floor above 'engines'",
            id="upwards-by-name",
        ),
        pytest.param(
            {"__init__.py": "from backend.main import run", "main.py": ""},
            "backend/__init__.py:2: imports backend.main: 'main' is on a floor above 'backend'",
            id="the-package-itself",
        ),
        pytest.param(
            {"services/a.py": "from backend.training import b", "training/b.py": ""},
            "backend/services/a.py:2: imports backend.training.b: 'training' is imported by nobody",
            id="serving-imports-training",
        ),
        pytest.param(
            {"cellar/a.py": ""}, "backend/cellar/__init__.py:1: room 'cellar' is on no floor", id="unknown-room"
        ),
        pytest.param(
            {
                "engines/a.py": "def f():\n    import backend.engines.b",
                "engines/b.py": "from backend.engines.a import f",
            },
            "import circle backend.engines.a -> backend.engines.b -> backend.engines.a",
            id="a-circle-through-a-lazy-import",
        ),
        pytest.param(
            {"engines/a.py": "import torch"},
            "imports torch: only device, gpu_toolkit, models, training may",
            id="torch",
        ),
        pytest.param(
            {"services/a.py": "from starlette import status"}, "imports starlette: only api may", id="starlette"
        ),
        pytest.param({"services/a.py": "import fastapi"}, "imports fastapi: only api may", id="fastapi"),
        pytest.param(
            {"services/a.py": "def f():\n    import redis"}, "imports redis: only cache, jobs may", id="redis"
        ),
        pytest.param(
            {"engines/a.py": "from prometheus_client import Counter"},
            "imports prometheus_client: only telemetry may",
            id="prometheus",
        ),
        pytest.param(
            {"main.py": "from backend.models import a", "models/a.py": "import torch"},
            "backend/models/a.py:2: imports torch when the service starts",
            id="torch-at-start",
        ),
        pytest.param(
            {"main.py": "import backend.models.a", "models/__init__.py": "import torch", "models/a.py": ""},
            "backend/models/__init__.py:2: imports torch when the service starts",
            id="torch-at-start-in-a-package",
        ),
        pytest.param(
            {"engines/a.py": "import os\nA = os.environ.get('A')"},
            "engines/a.py:3: touches the environment",
            id="environ",
        ),
        pytest.param(
            {"engines/a.py": "import os\nA = os.getenv('A')"}, "engines/a.py:3: touches the environment", id="getenv"
        ),
        pytest.param(
            {"engines/a.py": "from os import environ"}, "engines/a.py:2: touches the environment", id="environ-by-name"
        ),
        pytest.param({"engines/a.py": LONG_FILE}, "backend/engines/a.py:1: 501 lines are over 500", id="long-file"),
        pytest.param(
            {"engines/a.py": LONG_FUNCTION}, "backend/engines/a.py:2: run has 61 lines, over 60", id="long-function"
        ),
        pytest.param({"engines/utils.py": ""}, "backend/engines/utils.py:1: 'utils' says nothing", id="banned-file"),
        pytest.param(
            {"engines/common/a.py": ""}, "backend/engines/common/a.py:1: 'common' says nothing", id="banned-folder"
        ),
    ],
)
def test_fault(tmp_path: Path, files: dict[str, str], expected: str):
    """Each way to break a rule is found, where it is, with what to do."""
    found = build(tmp_path, files)

    assert [fault for fault in found if expected in fault], found


def test_a_file_without_a_docstring(tmp_path: Path):
    """Only an empty file needs no docstring."""
    build(tmp_path, {"engines/a.py": ""})
    (tmp_path / "backend/engines/a.py").write_text("A = 1\n", encoding="utf-8")

    found = [str(fault) for fault in faults(read_house(tmp_path))]

    assert ["backend/engines/a.py:1: no docstring; open the file with one sentence that says what it is for"] == found
