"""Accuracy as a caller meets it: which classifier is asked, on texts it never saw, and no answer is no right one."""

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from backend.errors import InferenceFailed
from backend.models.classifier_head import NONE
from backend.services.classification import ClassifiedText, Prediction
from benchmarks.judging.classes import (
    SETS,
    ClassSet,
    classifier_for,
    judge_bundled,
    judge_learnt,
    judge_zero_shot,
    read_set,
    scores_of,
)
from benchmarks.judging.records import Bench, Unmeasured
from tools.train_bundled_heads import HEADS

ROWS = [("ab"[number % 2], f"text {number} of {'ab'[number % 2]}") for number in range(40)]


def answer(*labels, given=True):
    """An answer with these labels, best first."""
    predictions = tuple(Prediction(label, 0.9 - 0.1 * place) for place, label in enumerate(labels))
    return ClassifiedText(predictions, labels[0] if given else None, 0.9, 3, False)


@dataclass
class Told:
    """A classification service that reads the class in the text's last letter; ``fails`` breaks every question."""

    known: list = field(default_factory=list)
    fails: bool = False
    learnt: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    examples: dict = field(default_factory=dict)

    @property
    def classification(self):
        """The service of services."""
        return self

    def classifiers(self):
        """All that may be asked."""
        return self.known

    async def classify(self, texts, *, model=None, labels=None):
        """The class of each text."""
        if self.fails:
            raise InferenceFailed("told to")
        self.asked.append((model, labels, list(texts)))
        rows = [answer(text[-1], given=text not in ("foreign 0", "foreign 1")) for text in texts]
        return SimpleNamespace(rows=rows, model=model or "vectors")

    async def learn(self, name, examples):
        """Kept for the test."""
        self.learnt[name] = self.examples = examples

    async def forget(self, name):
        """What was learnt for a measurement stays no longer than it."""
        self.learnt[name] = None


def info(name, kind, labels):
    """What the service says of a classifier."""
    return SimpleNamespace(name=name, kind=kind, labels=labels)


def cut(data, folder):
    """A head's own cut: a file to learn from and one of each language to judge with, foreign texts among both."""
    rows = [{"text": text, "label": label} for label, text in ROWS]
    foreign = [{"text": f"foreign {number}", "label": NONE} for number in range(6)]
    parts = {"train": rows[8:] + foreign[3:], "en_dev": rows[:4] + foreign[:3], "es_dev": rows[4:8]}
    assert data.is_dir()
    for name, part in parts.items():
        lines = "\n".join(json.dumps(row) for row in part)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return []


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A set of forty texts of two classes, and a bundled head for it."""
    monkeypatch.setitem(HEADS, "made", cut)
    return Bench(Told([info("made", "bundled", ("a", "b"))]), tmp_path)


MADE = ClassSet("made", "en", {"en": 0.9})


def test_no_answer_is_no_right_answer():
    """What abstains is not accurate; that it leant to the right side is shown beside."""
    answers = [answer("a", "b"), answer("a", "b", given=False), answer("b", "a"), answer("b", "a", given=False)]

    assert (0.25, {"likeliest": 0.5, "answered": 0.5}) == scores_of(answers, ["a", "a", "a", "a"])


def test_the_set_is_cut_as_the_training_of_its_head_cut_it(bench):
    """Languages come from the files; texts of no class are no class."""
    split = read_set(bench, MADE)

    assert {"en": 4, "es": 4} == {language: len(texts) for language, texts in split.judge.items()}
    assert (35, ("a", "b")) == (len(split.learn), split.labels)
    assert ["foreign 0", "foreign 1", "foreign 2"] == split.foreign


async def test_languages_of_one_file_are_told_apart(bench):
    """Where rows say their language, each has its accuracy and its count; texts that say none are in neither."""
    said = [json.dumps({"text": ROWS[place][1], "lang": "de" if place else "fr"}) for place in range(3)]
    (bench.data / "said.jsonl").write_text("\n".join(said), encoding="utf-8")

    english, spanish, _ = await judge_bundled(bench, replace(MADE, said_in="said.jsonl"))

    assert ("de 1.000 (2), fr 1.000 (1)", "") == (english.notes, spanish.notes)


def test_a_set_that_is_absent_is_said(bench):
    """The file's name, not where on this machine it was looked for."""
    for one in SETS:
        with pytest.raises(Unmeasured, match=rf"{one.name}: .*cls_\w+/\w+\.(tsv|jsonl)") as caught:
            read_set(bench, one)

        assert str(bench.data) not in str(caught.value)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param([("other", "bundled"), ("made", "bundled")], "made", id="the-bundled-one-of-that-name"),
        pytest.param([("made", "bundled"), ("mine", "configured")], "mine", id="the-one-configured-first"),
        pytest.param([("made", "bundled"), ("org/model", "model")], "org/model", id="a-model-of-these-labels"),
    ],
)
def test_which_classifier_is_asked(bench, known, expected):
    """What a user configured is what a user wants to know about."""
    bench.services.known = [info(name, kind, ("a", "b")) for name, kind in known]

    assert expected == classifier_for(bench, "made", ("a", "b"))


