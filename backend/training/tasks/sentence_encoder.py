"""Sentence encoders: the module to train, its sentence-transformers folder, and vectors of frozen encoders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel

from backend.models.encoder import Encoder, Vectors
from backend.models.onnx_encoder import OnnxEncoder
from backend.models.spec import ModelSpec, Pooling
from backend.models.tokenizer import tokenizer_of
from backend.models.torch_encoder import TorchEncoder
from backend.models.vectors import normalized
from backend.models.weights import FAMILIES
from backend.training.data.text_batches import batches_within_budget, model_inputs, to_model_device
from backend.training.records import TrainingConfig
from backend.training.tasks.pretrained import adapted, load_model, plain_copy, save_model

_MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


class SentenceEncoder(nn.Module):
    """Maps token ids to one vector per text, as ``backend.models`` serves it."""

    def __init__(self, encoder: Any, pooling: Pooling, *, normalize: bool) -> None:
        """Remove the encoder's pooler: its output is not used, and DDP needs a gradient for every weight."""
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None
        self.encoder = encoder
        self.config = encoder.config
        self.pooling = pooling
        self.normalize = normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Shapes: both (batch, longest) int64 -> (batch, width) float32."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        vectors = pool(hidden, attention_mask, self.pooling)
        return nn.functional.normalize(vectors, dim=1) if self.normalize else vectors


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Shapes: hidden (batch, longest, width), mask (batch, longest), padding on the right -> (batch, width)."""
    if pooling is Pooling.CLS:
        return hidden[:, 0]
    lengths = mask.sum(1)
    if pooling is Pooling.LAST:
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    padding = (mask == 0)[:, :, None]
    if pooling is Pooling.MAX:
        return hidden.masked_fill(padding, -torch.inf).amax(1)
    return hidden.masked_fill(padding, 0.0).sum(1) / lengths[:, None]


def load_sentence_encoder(spec: ModelSpec, config: TrainingConfig) -> SentenceEncoder:
    """Load the base, with LoRA where ``config.lora_rank`` is set. Raises: ModelUnavailable."""
    model = SentenceEncoder(load_model(AutoModel, spec, seed=config.seed), spec.pooling, normalize=spec.normalize)
    model.encoder = adapted(model.encoder, config)
    return model


@torch.no_grad()
def encode(model: nn.Module, ids: Sequence[NDArray[np.int64]], pad_id: int) -> NDArray[np.float32]:
    """Normalized vectors in the order of the texts, (texts, width), even where the model does not normalize."""
    rows: list[tuple[list[int], Tensor]] = []
    for group in batches_within_budget([len(text_ids) for text_ids in ids]):
        vectors = model(**to_model_device(model, model_inputs([ids[index] for index in group], pad_id)))
        rows.append((group, nn.functional.normalize(vectors.float(), dim=1).cpu()))
    ordered = torch.empty(len(ids), rows[0][1].shape[1] if rows else 0)
    for group, vectors in rows:
        ordered[group] = vectors
    return ordered.numpy()


def save_sentence_encoder(model: SentenceEncoder, spec: ModelSpec, output: Path) -> None:
    """Save a sentence-transformers folder: LoRA merged; pooling, normalization, length and prompts of the base."""
    save_model(plain_copy(model.encoder), spec, output)
    modules = _MODULES if spec.normalize else _MODULES[:2]
    _write(
        output / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
    )
    _write(output / "sentence_bert_config.json", {"max_seq_length": spec.max_tokens, "do_lower_case": False})
    (output / "1_Pooling").mkdir(exist_ok=True)
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
    _write(
        output / "1_Pooling" / "config.json",
        {"word_embedding_dimension": spec.width}
        | {f"pooling_mode_{name}": spec.pooling.value == mode for mode, name in flags.items()},
    )
    _write(
        output / "config_sentence_transformers.json",
        {
            "prompts": dict(spec.prompts),
            "default_prompt_name": spec.default_prompt,
            "similarity_fn_name": "cosine",
        },
    )


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def frozen_vectors(spec: ModelSpec, texts: Sequence[str], *, device: str = "cpu") -> tuple[Vectors, NDArray[np.bool_]]:
    """The float32 vectors that the service computes, and which texts were truncated.

    Shapes: -> (texts, width), normalized where the model is, and (texts). On a CPU the ONNX graph runs, 2.5 times as
    fast as torch there (docs/engine.md).
    Raises: ModelUnavailable.
    """
    tokenizer = tokenizer_of(spec)
    prompt = spec.prompts.get(spec.default_prompt or "", "")
    tokens = tokenizer.encode(texts, prompt=prompt)
    encoder = _encoder(spec, device)
    vectors = np.empty((len(texts), spec.width), np.float32)
    for group in batches_within_budget([len(text_tokens.ids) for text_tokens in tokens]):
        batch = encoder.prepare([tokens[index].ids for index in group])
        vectors[group] = encoder.pooled(encoder.forward(batch), batch, spec.pooling)
    truncated = np.array([text_tokens.truncated for text_tokens in tokens], np.bool_)
    return normalized(vectors) if spec.normalize else vectors, truncated


def _encoder(spec: ModelSpec, device: str) -> Encoder:
    threads = torch.get_num_threads()
    if device == "cpu" and spec.shape.family in FAMILIES:
        return OnnxEncoder(spec, dtype="fp32", threads=threads)
    return TorchEncoder(spec, dtype="fp32", device=device, threads=threads)
