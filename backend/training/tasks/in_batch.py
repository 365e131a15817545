"""Losses in which the texts of a batch look at one another, for batches larger than the memory holds.

GradCache: all vectors are made without a graph, the loss gives the gradient of each vector, and the texts then run
again in chunks with a graph, each chunk pushing its vectors' gradients into the weights. Chunks change nothing of
loss or gradient; random numbers (dropout) are replayed. On several ranks each sees the vectors of all, so that two
processes learn as one would, once their gradients are summed; every rank must take part in every effective batch.

Source: Gao et al. 2021, arXiv 2101.06983, as in sentence-transformers' base/losses/gradcache.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import (
    ReduceOp,
    all_gather,
    all_reduce,
    get_rank,
    get_world_size,
    is_available,
    is_initialized,
)

from backend.training.records import LossPart

Objective = Callable[[Sequence[Tensor]], Tensor]  # vectors of the whole batch, a tensor a column -> mean loss
_SCALE = 20.0  # 1 / temperature of the cosines; sentence-transformers' default for both losses


def multiple_negatives(anchors: Tensor, candidates: Tensor, excluded: Tensor) -> Tensor:
    """How badly each anchor finds its own text among all others' of the batch: mean cross entropy of scaled cosines.

    Shapes: anchors (items, width); candidates (at least items, width), the first ones in the anchors' order;
    excluded (items, candidates) bool: true for other rows' texts that are right for an anchor too.
    Source: Henderson et al. 2017, arXiv 1705.00652.
    """
    scores = _SCALE * _unit(anchors) @ _unit(candidates).T
    own = torch.arange(len(anchors), device=anchors.device)
    return nn.functional.cross_entropy(scores.masked_fill(excluded, -torch.inf), own)


def cosent(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """How badly cosines are ordered like the scores: log(1 + sum of exp(scaled wrong gaps)). Zero for equal scores.

    Shapes: first and second (items, width), scores (items).
    Source: Su 2022, kexue.fm/archives/8847, as in sentence-transformers' CoSENTLoss.
    """
    cosines = _SCALE * (_unit(first) * _unit(second)).sum(1)
    gaps = cosines[:, None] - cosines[None, :]  # of row i above column j, wrong where i's score is below j's
    wrong = gaps.masked_fill(~(scores[:, None] < scores[None, :]), -torch.inf)
    return torch.logsumexp(torch.cat([cosines.new_zeros(1), wrong.flatten()]), 0)


def known_positives(anchor_ids: Tensor, candidate_ids: Tensor) -> Tensor:
    """Which texts must not count against an anchor: copies of its own, of itself, and what equal anchors belong to.

    Shapes: anchor_ids (items), candidate_ids (at least items), numbers of equal texts -> (items, candidates) bool.
    """
    items = len(anchor_ids)
    own = candidate_ids[:items]
    same_text = candidate_ids[None, :] == own[:, None]
    itself = candidate_ids[None, :] == anchor_ids[:, None]
    same_anchor = torch.zeros_like(same_text)
    same_anchor[:, :items] = anchor_ids[None, :] == anchor_ids[:, None]
    excluded = same_text | itself | same_anchor
    excluded[torch.arange(items), torch.arange(items)] = False
    return excluded


def in_batch_loss(
    model: nn.Module, ids: Tensor, mask: Tensor, *, columns: int, objective: Objective, chunk: int
) -> LossPart:
    """The loss of an effective batch, weight: its items; its gradient is exact whatever the chunk.

    Args:
        ids, mask: (columns x items, longest), column after column.
        objective: gets the columns of all ranks' items, in the order of ``of_all_ranks``.
        chunk: texts that run with a graph at once.
    """
    items = len(ids) // columns
    if len(ids) <= chunk:
        vectors = _on_every_rank(lambda: model(input_ids=ids, attention_mask=mask), ids.device)
        return _nothing(ids.device, items) if vectors is None else LossPart(_shared(vectors, columns, objective), items)
    pieces = [slice(first, first + chunk) for first in range(0, len(ids), chunk)]
    states: list[_RandomState] = []
    autocast = _autocast_like_now(ids.device)

    def without_graph() -> Tensor:
        rows: list[Tensor] = []
        with torch.no_grad(), autocast():
            for piece in pieces:
                states.append(_RandomState(ids.device))
                rows.append(_run(model, ids[piece], mask[piece]))
        return torch.cat(rows)

    leaf = _on_every_rank(without_graph, ids.device)
    if leaf is None:
        return _nothing(ids.device, items)
    total = _shared(leaf.requires_grad_(), columns, objective)
    (gradients,) = torch.autograd.grad(total, leaf)

    def replay(scale: Tensor) -> None:
        for piece, state in zip(pieces, states, strict=True):
            with torch.enable_grad(), autocast(), state.replayed():
                vectors = _run(model, ids[piece], mask[piece])
                (vectors * (gradients[piece] * scale)).sum().backward()  # type: ignore[no-untyped-call]

    return LossPart(_replayed(total.detach(), replay), items)


def of_all_ranks(tensor: Tensor) -> Tensor:
    """The rows of all ranks, rank after rank, without gradients; of a lone process its own."""
    return torch.cat(_gathered(tensor))


class _Replayed(torch.autograd.Function):
    """A number that is known already, whose gradient is brought about by running the chunks again."""

    @staticmethod
    def forward(ctx: Any, trigger: Tensor, value: Tensor, replay: Callable[[Tensor], None]) -> Tensor:
        ctx.replay = replay
        return value + trigger

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        ctx.replay(gradients[0])
        return None, None, None


def _replayed(value: Tensor, replay: Callable[[Tensor], None]) -> Tensor:
    trigger = torch.zeros((), device=value.device, requires_grad=True)
    number: Tensor = _Replayed.apply(trigger, value, replay)  # type: ignore[no-untyped-call]
    return number


def _nothing(device: torch.device, items: int) -> LossPart:
    """The loss of a rank that got through where another did not: the step will be run again by all."""
    return LossPart(_replayed(torch.zeros((), device=device), lambda _: None), items)


def _on_every_rank(run: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """What ``run`` gives, or None where it failed on another rank.

    A rank that ran out of memory says so before it raises: the others would wait for its vectors forever.
    """
    found: Tensor | None = None
    try:
        found = run()
    finally:
        everywhere = _minimum(int(found is not None), device)
    return found if everywhere else None


def _minimum(number: int, device: torch.device) -> int:
    if _place()[1] == 1:
        return number
    held = torch.tensor([number], device=device)
    all_reduce(held, ReduceOp.MIN)
    return int(held)


def _shared(vectors: Tensor, columns: int, objective: Objective) -> Tensor:
    """The sum of this rank's items' losses, whose gradient is that of all ranks' sum with respect to its vectors."""
    own = vectors.float().chunk(columns)
    parts = [_gathered(column) for column in own]
    rank, ranks = _place()
    whole = [torch.cat([*part[:rank], column, *part[rank + 1 :]]) for part, column in zip(parts, own, strict=True)]
    with torch.autocast(vectors.device.type, enabled=False):  # cosines in bfloat16 would tie where they differ
        mean = objective(whole)
    total = mean * len(whole[0])
    if ranks == 1:
        return total
    share = mean * len(own[0])
    return total + (share - total).detach()  # the value of the share, the gradient of the whole


