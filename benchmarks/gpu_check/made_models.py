"""Encoders with fresh weights, made on the spot: speed does not look at the numbers.

Their vectors mean nothing, so a service of one needs a fixed PRECISION: no arithmetic keeps the ranks of noise.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from backend.models.model_files import STATIC
from benchmarks.texts import distinct_texts

_VOCABULARY, _TEXTS, _SEED = 8192, 256, 20260101
_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_BUNDLED = str(STATIC / "tokenizer.json")
_BUNDLED_MARKS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a BERT."""

    name: str
    width: int
    layers: int
    heads: int
    hidden_width: int  # of the feed-forward part

    def flop_per_token(self, attended: float) -> float:
        """Of a forward pass, for a text of ``attended`` tokens."""
        products = 4 * self.width**2 + 2 * self.width * self.hidden_width
        return self.layers * (2 * products + 4 * self.width * attended)


TINY = Size("tiny", 64, 2, 2, 128)
E5_SMALL = Size("e5-small", 384, 12, 12, 1536)
BASE = Size("base", 768, 12, 12, 3072)


def make_model(size: Size, folder: Path) -> Path:
    """Write such an encoder as sentence-transformers does, mean pooling, normalised; returns the folder.

    With the tokenizer of a bundled encoder; the tiny size, whose speed nobody measures, with one of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, marks = (_tokenizer(), _MARKS) if size is TINY else (Tokenizer.from_file(_BUNDLED), _BUNDLED_MARKS)
    pad, unknown, start, end, mask = marks
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=MAX_TOKENS,
        pad_token=pad,
        unk_token=unknown,
        cls_token=start,
        sep_token=end,
        mask_token=mask,
    )
    fast.save_pretrained(folder)
    torch.manual_seed(_SEED)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.hidden_width,
        max_position_embeddings=MAX_TOKENS,
        pad_token_id=tokenizer.token_to_id(pad),
    )
    BertModel(config).save_pretrained(folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    prefix = "sentence_transformers.models"
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"{prefix}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    pooling = {"word_embedding_dimension": size.width, "pooling_mode_mean_tokens": True}
    for name, content in (
        ("modules.json", listed),
        ("sentence_bert_config.json", {"max_seq_length": MAX_TOKENS, "do_lower_case": False}),
        ("1_Pooling/config.json", pooling),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "2_Normalize").mkdir(exist_ok=True)
    return folder


def _tokenizer() -> Tokenizer:
    """A WordPiece vocabulary of the benchmark's own texts, lower case."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=_VOCABULARY, special_tokens=list(_MARKS), show_progress=False)
    tokenizer.train_from_iterator(distinct_texts(_TEXTS), trainer)
    start, end = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", start), ("[SEP]", end)]
    )
    return tokenizer
