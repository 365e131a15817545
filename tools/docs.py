"""Writes from the code: the tables of three pages of docs/, .env.example, and names for Compose.

python -m tools.docs            # write them; of a page only what stands between markers
python -m tools.docs --check    # exit status 1 when one of them is not what the code says
"""

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from backend.config import Settings
from backend.device.watch.gpu_report import table as readings
from backend.reasons import SENTENCES
from backend.telemetry import METRICS, PREFIX, Metric
from benchmarks.render import rendered
from benchmarks.tables import table

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {  # first setting of a group -> its title
    "host": "Where it listens, what it keeps",
    "use_gpu": "Device and speed",
    "model_profile": "Models",
    "redis_url": "Cache",
    "limit_inputs": "Limits",
    "api_keys": "Access and logs",
}
_MADE_BY = "Written from the code by `make docs`; do not edit."
_COMPOSE_INTRO = f"""\
# Settings that containers take from the environment of `docker compose`, before backend/.env. Names alone: where
# one has no value there, it changes nothing. {_MADE_BY}"""
# Fixed in the image and the Compose files, but for the last: a folder of the host, which the container has not.
_OF_THE_CONTAINER = frozenset({"host", "port", "state_dir", "tessdata_prefix"})
_METRIC_HEAD = ["metric", "kind", "labels", "what it says"]
_OF_LIBRARIES = ("PYTORCH_CUDA_ALLOC_CONF", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT")


def env_example() -> str:
    """Every setting with its default, commented out, so that a copy changes nothing until a line is uncommented."""
    lines = [f"# Every setting. Copy to backend/.env and uncomment what you change. {_MADE_BY}"]
    for title, fields in _groups():
        lines += ["", f"# ---- {title}"]
        for name, field in fields.items():
            lines += ["", *textwrap.wrap(_choice(field), 118, initial_indent="# ", subsequent_indent="# ")]
            lines.append(f"# {name.upper()}={default_text(field)}")
    return "\n".join(lines) + "\n"


def settings_tables() -> str:
    """The same as a table for each group."""
    head = ["setting", "values", "default", "how to choose"]
    groups = [(title, [_setting_row(name, field) for name, field in fields.items()]) for title, fields in _groups()]
    return "\n\n".join(f"## {title}\n\n{table([head, *rows])}" for title, rows in groups)


def metrics_table() -> str:
    """Every metric with its labels and their values."""
    return table(
        [_METRIC_HEAD, *([f"`{PREFIX}{one.name}`", one.kind, _labels(one), _cell(one.help)] for one in METRICS)]
    )


def gpu_metrics_table() -> str:
    """Those of `GET /metrics/gpu`."""
    rows = [
        [f"`{PREFIX}{one.name}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), _cell(one.help)]
        for one in readings()
    ]
    return table([_METRIC_HEAD, *rows])


def buckets() -> str:
    """The bounds of every histogram."""
    return "\n".join(
        f"- `{PREFIX}{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}"
        for metric in METRICS
        if metric.kind == "histogram"
    )


def reasons_table() -> str:
    """Every reason with the sentence that says it."""
    return table([["code", "sentence"], *([f"`{code}`", _cell(sentence)] for code, sentence in SENTENCES.items())])


def compose_names() -> str:
    """The names that the Compose files take from outside, alone: a value is in the environment, or nowhere."""
    names = [name.upper() for name in Settings.model_fields if name not in _OF_THE_CONTAINER]
    return "\n".join([_COMPOSE_INTRO, *names, *_OF_LIBRARIES, ""])


PAGES = ("docs/settings.md", "docs/metrics.md", "docs/reasons.md")
SECTIONS: Mapping[str, Callable[[], str]] = {  # between markers of the pages
    "settings": settings_tables,
    "metrics": metrics_table,
    "gpu-metrics": gpu_metrics_table,
    "buckets": buckets,
    "reasons": reasons_table,
}
FILES: Mapping[str, Callable[[], str]] = {".env.example": env_example, "deploy/compose/settings.env": compose_names}


def texts(root: Path = ROOT) -> dict[str, str]:
    """Of each file what it should be."""
    sections = {name: write() for name, write in SECTIONS.items()}
    pages = {page: rendered((root / page).read_text(encoding="utf-8"), sections, by="code") for page in PAGES}
    return pages | {name: write() for name, write in FILES.items()}


def stale_files(root: Path = ROOT) -> list[str]:
    """The files that are absent or not what the code says."""
    return [name for name, text in texts(root).items() if _read(root / name) != text]


def write_files(root: Path = ROOT) -> None:
    for name, text in texts(root).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def default_text(field: FieldInfo) -> str:
    """The default as one writes it in the environment; empty for unset."""
    default = field.default
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ",".join(str(word) for word in default)
    if isinstance(default, Path):
        return str(default).replace(str(Path.home()), "${HOME}")
    return f"{default:g}" if isinstance(default, float) else str(default)


def values_text(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    return ", ".join(_kinds(field.annotation))


def _kinds(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield from (_code(str(value)) for value in get_args(annotation))
    elif origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for part in get_args(annotation):
            yield from _kinds(part)
    elif annotation is not type(None):
        yield _KINDS[origin or annotation]


_KINDS = {
    bool: "`true`, `false`", int: "whole number", float: "number", str: "text", Path: "folder",
    tuple: "list, by commas",
}  # fmt: skip


def _groups() -> Iterator[tuple[str, dict[str, FieldInfo]]]:
    names = list(Settings.model_fields)
    starts = [names.index(first) for first in GROUPS]
    for title, start, end in zip(GROUPS.values(), starts, [*starts[1:], len(names)], strict=True):
        yield title, {name: Settings.model_fields[name] for name in names[start:end]}


def _setting_row(name: str, field: FieldInfo) -> list[str]:
    default = _code(default_text(field)) or "unset"
    return [f"`{name.upper()}`", values_text(field), default, _cell(_choice(field))]


def _choice(field: FieldInfo) -> str:
    return field.description or ""


def _labels(metric: Metric) -> str:
    return "; ".join(f"`{label}`" + (f": {', '.join(values)}" if values else "") for label, values in metric.labels)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main() -> int:
    """Write the files, or check them."""
    if "--check" not in sys.argv[1:]:
        write_files()
        return 0
    stale = stale_files()
    for name in stale:
        print(f"{name} is not what the code says: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
