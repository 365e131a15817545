"""Checks the layers of backend/ by its imports: who imports whom, and which library belongs where.

    python -m tools.architecture    # prints every violation, one a line

Reads the source; imports and runs nothing. Lazy imports and imports for types alone count like any other.
"""

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# From the bottom up. A wing is a folder or a file directly under backend/; it imports itself and lower rows only, so
# that no two wings import each other.
LAYERS = [
    frozenset(row.split())
    for row in (
        "tracing errors",
        "abandoned durable_files lazy_exports normal_forms own_modules reasons retry telemetry word_cache",
        "device supervision", "files models", "lanes training", "callers gpu_toolkit ocr serving", "replicas",
        "text", "images speech summaries tables", "books invoices", "documents", "jobs search", "batches", "api config",
        "bootstrap", "processes", "main check_gpu keys scaleout transfer_stores",
    )
]  # fmt: skip
ISOLATED = {"training": {"gpu_toolkit"}, "gpu_toolkit": set[str]()}  # what serving never needs -> who may import it
LAZY_EXPORTS = {"backend.device", "backend.training"}  # give names of isolated wings, for the import lines of guides

LIBRARIES = {  # library -> the wings that may import it
    "torch": "device gpu_toolkit images models training",
    "pynvml": "device",
    **dict.fromkeys(("pypdfium2", "pillow_heif", "zxingcpp", "defusedxml", "lxml", "olefile", "av"), "files"),
    **dict.fromkeys(("python_calamine", "markdown_it"), "files"),
    "PIL": "files training",
    "xlsxwriter": "books documents",
    "scipy": "models",
    "ctranslate2": "speech",
    "redis": "callers jobs lanes replicas",
    "asyncpg": "replicas search",
    **dict.fromkeys(("numkong", "snowballstemmer"), "search"),
    **dict.fromkeys(("cv2", "tesserocr", "pytesseract", "rapidocr"), "ocr"),
    **dict.fromkeys(("python_multipart", "fastapi"), "api"),
    "starlette": "api processes scaleout",
    "uvicorn": "api processes",
    "prometheus_client": "telemetry",
    "opentelemetry": "tracing",
    "pydantic_settings": "config",
    "ray": "scaleout",
}
BANNED_NAMES = frozenset({"util", "utils", "helper", "helpers", "handler", "handlers", "common", "misc"})
CRUMB_LINES = 50  # a file below it that one other file of its wing imports belongs into that one


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file."""

    path: str
    lines: int
    imports: Mapping[str, int]  # dotted, absolute -> line


def read_project(root: Path = ROOT) -> dict[str, Module]:
    """Every file of ``root/backend`` by its dotted name; a package is named by its folder."""
    paths = [path.relative_to(root) for path in sorted((root / "backend").rglob("*.py"))]
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    project = {}
    for name, path in names.items():
        text = (root / path).read_text(encoding="utf-8")
        imports = dict(_imports(ast.parse(text), names))
        project[name] = Module(path.as_posix(), text.count("\n"), imports)
    return project


def violations(project: Mapping[str, Module]) -> list[str]:
    """Every broken rule with its place, and what to do about it."""
    return sorted(violation for rule in (_wrong_imports, _circles, _files) for violation in rule(project))


def _wrong_imports(project: Mapping[str, Module]) -> Iterator[str]:
    for name, module in project.items():
        wing = _wing(name)
        if wing and _layer(wing) < 0:
            yield f"{module.path}:1: '{wing}' is in no layer: add it to LAYERS in tools/architecture.py"
            continue
        for target, line in module.imports.items():
            top, other = target.partition(".")[0], _wing(target)
            allowed = LIBRARIES.get(top, wing).split()
            if name in LAZY_EXPORTS and other in ISOLATED:
                continue
            if top == "backend" and (why := _why_not(wing, other)):
                yield f"{module.path}:{line}: imports {target}: {why}"
            elif wing and wing not in allowed:
                yield f"{module.path}:{line}: imports {target}: only {', '.join(allowed)} may; get it from there"


def _why_not(wing: str, other: str) -> str:
    """Why a wing may not import the other; empty if it may."""
    own, there = _layer(wing), _layer(other)
    if wing == other or there < 0:
        return ""  # an unknown wing is a violation of its own
    if other in ISOLATED:
        return "" if wing in ISOLATED[other] else f"'{other}' is imported by nobody; move what both need down"
    where = "above" if there > own else "beside"
    why = f"'{other}' is in a layer {where} '{wing}'; move what is needed down, or pass it in from bootstrap"
    return "" if there < own else why


def _circles(project: Mapping[str, Module]) -> Iterator[str]:
    graph = {name: project[name].imports.keys() - {name} for name in project.keys() - LAZY_EXPORTS}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"import circle {' -> '.join(error.args[1][::-1])}: move what both need to a module below them"


def _files(project: Mapping[str, Module]) -> Iterator[str]:
    for name, module in project.items():
        if banned := BANNED_NAMES.intersection(name.split(".")):
            yield f"{module.path}:1: '{min(banned)}' says nothing; name the file for the thing it is about"
        importers = [other for other, its in project.items() if name in its.imports]
        is_crumb = module.lines < CRUMB_LINES and not module.path.endswith("__init__.py") and name.count(".") > 1
        if is_crumb and len(importers) == 1 and _wing(importers[0]) == _wing(name):
            yield f"{module.path}:1: {module.lines} lines that {importers[0]} alone imports: merge them into it"


def _imports(tree: ast.Module, known: Collection[str]) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in known else node.module, node.lineno) for name in inner)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield str(getattr(node.args[0], "value", "")), node.lineno


def _wing(target: str) -> str:
    return target.partition(".")[2].partition(".")[0]


def _layer(wing: str) -> int:
    return next((index for index, wings in enumerate(LAYERS) if wing in wings), -1)


def main() -> int:
    """Print every violation."""
    found = violations(read_project())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
