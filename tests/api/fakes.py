"""Services that answer without a model, so that only HTTP is tested."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from backend.api.deps import ApiLimits
from backend.cache.store import CachedVector
from backend.documents.parsing.limits import FileLimits
from backend.errors import UnknownModel
from backend.models.spec import Pooling
from backend.models.tokenizer import TokenPiece
from backend.services.embedding_options import Embedded, EmbedOptions
from backend.services.health import Readiness
from backend.services.inference import Timing
from backend.telemetry import Telemetry
from tests.api.document_fakes import FILE_LIMITS, FakeDocuments
from tests.api.text_fakes import FakeAnalysis, FakeClassification, FakeEntities, FakeReranking

WIDTH = 16
NAMES = ("fake-model", "bundled", "alias/with-slash")
TIMING = Timing(cache_s=0.0001, tokenize_s=0.0002, queue_s=0.001, inference_s=0.0045)


def vector(content: Any, width: int = WIDTH) -> np.ndarray:
    """One fixed vector of length 1 for each text or list of ids."""
    found = np.random.default_rng(zlib.crc32(repr(content).encode())).standard_normal(width).astype(np.float32)
    return found / np.linalg.norm(found)


@dataclass
class FakeEmbeddings:
    """Answers at once with ``vector``; raises ``error`` where one is set; waits for ``gate`` where one is set."""

    model: Any
    error: Exception | None = None
    gate: asyncio.Event | None = None
    width: int = WIDTH
    timing: Timing = TIMING
    cut: frozenset[int] = frozenset()  # indices of inputs that count as truncated
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0
    calls: list[tuple[Any, EmbedOptions, dict[str, Any]]] = field(default_factory=list)

    async def embed(self, inputs: Sequence[Any], options: EmbedOptions, **asked: Any) -> Embedded:
        self.calls.append((inputs, options, asked))
        if asked.get("model") not in (None, *NAMES):
            raise UnknownModel(asked["model"], NAMES)
        if self.error is not None:
            raise self.error
        await self._pass_gate()
        rows = [
            CachedVector(
                np.ascontiguousarray(vector(one, self.width)[: options.dimensions]), len(one), index in self.cut
            )
            for index, one in enumerate(inputs)
        ]
        return Embedded(rows, self.timing, self.model)

    async def similarity(
        self, source: str, sentences: Sequence[str], options: EmbedOptions, **asked: Any
    ) -> tuple[list[float], Embedded]:
        embedded = await self.embed([source, *sentences], options, **asked)
        return (embedded.vectors[1:] @ embedded.vectors[0]).tolist(), embedded

    async def tokenize(
        self, inputs: Sequence[str], *, add_special_tokens: bool, prompt_name: str | None
    ) -> list[list[TokenPiece]]:
        del prompt_name
        piece = TokenPiece(id=1, text="a", special=False, start=0, stop=1)
        mark = TokenPiece(id=0, text="[CLS]", special=True, start=None, stop=None)
        return [[mark, piece] if add_special_tokens else [piece] for _ in inputs]

    async def _pass_gate(self) -> None:
        if self.gate is None:
            return
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass
class FakeHealth:
    """Ready until ``reasons`` says otherwise."""

    reasons: tuple[str, ...] = ()

    async def ready(self) -> Readiness:
        return Readiness(ready=not self.reasons, reasons=self.reasons)

    def report(self) -> dict[str, Any]:
        return {"models": ["fake-model"], "device": "cpu", "cache": {"memory": "up"}}

    def gpu(self) -> dict[str, Any]:
        return {
            "available": False,
            "type": "cpu",
            "device": "cpu",
            "reason": "no GPU was found",
            "gpus": [],
            "memory": {"used_bytes": 5, "total_bytes": 7},
        }


class FakeCatalog:
    """One model, under its three names."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def embedding(self, name: str | None) -> Any:
        if name not in (None, *NAMES):
            raise UnknownModel(name, NAMES)
        return self._model

    def find(self, name: str) -> Any:
        return self.embedding(name)

    def models(self) -> list[Any]:
        return [self._model]


@dataclass
class FakeLoader:
    """Loads ``model``, or raises ``error``."""

    model: Any
    error: Exception | None = None
    sources: list[str] = field(default_factory=list)

    async def load(self, source: str, task: str) -> Any:
        self.sources.append(source)
        assert task in ("embeddings", "ner")
        if self.error is not None:
            raise self.error
        return self.model


@dataclass
class FakeServices:
    """Everything the API asks for."""

    catalog: Any
    embeddings: FakeEmbeddings
    loader: FakeLoader
    entities: FakeEntities = field(default_factory=FakeEntities)
    classification: FakeClassification = field(default_factory=FakeClassification)
    reranking: FakeReranking = field(default_factory=FakeReranking)
    analysis: FakeAnalysis = field(default_factory=FakeAnalysis)
    documents: FakeDocuments = field(default_factory=FakeDocuments)
    file_limits: FileLimits = FILE_LIMITS
    health: FakeHealth = field(default_factory=FakeHealth)
    telemetry: Telemetry = field(default_factory=Telemetry)
    limits: ApiLimits = field(default_factory=lambda: ApiLimits(inputs=100, text_chars=200_000, body_bytes=1_000_000))

    def system(self) -> dict[str, Any]:
        return {"device": {"device": "cpu", "why": ["automatic: no GPU"]}}


def fake_model() -> Any:
    """A loaded model as the catalog would hold it."""
    spec = SimpleNamespace(
        source="bundled",
        revision="53aa51172d14",
        width=WIDTH,
        max_tokens=256,
        pooling=Pooling.MEAN,
        normalize=True,
        prompts={"query": "query: "},
    )
    return SimpleNamespace(
        name=NAMES[0],
        names=NAMES,
        task="embeddings",
        device="cpu",
        dtype="int8",
        runtime="onnx",
        created_s=1767225600.5,
        labels=(),
        spec=spec,
        engine=SimpleNamespace(budget=512),
    )


def fake_services(**changes: Any) -> FakeServices:
    """Services as a test wants them."""
    model = fake_model()
    return FakeServices(FakeCatalog(model), FakeEmbeddings(model), FakeLoader(model), **changes)
