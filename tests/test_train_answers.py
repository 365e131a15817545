"""Teaching the models of questions and of labels: what is read of files, what is asked over what, and a few steps."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification

from backend.errors import BadData
from backend.serving.engines.answers import best_span
from tools.answer_pairs import Pair, Paragraph, Question, judged, pairs_of, read, read_types, type_pairs_of
from tools.train_answers import Task, answer_loss, batches_of, calibration, margins, named, teach, types_loss

TEXT = "Ana pagó 950 euros. El contrato dura dos años."


@pytest.fixture
def tokenizer() -> Tokenizer:
    words = ["<s>", "<pad>", "</s>", "<unk>", "Ana", "pagó", "950", "euros", "."]
    words += ["El", "contrato", "dura", "dos", "años", "¿", "Cuánto", "?"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def test_squads_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Answers as tokens; an impossible question has none; one whose answer is elsewhere is left out."""
    asked = [
        {"question": "¿Cuánto?", "answers": [{"text": "dos años", "answer_start": TEXT.index("dos")}]},
        {"question": "¿El?", "answers": [], "is_impossible": True},
        {"question": "¿Ana?", "answers": [{"text": "dos años", "answer_start": 3}]},
    ]
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": TEXT, "qas": asked}]}]}))
    [paragraph], questions = read([file], tokenizer)

    assert [0, 5] == paragraph.starts
    words = [tokenizer.id_to_token(index) for index in paragraph.ids]
    assert [("dos", "años"), None] == [
        (words[one.first], words[one.last]) if one.first >= 0 else None for one in questions
    ]


def test_answers_are_where_they_are_said_to_be() -> None:
    """In every part that has one; the others are of another paragraph, or lack the sentence."""
    paragraphs = [
        Paragraph(0, list(range(100, 400)), list(range(0, 300, 10))),
        Paragraph(0, list(range(500, 800)), [0]),
    ]
    questions = [Question(0, [7], first, first + 3) for first in range(0, 290, 3)]
    for seed in range(5):
        for pair, question in zip(pairs_of(paragraphs, questions, random.Random(seed)), questions, strict=True):
            assert question.ids == [7]
            assert len(pair.part) <= 300
            for first, last in pair.answers:
                assert 3 == pair.part[last] - pair.part[first] == last - first
            assert pair.answers or pair.part[0] >= 500 or len(pair.part) >= 30


CONLL = """Ana\tB-PER\npagó\tO\n950\tB-MONEY\neuros\tI-MONEY\n.\tO

El\tO\ncontrato\tB-PAPER\ndura\tO\ndos\tO\naños\tO\n.\tO
"""


def test_types_of_entities(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A sentence knows of each type that its file marks whether it is there; one without names is not asked for."""
    file = tmp_path / "made.conll"
    file.write_text(CONLL)
    [sentences] = read_types([file], tokenizer)

    assert [{"PER": [(0, 0)], "MONEY": [(2, 3)]}, {"PER": [], "MONEY": []}] == [one.entities for one in sentences]
    pairs = type_pairs_of([sentences] * 30, tokenizer, random.Random(1))
    assert {(), ((0, 0),), ((2, 3),)} == {tuple(pair.answers) for pair in pairs}
    file.write_text("contrato\tB-PAPER\n")
    with pytest.raises(BadData, match=r"own_types\.toml"):
        read_types([file], tokenizer)


def test_what_a_type_names() -> None:
    """Of runs that overlap the likeliest; what is unlikely to be one is none."""
    logits = np.full((8, 3), -9.0)
    logits[:, 0] = 0
    logits[[0, 3, 6], 1] = 0, 4, 5
    logits[[0, 4, 6], 2] = 0, 4, 5
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    assert [(4, 4), (1, 2)] == [(run.first, run.last) for run in named(probabilities.astype(np.float32), 2, 8)]


def answers_task() -> Task:
    paragraphs = [Paragraph(number, [5, 6, 7, 8 + number, 9], [0]) for number in range(4)]
    questions = [Question(number, [20], 3, 3) for number in range(4)]
    return Task(
        lambda rng: pairs_of(paragraphs, questions, rng),
        answer_loss,
        list(judged(paragraphs, questions)),
        lambda *pair: [best_span(*pair)],
    )


def types_task() -> Task:
    pairs = [Pair([20], [5, 30, 6, 30], [(1, 1), (3, 3)]), Pair([21], [5, 30, 6, 30]), Pair([21], [6, 31], [(1, 1)])]
    return Task(lambda _: pairs, types_loss, pairs, named)


@pytest.mark.parametrize("make_task", [answers_task, types_task])
def test_a_few_steps(make_task: Callable[[], Task]) -> None:
    """As many as the time allows, and the loss falls; the curve of the score is one."""
    torch.manual_seed(1)
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=64, num_labels=3, pad_token_id=1,
        )
    ).eval()  # fmt: skip
    task, rng = make_task(), random.Random(1)

    def loss() -> float:
        pairs = [pair for pair in task.judged if pair.answers]
        return task.loss(*margins(model, pairs)).item()

    before = loss()
    steps = teach(model, task, seconds=1.0, rng=rng)

    assert steps > 0
    assert loss() < before
    assert all(map(math.isfinite, calibration(model, task)))
    pairs = task.pairs_of(rng)
    assert sorted(pairs) == sorted(pair for batch in batches_of(pairs, rng) for pair in batch)
