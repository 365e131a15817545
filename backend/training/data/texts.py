"""Reads labelled texts, pairs, scored pairs and triplets from TSV and JSON lines, split for training and evaluation."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from backend.errors import BadData
from backend.training.data.conll import read_text

Example = TypeVar("Example")

SPLIT_SEED = 42  # of the held-out split: independent of the run's seed, so that runs stay comparable
_EVALUATION = re.compile(r"(^|[_\-.])(dev|valid|validation|eval|test)($|[_\-.])", re.IGNORECASE)
_SCORED = (("sentence1", "sentence2", "score"), ("text1", "text2", "score"))
_TRIPLETS = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
_PAIRS = (
    ("anchor", "positive"), ("query", "positive"), ("query", "document"), ("question", "answer"),
    ("sentence1", "sentence2"), ("source", "translation"),
)  # fmt: skip
_QUERIES = "_queries.jsonl"
_QRELS = "qrels.tsv"


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its classes: exactly one, or any number in multi-label data."""

    text: str
    labels: tuple[str, ...]
    location: str  # file:line, for messages
    multiple: bool = False  # whether the file is multi-label
    group: str = ""  # texts of a group, such as translations, stay on one side of a split; "": alone


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Texts that belong together: a pair (anchor, positive), or with a negative a triplet, or two with a score."""

    texts: tuple[str, ...]
    score: float | None  # as the file has it
    location: str  # file:line, for messages


def files_of(data: Path, suffixes: Sequence[str], *, any_name: bool = False) -> tuple[list[Path], list[Path]]:
    """The training and the evaluation files of a folder, by name; a single file is for training.

    Names with dev, valid, eval or test as a separate word are for evaluation, all others for training.
    Raises: BadData without training files, unless ``any_name`` allows evaluation files only.
    """
    if data.is_file():
        return [data], []
    if not data.is_dir():
        raise BadData(f"{data} does not exist; give a file ({', '.join(suffixes)}) or a folder of such files")
    found = sorted(file for file in data.iterdir() if file.suffix in suffixes and file.is_file())
    evaluation = [file for file in found if _EVALUATION.search(file.stem)]
    training = [file for file in found if file not in evaluation]
    if not training and not (any_name and evaluation):
        raise BadData(
            f"{data} has no {' or '.join(suffixes)} file to learn from, only {len(evaluation)} to evaluate on"
        )
    return training, evaluation


def hold_out(groups: Sequence[Hashable], *, share: float, seed: int, strata: Sequence[Hashable] = ()) -> list[int]:
    """Indices of the examples to hold out for evaluation, ascending.

    Args:
        groups: key of each example; equal keys stay on one side, e.g. the text itself, for copies would leak.
        share: of each stratum's groups; rounded, so small strata may give none.
        strata: key to balance by, e.g. the class; unset: one stratum.
    """
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    strata_groups: dict[Hashable, list[list[int]]] = {}
    for indices in members.values():
        strata_groups.setdefault(strata[indices[0]] if strata else None, []).append(indices)
    generator = random.Random(seed)  # noqa: S311  # a reproducible choice, no secret
    held_out: list[int] = []
    for groups_of_stratum in strata_groups.values():
        generator.shuffle(groups_of_stratum)
        chosen = groups_of_stratum[: round(share * len(groups_of_stratum))]
        held_out += [index for indices in chosen for index in indices]
    return sorted(held_out)


def read_split(
    data: Path,
    evaluation: Path | None,
    read: Callable[[Path], list[Example]],
    *,
    suffixes: Sequence[str],
    held_out: float,
    group: Callable[[Example], Hashable],
    stratum: Callable[[Example], Hashable] | None = None,
    reads_whole: Callable[[Path], bool] = Path.is_file,
) -> tuple[list[Example], list[Example]]:
    """Training and evaluation examples; without evaluation files a share of the training examples is held out.

    Args:
        evaluation: a file or folder instead of the evaluation files in ``data``.
        held_out: share of the training examples to hold out; 0 for none.
        group, stratum: as in ``hold_out``.
        reads_whole: whether ``read`` takes a path itself, such as a folder of files that belong together.

    Raises: BadData.
    """
    training_files, evaluation_files = ([data], []) if reads_whole(data) else files_of(data, suffixes)
    if evaluation is not None:
        file_lists = ([evaluation],) if reads_whole(evaluation) else files_of(evaluation, suffixes, any_name=True)
        evaluation_files = [file for files in file_lists for file in files]
    train = [example for file in training_files for example in read(file)]
    evaluation_examples = [example for file in evaluation_files for example in read(file)]
    if not train:
        raise BadData(f"{data} has no examples")
    if evaluation_examples or not held_out:
        return train, evaluation_examples
    strata = [stratum(example) for example in train] if stratum else []
    groups = [group(example) for example in train]
    held_out_indices = frozenset(hold_out(groups, share=held_out, seed=SPLIT_SEED, strata=strata))
    evaluation_examples = [example for index, example in enumerate(train) if index in held_out_indices]
    return [example for index, example in enumerate(train) if index not in held_out_indices], evaluation_examples


def read_labelled(file: Path) -> list[LabelledText]:
    """Read texts with classes: fields ``text`` and ``label``, or ``labels`` in multi-label data; ``group`` is optional.

    ``labels`` is a list in JSON lines and joined by "|" in TSV; it may be empty.
    Raises: BadData with file and line.
    """
    return [_labelled(location, row) for location, row in read_rows(file)]


def read_groups(data: Path) -> list[TextGroup]:
    """Read pairs, scored pairs or triplets, told apart by the field names; from a file, or a folder with qrels.tsv.

    Known fields are anchor, positive and negative; query, question, document, answer, source, translation; sentence1,
    sentence2 and score. Two fields of other names, such as en and es, are a pair in their order.
    A folder with ``qrels.tsv`` gives the pairs (query, relevant text) of ``X_queries.jsonl`` and ``X_corpus.jsonl``.
    Raises: BadData with file and line.
    """
    if data.is_dir():
        return list(_retrieval(data))
    groups: list[TextGroup] = []
    fields: tuple[str, ...] = ()
    for location, row in read_rows(data):
        fields = fields or _group_fields(location, row)
        texts = tuple(_text(location, row, name) for name in fields if name != "score")
        groups.append(TextGroup(texts, _score(location, row) if "score" in fields else None, location))
    return groups


def is_retrieval(data: Path) -> bool:
    """Whether a folder is a retrieval set: queries, corpus and qrels."""
    return (data / _QRELS).is_file()


def read_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(file:line, fields) of a ``.tsv`` with a header and no quoting, or of a ``.jsonl`` with an object a line.

    Raises: BadData with file and line.
    """
    if file.suffix not in (".tsv", ".jsonl"):
        raise BadData(f"{file}: expected a .tsv or .jsonl file")
    lines = read_text(file).split("\n")
    return _json_rows(file, lines) if file.suffix == ".jsonl" else _tab_rows(file, lines)


