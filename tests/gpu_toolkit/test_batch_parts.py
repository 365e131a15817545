"""Batches cut along their items, whatever they are made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from backend.gpu_toolkit.batch_parts import cut, items_in, pair_of, weight_of

T = torch.arange(6)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(T, T[2:4], id="tensor"),
        pytest.param({"a": T, "b": torch.ones(3)}, {"a": T[2:4], "b": torch.ones(3)}, id="what-has-no-items-stays"),
        pytest.param((T, [T, "text"]), (T[2:4], [T[2:4], "text"]), id="nested"),
        pytest.param(torch.tensor(1.0), torch.tensor(1.0), id="a-number"),
    ],
)
def test_cut(data: Any, expected: Any):
    """The items of the part."""
    assert str(expected) == str(cut(data, slice(2, 4), 6))


def test_items():
    """Along the first dimension of the first tensor, however deep."""
    assert [6, 6, 6] == [items_in(one) for one in (T, {"n": 1, "x": T}, [("a", T)])]
    for wrong in (torch.tensor(1.0), "text", {}):
        with pytest.raises(ValueError, match="without a tensor of items"):
            items_in(wrong)


def test_pairs():
    """Anything else is refused."""
    assert (1, 2) == pair_of([1, 2]) == pair_of((1, 2))
    with pytest.raises(ValueError, match="a batch of dict"):
        pair_of({"x": 1, "y": 2})


@pytest.mark.parametrize(
    ("criterion", "targets", "expected"),
    [
        pytest.param(nn.MSELoss(), torch.ones(3), 3.0, id="items"),
        pytest.param(nn.MSELoss(reduction="sum"), torch.ones(3), 0.0, id="sum"),
        pytest.param(nn.CrossEntropyLoss(), torch.tensor([0, 1, -100]), 2.0, id="ignored"),
        pytest.param(nn.CrossEntropyLoss(torch.tensor([1.0, 4.0])), torch.tensor([0, 1, 1]), 9.0, id="class-weights"),
        pytest.param(nn.CrossEntropyLoss(), torch.ones(3, 2), 3.0, id="soft-targets"),
        pytest.param(nn.NLLLoss(), torch.zeros(3, 5, dtype=torch.long), 15.0, id="tokens"),
        pytest.param(lambda answer, target: answer, torch.ones(3), 3.0, id="a-function"),
    ],
)
def test_weight(criterion: Any, targets: torch.Tensor, expected: float):
    """What torch divides by."""
    assert expected == weight_of(criterion, targets, len(targets))
