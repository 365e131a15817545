"""Named entities from CoNLL files: tags on the first sub-word of each word, long sentences in overlapping windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from peft import PeftModel
from torch import nn
from transformers import AutoModelForTokenClassification

from backend.errors import BadData, BadSettings
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.training.adapters import base_of, go_on_from, save_adapter, stored_twin
from backend.training.data.conll import bio_labels, check_types
from backend.training.data.loaders import collation_epoch
from backend.training.data.ner_sentences import Source, by_file, languages, read_sources
from backend.training.data.text_batches import pad
from backend.training.losses import IGNORED, balanced_class_weights, classification_loss, target_weight
from backend.training.metrics import Report, entity_scores
from backend.training.model_card import Card, data_source, stated_licence, write_card
from backend.training.records import Batch, LossPart, TrainingConfig
from backend.training.tasks.ner_rows import Row, sentence_rows
from backend.training.tasks.ner_scores import predict, row_inputs
from backend.training.tasks.pretrained import (
    adapted,
    load_model,
    padding_id,
    plain_copy,
    save_model,
)
from backend.training.tasks.spelling import TABLE, Wish, grow_types, learns_spelling

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_SEED_RANGE = 2**64
_USAGE = """from transformers import pipeline

pipeline("ner", model=FOLDER, aggregation_strategy="first")(TEXT)"""
_ADAPTER_USAGE = """from peft import PeftModel
from transformers import AutoConfig, AutoModelForTokenClassification

