"""Classifiers learnt from a few examples while the service runs: embedded on the lanes, solved on a thread, kept."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from backend.batching.work_item import Priority
from backend.errors import FinanciaError
from backend.models.classifier_head import NONE, ClassifierHead
from backend.models.encoder import Vectors
from backend.models.logistic import fit_head
from backend.models.spec import ModelSpec
from backend.services.classifier_files import Example
from backend.services.classifiers import Classifier, Classifiers
from backend.services.embeddings import EmbeddingService
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


class Learner:
    """Belongs to the loop's thread; one classifier is solved at a time."""

    def __init__(self, classifiers: Classifiers, embeddings: EmbeddingService) -> None:
        self._classifiers, self._embeddings = classifiers, embeddings
        self._solving = asyncio.Lock()
        self._turn = asyncio.Lock()  # to change what is kept

    async def learn(self, name: str, texts: Mapping[str, Sequence[str]], *, deadline_s: float = math.inf) -> Classifier:
        """Learn the labels from texts of each and keep them. Raises: as ClassificationService.learn."""
        examples = [Example(text, (label,)) for label, own in texts.items() for text in own]
        while True:
            head = await self._solved(name, examples, Priority.INTERACTIVE, deadline_s)
            async with self._turn:
                kept = await asyncio.to_thread(self._classifiers.save, name, head, examples)
            if head.encoder_sha256 == self._classifiers.encoder_sha256:
                return kept  # else another embedding model came meanwhile, and this head would never answer

    async def relearn(self) -> None:
        """Learn anew what was learnt for another embedding model, after everybody else; what fails is logged."""
        waiting = deque(self._classifiers.stale())
        while waiting:
            name = waiting.popleft()
            if (wait_s := await self._relearnt(name)) is not None:
                waiting.append(name)
                await asyncio.sleep(wait_s)

    async def forget(self, name: str) -> None:
        """Take one away. Raises: as Classifiers.forget."""
        async with self._turn:
            await asyncio.to_thread(self._classifiers.forget, name)

    async def _relearnt(self, name: str) -> float | None:
        """Learn one anew; seconds to wait where it should be tried again."""
        try:
            examples = await asyncio.to_thread(self._classifiers.examples, name)
            head = await self._solved(name, examples, Priority.BULK, math.inf)
            async with self._turn:
                if name in self._classifiers.stale():  # not learnt from newer examples meanwhile, nor forgotten
                    await asyncio.to_thread(self._classifiers.save, name, head, examples)
        except FinanciaError as error:
            log_event(_log, logging.WARNING, "a classifier could not be learnt again", name=name, reason=error)
            return error.retry_after_s if error.retryable else None
        log_event(_log, logging.INFO, "classifier learnt again", name=name)
        return None

    async def _solved(
        self, name: str, examples: Sequence[Example], priority: Priority, deadline_s: float
    ) -> ClassifierHead:
        multiple = any(len(one.labels) != 1 for one in examples)
        labels = self._classifiers.check(name, examples, multiple=multiple)
        texts = [one.text for one in examples]
        whole = await self._embeddings.embed_whole(texts, priority=priority, deadline_s=deadline_s)
        async with self._solving:
            return await asyncio.to_thread(_solve, whole.vectors, examples, labels, whole.model.spec, multiple=multiple)


def _solve(
    vectors: Vectors, examples: Sequence[Example], labels: Sequence[str], spec: ModelSpec, *, multiple: bool
) -> ClassifierHead:
    """Seconds for thousands of examples, milliseconds for a few."""
    background = len(labels) if any(NONE in one.labels for one in examples) else None
    numbers = {label: number for number, label in enumerate(labels)} | {NONE: len(labels)}
    rows = len(labels) + (background is not None)
    if multiple:
        targets = np.array([[label in one.labels for label in labels] for one in examples], np.int64)
    else:
        targets = np.array([numbers[one.labels[0]] for one in examples], np.int64)
    solved = fit_head(vectors, targets, labels=rows, background=background)
    return ClassifierHead(
        labels=tuple(labels),
        multiple=multiple,
        weight=solved.weight.astype(np.float32),
        bias=solved.bias.astype(np.float32),
        encoder=spec.source,
        encoder_sha256=spec.sha256,
        threshold=solved.threshold,
        info={
            "examples": len(examples),
            "accuracy_on_folds": solved.accuracy,
            "penalty": solved.penalty,
            "temperature": solved.temperature.value,
            "created_s": round(datetime.now(UTC).timestamp()),
        },
    )