def _gathered(tensor: Tensor) -> list[Tensor]:
    """Every rank's rows, which may be differently many."""
    _, ranks = _place()
    tensor = tensor.detach()
    if ranks == 1:
        return [tensor]
    counts = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(ranks)]
    all_gather(counts, torch.tensor([len(tensor)], device=tensor.device))
    most = max(int(count) for count in counts)
    padded = torch.zeros(most, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
    padded[: len(tensor)] = tensor
    found = [torch.empty_like(padded) for _ in range(ranks)]
    all_gather(found, padded)
    return [rows[: int(count)] for rows, count in zip(found, counts, strict=True)]


def _place() -> tuple[int, int]:
    return (get_rank(), get_world_size()) if is_available() and is_initialized() else (0, 1)


def _run(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """A chunk without the columns that are padding in all its texts."""
    longest = int(mask.sum(1).max())
    vectors: Tensor = model(input_ids=ids[:, :longest], attention_mask=mask[:, :longest])
    return vectors.float()


def _unit(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=1)


def _autocast_like_now(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """For both forward passes: the second one runs in the backward pass, where autocast is off.

    Without its cache: what it casts without gradients would be used again where gradients are wanted.
    """
    if not torch.is_autocast_enabled(device.type):
        return nullcontext
    dtype = torch.get_autocast_dtype(device.type)
    return lambda: torch.autocast(device.type, dtype=dtype, cache_enabled=False)


class _RandomState:
    """The random numbers that a chunk is about to draw, to be drawn again."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = getattr(torch, device.type) if device.type in ("cuda", "mps") else None
        self._host = torch.get_rng_state()
        self._accelerator = self._module.get_rng_state() if self._module else None

    @contextmanager
    def replayed(self) -> Iterator[None]:
        now = _RandomState(self._device)
        self._restore()
        try:
            yield
        finally:
            now._restore()

    def _restore(self) -> None:
        torch.set_rng_state(self._host)
        if self._module:
            self._module.set_rng_state(self._accelerator)
