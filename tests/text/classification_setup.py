"""The classification service on a service stack, with bundled heads that the test writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend.models.classifier_head import ClassifierHead, write_head
from backend.replicas.folder_records import FolderRecords
from backend.supervision import Supervisor
from backend.text.classification import ClassificationService
from backend.text.classifier_store import ClassifierStore
from backend.text.classifiers import ClassifierRegistry
from backend.text.neutral_vectors import NeutralVectors
from backend.text.scoring import ScoringService
from tests.text.service_stack import ServiceStack

LABELS = ("invoice", "contract", "letter")


@dataclass
class ClassificationSetup:
    """The service, its registry and the stack below."""

    service: ClassificationService
    registry: ClassifierRegistry
    stack: ServiceStack


def random_head(
    sha256: str, labels: Sequence[str] = LABELS, *, multiple: bool = False, threshold: float = 0.0
) -> ClassifierHead:
    """Fixed random weights on vectors of width 384."""
    weight = 8 * np.random.default_rng(len(labels)).standard_normal((len(labels), 384)).astype(np.float32)
    bias = np.linspace(-1, 1, len(labels), dtype=np.float32)
    return ClassifierHead(tuple(labels), multiple, weight, bias, "bundled", sha256, threshold=threshold)


def write_bundled_head(root: Path, name: str, head: ClassifierHead) -> Path:
    """Add a head to the bundled ones; returns its folder."""
    folder = root / "bundled" / name
    folder.mkdir(parents=True)
    write_head(folder, head)
    return folder


def build_classification(stack: ServiceStack, root: Path) -> ClassificationSetup:
    """Build the service as the composition root does, but for what was taught, which is read at the first request.

    Building it again on the same ``root`` is a restart.
    """
    (root / "bundled").mkdir(exist_ok=True)
    encoder = stack.catalog.embedding().spec.identity
    registry = ClassifierRegistry(root / "state", encoder, bundled=root / "bundled")
    registry.start()
    neutral, scoring = NeutralVectors(stack.service), ScoringService(stack.inference)
    store = ClassifierStore(registry, FolderRecords(root / "state"), Supervisor(stack.telemetry))
    service = ClassificationService(stack.catalog, store, stack.service, scoring, stack.telemetry, neutral=neutral)
    return ClassificationSetup(service, registry, stack)
