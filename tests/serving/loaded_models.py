"""Loaded models on real encoders, as the catalog holds them, with engines that record their batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.lanes.engine import EncoderEngine, PinnedEncoder, TaskHead
from backend.models.autotune import Choice
from backend.models.sequence_head import read_sequence_head
from backend.models.token_head import read_token_head
from backend.serving.catalog import LoadedModel, served_names
from backend.serving.engines.heads import (
    ANALYSIS,
    EMBEDDINGS,
    NER,
    LogitsHead,
    PoolingHead,
    SpanSumsHead,
    TokenLabelsHead,
)
from tests.tiny_models import encoder_of, placement, spec_of, tokenizer_of


class RecordingEngine:
    """Wraps an engine and records every batch it runs."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.batches: list[list[np.ndarray]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def on(self, device_index: int) -> RecordingEngine:
        return self

    def prepare(self, payloads: Sequence[Any]) -> Any:
        self.batches.append(list(payloads))
        return self._engine.prepare(payloads)

    @property
    def inputs(self) -> int:
        """Texts, pairs or windows that reached it."""
        return sum(map(len, self.batches))


def embedding_model(source: str | Path = "minilm", *, aliases: Sequence[str] = ()) -> LoadedModel:
    """An embedding model, whose pooled and token vectors come from one encoder."""
    pooled = _engine(EMBEDDINGS, source, PoolingHead(spec_of(source).pooling))
    return _loaded(source, EMBEDDINGS, pooled, aliases)


def scoring_model(folder: Path, task: str) -> LoadedModel:
    """A classifier, an NLI model or a cross-encoder."""
    head = read_sequence_head(spec_of(folder))
    return _loaded(folder, task, _engine(task, folder, LogitsHead(head)), (task,), labels=head.labels, head=head)


def entity_model(folder: Path) -> LoadedModel:
    """A token classifier."""
    head = read_token_head(spec_of(folder))
    return _loaded(folder, NER, _engine(NER, folder, TokenLabelsHead(head)), (NER,), labels=head.labels)


def _engine(task: str, source: str | Path, reader: TaskHead) -> RecordingEngine:
    return RecordingEngine(EncoderEngine(task, PinnedEncoder(encoder_of(source, "onnx", "fp32")), reader, budget=512))


def _loaded(source: str | Path, task: str, engine: Any, aliases: Sequence[str], **more: Any) -> LoadedModel:
    spec, choice = spec_of(source), Choice("onnx", "fp32", 512, 1000.0, ("chosen by the test",))
    tokens, names = _engine(ANALYSIS, source, SpanSumsHead(spec.pooling)), served_names(spec, tuple(aliases))
    place = placement(lanes=1)
    return LoadedModel(spec, tokenizer_of(source), engine, tokens, place, choice, names, 1.0, task=task, **more)
