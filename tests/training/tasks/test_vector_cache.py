"""Vectors kept between runs: a text is embedded once for each encoder."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.training.tasks import classifier_head
from backend.training.tasks.classifier_head import cached_vectors


@dataclass
class Encoder:
    """A vector of a text's length; texts over five characters are truncated."""

    embedded: list[str] = field(default_factory=list)

    def frozen_vectors(self, _spec: Any, texts: list[str], *, device: str) -> tuple[np.ndarray, np.ndarray]:
        assert device == "cpu"
        self.embedded += texts
        vectors = np.array([[len(text), 1] for text in texts], np.float32)
        return vectors, np.array([len(text) > 5 for text in texts])


@pytest.fixture
def encoder(monkeypatch) -> Encoder:
    encoder = Encoder()
    monkeypatch.setattr(classifier_head, "frozen_vectors", encoder.frozen_vectors)
    return encoder


def spec_of(fingerprint: str) -> Any:
    return SimpleNamespace(fingerprint=fingerprint * 64)


def test_only_new_texts_are_embedded(encoder, tmp_path):
    """The order of the texts is kept; one that comes twice is embedded once; lone surrogates are texts too."""
    cached_vectors(spec_of("a"), ["one", "fourteen", "one"], folder=tmp_path)

    vectors, truncated = cached_vectors(spec_of("a"), ["fourteen", "\ud83d", "one"], folder=tmp_path)

    assert ["one", "fourteen", "\ud83d"] == encoder.embedded
    assert [8, 1, 3] == vectors[:, 0].tolist()
    assert [True, False, False] == truncated.tolist()


def test_encoders_are_never_mixed(encoder, tmp_path):
    """Another fingerprint is another file."""
    for fingerprint in ("a", "b", "a"):
        cached_vectors(spec_of(fingerprint), ["one"], folder=tmp_path)

    assert ["one", "one"] == encoder.embedded
    assert 2 == len(list(tmp_path.iterdir()))


def test_without_a_folder_nothing_is_kept(encoder):
    """Each run embeds all."""
    for _ in range(2):
        cached_vectors(spec_of("a"), ["one"])

    assert ["one", "one"] == encoder.embedded
