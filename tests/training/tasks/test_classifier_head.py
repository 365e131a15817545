"""Classifier heads on frozen vectors: fitting, calibration without evaluation texts, publishing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from backend.errors import BadSettings
from backend.models.classifier_head import NO_ANSWER, NONE, read_head
from backend.models.model_files import BUNDLED, resolve
from backend.training.data.texts import LabelledText
from backend.training.records import TrainingConfig
from backend.training.tasks.classifier_head import ClassifierHeadTask, frozen_vectors, prepare
from backend.training.tasks.text_classifier import LabelledData
from tests.tiny_models import reference_of
from tests.training.tasks.test_text_classifier import TEXTS, jsonl, several, tsv

CONFIG = TrainingConfig(batch_size=16)


def blobs(count: int, *, noise: float, seed: int = 1) -> tuple[LabelledData, torch.Tensor]:
    """Labelled vectors around one centre per class."""
    generator = torch.Generator().manual_seed(seed)
    labels = ("a", "b", "c")
    centres = torch.randn(3, 8, generator=generator)
    numbers = torch.randint(0, 3, (count,), generator=generator)
    vectors = centres[numbers] + noise * torch.randn(count, 8, generator=generator)
    texts = [LabelledText(f"text {place}", (labels[number],), "here:1") for place, number in enumerate(numbers)]
    train_count = count * 2 // 3
    return LabelledData(labels, False, texts[:train_count], texts[train_count:], ()), vectors


@pytest.mark.slow
def test_calibration_does_not_look_at_the_evaluation_texts(tiny):
    """Other evaluation labels, same head; and its confidence fits unseen data."""
    base = resolve(str(tiny.folder("bert")))
    data, vectors = blobs(600, noise=1.5)
    flipped = [LabelledText(text.text, ("a",), text.location) for text in data.evaluation]
    other = LabelledData(data.labels, False, data.train, flipped, ())

    tasks = [ClassifierHeadTask(base, CONFIG, split, vectors) for split in (data, other)]
    results = [task.fit() for task in tasks]

    for first, second in zip(*(task.model.parameters() for task in tasks), strict=True):
        torch.testing.assert_close(first, second)
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

    texts = [text.text for text in task.data.evaluation]
    probabilities = head.probabilities(frozen_vectors(resolve(head.encoder), texts)[0], texts)
    expected = torch.softmax(task._evaluation_logits(task.model), dim=1).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)
    assert 1.0 == task.evaluate(task.model)["accuracy"]
    assert ("bill", "letter") == head.labels
    assert base.sha256 == head.encoder_sha256 == resolve(head.encoder).sha256
    assert base.fingerprint == head.encoder_fingerprint == resolve(head.encoder).fingerprint


@pytest.mark.slow
def test_the_bundled_encoder_is_named_not_copied(tmp_path):
    """Every installation has it: the head is some kilobytes."""
    task = prepare(tsv(tmp_path, TEXTS), resolve(BUNDLED), CONFIG)
    task.fit()

    task.publish(task.model, tmp_path / "out", {})

    assert {"head.json", "head.safetensors", "README.md"} == {file.name for file in (tmp_path / "out").iterdir()}
    assert BUNDLED == read_head(tmp_path / "out").encoder
    assert (tmp_path / "out" / "head.safetensors").stat().st_size < 100_000


@pytest.mark.slow
def test_several_classes_or_none(tiny, tmp_path):
    """Multi-label texts get each class independently."""
    task = prepare(jsonl(tmp_path, several()), resolve(str(tiny.folder("bert"))), CONFIG)

    metrics = task.fit().metrics
    task.publish(task.model, tmp_path / "out", {})

    assert metrics["micro_f1"] > 0.8
    head = read_head(tmp_path / "out")
    texts = ["invoice query 3", "the la 3"]
    probabilities = head.probabilities(frozen_vectors(resolve(head.encoder), texts)[0], texts)
    assert [[True, True], [False, False]] == (probabilities > 0.5).tolist()


def test_frozen_vectors_are_those_that_are_served(tiny):
    """With prompts and long texts, as sentence-transformers gives them."""
    folder = tiny.folder("mpnet", prompts=True)
    texts = ["la factura", "euros " * 100, "a"]

    probabilities, truncated = frozen_vectors(resolve(str(folder)), texts)

    np.testing.assert_allclose(probabilities, reference_of(folder).encode(texts), atol=1e-4)
    assert [False, True, False] == truncated.tolist()


def test_texts_of_no_class(tiny, tmp_path):
    """They teach the head when to give none; the class is not among its labels, and the card says how well it works."""
    rows = [*TEXTS, *((NONE, f"zürich euros {number} {verb}") for number in range(20) for verb in ("due", "total"))]
    task = prepare(tsv(tmp_path, rows), resolve(str(tiny.folder("bert"))), CONFIG)

    metrics = task.fit().metrics
    task.publish(task.model, tmp_path / "out", {})

    head = read_head(tmp_path / "out")
    assert ("bill", "letter") == head.labels
    assert head.has_background
    texts = ["zürich euros 99 due", "the invoice 99 is due"]
    scores = head.probabilities(frozen_vectors(resolve(head.encoder), texts)[0], texts)
    assert [NO_ANSWER, 0] == head.best(scores).tolist()
    assert {"answered", "answered_accuracy", "foreign_answered"} <= metrics.keys()
    assert metrics["foreign_answered"] < 0.3 < metrics["answered"]


def test_losses_that_cannot_be_solved_are_refused():
    """Before a vector is made, all at once, with what to do instead."""
    config = TrainingConfig(batch_size=16, focal_gamma=2.0, label_smoothing=0.1)

    with pytest.raises(BadSettings, match=r"--focal-gamma=2.*--mode full.*--label-smoothing=0\.1"):
        prepare(Path("nowhere.tsv"), resolve(BUNDLED), config)


def test_groups_are_not_split(tiny, tmp_path):
    """Texts of one group are all learnt from or all held out."""
    rows = [{"text": text, "label": label, "group": text.split()[-3]} for label, text in TEXTS]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    data = prepare(file, resolve(str(tiny.folder("bert"))), CONFIG, held_out=0.3).data

    assert data.evaluation
    assert {text.group for text in data.train}.isdisjoint({text.group for text in data.evaluation})


def test_scores_of_each_file(tiny, tmp_path):
    """A report for each evaluation file, such as one per language."""
    tsv(tmp_path, TEXTS)
    tsv(tmp_path, TEXTS[:20], name="en_dev.tsv")
    tsv(tmp_path, TEXTS[40:60], name="es_dev.tsv")
    task = prepare(tmp_path, resolve(str(tiny.folder("bert"))), CONFIG)
    task.fit()

    reports = task.by_set(task.model)

    assert ["en_dev", "es_dev"] == list(reports)
    assert {1.0} == {report.scores["accuracy"] for report in reports.values()}
