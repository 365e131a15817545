"""Prints the test files that a change can affect: those that import a changed file, directly or through others.

    python -m tools.changed_tests            # since the branch left main, or the last commit on main; new files too
    python -m tools.changed_tests HEAD~3     # against another commit

Prints ``tests`` (all of them) when a file changed that is not Python and not documentation, such as pyproject.toml.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("backend", "benchmarks", "deploy", "tests", "tools")
EVERYTHING = ["tests"]
_DOCUMENTS = ["tests/test_docs.py"]  # what reads Markdown pages


def affected(changed: Iterable[str], graph: Mapping[str, frozenset[str]]) -> list[str]:
    """The test files to run for ``changed`` (paths below the root, of files that may be gone).

    Args:
        graph: file -> the files that it imports.
    """
    changed = set(changed)
    if any(not path.endswith((".py", ".md")) for path in changed):
        return EVERYTHING
    importers: dict[str, set[str]] = {}
    for file, imported in graph.items():
        for target in imported:
            importers.setdefault(target, set()).add(file)
    waiting, reached = list(changed), set[str]()
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += importers.get(file, ())
    tests = {file for file in reached if Path(file).name.startswith("test_") and (ROOT / file).exists()}
    if any(path.endswith(".md") for path in changed):
        tests.update(_DOCUMENTS)
    return sorted(tests)


def import_graph(root: Path = ROOT) -> dict[str, frozenset[str]]:
    """Every Python file of the project -> the files of the project that it imports; lazy imports count.

    A test imports the conftest.py of its folder and of those above, and a module its packages' ``__init__``.
    """
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    known = {_module(path.relative_to(root)): path.relative_to(root).as_posix() for path in files}
    graph = {}
    for path in files:
        names = set(_imported(ast.parse(path.read_text(encoding="utf-8"))))
        targets = {known[name] for name in names if name in known}
        if path.is_relative_to(root / "tests"):
            folders = [folder for folder in path.parents if folder.is_relative_to(root / "tests")]
            targets |= {(folder / "conftest.py").relative_to(root).as_posix() for folder in folders}
        graph[path.relative_to(root).as_posix()] = frozenset(targets)
    return graph


def changed_files(base: str | None = None) -> list[str]:
    """What differs from ``base``, committed or not, new files included."""
    if base is None:
        merge_base = _git("merge-base", "HEAD", "origin/main") or _git("merge-base", "HEAD", "main")
        base = merge_base if merge_base and merge_base != _git("rev-parse", "HEAD") else "HEAD"
    tracked = _git("diff", "--name-only", "--no-renames", base)
    return [*tracked.splitlines(), *_git("ls-files", "--others", "--exclude-standard").splitlines()]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from _with_packages(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("backend."):
            yield from _with_packages(node.value)  # python -m backend.main, lazy exports, monkeypatched names


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def main() -> None:
    """Print the files, one a line."""
    print(*affected(changed_files(*sys.argv[1:2]), import_graph()), sep="\n")


if __name__ == "__main__":
    main()
