"""Labelled texts, pairs, scores and triplets from TSV and JSON-lines files, and which file is for what."""

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

SPLIT_SEED = 42  # of what is held out: the run's own seed may change without changing what is measured
_EVALUATION = re.compile(r"(^|[_\-.])(dev|valid|validation|eval|test)($|[_\-.])", re.IGNORECASE)
_SCORED = (("sentence1", "sentence2", "score"), ("text1", "text2", "score"))
_TRIPLETS = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
_PAIRS = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "document"),
    ("question", "answer"),
    ("sentence1", "sentence2"),
    ("source", "translation"),
)
_QUERIES = "_queries.jsonl"
_JUDGEMENTS = "qrels.tsv"


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its classes: one, or any number where a text may have several."""

    text: str
    labels: tuple[str, ...]
    place: str  # file:line, for messages
    multiple: bool = False  # whether the file says that a text may have several
    group: str = ""  # texts of one group, such as translations, are learnt from together or not at all; "": alone


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Texts that belong together: a pair (anchor, positive), or with a negative a triplet, or two with a score."""

    texts: tuple[str, ...]
    score: float | None  # as the file has it
    place: str  # file:line, for messages


def files_of(data: Path, suffixes: Sequence[str], *, any_name: bool = False) -> tuple[list[Path], list[Path]]:
    """The files to learn from and to evaluate on: a file itself, or a folder's by name.

    In a folder, names with dev, valid, eval or test between marks are for evaluation and all others for training.
    Raises: BadData when there is nothing to learn from, unless ``any_name`` takes files for evaluation alone too.
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
    """Numbers of the examples to keep back for evaluation, ascending.

    Args:
        groups: what must stay together, e.g. the text itself: a copy of a training example proves nothing.
        share: of each stratum's groups; rounded, so small strata may give none.
        strata: what must stay balanced, e.g. the class; unset: one stratum.
    """
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    rows: dict[Hashable, list[list[int]]] = {}
    for one in members.values():
        rows.setdefault(strata[one[0]] if strata else None, []).append(one)
    generator = random.Random(seed)  # noqa: S311  # a reproducible choice, no secret
    kept: list[int] = []
    for row in rows.values():
        generator.shuffle(row)
        kept += [index for one in row[: round(share * len(row))] for index in one]
    return sorted(kept)


def read_split(
    data: Path,
    evaluation: Path | None,
    read: Callable[[Path], list[Example]],
    *,
    suffixes: Sequence[str],
    held_out: float,
    group: Callable[[Example], Hashable],
    stratum: Callable[[Example], Hashable] | None = None,
    whole: Callable[[Path], bool] = Path.is_file,
) -> tuple[list[Example], list[Example]]:
    """Examples to learn from and to evaluate on: from files of their own where there are any, else held out.

    Args:
        evaluation: a file or folder instead of what ``data`` has for it.
        held_out: share of the training examples to keep back where there is nothing else; 0 for none.
        group, stratum: as in ``hold_out``.
        whole: whether ``read`` takes a path as it is, such as a folder of files that belong together.

    Raises: BadData.
    """
    training_files, evaluation_files = ([data], []) if whole(data) else files_of(data, suffixes)
    if evaluation is not None:
        parts = ([evaluation],) if whole(evaluation) else files_of(evaluation, suffixes, any_name=True)
        evaluation_files = [file for part in parts for file in part]
    learn = [one for file in training_files for one in read(file)]
    judge = [one for file in evaluation_files for one in read(file)]
    if not learn:
        raise BadData(f"{data} has no examples")
    if judge or not held_out:
        return learn, judge
    strata = [stratum(one) for one in learn] if stratum else []
    kept = frozenset(hold_out([group(one) for one in learn], share=held_out, seed=SPLIT_SEED, strata=strata))
    judge = [one for index, one in enumerate(learn) if index in kept]
    return [one for index, one in enumerate(learn) if index not in kept], judge


def read_labelled(file: Path) -> list[LabelledText]:
    """Texts with classes: fields ``text`` and ``label``, or ``labels`` where a text may have several; ``group`` too.

    ``labels`` is a list in JSON lines and joined by "|" in TSV; it may be empty.
    Raises: BadData with file and line.
    """
    return [_labelled(place, row) for place, row in read_rows(file)]


def read_groups(data: Path) -> list[TextGroup]:
    """Pairs, scored pairs or triplets, told apart by the fields' names; of a file, or of a folder with judgements.

    Known are anchor, positive and negative; query, question, document, answer, source, translation; sentence1,
    sentence2 and score. Two fields of other names, such as the languages en and es, are a pair in their order.
    A folder with ``qrels.tsv`` gives the pairs (query, relevant text) of ``X_queries.jsonl`` and ``X_corpus.jsonl``.
    Raises: BadData with file and line.
    """
    if data.is_dir():
        return list(_retrieval(data))
    groups: list[TextGroup] = []
    fields: tuple[str, ...] = ()
    for place, row in read_rows(data):
        fields = fields or _group_fields(place, row)
        texts = tuple(_text(place, row, name) for name in fields if name != "score")
        groups.append(TextGroup(texts, _score(place, row) if "score" in fields else None, place))
    return groups


def is_retrieval(data: Path) -> bool:
    """Whether a folder holds queries, texts and judgements."""
    return (data / _JUDGEMENTS).is_file()


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


def _labelled(place: str, row: Mapping[str, Any]) -> LabelledText:
    text, group = _text(place, row, "text"), str(row.get("group") or "")
    if "labels" not in row:
        label = row.get("label")
        if not isinstance(label, str | int) or not str(label).strip():
            raise BadData(f"{place}: expected a field 'label' (or 'labels') with a class, got {label!r}")
        return LabelledText(text, (str(label).strip(),), place, group=group)
    given = row["labels"]
    names = given.split("|") if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise BadData(f"{place}: 'labels' must be a list of classes (in TSV joined by '|'), got {given!r}")
    kept = tuple(dict.fromkeys(str(name).strip() for name in names if str(name).strip()))
    return LabelledText(text, kept, place, True, group)


def _text(place: str, row: Mapping[str, Any], field: str) -> str:
    text = row.get(field)
    if not isinstance(text, str) or not text.strip():
        raise BadData(f"{place}: expected a text in the field {field!r}, got {text!r} (fields: {', '.join(row)})")
    return text


def _score(place: str, row: Mapping[str, Any]) -> float:
    try:
        score = float(row["score"])
    except (TypeError, ValueError):
        score = float("nan")
    if score != score or abs(score) == float("inf"):  # noqa: PLR0124  # NaN alone differs from itself
        raise BadData(f"{place}: expected a number in the field 'score', got {row['score']!r}")
    return score


def _group_fields(place: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    for known in (*_SCORED, *_TRIPLETS, *_PAIRS):
        if all(name in row for name in known):
            return known
    if len(row) == 2:
        return tuple(row)
    raise BadData(
        f"{place}: the fields {', '.join(row)} are no pair; expected anchor and positive (and negative), "
        "sentence1, sentence2 and score, or two columns"
    )


def _retrieval(folder: Path) -> Iterator[TextGroup]:
    judgements = list(read_rows(folder / _JUDGEMENTS))
    languages = sorted(file.name.removesuffix(_QUERIES) for file in folder.glob(f"*{_QUERIES}"))
    for language in languages:
        queries, corpus = (_by_id(folder / f"{language}_{part}.jsonl") for part in ("queries", "corpus"))
        for place, row in judgements:
            query, document = row.get("query_id"), row.get("doc_id")
            if query in queries and document in corpus and str(row.get("rel", "1")) != "0":
                yield TextGroup((queries[query], corpus[document]), None, place)


def _by_id(file: Path) -> dict[Any, str]:
    return {row.get("id"): _text(place, row, "text") for place, row in read_rows(file)}
