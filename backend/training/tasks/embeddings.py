"""Task "embeddings": trains an encoder on pairs, scored pairs, triplets, or a teacher's vectors of parallel texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backend.errors import BadData, BadSettings
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.training.data.batches import model_inputs
from backend.training.data.texts import TextGroup, is_retrieval, read_groups, read_split
from backend.training.losses import cosent, gather_from_ranks, in_batch_loss, known_positives, multiple_negatives
from backend.training.metrics import Report, correlation_scores, rank, retrieval_scores
from backend.training.model_card import Card, split_sources, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.classifier_head import (
    SentenceEncoder,
    encode,
    frozen_vectors,
    load_sentence_encoder,
    save_sentence_encoder,
)
from backend.training.tasks.pretrained import padding_id, plain_copy

Objective = Literal["auto", "multiple_negatives", "cosent", "cosine", "triplet", "distillation"]
_IN_BATCH = ("multiple_negatives", "cosent")
_TEXTS_PER_GROUP = {"multiple_negatives": (2, 3), "cosent": (2,), "cosine": (2,), "triplet": (3,), "distillation": (2,)}
_SUFFIXES = (".tsv", ".jsonl")
_MARGIN = 0.3  # of cosines, between the positive and the negative
_CHUNK_TEXTS = 64  # default texts per GradCache chunk: 0.6 GiB in 12 layers of 768 at 128 tokens


@dataclass(frozen=True, slots=True)
class GroupData:
    """The text groups of a data set and the objective they are trained with."""

    train: Sequence[TextGroup]
    evaluation: Sequence[TextGroup]
    origin: tuple[Path, ...]
    columns: int  # texts per group
    objective: str


def read_data(
    data: Path, evaluation: Path | None, held_out: float, objective: Objective, teacher: ModelSpec | None
) -> GroupData:
    """Read the data and check that ``objective`` can use it. Raises: BadData, BadSettings."""
    train, evaluation_groups = read_split(
        data,
        evaluation,
        read_groups,
        suffixes=_SUFFIXES,
        held_out=held_out,
        group=lambda group: group.texts[0],
        reads_whole=lambda path: path.is_file() or is_retrieval(path),
    )
    formats = {_format_of(group) for group in train}
    if len(formats) > 1:
        raise BadData(f"{data} mixes pairs, scored pairs and triplets; train on one kind at a time")
    texts, scored = formats.pop()
    resolved: str = objective
    if objective == "auto":
        resolved = "distillation" if teacher else "cosent" if scored else "multiple_negatives"
    if (resolved == "distillation") != (teacher is not None):
        raise BadSettings([f"objective={resolved}: a teacher goes with distillation, and distillation needs one"])
    if texts not in _TEXTS_PER_GROUP[resolved] or (resolved in ("cosent", "cosine")) != scored:
        raise BadData(
            f"{data} has {texts} texts an example {'with' if scored else 'without'} a score; {resolved} cannot use it"
        )
    if scored and len({group.score for group in train}) == 1:
        raise BadData(f"{data}: all {len(train)} scores are {train[0].score}; there is no order to learn")
    if mismatch := next((group for group in evaluation_groups if _format_of(group) != (texts, scored)), None):
        raise BadData(f"{mismatch.location}: the evaluation data is of another kind than the training data")
    origin = (data, evaluation) if evaluation else (data,)
    return GroupData(train, evaluation_groups, origin, texts, resolved)


def _format_of(group: TextGroup) -> tuple[int, bool]:
    """Number of texts, and whether there is a score."""
    return len(group.texts), group.score is not None


def tokenize_groups(base: ModelSpec, groups: Sequence[TextGroup]) -> tuple[list[list[NDArray[np.int64]]], int]:
    """Token ids of each text of each group, and how many texts were truncated.

    Where the base has prompts for queries and documents, the first text is the query; else its default prompt is used.
    """
    tokenizer = tokenizer_of(base)
    columns = len(groups[0].texts) if groups else 0
    default = base.prompts.get(base.default_prompt or "", "")
    document = base.prompts.get("document", base.prompts.get("passage", default))
    rows: list[list[NDArray[np.int64]]] = [[] for _ in groups]
    truncated = 0
    for column in range(columns):
        has_roles = groups[0].score is None  # scored pairs are symmetric
        prompt = (base.prompts.get("query", default) if column == 0 else document) if has_roles else default
        for row, tokens in zip(
            rows, tokenizer.encode([group.texts[column] for group in groups], prompt=prompt), strict=True
        ):
            row.append(tokens.ids)
            truncated += tokens.truncated
    return rows, truncated


def retrieval_report(groups: Sequence[TextGroup], columns: Sequence[NDArray[np.float32]]) -> Report:
    """Retrieval measures of first texts as queries over all other texts; for triplets also ``triplet_accuracy``."""
    queries: dict[str, int] = {}
    documents: dict[str, tuple[int, int]] = {}
    for index, group in enumerate(groups):
        queries.setdefault(group.texts[0], index)
        for column, text in enumerate(group.texts[1:], start=1):
            documents.setdefault(text, (column, index))
    document_index = {text: number for number, text in enumerate(documents)}
    relevant: dict[str, set[int]] = {text: set() for text in queries}
    for group in groups:
        relevant[group.texts[0]].add(document_index[group.texts[1]])
    corpus = np.stack([columns[column][index] for column, index in documents.values()])
    report = retrieval_scores(rank(columns[0][list(queries.values())], corpus), [relevant[text] for text in queries])
    if len(columns) < 3:
        return report
    wins = (columns[0] * columns[1]).sum(1) > (columns[0] * columns[2]).sum(1)
    return Report({**report.scores, "triplet_accuracy": float(wins.mean())}, report.undefined)


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    objective: Objective = "auto",
    teacher: ModelSpec | None = None,
    device: str = "cpu",
) -> EmbeddingsTask:
    """Read the data and load the base; a teacher's vectors are computed once, on ``device``.

    Args:
        data: a ``.tsv`` or ``.jsonl`` file or a folder of them; or queries, corpus and qrels.tsv (texts.read_groups).
        objective: "auto" takes distillation with a teacher, CoSENT for scored pairs, multiple negatives otherwise.
        teacher: the model whose vectors of the first text are the targets for all texts of a group (parallel texts).

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    groups = read_data(data, evaluation, held_out, objective, teacher)
    model = load_sentence_encoder(base, config)
    targets = _teacher_vectors(groups, base, teacher, device) if teacher else None
    return EmbeddingsTask(model, base, config, groups, teacher_vectors=targets, teacher=teacher)


