"""Teaching the model of questions: what is read of SQuAD's files, what is asked over what, and a few steps."""

import json
import math
import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForTokenClassification

from tools.train_answers import Paragraph, Question, batches_of, calibration, pairs_of, read, teach

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
        for (_, part, first, last), question in zip(
            pairs_of(paragraphs, questions, random.Random(seed)), questions, strict=True
        ):
            assert question.ids == [7]
            assert len(part) <= 300
            if first >= 0:
                assert 3 == part[last] - part[first] == last - first
            else:
                assert part[0] >= 500 or len(part) >= 30


def test_a_few_steps() -> None:
    """As many as the time allows; the curve of the score is one."""
    torch.manual_seed(1)
    model = BertForTokenClassification(
        BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=64, num_labels=3, pad_token_id=1,
        )
    )  # fmt: skip
    rng = random.Random(1)
    paragraphs = [Paragraph(number, [5, 6, 7, 8 + number, 9], [0]) for number in range(4)]
    questions = [Question(number, [20], 3, 3) for number in range(4)]
    steps = teach(model, paragraphs, questions, seconds=2.0, rng=rng)

    assert steps > 0
    assert all(map(math.isfinite, calibration(model, paragraphs, questions)))
    assert {4} == {len(batch) for batch in batches_of(pairs_of(paragraphs, questions, rng), rng)}
