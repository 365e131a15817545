"""Checks the layers of backend/ by its imports: who imports whom, which library belongs where, how long things are.

    python -m tools.architecture    # prints every violation, one a line

Reads the source; imports and runs nothing. Lazy imports and imports for types alone count like any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "backend"
ROOT = Path(__file__).resolve().parents[1]

# From the bottom up. A wing is a folder or a file directly under backend/; it imports itself and lower rows only, so
# that no two wings import each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"tracing", "errors"}),
    frozenset({"abandoned", "durable_files", "lazy_exports", "own_modules", "reasons", "retry", "telemetry"}),
    frozenset({"device", "supervision"}),
    frozenset({"files", "models"}),
    frozenset({"lanes", "training"}),
    frozenset({"callers", "gpu_toolkit", "ocr", "serving"}),
    frozenset({"replicas", "speech"}),
    frozenset({"text"}),
    frozenset({"images", "summaries", "tables"}),
    frozenset({"books", "invoices"}),
    frozenset({"documents"}),
    frozenset({"jobs", "search"}),
    frozenset({"batches"}),
    frozenset({"api", "config"}),
    frozenset({"bootstrap"}),
    frozenset({"processes"}),
    frozenset({"main", "check_gpu", "keys", "scaleout", "transfer_stores"}),
)
# Packages that serving never needs -> the packages that may import them.
ISOLATED: Mapping[str, frozenset[str]] = {"training": frozenset({"gpu_toolkit"}), "gpu_toolkit": frozenset()}
# Packages that lazily re-export names of higher layers, for the import lines of guides -> the packages they come from.
REEXPORTS: Mapping[str, frozenset[str]] = {
    f"{PACKAGE}.device": frozenset({"gpu_toolkit", "training"}),
    f"{PACKAGE}.training": frozenset({"gpu_toolkit"}),
}

LIBRARY_PACKAGES: Mapping[str, frozenset[str]] = {  # library -> the wings that may import it
    "torch": frozenset({"device", "gpu_toolkit", "images", "models", "training"}),
    "pynvml": frozenset({"device"}),
    "pypdfium2": frozenset({"files"}),
    "pillow_heif": frozenset({"files"}),
    "PIL": frozenset({"files", "training"}),
    "zxingcpp": frozenset({"files"}),
    "defusedxml": frozenset({"files"}),
    "lxml": frozenset({"files"}),
    "olefile": frozenset({"files"}),
    "python_calamine": frozenset({"files"}),
    "markdown_it": frozenset({"files"}),
    "xlsxwriter": frozenset({"books", "documents"}),
    "scipy": frozenset({"models"}),
    "av": frozenset({"files"}),
    "ctranslate2": frozenset({"speech"}),
    "redis": frozenset({"callers", "jobs", "lanes", "replicas"}),
    "asyncpg": frozenset({"replicas", "search"}),
    "numkong": frozenset({"search"}),
    "snowballstemmer": frozenset({"search"}),
    "cv2": frozenset({"ocr"}),
    "tesserocr": frozenset({"ocr"}),
    "pytesseract": frozenset({"ocr"}),
    "rapidocr": frozenset({"ocr"}),
    "python_multipart": frozenset({"api"}),
    "prometheus_client": frozenset({"telemetry"}),
    "opentelemetry": frozenset({"tracing"}),
    "fastapi": frozenset({"api"}),
    "starlette": frozenset({"api", "processes", "scaleout"}),
    "uvicorn": frozenset({"processes", "api"}),
    "pydantic_settings": frozenset({"config"}),
    "ray": frozenset({"scaleout"}),
}
# Seconds and hundreds of megabytes that a start on another runtime must not pay.
LAZY_WHEN_SERVING = frozenset(
    {
        "torch",
        "transformers",
        "sentence_transformers",
        "onnx",
        "onnxruntime",
        "openvino",
        "scipy",
        "rapidocr",
        "cv2",
        "av",
        "ctranslate2",
        "opentelemetry",
    }
)
SERVING = f"{PACKAGE}.main"

BANNED_NAMES = frozenset({"util", "utils", "helper", "helpers", "handler", "handlers", "common", "misc"})
MAX_FUNCTION_LINES = 60
CRUMB_LINES = 50  # a file below it that one other file of its wing imports belongs into that one


@dataclass(frozen=True, slots=True)
class Import:
    """One import of one module."""

    target: str  # dotted, absolute
    line: int
    at_start: bool  # runs when the module is imported: not in a function, not for types alone


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file."""

    name: str  # dotted: backend.device.facts.machine; a package is named by its folder
    path: Path
    tree: ast.Module
    lines: int
    imports: tuple[Import, ...] = ()

    @property
    def package(self) -> str:
        """The part after ``backend.``; empty for backend/__init__.py."""
        return _package_of(self.name)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A broken rule, and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(slots=True)
class Project:
    """The modules of backend/ under ``root``."""

    root: Path
    modules: dict[str, Module] = field(default_factory=dict)

    def violation(self, module: Module, line: int, message: str) -> Violation:
        return Violation(module.path.relative_to(self.root).as_posix(), line, message)


