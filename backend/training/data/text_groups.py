"""Pairs, scored pairs and triplets as an embedding task reads them, and how well vectors keep what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.errors import BadData, BadSettings
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.training.data.texts import TextGroup, is_retrieval, read_groups, read_split
from backend.training.metrics import Report, rank, retrieval_scores

Objective = Literal["auto", "multiple_negatives", "cosent", "cosine", "triplet", "distillation"]
IN_BATCH = ("multiple_negatives", "cosent")
_TEXTS = {"multiple_negatives": (2, 3), "cosent": (2,), "cosine": (2,), "triplet": (3,), "distillation": (2,)}
_SUFFIXES = (".tsv", ".jsonl")


@dataclass(frozen=True, slots=True)
class GroupData:
    """What is learnt from."""

    learn: Sequence[TextGroup]
    judge: Sequence[TextGroup]
    origin: tuple[Path, ...]
    columns: int  # texts of a group
    objective: str


def read_data(
    data: Path, evaluation: Path | None, held_out: float, objective: Objective, teacher: ModelSpec | None
) -> GroupData:
    """Read and check what ``objective`` needs. Raises: BadData, BadSettings."""
    learn, judge = read_split(
        data,
        evaluation,
        read_groups,
        suffixes=_SUFFIXES,
        held_out=held_out,
        group=lambda one: one.texts[0],
        whole=lambda path: path.is_file() or is_retrieval(path),
    )
    kinds = {(len(one.texts), one.score is not None) for one in learn}
    if len(kinds) > 1:
        raise BadData(f"{data} mixes pairs, scored pairs and triplets; train on one kind at a time")
    texts, scored = kinds.pop()
    chosen: str = objective
    if objective == "auto":
        chosen = "distillation" if teacher else "cosent" if scored else "multiple_negatives"
    if (chosen == "distillation") != (teacher is not None):
        raise BadSettings([f"objective={chosen}: a teacher goes with distillation, and distillation needs one"])
    if texts not in _TEXTS[chosen] or (chosen in ("cosent", "cosine")) != scored:
        raise BadData(
            f"{data} has {texts} texts an example {'with' if scored else 'without'} a score; {chosen} cannot use it"
        )
    if scored and len({one.score for one in learn}) == 1:
        raise BadData(f"{data}: all {len(learn)} scores are {learn[0].score}; there is no order to learn")
    if odd := next((one for one in judge if (len(one.texts), one.score is not None) != (texts, scored)), None):
        raise BadData(f"{odd.place}: the evaluation data is of another kind than the training data")
    origin = (data, evaluation) if evaluation else (data,)
    return GroupData(learn, judge, origin, texts, chosen)


def tokenised(base: ModelSpec, groups: Sequence[TextGroup]) -> tuple[list[list[NDArray[np.int64]]], int]:
    """Token ids of each text of each group, and how many texts lost their end.

    Where the base knows prompts for queries and documents, the first text is the query; else its default one is put.
    """
    tokenizer = tokenizer_of(base)
    columns = len(groups[0].texts) if groups else 0
    default = base.prompts.get(base.default_prompt or "", "")
    document = base.prompts.get("document", base.prompts.get("passage", default))
    rows: list[list[NDArray[np.int64]]] = [[] for _ in groups]
    cut = 0
    for column in range(columns):
        roles = groups[0].score is None  # scored pairs are of one kind
        prompt = (base.prompts.get("query", default) if column == 0 else document) if roles else default
        for row, tokens in zip(
            rows, tokenizer.encode([one.texts[column] for one in groups], prompt=prompt), strict=True
        ):
            row.append(tokens.ids)
            cut += tokens.truncated
    return rows, cut


def retrieval_report(groups: Sequence[TextGroup], columns: Sequence[NDArray[np.float32]]) -> Report:
    """Every first text asks for its own among all other texts; of triplets also how often it wins."""
    queries: dict[str, int] = {}
    documents: dict[str, tuple[int, int]] = {}
    for place, one in enumerate(groups):
        queries.setdefault(one.texts[0], place)
        for column, text in enumerate(one.texts[1:], start=1):
            documents.setdefault(text, (column, place))
    numbers = {text: number for number, text in enumerate(documents)}
    wanted: dict[str, set[int]] = {text: set() for text in queries}
    for one in groups:
        wanted[one.texts[0]].add(numbers[one.texts[1]])
    corpus = np.stack([columns[column][place] for column, place in documents.values()])
    found = retrieval_scores(rank(columns[0][list(queries.values())], corpus), [wanted[text] for text in queries])
    if len(columns) < 3:
        return found
    right = (columns[0] * columns[1]).sum(1) > (columns[0] * columns[2]).sum(1)
    return Report({**found.scores, "triplet_accuracy": float(right.mean())}, found.undefined)
