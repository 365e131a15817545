"""An encoder and its pooling as one module, and the folder that sentence-transformers and the service load."""

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

from backend.models.spec import ModelSpec, Pooling
from backend.training.data.text_batches import model_inputs, on_device_of, within_budget
from backend.training.records import TrainingConfig
from backend.training.tasks.pretrained import adapted, load_model, plain_copy, save_model

_MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


class SentenceEncoder(nn.Module):
    """Token ids to one vector a text, as ``backend.models`` serves them."""

    def __init__(self, encoder: Any, pooling: Pooling, *, normalize: bool) -> None:
        """Take the pooler off the transformers encoder: nobody reads it, and DDP wants a gradient for every weight."""
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
    """The base, with LoRA where the settings ask for it. Raises: ModelUnavailable."""
    model = SentenceEncoder(load_model(AutoModel, spec, seed=config.seed), spec.pooling, normalize=spec.normalize)
    model.encoder = adapted(model.encoder, config)
    return model


@torch.no_grad()
def encode(model: nn.Module, ids: Sequence[NDArray[np.int64]], filling: int) -> NDArray[np.float32]:
    """Vectors of length 1 in the order of the texts, (texts, width), whatever the model itself does."""
    rows: list[tuple[list[int], Tensor]] = []
    for group in within_budget([len(one) for one in ids]):
        vectors = model(**on_device_of(model, model_inputs([ids[index] for index in group], filling)))
        rows.append((group, nn.functional.normalize(vectors.float(), dim=1).cpu()))
    found = torch.empty(len(ids), rows[0][1].shape[1] if rows else 0)
    for group, vectors in rows:
        found[group] = vectors
    return found.numpy()


def save_sentence_encoder(model: SentenceEncoder, spec: ModelSpec, output: Path) -> None:
    """A sentence-transformers folder: LoRA multiplied in, pooling, normalisation, length and prompts of the base."""
    save_model(plain_copy(model.encoder), spec, output)
    modules = _MODULES if spec.normalize else _MODULES[:2]
    _write(
        output / "modules.json",
        [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (path, kind) in enumerate(modules)
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
