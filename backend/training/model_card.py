"""The model card: what a model was made of, how, how well it does, and its limits; README.md beside the weights.

Front matter is the Hugging Face hub's, so that its tools read base model, licence and scores.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from backend.training.metrics import ClassScore, Report

CARD = "README.md"
_SOURCE = "SOURCE.md"
_LEVELS_UP = 3  # how far above the data its SOURCE.md is looked for
_PACKAGES = ("torch", "transformers", "accelerate", "peft", "sentence-transformers", "kornia", "tokenizers", "numpy")
_CONFUSED_MAX = 10  # pairs of classes shown; a table of 77 x 77 says nothing to people
_KNOWN_LICENCES = frozenset({"apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0"})  # the hub's names


@dataclass(frozen=True, slots=True)
class DataSource:
    """Data that a model saw or was measured on."""

    name: str  # of the folder or file; never a path of the machine it lay on
    role: str  # "training", "evaluation" or "training and evaluation"
    examples: int
    licence: str = ""  # as its SOURCE.md says; "" where nobody says
    source: str = ""  # where from, as its SOURCE.md says
    notes: str = ""  # what was left out and why, how it was split, …


@dataclass(frozen=True, slots=True)
class Card:
    """Everything a card says. What is empty is not written."""

    name: str
    task: str  # as Task.name
    summary: str  # one or two sentences: what goes in, what comes out
    base: str = ""  # hub id, folder name or "bundled"; "" when trained from nothing
    base_revision: str = ""
    base_licence: str = ""
    pipeline_tag: str = ""  # the hub's: "text-classification", "token-classification", "image-classification", …
    library: str = "transformers"  # or "sentence-transformers"
    languages: Sequence[str] = ()  # ISO 639-1
    labels: Sequence[str] = ()
    data: Sequence[DataSource] = ()
    report: Report = field(default_factory=Report)
    by_set: Mapping[str, Report] = field(default_factory=dict)  # the same measures of each evaluation set alone
    limits: Sequence[str] = ()  # one sentence each
    notes: Mapping[str, Any] = field(default_factory=dict)  # as Task.publish gets it: "command", "config", steps, …
    usage: str = ""  # Python, without fences


def data_source(path: Path, *, role: str, examples: int, notes: str = "") -> DataSource:
    """What is known of the data at ``path``: licence and origin from the SOURCE.md beside or above it."""
    said = _source_file(path)
    sections = _sections(said.read_text(encoding="utf-8", errors="replace")) if said else {}
    licence = next((sections[name] for name in ("licence", "license") if name in sections), "")
    name = path.resolve().name
    return DataSource(name, role, examples, licence, sections.get("source", ""), notes)


def stated_licence(folder: Path) -> str:
    """What a model's own card says in its front matter; "" where it has none or says nothing."""
    try:
        facts = ModelCard((folder / CARD).read_text(encoding="utf-8"), ignore_metadata_errors=True).data
    except Exception:  # noqa: BLE001  # anybody's file in a YAML parser: it can raise anything, and no licence is lost
        return ""
    return str(facts.get("license") or "")


def write_card(folder: Path, card: Card) -> Path:
    """Write the card beside the weights; returns the file."""
    file = folder / CARD
    file.write_text(text_of(card), encoding="utf-8")
    return file


