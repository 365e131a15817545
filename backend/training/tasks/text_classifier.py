"""Task "text-classifier": fine-tunes an encoder in full or with LoRA, by transformers' sequence classification."""

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
from backend.training.data.batches import batches_within_budget, model_inputs, to_model_device
from backend.training.data.texts import LabelledText, read_labelled, read_split
from backend.training.losses import (
    balanced_class_weights,
    balanced_positive_weights,
    classification_loss,
    multilabel_loss,
)
from backend.training.metrics import Report, classification_scores, multi_label_scores
from backend.training.model_card import Card, split_sources, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.pretrained import adapted, divide_last_layer, load_model, padding_id, plain_copy, save_model

SUFFIXES = (".tsv", ".jsonl")


@dataclass(frozen=True, slots=True)
class LabelledData:
    """Labelled texts, split for training and evaluation; used by fine-tuning and by classifier heads."""

    labels: tuple[str, ...]  # in alphabetical order
    multiple: bool  # whether the data is multi-label
    train: Sequence[LabelledText]
    evaluation: Sequence[LabelledText]
    origin: tuple[Path, ...]  # training data, and separate evaluation data if given

    def targets(self, examples: Sequence[LabelledText]) -> Tensor:
        """(items,) int64 class indices, or (items, labels) float32 zeros and ones for multi-label data."""
        label_ids = {label: label_id for label_id, label in enumerate(self.labels)}
        if not self.multiple:
            return torch.tensor([label_ids[example.labels[0]] for example in examples], dtype=torch.int64)
        rows = torch.zeros(len(examples), len(self.labels))
        for row, example in zip(rows, examples, strict=True):
            row[[label_ids[label] for label in example.labels]] = 1.0
        return rows

    def weights(self, config: TrainingConfig) -> Tensor | None:
        """Balancing class weights (labels) where configured; weights of positive targets for multi-label data."""
        if config.class_weights == "none":
            return None
        counts = Counter(label for example in self.train for label in example.labels)
        label_counts = [counts[label] for label in self.labels]
        items = len(self.train)
        return balanced_positive_weights(label_counts, items) if self.multiple else balanced_class_weights(label_counts)

    def report(self, logits: Tensor) -> Report:
        """Metrics of the evaluation texts. Shapes: logits (items, labels)."""
        targets = self.targets(self.evaluation).numpy()
        if self.multiple:
            return multi_label_scores(torch.sigmoid(logits.float()).numpy(), targets, self.labels)
        return classification_scores(logits.float().numpy(), targets, self.labels)

    @property
    def goal(self) -> str:
        """The metric that evaluations are compared by."""
        return "micro_f1" if self.multiple else "macro_f1"


def read_data(data: Path, *, evaluation: Path | None = None, held_out: float = 0.1) -> LabelledData:
    """Read texts and classes from ``.tsv`` or ``.jsonl``; the classes are those of the training texts.

    Raises: BadData without examples, for a single class, or an evaluation class that training does not have.
    """
    train, evaluation_examples = read_split(
        data,
        evaluation,
        read_labelled,
        suffixes=SUFFIXES,
        held_out=held_out,
        group=lambda example: example.group or example.text,
        stratum=lambda example: example.labels,
    )
    multiple = any(example.multiple for example in train)
    labels = tuple(sorted({label for example in train for label in example.labels}))
    if len(labels) < (1 if multiple else 2):
        raise BadData(
            f"{data} has {len(labels)} class ({', '.join(labels)}); a classifier needs at least two to tell apart"
        )
    for example in evaluation_examples:
        if unknown := sorted(set(example.labels) - set(labels)):
            raise BadData(
                f"{example.location}: the evaluation data has the class {unknown[0]!r}, which the training data lacks "
                f"(it has {', '.join(labels[:20])}{', …' if len(labels) > 20 else ''})"
            )
    return LabelledData(labels, multiple, train, evaluation_examples, (data, evaluation) if evaluation else (data,))


def prepare(
    data: Path, base: ModelSpec, config: TrainingConfig, *, evaluation: Path | None = None, held_out: float = 0.1
) -> TextClassifierTask:
    """Read the data and load the base with a new head; with LoRA where ``config.lora_rank`` is set.

    For few examples ``classifier_head.prepare`` is more accurate.
    Raises: BadData, ModelUnavailable.
    """
    labelled = read_data(data, evaluation=evaluation, held_out=held_out)
    model = load_model(
        AutoModelForSequenceClassification,
        base,
        seed=config.seed,
        num_labels=len(labelled.labels),
        id2label=dict(enumerate(labelled.labels)),
        label2id={label: number for number, label in enumerate(labelled.labels)},
        problem_type="multi_label_classification" if labelled.multiple else "single_label_classification",
    )
    return TextClassifierTask(adapted(model, config), base, config, labelled)


