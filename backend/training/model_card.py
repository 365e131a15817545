"""Writes the model card, README.md beside the weights: data, training, scores and limits.

The front matter is that of the Hugging Face hub, whose tools read base model, licence and scores from it.
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
_LEVELS_UP = 3  # parent folders of the data in which SOURCE.md is searched
_PACKAGES = ("torch", "transformers", "accelerate", "peft", "sentence-transformers", "kornia", "tokenizers", "numpy")
_CONFUSED_MAX = 10  # pairs of classes shown; a table of 77 x 77 is unreadable
_KNOWN_LICENCES = frozenset({"apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0"})  # the hub's names


@dataclass(frozen=True, slots=True)
class DataSource:
    """Data that a model was trained or evaluated on."""

    name: str  # of the folder or file; never a path of the training machine
    role: str  # "training", "evaluation" or "training and evaluation"
    examples: int
    licence: str = ""  # from its SOURCE.md; "" where not stated
    source: str = ""  # where from, from its SOURCE.md
    notes: str = ""  # what was left out and why, how it was split, …


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a card. Empty fields are not written."""

    name: str
    task: str  # as Task.name
    summary: str  # one or two sentences on input and output
    base: str = ""  # hub id, folder name or "bundled"; "" when trained from scratch
    base_revision: str = ""
    base_licence: str = ""
    pipeline_tag: str = ""  # the hub's: "text-classification", "token-classification", "image-classification", …
    library: str = "transformers"  # or "sentence-transformers"
    languages: Sequence[str] = ()  # ISO 639-1
    labels: Sequence[str] = ()
    data: Sequence[DataSource] = ()
    report: Report = field(default_factory=Report)
    by_set: Mapping[str, Report] = field(default_factory=dict)  # the same metrics for each evaluation set
    limits: Sequence[str] = ()  # one sentence each
    notes: Mapping[str, Any] = field(default_factory=dict)  # as passed to Task.publish: "command", "config", steps, …
    usage: str = ""  # Python, without fences


def data_source(path: Path, *, role: str, examples: int, notes: str = "") -> DataSource:
    """Describe the data at ``path``, with licence and source from the SOURCE.md in its folder or a parent."""
    source_file = _source_file(path)
    sections = _sections(source_file.read_text(encoding="utf-8", errors="replace")) if source_file else {}
    licence = next((sections[name] for name in ("licence", "license") if name in sections), "")
    name = path.resolve().name
    return DataSource(name, role, examples, licence, sections.get("source", ""), notes)


def split_sources(origin: Sequence[Path], *, train: int, evaluation: int, unit: str) -> list[DataSource]:
    """Describe the data of a task: one path for training and evaluation, or two paths with one use each."""
    notes = f"{train} {unit} to learn from, {evaluation} to evaluate on"
    if len(origin) == 1:
        return [data_source(origin[0], role="training and evaluation", examples=train + evaluation, notes=notes)]
    uses = zip(origin, ("training", "evaluation"), (train, evaluation), strict=True)
    return [data_source(path, role=role, examples=examples, notes=notes) for path, role, examples in uses]


def stated_licence(folder: Path) -> str:
    """The licence in the front matter of a model's card; "" where there is none."""
    try:
        facts = ModelCard((folder / CARD).read_text(encoding="utf-8"), ignore_metadata_errors=True).data
    except Exception:  # noqa: BLE001  # a foreign file in a YAML parser can raise anything
        return ""
    return str(facts.get("license") or "")


def write_card(folder: Path, card: Card) -> Path:
    """Write the card to the folder of the weights; returns the file."""
    file = folder / CARD
    file.write_text(render_card(card), encoding="utf-8")
    return file


