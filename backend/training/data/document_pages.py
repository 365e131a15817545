"""The pages that a document image task learns from and is judged on: read once, sifted, split, the unreadable named."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.errors import BadData
from backend.telemetry import log_event
from backend.training.data.images import ImageCache, ImageExample, Pixels, Skipped, decode, fit, read_examples, sift
from backend.training.data.texts import SPLIT_SEED, hold_out
from backend.training.tasks.image_models import Preparation

_log = logging.getLogger(__name__)
_NAMED = 5  # files in one message


class PageStore:
    """Pages at the size a model takes, decoded at most once while the cache has room. Any thread."""

    def __init__(self, preparation: Preparation, cache: ImageCache) -> None:
        self.preparation = preparation
        self.cache = cache

    def pixels(self, file: Path) -> Pixels:
        """(height, width_px, 3) uint8, not to be written into. Raises: BadData for what cannot be read."""
        return self.cache.get(file, lambda: self._decoded(file))

    def _decoded(self, file: Path) -> Pixels:
        size = self.preparation
        return fit(decode(file), size.height, size.width_px, resample=size.resample)


@dataclass(frozen=True, slots=True)
class PageData:
    """Examples that can all be read."""

    labels: tuple[str, ...]  # of the training examples, in alphabetical order
    learn: tuple[ImageExample, ...]
    judge: tuple[ImageExample, ...]
    skipped: tuple[Skipped, ...]  # what could not be read, in the order of the data
    origin: tuple[Path, ...]  # training data, and evaluation data of its own

    @property
    def counts(self) -> tuple[int, ...]:
        """Training examples of each label."""
        found = Counter(one.label for one in self.learn)
        return tuple(found[label] for label in self.labels)

    def target(self, example: ImageExample) -> int:
        """The number of its label."""
        return self.labels.index(example.label)


def read_pages(
    data: Path, store: PageStore, *, evaluation: Path | None = None, held_out: float = 0.1, threads: int = 1
) -> PageData:
    """Read every page once, leave out those that cannot be read, and split off what to judge by.

    Args:
        evaluation: data of its own for it; else what ``data`` says is for it (split dev), else a share of each class.
        held_out: that share; equal pictures stay on one side. 0 for no evaluation.

    Raises: BadData for nothing to read, one class only, or a label at evaluation that training does not have.
    """
    examples = read_examples(data)
    learn = [one for one in examples if one.split != "dev"]
    judge = [one for one in examples if one.split == "dev"]
    if evaluation is not None:
        judge = _for_evaluation(read_examples(evaluation))
    (learn, learn_keys, bad), (judge, _, bad_judge) = _sifted(learn, store, threads), _sifted(judge, store, threads)
    skipped = (*bad, *bad_judge)
    _tell(skipped, len(learn) + len(judge))
    if not judge and held_out and evaluation is None:
        strata = [one.label for one in learn]
        kept = frozenset(hold_out(learn_keys, share=held_out, seed=SPLIT_SEED, strata=strata))
        judge = [one for index, one in enumerate(learn) if index in kept]
        learn = [one for index, one in enumerate(learn) if index not in kept]
    labels = tuple(sorted({one.label for one in learn}))
    _check(data, labels, judge, skipped)
    return PageData(labels, tuple(learn), tuple(judge), skipped, (data, evaluation) if evaluation else (data,))


def _for_evaluation(examples: list[ImageExample]) -> list[ImageExample]:
    return [one for one in examples if one.split == "dev"] or examples


def _sifted(
    examples: Sequence[ImageExample], store: PageStore, threads: int
) -> tuple[list[ImageExample], list[str], list[Skipped]]:
    """The readable ones, what each looks like as a digest, and the others."""
    keys: dict[Path, str] = {}

    def load(file: Path) -> None:
        keys[file] = hashlib.blake2b(store.pixels(file).tobytes(), digest_size=16).hexdigest()

    readable, bad = sift([one.file for one in examples], load, threads=threads)
    kept = [examples[index] for index in readable]
    return kept, [keys[one.file] for one in kept], [Skipped(examples[index].file, why) for index, why in bad]


def _tell(skipped: Sequence[Skipped], readable: int) -> None:
    if skipped:
        log_event(
            _log,
            logging.WARNING,
            "images that cannot be read were left out",
            left_out=len(skipped),
            readable=readable,
            first=[f"{one.file.name}: {one.why}" for one in skipped[:_NAMED]],
        )


def _check(data: Path, labels: Sequence[str], judge: Sequence[ImageExample], skipped: Sequence[Skipped]) -> None:
    if len(labels) < 2:
        named = "; ".join(f"{one.file.name}: {one.why}" for one in skipped[:_NAMED])
        unread = f"; {len(skipped)} images cannot be read: {named}" if skipped else ""
        raise BadData(
            f"{data} has {len(labels)} readable classes to learn ({', '.join(labels)}); at least 2 are needed{unread}"
        )
    for one in judge:
        if one.label not in labels:
            raise BadData(
                f"{one.file}: the evaluation data has the label {one.label!r}, which no readable training image has "
                f"({', '.join(labels[:20])})"
            )