class TextClassifierTask:
    """Task "text-classifier". Splittable; the goal is macro F1, or micro F1 for multi-label data."""

    name = "text-classifier"
    splittable = True

    def __init__(self, model: nn.Module, base: ModelSpec, config: TrainingConfig, data: LabelledData) -> None:
        """Tokenize; texts longer than the model's maximum are truncated and counted in ``truncated``."""
        self.model = model
        self.data = data
        self._base, self._config = base, config
        self._pad_id = padding_id(base, model)
        tokenizer = tokenizer_of(base)
        tokens = tokenizer.encode([example.text for example in data.train])
        evaluation_tokens = tokenizer.encode([example.text for example in data.evaluation])
        self.truncated = sum(text_tokens.truncated for text_tokens in (*tokens, *evaluation_tokens))
        self._ids: list[NDArray[np.int64]] = [text_tokens.ids for text_tokens in tokens]
        self._evaluation_ids: list[NDArray[np.int64]] = [text_tokens.ids for text_tokens in evaluation_tokens]
        self._targets = data.targets(data.train)
        self._weights = data.weights(config)

    @property
    def goal(self) -> str:
        """The metric that evaluations are compared by."""
        return self.data.goal

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each text."""
        return [len(ids) for ids in self._ids]

    def collate(self, indices: Sequence[int]) -> Batch:
        """``input_ids`` and ``attention_mask`` (batch, longest), ``targets`` (batch) or (batch, labels)."""
        inputs = model_inputs([self._ids[index] for index in indices], self._pad_id)
        return {**inputs, "targets": self._targets[list(indices)]}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy, or binary cross entropy of each class for multi-label data."""
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        targets, weights = batch["targets"], self._weights
        focal, smoothing = self._config.focal_gamma, self._config.label_smoothing
        if self.data.multiple:
            return multilabel_loss(
                logits, targets, focal_gamma=focal, label_smoothing=smoothing, positive_weights=weights
            )
        return classification_loss(logits, targets, focal_gamma=focal, label_smoothing=smoothing, class_weights=weights)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Accuracy, macro F1, log loss and calibration error; multi-label: micro F1, macro F1 and exact match."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The metrics with those of each class, and which are undefined."""
        return self.data.report(self.logits(model))

    @torch.no_grad()
    def logits(self, model: nn.Module) -> Tensor:
        """(items, labels) float32 of the evaluation texts, on the CPU."""
        logits = torch.zeros(len(self._evaluation_ids), len(self.data.labels))
        for group in batches_within_budget([len(ids) for ids in self._evaluation_ids]):
            inputs = model_inputs([self._evaluation_ids[index] for index in group], self._pad_id)
            logits[group] = model(**to_model_device(model, inputs)).logits.float().cpu()
        return logits

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """Write a transformers folder for AutoModelForSequenceClassification, with a card whose scores are of it.

        Confidence is calibrated on the evaluation texts; the temperature is divided into the last layer, so that
        every loader of the folder gets calibrated probabilities and the same classes.
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


def calibrate(logits: Tensor, data: LabelledData) -> Temperature:
    """Fit a temperature on the evaluation texts, which were not trained on; 1 for multi-label data."""
    if data.multiple:
        return Temperature(1.0, "not fitted where a text may have several classes")
    return fit_temperature(logits.numpy(), data.targets(data.evaluation).numpy())


def card_of(
    data: LabelledData,
    base: ModelSpec,
    name: str,
    notes: Mapping[str, Any],
    *,
    report: Report,
    temperature: Temperature,
) -> Card:
    """The card of a fine-tuned classifier or of a head."""
    kind = "any number of" if data.multiple else "one of"
    return Card(
        name=name,
        task="text-classifier",
        summary=f"Gives a text {kind} {len(data.labels)} classes.",
        base=base.name,
        base_revision=base.revision,
        pipeline_tag="text-classification",
        labels=data.labels,
        data=split_sources(data.origin, train=len(data.train), evaluation=len(data.evaluation), unit="texts"),
        report=report,
        limits=[f"Confidence: temperature {temperature.value:.3f}, {temperature.why}."],
        notes=notes,
    )
