"""A bare loop and tiny data for the tests of tasks: what is tested is what a task gives to any loop."""

from collections.abc import Sequence

import torch
from torch import Tensor

from backend.training.records import Task


def fit(task: Task, *, steps: int = 60, learning_rate: float = 3e-3, batch_size: int = 16) -> float:
    """AdamW over random batches; the last mean loss."""
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in task.model.parameters() if parameter.requires_grad], lr=learning_rate
    )
    task.model.train()
    count, loss = len(task.lengths), 0.0
    for _ in range(steps):
        part = task.loss(task.model, task.collate(torch.randperm(count)[:batch_size].tolist()))
        (part.total / part.weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = part.total.item() / part.weight
    task.model.eval()
    return loss


def mean_and_gradient(task: Task, cuts: Sequence[Sequence[int]]) -> tuple[float, Tensor]:
    """The loss and gradient of an effective batch that is cut so: sums of totals over sums of weights."""
    task.model.eval()  # without dropout
    task.model.zero_grad()
    parts = [task.loss(task.model, task.collate(cut)) for cut in cuts]
    weight = sum(part.weight for part in parts)
    loss = sum(part.total for part in parts) / weight
    loss.backward()
    gradient = torch.cat(
        [parameter.grad.flatten() for parameter in task.model.parameters() if parameter.grad is not None]
    )
    task.model.zero_grad()
    return loss.item(), gradient


def assert_splits_agree(task: Task, count: int) -> None:
    """Any cut of the first examples gives the same loss and gradient."""
    whole, expected = mean_and_gradient(task, [range(count)])
    for cuts in ([[index] for index in range(count)], [range(1), range(1, count)]):
        loss, gradient = mean_and_gradient(task, cuts)
        assert abs(loss - whole) <= 1e-5 * max(1.0, abs(whole))
        torch.testing.assert_close(gradient, expected, atol=1e-4 * expected.abs().max().item(), rtol=1e-3)
