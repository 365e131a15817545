"""The use case behind images in ``/v1/classify``, and the pictures of documents: pages in, classes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from backend.abandoned import end_tasks
from backend.errors import InvalidField, ModelPending, WrongMediaType
from backend.files.file_readers import FileReaders, OpenFile
from backend.files.file_types import IMAGES, FileType, sniff
from backend.files.page_ranges import select_pages
from backend.files.stored_file import StoredFile
from backend.images.engine import TASK, ImageEngines, Logits
from backend.lanes.cache.store import CachedVector, CacheNamespace, VectorCache
from backend.lanes.file_threads import FileThreads
from backend.lanes.inference import Timing, Urgency, UsageCounter, retry_bulk, run_one
from backend.lanes.memory_keeper import IdleTrim
from backend.lanes.shared_calls import SharedCalls
from backend.models.fingerprint import arithmetic_key
from backend.models.logistic import MULTI_LABEL_THRESHOLD
from backend.models.numpy_layers import Activation, activate
from backend.serving.pending_models import PendingModels
from backend.telemetry import Telemetry
from backend.text.classification import ClassifiedText, predictions_of
from backend.text.scoring import LabelScores


@dataclass(frozen=True, slots=True)
class PageChoice:
    """Which pages of a file are looked at, and how to open it."""

    pages: str = ""  # "1-3,7"; empty: the first
    password: str | None = None
    turn: int = 0  # degrees clockwise that set the page upright, after /Rotate or the EXIF orientation


@dataclass(frozen=True, slots=True)
class ClassifiedPage:
    """The predictions for one page; their tokens are 0."""

    number: int  # from 1, in the file
    classes: ClassifiedText
    incomplete: str = ""  # a sentence on what could not be read of it


@dataclass(frozen=True, slots=True)
class ImageClassification:
    """The predictions for each page, in the order of the file."""

    pages: tuple[ClassifiedPage, ...]
    model: str
    multi_label: bool
    decode_s: float = 0.0  # opening the file and framing pages, or waiting for a worker; 0 from the cache
    lane_s: float = 0.0  # waiting for a lane, and on it


Result = TypeVar("Result")
# To be raised when the same file and model give another picture of a page: cached classes are then computed again.
_FRAMING_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Scored:
    """The logits of one page."""

    number: int
    logits: Logits
    incomplete: str = ""


@dataclass(frozen=True, slots=True)
class _ScoredFile:
    pages: tuple[_Scored, ...]
    decode_s: float = 0.0
    lane_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Request:
    """Pages to be looked at, and by what."""

    engines: ImageEngines
    upload: StoredFile
    choice: PageChoice
    urgency: Urgency
    keys: CacheNamespace

    def key(self, number: int) -> bytes:
        """Of a page in the cache."""
        return self.keys.key("file", f"{self.upload.sha256} {number}".encode())


class ImageClassificationService:
    """Used on the event loop only. Cancelling a call also ends its work in reader processes and on lanes.

    Args:
        engines: the model with its lanes; None where no image model is set.
        why_none: one sentence, where there is none.
        pending: holds the model that is set, while the hub cannot be reached.
        threads: pages that are framed at once.
    """

    def __init__(
        self,
        readers: FileReaders,
        engines: ImageEngines | None,
        cache: VectorCache,
        telemetry: Telemetry,
        *,
        why_none: str = "",
        pending: PendingModels | None = None,
        threads: int = 4,
        idle_trim: IdleTrim | None = None,
    ) -> None:
        self._readers, self.engines, self._cache = readers, engines, cache
        self._why_none, self._pending = why_none, pending or PendingModels()
        self._idle_trim = idle_trim or IdleTrim()
        self._usage = UsageCounter(telemetry, TASK)
        self._shared = SharedCalls[_ScoredFile, None](telemetry)
        self._threads = FileThreads(readers, threads, name="frame")

    def serve(self, engines: ImageEngines) -> None:
        """Classify by these from now on; there were none before, as the hub could not be reached."""
        self.engines = engines

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a request may call the model by, the served one first; none where there is no model."""
        return self.engines.model.names if self.engines is not None else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """What it tells apart."""
        return self.engines.model.spec.labels if self.engines is not None else ()

    @property
    def fingerprint(self) -> str:
        """Of the model; "" where there is none."""
        return self.engines.model.spec.fingerprint if self.engines is not None else ""

    def report(self) -> dict[str, Any]:
        """The model with its reasons, for GET /v1/system."""
        if self.engines is None:
            return {"model": None, "why": self._why_none}
        return self.engines.model.report(self.engines.where)

    def require(self) -> ImageEngines:
        """Raises: InvalidField where no image model is set; ModelPending where the hub has not given it yet."""
        if self.engines is not None:
            return self.engines
        why = f"no image can be classified here: {self._why_none}"
        if (pending := self._pending.of(TASK)) is not None:
            after_s = pending.retry_after_s(time.monotonic())
            raise ModelPending(pending.source, pending.reason, serving=None, retry_after_s=after_s)
        raise InvalidField(f"file: {why}; set it to a folder or a hub id", param="file")

    async def classify(
        self,
        upload: StoredFile,
        choice: PageChoice | None = None,
        urgency: Urgency | None = None,
        *,
        top_k: int | None = None,
        min_score: float | None = None,
    ) -> ImageClassification:
        """The classes of pages of a file, by what they look like.

        Args:
            upload: stays the caller's to close.
            top_k, min_score: as of ClassificationService.classify.

        Raises: what `FileReaders` raises for the file or a page; InvalidField, TooLarge for the pages, and as
            ``require``; Overloaded, Unavailable, DeadlineExceeded, InferenceFailed for the service.
        """
        engines, choice, urgency = self.require(), choice or PageChoice(), urgency or Urgency()
        kind = sniff(upload.head)
        if kind not in (FileType.PDF, *IMAGES):
            what = "a recording" if kind is FileType.AUDIO else f"{kind}, which is text"
            raise WrongMediaType(
                f"file: it is {what}, and has no pages to look at; send a PDF or an image", param="file"
            )
        request = _Request(engines, upload, choice, urgency, _keys(engines, choice))
        with self._idle_trim.busy():
            scored = await self._scored(request)
        self._usage.count(len(scored.pages), 0)
        return _classified(engines, scored, top_k, min_score)

    def close(self) -> None:
        self._threads.close()

    async def _scored(self, request: _Request) -> _ScoredFile:
        pages = request.choice.pages or "1"
        if pages.isascii() and pages.isdigit():  # one page: known without opening the file
            [cached] = await self._cache.lookup([request.key(int(pages))])
            if cached is not None:
                return _ScoredFile((_Scored(int(pages), cached.vector),))
        key = request.keys.narrow(request.choice.pages).key("file", request.upload.sha256.encode())
        return await self._shared.run(key, request.urgency, lambda _: self._begin(request))

    async def _begin(self, request: _Request) -> _ScoredFile:
        """With a file of its own: its first caller may leave and close theirs while others wait for it."""
        started_s, upload = time.perf_counter(), request.upload.shared()
        try:
            file = await self._threads.open(upload, request.urgency, password=request.choice.password)
        finally:
            upload.close()
        try:
            numbers = select_pages(request.choice.pages or "1", file.info.page_count, self._readers.limits)
            decode_s = time.perf_counter() - started_s
            return await self._look(request, file, numbers, decode_s)
        except BaseException:
            file.cancel()  # ends its work in a reader process at once
            raise
        finally:
            self._threads.release(file)

    async def _look(self, request: _Request, file: OpenFile, numbers: Sequence[int], open_s: float) -> _ScoredFile:
        cached = await self._cache.lookup([request.key(number) for number in numbers])
        tasks = [
            asyncio.create_task(self._page(request, file, number, hit))
            for number, hit in zip(numbers, cached, strict=True)
        ]
        try:
            pages = await asyncio.gather(*tasks)
        finally:
            await end_tasks(*tasks)
        decode_s = open_s + sum(decode_s for _, decode_s, _ in pages)
        return _ScoredFile(tuple(page for page, _, _ in pages), decode_s, sum(lane_s for _, _, lane_s in pages))

    async def _page(
        self, request: _Request, file: OpenFile, number: int, hit: CachedVector | None
    ) -> tuple[_Scored, float, float]:
        """The logits of a page, and the seconds of framing it and on a lane."""
        if hit is not None:
            return _Scored(number, hit.vector), 0.0, 0.0
        started_s = time.perf_counter()
        framing = request.engines.model.spec.preprocessing.framing
        frame = partial(
            self._readers.model_page,
            file,
            number,
            framing,
            turn=request.choice.turn,
            deadline_s=request.urgency.worker_deadline_s,
        )
        page = await retry_bulk(request.urgency, partial(self._threads.run, frame))
        framed_s = time.perf_counter()
        engine, cost = request.engines.model.engine, request.engines.model.page_cost
        logits: Logits = await run_one(request.engines.lanes, engine, page.pixels, cost, request.urgency)
        if not page.incomplete:  # it may be read to its end another time
            self._cache.store([request.key(number)], [CachedVector(logits, tokens=0, truncated=False)])
        return _Scored(number, logits, page.incomplete), framed_s - started_s, time.perf_counter() - framed_s