def read_project(root: Path = ROOT) -> Project:
    """Parse every file of ``root/backend``."""
    files = {_module_name(path, root): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    project = Project(root)
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        imports = tuple(_imports(tree, files.keys()))
        project.modules[name] = Module(name, path, tree, len(text.splitlines()), imports)
    return project


def violations(project: Project) -> list[Violation]:
    """Every violation, by file and line."""
    rules = (_wrong_layers, _circles, _wrong_libraries, _early_imports, _sizes, _names, _crumbs)
    return sorted(violation for rule in rules for violation in rule(project))


def _wrong_layers(project: Project) -> Iterator[Violation]:
    for module in project.modules.values():
        if module.package and _layer(module.package) is None:
            yield project.violation(
                module, 1, f"package '{module.package}' is in no layer: add it to LAYERS in tools/architecture.py"
            )
            continue
        for target, line in _own_imports(module):
            if reason := _why_not(module.package, _package_of(target)):
                yield project.violation(module, line, f"imports {target}: {reason}")


def _why_not(package: str, target: str) -> str | None:
    """Why ``package`` may not import ``target``; None if it may."""
    own, other = _layer(package), _layer(target)
    if package == target or other is None or not target:
        return None  # an unknown package is a violation of its own
    if package not in ISOLATED.get(target, {package}):
        return f"'{target}' is imported by nobody; move what both need to a lower layer"
    if own is not None and other < own:
        return None
    place = "above" if own is None or other > own else "beside"
    return (
        f"'{target}' is in a layer {place} '{package or PACKAGE}'; move what is needed down, or pass it in from "
        "bootstrap (a record, or a Protocol declared here)"
    )


def _circles(project: Project) -> Iterator[Violation]:
    graph = {name: {target for target, _ in _own_imports(module)} - {name} for name, module in project.modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        first = project.modules[circle[0]]
        yield project.violation(
            first, 1, f"import circle {' -> '.join(circle)}: move what both need to a module below them"
        )


def _wrong_libraries(project: Project) -> Iterator[Violation]:
    for module in project.modules.values():
        for imported in module.imports:
            packages = LIBRARY_PACKAGES.get(_top(imported.target))
            if packages is not None and module.package not in packages:
                yield project.violation(
                    module,
                    imported.line,
                    f"imports {imported.target}: only {_list(packages)} may; get what is needed from there",
                )


def _early_imports(project: Project) -> Iterator[Violation]:
    for module in _reached_at_start(project):
        for imported in module.imports:
            if imported.at_start and _top(imported.target) in LAZY_WHEN_SERVING:
                yield project.violation(
                    module,
                    imported.line,
                    f"imports {_top(imported.target)} when the service starts; import it in the function that needs it",
                )


def _reached_at_start(project: Project) -> Iterator[Module]:
    waiting, seen = [SERVING], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in project.modules:
            continue
        seen.add(name)
        module = project.modules[name]
        yield module
        packages = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
        waiting += [*packages, *(imported.target for imported in module.imports if imported.at_start)]


def _sizes(project: Project) -> Iterator[Violation]:
    for module in project.modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    message = (
                        f"{node.name} has {lines} lines, over {MAX_FUNCTION_LINES}; give each step a name of its own"
                    )
                    yield project.violation(module, node.lineno, message)


def _names(project: Project) -> Iterator[Violation]:
    for module in project.modules.values():
        if banned := BANNED_NAMES.intersection(module.name.split(".")):
            yield project.violation(module, 1, f"'{min(banned)}' says nothing; name the file for the thing it is about")


def _crumbs(project: Project) -> Iterator[Violation]:
    importers: dict[str, set[str]] = {}
    for name, module in project.modules.items():
        for target, _ in _own_imports(module):
            importers.setdefault(target, set()).add(name)
    for name, module in project.modules.items():
        known = importers.get(name, set())
        if module.lines < CRUMB_LINES and module.path.name != "__init__.py" and len(known) == 1:
            [importer] = known
            if _package_of(importer) == module.package and name.count(".") > 1:
                message = f"{module.lines} lines that {importer} alone imports: merge them into it"
                yield project.violation(module, 1, message)


def _imports(tree: ast.Module, known: Iterable[str]) -> Iterator[Import]:
    known = frozenset(known)
    for node, at_start in _statements(tree, at_start=True):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_start) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = {name if name in known else node.module for name in inner}
            yield from (Import(target, node.lineno, at_start) for target in sorted(targets))
        elif isinstance(node, ast.Call) and (target := _dynamic_target(node)):
            yield Import(target, node.lineno, at_start)


def _statements(node: ast.AST, *, at_start: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, and whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        yield child, at_start
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        types_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _statements(child, at_start=at_start and not (lazy or types_only))


def _dynamic_target(call: ast.Call) -> str | None:
    """The module of ``import_module("…")`` and ``__import__("…")`` with a literal name."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    name = call.args[0] if call.args else None
    if called in {"import_module", "__import__"} and isinstance(name, ast.Constant) and isinstance(name.value, str):
        return name.value
    return None


def _own_imports(module: Module) -> Iterator[tuple[str, int]]:
    lazy = REEXPORTS.get(module.name, frozenset())
    for imported in module.imports:
        if _top(imported.target) == PACKAGE and (imported.at_start or _package_of(imported.target) not in lazy):
            yield imported.target, imported.line


def _package_of(target: str) -> str:
    return target.partition(".")[2].partition(".")[0]


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _layer(package: str) -> int | None:
    return next((index for index, packages in enumerate(LAYERS) if package in packages), None)


def _top(target: str) -> str:
    return target.partition(".")[0]


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def main() -> int:
    """Print every violation."""
    found = violations(read_project())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
