"""Cross entropy for one class and for multiple labels, returned as a sum and its weight.

Focal modulation, label smoothing and class weights compose; with all of them off these are torch's cross entropies.
Everything is computed in float32 whatever the logits' dtype. Sums over micro-batches add up to that of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from backend.training.records import LossPart

IGNORED = -100  # torch's and transformers' mark of a token that has no label of its own
_EPSILON = 2.0**-23  # float32's; below it 1 - p is rounding error, and the gradient of a fractional power is infinite


def classification_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    focal_gamma: float = 0.0,
    label_smoothing: float = 0.0,
    class_weights: Tensor | None = None,
    ignore_index: int = IGNORED,
    weight: float | None = None,
) -> LossPart:
    """Cross entropy of one class per item or token.

    Shapes: logits (…, labels); targets (…) int64, or (…, labels) float for shares of classes (mixup, distillation);
    class_weights (labels). With a target q, after smoothing, an item's loss is
    ``-sum over labels of class_weight * q * (1 - p)^gamma * log p``, and its share of the weight is the class weight of
    its target (of shares: their mean). total / weight is then ``F.cross_entropy``'s mean, and a share of one for one
    class is the same as that class.

    Args:
        focal_gamma: how strongly well classified items are down-weighted; 2 is usual, 0 turns it off.
        label_smoothing: share of the target spread over all labels.
        ignore_index: int64 targets to ignore.
        weight: ``target_weight`` of these targets, computed while they were on the CPU; saves a device synchronization.

    Source: Lin et al. 2017 (focal loss), arXiv 1708.02002; torch's cross_entropy for the rest.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    is_soft = targets.is_floating_point()
    targets = targets.reshape(-1, logits.shape[-1]) if is_soft else targets.reshape(-1)
    if class_weights is not None:
        class_weights = class_weights.to(logits.device, torch.float32)
    if weight is None:
        weight = target_weight(targets, class_weights=class_weights, ignore_index=ignore_index)
    if not is_soft and not focal_gamma:
        total = functional.cross_entropy(
            logits.float(),
            targets,
            class_weights,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction="sum",
        )
        return LossPart(total, weight)
    is_counted: Tensor | None = None
    if not is_soft:
        is_counted = targets != ignore_index
        targets = functional.one_hot(targets.clamp_min(0).where(is_counted, 0), logits.shape[-1])
    target_shares = _smoothed(targets.float(), label_smoothing, logits.shape[-1])
    losses = _focal(functional.log_softmax(logits.float(), dim=-1), focal_gamma)
    if class_weights is not None:
        losses = losses * class_weights
    losses = (target_shares * losses).sum(dim=-1)
    return LossPart((losses if is_counted is None else losses.masked_fill(~is_counted, 0.0)).sum(), weight)


def target_weight(targets: Tensor, *, class_weights: Tensor | None = None, ignore_index: int = IGNORED) -> float:
    """The weight of the loss of these targets: how many are not ignored, each times the weight of its class.

    Shapes: targets (…) int64 or (…, labels) float. Synchronizes with the device unless they are on the CPU.
    """
    if targets.is_floating_point():
        if class_weights is None:
            return float(targets.numel() // targets.shape[-1])
        return float((targets.float() * class_weights.to(targets.device)).sum())
    counted = targets[targets != ignore_index]
    return float(counted.numel() if class_weights is None else class_weights.to(targets.device)[counted].sum())


def multilabel_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    focal_gamma: float = 0.0,
    label_smoothing: float = 0.0,
    positive_weights: Tensor | None = None,
    ignore_index: int = IGNORED,
) -> LossPart:
    """Binary cross entropy of each label, for multi-label targets.

    Shapes: logits and targets (…, labels), targets 0 to 1 or ``ignore_index`` where unknown; positive_weights
    (labels), of positive targets. The weight counts the known targets, so that total / weight is the mean of
    ``F.binary_cross_entropy_with_logits``. Smoothing moves targets towards a half.
    """
    logits, targets = logits.float(), targets.float()
    is_known = targets != ignore_index
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
