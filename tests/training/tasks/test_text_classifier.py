"""Classes of texts by fine-tuning: what is learnt, calibrated, published, and refused."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, pipeline

from backend.errors import BadData
from backend.models.model_files import resolve
from backend.training.records import TrainingConfig
from backend.training.tasks.pretrained import divide_last_layer
from backend.training.tasks.text_classifier import prepare, read_data
from tests.tiny_models import FAMILIES
from tests.training.tasks.task_checks import assert_splits_agree, fit

CONFIG = TrainingConfig(batch_size=16)
TEXTS = [
    (label, f"{article} {word} {number} is {verb}")
    for article in ("the", "la")
    for label, word in (("bill", "invoice"), ("bill", "factura"), ("letter", "query"), ("letter", "zürich"))
    for number in range(5)
    for verb in ("due", "total")
]


def tsv(folder, rows, name: str = "train.tsv"):
    file = folder / name
    file.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    return file


def jsonl(folder, rows, name: str = "train.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps({"labels": labels, "text": text}) + "\n" for labels, text in rows))
    return file


def several() -> list[tuple[list[str], str]]:
    """Texts of a bill, of a letter, of both and of none."""
    return [
        ([name for name, word in (("bill", "invoice"), ("letter", "query")) if word in text], text)
        for text in (
            f"{first} {second} {number}"
            for first in ("invoice", "the")
            for second in ("query", "la")
            for number in range(12)
        )
    ]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(CONFIG, id="plain"),
        pytest.param(
            TrainingConfig(batch_size=16, class_weights="balanced", focal_gamma=2.0, label_smoothing=0.1), id="all"
        ),
    ],
)
@pytest.mark.parametrize("multiple", [False, True], ids=["one-class", "several"])
def test_any_cut_gives_the_same_loss(tiny, tmp_path, config, multiple):
    """Sums over texts, whatever weighs them."""
    file = jsonl(tmp_path, several()) if multiple else tsv(tmp_path, TEXTS)

    assert_splits_agree(prepare(file, resolve(str(tiny.folder("bert"))), config), 5)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "lora_rank"), [("bert", None), ("xlm-roberta", None), ("mpnet", 8)], ids=str)
def test_it_learns_and_the_pipeline_loads_it(tiny, tmp_path, family, lora_rank):
    """transformers' pipeline gives the calibrated probabilities of the task's own logits."""
    config = TrainingConfig(batch_size=16, lora_rank=lora_rank)
    task = prepare(tsv(tmp_path, TEXTS), resolve(str(tiny.folder(family))), config)

    loss = fit(task)
    task.publish(task.model, tmp_path / "out", {})

    assert loss < 0.4
    assert {"accuracy", "macro_f1", "log_loss", "ece"} <= task.evaluate(task.model).keys()
    texts = [example.text for example in task.data.evaluation]
    found = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)(texts)
    chosen = [max(row, key=lambda label_score: label_score["score"])["label"] for row in found]
    logits = task.logits(task.model)
    assert [task.data.labels[number] for number in logits.argmax(1).tolist()] == chosen


def test_several_classes_or_none(tiny, tmp_path):
    """Each class on its own; transformers is told so."""
    task = prepare(jsonl(tmp_path, several()), resolve(str(tiny.folder("bert"))), CONFIG)

    fit(task, steps=60)
    task.publish(task.model, tmp_path / "out", {})

    assert "micro_f1" == task.goal
    assert task.evaluate(task.model)["micro_f1"] > 0.7
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert "multi_label_classification" == config["problem_type"]
    found = pipeline("text-classification", model=str(tmp_path / "out"), top_k=None)(["invoice query 3"])
    assert sum(label_score["score"] for label_score in found[0]) > 1.0  # no softmax


@pytest.mark.parametrize("family", FAMILIES)
def test_the_temperature_goes_into_the_weights(tiny, tmp_path, family):
    """Logits of every family's head are divided exactly."""
    task = prepare(tsv(tmp_path, TEXTS), resolve(str(tiny.folder(family))), CONFIG)
    before = task.logits(task.model.eval())

    divide_last_layer(task.model, 4.0)

    torch.testing.assert_close(task.logits(task.model), before / 4.0, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_the_published_model_is_calibrated(tiny, tmp_path):
    """Log loss on the evaluation texts is not worse than before, and the classes are the same."""
    rows = [(("bill", "letter")[number % 3 == 0], text) for number, (_, text) in enumerate(TEXTS)]
    task = prepare(tsv(tmp_path, rows), resolve(str(tiny.folder("bert"))), CONFIG, held_out=0.3)
    fit(task)
    before = task.logits(task.model)

    task.publish(task.model, tmp_path / "out", {})

    after = task.logits(AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval())
    targets = task.data.targets(task.data.evaluation)
    losses = [torch.nn.functional.cross_entropy(logits, targets).item() for logits in (before, after)]
    assert losses[1] <= losses[0] + 1e-6
    np.testing.assert_array_equal(before.argmax(1), after.argmax(1))
    assert "temperature" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_long_texts_are_cut_and_counted(tiny, tmp_path):
    """They are truncated; the card says how many."""
    rows = [*TEXTS, ("bill", "factura " * 100), ("letter", "query " * 70)]
    task = prepare(tsv(tmp_path, rows), resolve(str(tiny.folder("bert"))), CONFIG)
    task.publish(task.model, tmp_path / "out", {})

    assert 2 == task.truncated
    assert 48 == max(task.lengths)
    assert "2 texts of its data were longer" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_held_out_texts_keep_the_balance(tmp_path):
    """A tenth of each class is held out."""
    data = read_data(tsv(tmp_path, [(label, f"{text} {copy}") for label, text in TEXTS for copy in range(5)]))

    assert [360, 40] == [len(data.train), len(data.evaluation)]
    assert 20 == sum(example.labels == ("bill",) for example in data.evaluation)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        pytest.param([("bill", f"text {number}") for number in range(20)], r"has 1 class \(bill\)", id="one-class"),
        pytest.param([], "has no examples", id="empty"),
    ],
)
def test_too_few_classes(tmp_path, rows, words):
    """One class only, or nothing at all."""
    with pytest.raises(BadData, match=words):
        read_data(tsv(tmp_path, rows))


def test_an_unknown_class_at_evaluation(tmp_path):
    """Named with file and line."""
    tsv(tmp_path, TEXTS)
    tsv(tmp_path, [("bill", "a"), ("poem", "b")], name="dev.tsv")

    with pytest.raises(BadData, match=r"dev\.tsv:3: .*'poem'.*it has bill, letter"):
        read_data(tmp_path)


def test_balanced_weights(tmp_path):
    """Of classes, and of the true side where a text may have several."""
    single_label = read_data(
        tsv(tmp_path, [("a", f"x {n}") for n in range(30)] + [("b", f"y {n}") for n in range(10)]), held_out=0
    )
    multi_label = read_data(jsonl(tmp_path, several()), held_out=0)
    balanced = TrainingConfig(class_weights="balanced")

    assert single_label.weights(CONFIG) is None
    assert [pytest.approx(40 / 60), 2.0] == single_label.weights(balanced).tolist()
    assert [1.0, 1.0] == multi_label.weights(balanced).tolist()
