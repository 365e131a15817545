"""What is written from the code: .env.example, three pages of docs/, and names for Compose.

python tools/docs.py            # write them
python tools/docs.py --check    # exit status 1 when one of them is not what the code says
"""

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from backend.config import Settings
from backend.device.watch.gpu_report import table
from backend.reasons import SENTENCES
from backend.telemetry import METRICS, PREFIX, Metric

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
SETTINGS_INTRO = f"""\
# Settings

<!-- {_MADE_BY} -->

From the environment or `backend/.env` (start from [`.env.example`](../.env.example)). The environment wins. A wrong
value stops the start, and every wrong value is listed at once. An empty value counts as unset. Write a value with a
`$` in single quotes (`API_KEYS='ana:pa$word'`): containers take it from the same file, and Compose replaces `$NAME`
elsewhere. `${{` is replaced in quotes too."""
METRICS_INTRO = f"""\
# Metrics

<!-- {_MADE_BY} -->

`GET /metrics` gives them to Prometheus. Every series whose label values are known beforehand exists from the first
scrape, so rates and alerts need no special case for a series that has not happened yet. Seconds everywhere; the
first bucket of every duration is 0.5 ms. Besides these there are Python's own `process_*` and `python_*`.
Where there are `API_KEYS`, the label `key` is for scrapes with an admin's key; others get the sums over all callers.

| metric | kind | labels | what it says |
|---|---|---|---|"""

_COMPOSE_INTRO = f"""\
# Settings that containers take from the environment of `docker compose`, before backend/.env. Names alone: where
# one has no value there, it changes nothing. {_MADE_BY}"""
# Fixed in the image and the Compose files, but for the last: a folder of the host, which the container has not.
_OF_THE_CONTAINER = frozenset({"host", "port", "state_dir", "tessdata_prefix"})
_OF_LIBRARIES = ("PYTORCH_CUDA_ALLOC_CONF", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT")

REASONS_INTRO = f"""\
# Reasons

<!-- {_MADE_BY} -->

Whatever an answer says in `why` (of a field, a page, the classes, a transcript) it says in `reasons`, too, as codes
with parameters that any client puts into its own language; `fields_reasons` are those of `fields_why`:

```json
{{"why": "behind the label “Vencimiento”; as in 3 confirmed invoices",
 "reasons": [{{"code": "label", "params": {{"position": "behind", "label": "Vencimiento"}}}},
             {{"code": "confirmed_invoices", "params": {{"count": 3}}}}]}}
```

Codes and names of parameters stay. Parameters are text; with `:d` whole numbers, with other formats numbers (shares
from 0 to 1); `signs`, `steps` and `languages` are lists. `position` is a word of the sentence (behind, below, beside,
after, right of, …), `kind` a kind of document. What has no code of its own is `other`, whose one parameter is the
English `text`; texts of errors are English, too: `error`, `fault` and `reason`.

Equations (`differences`, problem `arithmetic`) are made of field names, numbers, `+`, `-`, `x`, `=` and `sum of`, in
`Base x Rate (21 %) = Amount`, too: nothing else is to be translated. Errors have a stable `code`; where their
sentence has numbers or names, `params` has them: `too_large` its `what`, `value`, `limit` and `setting`,
`quota_exceeded` its `quota`, `model_not_found` its `name` and the `known` ones.

| code | sentence |
|---|---|"""

GPU_INTRO = """\
## The accelerator

`GET /metrics/gpu` gives them to a scraper that asks for text, and the same as JSON to everybody else. Identity stands
in `financia_gpu_info` alone; join the others on `uuid`. A sensor that a card does not have is an absent series, never
a 0. Ratios are 0 to 1.

| metric | kind | labels | what it says |
|---|---|---|---|"""


def env_example() -> str:
    """Every setting with its default, commented out, so that a copy changes nothing until a line is uncommented."""
    lines = [f"# Every setting. Copy to backend/.env and uncomment what you change. {_MADE_BY}"]
    for title, fields in _groups():
        lines += ["", f"# ---- {title}"]
        for name, field in fields.items():
            lines += ["", *textwrap.wrap(_choice(field), 118, initial_indent="# ", subsequent_indent="# ")]
            lines.append(f"# {name.upper()}={default_text(field)}")
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """The same as tables."""
    lines = [SETTINGS_INTRO]
    for title, fields in _groups():
        lines += ["", f"## {title}", "", "| setting | values | default | how to choose |", "|---|---|---|---|"]
        lines += [_setting_row(name, field) for name, field in fields.items()]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every metric with its labels and their values."""
    lines = [METRICS_INTRO]
    lines += [
        f"| `{PREFIX}{metric.name}` | {metric.kind} | {_labels(metric)} | {_cell(metric.help)} |" for metric in METRICS
    ]
    lines += ["", *GPU_INTRO.splitlines()]
    lines += [
        f"| `{PREFIX}{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {_cell(one.help)} |"
        for one in table()
    ]
    lines += ["", "## Buckets", ""]
    lines += [
        f"- `{PREFIX}{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.buckets)}"
        for metric in METRICS
        if metric.kind == "histogram"
    ]
    return "\n".join(lines) + "\n"


def reasons_page() -> str:
    """Every reason with the sentence that says it."""
    lines = [REASONS_INTRO, *(f"| `{code}` | {_cell(sentence)} |" for code, sentence in SENTENCES.items())]
    return "\n".join(lines) + "\n"


def compose_names() -> str:
    """The names that the Compose files take from outside, alone: a value is in the environment, or nowhere."""
    names = [name.upper() for name in Settings.model_fields if name not in _OF_THE_CONTAINER]
    return "\n".join([_COMPOSE_INTRO, *names, *_OF_LIBRARIES, ""])


PAGES: Mapping[str, Callable[[], str]] = {
    ".env.example": env_example, "docs/settings.md": settings_page, "docs/metrics.md": metrics_page,
    "docs/reasons.md": reasons_page, "deploy/compose/settings.env": compose_names,
}  # fmt: skip


def stale_pages(root: Path = ROOT) -> list[str]:
    """The pages that are absent or not what the code says."""
    return [name for name, page in PAGES.items() if _read(root / name) != page()]


def write_pages(root: Path = ROOT) -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(page(), encoding="utf-8")


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


def _setting_row(name: str, field: FieldInfo) -> str:
    default = _code(default_text(field)) or "unset"
    return f"| `{name.upper()}` | {values_text(field)} | {default} | {_cell(_choice(field))} |"


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
    """Write the pages, or check them."""
    if "--check" not in sys.argv[1:]:
        write_pages()
        return 0
    stale = stale_pages()
    for name in stale:
        print(f"{name} is not what the code says: run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
