"""The heads that ship: their files are sound, they keep their promise on texts nobody trained on, and they abstain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from backend.models.classifier_head import NO_ANSWER, ClassifierHead, read_head
from backend.models.encoder import Vectors
from backend.models.model_files import MINILM_SHA256, resolve
from backend.models.spec import Pooling
from backend.models.vectors import normalized
from backend.services.classifiers import BUNDLED_HEADS, ClassifierRegistry
from tests.tiny_models import encoder_of, tokenizer_of

NAMES = ("banking-intents", "document-type", "topics")
UNSEEN = Path(__file__).with_name("unseen_documents.jsonl")  # written for this project, by the author of own_documents
BYTES_MAX = 512 * 1024  # each; they lie in the repository


def frozen_vectors(texts: Sequence[str], dtype: str) -> Vectors:
    """As the service makes them: the first 256 tokens, mean-pooled, of length 1."""
    encoder = encoder_of("minilm", "onnx", dtype)
    ids = [tokens.ids for tokens in tokenizer_of("minilm").encode(texts)]
    rows = []
    for first in range(0, len(ids), 16):
        batch = encoder.prepare(ids[first : first + 16])
        rows.append(encoder.pooled(encoder.forward(batch), batch, Pooling.MEAN))
    return normalized(np.concatenate(rows))


def answers(head: ClassifierHead, texts: Sequence[str], dtype: str) -> list[str | None]:
    best = head.best(head.probabilities(frozen_vectors(texts, dtype), texts))
    return [None if place == NO_ANSWER else head.labels[place] for place in best]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_sound_and_small(name):
    """Of the bundled encoder, with a card that names data, licence and command."""
    folder = BUNDLED_HEADS / name

    head = read_head(folder)

    assert (name, MINILM_SHA256) == (head.name, head.encoder_sha256)
    assert resolve("minilm").fingerprint == head.encoder_fingerprint, "evaluate the heads, then write it to head.json"
    assert (0 < head.threshold < 0.9) == head.has_background
    assert {"head.json", "head.safetensors", "README.md"} == {file.name for file in folder.iterdir()}
    assert sum(file.stat().st_size for file in folder.iterdir()) < BYTES_MAX
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(
        word in card for word in ("python -m backend.training text-classifier", "CC-BY", "accuracy", "## Limits")
    )


def test_the_registry_finds_them_all(tmp_path):
    registry = ClassifierRegistry(tmp_path, resolve("minilm").identity)
    registry.start()

    assert set(NAMES) <= set(registry.names())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_papers_that_nobody_trained_on(dtype):
    """No wrong answer in English or Spanish, and at least nine in ten answered."""
    rows = [row for row in map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines()) if "lang" in row]

    found = answers(read_head(BUNDLED_HEADS / "document-type"), [row["text"] for row in rows], dtype)

    wrong = [(row["label"], label) for row, label in zip(rows, found, strict=True) if label not in (None, row["label"])]
    assert [] == wrong
    assert len([label for label in found if label]) >= 0.9 * len(rows)


def test_what_is_no_paper_gets_no_answer():
    """Recipes, chats, tweets, stories, code, single words: at most one in ten."""
    rows = [row for row in map(json.loads, UNSEEN.read_text(encoding="utf-8").splitlines()) if "kind" in row]

    found = answers(read_head(BUNDLED_HEADS / "document-type"), [row["text"] for row in rows], "fp32")

    named = [(row["kind"], label) for row, label in zip(rows, found, strict=True) if label]
    assert len(named) <= len(rows) // 10, named


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize(("language", "least"), [("en", 0.84), ("es", 0.67)])
def test_topics_of_the_dev_split(data_dir, language, least, dtype):
    """With exact vectors and with those that a CPU serves."""
    lines = (data_dir / "cls_sib200" / f"{language}_dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    head = read_head(BUNDLED_HEADS / "topics")
    texts = [text for _, _, text in rows]

    places = head.probabilities(frozen_vectors(texts, dtype), texts).argmax(axis=1)

    right = [head.labels[place] == label for place, (label, _, _) in zip(places, rows, strict=True)]
    assert np.mean(right) >= least


def test_intents_of_bank_customers():
    """One of each of some intents, in words of our own."""
    texts = ["my card still hasn't come in the mail", "I forgot my PIN", "what is the exchange rate for dollars?"]

    found = answers(read_head(BUNDLED_HEADS / "banking-intents"), texts, "fp32")

    assert found[0] in ("card_arrival", "card_delivery_estimate")
    assert found[2] in ("exchange_rate", "exchange_via_app")
    assert len({label for label in found if label}) >= 2
