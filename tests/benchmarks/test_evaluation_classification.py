"""Classification in the quality benchmark: selected classifier, unseen texts, missing predictions count as wrong."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from backend.errors import InferenceFailed
from backend.models.classifier_head import NONE
from backend.text.classification import ClassifiedText, Prediction
from benchmarks.evaluation.classification import (
    SETS,
    ClassSet,
    classifier_for,
    evaluate_bundled,
    evaluate_cross_lingual,
    evaluate_trained,
    evaluate_zero_shot,
    read_set,
    scores_of,
)
from benchmarks.evaluation.records import EvaluationContext
from tools.train_bundled_heads import HEADS

ROWS = [("ab"[number % 2], f"text {number} of {'ab'[number % 2]}") for number in range(40)]


def answer(*labels, given=True):
    """An answer with these labels, best first."""
    predictions = tuple(Prediction(label, 0.9 - 0.1 * place) for place, label in enumerate(labels))
    return ClassifiedText(predictions, labels[0] if given else None, 0.9, 3, False)


@dataclass
class FakeClassification:
    """A classification service that reads the class in the text's last letter; ``fails`` breaks every question."""

    known: list = field(default_factory=list)
    fails: bool = False
    trained: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)
    examples: dict = field(default_factory=dict)

    @property
    def classification(self):
        """The service of services."""
        return self

    def classifiers(self):
        """The known classifiers."""
        return self.known

    async def classify(self, texts, *, model=None, labels=None):
        """The class of each text."""
        if self.fails:
            raise InferenceFailed("told to")
        self.requests.append((model, labels, list(texts)))
        rows = [answer(text[-1], given=text not in ("foreign 0", "foreign 1")) for text in texts]
        return SimpleNamespace(rows=rows, model=model or "vectors")

    async def train_classifier(self, name, examples):
        """Record the examples."""
        self.trained[name] = self.examples = examples

    async def delete_classifier(self, name):
        """What was learnt for a measurement stays no longer than it."""
        self.trained[name] = None


def info(name, kind, labels):
    """What the service says of a classifier."""
    return SimpleNamespace(name=name, kind=kind, labels=labels)


def prepare(data, folder):
    """A head's own cut: a file to learn from and one of each language to judge with, foreign texts among both."""
    rows = [{"text": text, "label": label} for label, text in ROWS]
    foreign = [{"text": f"foreign {number}", "label": NONE} for number in range(6)]
    files = {"train": rows[8:] + foreign[3:], "en_dev": rows[:4] + foreign[:3], "es_dev": rows[4:8]}
    assert data.is_dir()
    for name, rows_of_file in files.items():
        lines = "\n".join(json.dumps(row) for row in rows_of_file)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return []


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A set of forty texts of two classes, and a bundled head for it."""
    monkeypatch.setitem(HEADS, "made", prepare)
    return EvaluationContext(FakeClassification([info("made", "bundled", ("a", "b"))]), tmp_path)


MADE = ClassSet("made", "en", {"en": 0.9})


def test_no_answer_is_no_right_answer():
    """An abstention counts as wrong; the likeliest label is reported beside it."""
    answers = [answer("a", "b"), answer("a", "b", given=False), answer("b", "a"), answer("b", "a", given=False)]

    assert (0.25, {"likeliest": 0.5, "answered": 0.5}) == scores_of(answers, ["a", "a", "a", "a"])


def test_the_set_is_cut_as_the_training_of_its_head_cut_it(context):
    """Languages come from the files; texts of no class are no class."""
    split = read_set(context, MADE)

    assert {"en": 4, "es": 4} == {language: len(texts) for language, texts in split.evaluation.items()}
    assert (35, ("a", "b")) == (len(split.train), split.labels)
    assert ["foreign 0", "foreign 1", "foreign 2"] == split.foreign


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param([("other", "bundled"), ("made", "bundled")], "made", id="the-bundled-one-of-that-name"),
        pytest.param([("made", "bundled"), ("mine", "configured")], "mine", id="the-one-configured-first"),
        pytest.param([("made", "bundled"), ("org/model", "model")], "org/model", id="a-model-of-these-labels"),
    ],
)
def test_which_classifier_is_asked(context, known, expected):
    """A configured classifier comes first."""
    context.services.known = [info(name, kind, ("a", "b")) for name, kind in known]

    assert expected == classifier_for(context, "made", ("a", "b"))


async def test_a_bundled_head_is_judged_by_language_and_by_foreign_texts(context):
    """Asked by name, on what was held out alone; a target is of its language."""
    english, spanish, foreign = await evaluate_bundled(context, MADE)

    assert ("made", "en", 1.0, 0.9, 4) == (english.set, english.language, english.score, english.target, 4)
    assert ("es", 1.0, None) == (spanish.language, spanish.score, spanish.target)
    assert ("made, other texts", "no answer", 2 / 3) == (foreign.set, foreign.measure, pytest.approx(foreign.score))
    assert {"made"} == {model for model, _, _ in context.services.requests}
    assert [4, 4, 3] == [len(texts) for _, _, texts in context.services.requests]


async def test_a_trained_head_uses_the_training_examples_and_is_deleted(context):
    """All examples but those to judge with, those of no class among them; it has no target."""
    english, *_ = await evaluate_trained(context, MADE)

    assert (1.0, None) == (english.score, english.target)
    assert {"a": 16, "b": 16, NONE: 3} == {label: len(texts) for label, texts in context.services.examples.items()}
    assert {"made-of-quality": None} == context.services.trained
    assert "made-of-quality" == context.services.requests[0][0]


async def test_zero_shot_labels_are_named_in_the_language_of_the_texts(context):
    """Spanish texts with Spanish names, which count as their labels; then the labels as they are, without a target."""
    dataset = ClassSet("made", "en", {}, {"en": 0.8, "es": 0.7}, names={"es": {"a": "la a", "b": "la b"}})

    english, spanish, unnamed = await evaluate_zero_shot(context, dataset)

    asked = [labels for _, labels, _ in context.services.requests]
    assert [["a", "b"], ["la a", "la b"], ("a", "b")] == asked
    assert [("made", "en", 0.8), ("made", "es", 0.7), ("made, English labels", "es", None)] == [
        (row.set, row.language, row.target) for row in (english, spanish, unnamed)
    ]
    assert (1.0, 0.0, 1.0) == (english.score, spanish.score, unnamed.score)  # the fake answers a and b alone


async def test_a_head_of_another_language(context):
    """Trained on the English file alone, asked with the Spanish one, then deleted."""
    folder = context.data / "cls_sib200"
    folder.mkdir()
    rows = [f"{label}\t{number}\ttext {number} of {label}" for number in range(6) for label in "ab"]
    for name in ("en_train", "es_dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["label\tid\ttext", *rows]), encoding="utf-8")

    [row] = await evaluate_cross_lingual(context)

    assert ("es", 1.0, 12) == (row.language, row.score, row.examples)
    assert {"a": 6, "b": 6} == {label: len(texts) for label, texts in context.services.examples.items()}
    assert {"cross-lingual-of-quality": None} == context.services.trained


def test_the_sets_can_be_read(data_dir):
    """Each has texts to learn from and to judge with, none on both sides, in the languages of its targets."""
    for dataset in SETS:
        split = read_set(EvaluationContext(FakeClassification(), data_dir), dataset)
        trained = {text.text for text in split.train}

        assert split.evaluation.keys() == dataset.targets.keys()
        assert all(texts and trained.isdisjoint(text.text for text in texts) for texts in split.evaluation.values())
        assert trained.isdisjoint(split.foreign)
