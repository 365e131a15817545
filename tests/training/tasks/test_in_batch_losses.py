"""In-batch losses: definitions, chunking with dropout and bfloat16, and two ranks."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MultipleNegativesRankingLoss
from torch import Tensor, nn

from backend.training.losses import cosent, in_batch_loss, known_positives, multiple_negatives

ITEMS, COLUMNS, LENGTH = 6, 2, 5


class Bag(nn.Module):
    """The mean of word vectors behind a layer; enough of an encoder."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(30, 8)
        self.layer = nn.Linear(8, 6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        rows = self.words(input_ids) * attention_mask[:, :, None]
        return torch.tanh(self.layer(self.dropout(rows.sum(1) / attention_mask.sum(1, keepdim=True)))).float()


def texts() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 30, (COLUMNS * ITEMS, LENGTH), generator=generator)
    lengths = torch.randint(1, LENGTH + 1, (len(ids), 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    return ids * mask, mask


def ranking(columns: Sequence[Tensor]) -> Tensor:
    excluded = torch.zeros(len(columns[0]), len(columns[1]), dtype=torch.bool)
    return multiple_negatives(columns[0], columns[1], excluded)


def gradients(model: nn.Module) -> Tensor:
    actual = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad()
    return actual


def test_cosent_by_definition():
    """Every pair of pairs that the scores order counts, and none that they do not."""
    first, second = torch.randn(5, 6), torch.randn(5, 6)
    scores = torch.tensor([0.1, 0.9, 0.9, 0.5, 0.0])
    cosines = nn.functional.cosine_similarity(first, second)

    gaps = [20 * (cosines[i] - cosines[j]) for i in range(5) for j in range(5) if scores[i] < scores[j]]
    expected = torch.log(1 + torch.stack(gaps).exp().sum())
    assert expected.item() == pytest.approx(cosent(first, second, scores).item(), abs=1e-4)
    assert 0.0 == cosent(first, second, torch.ones(5)).item()


class PrecomputedVectors(nn.Module):
    """A sentence-transformers model whose vectors are known."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return features


def test_the_losses_equal_sentence_transformers():
    """The reference's own losses on the same vectors, with negatives too."""
    columns = [torch.randn(5, 6) for _ in range(3)]
    features = [{"sentence_embedding": column} for column in columns]
    scores = torch.tensor([0.1, 0.9, 0.8, 0.5, 0.0])

    expected = CoSENTLoss(PrecomputedVectors())(features[:2], scores)
    assert expected.item() == pytest.approx(cosent(columns[0], columns[1], scores).item(), rel=1e-5)
    expected = MultipleNegativesRankingLoss(PrecomputedVectors())(features, None)
    actual = multiple_negatives(columns[0], torch.cat(columns[1:]), torch.zeros(5, 10, dtype=torch.bool))
    assert expected.item() == pytest.approx(actual.item(), rel=1e-5)


def test_what_is_right_for_an_anchor_too_is_no_negative():
    """Copies of its text, the anchor itself, and the texts of equal anchors; its own text stays."""
    anchors = torch.tensor([1, 2, 1, 4])
    candidates = torch.tensor([10, 11, 12, 10, 2, 10])  # four positives, then two negatives

    expected = [
        [False, False, True, True, False, True],  # row 2 has its anchor, rows 3 and 5 its text
        [False, False, False, False, True, False],  # 2 is the anchor itself
        [True, False, False, False, False, False],
        [True, False, False, False, False, True],
    ]
    assert expected == known_positives(anchors, candidates).tolist()


@pytest.mark.parametrize("chunk", [1, 2, 11, 12])
def test_chunks_change_nothing(chunk):
    """Loss and gradient of any chunk are those of the whole batch at once."""
    ids, mask = texts()
    model = Bag()
    whole = ranking(model(ids, mask).chunk(COLUMNS)) * ITEMS
    whole.backward()
    expected = gradients(model)

    part = in_batch_loss(model, ids, mask, columns=COLUMNS, objective=ranking, chunk=chunk)
    part.total.backward()

    assert ITEMS == part.weight
    assert whole.item() == pytest.approx(part.total.item(), abs=1e-5)
    torch.testing.assert_close(gradients(model), expected, atol=1e-4 * expected.abs().max().item(), rtol=1e-4)


def test_dropout_is_replayed():
    """The second forward pass of a chunk drops what the first one dropped, and the stream of numbers goes on after."""
    ids, mask = texts()
    model = Bag(dropout=0.5).train()
    torch.manual_seed(9)
    rows = torch.cat([model(ids[first : first + 4], mask[first : first + 4]) for first in (0, 4, 8)])
    after = torch.rand(1)
    whole = ranking(rows.chunk(COLUMNS)) * ITEMS
    whole.backward()
    expected = gradients(model)

    torch.manual_seed(9)
    part = in_batch_loss(model, ids, mask, columns=COLUMNS, objective=ranking, chunk=4)
    part.total.backward()

    assert after == torch.rand(1)
    assert whole.item() == pytest.approx(part.total.item(), abs=1e-5)
    torch.testing.assert_close(gradients(model), expected, atol=1e-4 * expected.abs().max().item(), rtol=1e-4)


@pytest.mark.parametrize("inside", [True, False], ids=["backward-inside", "backward-outside"])
def test_bfloat16_reaches_every_weight(inside):
    """Both passes run in the dtype of the first, and what was cast without gradients is not used for gradients."""
    ids, mask = texts()
    model = Bag()

    def run(chunk: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            part = in_batch_loss(model, ids, mask, columns=COLUMNS, objective=ranking, chunk=chunk)
            if inside:
                part.total.backward()
        if not inside:
            part.total.backward()
        return gradients(model)

    expected = run(100)
    actual = run(4)
    assert sum(parameter.numel() for parameter in model.parameters()) == len(actual)
    torch.testing.assert_close(actual, expected, atol=0.05 * expected.abs().max().item(), rtol=0.05)


SCRIPT = """
import json, sys
import torch
from torch import distributed
from tests.training.tasks.test_in_batch_losses import COLUMNS, ITEMS, Bag, gradients, ranking, texts
from backend.training.losses import in_batch_loss

rank, store, chunk, fails = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "fails"
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
ids, mask = texts()
mine = [slice(0, 4), slice(4, 6)][rank]  # ranks may hold differently many
rows = torch.cat([torch.arange(ITEMS)[mine] + column * ITEMS for column in range(COLUMNS)])
model = Bag()
def broken(**_):
    raise torch.OutOfMemoryError("out of memory")
try:
    part = in_batch_loss(
        broken if fails and rank == 1 else model, ids[rows], mask[rows],
        columns=COLUMNS, objective=ranking, chunk=chunk,
    )
    part.total.backward()
    found = [] if fails else gradients(model).tolist()
    print(json.dumps({"total": part.total.item(), "weight": part.weight, "gradients": found}))
except torch.OutOfMemoryError:
    print(json.dumps({"total": "missed"}))
distributed.destroy_process_group()
"""


def two_ranks(folder, chunk: int, mode: str = "works") -> list[dict]:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(rank), str(folder / "store"), str(chunk), mode],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    return [json.loads(process.communicate(timeout=90)[0].splitlines()[-1]) for process in running]


@pytest.mark.slow  # ten seconds of starting processes
@pytest.mark.parametrize("chunk", [3, 100])
def test_two_ranks_learn_as_one(tmp_path, chunk):
    """Losses and gradients of the ranks add up to those of one process, although texts of both look at one another."""
    ids, mask = texts()
    model = Bag()
    whole = ranking(model(ids, mask).chunk(COLUMNS)) * ITEMS
    whole.backward()

    results = two_ranks(tmp_path, chunk)

    assert [4, 2] == [result["weight"] for result in results]
    assert whole.item() == pytest.approx(sum(result["total"] for result in results), abs=1e-4)
    summed = torch.tensor([result["gradients"] for result in results]).sum(0)
    torch.testing.assert_close(summed, gradients(model), atol=1e-5, rtol=1e-4)


@pytest.mark.slow  # the same
def test_a_rank_that_runs_out_of_memory_leaves_nobody_waiting(tmp_path):
    """It raises; the other gives a loss of nothing, so that all can agree to run the step again."""
    results = two_ranks(tmp_path, 3, "fails")

    assert [0.0, "missed"] == [result["total"] for result in results]
