"""backend/ keeps its layers, and the check that says so finds a violation of each kind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.architecture import LAYERS, LIBRARIES, ROOT, read_project, violations

# Seconds and hundreds of megabytes that a start on another runtime must not pay.
_LAZY = {
    "torch", "transformers", "sentence_transformers", "onnx", "onnxruntime", "openvino", "scipy", "rapidocr", "cv2",
}  # fmt: skip
_LAZY |= {"av", "ctranslate2", "backend.training", "backend.gpu_toolkit"}


def test_the_layers():
    """Every module imports its own wing and lower layers only, and knows only its libraries."""
    found = violations(read_project())

    assert found == [], "\n" + "\n".join(found)


def test_the_source_is_read():
    """A check that reads nothing would pass: known imports were seen, and every rule names wings that exist."""
    project = read_project()
    wings = {name.split(".")[1] for name in project if "." in name}

    assert "backend.errors" in project["backend.config"].imports
    assert frozenset().union(*LAYERS) == wings
    assert {wing for named in LIBRARIES.values() for wing in named.split()} <= wings


def test_a_start_imports_no_runtime():
    """Those that the machine does not use, training and the names of guides are imported by whoever needs them."""
    code = "import sys, backend.main; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "backend.bootstrap.services" in told.split()
    assert set() == _LAZY & set(told.split())


@pytest.mark.parametrize(
    ("encoder", "other"), [("openvino_encoder", "onnxruntime"), ("onnx_encoder", "openvino")], ids=["openvino", "onnx"]
)
def test_an_encoder_imports_one_runtime(encoder, other):
    """Each takes tens of MB; one serves."""
    code = f"import sys, backend.models.{encoder}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert other not in told.split()


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
        pytest.param({"cellar/a.py": ""}, "'cellar' is in no layer", id="unknown-package"),
        pytest.param(
            {"lanes/a.py": "def f():\n    import backend.lanes.b", "lanes/b.py": "import backend.lanes.a"},
            "import circle",
            id="a-circle-through-a-lazy-import",
        ),
        pytest.param({"serving/a.py": "def f():\n    import redis"}, "imports redis: only callers", id="library"),
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

    assert any(expected in violation for violation in violations(read_project(tmp_path)))