base = AutoModelForTokenClassification.from_pretrained(
    BASE, config=AutoConfig.from_pretrained(FOLDER), ignore_mismatched_sizes=True
)
PeftModel.from_pretrained(base, FOLDER)"""
_SPELT = (
    "token_type_ids say how each word is written (backend/models/spelling.py); tools that leave them at 0, such as "
    "transformers' pipeline, have it read every text as if it were in small letters."
)


@dataclass(frozen=True, slots=True)
class NerOptions:
    """What this task alone is told."""

    types: Collection[str] = ()  # the kinds of entities to learn and to score; unset: all of the training data
    relabel: Mapping[str, str] = field(default_factory=dict)  # kind in the data -> kind to learn, before ``types``
    spelling: Wish = "auto"  # whether token types say how words are written (tasks/spelling.py)
    recased: float = 0.0  # share of sentences seen all small or all in capitals, anew in each epoch; needs spelling
    publish_as: Literal["merged", "adapter"] = "merged"
    halfway: bool = False  # publish the mean of the adapter that the run went on from and of what it learnt

    def __post_init__(self) -> None:
        """Raises: BadSettings."""
        if not 0 <= self.recased <= 1:
            raise BadSettings([f"--recased={self.recased:g}: a share of the sentences, 0 to 1"])


def prepare(
    data: Path | Sequence[Path],
    base: ModelSpec,
    config: TrainingConfig,
    *,
    evaluation: Path | None = None,
    held_out: float = 0.1,
    options: NerOptions | None = None,
) -> NerTask:
    """Read the data and set a fresh head on the base.

    Args:
        data: a ``.conll`` file, or a folder of them (names with dev or test are for evaluation); or several of either.
        base: an encoder, or an adapter to go on from: of the same labels, rank and scale.
        evaluation: a file or folder to evaluate on instead.
        held_out: share of the training sentences kept back where nothing else is there to evaluate on.

    Raises: BadData, BadSettings, ModelUnavailable.
    """
    chosen = options or NerOptions()
    if chosen.publish_as == "adapter" and config.lora_rank is None:
        raise BadSettings(["--publish-as adapter: say --lora-rank too; a model trained whole has no adapter"])
    origin = [data] if isinstance(data, Path) else list(data)
    sources = read_sources(origin, evaluation=evaluation, held_out=held_out, relabel=chosen.relabel, types=chosen.types)
    begun, base = (base, base_of(base)) if base.adapter else (None, base)
    if chosen.halfway and (begun is None or chosen.publish_as != "adapter"):
        raise BadSettings(["--halfway: for a run that goes on from an adapter and is published as one"])
    labels = bio_labels([one for source in sources for one in source.learn])
    check_types([one for source in sources for one in source.judge], labels)
    model = load_model(
        AutoModelForTokenClassification,
        base,
        seed=config.seed,
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    spelt = learns_spelling(model, base, chosen.spelling)
    if spelt:
        grow_types(model)
    learner = adapted(model, config, also=(TABLE,) if spelt else ())
    if begun is not None:
        _go_on(learner, begun, labels)
    return NerTask(
        learner,
        base,
        config,
        labels=labels,
        sources=sources,
        options=replace(chosen, spelling="on" if spelt else "off"),
        begun=begun,
    )


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
        sources: Sequence[Source],
        options: NerOptions,
        begun: ModelSpec | None = None,
    ) -> None:
        """Tokenise. Raises: BadData when no sentence has a labelled token."""
        self.model = model
        self.labels = tuple(labels)
        self._base, self._config, self._sources, self._options = base, config, tuple(sources), options
        self._spelt, self._begun = options.spelling == "on", begun
        learn = [one for source in sources for one in source.learn]
        self._filling = padding_id(base, model)
        tokenizer = tokenizer_of(base)
        rows = sentence_rows(learn, tokenizer, self.labels)
        self._rows = [row for row in rows if any(label != IGNORED for label in row.labels)]
        self.windowed = sum(count > 1 for count in Counter(row.sentence for row in rows).values())
        self._judge = [one for source in sources for one in source.judge]
        self._judge_rows = sentence_rows(self._judge, tokenizer, self.labels)
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
        """The model's inputs and ``labels``, each (batch, longest), and the labels' ``weight``."""
        rows = [self._rows[index] for index in indices]
        types = [self._types(self._rows[index], index) for index in indices] if self._spelt else None
        labels = pad([row.labels for row in rows], IGNORED)
        weight = target_weight(labels, class_weights=self._weights)
        return {**row_inputs(rows, self._filling, types), "labels": labels, "weight": weight}

    def loss(self, model: nn.Module, batch: Batch) -> LossPart:
        """Cross entropy over labelled tokens."""
        logits = model(**{name: batch[name] for name in _INPUTS if name in batch}).logits
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
        return self._scores(self.predict(model), range(len(self._judge)))

    def predict(self, model: nn.Module) -> list[list[str]]:
        """A tag for each word of the evaluation sentences; O for words that the tokenizer has no token for."""
        return predict(model, self._judge_rows, self._judge, self.labels, filling=self._filling, spelt=self._spelt)

    def publish(self, model: nn.Module, output: Path, notes: Mapping[str, Any]) -> None:
        """A folder of transformers' AutoModelForTokenClassification, or of peft's; its card has the scores of it."""
        if self._options.publish_as == "adapter" and isinstance(model, PeftModel):
            published = stored_twin(model, self._begun if self._options.halfway else None)
            save_adapter(published, self._base, output)
        else:
            published = plain_copy(model)
            save_model(published, self._base, output)
        tags = self.predict(published.eval())
        report = self._scores(tags, range(len(self._judge)))
        by_set = {name: self._scores(tags, places) for name, places in by_file(self._judge).items()}
        write_card(output, self._card(report, by_set, notes, output.name))

    def _types(self, row: Row, index: int) -> Sequence[int]:
        """How its words are written, or for some sentences of an epoch as if all were small, or all capitals."""
        if not self._options.recased:
            return row.types
        drawn = np.random.default_rng([self._config.seed % _SEED_RANGE, collation_epoch(), index]).random()
        if drawn >= self._options.recased:
            return row.types
        return row.shouted if drawn < self._options.recased / 2 else [0] * len(row.types)

    def _scores(self, tags: Sequence[Sequence[str]], places: Sequence[int]) -> Report:
        return entity_scores([self._judge[place].tags for place in places], [list(tags[place]) for place in places])

    def _card(self, report: Report, by_set: Mapping[str, Report], notes: Mapping[str, Any], name: str) -> Card:
        kinds = [label[2:] for label in self.labels if label.startswith("B-")]
        return Card(
            name=name,
            task=self.name,
            library="peft" if self._options.publish_as == "adapter" else "transformers",
            summary=f"Finds names in text: {', '.join(kinds)}. One BIO tag on the first sub-word of each word.",
            base=self._base.name,
            base_revision=self._base.revision,
            base_licence=stated_licence(self._base.folder),
            pipeline_tag="token-classification",
            languages=languages([one.place for source in self._sources for one in (*source.learn, *source.judge)]),
            labels=self.labels,
            data=[
                data_source(
                    one.path,
                    role=one.role,
                    examples=len(one.learn) + len(one.judge),
                    notes=f"{len(one.learn)} sentences to learn from, {len(one.judge)} to evaluate on",
                )
                for one in self._sources
            ],
            report=report,
            by_set=by_set,
            limits=[
                f"Reads {self._base.max_tokens} tokens at once; longer texts need overlapping windows.",
                "A word's tag is that of its first sub-word: aggregation_strategy='first' reads it so.",
                *([_SPELT] if self._spelt else []),
            ],
            notes=notes,
            usage=_ADAPTER_USAGE if self._options.publish_as == "adapter" else _USAGE,
        )


def _go_on(model: nn.Module, adapter: ModelSpec, labels: Sequence[str]) -> None:
    """Raises: BadSettings where the adapter is for other labels or another way of training; ModelUnavailable."""
    if not isinstance(model, PeftModel):
        raise BadSettings([f"{adapter.name} is an adapter: say --lora-rank, or start from a merged model"])
    taught = [adapter.config["id2label"][str(number)] for number in range(len(adapter.config["id2label"]))]
    if taught != list(labels):
        raise BadSettings([f"{adapter.name} was taught {', '.join(taught)}, and the data has {', '.join(labels)}"])
    go_on_from(model, adapter)
