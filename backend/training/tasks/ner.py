"""Named entities from CoNLL files: tags on the first sub-word of each word, long sentences in overlapping windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForTokenClassification

from backend.errors import BadData
from backend.models.spec import ModelSpec
from backend.models.tokens import TextTokenizer, TokenPiece
from backend.training.card import Card, data_source, write_card
from backend.training.conll import OUTSIDE, Sentence, as_text, bio_labels, check_types, keep_types, read_conll
from backend.training.losses import IGNORED, balanced_class_weights, classification_loss, target_weight
from backend.training.metrics import Report, entity_scores
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.batches import model_inputs, on_device_of, pad, windows, within_budget
from backend.training.tasks.pretrained import (
    adapted,
    load_model,
    padding_id,
    plain_copy,
    read_tokenizer,
    save_model,
    special_ids,
)
from backend.training.texts import read_split

_USAGE = """from transformers import pipeline

pipeline("ner", model=FOLDER, aggregation_strategy="first")(TEXT)"""
_TOKENIZED_AT_ONCE = 1024  # sentences; bounds the memory of their pieces


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence, or a window of one, as the model sees it. Equally long but for ``sentence``."""

    ids: Sequence[int]
    words: Sequence[int]  # of each position: the word it answers for, or -100
    labels: Sequence[int]  # of each position: the number of its word's tag, or -100
    sentence: int


