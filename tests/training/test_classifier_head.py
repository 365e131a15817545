"""A head on frozen vectors: it equals scikit-learn's optimum, is calibrated honestly, and is small."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backend.errors import ModelUnavailable
from backend.models.store import BUNDLED, resolve
from backend.training.records import TrainingConfig
from backend.training.tasks.classifier_head import ClassifierHeadTask, prepare, read_head
from backend.training.tasks.frozen import vectors_of
from backend.training.tasks.text_classifier import LabelledData
from backend.training.texts import LabelledText
from tests.tiny_models import reference_of, rewrite, tiny
from tests.training.learning import assert_cuts_agree, learn, one_thread
from tests.training.test_text_classifier import TEXTS, jsonl, several, tsv

__all__ = ["one_thread", "tiny"]

CONFIG = TrainingConfig(batch_size=16)


def blobs(count: int, *, noise: float, seed: int = 1) -> tuple[LabelledData, torch.Tensor]:
    """Vectors around one centre a class."""
    generator = torch.Generator().manual_seed(seed)
    labels = ("a", "b", "c")
    centres = torch.randn(3, 8, generator=generator)
    numbers = torch.randint(0, 3, (count,), generator=generator)
    vectors = centres[numbers] + noise * torch.randn(count, 8, generator=generator)
    texts = [LabelledText(f"text {place}", (labels[number],), "here:1") for place, number in enumerate(numbers)]
    learnt = count * 2 // 3
    return LabelledData(labels, False, texts[:learnt], texts[learnt:], ()), vectors


@pytest.mark.parametrize("strength", [1e-3, 1e-1])
def test_the_head_is_the_optimum(tiny, strength):
    """scikit-learn's solver, made for nothing else, finds the same probabilities for the same penalty."""
    from sklearn.linear_model import LogisticRegression  # comes with the reference extra

    data, vectors = blobs(150, noise=1.0)
    task = ClassifierHeadTask(resolve(str(tiny.folder("bert"))), CONFIG, data, vectors)
    scaled, targets = task._vectors[:100].double(), data.targets(data.learn)

    model, _, _ = task._solve(range(100), strength)

    reference = LogisticRegression(C=1 / (strength * 100), tol=1e-10, max_iter=10000).fit(scaled, targets)
    found = torch.softmax(model(scaled), dim=1).detach().numpy()
    np.testing.assert_allclose(found, reference.predict_proba(scaled), atol=2e-3)


def test_calibration_does_not_look_at_the_evaluation_texts(tiny):
    """Other evaluation labels, same head; and its confidence fits unseen data."""
    base = resolve(str(tiny.folder("bert")))
    data, vectors = blobs(600, noise=1.5)
    flipped = [LabelledText(one.text, ("a",), one.place) for one in data.judge]
    other = LabelledData(data.labels, False, data.learn, flipped, ())

    tasks = [ClassifierHeadTask(base, CONFIG, one, vectors) for one in (data, other)]
    results = [task.fit() for task in tasks]

    for one, two in zip(*(task.model.parameters() for task in tasks), strict=True):
        torch.testing.assert_close(one, two)
    assert results[0].metrics["accuracy"] > 0.6
    assert results[0].metrics["ece"] < 0.1
    assert "converged" == results[0].reason


def test_from_texts_to_a_folder_and_back(tiny, tmp_path):
    """What is read back gives the same probabilities from the vectors that are served."""
    base = resolve(str(tiny.folder("bert")))
    task = prepare(tsv(tmp_path, TEXTS), base, CONFIG)
    task.fit()

    task.publish(task.model, tmp_path / "out", {})
    head = read_head(tmp_path / "out")

    texts = [one.text for one in task.data.judge]
    found = head.probabilities(vectors_of(resolve(head.encoder), texts)[0])
    expected = torch.softmax(task.model(task._vectors[len(task.data.learn) :]), dim=1).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert 1.0 == task.evaluate(task.model)["accuracy"]
    assert ("bill", "letter") == head.labels
    assert base.sha256 == head.encoder_sha256 == resolve(head.encoder).sha256


def test_the_bundled_encoder_is_named_not_copied(tmp_path):
    """Every installation has it: the head is some kilobytes."""
    task = prepare(tsv(tmp_path, TEXTS), resolve(BUNDLED), CONFIG)
    task.fit()

    task.publish(task.model, tmp_path / "out", {})

    assert {"head.json", "head.safetensors", "README.md"} == {file.name for file in (tmp_path / "out").iterdir()}
    assert BUNDLED == read_head(tmp_path / "out").encoder
    assert (tmp_path / "out" / "head.safetensors").stat().st_size < 10_000


def test_several_classes_or_none(tiny, tmp_path):
    """Each class on its own."""
    task = prepare(jsonl(tmp_path, several()), resolve(str(tiny.folder("bert"))), CONFIG)

    metrics = task.fit().metrics
    task.publish(task.model, tmp_path / "out", {})

    assert metrics["micro_f1"] > 0.8
    head = read_head(tmp_path / "out")
    found = head.probabilities(vectors_of(resolve(head.encoder), ["invoice query 3", "the la 3"])[0])
    assert [[True, True], [False, False]] == (found > 0.5).tolist()


def test_the_loop_can_train_it_too(tiny, tmp_path):
    """It is a task like any other."""
    task = prepare(tsv(tmp_path, TEXTS), resolve(str(tiny.folder("bert"))), CONFIG)

    assert_cuts_agree(task, 5)
    assert learn(task, learning_rate=0.05) < 0.4


def test_frozen_vectors_are_those_that_are_served(tiny):
    """With prompts and long texts, as sentence-transformers gives them."""
    folder = tiny.folder("mpnet", prompts=True)
    texts = ["la factura", "euros " * 100, "a"]

    found, truncated = vectors_of(resolve(str(folder)), texts)

    np.testing.assert_allclose(found, reference_of(folder).encode(texts), atol=1e-4)
    assert 1 == truncated


def test_a_folder_that_is_no_head(tiny, tmp_path):
    """Absent, or with fields missing: the reason in one sentence."""
    with pytest.raises(ModelUnavailable, match="is no classifier head"):
        read_head(tmp_path)
    task = prepare(tsv(tmp_path, TEXTS), resolve(str(tiny.folder("bert"))), CONFIG)
    task.publish(task.model, tmp_path / "out", {})
    rewrite(tmp_path / "out" / "head.json", labels=...)
    with pytest.raises(ModelUnavailable, match="'labels'"):
        read_head(tmp_path / "out")
