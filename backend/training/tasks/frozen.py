"""Vectors of texts from an encoder that is not trained: what a small head learns from, and what a teacher says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backend.models.encoder import Encoder, Vectors
from backend.models.onnx_encoder import OnnxEncoder
from backend.models.spec import ModelSpec
from backend.models.tokenizer import tokenizer_of
from backend.models.torch_encoder import TorchEncoder
from backend.models.vectors import normalized
from backend.models.weights import FAMILIES
from backend.training.data.text_batches import within_budget


def vectors_of(spec: ModelSpec, texts: Sequence[str], *, device: str = "cpu") -> tuple[Vectors, int]:
    """The vectors that serving gives in float32, and how many texts lost their end.

    Shapes: -> (texts, width), normalised where the model says so. On a CPU the graph runs, which is 2.5 times faster
    than torch there (docs/engine.md).
    Raises: ModelUnavailable.
    """
    tokenizer = tokenizer_of(spec)
    prompt = spec.prompts.get(spec.default_prompt or "", "")
    tokens = tokenizer.encode(texts, prompt=prompt)
    encoder = _encoder(spec, device)
    found = np.empty((len(texts), spec.width), np.float32)
    for group in within_budget([len(one.ids) for one in tokens]):
        batch = encoder.prepare([tokens[index].ids for index in group])
        found[group] = encoder.pooled(encoder.forward(batch), batch, spec.pooling)
    return normalized(found) if spec.normalize else found, sum(one.truncated for one in tokens)


def _encoder(spec: ModelSpec, device: str) -> Encoder:
    threads = torch.get_num_threads()
    if device == "cpu" and spec.shape.family in FAMILIES:
        return OnnxEncoder(spec, dtype="fp32", threads=threads)
    return TorchEncoder(spec, dtype="fp32", device=device, threads=threads)
