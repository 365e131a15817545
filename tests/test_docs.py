"""The documents tell the truth: commands, links, settings, metrics and routes are those of the code."""

import ast
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from dotenv import dotenv_values

from backend.config import Settings, load_settings
from backend.device.watch.gpu_report import table
from backend.telemetry import METRICS, PREFIX, Telemetry
from tools.docs import FILES, PAGES, stale_files, write_files

if TYPE_CHECKING:
    from backend.api.request_context import Services

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
SKIPPED_FOLDERS = {"node_modules", "build", "dist"}
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in SKIPPED_FOLDERS for part in path.relative_to(ROOT).parts)
)


def blocks(language: str, page: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def make_targets() -> set[str]:
    """What `make` can be asked for."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_what_is_generated_is_up_to_date():
    """.env.example and the tables of settings, metrics and reasons are what the code says; `make docs` writes them."""
    assert [] == stale_files()


def test_what_is_generated_is_written_and_checked(tmp_path: Path):
    """What is written passes the check, and leaves prose as it is; what is absent or changed by hand does not pass."""
    (tmp_path / "docs").mkdir()
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (tmp_path / page).write_text(f"Prose.\n{re.sub('^[|].*', '', text, flags=re.MULTILINE)}", encoding="utf-8")
    assert [*PAGES, *FILES] == stale_files(tmp_path)

    write_files(tmp_path)
    assert [] == stale_files(tmp_path)
    for page in PAGES:
        assert f"Prose.\n{(ROOT / page).read_text(encoding='utf-8')}" == (tmp_path / page).read_text(encoding="utf-8")

    (tmp_path / ".env.example").write_text("PORT=1\n", encoding="utf-8")
    assert [".env.example"] == stale_files(tmp_path)


def test_every_setting_is_in_env_example():
    """Every setting, and nothing that is none."""
    names = re.findall(r"^# ([A-Z][A-Z0-9_]*)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)

    assert [name.upper() for name in Settings.model_fields] == names


def test_a_copy_of_env_example_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As it is, and with every line uncommented, it is the configuration one has without it."""
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    file = tmp_path / ".env"
    file.write_text(re.sub(r"^# ([A-Z][A-Z0-9_]*=)", r"\1", example, flags=re.MULTILINE), encoding="utf-8")
    monkeypatch.setitem(Settings.model_config, "env_file", file)

    assert not dotenv_values(ROOT / ".env.example")
    assert Settings.model_construct() == load_settings()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_metrics_and_settings_exist(document: str):
    """A metric that a document names is one we export."""
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(rf"`{PREFIX}(\w+)`", text))

    assert named <= {metric.name for metric in METRICS} | {reading.name for reading in table()}


def test_settings_the_readme_names_exist():
    """The table of settings, and everything set in a command, is a setting or a variable of the Makefile."""
    table = README.partition("## Settings")[2].partition("###")[0]
    named = {
        name for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    variables = set(re.findall(r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assigned = set(re.findall(r"\b([A-Z][A-Z_]+)=", README)) | set(re.findall(r"\(([A-Z]+_[A-Z_]+)\)", README))

    settings = {name.upper() for name in Settings.model_fields}
    assert named <= settings
    assert named
    assert assigned <= settings | variables


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links(document: str):
    """Every relative link leads to a file, and its anchor to a heading."""
    path = ROOT / document
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        file = (path.parent / target) if target else path
        assert file.exists(), f"{document} links to {link}, which does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text(encoding="utf-8")), f"{document} links to {link}: no such heading"


def test_pages_the_code_refers_to_exist():
    """A comment that sends the reader to docs/x.md sends them somewhere."""
    sources = [path for room in ("backend", "benchmarks", "tools", "tests") for path in (ROOT / room).rglob("*.py")]
    named = {
        (name, path.relative_to(ROOT).as_posix())
        for path in sources
        if path != Path(__file__)
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }

    assert [] == sorted(where for where in named if not (ROOT / where[0]).is_file())


def test_the_first_screen():
    """The two commands and one curl come before any heading."""
    first = README.partition("\n## ")[0]

    assert re.search(r"^make serve\b", first, re.MULTILINE)
    assert re.search(r"^make test\b", first, re.MULTILINE)
    assert re.search(r"^curl ", first, re.MULTILINE)
    assert first.count("\n") < 30
    assert README.count("\n") <= 150


def test_commands_of_the_readme_exist():
    """Every `make` target in a code block or in code quotes is in the Makefile."""
    quoted = [*blocks("bash", README), *re.findall(r"`(make [^`]+)`", README)]
    named = {target for text in quoted for target in re.findall(r"\bmake ([a-z][a-z-]*)", text)}

    assert {"serve", "test", "check", "bench"} <= named <= make_targets()


@pytest.mark.parametrize("section", ["http", "quality", "ocr", "ocr-memory"])
def test_markers_of_the_benchmarks(section: str):
    """The tables have their places, in order, for benchmarks/render.py."""
    begin, end = f"<!-- benchmarks:{section}:begin -->", f"<!-- benchmarks:{section}:end -->"

    assert (1, 1) == (BENCHMARKS.count(begin), BENCHMARKS.count(end))
    assert BENCHMARKS.index(begin) < BENCHMARKS.index(end)


def test_tables_of_the_benchmarks_are_those_of_the_results():
    """No number in them is typed by hand."""
    command = [sys.executable, "-m", "benchmarks.render", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("code", blocks("python", README + API), ids=lambda code: code.split()[1])
def test_python_examples_use_what_is_installed(code: str):
    """They compile, and what they import is what the tests of the clients import (tests/clients runs them)."""
    tree = ast.parse(code)
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]

    assert modules
    assert all(find_spec(module) for module in modules)


def test_documented_routes_are_the_routes():
    """Every route of the table answers as the API documents it, and every documented route is in the table."""
    from backend.api.app import create_app  # here, so that the other documents are checked without the API
    from backend.api.request_context import ApiLimits

    rows = re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/\S*)` \|", API, re.MULTILINE)
    services = cast(
        "Services", SimpleNamespace(telemetry=Telemetry(), limits=ApiLimits())
    )  # all that the document needs of them
    paths = create_app(services).openapi()["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}

    assert documented | {("GET", "/")} == set(rows)  # the page is for people, not for clients


def test_every_problem_code_is_documented():
    """Clients branch on codes; all that can be answered are listed with what to do."""
    from tests.test_errors import IN_ANSWERS

    table = API.partition("## Errors")[2].partition("\n## ")[0]
    never_seen = {"caller_gone"}  # its client has left

    assert {error.code for error in IN_ANSWERS} - never_seen <= set(re.findall(r"`([a-z_]+)`", table))


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_lists_the_targets():
    """`make` alone says what there is."""
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert {"serve", "test", "test-all", "test-changed", "check", "format", "lint", "bench", "clean"} <= set(
        re.findall(r"make ([a-z-]+)", told)
    )


def test_each_promise_names_its_tests():
    """docs/reliability.md promises nothing without a test of a name that exists."""
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    promises = re.findall(
        r"^- \*\*.*?(?=^- \*\*|^## )", page.partition("## What is promised")[2], re.MULTILINE | re.DOTALL
    )
    promises = [promise for promise in promises if promise in page.partition("## How it is tested")[0]]
    named = {promise[:40]: re.findall(r"`(tests/\S+\.py)::(\w+)`", promise) for promise in promises}

    assert 8 <= len(named)
    assert all(named.values())
    assert [] == [f"{path}::{name}" for tests in named.values() for path, name in tests if name not in functions(path)]


def functions(path: str) -> set[str]:
    """The names of the functions of a module, methods too."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