def render_card(card: Card) -> str:
    """The card as Markdown with the hub's front matter."""
    sections = [
        f"---\n{_front_matter(card)}\n---\n",
        f"# {card.name}\n\n{card.summary}",
        _section("Labels", ", ".join(f"`{label}`" for label in card.labels)),
        _section("Use", f"```python\n{card.usage.strip()}\n```" if card.usage else ""),
        _section("Data", _data(card.data)),
        _section("Training", _training(card)),
        _section("Scores", _scores(card.report)),
        _section("Scores of each set", _by_set(card.by_set) if len(card.by_set) > 1 else ""),
        _section("Limits", "\n".join(f"- {limit}" for limit in (*card.limits, *_unstated(card)))),
        _section("Versions", _table(("package", "version"), versions().items())),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def versions() -> dict[str, str]:
    """Installed versions of the packages that affect the results of a training run."""
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def _front_matter(card: Card) -> str:
    stated_licences = [source.licence for source in card.data] + ([card.base_licence] if card.base else [])
    licences = {licence.strip().lower() for licence in stated_licences}
    common_licence = next(iter(licences)) if len(licences) == 1 and licences <= _KNOWN_LICENCES else None
    scores = card.report.scores
    dataset = ", ".join(source.name for source in card.data) or "unnamed"
    results = [
        EvalResult(card.pipeline_tag or card.task, dataset, dataset, name, round(value, 6))
        for name, value in scores.items()
    ]
    facts = ModelCardData(
        base_model=card.base or None,
        language=list(card.languages) or None,
        library_name=card.library,
        license=common_licence or "other",
        license_name=None if common_licence else "see-data-and-base",
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
    blocks = [
        f"Base model: {base}." if base else "Trained from random weights.",
        f"```sh\n{command}\n```" if command else "",
        _table(("", ""), ((key, _plain(value)) for key, value in others.items())),
        _table(("setting", "value"), ((key, _plain(value)) for key, value in settings.items())),
    ]
    return "\n\n".join(block for block in blocks if block)


def _scores(report: Report) -> str:
    blocks = [
        _table(("measure", "value"), ((name, f"{value:.4f}") for name, value in report.scores.items())),
        _table(("class", "precision", "recall", "F1", "examples"), map(_class_row, report.per_class)),
        _table(("true", "taken for", "examples"), _most_confused(report)),
        "\n".join(f"- {name} is not defined: {why}." for name, why in report.undefined.items()),
    ]
    return "\n\n".join(block for block in blocks if block) or "Not measured: there were no evaluation examples."


def _by_set(reports: Mapping[str, Report]) -> str:
    measures = list(dict.fromkeys(name for report in reports.values() for name in report.scores))
    labels = list(dict.fromkeys(row.label for report in reports.values() for row in report.per_class))
    rows = []
    for name, report in reports.items():
        scores = [report.scores.get(measure) for measure in measures]
        classes = {row.label: row for row in report.per_class}
        scores += [classes[label].f1 if label in classes and classes[label].support else None for label in labels]
        rows.append((name, *("-" if value is None else f"{value:.4f}" for value in scores)))
    return _table(("set", *measures, *(f"F1 {label}" for label in labels)), rows)


def _class_row(score: ClassScore) -> tuple[str, ...]:
    return (
        score.label,
        *("-" if value is None else f"{value:.4f}" for value in (score.precision, score.recall, score.f1)),
        str(score.support),
    )


def _most_confused(report: Report) -> list[tuple[str, str, str]]:
    pairs = [
        (count, true, predicted)
        for true, row in enumerate(report.confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    pairs = sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))[:_CONFUSED_MAX]
    return [(report.labels[true], report.labels[predicted], str(count)) for count, true, predicted in pairs]


def _unstated(card: Card) -> list[str]:
    """Limits that follow from missing facts: unknown licences, no evaluation."""
    unknown = [source.name for source in card.data if not source.licence]
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
    resolved = path.resolve()
    folders = [resolved, *resolved.parents][: _LEVELS_UP + 1]
    return next((folder / _SOURCE for folder in folders if (folder / _SOURCE).is_file()), None)


def _sections(markdown: str) -> dict[str, str]:
    """Level-two heading in lower case -> its text."""
    pieces = re.split(r"^##\s+(.+?)\s*$", markdown, flags=re.MULTILINE)
    return {head.lower(): body.strip() for head, body in zip(pieces[1::2], pieces[2::2], strict=True)}
