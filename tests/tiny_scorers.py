"""Small sequence classifiers with fixed random weights, of every family served, and the references they must equal."""

import functools
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from tests.tiny_models import _tokenizer, small_model

GRAPH_FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet")
TORCH_FAMILIES = ("albert", "deberta", "deberta-v2", "electra", "modernbert")
FAMILIES = (*GRAPH_FAMILIES, *TORCH_FAMILIES)
EVERY = [(family, runtime) for family in GRAPH_FAMILIES for runtime in ("onnx", "openvino", "torch")]
EVERY += [(family, "torch") for family in TORCH_FAMILIES]
LABELS = ("invoice", "contract", "letter")
NLI = ("contradiction", "neutral", "entailment")
TABLE = 64
_SEGMENTED = ("albert", "bert", "electra")  # families whose models have two token types
_TOKENIZERS = {"camembert": "xlm-roberta", "modernbert": "bert", "deberta": "bert", "deberta-v2": "bert"} | {
    "electra": "bert",
    "albert": "bert",
}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
_OWN: dict[str, dict[str, Any]] = {  # settings that published models have
    "albert": {"embedding_size": 16},
    "camembert": {"type_vocab_size": 1},
    "deberta": _RELATIVE,
    "deberta-v2": {**_RELATIVE, "type_vocab_size": 0, "position_buckets": 8, "share_att_key": True},
    "electra": {"embedding_size": 16},
    "modernbert": {"local_attention": 8},
    "roberta": {"type_vocab_size": 1},
    "xlm-roberta": {"type_vocab_size": 1},
}


class TinyScorers:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = functools.cache(self._make)

    def _make(
        self,
        family: str = "bert",
        labels: Sequence[str] = LABELS,
        *,
        max_tokens: int = TABLE,
        dtype: torch.dtype = torch.float32,
        **config: Any,
    ) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-"))
        tokenizer, marks = _tokenizer(_TOKENIZERS.get(family, family))
        _for_pairs(tokenizer, family)
        inputs = ["input_ids", *(["token_type_ids"] if family in _SEGMENTED else []), "attention_mask"]
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=max_tokens, model_input_names=inputs, **marks
        )
        fast.save_pretrained(folder)
        first, last = fast.cls_token_id, fast.sep_token_id
        fields = {"cls_token_id": first, "sep_token_id": last, "bos_token_id": first, "eos_token_id": last}
        fields |= _OWN.get(family, {}) | config
        model = small_model("ForSequenceClassification", family, fast, 20260103, labels=labels, **fields)
        model.to(dtype).save_pretrained(folder)
        return folder


@pytest.fixture(scope="session")
def scorers() -> Iterator[TinyScorers]:
    """Small sequence classifiers: ``scorers.folder("mpnet")``, ``scorers.folder("bert", NLI)``."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="scorers-") as root:
        yield TinyScorers(Path(root))


@functools.cache
def tokenizer_as_transformers_has_it(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder)


@functools.cache
def pipeline_of(folder: Path, task: str) -> Any:
    """The same model as transformers runs it."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
    tokenizer = tokenizer_as_transformers_has_it(folder)
    return transformers.pipeline(task, model=model.float(), tokenizer=tokenizer, device="cpu")


def reference_scores(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """(texts, labels), by the text-classification pipeline, in the order of the model's labels."""
    pipeline = pipeline_of(folder, "text-classification")
    numbers = pipeline.model.config.label2id
    rows = [pipeline(text, top_k=None, truncation=True) for text in texts]
    return np.array([[item["score"] for item in sorted(row, key=lambda item: numbers[item["label"]])] for row in rows])


def reference_logits(folder: Path, pairs: Sequence[tuple[str, str]], truncation: str) -> np.ndarray:
    """(pairs, labels), by transformers, each pair alone."""
    model, tokenizer = pipeline_of(folder, "text-classification").model, tokenizer_as_transformers_has_it(folder)
    rows = []
    with torch.inference_mode():
        for first, second in pairs:
            inputs = tokenizer([first], [second], truncation=truncation, return_tensors="pt")
            rows.append(model(**inputs).logits[0].numpy())
    return np.stack(rows)


@functools.cache
def cross_encoder_of(folder: Path) -> CrossEncoder:
    """The same model in sentence-transformers, float32 on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CrossEncoder(str(folder), device="cpu", local_files_only=True)


def _for_pairs(tokenizer: Tokenizer, family: str) -> None:
    """The template of the family's published tokenizers: types for BERT's kind, two marks between for RoBERTa's."""
    if _TOKENIZERS.get(family, family) in ("bert", "distilbert"):
        marks, pair = ("[CLS]", "[SEP]"), "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    else:
        marks, pair = ("<s>", "</s>"), "<s> $A </s> </s> $B </s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{marks[0]} $A {marks[1]}",
        pair=pair,
        special_tokens=[(mark, tokenizer.token_to_id(mark)) for mark in marks],
    )
