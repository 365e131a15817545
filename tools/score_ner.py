"""Precision, recall and F1 of whole entities: scores a NER model on CoNLL files.

python -m tools.score_ner backend/models/bundled/ner FILE.conll …  --types PER,ORG,LOC --relabel PER_LEGAL=PER
"""

import argparse
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import AutoConfig, AutoModelForTokenClassification
from transformers.utils import logging as transformers_logging

from backend.errors import FinanciaError, ModelUnavailable
from backend.models.model_files import resolve
from backend.models.spec import ModelSpec, TokenTypes
from backend.models.tokenizer import tokenizer_of
from backend.training.data.conll import OUTSIDE, Sentence, keep_types, read_conll, rename_types
from backend.training.metrics import Report, entity_scores
from backend.training.tasks.ner import predict, sentence_rows
from backend.training.tasks.pretrained import padding_id


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table with a row per file; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.score_ner", description=__doc__)
    parser.add_argument("model", help="folder or hub id")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--types", default="", help="kinds to score, with commas between; all unless said")
    parser.add_argument("--relabel", default="", help="FROM=TO of the files' kinds, with commas between")
    options = parser.parse_args(arguments)
    types = tuple(filter(None, options.types.split(",")))
    relabel = dict(item.split("=", 1) for item in options.relabel.split(",") if item)
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        reports = score_files(options.model, options.files, types=types, relabel=relabel)
    except FinanciaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    rows = ["| set | precision | recall | F1 | by kind |", "| --- | --- | --- | --- | --- |"]
    for name, report in reports.items():
        scores = " | ".join(f"{report.scores.get(metric, 0.0):.4f}" for metric in ("precision", "recall", "f1"))
        kinds = ", ".join(f"{row.label} {row.f1 or 0:.3f} ({row.support})" for row in report.per_class)
        rows.append(f"| {name} | {scores} | {kinds} |")
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


def score_files(
    source: str, files: Sequence[Path], *, types: Collection[str] = (), relabel: Mapping[str, str] | None = None
) -> dict[str, Report]:
    """Metrics of a published model or adapter on each ``.conll`` file, by file name without suffix.

    Args:
        source: a folder or hub id, as in the ``MODEL`` settings.
        types: the entity types to score; unset: all of the file and of the model.
        relabel: type in the files -> type of the model.

    Raises: BadData, ModelUnavailable.
    """
    spec = resolve(source)
    model, labels = _tagger(spec)
    tokenizer, pad_id = tokenizer_of(spec), padding_id(spec, model)
    uses_spelling = spec.token_types is TokenTypes.SPELLING
    reports = {}
    for file in files:
        sentences: Sequence[Sentence] = rename_types(read_conll(file), relabel or {})
        rows = sentence_rows([_without_tags(sentence) for sentence in sentences], tokenizer, (OUTSIDE,))
        predicted = predict(model, rows, sentences, labels, pad_id=pad_id, uses_spelling=uses_spelling)
        expected = keep_types(sentences, types) if types else sentences
        tags = [tuple(tag if not types or tag[2:] in types else OUTSIDE for tag in row) for row in predicted]
        reports[file.stem] = entity_scores([sentence.tags for sentence in expected], tags)
    return reports


def _without_tags(sentence: Sentence) -> Sentence:
    """Drop the tags, which the model may not know."""
    return Sentence(sentence.words, (OUTSIDE,) * len(sentence.words), sentence.location)


def _tagger(spec: ModelSpec) -> tuple[nn.Module, list[str]]:
    """The model on the CPU, in evaluation mode, and its labels by number. Raises: ModelUnavailable."""
    auto_class: Any = AutoModelForTokenClassification
    try:
        if spec.adapter is None:
            model = auto_class.from_pretrained(spec.folder, dtype=torch.float32, local_files_only=True)
        else:
            config = AutoConfig.from_pretrained(spec.adapter)
            options = {"config": config, "dtype": torch.float32, "ignore_mismatched_sizes": True}
            base = auto_class.from_pretrained(spec.folder, **options)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", r"Unexpected keyword arguments \['base_sha256'\]")
                warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # as in lora.py
                model = PeftModel.from_pretrained(base, str(spec.adapter))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelUnavailable(f"{spec.name} cannot be loaded as a token classifier: {error}") from error
    return model.eval(), [model.config.id2label[number] for number in range(model.config.num_labels)]


if __name__ == "__main__":
    sys.exit(main())
