"""Classification in the quality benchmark: how sets are cut, and that missing predictions count as wrong."""

import json
from types import SimpleNamespace

import pytest

from backend.models.classifier_head import NONE
from backend.text.classification import ClassifiedText, Prediction
from benchmarks.evaluation.classification import SETS, ClassSet, read_set, scores_of
from benchmarks.evaluation.records import EvaluationContext
from tools.train_bundled_heads import HEADS

ROWS = [("ab"[number % 2], f"text {number} of {'ab'[number % 2]}") for number in range(40)]


def answer(*labels, given=True):
    """An answer with these labels, best first."""
    predictions = tuple(Prediction(label, 0.9 - 0.1 * place) for place, label in enumerate(labels))
    return ClassifiedText(predictions, labels[0] if given else None, 0.9, 3, False)


def prepare(data, folder):
    """A head's own cut: a file to learn from and one of each language to judge with, foreign texts among both."""
    rows = [{"text": text, "label": label} for label, text in ROWS]
    foreign = [{"text": f"foreign {number}", "label": NONE} for number in range(6)]
    files = {"train": rows[8:] + foreign[3:], "en_dev": rows[:4] + foreign[:3], "es_dev": rows[4:8]}
    for name, rows_of_file in files.items():
        lines = "\n".join(json.dumps(row) for row in rows_of_file)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return []


def test_no_answer_is_no_right_answer():
    """An abstention counts as wrong; the likeliest label is reported beside it."""
    answers = [answer("a", "b"), answer("a", "b", given=False), answer("b", "a"), answer("b", "a", given=False)]

    assert (0.25, {"likeliest": 0.5, "answered": 0.5}) == scores_of(answers, ["a", "a", "a", "a"])


def test_the_set_is_cut_as_the_training_of_its_head_cut_it(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Languages come from the files; texts of no class are no class."""
    monkeypatch.setitem(HEADS, "made", prepare)
    split = read_set(EvaluationContext(SimpleNamespace(), tmp_path), ClassSet("made", "en", {"en": 0.9}))

    assert {"en": 4, "es": 4} == {language: len(texts) for language, texts in split.evaluation.items()}
    assert (35, ("a", "b")) == (len(split.train), split.labels)
    assert ["foreign 0", "foreign 1", "foreign 2"] == split.foreign


def test_the_sets_can_be_read(data_dir):
    """Each has texts to learn from and to judge with, none on both sides, in the languages of its targets."""
    for dataset in SETS:
        split = read_set(EvaluationContext(SimpleNamespace(), data_dir), dataset)
        trained = {text.text for text in split.train}

        assert split.evaluation.keys() == dataset.targets.keys()
        assert all(texts and trained.isdisjoint(text.text for text in texts) for texts in split.evaluation.values())
        assert trained.isdisjoint(split.foreign)
