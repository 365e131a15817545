"""Trains classifiers from a few examples while the service runs: embeds on the lanes, fits on a thread, saves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from backend.abandoned import run_to_end
from backend.callers.callers import ANYBODY, Caller
from backend.errors import FinanciaError, Overloaded, Unavailable
from backend.lanes.inference import Urgency
from backend.lanes.work_queue import Priority
from backend.models.classifier_head import NONE, ClassifierHead, wide_weights
from backend.models.encoder import Vectors
from backend.models.logistic_process import fit_head_beside
from backend.models.spec import ModelSpec
from backend.telemetry import log_event
from backend.text.classifier_files import Example
from backend.text.classifier_store import ClassifierStore
from backend.text.classifiers import Classifier, check_examples
from backend.text.embeddings import EmbeddingService

_log = logging.getLogger(__name__)
IN_LINE_MAX = 8  # each holds its vectors: 15 MB for 10,000 examples
_FIT_S = 5.0  # about what learning takes, until one has been timed


class ClassifierTrainer:
    """Trains and saves classifiers, and retrains them for another embedding model.

    Belongs to the loop's thread; one classifier is fitted at a time, and few requests wait for that. A caller that
    leaves, or is late, ends its fit at the solver's next step; a head is saved whole or not at all.
    """

    def __init__(self, store: ClassifierStore, embeddings: EmbeddingService) -> None:
        self._registry, self._store, self._embeddings = store.registry, store, embeddings
        self._fit_lock = asyncio.Lock()
        self._write_lock = asyncio.Lock()
        self._in_line = 0  # requests that are being trained or wait for it
        self._last_fit_s = _FIT_S

    async def train(
        self, name: str, texts: Mapping[str, Sequence[str]], *, caller: Caller = ANYBODY, urgency: Urgency = Urgency()
    ) -> Classifier:
        """Train on the texts of each label, and save. Raises: as ClassificationService.train_classifier."""
        await self._store.refresh()  # it may be another replica's caller's; and nothing is learnt that cannot be kept
        self._registry.check_owner(name, caller)
        examples = [Example(text, (label,)) for label, label_texts in texts.items() for text in label_texts]
        while True:
            labels = self._registry.check(name, examples, multiple=_is_multiple(examples))
            with self._place_in_line():
                head = await self._fit(examples, labels, urgency)
            async with self._write_lock:
                classifier = await self._store.save(name, head, examples, caller)
            if head.trained_on == self._registry.encoder:
                return classifier  # else the embedding model was swapped meanwhile, and this head would never answer

    async def learn_once(self, examples: Sequence[Example], *, urgency: Urgency = Urgency()) -> Classifier:
        """A classifier that is saved nowhere. Raises: as `train`."""
        labels = check_examples(examples, multiple=False)
        with self._place_in_line():
            head = await self._fit(examples, labels, urgency)
        return Classifier("examples", head, "learnt")

    async def retrain_stale(self) -> None:
        """Retrain what was trained for another embedding model, at low priority; failures are logged.

        Those that callers taught come first: they have few examples as a rule. Then the bundled classifiers, where
        the embedding model has none: from the examples that ship, or as they were learnt for it before.
        """
        work = deque([(self._retrain, name) for name in self._registry.stale()])
        work += [(self._learn_bundled, name) for name in self._registry.pending()]
        tried = {(name, self._store.version(name)) for name in self._registry.stale()}
        while work:
            act, name = work.popleft()
            if (wait_s := await act(name)) is not None:
                work.append((act, name))
                await asyncio.sleep(wait_s)
            for new in self._registry.stale():  # taught on another replica meanwhile: not behind what waits
                if (version := (new, self._store.version(new))) not in tried:
                    tried.add(version)
                    work.appendleft((self._retrain, new))

    async def delete(self, name: str, caller: Caller = ANYBODY) -> None:
        """Delete a trained classifier. Raises: as ClassifierStore.delete."""
        async with self._write_lock:
            await self._store.delete(name, caller)

    async def _learn_bundled(self, name: str) -> float | None:
        """Learn a bundled classifier for the embedding model; seconds to wait before another attempt, else None."""
        started_s = time.monotonic()
        try:
            if await asyncio.to_thread(self._registry.restore_bundled, name):
                return None
            examples = await asyncio.to_thread(self._registry.bundled_heads.examples, name)
            labels = check_examples(examples, multiple=False)
            head = await self._fit(examples, labels, Urgency(Priority.BULK), reads_text=True)
            async with self._write_lock:
                if head.trained_on == self._registry.encoder:
                    await run_to_end(lambda: self._registry.use_substitute(name, head))
        except FinanciaError as error:
            log_event(_log, logging.WARNING, "a bundled classifier could not be learnt", name=name, reason=error)
            if not error.retryable:
                self._registry.give_up_bundled(name, str(error))
                return None
            return error.retry_after_s
        took_s = round(time.monotonic() - started_s, 1)
        log_event(_log, logging.INFO, "bundled classifier learnt for this embedding model", name=name, took_s=took_s)
        return None

    async def _retrain(self, name: str) -> float | None:
        """Retrain one; seconds to wait before another attempt, None where none is needed."""
        try:
            version = self._store.version(name)
            examples = await self._store.examples(name)
            head = await self._store.head_of_others(name)
            if head is None:
                labels = self._registry.check(name, examples, multiple=_is_multiple(examples))
                head = await self._fit(examples, labels, Urgency(Priority.BULK))
            async with self._write_lock:
                if name in self._registry.stale():  # not trained on newer examples meanwhile, nor deleted
                    await self._store.save_learnt_again(name, head, version)
        except FinanciaError as error:
            log_event(_log, logging.WARNING, "a classifier could not be learnt again", name=name, reason=error)
            can_wait = isinstance(error, Unavailable) and name in self._registry.names()  # an old head still serves
            return error.retry_after_s if error.retryable and not can_wait else None
        log_event(_log, logging.INFO, "classifier learnt again", name=name)
        return None

    @contextmanager
    def _place_in_line(self) -> Iterator[None]:
        """Raises: Overloaded when as many requests as may wait do so."""
        if self._in_line >= IN_LINE_MAX:
            wait_s = self._in_line * self._last_fit_s
            raise Overloaded(
                self._in_line,
                IN_LINE_MAX,
                wait_s,
                f"{self._in_line} classifiers are being learnt, one at a time, or wait for it, as many as may; "
                f"try again in {wait_s:.0f} s",
            )
        self._in_line += 1
        started_s = time.monotonic()
        try:
            yield
            self._last_fit_s = (time.monotonic() - started_s) / self._in_line
        finally:
            self._in_line -= 1

    async def _fit(
        self,
        examples: Sequence[Example],
        labels: Sequence[str],
        urgency: Urgency,
        *,
        reads_text: bool = False,
    ) -> ClassifierHead:
        """A head for the embedding model; with ``reads_text`` n-grams are tried beside the vector (models/features)."""
        texts = [example.text for example in examples]
        vectors = await self._embeddings.embed_untruncated(texts, urgency=urgency)
        spec = vectors.model.spec
        fit = partial(_fit_head, vectors.vectors, examples, labels, spec, multiple=_is_multiple(examples))
        async with self._fit_lock:
            head = await run_to_end(partial(fit, reads_text=reads_text))
        return replace(head, info={**head.info, "tokens": sum(vectors.tokens)})


def _is_multiple(examples: Sequence[Example]) -> bool:
    return any(len(example.labels) != 1 for example in examples)


def _fit_head(
    vectors: Vectors,
    examples: Sequence[Example],
    labels: Sequence[str],
    spec: ModelSpec,
    *,
    multiple: bool,
    reads_text: bool,
) -> ClassifierHead:
    """Seconds for thousands of examples, milliseconds for a few."""
    background = len(labels) if any(NONE in example.labels for example in examples) else None
    indices = {label: index for index, label in enumerate(labels)} | {NONE: len(labels)}
    rows = len(labels) + (background is not None)
    if multiple:
        targets = np.array([[label in example.labels for label in labels] for example in examples], np.int64)
    else:
        targets = np.array([indices[example.labels[0]] for example in examples], np.int64)
    texts = [example.text for example in examples] if reads_text else ()
    fitted = fit_head_beside(vectors, targets, labels=rows, background=background, texts=texts)
    return ClassifierHead(
        labels=tuple(labels),
        multiple=multiple,
        weight=fitted.weight.astype(np.float32),
        bias=fitted.bias.astype(np.float32),
        encoder=spec.source,
        encoder_sha256=spec.sha256,
        encoder_fingerprint=spec.fingerprint,
        threshold=fitted.threshold,
        wide=wide_weights(fitted),
        info={
            "examples": len(examples),
            "accuracy_on_folds": fitted.accuracy,
            "penalty": fitted.penalty,
            "temperature": fitted.temperature.value,
            "created_s": round(datetime.now(UTC).timestamp()),
        },
    )
