"""Small token classifiers with fixed random weights, of every family served, as transformers writes them."""

import functools
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from tests.tiny_models import _tokenizer, small_model

FAMILIES = ("bert", "distilbert", "roberta", "xlm-roberta", "camembert", "mpnet")
LABELS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
TABLE = 64


class TinyTaggers:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = functools.cache(self._make)

    def _make(
        self,
        family: str = "bert",
        labels: Sequence[str] = LABELS,
        *,
        blind: bool = False,
        max_tokens: int = TABLE,
        dtype: torch.dtype = torch.float32,
    ) -> Path:
        """A ForTokenClassification folder.

        Args:
            blind: neither places nor neighbours change a token's label: attention and positions add nothing.
        """
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-"))
        tokenizer, marks = _tokenizer("xlm-roberta" if family == "camembert" else family)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_tokens, **marks)
        fast.save_pretrained(folder)
        model = small_model("ForTokenClassification", family, fast, 20260102, labels=labels, std=_std)
        if blind:
            _blind(model)
        model.to(dtype).save_pretrained(folder)
        return folder


@pytest.fixture(scope="session")
def taggers() -> Iterator[TinyTaggers]:
    """Small token classifiers: ``taggers.folder("mpnet")``."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="taggers-") as root:
        yield TinyTaggers(Path(root))


@functools.cache
def pipeline_of(folder: Path) -> Any:
    """The same model as transformers runs it, a word's label its first piece's."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder, local_files_only=True)
    return transformers.pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first", device="cpu"
    )


def reference_entities(folder: Path, text: str) -> list[tuple[str, int, int, float]]:
    """Type, start, end and score of each entity, by transformers; without the blank that a piece may begin with."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Tokenizer does not support real words", UserWarning)
        found = pipeline_of(folder)(text)
    return [
        (
            one["entity_group"],
            one["end"] - len(text[one["start"] : one["end"]].lstrip()),
            one["end"],
            float(one["score"]),
        )
        for one in found
    ]


def _std(name: str) -> float:
    """So that the labels of a text differ."""
    return 1.0 if name.startswith("classifier") or "_embeddings" in name else 0.15


def _blind(model: Any) -> None:
    ends = ("position_embeddings.weight", "attention.output.dense.weight", "attn.o.weight", "out_lin.weight")
    for name, weights in model.named_parameters():
        if name.endswith(ends):
            torch.nn.init.zeros_(weights)
