"""Services that answer without a model, so that only HTTP is tested."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from backend.api.request_context import ApiLimits
from backend.api.routes.embeddings import BATCH_ENDPOINT, answer_in_batch
from backend.batches import BatchService
from backend.callers.callers import KeyRing, LiveKeys
from backend.callers.quotas import Meters
from backend.callers.usage import UsageService
from backend.errors import UnknownModel
from backend.files.limits import FileLimits
from backend.jobs.service import JobService
from backend.lanes.cache.store import CachedVector
from backend.lanes.inference import Timing
from backend.lanes.text_work import TextWork
from backend.models.spec import Pooling
from backend.models.tokenizer import TokenArrays, TokenizedText, TokenPiece
from backend.search.files import FileService
from backend.search.stored_documents import StoredDocuments
from backend.search.uploads import UploadService
from backend.search.vector_stores import VectorStoreService
from backend.serving.health import Readiness
from backend.telemetry import Telemetry
from backend.text.embeddings import (
    EmbeddingResult,
    EmbeddingService,
    EmbedOptions,
    TextVectors,
    TokenVectorsResult,
)
from backend.text.similarity import SimilarityResult
from tests.api.document_fakes import FILE_LIMITS, FakeDocuments, FakeExtractors
from tests.api.image_fakes import FakeImages
from tests.api.search_services import FakeSearch, SearchServices
from tests.api.speech_fakes import FakeSpeech
from tests.api.text_fakes import (
    FakeAnalysis,
    FakeAnswers,
    FakeClassification,
    FakeEntities,
    FakeReranking,
    FakeService,
    FakeSummaries,
)
from tests.fakes import ManualClock

WIDTH = 16
NAMES = ("fake-model", "bundled", "alias/with-slash")
TIMING = Timing(cache_s=0.0001, tokenize_s=0.0002, queue_s=0.001, inference_s=0.0045)


def vector(content: Any, width: int = WIDTH) -> np.ndarray:
    """The same vector of length 1 each time for a text or list of ids."""
    numbers = np.random.default_rng(zlib.crc32(repr(content).encode())).standard_normal(width).astype(np.float32)
    return numbers / np.linalg.norm(numbers)


@dataclass
class FakeEmbeddings(FakeService):
    """Answers with ``vector``."""

    model: Any = None
    width: int = WIDTH
    timing: Timing = TIMING
    truncated: frozenset[int] = frozenset()  # indices of inputs that count as truncated

    async def embed(self, inputs: Sequence[Any], options: EmbedOptions, **call: Any) -> EmbeddingResult:
        await self.enter(inputs, options, call)
        if call.get("model") not in (None, *NAMES):
            raise UnknownModel(call["model"], NAMES)
        rows = [
            CachedVector(
                np.ascontiguousarray(vector(text, self.width)[: options.dimensions]), len(text), index in self.truncated
            )
            for index, text in enumerate(inputs)
        ]
        return EmbeddingResult(rows, self.timing, self.model)

    async def embed_untruncated(self, texts: Sequence[str], **_: Any) -> TextVectors:
        rows = np.array([vector(text, self.width) for text in texts])
        return TextVectors(rows, tuple(map(len, texts)), self.timing, self.model)

    async def token_vectors(self, inputs: Sequence[Any], options: EmbedOptions, **call: Any) -> TokenVectorsResult:
        """A token is a character or an id."""
        await self.enter(inputs, options, call)
        rows = [np.array([vector(token, self.width) for token in text]) for text in inputs]
        cut = [index in self.truncated for index in range(len(rows))]
        return TokenVectorsResult(rows, [len(row) for row in rows], cut, self.timing)

    async def similarity(
        self, source: str, sentences: Sequence[str], options: EmbedOptions, **call: Any
    ) -> tuple[list[float], EmbeddingResult]:
        embedded = await self.embed([source, *sentences], options, **call)
        return (embedded.vectors[1:] @ embedded.vectors[0]).tolist(), embedded

    async def compare(
        self, source: str, sentences: Sequence[str], options: EmbedOptions, **call: Any
    ) -> SimilarityResult:
        """The score is half the cosine."""
        cosines, embedded = await self.similarity(source, sentences, options, **call)
        return SimilarityResult(tuple(cosines), tuple(max(0.0, cosine / 2) for cosine in cosines), embedded)

    async def tokenize(self, inputs: Sequence[str], *, add_special_tokens: bool, **options: Any) -> list[TokenizedText]:
        """One token a text, its first character."""
        del options
        token = TokenArrays(np.array([1], np.int32), np.array([[0, 1]], np.int32))
        mark = TokenPiece(id=0, text="[CLS]", special=True, start=None, stop=None)
        return [TokenizedText("a", token, [mark] if add_special_tokens else []) for _ in inputs]


@dataclass
class FakeHealth:
    """Ready until ``reasons`` says otherwise."""

    reasons: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()  # what is degraded

    async def ready(self) -> Readiness:
        return Readiness(ready=not self.reasons, reasons=self.reasons)

    def degraded(self) -> list[str]:
        return list(self.failing)

    def report(self) -> dict[str, Any]:
        model = {"name": "fake-model", "task": "embeddings", "runtime": "onnx", "dtype": "int8", "is_loaded": True}
        lanes = {"lanes": 1, "lanes_alive": 1, "busy": 0, "queued_jobs": 0, "queued_tokens": 0, "oldest_s": 0.0}
        times = {"running_s": 0.0, "last_batch_age_s": None, "rate_tokens_per_s": 0.0, "device_fault": ""}
        cache = {"enabled": True, "memory_entries": 0, "memory_bytes": 0, "memory_limit_bytes": 1, "redis": None}
        device = {"device": "cpu", "lanes": 1, "reason": "no GPU was found"}
        return {
            "models": [model],
            "device": device,
            "lanes": {**lanes, **times},
            "cache": cache,
            "degraded": self.degraded(),
            "measuring": [],
        }

    def lanes(self) -> Any:
        return SimpleNamespace(queued_jobs=3, busy=1)

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

    def embedding(self, name: str | None = None) -> Any:
        if name not in (None, *NAMES):
            raise UnknownModel(name, NAMES)
        return self._model

    def find(self, name: str) -> Any:
        return self.embedding(name)

    def of(self, task: str) -> Any:
        return self._model if task == self._model.task else None

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
class FakeWishes:
    """Loads by ``loader``, and notes what all replicas were told."""

    loader: FakeLoader
    wished: list[tuple[str, str]] = field(default_factory=list)

    async def roll_out(self, source: str, task: str) -> Any:
        model = await self.loader.load(source, task)
        self.wished.append((source, task))
        return model


@dataclass
class FakeServices:
    """The services that the API calls."""

    catalog: Any
    embeddings: FakeEmbeddings
    loader: FakeLoader
    rollout: Any = None
    entities: FakeEntities = field(default_factory=FakeEntities)
    answers: FakeAnswers = field(default_factory=FakeAnswers)
    classification: FakeClassification = field(default_factory=FakeClassification)
    reranking: FakeReranking = field(default_factory=FakeReranking)
    analysis: FakeAnalysis = field(default_factory=FakeAnalysis)
    summaries: FakeSummaries = field(default_factory=FakeSummaries)
    text_work: TextWork = field(default_factory=lambda: TextWork(Telemetry()))
    documents: FakeDocuments = field(default_factory=FakeDocuments)
    extractors: FakeExtractors = field(default_factory=FakeExtractors)
    speech: FakeSpeech = field(default_factory=FakeSpeech)
    images: FakeImages = field(default_factory=FakeImages)
    file_limits: FileLimits = FILE_LIMITS
    storage: Any = field(init=False)  # of what follows; `tests.api.search_services`
    files: FileService = field(init=False)
    stored_documents: StoredDocuments = field(init=False)
    uploads: UploadService = field(init=False)
    vector_stores: VectorStoreService = field(init=False)
    search: FakeSearch = field(init=False)
    health: FakeHealth = field(default_factory=FakeHealth)
    telemetry: Telemetry = field(default_factory=Telemetry)
    meters: Meters = field(init=False)
    usage: UsageService = field(init=False)  # of a service that keeps none
    clock: ManualClock = field(default_factory=ManualClock)  # of the meters
    limits: ApiLimits = field(default_factory=lambda: ApiLimits(inputs=100, text_chars=200_000, body_bytes=1_000_000))

    def __post_init__(self) -> None:
        self.rollout = self.rollout or FakeWishes(self.loader)
        vars(self).update(vars(SearchServices(self.catalog)))
        self.uploads = UploadService(self.files, self.file_limits)
        self.meters = Meters(self.telemetry, clock=self.clock)
        self.usage = UsageService(LiveKeys(KeyRing({})), self.meters, None)

    @property
    def similarity(self) -> FakeEmbeddings:
        """Compares by the same vectors."""
        return self.embeddings

    def system(self) -> dict[str, Any]:
        return {"device": {"device": "cpu", "why": ["automatic: no GPU"]}}


class FakeTokenizer:
    """Writes ids in brackets, and reads two tokens in every text."""

    vocabulary_size = 250_000

    def read_all(self, text: str) -> TokenArrays:
        del text
        return TokenArrays(np.array([1, 2], np.int32), np.zeros((2, 2), np.int32))

    def decode(self, ids: np.ndarray, *, skip_special_tokens: bool = True) -> str:
        del skip_special_tokens
        return "".join(f"<{number}>" for number in ids.tolist())


def fake_model() -> Any:
    """A loaded model as the catalog holds it."""
    spec = SimpleNamespace(
        source="bundled",
        revision="53aa51172d14",
        fingerprint="f1",
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
        tokenizer=FakeTokenizer(),
    )


def fake_services(**changes: Any) -> FakeServices:
    """Fake services with some fields replaced."""
    model = fake_model()
    return FakeServices(FakeCatalog(model), FakeEmbeddings(model=model), FakeLoader(model), **changes)


def batch_service(services: FakeServices, jobs: JobService, output_bytes: int = 100_000) -> BatchService:
    """Batches over fake files and vectors; before ``jobs`` are started."""
    return BatchService(
        jobs,
        services.files,
        FILE_LIMITS,
        output_bytes=output_bytes,
        answers={
            BATCH_ENDPOINT: partial(answer_in_batch, cast("EmbeddingService", services.embeddings), services.limits)
        },
        runs_here_only=False,
    )