def _tab_rows(file: Path, lines: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    header = lines[0].rstrip("\r").split("\t")
    if len(header) < 2 or len(set(header)) < len(header):
        raise BadData(f"{file}:1: expected a header of different names with tabs between, got {lines[0]!r}")
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            values = line.rstrip("\r").split("\t")
            if len(values) != len(header):
                raise BadData(f"{file}:{number}: expected {len(header)} fields, got {len(values)}: {line!r}")
            yield f"{file}:{number}", dict(zip(header, values, strict=True))


def _json_rows(file: Path, lines: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise BadData(f"{file}:{number}: not JSON ({error}): {line[:100]!r}") from error
        if not isinstance(row, dict):
            raise BadData(f"{file}:{number}: expected an object, got {line[:100]!r}")
        yield f"{file}:{number}", row


def _labelled(location: str, row: Mapping[str, Any]) -> LabelledText:
    text, group = _text(location, row, "text"), str(row.get("group") or "")
    if "labels" not in row:
        label = row.get("label")
        if not isinstance(label, str | int) or not str(label).strip():
            raise BadData(f"{location}: expected a field 'label' (or 'labels') with a class, got {label!r}")
        return LabelledText(text, (str(label).strip(),), location, group=group)
    raw = row["labels"]
    names = raw.split("|") if isinstance(raw, str) else raw
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise BadData(f"{location}: 'labels' must be a list of classes (in TSV joined by '|'), got {raw!r}")
    labels = tuple(dict.fromkeys(str(name).strip() for name in names if str(name).strip()))
    return LabelledText(text, labels, location, True, group)


def _text(location: str, row: Mapping[str, Any], field: str) -> str:
    text = row.get(field)
    if not isinstance(text, str) or not text.strip():
        raise BadData(f"{location}: expected a text in the field {field!r}, got {text!r} (fields: {', '.join(row)})")
    return text


def _score(location: str, row: Mapping[str, Any]) -> float:
    try:
        score = float(row["score"])
    except (TypeError, ValueError):
        score = float("nan")
    if score != score or abs(score) == float("inf"):  # noqa: PLR0124  # NaN alone differs from itself
        raise BadData(f"{location}: expected a number in the field 'score', got {row['score']!r}")
    return score


def _group_fields(location: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    for known in (*_SCORED, *_TRIPLETS, *_PAIRS):
        if all(name in row for name in known):
            return known
    if len(row) == 2:
        return tuple(row)
    raise BadData(
        f"{location}: the fields {', '.join(row)} are no pair; expected anchor and positive (and negative), "
        "sentence1, sentence2 and score, or two columns"
    )


def _retrieval(folder: Path) -> Iterator[TextGroup]:
    qrels = list(read_rows(folder / _QRELS))
    languages = sorted(file.name.removesuffix(_QUERIES) for file in folder.glob(f"*{_QUERIES}"))
    for language in languages:
        queries, corpus = (_by_id(folder / f"{language}_{part}.jsonl") for part in ("queries", "corpus"))
        for location, row in qrels:
            query, document = row.get("query_id"), row.get("doc_id")
            if query in queries and document in corpus and str(row.get("rel", "1")) != "0":
                yield TextGroup((queries[query], corpus[document]), None, location)


def _by_id(file: Path) -> dict[Any, str]:
    return {row.get("id"): _text(location, row, "text") for location, row in read_rows(file)}
