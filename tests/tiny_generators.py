"""Small sequence-to-sequence models with fixed random weights, as transformers writes them."""

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from backend.device.plan.placement import Placement
from backend.models.seq2seq import TorchSeq2Seq
from tests.tiny_models import _MARKS, _unigram, placement, spec_of

SEQ2SEQ = ("t5", "bart", "mt5", "pegasus", "marian", "mbart")
MAX_TOKENS = 64
_CLASSES = {
    "t5": ("T5Config", "T5ForConditionalGeneration"),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration"),
    "bart": ("BartConfig", "BartForConditionalGeneration"),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration"),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration"),
    "marian": ("MarianConfig", "MarianMTModel"),
}


class TinyGenerators:
    """Makes folders on demand and keeps them for the session."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = functools.cache(self._make)

    def _make(self, family: str = "t5", **config: Any) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self._root, prefix=f"{family}-"))
        marks = {**_MARKS, "unk_token": "<unk>", "mask_token": "<mask>"}
        fast = PreTrainedTokenizerFast(tokenizer_object=_unigram(), model_max_length=MAX_TOKENS, **marks)
        fast.save_pretrained(folder)
        sizes: dict[str, Any] = {
            "vocab_size": len(fast),
            "d_model": 32,
            "pad_token_id": fast.pad_token_id,
            "eos_token_id": fast.eos_token_id,
            "bos_token_id": fast.bos_token_id,
            "decoder_start_token_id": fast.pad_token_id,
        }
        if family in ("t5", "mt5"):
            sizes |= {"d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        else:
            layers = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
            sizes |= {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in layers.items()}
            sizes |= {"max_position_embeddings": 256, "forced_eos_token_id": fast.eos_token_id}
        config_name, model_name = _CLASSES[family]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(20260101)
            model = getattr(transformers, model_name)(getattr(transformers, config_name)(**sizes | config))
            for name, weights in model.named_parameters():
                if not name.endswith("norm.weight"):
                    torch.nn.init.normal_(weights, std=0.5)
        model.save_pretrained(folder)
        return folder


@pytest.fixture(scope="session")
def generators() -> Iterator[TinyGenerators]:
    """Small generators of every family: ``generators.folder("bart")``."""
    with tempfile.TemporaryDirectory(prefix="tiny-") as root:
        transformers.utils.logging.disable_progress_bar()
        yield TinyGenerators(Path(root))


@functools.cache
def generator_of(folder: Path, dtype: str = "fp32", device: str = "cpu") -> TorchSeq2Seq:
    """A generator, loaded once a session."""
    place: Placement = placement(device=device)
    return TorchSeq2Seq(spec_of(folder), dtype=dtype, device=device, threads=place.threads)