def _keys(engines: ImageEngines, choice: PageChoice) -> CacheNamespace:
    """What the logits of a page depend on, the password included: an encrypted file tells nothing without it."""
    model = engines.model
    secret = "" if choice.password is None else blake2b(choice.password.encode(), digest_size=16).hexdigest()
    arithmetic = (model.choice.runtime, arithmetic_key(model.choice.dtype))
    return CacheNamespace(TASK, str(_FRAMING_VERSION), model.spec.fingerprint, *arithmetic).narrow(
        str(choice.turn % 360), secret
    )


def _classified(
    engines: ImageEngines, scored: _ScoredFile, top_k: int | None, min_score: float | None
) -> ImageClassification:
    spec, count = engines.model.spec, len(scored.pages)
    activation = Activation.SIGMOID if spec.multi_label else Activation.SOFTMAX
    scores = LabelScores(
        scores=activate(np.stack([page.logits for page in scored.pages]).astype(np.float64), activation),
        labels=spec.labels,
        model=engines.model.name,
        multi_label=spec.multi_label,
        threshold=MULTI_LABEL_THRESHOLD if spec.multi_label else 0.0,
        tokens=(0,) * count,
        truncated=(False,) * count,
        timing=Timing(),
    )
    rows = predictions_of(scores, top_k, min_score).rows
    pages = tuple(
        ClassifiedPage(page.number, row, page.incomplete) for page, row in zip(scored.pages, rows, strict=True)
    )
    return ImageClassification(pages, engines.model.name, spec.multi_label, scored.decode_s, scored.lane_s)
