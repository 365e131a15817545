"""The floors of the house, read from the source: who imports whom, which library lives where, how long things are.

    python -m tools.architecture    # every fault of backend/, one a line

Nothing is imported or run; lazy imports and those for types alone count like any other.
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

# A room is a folder or a file directly under backend/. A module imports its own room and lower floors only.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "durable_files", "lazy_exports", "telemetry"}),
    frozenset({"device"}),
    frozenset({"models"}),
    frozenset({"engines", "documents", "training"}),
    frozenset({"batching", "cache", "gpu_toolkit"}),
    frozenset({"services"}),
    frozenset({"jobs"}),
    frozenset({"api", "config"}),
    frozenset({"bootstrap"}),
    frozenset({"main", "check_gpu", "scaleout"}),
)
# Rooms that serving never needs -> the rooms that may import them.
ALONE: Mapping[str, frozenset[str]] = {"training": frozenset({"gpu_toolkit"}), "gpu_toolkit": frozenset()}
# Packages that re-export names of higher rooms lazily, by the names that guides use -> those rooms.
REEXPORTS: Mapping[str, frozenset[str]] = {
    f"{PACKAGE}.device": frozenset({"gpu_toolkit", "training"}),
    f"{PACKAGE}.training": frozenset({"gpu_toolkit"}),
}

LIBRARY_ROOMS: Mapping[str, frozenset[str]] = {  # library -> the rooms that may import it
    "torch": frozenset({"device", "gpu_toolkit", "models", "training"}),
    "pynvml": frozenset({"device"}),
    "pypdfium2": frozenset({"documents"}),
    "pillow_heif": frozenset({"documents"}),
    "PIL": frozenset({"documents", "training"}),
    "scipy": frozenset({"models"}),
    "redis": frozenset({"cache", "jobs"}),
    "cv2": frozenset({"engines"}),
    "tesserocr": frozenset({"engines"}),
    "pytesseract": frozenset({"engines"}),
    "rapidocr": frozenset({"engines"}),
    "python_multipart": frozenset({"api"}),
    "prometheus_client": frozenset({"telemetry"}),
    "fastapi": frozenset({"api"}),
    "starlette": frozenset({"api"}),
    "uvicorn": frozenset({"main", "api"}),
    "pydantic_settings": frozenset({"config"}),
    "ray": frozenset({"scaleout"}),
}
# Seconds and hundreds of megabytes that a start on another runtime must not pay.
LAZY_WHEN_SERVING = frozenset(
    {"torch", "transformers", "sentence_transformers", "onnx", "onnxruntime", "openvino", "scipy", "rapidocr", "cv2"}
)
SERVING = f"{PACKAGE}.main"

ENVIRONMENT_READERS: Mapping[str, str] = {  # module -> why it may touch os.environ
    f"{PACKAGE}.config": "the only reader of the environment",
    f"{PACKAGE}.main": "tells the tokenizer library to start no threads, before it is imported anywhere",
}
BANNED_NAMES = frozenset({"util", "utils", "helper", "helpers", "handler", "handlers", "common", "misc"})
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


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
    def room(self) -> str:
        """The part after ``backend.``; empty for backend/__init__.py."""
        return _room(self.name)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One broken rule, and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(slots=True)
class House:
    """All modules of the package under ``root``."""

    root: Path
    modules: dict[str, Module] = field(default_factory=dict)

    def fault(self, module: Module, line: int, message: str) -> Fault:
        return Fault(module.path.relative_to(self.root).as_posix(), line, message)


def read_house(root: Path = ROOT) -> House:
    """Parse every file of ``root/backend``."""
    files = {_module_name(path, root): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    house = House(root)
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        imports = tuple(_imports(tree, files.keys()))
        house.modules[name] = Module(name, path, tree, len(text.splitlines()), imports)
    return house


def faults(house: House) -> list[Fault]:
    """Every fault of the house, by file and line."""
    rules = (_wrong_floors, _circles, _wrong_rooms, _early_imports, _environment, _sizes, _names, _docstrings)
    return sorted(fault for rule in rules for fault in rule(house))


def _wrong_floors(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        if module.room and _floor(module.room) is None:
            yield house.fault(
                module, 1, f"room '{module.room}' is on no floor: add it to FLOORS in tools/architecture.py"
            )
            continue
        for target, line in _own_imports(module):
            if reason := _why_not(module.room, _room(target)):
                yield house.fault(module, line, f"imports {target}: {reason}")


def _why_not(room: str, target: str) -> str | None:
    """Why ``room`` may not import ``target``; None if it may."""
    here, there = _floor(room), _floor(target)
    if room == target or there is None or not target:
        return None  # an unknown room is its own fault
    if room not in ALONE.get(target, {room}):
        return f"'{target}' is imported by nobody; move what both need to a lower floor"
    if here is not None and there < here:
        return None
    place = "above" if here is None or there > here else "beside"
    return (
        f"'{target}' is on a floor {place} '{room or PACKAGE}'; move what is needed down, or hand it in from wiring "
        "(a record, or a Protocol declared here)"
    )


def _circles(house: House) -> Iterator[Fault]:
    graph = {name: {target for target, _ in _own_imports(module)} - {name} for name, module in house.modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        first = house.modules[circle[0]]
        yield house.fault(first, 1, f"import circle {' -> '.join(circle)}: move what both need to a module below them")


def _wrong_rooms(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        for one in module.imports:
            rooms = LIBRARY_ROOMS.get(_top(one.target))
            if rooms is not None and module.room not in rooms:
                yield house.fault(
                    module, one.line, f"imports {one.target}: only {_list(rooms)} may; ask that room for what is needed"
                )


def _early_imports(house: House) -> Iterator[Fault]:
    for module in _reached_at_start(house):
        for one in module.imports:
            if one.at_start and _top(one.target) in LAZY_WHEN_SERVING:
                yield house.fault(
                    module,
                    one.line,
                    f"imports {_top(one.target)} when the service starts; import it in the function that needs it",
                )


def _reached_at_start(house: House) -> Iterator[Module]:
    waiting, seen = [SERVING], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in house.modules:
            continue
        seen.add(name)
        module = house.modules[name]
        yield module
        packages = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
        waiting += [*packages, *(one.target for one in module.imports if one.at_start)]


def _environment(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        if module.name in ENVIRONMENT_READERS:
            continue
        for node in ast.walk(module.tree):
            if _touches_environment(node):
                message = "touches the environment: make it a setting in config.py and hand the value down"
                yield house.fault(module, getattr(node, "lineno", 1), message)


def _touches_environment(node: ast.AST) -> bool:
    names = {"environ", "getenv", "putenv", "environb"}
    if isinstance(node, ast.Attribute):
        return node.attr in names and isinstance(node.value, ast.Name) and node.value.id == "os"
    return isinstance(node, ast.ImportFrom) and node.module == "os" and any(one.name in names for one in node.names)


def _sizes(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        if module.lines > MAX_FILE_LINES:
            yield house.fault(
                module, 1, f"{module.lines} lines are over {MAX_FILE_LINES}; split it by what changes together"
            )
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    message = (
                        f"{node.name} has {lines} lines, over {MAX_FUNCTION_LINES}; give each step a name of its own"
                    )
                    yield house.fault(module, node.lineno, message)


def _names(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        if banned := BANNED_NAMES.intersection(module.name.split(".")):
            yield house.fault(module, 1, f"'{min(banned)}' says nothing; name the file for the thing it is about")


def _docstrings(house: House) -> Iterator[Fault]:
    for module in house.modules.values():
        if module.tree.body and ast.get_docstring(module.tree) is None:
            yield house.fault(module, 1, "no docstring; open the file with one sentence that says what it is for")


def _imports(tree: ast.Module, known: Iterable[str]) -> Iterator[Import]:
    known = frozenset(known)
    for node, at_start in _statements(tree, at_start=True):
        if isinstance(node, ast.Import):
            yield from (Import(one.name, node.lineno, at_start) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{one.name}" for one in node.names]
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
    for one in module.imports:
        if _top(one.target) == PACKAGE and (one.at_start or _room(one.target) not in lazy):
            yield one.target, one.line


def _room(target: str) -> str:
    return target.partition(".")[2].partition(".")[0]


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _floor(room: str) -> int | None:
    return next((index for index, rooms in enumerate(FLOORS) if room in rooms), None)


def _top(target: str) -> str:
    return target.partition(".")[0]


def _list(rooms: Iterable[str]) -> str:
    return ", ".join(sorted(rooms))


def main() -> int:
    """Print every fault."""
    found = faults(read_house())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
