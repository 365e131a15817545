"""Classes of texts: ``/v1/classify`` by the bundled heads, by heads learnt a moment before, and by labels alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.errors import BadData
from backend.models.classifier_head import NONE
from backend.services.classification import ClassifiedText
from backend.training.data.texts import LabelledText, read_rows
from backend.training.tasks.text_classifier import read_data
from benchmarks.judging.records import Bench, Judge, Row, Unmeasured
from benchmarks.judging.tasks import CLASSES, LEARNT, ZERO_SHOT
from tools.train_bundled_heads import HEADS

_AT_ONCE = 512  # texts a request
_QUICK_EVERY = 10  # a quick run learns from one example of so many


@dataclass(frozen=True, slots=True)
class Split:
    """Examples to learn from, and others to judge with, by language."""

    learn: Sequence[LabelledText]
    judge: Mapping[str, Sequence[LabelledText]]
    foreign: Sequence[str] = ()  # texts of no class, which should get no answer; never learnt from
    spoken: Mapping[str, str] = field(default_factory=dict)  # text -> language, where a row has several

    @property
    def labels(self) -> tuple[str, ...]:
        """In alphabetical order."""
        return tuple(sorted({label for one in self.learn for label in one.labels} - {NONE}))


@dataclass(frozen=True, slots=True)
class ClassSet:
    """Texts whose class is known, and the bundled head made for them."""

    name: str  # the head's
    languages: str  # of all its texts; used where the files' names do not say it
    targets: Mapping[str, float]  # language -> least accuracy of the bundled head
    zero_shot: Mapping[str, float] = field(default_factory=dict)  # without a head; none where labels say too little
    said_in: str = ""  # a file whose rows say the language of each text


SETS = (
    ClassSet("document-type", "en, es, de, fr", {"en, es, de, fr": 0.93}, said_in="cls_doctype_text/train.jsonl"),
    ClassSet("topics", "en, es", {"en": 0.84, "es": 0.67}, {"en": 0.78, "es": 0.50}),
    ClassSet("banking-intents", "en", {"en": 0.92}),
)


def read_set(bench: Bench, one: ClassSet) -> Split:
    """The texts as the bundled head's training cut them, so that it is judged by what it never saw.

    Raises: Unmeasured.
    """
    with TemporaryDirectory(prefix="quality-") as work:
        try:
            HEADS[one.name](bench.data, Path(work))
            read = read_data(Path(work))
        except (OSError, BadData) as error:
            raise Unmeasured(f"{one.name}: {error}".replace(f"{bench.data}/", "")) from error
    judge: dict[str, list[LabelledText]] = {}
    for text in read.judge:
        if text.labels != (NONE,):
            judge.setdefault(_language(text) or one.languages, []).append(text)
    foreign = [text.text for text in read.judge if text.labels == (NONE,)]
    return Split(read.learn, judge, foreign, _spoken(bench.data / one.said_in) if one.said_in else {})


def _spoken(file: Path) -> dict[str, str]:
    return {str(row["text"]): str(row["lang"]) for _, row in read_rows(file)}


def _language(text: LabelledText) -> str:
    """As the file's name says it (en_dev.jsonl), or not at all."""
    before, mark, _ = Path(text.place).name.partition("_")
    return before if mark and len(before) == 2 else ""


async def judge_bundled(bench: Bench, one: ClassSet) -> list[Row]:
    """The classifier that was configured and knows the set's labels, else the bundled head. Raises: Unmeasured."""
    split = read_set(bench, one)
    model = classifier_for(bench, one.name, split.labels)
    return await _rows(bench, CLASSES, one.name, split, one.targets, model=model)


async def judge_learnt(bench: Bench, one: ClassSet) -> list[Row]:
    """A head learnt as users do it, ``PUT /v1/classifiers/{name}``, of this embedding model. Raises: Unmeasured."""
    split = read_set(bench, one)
    name = f"{one.name}-of-quality"
    classes: dict[str, str] = {}
    for example in split.learn:
        classes.setdefault(example.text, example.labels[0])  # a text of two classes would be refused
    learn = list(classes.items())[:: _QUICK_EVERY if bench.is_quick else 1]
    examples: dict[str, list[str]] = {}
    for text, label in learn:
        examples.setdefault(label, []).append(text)
    await bench.services.classification.learn(name, examples)
    try:
        return await _rows(bench, LEARNT, one.name, split, {}, model=name)
    finally:
        await bench.services.classification.forget(name)


