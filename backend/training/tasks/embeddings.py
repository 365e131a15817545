"""Vectors of texts: from pairs, scored pairs, triplets, or a teacher and parallel texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from backend.errors import BadData, BadSettings
from backend.models.spec import ModelSpec
from backend.training.data.text_batches import model_inputs
from backend.training.data.text_groups import IN_BATCH, GroupData, Objective, read_data, retrieval_report, tokenised
from backend.training.metrics import Report, correlation_scores
from backend.training.model_card import Card, data_source, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.frozen import vectors_of
from backend.training.tasks.in_batch import cosent, in_batch_loss, known_positives, multiple_negatives, of_all_ranks
from backend.training.tasks.pretrained import padding_id, plain_copy
from backend.training.tasks.sentence_encoder import (
    SentenceEncoder,
    encode,
    load_sentence_encoder,
    save_sentence_encoder,
)

_MARGIN = 0.3  # of cosines, between the positive and the negative
_CHUNK_TEXTS = 64  # that run with a graph at once where nobody says: 0.6 GiB in 12 layers of 768 at 128 tokens


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
    """Read the data and load the base; a teacher says its vectors once, on ``device``.

    Args:
        data: a ``.tsv`` or ``.jsonl`` file or a folder of them; or queries, corpus and qrels.tsv (texts.read_groups).
        objective: "auto" takes distillation with a teacher, CoSENT for scored pairs, multiple negatives otherwise.
        teacher: the model whose vectors of the first text the base shall give for both (parallel texts).

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    read = read_data(data, evaluation, held_out, objective, teacher)
    model = load_sentence_encoder(base, config)
    targets = _teachings(read, base, teacher, device) if teacher else None
    return EmbeddingsTask(model, base, config, read, teachings=targets, teacher=teacher)


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
        teachings: Tensor | None = None,
        teacher: ModelSpec | None = None,
    ) -> None:
        """Tokenise. Shapes: teachings (groups, width), the vectors to give for every text of a group."""
        self.model: nn.Module = model
        self.data = data
        self.splittable = data.objective not in IN_BATCH
        self._base, self._teacher, self._teachings = base, teacher, teachings
        self._filling = padding_id(base, getattr(model.encoder, "base_model", model.encoder))
        self._ids, cut = tokenised(base, data.learn)
        self._judge_ids, cut_judge = tokenised(base, data.judge)
        self.truncated = cut + cut_judge
        numbers: dict[str, int] = {}
        self._equal = torch.tensor(
            [[numbers.setdefault(text, len(numbers)) for text in one.texts] for one in data.learn]
        )
        scores = torch.tensor([one.score or 0.0 for one in data.learn])
        low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
        self._scores = (scores - low) / (high - low) if high > low else scores
        self._chunk = data.columns * (config.micro_batch or max(1, _CHUNK_TEXTS // data.columns))

    @property
    def goal(self) -> str:
        """What is compared between evaluations."""
        return "spearman" if self.data.judge and self.data.judge[0].score is not None else "mrr@10"

    @property
    def lengths(self) -> Sequence[int]:
        """Padded tokens of each group on its own."""
        return [self.data.columns * max(len(ids) for ids in row) for row in self._ids]

    def limit_chunk(self, items: int) -> None:
        """Run at most so many groups at once where the loss cannot be cut; loss and gradient stay the same."""
        self._chunk = max(1, items * self.data.columns)

    def collate(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``attention_mask`` (columns x items, longest), column by column, and the loss's facts."""
        rows = [self._ids[index][column] for column in range(self.data.columns) for index in indices]
        chosen = list(indices)
        batch: dict[str, Any] = {**model_inputs(rows, self._filling), "scores": self._scores[chosen]}
        batch["equal"] = self._equal[chosen]
        if self._teachings is not None:
            batch["teachings"] = self._teachings[chosen]
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """As the objective says; the weight is the number of groups."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        if not self.splittable:
            return self._in_batch(model, batch)
        columns = model(input_ids=ids, attention_mask=mask).float().chunk(self.data.columns)
        return LossPart(self._each(columns, batch).sum(), len(columns[0]))

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Correlation with the scores, or how well the right text is found; for triplets also how often it wins."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The same, and what is not defined."""
        if not self.data.judge:
            return Report(undefined={self.goal: "no evaluation examples"})
        columns = [
            encode(model, [row[place] for row in self._judge_ids], self._filling) for place in range(self.data.columns)
        ]
        if self.data.judge[0].score is not None:
            scores = np.array([one.score for one in self.data.judge])
            return correlation_scores(scores, (columns[0] * columns[1]).sum(1))
        return retrieval_report(self.data.judge, columns)

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """A sentence-transformers folder that ``backend.models.model_files.resolve`` reads, with a card."""
        assert isinstance(model, SentenceEncoder)
        save_sentence_encoder(model, self._base, output)
        plain = SentenceEncoder(plain_copy(model.encoder), model.pooling, normalize=model.normalize)
        write_card(output, self._card(self.report(plain), notes, output.name))

    def _in_batch(self, model: nn.Module, batch: Batch) -> LossPart:
        equal, scores = of_all_ranks(batch["equal"]), of_all_ranks(batch["scores"])

        def objective(columns: Sequence[Tensor]) -> Tensor:
            if self.data.objective == "cosent":
                return cosent(columns[0], columns[1], scores)
            excluded = known_positives(equal[:, 0], equal[:, 1:].T.flatten())
            return multiple_negatives(columns[0], torch.cat(list(columns[1:])), excluded)

        return in_batch_loss(
            model,
            batch["input_ids"],
            batch["attention_mask"],
            columns=self.data.columns,
            objective=objective,
            chunk=self._chunk,
        )

    def _each(self, columns: Sequence[Tensor], batch: Batch) -> Tensor:
        """The loss of each group on its own, (items)."""
        if self.data.objective == "distillation":
            gaps = [(column - batch["teachings"]).square().mean(1) for column in columns]
            return torch.stack(gaps).mean(0)
        cosines = [nn.functional.cosine_similarity(columns[0], other) for other in columns[1:]]
        if self.data.objective == "cosine":
            scores: Tensor = batch["scores"]
            return (cosines[0] - scores).square()
        return nn.functional.relu(_MARGIN - cosines[0] + cosines[1])

    def _card(self, report: Report, notes: Mapping[str, Any], name: str) -> Card:
        counts = {"training": len(self.data.learn), "evaluation": len(self.data.judge)}
        roles = ("training", "evaluation") if len(self.data.origin) > 1 else ("training and evaluation",)
        split = f"{counts['training']} groups of texts to learn from, {counts['evaluation']} to evaluate on"
        limits = [f"Reads the first {self._base.max_tokens} tokens of a text."]
        if self.truncated:
            limits.append(f"{self.truncated} texts of its data were longer and lost their end.")
        taught = {"teacher": self._teacher.name} if self._teacher else {}
        return Card(
            name=name,
            task=self.name,
            summary=f"Maps a text to a vector of {self._base.width} numbers; near vectors mean near meanings.",
            base=self._base.name,
            base_revision=self._base.revision,
            pipeline_tag="sentence-similarity",
            library="sentence-transformers",
            data=[
                data_source(path, role=role, examples=counts.get(role, sum(counts.values())), notes=split)
                for path, role in zip(self.data.origin, roles, strict=True)
            ],
            report=report,
            limits=limits,
            notes={**notes, "objective": self.data.objective, **taught},
            usage="from sentence_transformers import SentenceTransformer\n\nSentenceTransformer(FOLDER).encode(TEXTS)",
        )


def _teachings(data: GroupData, base: ModelSpec, teacher: ModelSpec, device: str) -> Tensor:
    """The teacher's vectors of the first texts, (groups, width of the base).

    A teacher that is wider says them along its principal directions; those keep most of the distances.
    """
    vectors = torch.from_numpy(vectors_of(teacher, [one.texts[0] for one in data.learn], device=device)[0])
    if teacher.width < base.width:
        widths = f"its vectors are {teacher.width} wide, the base's {base.width}"
        raise BadSettings([f"teacher={teacher.name}: {widths}; take a wider teacher"])
    if teacher.width > base.width:
        _, _, directions = torch.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
        if len(directions) < base.width:
            raise BadData(f"{len(vectors)} examples are too few to fit {teacher.width} directions into {base.width}")
        vectors = vectors @ directions[: base.width].T
    return nn.functional.normalize(vectors, dim=1) if base.normalize else vectors
