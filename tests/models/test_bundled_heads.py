"""The heads that ship: their files are sound, they keep their promise on texts nobody trained on, and they abstain."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from backend.models.classifier_head import NO_ANSWER, NONE, ClassifierHead, read_head
from backend.models.encoder import Vectors, normalized
from backend.models.model_files import resolve
from backend.models.spec import Pooling
from backend.text.classifiers import BUNDLED_HEADS
from tests.tiny_models import encoder_of, tokenizer_of

NAMES = ("banking-intents", "document-type", "topics")
UNSEEN = Path(__file__).with_name("unseen_documents.jsonl")  # written for the tests, by the author of the examples
UNSEEN_INTENTS = Path(__file__).with_name("unseen_intents.jsonl")  # one Spanish sentence an intent
EXAMPLES = BUNDLED_HEADS / "examples"
BYTES_MAX = 800 * 1024  # each; they lie in the repository


def frozen_vectors(texts: Sequence[str], dtype: str) -> Vectors:
    """As the service makes them, without a prompt: the first 512 tokens, mean-pooled, of length 1."""
    encoder = encoder_of("bundled", "onnx", dtype)
    ids = [tokens.ids for tokens in tokenizer_of("bundled").encode(texts)]
    rows = []
    for first in range(0, len(ids), 16):
        batch = encoder.prepare(ids[first : first + 16])
        rows.append(encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN))
    return normalized(np.concatenate(rows))


def answers(head: ClassifierHead, texts: Sequence[str], dtype: str) -> list[str | None]:
    best = head.best(head.probabilities(frozen_vectors(texts, dtype), texts))
    return [None if place == NO_ANSWER else head.labels[place] for place in best]


def texts_of(*files: Path) -> set[str]:
    return {json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").splitlines()}


@pytest.mark.parametrize("name", NAMES)
def test_files_are_sound_and_small(name):
    """Of the bundled encoder, with a card that names data, licence and command."""
    folder = BUNDLED_HEADS / name

    head = read_head(folder)

    assert name == head.name
    assert resolve("bundled").identity == head.trained_on, "train the heads anew (make bundled)"
    assert (0 < head.threshold < 0.9) == head.has_background
    assert {"head.json", "head.safetensors", "README.md"} == {file.name for file in folder.iterdir()}
    assert sum(file.stat().st_size for file in folder.iterdir()) < BYTES_MAX
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(
        word in card for word in ("python -m backend.training text-classifier", "CC-BY", "accuracy", "## Limits")
    )


@pytest.mark.parametrize("name", NAMES)
def test_examples_ship_for_every_class(name):
    """In both languages, under the labels of the published head, no text under two of them."""
    rows = [json.loads(line) for line in (EXAMPLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    labels = {(row["label"], row["lang"]) for row in rows if row["label"] != NONE}
    head = read_head(BUNDLED_HEADS / name)

    assert {(label, language) for label in head.labels for language in ("en", "es")} == labels
    assert head.has_background == any(row["label"] == NONE for row in rows)
    assert len(rows) == len({row["text"] for row in rows})


def test_the_examples_are_small_and_none_of_them_is_a_test():
    """They lie in the repository and in the wheel; what the tests judge by was written apart."""
    files = list(EXAMPLES.glob("*.jsonl"))
    known, unseen = texts_of(*files), texts_of(UNSEEN, UNSEEN_INTENTS)

    assert 1_500_000 > sum(file.stat().st_size for file in files)
    assert set() == known & unseen


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_papers_that_nobody_trained_on(dtype):
    """Of 51 in English and Spanish at most three are taken for another kind, and at least nine in ten are answered."""
    rows = [row for row in map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines()) if "lang" in row]

    found = answers(read_head(BUNDLED_HEADS / "document-type"), [row["text"] for row in rows], dtype)

    wrong = [(row["label"], label) for row, label in zip(rows, found, strict=True) if label not in (None, row["label"])]
    assert len(wrong) <= 3, wrong
    assert len([label for label in found if label]) >= 0.9 * len(rows)


def test_what_is_no_paper_gets_no_answer():
    """Recipes, chats, tweets, stories, code, single words: at most one in ten."""
    rows = [row for row in map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines()) if "kind" in row]

    found = answers(read_head(BUNDLED_HEADS / "document-type"), [row["text"] for row in rows], "fp32")

    named = [(row["kind"], label) for row, label in zip(rows, found, strict=True) if label]
    assert len(named) <= len(rows) // 10, named


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize(("language", "least"), [("en", 0.83), ("es", 0.75)])
def test_topics_of_the_dev_split(data_dir, language, least, dtype):
    """With exact vectors and with those that a CPU serves."""
    lines = (data_dir / "cls_sib200" / f"{language}_dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    head = read_head(BUNDLED_HEADS / "topics")
    texts = [text for _, _, text in rows]

    places = head.probabilities(frozen_vectors(texts, dtype), texts).argmax(axis=1)

    right = [head.labels[place] == label for place, (label, _, _) in zip(places, rows, strict=True)]
    assert np.mean(right) >= least


@pytest.mark.slow
def test_intents_in_spanish():
    """One sentence of each of the 77 intents, in words that the examples do not use."""
    rows = [json.loads(line) for line in UNSEEN_INTENTS.read_text(encoding="utf-8").splitlines()]

    found = answers(read_head(BUNDLED_HEADS / "banking-intents"), [row["text"] for row in rows], "fp32")

    right = [row["label"] == label for row, label in zip(rows, found, strict=True)]
    assert np.mean(right) >= 0.45


def test_what_no_customer_of_a_bank_asks_gets_no_intent():
    """Recipes, chats, stories, code, single words: at most one in ten."""
    rows = [row for row in map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines()) if "kind" in row]

    found = answers(read_head(BUNDLED_HEADS / "banking-intents"), [row["text"] for row in rows], "fp32")

    named = [(row["kind"], label) for row, label in zip(rows, found, strict=True) if label]
    assert len(named) <= len(rows) // 10, named


def test_intents_of_bank_customers():
    """In words of our own, English and Spanish: at most one of six misses."""
    expected = {
        "my card still hasn't come in the mail": ("card_arrival", "card_delivery_estimate"),
        "I forgot my PIN": ("change_pin", "pin_blocked", "passcode_forgotten"),
        "what is the exchange rate for dollars?": ("exchange_rate", "exchange_via_app"),
        "someone stole my card": ("lost_or_stolen_card", "compromised_card"),
        "¿Por qué me han cobrado dos veces la misma compra?": ("transaction_charged_twice",),
        "Todavía no me ha llegado la tarjeta nueva": ("card_arrival", "card_delivery_estimate"),
    }

    found = answers(read_head(BUNDLED_HEADS / "banking-intents"), list(expected), "fp32")

    right = [label in labels for label, labels in zip(found, expected.values(), strict=True)]
    assert sum(right) >= 5, found