@pytest.mark.parametrize("known", [[], [("mine", "configured", ("a",))], [("made", "learnt", ("a", "b"))]])
def test_without_a_classifier_nothing_is_measured(bench, known):
    """None of these labels, or one that a user of this machine taught."""
    bench.services.known = [info(*one) for one in known]

    with pytest.raises(Unmeasured, match="made"):
        classifier_for(bench, "made", ("a", "b"))


async def test_a_bundled_head_is_judged_by_language_and_by_foreign_texts(bench):
    """Asked by name, on what was held out alone; a target is of its language."""
    english, spanish, foreign = await judge_bundled(bench, MADE)

    assert ("made", "en", 1.0, 0.9, 4) == (english.set, english.language, english.score, english.target, 4)
    assert ("es", 1.0, None) == (spanish.language, spanish.score, spanish.target)
    assert ("made, other texts", "no answer", 2 / 3) == (foreign.set, foreign.measure, pytest.approx(foreign.score))
    assert {"made"} == {model for model, _, _ in bench.services.asked}
    assert [4, 4, 3] == [len(texts) for _, _, texts in bench.services.asked]


async def test_a_learnt_head_learns_the_rest_and_is_forgotten(bench):
    """All examples but those to judge with, those of no class among them; it has no target."""
    english, *_ = await judge_learnt(bench, MADE)

    assert (1.0, None) == (english.score, english.target)
    assert {"a": 16, "b": 16, NONE: 3} == {label: len(texts) for label, texts in bench.services.examples.items()}
    assert {"made-of-quality": None} == bench.services.learnt
    assert "made-of-quality" == bench.services.asked[0][0]


async def test_labels_alone_are_not_asked_about_foreign_texts(bench):
    """One of the labels given is always the likeliest: there is no answer to refuse."""
    rows = await judge_zero_shot(bench, ClassSet("made", "en", {}, {"en": 0.5}))

    assert ["en", "es"] == [row.language for row in rows]
    assert [0.5, None] == [row.target for row in rows]
    assert {("a", "b")} == {labels for _, labels, _ in bench.services.asked}


async def test_what_was_learnt_is_forgotten_after_a_failure_too(bench):
    """A folder of a user's own is left as it was."""
    bench.services.fails = True

    with pytest.raises(InferenceFailed):
        await judge_learnt(bench, MADE)

    assert {"made-of-quality": None} == bench.services.learnt


def test_the_sets_can_be_read(data_dir):
    """Each has texts to learn from and to judge with, none on both sides, in the languages of its targets."""
    for one in SETS:
        split = read_set(Bench(Told(), data_dir), one)
        learnt = {text.text for text in split.learn}

        assert split.judge.keys() == one.targets.keys()
        assert all(judged and learnt.isdisjoint(text.text for text in judged) for judged in split.judge.values())
        assert learnt.isdisjoint(split.foreign)
