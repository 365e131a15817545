"""The classification service with everything below it, over bundled heads of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.models.classifier_head import ClassifierHead, write_head
from backend.services.classification import ClassificationService
from backend.services.classifiers import Classifiers
from backend.services.scoring import ScoringService
from tests.services.house import House

LABELS = ("invoice", "contract", "letter")


@dataclass
class Desk:
    """The service, the registry it asks, and the house below."""

    service: ClassificationService
    classifiers: Classifiers
    house: House


def head_of(
    sha256: str, labels: Sequence[str] = LABELS, *, multiple: bool = False, threshold: float = 0.0
) -> ClassifierHead:
    """Fixed random weights on vectors of width 384."""
    weight = 8 * np.random.default_rng(len(labels)).standard_normal((len(labels), 384)).astype(np.float32)
    bias = np.linspace(-1, 1, len(labels), dtype=np.float32)
    return ClassifierHead(tuple(labels), multiple, weight, bias, "bundled", sha256, threshold=threshold)


def keep_head(root: Path, name: str, head: ClassifierHead) -> Path:
    """A folder of bundled heads with one more."""
    folder = root / "bundled" / name
    folder.mkdir(parents=True)
    write_head(folder, head)
    return folder


def desk_of(house: House, root: Path) -> Desk:
    """As the composition root makes it; again on the same ``root``: a restart."""
    (root / "bundled").mkdir(exist_ok=True)
    sha256 = house.catalog.embedding().spec.sha256
    classifiers = Classifiers(root / "state", sha256, bundled=root / "bundled")
    classifiers.start()
    scoring = ScoringService(house.inference)
    return Desk(
        ClassificationService(house.catalog, classifiers, house.service, scoring, house.telemetry), classifiers, house
    )