class EmbeddingsTask:
    """Task "embeddings". The goal is Spearman's correlation for scored pairs, else the rank of the right text."""

    name = "embeddings"

    def __init__(
        self,
        model: SentenceEncoder,
        base: ModelSpec,
        config: TrainingConfig,
        data: GroupData,
        *,
        teacher_vectors: Tensor | None = None,
        teacher: ModelSpec | None = None,
    ) -> None:
        """Tokenize. Shapes: teacher_vectors (groups, width), the targets for every text of a group."""
        self.model: nn.Module = model
        self.data = data
        self.splittable = data.objective not in _IN_BATCH
        self._base, self._teacher, self._teacher_vectors = base, teacher, teacher_vectors
        self._pad_id = padding_id(base, getattr(model.encoder, "base_model", model.encoder))
        self._ids, truncated_train = tokenize_groups(base, data.train)
        self._evaluation_ids, truncated_evaluation = tokenize_groups(base, data.evaluation)
        self.truncated = truncated_train + truncated_evaluation
        text_ids: dict[str, int] = {}
        self._text_ids = torch.tensor(
            [[text_ids.setdefault(text, len(text_ids)) for text in group.texts] for group in data.train]
        )
        scores = torch.tensor([group.score or 0.0 for group in data.train])
        low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
        self._scores = (scores - low) / (high - low) if high > low else scores
        self._chunk = data.columns * (config.items_at_once or max(1, _CHUNK_TEXTS // data.columns))

    @property
    def goal(self) -> str:
        """The metric that evaluations are compared by."""
        return "spearman" if self.data.evaluation and self.data.evaluation[0].score is not None else "mrr@10"

    @property
    def lengths(self) -> Sequence[int]:
        """Padded tokens of each group."""
        return [self.data.columns * max(len(ids) for ids in row) for row in self._ids]

    def limit_chunk(self, items: int) -> None:
        """Run at most ``items`` groups with a graph at once in an in-batch loss; loss and gradient stay the same."""
        self._chunk = max(1, items * self.data.columns)

    def collate(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``attention_mask`` (columns x items, longest), column by column, and the loss's inputs."""
        rows = [self._ids[index][column] for column in range(self.data.columns) for index in indices]
        selected = list(indices)
        batch: dict[str, Any] = {**model_inputs(rows, self._pad_id), "scores": self._scores[selected]}
        batch["equal"] = self._text_ids[selected]
        if self._teacher_vectors is not None:
            batch["teachings"] = self._teacher_vectors[selected]
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """The loss of the objective; its weight is the number of groups."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        if not self.splittable:
            return self._in_batch(model, batch)
        columns = model(input_ids=ids, attention_mask=mask).float().chunk(self.data.columns)
        return LossPart(self._each(columns, batch).sum(), len(columns[0]))

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Correlation with the scores, or retrieval metrics; for triplets also ``triplet_accuracy``."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The metrics, and which are undefined."""
        if not self.data.evaluation:
            return Report(undefined={self.goal: "no evaluation examples"})
        rows, count = self._evaluation_ids, self.data.columns
        columns = [encode(model, [row[column] for row in rows], self._pad_id) for column in range(count)]
        if self.data.evaluation[0].score is not None:
            scores = np.array([group.score for group in self.data.evaluation])
            return correlation_scores(scores, (columns[0] * columns[1]).sum(1))
        return retrieval_report(self.data.evaluation, columns)

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write a sentence-transformers folder that ``backend.models.model_files.resolve`` reads, with a card."""
        assert isinstance(model, SentenceEncoder)
        save_sentence_encoder(model, self._base, output)
        plain = SentenceEncoder(plain_copy(model.encoder), model.pooling, normalize=model.normalize)
        write_card(output, self._card(self.report(plain), notes, output.name))

    def _in_batch(self, model: nn.Module, batch: Batch) -> LossPart:
        equal, scores = gather_from_ranks(batch["equal"]), gather_from_ranks(batch["scores"])

        def objective(columns: Sequence[Tensor]) -> Tensor:
            if self.data.objective == "cosent":
                return cosent(columns[0], columns[1], scores)
            excluded = known_positives(equal[:, 0], equal[:, 1:].T.flatten())
            return multiple_negatives(columns[0], torch.cat(list(columns[1:])), excluded)

        ids, mask = batch["input_ids"], batch["attention_mask"]
        return in_batch_loss(model, ids, mask, columns=self.data.columns, objective=objective, chunk=self._chunk)

    def _each(self, columns: Sequence[Tensor], batch: Batch) -> Tensor:
        """The loss of each group, (items)."""
        if self.data.objective == "distillation":
            gaps = [(column - batch["teachings"]).square().mean(1) for column in columns]
            return torch.stack(gaps).mean(0)
        cosines = [nn.functional.cosine_similarity(columns[0], other) for other in columns[1:]]
        if self.data.objective == "cosine":
            scores: Tensor = batch["scores"]
            return (cosines[0] - scores).square()
        return nn.functional.relu(_MARGIN - cosines[0] + cosines[1])

    def _card(self, report: Report, notes: Mapping[str, Any], name: str) -> Card:
        data, teacher = self.data, {"teacher": self._teacher.name} if self._teacher else {}
        limits = [f"Reads the first {self._base.max_tokens} tokens of a text."]
        if self.truncated:
            limits.append(f"{self.truncated} texts of its data were longer and lost their end.")
        return Card(
            name=name,
            task=self.name,
            summary=f"Maps a text to a vector of {self._base.width} numbers; near vectors mean near meanings.",
            base=self._base.name,
            base_revision=self._base.revision,
            pipeline_tag="sentence-similarity",
            library="sentence-transformers",
            data=split_sources(
                data.origin, train=len(data.train), evaluation=len(data.evaluation), unit="groups of texts"
            ),
            report=report,
            limits=limits,
            notes={**notes, "objective": data.objective, **teacher},
            usage="from sentence_transformers import SentenceTransformer\n\nSentenceTransformer(FOLDER).encode(TEXTS)",
        )


def _teacher_vectors(data: GroupData, base: ModelSpec, teacher: ModelSpec, device: str) -> Tensor:
    """The teacher's vectors of the first texts. Shapes: -> (groups, width of the base).

    The vectors of a wider teacher are projected to their principal components, which keep most of the distances.
    """
    vectors = torch.from_numpy(frozen_vectors(teacher, [group.texts[0] for group in data.train], device=device)[0])
    if teacher.width < base.width:
        widths = f"its vectors are {teacher.width} wide, the base's {base.width}"
        raise BadSettings([f"teacher={teacher.name}: {widths}; take a wider teacher"])
    if teacher.width > base.width:
        _, _, directions = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
        if len(directions) < base.width:
            raise BadData(f"{len(vectors)} examples are too few to fit {teacher.width} directions into {base.width}")
        vectors = vectors @ directions[: base.width].T
    return nn.functional.normalize(vectors, dim=1) if base.normalize else vectors