def text_of(card: Card) -> str:
    """The card as Markdown with the hub's front matter."""
    parts = [
        f"---\n{_front_matter(card)}\n---\n",
        f"# {card.name}\n\n{card.summary}",
        _section("Labels", ", ".join(f"`{label}`" for label in card.labels)),
        _section("Use", f"```python\n{card.usage.strip()}\n```" if card.usage else ""),
        _section("Data", _data(card.data)),
        _section("Training", _training(card)),
        _section("Scores", _scores(card.report)),
        _section("Scores of each set", _by_set(card.by_set) if len(card.by_set) > 1 else ""),
        _section("Limits", "\n".join(f"- {limit}" for limit in (*card.limits, *_silent(card)))),
        _section("Versions", _table(("package", "version"), versions().items())),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def versions() -> dict[str, str]:
    """Of the installed packages that decide a training run's numbers."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _front_matter(card: Card) -> str:
    stated = [one.licence for one in card.data] + ([card.base_licence] if card.base else [])
    licences = {one.strip().lower() for one in stated}
    alone = next(iter(licences)) if len(licences) == 1 and licences <= _KNOWN_LICENCES else None
    scores = card.report.scores
    dataset = ", ".join(one.name for one in card.data) or "unnamed"
    results = [
        EvalResult(card.pipeline_tag or card.task, dataset, dataset, name, round(value, 6))
        for name, value in scores.items()
    ]
    facts = ModelCardData(
        base_model=card.base or None,
        language=list(card.languages) or None,
        library_name=card.library,
        license=alone or "other",
        license_name=None if alone else "see-data-and-base",
        pipeline_tag=card.pipeline_tag or None,
        tags=["financia", card.task],
        model_name=card.name if results else None,
        eval_results=results or None,
    )
    return facts.to_yaml()


def _data(sources: Sequence[DataSource]) -> str:
    rows = [
        (one.name, one.role, str(one.examples), one.licence or "not stated", one.source or "not stated", one.notes)
        for one in sources
    ]
    return _table(("data", "role", "examples", "licence", "source", "notes"), rows)


def _training(card: Card) -> str:
    base = card.base + (f" at revision `{card.base_revision}`" if card.base_revision else "")
    base += f" ({card.base_licence})" if card.base_licence else ""
    command = card.notes.get("command", "")
    command = shlex.join(command) if isinstance(command, (list, tuple)) else str(command)
    others = {key: value for key, value in card.notes.items() if key not in ("command", "config")}
    settings = card.notes.get("config") or {}
    parts = [
        f"Base model: {base}." if base else "Trained from random weights.",
        f"```sh\n{command}\n```" if command else "",
        _table(("", ""), ((key, _plain(value)) for key, value in others.items())),
        _table(("setting", "value"), ((key, _plain(value)) for key, value in settings.items())),
    ]
    return "\n\n".join(part for part in parts if part)


def _scores(report: Report) -> str:
    parts = [
        _table(("measure", "value"), ((name, f"{value:.4f}") for name, value in report.scores.items())),
        _table(("class", "precision", "recall", "F1", "examples"), map(_class_row, report.per_class)),
        _table(("true", "taken for", "examples"), _most_confused(report)),
        "\n".join(f"- {name} is not defined: {why}." for name, why in report.undefined.items()),
    ]
    return "\n\n".join(part for part in parts if part) or "Not measured: there were no evaluation examples."


def _by_set(reports: Mapping[str, Report]) -> str:
    measures = list(dict.fromkeys(name for one in reports.values() for name in one.scores))
    kinds = list(dict.fromkeys(row.label for one in reports.values() for row in one.per_class))
    rows = []
    for name, one in reports.items():
        scores = [one.scores.get(measure) for measure in measures]
        classes = {row.label: row for row in one.per_class}
        scores += [classes[kind].f1 if kind in classes and classes[kind].support else None for kind in kinds]
        rows.append((name, *("-" if value is None else f"{value:.4f}" for value in scores)))
    return _table(("set", *measures, *(f"F1 {kind}" for kind in kinds)), rows)


def _class_row(one: ClassScore) -> tuple[str, ...]:
    return (
        one.label,
        *("-" if value is None else f"{value:.4f}" for value in (one.precision, one.recall, one.f1)),
        str(one.support),
    )


def _most_confused(report: Report) -> list[tuple[str, str, str]]:
    pairs = [
        (count, true, said)
        for true, row in enumerate(report.confusion)
        for said, count in enumerate(row)
        if count and true != said
    ]
    pairs.sort(key=lambda one: (-one[0], one[1], one[2]))
    return [(report.labels[true], report.labels[said], str(count)) for count, true, said in pairs[:_CONFUSED_MAX]]


def _silent(card: Card) -> list[str]:
    """What a reader must know that nobody stated."""
    unknown = [one.name for one in card.data if not one.licence]
    unknown += [card.base] if card.base and not card.base_licence else []
    limits = (
        [f"The licence of {', '.join(unknown)} is not stated: ask before passing this model on."] if unknown else []
    )
    if not card.report.scores:
        limits.append("Nothing was measured; try it on documents of your own first.")
    return limits


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + " --- |" * len(head), *lines]) if lines else ""


def _cell(value: object) -> str:
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|")


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _source_file(path: Path) -> Path | None:
    here = path.resolve()
    folders = [here, *here.parents][: _LEVELS_UP + 1]
    return next((folder / _SOURCE for folder in folders if (folder / _SOURCE).is_file()), None)


def _sections(markdown: str) -> dict[str, str]:
    """Heading in lower case -> its text, of level two."""
    parts = re.split(r"^##\s+(.+?)\s*$", markdown, flags=re.MULTILINE)
    return {head.lower(): body.strip() for head, body in zip(parts[1::2], parts[2::2], strict=True)}