def prepare(
    data: Path,
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    types: Collection[str] = (),
) -> NerTask:
    """Read the data and set a fresh head on the base.

    Args:
        data: a ``.conll`` file, or a folder of them (names with dev or test are for evaluation).
        evaluation: a file or folder to evaluate on instead.
        held_out: share of the training sentences kept back where nothing else is there to evaluate on.
        types: the kinds of entities to learn and to score; unset: all of the training data.

    Raises: BadData, ModelUnavailable.
    """
    learn, judge = read_split(
        data, evaluation, read_conll, suffixes=(".conll",), held_out=held_out, group=lambda one: one.words
    )
    if types:
        learn, judge = keep_types(learn, types), keep_types(judge, types)
    labels = bio_labels(learn)
    check_types(judge, labels)
    model = load_model(
        AutoModelForTokenClassification,
        base,
        seed=config.seed,
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    origin = (data, evaluation) if evaluation else (data,)
    return NerTask(adapted(model, config), base, config, labels=labels, learn=learn, judge=judge, origin=origin)


class NerTask:
    """Task "ner". Splittable; the goal is the F1 of whole entities."""

    name = "ner"
    splittable = True
    goal = "f1"

    def __init__(
        self,
        model: nn.Module,
        base: ModelSpec,
        config: TrainingConfig,
        *,
        labels: Sequence[str],
        learn: Sequence[Sentence],
        judge: Sequence[Sentence],
        origin: Sequence[Path],
    ) -> None:
        """Tokenise. Raises: BadData when no sentence has a labelled token."""
        self.model = model
        self.labels = tuple(labels)
        self._base, self._config, self._origin = base, config, tuple(origin)
        self._filling = padding_id(base, model)
        tokenizer = read_tokenizer(base)
        rows = sentence_rows(learn, tokenizer, self.labels)
        self._rows = [row for row in rows if any(label != IGNORED for label in row.labels)]
        self.windowed = sum(count > 1 for count in Counter(row.sentence for row in rows).values())
        self._judge = judge
        self._judge_rows = sentence_rows(judge, tokenizer, self.labels)
        self._sentences = len(learn)
        if not self._rows:
            raise BadData(f"none of {len(learn)} sentences has a token that this tokenizer knows")
        counts = Counter(label for row in self._rows for label in row.labels)
        balanced = config.class_weights == "balanced"
        self._weights = balanced_class_weights([counts[number] for number in range(len(labels))]) if balanced else None

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each window."""
        return [len(row.ids) for row in self._rows]

    def collate(self, indices: Sequence[int]) -> Batch:
        """``input_ids``, ``attention_mask`` and ``labels``, each (batch, longest), and the labels' ``weight``."""
        rows = [self._rows[index] for index in indices]
        labels = pad([row.labels for row in rows], IGNORED)
        weight = target_weight(labels, class_weights=self._weights)
        return {**model_inputs([row.ids for row in rows], self._filling), "labels": labels, "weight": weight}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy over labelled tokens."""
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return classification_loss(
            logits,
            batch["labels"],
            focal_gamma=self._config.focal_gamma,
            label_smoothing=self._config.label_smoothing,
            class_weights=self._weights,
            weight=batch["weight"],
        )

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """f1, precision, recall and macro_f1 of whole entities; empty without evaluation sentences."""
        return self.report(model).scores

    def report(self, model: nn.Module) -> Report:
        """The same with every kind of entity, and what is not defined."""
        tags = self.predict(model)
        return entity_scores([one.tags for one in self._judge], tags)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> list[list[str]]:
        """A tag for each word of the evaluation sentences; O for words that the tokenizer has no token for."""
        tags = [[OUTSIDE] * len(one.words) for one in self._judge]
        for group in within_budget([len(row.ids) for row in self._judge_rows]):
            rows = [self._judge_rows[index] for index in group]
            inputs = on_device_of(model, model_inputs([row.ids for row in rows], self._filling))
            chosen: Tensor = model(**inputs).logits.argmax(-1).cpu()
            for row, numbers in zip(rows, chosen.tolist(), strict=True):
                for word, number in zip(row.words, numbers, strict=False):  # numbers go on through the padding
                    if word != IGNORED:
                        tags[row.sentence][word] = self.labels[number]
        return tags

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """A plain transformers folder for AutoModelForTokenClassification, with a card whose scores are of it."""
        plain = plain_copy(model)
        save_model(plain, self._base, output)
        write_card(output, self._card(self.report(plain), notes, output.name))

    def _card(self, report: Report, notes: Mapping[str, Any], name: str) -> Card:
        kinds = [label[2:] for label in self.labels if label.startswith("B-")]
        counts = {"training": self._sentences, "evaluation": len(self._judge)}
        roles = ("training", "evaluation") if len(self._origin) > 1 else ("training and evaluation",)
        return Card(
            name=name,
            task=self.name,
            summary=f"Finds names in text: {', '.join(kinds)}. One BIO tag on the first sub-word of each word.",
            base=self._base.name,
            base_revision=self._base.revision,
            pipeline_tag="token-classification",
            labels=self.labels,
            data=[
                data_source(path, role=role, examples=counts.get(role, sum(counts.values())), notes=_split(counts))
                for path, role in zip(self._origin, roles, strict=True)
            ],
            report=report,
            limits=[
                f"Reads {self._base.max_tokens} tokens at once; longer texts need overlapping windows.",
                "A word's tag is that of its first sub-word: aggregation_strategy='first' reads it so.",
            ],
            notes=notes,
            usage=_USAGE,
        )


def sentence_rows(sentences: Sequence[Sentence], tokenizer: TextTokenizer, labels: Sequence[str]) -> list[Row]:
    """Every sentence as one row, or as windows where it is too long for the model."""
    numbers = {label: number for number, label in enumerate(labels)}
    before, after = special_ids(tokenizer)
    room = tokenizer.max_tokens - len(before) - len(after)
    rows: list[Row] = []
    for first in range(0, len(sentences), _TOKENIZED_AT_ONCE):
        some = sentences[first : first + _TOKENIZED_AT_ONCE]
        laid = [as_text(one.words) for one in some]
        pieces = tokenizer.pieces([text for text, _ in laid], add_special_tokens=False)
        for place, (one, (text, places), row) in enumerate(zip(some, laid, pieces, strict=True)):
            words = first_pieces(row, text, places)
            for window in windows(len(row), room):
                own = [
                    word if window.own_start <= at < window.own_stop else IGNORED
                    for at, word in enumerate(words[window.start : window.stop], start=window.start)
                ]
                own = [*([IGNORED] * len(before)), *own, *([IGNORED] * len(after))]
                ids = [*before, *(piece.id for piece in row[window.start : window.stop]), *after]
                tags = [IGNORED if word == IGNORED else numbers[one.tags[word]] for word in own]
                rows.append(Row(ids, own, tags, first + place))
    return rows


def first_pieces(pieces: Sequence[TokenPiece], text: str, places: Sequence[tuple[int, int]]) -> list[int]:
    """Of each piece: the word that it is the first piece of, or -100.

    A piece belongs to the word of its first character that is not a space; a word that shares its only piece with
    the word before has none of its own.
    """
    word_at = [IGNORED] * len(text)
    for number, (start, stop) in enumerate(places):
        word_at[start:stop] = [number] * (stop - start)
    owners, last = [], -1
    for piece in pieces:
        start, stop = piece.start or 0, piece.stop or 0
        word = next((word_at[at] for at in range(start, stop) if word_at[at] != IGNORED), IGNORED)
        fresh = word > last
        owners.append(word if fresh else IGNORED)
        last = word if fresh else last
    return owners


def _split(counts: Mapping[str, int]) -> str:
    return f"{counts['training']} sentences to learn from, {counts['evaluation']} to evaluate on"
