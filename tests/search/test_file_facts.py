"""The class of a file is an attribute only where it is more likely than not."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.lanes.inference import Urgency
from backend.search.file_reading import ChunkVectors, FactFinder, FileText
from backend.text.classification import ClassifiedText


class Classifier:
    def __init__(self, score: float) -> None:
        self._row = ClassifiedText((), "delivery_note", score, 3, False)

    def can_classify(self) -> bool:
        return True

    def classify_vectors(self, _texts: Any, _vectors: Any) -> Any:
        return SimpleNamespace(rows=(self._row,))


class NoEntities:
    async def find(self, _texts: Any, **_options: Any) -> Any:
        return SimpleNamespace(rows=(), tokens=0)


@pytest.mark.parametrize(("score", "expected"), [(0.38, None), (0.49, None), (0.5, ("delivery_note",))])
async def test_document_type(score: float, expected: Any) -> None:
    """The classifier answers from a third on; a filter is not to be fed with that."""
    finder = FactFinder(NoEntities(), Classifier(score))  # type: ignore[arg-type]
    vectors = ChunkVectors(np.ones((1, 4), np.float32), (3,), None)  # type: ignore[arg-type]

    async def embedding() -> ChunkVectors:
        return vectors

    facts = await finder.find(FileText("Cómo reclamar"), embedding(), Urgency())

    assert expected == facts.found.get("document_type")
