"""Distilling the fast encoder: texts and batches, the loss, and a few steps with a tiny teacher."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, repeat
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from tools.train_student import (
    CHECKPOINT,
    Schedule,
    TextSet,
    distillation_loss,
    make_student,
    padded,
    read_texts,
    states,
    train,
)

KEPT = (1, 3)
IDS = [[0, 5, 6, 7, 2], [0, 9, 2], [0, 11, 12, 13, 14, 15, 2]]


@pytest.fixture
def teacher() -> nn.Module:
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    return BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)


def ticking(step_s: float = 1.0) -> Callable[[], float]:
    """A clock that moves on each time it is read."""
    times = count(0.0, step_s)
    return lambda: next(times)


def states_of(model: nn.Module) -> tuple[list[Tensor], Tensor]:
    tokens, mask = padded(IDS, 1)
    return states(model, model.embeddings(tokens), mask), mask


def test_a_student_begins_as_layers_of_its_teacher(teacher):
    """Layer by layer the same numbers, and the word table is the teacher's own."""
    student = make_student(teacher, KEPT)

    assert student.embeddings is teacher.embeddings
    for index, layer in enumerate(KEPT):
        expected = teacher.encoder.layer[layer].state_dict()
        assert all(
            torch.equal(expected[name], ours) for name, ours in student.encoder.layer[index].state_dict().items()
        )


def test_states_are_those_of_transformers(teacher):
    """Real tokens, in company of shorter and longer texts."""
    found, mask = states_of(teacher)
    tokens, _ = padded(IDS, 1)

    expected = teacher(tokens, attention_mask=mask.long(), output_hidden_states=True).hidden_states[1:]

    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours[mask], theirs[mask])


def test_padding_does_not_count(teacher):
    """What a student computes at padded places is nobody's concern."""
    found, mask = states_of(teacher)
    noisy = [torch.where(mask[..., None], hidden, torch.full_like(hidden, 7.0)) for hidden in found]

    assert float(distillation_loss(noisy, found, mask)) == pytest.approx(0.0, abs=1e-4)


def test_training_brings_the_student_nearer(teacher, tmp_path: Path):
    """Sixty steps on one batch halve the loss; the checkpoint holds the student's layers; the teacher stays."""
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    wanted, mask = states_of(teacher)
    student = make_student(teacher, KEPT)
    targets = [wanted[index] for index in KEPT]
    at_first = float(distillation_loss(states_of(student)[0], targets, mask).detach())

    steps = train(
        teacher,
        student,
        repeat(IDS),
        Schedule(60.5, learning_rate=3e-3),
        work=tmp_path,
        kept=KEPT,
        clock=ticking(),
    )

    at_last = float(distillation_loss(states_of(student)[0], targets, mask).detach())
    assert 60 == steps
    assert at_last < at_first / 2
    saved = torch.load(tmp_path / CHECKPOINT)
    assert all(torch.equal(saved[name], value) for name, value in student.encoder.state_dict().items())
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())


def test_texts_of_files(tmp_path: Path, monkeypatch):
    """Long ones are cut into pieces, of sentences only the share is read, and equal texts come once."""
    (tmp_path / "es.conll").write_text("\n\n".join(f"Hola\tO\nEva{i}\tB-PER" for i in range(8)), encoding="utf-8")
    rows = [{"text": " ".join(map(str, range(25)))}, {"text": "una vez"}, {"text": "una  vez"}]
    (tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    sets = (TextSet("es.conll", 2.0, share=0.5), TextSet("long.jsonl", words=(10, 10)))
    monkeypatch.setattr("tools.train_student.TEXT_SETS", sets)
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"text": "otro texto", "repeats": 0.5}), encoding="utf-8")

    texts = dict(read_texts(tmp_path, [more]))

    assert [2.0] * 4 == [texts[f"Hola Eva{index}"] for index in range(4)]
    assert "Hola Eva4" not in texts
    assert [1.3] * 4 == [texts[piece] for piece in ("0 1 2 3 4 5 6 7 8 9", "20 21 22 23 24", "una vez", "una vez")]
    assert 0.5 == texts["otro texto"]
    assert 9 == len(texts)