async def judge_zero_shot(bench: Bench, one: ClassSet) -> list[Row]:
    """Labels as the set has them, given with the request. Raises: Unmeasured."""
    split = read_set(bench, one)
    return await _rows(bench, ZERO_SHOT, one.name, split, one.zero_shot, labels=split.labels)


def classifier_for(bench: Bench, name: str, labels: Sequence[str]) -> str:
    """The name of the classifier to ask. Raises: Unmeasured where none has these labels."""
    order = ("configured", "model", "bundled")
    known = sorted(
        (one for one in bench.services.classification.classifiers() if one.kind in order),
        key=lambda one: order.index(one.kind),
    )
    for one in known:
        if set(labels) <= set(one.labels) and (one.kind != "bundled" or one.name == name):
            return one.name
    raise Unmeasured(f"no classifier here has the labels of {name} ({', '.join(one.name for one in known) or 'none'})")


async def _rows(
    bench: Bench,
    task: str,
    name: str,
    split: Split,
    targets: Mapping[str, float],
    *,
    model: str | None = None,
    labels: Sequence[str] | None = None,
) -> list[Row]:
    rows = []
    for language, judge in split.judge.items():
        examples = bench.some(judge)
        answers, answered_by = await _ask(bench, [one.text for one in examples], model=model, labels=labels)
        accuracy, parts = scores_of(answers, [one.labels[0] for one in examples])
        notes = _by_language(answers, examples, split.spoken)
        target = targets.get(language)
        rows.append(Row(task, name, language, "accuracy", accuracy, len(examples), target, answered_by, parts, notes))
    if split.foreign and labels is None:
        answers, answered_by = await _ask(bench, bench.some(split.foreign), model=model)
        refused = sum(one.prediction is None for one in answers) / len(answers)
        rows.append(Row(task, f"{name}, other texts", "en, es", "no answer", refused, len(answers), model=answered_by))
    return rows


def _by_language(answers: Sequence[ClassifiedText], examples: Sequence[LabelledText], spoken: Mapping[str, str]) -> str:
    """The accuracy in each language of a row that has several, with its texts: en 0.950 (20), es 1.000 (12)."""
    parts: dict[str, list[bool]] = {}
    for answer, example in zip(answers, examples, strict=True):
        if example.text in spoken:
            parts.setdefault(spoken[example.text], []).append(answer.prediction == example.labels[0])
    return ", ".join(f"{one} {sum(right) / len(right):.3f} ({len(right)})" for one, right in sorted(parts.items()))


async def _ask(
    bench: Bench, texts: Sequence[str], *, model: str | None, labels: Sequence[str] | None = None
) -> tuple[list[ClassifiedText], str]:
    """The answers in order, and the name of what gave them."""
    answers, answered_by = list[ClassifiedText](), ""
    for first in range(0, len(texts), _AT_ONCE):
        classified = await bench.services.classification.classify(
            texts[first : first + _AT_ONCE], model=model, labels=labels
        )
        answers, answered_by = [*answers, *classified.rows], classified.model
    return answers, answered_by


def scores_of(answers: Sequence[ClassifiedText], expected: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Accuracy, where no answer is a wrong one; and what it is made of."""
    pairs = list(zip(answers, expected, strict=True))
    given = [one.prediction == label for one, label in pairs if one.prediction is not None]
    likeliest = [one.predictions[0].label == label for one, label in pairs]
    parts = {"likeliest": sum(likeliest) / len(pairs), "answered": len(given) / len(pairs)}
    return sum(given) / len(pairs), parts


JUDGES = (
    *(Judge(f"{CLASSES}-{one.name}", CLASSES, partial(judge_bundled, one=one)) for one in SETS),
    *(Judge(f"{LEARNT}-{one.name}", LEARNT, partial(judge_learnt, one=one)) for one in SETS),
    *(Judge(f"{ZERO_SHOT}-{one.name}", ZERO_SHOT, partial(judge_zero_shot, one=one)) for one in SETS if one.zero_shot),
)
