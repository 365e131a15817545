"""What a PromQL expression asks for: its metrics, labels and values; and what the service really exports.

Only as much of the language as names things. Whether an expression is well formed, promtool says.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from prometheus_client.utils import floatToGoString

from backend.api.app import create_app
from backend.api.middleware import OTHER, STATUSES
from backend.api.request_context import ApiLimits
from backend.bootstrap.services import TASKS
from backend.device.watch.gpu_report import THROTTLE_REASONS, table
from backend.ocr.records import OCR_TASKS
from backend.telemetry import METRICS, PREFIX, Telemetry
from tests.conftest import absent

if TYPE_CHECKING:
    from backend.api.request_context import Services

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SCRAPED = frozenset(("job", "instance"))  # Prometheus puts these on everything it scrapes
_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_:][\w:]*)|(?P<number>\d[\w.]*)|(?P<sign>=~|!~|!=|[^\s\w"])"""
)
_WORDS = frozenset(("and", "or", "unless", "bool", "offset", "sum", "min", "max", "avg", "count"))
_GROUPINGS = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))


@dataclass(slots=True)
class Selector:
    """One metric of an expression, with what it demands of its labels."""

    metric: str
    matchers: list[tuple[str, str, str]] = field(default_factory=list)  # label, operator, value


@dataclass(slots=True)
class Expression:
    """All that an expression names."""

    selectors: list[Selector]
    groupings: list[frozenset[str]]  # of each by(), on() and the like, from left to right


def parse(text: str) -> Expression:
    """Find every selector and grouping. Raises: ValueError where a name stands that is none of them."""
    tokens = [(kind, found[kind]) for found in _TOKEN.finditer(text) if (kind := found.lastgroup)]
    expression, index = Expression([], []), 0
    while index < len(tokens):
        kind, token = tokens[index]
        following = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        index += 1
        if token == "[":  # a range: 5m is a number, but $__rate_interval is names
            index = tokens.index(("sign", "]"), index)
        elif token in _GROUPINGS:
            end = tokens.index(("sign", ")"), index)
            expression.groupings.append(frozenset(name for kind, name in tokens[index:end] if kind == "name"))
            index = end
        elif kind != "name" or token in _WORDS or following == "(":
            continue
        elif following == "{":
            end = tokens.index(("sign", "}"), index)
            expression.selectors.append(Selector(token, _matchers(tokens[index + 1 : end])))
            index = end
        else:
            expression.selectors.append(Selector(token))
    return expression


def _matchers(tokens: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    parts = [token for token in tokens if token != ("sign", ",")]
    if len(parts) % 3:
        raise ValueError(f"not label, operator, value: {tokens}")
    return [(parts[at][1], parts[at + 1][1], parts[at + 2][1][1:-1]) for at in range(0, len(parts), 3)]


def exported() -> Mapping[str, Mapping[str, frozenset[str]]]:
    """Every series name, with its labels and the values each can have; no values: they are known at run time only."""
    known: dict[str, dict[str, frozenset[str]]] = {"up": {}}
    for metric in METRICS:
        labels = {label: frozenset(values) or _AT_START.get(label, frozenset()) for label, values in metric.labels}
        name = PREFIX + metric.name
        if metric.kind == "histogram":
            bounds = frozenset(floatToGoString(bound) for bound in (*metric.buckets, float("inf")))
            known |= {f"{name}_bucket": {**labels, "le": bounds}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            known[name] = labels
    for reading in table():
        reasons = {"reason": frozenset(THROTTLE_REASONS)}
        known[PREFIX + reading.name] = {label: reasons.get(label, frozenset()) for label in reading.labels}
    return known | {name: {} for name in _of_the_process()}


def _of_the_process() -> list[str]:
    text = Telemetry().render().decode()
    return re.findall(r"^(process_\w+) ", text, re.MULTILINE)


def _routes() -> frozenset[str]:
    parts = SimpleNamespace(telemetry=Telemetry(), limits=ApiLimits())  # all that the routes need of them
    services = cast("Services", parts)
    return frozenset(route.path for route in create_app(services).routes if hasattr(route, "path")) | {OTHER}


_AT_START = {
    "route": _routes(),
    "status": frozenset(STATUSES),
    "task": frozenset(TASKS),
    "engine": frozenset((*TASKS, *OCR_TASKS)),
}
EXPORTED = exported()


def faults(text: str) -> list[str]:
    """What an expression names that the service does not export, in words."""
    expression = parse(text)
    found = [fault for selector in expression.selectors for fault in _faults_of(selector)]
    labels = SCRAPED.union(*(EXPORTED.get(selector.metric, {}) for selector in expression.selectors))
    found += [f"grouped by {label}" for group in expression.groupings for label in sorted(group - labels)]
    return found if expression.selectors else [*found, "nothing is asked for"]


def _faults_of(selector: Selector) -> Iterator[str]:
    if selector.metric not in EXPORTED:
        yield selector.metric
        return
    labels = EXPORTED[selector.metric]
    for label, operator, value in selector.matchers:
        if label not in labels and label not in SCRAPED:
            yield f"{selector.metric}{{{label}}}"
        elif known := labels.get(label):
            wishes = [re.escape(value)] if operator in {"=", "!="} else value.split("|")
            for wish in wishes:
                if not any(re.fullmatch(wish, one) for one in known):
                    yield f"{selector.metric}{{{label}{operator}{wish}}}"


def shown_labels(text: str) -> frozenset[str]:
    """The labels that the series of an expression's result can have."""
    expression = parse(text)
    if expression.groupings:
        return frozenset().union(*expression.groupings)
    return SCRAPED.union(*(EXPORTED[selector.metric] for selector in expression.selectors))


def promtool(*arguments: str, folder: Path = DEPLOY / "prometheus") -> subprocess.CompletedProcess[str]:
    """Run promtool; the test is skipped where there is none, or fails under CI=true."""
    if shutil.which("promtool") is None:
        absent("promtool is not installed (tools/system_packages.sh installs the package prometheus)")
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)
