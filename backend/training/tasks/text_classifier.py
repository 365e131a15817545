"""Classes of texts: fine-tuning of a whole encoder, or with LoRA, through transformers' sequence classification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from backend.errors import BadData
from backend.models.calibration import Temperature, fit_temperature
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.training.data.text_batches import model_inputs, on_device_of, within_budget
from backend.training.data.texts import LabelledText, read_labelled, read_split
from backend.training.losses import (
    balanced_class_weights,
    balanced_positive_weights,
    classification_loss,
    multilabel_loss,
)
from backend.training.metrics import Report, classification_scores, multi_label_scores
from backend.training.model_card import Card, data_source, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.pretrained import (
    adapted,
    divide_last_layer,
    load_model,
    padding_id,
    plain_copy,
    save_model,
)

SUFFIXES = (".tsv", ".jsonl")


@dataclass(frozen=True, slots=True)
class LabelledData:
    """What both modes learn from."""

    labels: tuple[str, ...]  # in alphabetical order
    multiple: bool  # whether a text may have several
    learn: Sequence[LabelledText]
    judge: Sequence[LabelledText]
    origin: tuple[Path, ...]  # training data, and evaluation data of its own

    def targets(self, examples: Sequence[LabelledText]) -> Tensor:
        """(items,) int64 classes, or (items, labels) float32 zeros and ones where a text may have several."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        if not self.multiple:
            return torch.tensor([numbers[one.labels[0]] for one in examples], dtype=torch.int64)
        rows = torch.zeros(len(examples), len(self.labels))
        for row, one in zip(rows, examples, strict=True):
            row[[numbers[label] for label in one.labels]] = 1.0
        return rows

    def weights(self, config: TrainingConfig) -> Tensor | None:
        """Of the classes, (labels), where the settings ask for balance; of their true side where several may hold."""
        if config.class_weights == "none":
            return None
        counts = Counter(label for one in self.learn for label in one.labels)
        row = [counts[label] for label in self.labels]
        return balanced_positive_weights(row, len(self.learn)) if self.multiple else balanced_class_weights(row)

    def report(self, logits: Tensor) -> Report:
        """The measures of the evaluation texts. Shapes: logits (items, labels)."""
        targets = self.targets(self.judge).numpy()
        if self.multiple:
            return multi_label_scores(torch.sigmoid(logits.float()).numpy(), targets, self.labels)
        return classification_scores(logits.float().numpy(), targets, self.labels)

    @property
    def goal(self) -> str:
        """What is compared between evaluations."""
        return "micro_f1" if self.multiple else "macro_f1"


def read_data(data: Path, *, evaluation: Path | None = None, held_out: float = 0.1) -> LabelledData:
    """Texts and classes from ``.tsv`` or ``.jsonl``; the classes are those of the training texts.

    Raises: BadData for no examples, one class only, or a class at evaluation that training does not have.
    """
    learn, judge = read_split(
        data,
        evaluation,
        read_labelled,
        suffixes=SUFFIXES,
        held_out=held_out,
        group=lambda one: one.group or one.text,
        stratum=lambda one: one.labels,
    )
    multiple = any(one.multiple for one in learn)
    labels = tuple(sorted({label for one in learn for label in one.labels}))
    if len(labels) < (1 if multiple else 2):
        raise BadData(
            f"{data} has {len(labels)} class ({', '.join(labels)}); a classifier needs at least two to tell apart"
        )
    for one in judge:
        if strange := sorted(set(one.labels) - set(labels)):
            raise BadData(
                f"{one.place}: the evaluation data has the class {strange[0]!r}, which the training data lacks "
                f"(it has {', '.join(labels[:20])}{', …' if len(labels) > 20 else ''})"
            )
    return LabelledData(labels, multiple, learn, judge, (data, evaluation) if evaluation else (data,))


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
) -> TextClassifierTask:
    """Read the data and set a fresh head on the base; LoRA where ``config.lora_rank`` asks for it.

    Few examples are better served by ``classifier_head.prepare``.
    Raises: BadData, ModelUnavailable.
    """
    read = read_data(data, evaluation=evaluation, held_out=held_out)
    model = load_model(
        AutoModelForSequenceClassification,
        base,
        seed=config.seed,
        num_labels=len(read.labels),
        id2label=dict(enumerate(read.labels)),
        label2id={label: number for number, label in enumerate(read.labels)},
        problem_type="multi_label_classification" if read.multiple else "single_label_classification",
    )
    return TextClassifierTask(adapted(model, config), base, config, read)


