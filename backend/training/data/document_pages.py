"""Reads the pages of a document image data set, leaves out unreadable ones, and splits them for evaluation."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.errors import BadData
from backend.telemetry import log_event
from backend.training.data.images import (
    ImageCache,
    ImageExample,
    Pixels,
    SkippedImage,
    check_readable,
    decode,
    read_examples,
    resize,
)
from backend.training.data.texts import SPLIT_SEED, hold_out
from backend.training.tasks.image_models import Preprocessing

_log = logging.getLogger(__name__)
_FILES_IN_MESSAGE = 5  # files in one message


class PageStore:
    """Pages resized for the model, decoded at most once while the cache has room. Thread-safe."""

    def __init__(self, preprocessing: Preprocessing, cache: ImageCache) -> None:
        self.preprocessing = preprocessing
        self.cache = cache

    def pixels(self, file: Path) -> Pixels:
        """(height, width_px, 3) uint8, read-only. Raises: BadData for what cannot be read."""
        return self.cache.get(file, lambda: self._decoded(file))

    def _decoded(self, file: Path) -> Pixels:
        size = self.preprocessing
        return resize(decode(file), size.height, size.width_px, resample=size.resample)


@dataclass(frozen=True, slots=True)
class PageData:
    """The readable examples of a data set, split for training and evaluation."""

    labels: tuple[str, ...]  # of the training examples, in alphabetical order
    train: tuple[ImageExample, ...]
    evaluation: tuple[ImageExample, ...]
    skipped: tuple[SkippedImage, ...]  # unreadable files, in the order of the data
    origin: tuple[Path, ...]  # training data, and separate evaluation data if given

    @property
    def counts(self) -> tuple[int, ...]:
        """Training examples of each label."""
        counts = Counter(example.label for example in self.train)
        return tuple(counts[label] for label in self.labels)

    def target(self, example: ImageExample) -> int:
        """The class index of an example."""
        return self.labels.index(example.label)


def read_pages(
    data: Path, store: PageStore, *, evaluation: Path | None = None, held_out: float = 0.1, threads: int = 1
) -> PageData:
    """Read every page once, leave out unreadable ones, and split off the evaluation examples.

    Args:
        evaluation: separate evaluation data; else the examples of split dev in ``data``, else a share of each class.
        held_out: that share; identical images stay on one side. 0 for no evaluation.

    Raises: BadData without readable pages, for a single class, or an evaluation label that training does not have.
    """
    examples = read_examples(data)
    train = [example for example in examples if example.split != "dev"]
    evaluation_examples = [example for example in examples if example.split == "dev"]
    if evaluation is not None:
        evaluation_examples = _for_evaluation(read_examples(evaluation))
    train, train_digests, skipped_train = _readable(train, store, threads)
    evaluation_examples, _, skipped_evaluation = _readable(evaluation_examples, store, threads)
    skipped = (*skipped_train, *skipped_evaluation)
    _log_skipped(skipped, len(train) + len(evaluation_examples))
    if not evaluation_examples and held_out and evaluation is None:
        strata = [example.label for example in train]
        held_out_indices = frozenset(hold_out(train_digests, share=held_out, seed=SPLIT_SEED, strata=strata))
        evaluation_examples = [example for index, example in enumerate(train) if index in held_out_indices]
        train = [example for index, example in enumerate(train) if index not in held_out_indices]
    labels = tuple(sorted({example.label for example in train}))
    _check(data, labels, evaluation_examples, skipped)
    origin = (data, evaluation) if evaluation else (data,)
    return PageData(labels, tuple(train), tuple(evaluation_examples), skipped, origin)


def _for_evaluation(examples: list[ImageExample]) -> list[ImageExample]:
    return [example for example in examples if example.split == "dev"] or examples


def _readable(
    examples: Sequence[ImageExample], store: PageStore, threads: int
) -> tuple[list[ImageExample], list[str], list[SkippedImage]]:
    """The readable examples, a digest of each one's pixels, and the unreadable files."""
    digests: dict[Path, str] = {}

    def load(file: Path) -> None:
        digests[file] = hashlib.blake2b(store.pixels(file).tobytes(), digest_size=16).hexdigest()

    readable, unreadable = check_readable([example.file for example in examples], load, threads=threads)
    readable_examples = [examples[index] for index in readable]
    skipped = [SkippedImage(examples[index].file, why) for index, why in unreadable]
    return readable_examples, [digests[example.file] for example in readable_examples], skipped


def _log_skipped(skipped: Sequence[SkippedImage], readable: int) -> None:
    if skipped:
        log_event(
            _log,
            logging.WARNING,
            "images that cannot be read were left out",
            left_out=len(skipped),
            readable=readable,
            first=[f"{image.file.name}: {image.why}" for image in skipped[:_FILES_IN_MESSAGE]],
        )


def _check(
    data: Path, labels: Sequence[str], evaluation: Sequence[ImageExample], skipped: Sequence[SkippedImage]
) -> None:
    if len(labels) < 2:
        first_names = "; ".join(f"{image.file.name}: {image.why}" for image in skipped[:_FILES_IN_MESSAGE])
        cause = f"; {len(skipped)} images cannot be read: {first_names}" if skipped else ""
        raise BadData(
            f"{data} has {len(labels)} readable classes to learn ({', '.join(labels)}); at least 2 are needed{cause}"
        )
    for example in evaluation:
        if example.label not in labels:
            raise BadData(
                f"{example.file}: the evaluation data has the label {example.label!r}, "
                f"which no readable training image has ({', '.join(labels[:20])})"
            )
