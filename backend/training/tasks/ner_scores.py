"""What a token classifier finds in tagged sentences, and how it scores on files of them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForTokenClassification

from backend.errors import ModelUnavailable
from backend.models.model_files import resolve
from backend.models.spec import ModelSpec, TokenTypes
from backend.models.tokenizer import tokenizer_of
from backend.training.data.conll import OUTSIDE, Sentence, keep_types, read_conll, rename_types
from backend.training.data.text_batches import model_inputs, on_device_of, pad, within_budget
from backend.training.losses import IGNORED
from backend.training.metrics import Report, entity_scores
from backend.training.tasks.ner_rows import Row, sentence_rows
from backend.training.tasks.pretrained import padding_id


def score_files(
    source: str, files: Sequence[Path], *, types: Collection[str] = (), relabel: Mapping[str, str] | None = None
) -> dict[str, Report]:
    """The measures of a published model or adapter on each ``.conll`` file, by its name without the ending.

    Args:
        source: a folder or hub id, as ``MODEL`` settings name it.
        types: the kinds of entities to score; unset: all of the file's and the model's.
        relabel: kind in the files -> kind that the model calls it.

    Raises: BadData, ModelUnavailable.
    """
    spec = resolve(source)
    model, labels = _tagger(spec)
    tokenizer, filling = tokenizer_of(spec), padding_id(spec, model)
    reports = {}
    for file in files:
        sentences: Sequence[Sentence] = rename_types(read_conll(file), relabel or {})
        rows = sentence_rows([_untagged(one) for one in sentences], tokenizer, (OUTSIDE,))
        found = predict(model, rows, sentences, labels, filling=filling, spelt=spec.token_types is TokenTypes.SPELLING)
        expected = keep_types(sentences, types) if types else sentences
        tags = [tuple(tag if not types or tag[2:] in types else OUTSIDE for tag in row) for row in found]
        reports[file.stem] = entity_scores([one.tags for one in expected], tags)
    return reports


@torch.no_grad()
def predict(
    model: nn.Module,
    rows: Sequence[Row],
    sentences: Sequence[Sentence],
    labels: Sequence[str],
    *,
    filling: int,
    spelt: bool,
) -> list[list[str]]:
    """A tag for each word of the sentences; O for words that the tokenizer has no token for."""
    tags = [[OUTSIDE] * len(one.words) for one in sentences]
    for group in within_budget([len(row.ids) for row in rows]):
        some = [rows[index] for index in group]
        inputs = on_device_of(model, row_inputs(some, filling, [row.types for row in some] if spelt else None))
        chosen: Tensor = model(**inputs).logits.argmax(-1).cpu()
        for row, numbers in zip(some, chosen.tolist(), strict=True):
            for word, number in zip(row.words, numbers, strict=False):  # numbers go on through the padding
                if word != IGNORED:
                    tags[row.sentence][word] = labels[number]
    return tags


def row_inputs(rows: Sequence[Row], filling: int, types: Sequence[Sequence[int]] | None) -> dict[str, Tensor]:
    """What the model takes, each (batch, longest); ``token_type_ids`` where there are ``types``."""
    inputs = model_inputs([row.ids for row in rows], filling)
    return inputs if types is None else {**inputs, "token_type_ids": pad(types, 0)}


def _untagged(sentence: Sentence) -> Sentence:
    """Its tags may be none of the model's."""
    return Sentence(sentence.words, (OUTSIDE,) * len(sentence.words), sentence.place)


def _tagger(spec: ModelSpec) -> tuple[nn.Module, list[str]]:
    """The model on the CPU, in evaluation mode, and its labels by number. Raises: ModelUnavailable."""
    kind: Any = AutoModelForTokenClassification
    try:
        if spec.adapter is None:
            model = kind.from_pretrained(spec.folder, dtype=torch.float32, local_files_only=True)
        else:
            config = AutoConfig.from_pretrained(spec.adapter)
            base = kind.from_pretrained(spec.folder, config=config, dtype=torch.float32, ignore_mismatched_sizes=True)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"Unexpected keyword arguments \['base_sha256'\]")
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # as in lora.py
                model = PeftModel.from_pretrained(base, str(spec.adapter))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelUnavailable(f"{spec.name} cannot be loaded as a token classifier: {error}") from error
    return model.eval(), [model.config.id2label[number] for number in range(model.config.num_labels)]