class TextClassifierTask:
    """Task "text-classifier". Splittable; the goal is macro F1, or micro F1 where a text may have several classes."""

    name = "text-classifier"
    splittable = True

    def __init__(self, model: nn.Module, base: ModelSpec, config: TrainingConfig, data: LabelledData) -> None:
        """Tokenise; texts over the model's length lose their end and are counted in ``truncated``."""
        self.model = model
        self.data = data
        self._base, self._config = base, config
        self._filling = padding_id(base, model)
        tokenizer = tokenizer_of(base)
        tokens = tokenizer.encode([one.text for one in data.learn])
        judged = tokenizer.encode([one.text for one in data.judge])
        self.truncated = sum(one.truncated for one in (*tokens, *judged))
        self._ids: list[NDArray[np.int64]] = [one.ids for one in tokens]
        self._judge_ids: list[NDArray[np.int64]] = [one.ids for one in judged]
        self._targets = data.targets(data.learn)
        self._weights = data.weights(config)

    @property
    def goal(self) -> str:
        """What is compared between evaluations."""
        return self.data.goal

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each text."""
        return [len(ids) for ids in self._ids]

    def collate(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``attention_mask`` (batch, longest), ``targets`` (batch) or (batch, labels)."""
        inputs = model_inputs([self._ids[index] for index in indices], self._filling)
        return {**inputs, "targets": self._targets[list(indices)]}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy of the classes, or of each class where a text may have several."""
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return labelled_loss(logits, batch["targets"], self._config, self._weights)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Accuracy, macro F1, log loss and calibration; or micro F1, macro F1 and exact matches."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The same with every class, and what is not defined."""
        return self.data.report(self.logits(model))

    @torch.no_grad()
    def logits(self, model: nn.Module) -> Tensor:
        """(items, labels) float32 of the evaluation texts, on the CPU."""
        found = torch.zeros(len(self._judge_ids), len(self.data.labels))
        for group in within_budget([len(ids) for ids in self._judge_ids]):
            inputs = model_inputs([self._judge_ids[index] for index in group], self._filling)
            found[group] = model(**on_device_of(model, inputs)).logits.float().cpu()
        return found

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """A plain transformers folder for AutoModelForSequenceClassification, with a card whose scores are of it.

        Its confidence is calibrated on the evaluation texts by a temperature, which is divided into the last layer:
        whoever loads the folder gets calibrated probabilities and the same classes.
        """
        plain = plain_copy(model)
        temperature = calibrate(self.logits(plain), self.data)
        divide_last_layer(plain, temperature.value)
        save_model(plain, self._base, output)
        limits = [f"Reads the first {self._base.max_tokens} tokens of a text."]
        if self.truncated:
            limits.append(f"{self.truncated} texts of its data were longer and lost their end.")
        card = card_of(self.data, self._base, output.name, notes, report=self.report(plain), temperature=temperature)
        usage = 'from transformers import pipeline\n\npipeline("text-classification", model=FOLDER)(TEXT)'
        write_card(output, replace(card, limits=[*limits, *card.limits], usage=usage))


def labelled_loss(logits: Tensor, targets: Tensor, config: TrainingConfig, weights: Tensor | None) -> LossPart:
    """The loss of one class a text (targets (batch,)) or of several (targets (batch, labels))."""
    focal, smoothing = config.focal_gamma, config.label_smoothing
    if targets.is_floating_point():
        return multilabel_loss(logits, targets, focal_gamma=focal, label_smoothing=smoothing, positive_weights=weights)
    return classification_loss(logits, targets, focal_gamma=focal, label_smoothing=smoothing, class_weights=weights)


def calibrate(logits: Tensor, data: LabelledData) -> Temperature:
    """From evaluation texts, which the weights have not seen; 1 where a text may have several classes."""
    if data.multiple:
        return Temperature(1.0, "not fitted where a text may have several classes")
    return fit_temperature(logits.numpy(), data.targets(data.judge).numpy())


def card_of(
    data: LabelledData,
    base: ModelSpec,
    name: str,
    notes: Mapping[str, Any],
    *,
    report: Report,
    temperature: Temperature,
) -> Card:
    """What both modes say of themselves."""
    split = f"{len(data.learn)} texts to learn from, {len(data.judge)} to evaluate on"
    counts = {"training": len(data.learn), "evaluation": len(data.judge)}
    roles = ("training", "evaluation") if len(data.origin) > 1 else ("training and evaluation",)
    kind = "any number of" if data.multiple else "one of"
    return Card(
        name=name,
        task="text-classifier",
        summary=f"Gives a text {kind} {len(data.labels)} classes.",
        base=base.name,
        base_revision=base.revision,
        pipeline_tag="text-classification",
        labels=data.labels,
        data=[
            data_source(path, role=role, examples=counts.get(role, sum(counts.values())), notes=split)
            for path, role in zip(data.origin, roles, strict=True)
        ],
        report=report,
        limits=[f"Confidence: temperature {temperature.value:.3f}, {temperature.why}."],
        notes=notes,
    )
