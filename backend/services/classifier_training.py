"""Trains classifiers from a few examples while the service runs: embeds on the lanes, fits on a thread, saves."""

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
from backend.services.classifiers import Classifier, ClassifierRegistry
from backend.services.embeddings import EmbeddingService
from backend.telemetry import log_event

_log = logging.getLogger(__name__)


class ClassifierTrainer:
    """Trains and saves classifiers, and retrains them for another embedding model.

    Belongs to the loop's thread; one classifier is fitted at a time.
    """

    def __init__(self, registry: ClassifierRegistry, embeddings: EmbeddingService) -> None:
        self._registry, self._embeddings = registry, embeddings
        self._fit_lock = asyncio.Lock()
        self._write_lock = asyncio.Lock()

    async def train(self, name: str, texts: Mapping[str, Sequence[str]], *, deadline_s: float = math.inf) -> Classifier:
        """Train on the texts of each label, and save. Raises: as ClassificationService.train_classifier."""
        examples = [Example(text, (label,)) for label, label_texts in texts.items() for text in label_texts]
        while True:
            head = await self._fit(name, examples, Priority.INTERACTIVE, deadline_s)
            async with self._write_lock:
                classifier = await asyncio.to_thread(self._registry.save, name, head, examples)
            if head.encoder_sha256 == self._registry.encoder_sha256:
                return classifier  # else the embedding model was swapped meanwhile, and this head would never answer

    async def retrain_stale(self) -> None:
        """Retrain what was trained for another embedding model, at low priority; failures are logged."""
        names = deque(self._registry.stale())
        while names:
            name = names.popleft()
            if (wait_s := await self._retrain(name)) is not None:
                names.append(name)
                await asyncio.sleep(wait_s)

    async def delete(self, name: str) -> None:
        """Delete a trained classifier. Raises: as ClassifierRegistry.delete."""
        async with self._write_lock:
            await asyncio.to_thread(self._registry.delete, name)

    async def _retrain(self, name: str) -> float | None:
        """Retrain one; seconds to wait before another attempt, None where none is needed."""
        try:
            examples = await asyncio.to_thread(self._registry.examples, name)
            head = await self._fit(name, examples, Priority.BULK, math.inf)
            async with self._write_lock:
                if name in self._registry.stale():  # not trained on newer examples meanwhile, nor deleted
                    await asyncio.to_thread(self._registry.save, name, head, examples)
        except FinanciaError as error:
            log_event(_log, logging.WARNING, "a classifier could not be learnt again", name=name, reason=error)
            return error.retry_after_s if error.retryable else None
        log_event(_log, logging.INFO, "classifier learnt again", name=name)
        return None

    async def _fit(
        self, name: str, examples: Sequence[Example], priority: Priority, deadline_s: float
    ) -> ClassifierHead:
        multiple = any(len(example.labels) != 1 for example in examples)
        labels = self._registry.check(name, examples, multiple=multiple)
        texts = [example.text for example in examples]
        vectors = await self._embeddings.embed_untruncated(texts, priority=priority, deadline_s=deadline_s)
        spec = vectors.model.spec
        async with self._fit_lock:
            return await asyncio.to_thread(_fit_head, vectors.vectors, examples, labels, spec, multiple=multiple)


def _fit_head(
    vectors: Vectors, examples: Sequence[Example], labels: Sequence[str], spec: ModelSpec, *, multiple: bool
) -> ClassifierHead:
    """Seconds for thousands of examples, milliseconds for a few."""
    background = len(labels) if any(NONE in example.labels for example in examples) else None
    indices = {label: index for index, label in enumerate(labels)} | {NONE: len(labels)}
    rows = len(labels) + (background is not None)
    if multiple:
        targets = np.array([[label in example.labels for label in labels] for example in examples], np.int64)
    else:
        targets = np.array([indices[example.labels[0]] for example in examples], np.int64)
    fitted = fit_head(vectors, targets, labels=rows, background=background)
    return ClassifierHead(
        labels=tuple(labels),
        multiple=multiple,
        weight=fitted.weight.astype(np.float32),
        bias=fitted.bias.astype(np.float32),
        encoder=spec.source,
        encoder_sha256=spec.sha256,
        threshold=fitted.threshold,
        info={
            "examples": len(examples),
            "accuracy_on_folds": fitted.accuracy,
            "penalty": fitted.penalty,
            "temperature": fitted.temperature.value,
            "created_s": round(datetime.now(UTC).timestamp()),
        },
    )
