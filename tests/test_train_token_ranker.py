"""Teaching the token ranker: from search results to a layer that ranks them better."""

import random

import torch
from torch.nn.functional import normalize

from tools import train_token_ranker
from tools.train_token_ranker import Row, scores, teach

WIDTH = 8


def test_right_documents_gain(monkeypatch):
    """A right document is its question turned; on other questions it gains on the wrong one."""
    monkeypatch.setattr(train_token_ranker, "RATE", 0.01)  # so that twenty steps tell
    rng = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=rng))[0]

    def row() -> Row:
        question, wrong = normalize(torch.randn(2, 3, WIDTH, generator=rng), dim=-1)
        return Row(
            torch.full((3,), 1 / 3), question, [wrong.half(), (question @ turn).half()], torch.tensor([False, True])
        )

    taught, others = [[row() for _ in range(40)] for _ in range(2)]
    layer = torch.nn.Linear(WIDTH, WIDTH)

    @torch.no_grad()
    def margin() -> float:
        wrong, right = torch.stack([scores(one, layer) for one in others]).mean(0)
        return float(right - wrong)

    layer.load_state_dict({"weight": torch.eye(WIDTH), "bias": torch.zeros(WIDTH)})
    before = margin()
    layer.load_state_dict(teach(taught, epochs=4, rng=random.Random(1)))

    assert margin() > before + 0.001
