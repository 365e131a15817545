"""Cross entropy for one class and for multiple labels, returned as a sum and its weight.

Focal modulation, label smoothing and class weights compose; with all of them off these are torch's cross entropies.
Everything is computed in float32 whatever the logits' dtype. Sums over micro-batches add up to that of the batch.

GradCache: all vectors are computed without a graph, the loss gives the gradient of each vector, and the texts then run
again in chunks with a graph, each chunk backpropagating its vectors' gradients. Chunking changes neither loss nor
gradient; random numbers (dropout) are replayed. Each rank gathers the vectors of all, so that the summed gradients are
those of a single process; every rank must take part in every effective batch.

Source: Gao et al. 2021, arXiv 2101.06983, as in sentence-transformers' base/losses/gradcache.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from backend.training.records import LossPart

IGNORED = -100  # torch's and transformers' mark of a token that has no label of its own
_EPSILON = 2.0**-23  # float32's; below it 1 - p is rounding error, and the gradient of a fractional power is infinite
Objective = Callable[[Sequence[Tensor]], Tensor]  # vectors of the whole batch, a tensor per column -> mean loss
_SCALE = 20.0  # 1 / temperature of the cosines; sentence-transformers' default for both losses


def classification_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    focal_gamma: float = 0.0,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    weight: float | None = None,
) -> LossPart:
    """Cross entropy of one class per item or token.

    Shapes: logits (…, labels); targets (…) int64, ``IGNORED`` where there is none, or (…, labels) float for shares of
    classes (mixup, distillation); class_weights (labels). With a target q, after smoothing, an item's loss is
    ``-sum over labels of class_weight * q * (1 - p)^gamma * log p``, and its share of the weight is the class weight of
    its target (of shares: their mean). total / weight is then ``F.cross_entropy``'s mean, and a share of one for one
    class is the same as that class.

    Args:
        focal_gamma: how strongly well classified items are down-weighted; 2 is usual, 0 turns it off.
        label_smoothing: share of the target spread over all labels.
        weight: ``target_weight`` of these targets, computed while they were on the CPU; saves a device synchronization.

    Source: Lin et al. 2017 (focal loss), arXiv 1708.02002; torch's cross_entropy for the rest.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    is_soft = targets.is_floating_point()
    targets = targets.reshape(-1, logits.shape[-1]) if is_soft else targets.reshape(-1)
    if class_weights is not None:
        class_weights = class_weights.to(logits.device, torch.float32)
    if weight is None:
        weight = target_weight(targets, class_weights=class_weights)
    if not is_soft and not focal_gamma:
        total = functional.cross_entropy(
            logits.float(),
            targets,
            class_weights,
            ignore_index=IGNORED,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        return LossPart(total, weight)
    is_counted: Tensor | None = None
    if not is_soft:
        is_counted = targets != IGNORED
        targets = functional.one_hot(targets.clamp_min(0).where(is_counted, 0), logits.shape[-1])
    target_shares = _smoothed(targets.float(), label_smoothing, logits.shape[-1])
    losses = _focal(functional.log_softmax(logits.float(), dim=-1), focal_gamma)
    if class_weights is not None:
        losses = losses * class_weights
    losses = (target_shares * losses).sum(dim=-1)
    return LossPart((losses if is_counted is None else losses.masked_fill(~is_counted, 0.0)).sum(), weight)


def target_weight(targets: Tensor, *, class_weights: Tensor | None = None) -> float:
    """The weight of the loss of these targets: how many are not ignored, each times the weight of its class.

    Shapes: targets (…) int64 or (…, labels) float. Synchronizes with the device unless they are on the CPU.
    """
    if targets.is_floating_point():
        if class_weights is None:
            return float(targets.numel() // targets.shape[-1])
        return float((targets.float() * class_weights.to(targets.device)).sum())
    counted = targets[targets != IGNORED]
    return float(counted.numel() if class_weights is None else class_weights.to(targets.device)[counted].sum())


def multilabel_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    focal_gamma: float = 0.0,
    label_smoothing: float = 0.0,
    positive_weights: Tensor | None = None,
) -> LossPart:
    """Binary cross entropy of each label, for multi-label targets.

    Shapes: logits and targets (…, labels), targets 0 to 1 or ``IGNORED`` where unknown; positive_weights
    (labels), of positive targets. The weight counts the known targets, so that total / weight is the mean of
    ``F.binary_cross_entropy_with_logits``. Smoothing moves targets towards a half.
    """
    logits, targets = logits.float(), targets.float()
    is_known = targets != IGNORED
    targets = _smoothed(targets.where(is_known, 0.0), label_smoothing, 2)
    positive_losses = targets * _focal(functional.logsigmoid(logits), focal_gamma)
    if positive_weights is not None:
        positive_losses = positive_losses * positive_weights.to(logits.device, torch.float32)
    losses = positive_losses + (1 - targets) * _focal(functional.logsigmoid(-logits), focal_gamma)
    return LossPart(losses.masked_fill(~is_known, 0.0).sum(), float(is_known.sum()))


def balanced_class_weights(counts: Sequence[int]) -> Tensor:
    """Weights that balance the classes: items / (classes * items of the class); their mean over the items is 1.

    A class without items gets 1 and is not counted: only label smoothing uses it.
    Source: scikit-learn's class_weight="balanced".
    """
    present = [count for count in counts if count > 0]
    return torch.tensor([sum(present) / (len(present) * count) if count > 0 else 1.0 for count in counts])


def balanced_positive_weights(positives: Sequence[int], items: int) -> Tensor:
    """For multi-label targets: items without a label per item with it; 1 where none or all have it."""
    return torch.tensor([(items - count) / count if 0 < count < items else 1.0 for count in positives])


def _focal(log_p: Tensor, gamma: float) -> Tensor:
    """-(1 - p)^gamma * log p, of every label; gradients stay finite where p rounds to 1."""
    if not gamma:
        return -log_p
    return -((-torch.expm1(log_p)).clamp_min(_EPSILON) ** gamma) * log_p


def _smoothed(targets: Tensor, smoothing: float, ways: int) -> Tensor:
    return targets * (1 - smoothing) + smoothing / ways if smoothing else targets


def multiple_negatives(anchors: Tensor, candidates: Tensor, excluded: Tensor) -> Tensor:
    """Multiple negatives ranking loss: mean cross entropy of scaled cosines, each anchor's own candidate the target.

    Shapes: anchors (items, width); candidates (at least items, width), the first ones in the anchors' order;
    excluded (items, candidates) bool: true for candidates of other rows that are positives of an anchor, too.
    Source: Henderson et al. 2017, arXiv 1705.00652.
    """
    scores = _SCALE * _normalize(anchors) @ _normalize(candidates).T
    own_index = torch.arange(len(anchors), device=anchors.device)
    return nn.functional.cross_entropy(scores.masked_fill(excluded, -torch.inf), own_index)


def cosent(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """CoSENT loss: log(1 + sum of exp(scaled cosine gaps in the wrong order)). Zero for equal scores.

    Shapes: first and second (items, width), scores (items).
    Source: Su 2022, kexue.fm/archives/8847, as in sentence-transformers' CoSENTLoss.
    """
    cosines = _SCALE * (_normalize(first) * _normalize(second)).sum(1)
    gaps = cosines[:, None] - cosines[None, :]  # of row i above column j, wrong where i's score is below j's
    wrong = gaps.masked_fill(~(scores[:, None] < scores[None, :]), -torch.inf)
    return torch.logsumexp(torch.cat([cosines.new_zeros(1), wrong.flatten()]), 0)


def known_positives(anchor_ids: Tensor, candidate_ids: Tensor) -> Tensor:
    """Mask of false negatives: copies of the anchor's candidate or of the anchor, and candidates of equal anchors.

    Shapes: anchor_ids (items), candidate_ids (at least items), equal ids for equal texts -> (items, candidates) bool.
    """
    items = len(anchor_ids)
    own_ids = candidate_ids[:items]
    same_text = candidate_ids[None, :] == own_ids[:, None]
    is_anchor = candidate_ids[None, :] == anchor_ids[:, None]
    same_anchor = torch.zeros_like(same_text)
    same_anchor[:, :items] = anchor_ids[None, :] == anchor_ids[:, None]
    excluded = same_text | is_anchor | same_anchor
    excluded[torch.arange(items), torch.arange(items)] = False
    return excluded


def in_batch_loss(
    model: nn.Module, ids: Tensor, mask: Tensor, *, columns: int, objective: Objective, chunk: int
) -> LossPart:
    """The loss of an effective batch, its weight the number of items; the gradient is exact for any chunk.

    Args:
        ids, mask: (columns x items, longest), column after column.
        objective: gets the columns of all ranks' items, in the order of ``gather_from_ranks``.
        chunk: number of texts that run with a graph at once.
    """
    items = len(ids) // columns
    if len(ids) <= chunk:
        vectors = _on_every_rank(lambda: model(input_ids=ids, attention_mask=mask), ids.device)
        if vectors is None:
            return _zero_loss(ids.device, items)
        return LossPart(_global_loss(vectors, columns, objective), items)
    chunks = [slice(first, first + chunk) for first in range(0, len(ids), chunk)]
    states: list[_RandomState] = []
    autocast = _current_autocast(ids.device)

    def without_graph() -> Tensor:
        rows: list[Tensor] = []
        with torch.no_grad(), autocast():
            for chunk_slice in chunks:
                states.append(_RandomState(ids.device))
                rows.append(_run(model, ids[chunk_slice], mask[chunk_slice]))
        return torch.cat(rows)

    detached_vectors = _on_every_rank(without_graph, ids.device)
    if detached_vectors is None:
        return _zero_loss(ids.device, items)
    total = _global_loss(detached_vectors.requires_grad_(), columns, objective)
    (gradients,) = torch.autograd.grad(total, detached_vectors)

    def replay(scale: Tensor) -> None:
        for chunk_slice, state in zip(chunks, states, strict=True):
            with torch.enable_grad(), autocast(), state.replayed():
                vectors = _run(model, ids[chunk_slice], mask[chunk_slice])
                (vectors * (gradients[chunk_slice] * scale)).sum().backward()  # type: ignore[no-untyped-call]

    return LossPart(_replayed(total.detach(), replay), items)


def gather_from_ranks(tensor: Tensor) -> Tensor:
    """The rows of all ranks, rank after rank, without gradients; without torch.distributed the tensor's own."""
    return torch.cat(_gather(tensor))


class _Replayed(torch.autograd.Function):
    """A known loss value whose backward pass runs the chunks again."""

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


def _zero_loss(device: torch.device, items: int) -> LossPart:
    """The loss of a rank that succeeded where another failed: all ranks will repeat the step."""
    return LossPart(_replayed(torch.zeros((), device=device), lambda _: None), items)


def _on_every_rank(run: Callable[[], Tensor], device: torch.device) -> Tensor | None:
    """The result of ``run``, or None where it failed on another rank.

    A rank that runs out of memory reports it before raising: the others would wait for its vectors forever.
    """
    result: Tensor | None = None
    try:
        result = run()
    finally:
        succeeded_everywhere = _minimum(int(result is not None), device)
    return result if succeeded_everywhere else None


def _minimum(number: int, device: torch.device) -> int:
    if _rank_and_world_size()[1] == 1:
        return number
    minimum = torch.tensor([number], device=device)
    distributed.all_reduce(minimum, distributed.ReduceOp.MIN)
    return int(minimum)


def _global_loss(vectors: Tensor, columns: int, objective: Objective) -> Tensor:
    """The loss sum of this rank's items, with the gradient of all ranks' sum with respect to its vectors."""
    own_columns = vectors.float().chunk(columns)
    gathered = [_gather(column) for column in own_columns]
    rank, ranks = _rank_and_world_size()
    pairs = zip(gathered, own_columns, strict=True)
    all_columns = [torch.cat([*rows[:rank], column, *rows[rank + 1 :]]) for rows, column in pairs]
    with torch.autocast(vectors.device.type, enabled=False):  # cosines in bfloat16 would tie where they differ
        mean = objective(all_columns)
    total = mean * len(all_columns[0])
    if ranks == 1:
        return total
    share = mean * len(own_columns[0])
    return total + (share - total).detach()  # the value of this rank's share, the gradient of the total


def _gather(tensor: Tensor) -> list[Tensor]:
    """The rows of every rank, whose counts may differ."""
    _, ranks = _rank_and_world_size()
    tensor = tensor.detach()
    if ranks == 1:
        return [tensor]
    counts = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(ranks)]
    distributed.all_gather(counts, torch.tensor([len(tensor)], device=tensor.device))
    longest = max(int(count) for count in counts)
    padded = torch.zeros(longest, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
    padded[: len(tensor)] = tensor
    gathered = [torch.empty_like(padded) for _ in range(ranks)]
    distributed.all_gather(gathered, padded)
    return [rows[: int(count)] for rows, count in zip(gathered, counts, strict=True)]


def _rank_and_world_size() -> tuple[int, int]:
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _run(model: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Run a chunk without the columns that are padding in all its texts."""
    longest = int(mask.sum(1).max())
    vectors: Tensor = model(input_ids=ids[:, :longest], attention_mask=mask[:, :longest])
    return vectors.float()


def _normalize(vectors: Tensor) -> Tensor:
    return nn.functional.normalize(vectors, dim=1)


def _current_autocast(device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """The current autocast, for both forward passes: the second runs in the backward pass, where autocast is off.

    Without its cache: weights cast without gradients would be reused where gradients are needed.
    """
    if not torch.is_autocast_enabled(device.type):
        return nullcontext
    dtype = torch.get_autocast_dtype(device.type)
    return lambda: torch.autocast(device.type, dtype=dtype, cache_enabled=False)


class _RandomState:
    """The state of the random generators before a chunk, to replay its random numbers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = getattr(torch, device.type) if device.type in ("cuda", "mps") else None
        self._host = torch.get_rng_state()
        self._accelerator = self._module.get_rng_state() if self._module else None

    @contextmanager
    def replayed(self) -> Iterator[None]:
        current = _RandomState(self._device)
        self._restore()
        try:
            yield
        finally:
            current._restore()

    def _restore(self) -> None:
        torch.set_rng_state(self._host)
        if self._module:
            self._module.set_rng_state(self._accelerator)
