"""Losses equal torch's where nothing is added, compose where something is, and add up over any cut."""

import pytest
import torch
from torch.nn import functional

from backend.training.losses import (
    balanced_class_weights,
    balanced_positive_weights,
    classification_loss,
    multilabel_loss,
    target_weight,
)

WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.25])
OPTIONS = [
    pytest.param({}, id="plain"),
    pytest.param({"label_smoothing": 0.1}, id="smoothing"),
    pytest.param({"class_weights": WEIGHTS}, id="weights"),
    pytest.param({"label_smoothing": 0.2, "class_weights": WEIGHTS}, id="both"),
]
FOCAL = [*OPTIONS, pytest.param({"focal_gamma": 2.0, "label_smoothing": 0.1, "class_weights": WEIGHTS}, id="all")]


def samples(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of four classes with a target each, some of them ignored."""
    random = torch.Generator().manual_seed(7)
    targets = torch.randint(0, 4, shape, generator=random)
    targets.flatten()[::3] = -100
    return torch.randn(*shape, 4, generator=random).mul(3).requires_grad_(), targets


def mean_and_slope(logits: torch.Tensor, part) -> tuple[torch.Tensor, torch.Tensor]:
    mean = part.total / part.weight
    return mean.detach(), torch.autograd.grad(mean, logits)[0]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", [(10,), (4, 6)], ids=["items", "tokens"])
def test_it_is_torchs_cross_entropy(shape, options):
    """Without focal modulation total / weight is F.cross_entropy's mean, slopes included."""
    logits, targets = samples(*shape)
    renamed = {"weight" if name == "class_weights" else name: value for name, value in options.items()}
    expected = functional.cross_entropy(logits.reshape(-1, 4), targets.reshape(-1), **renamed)

    mean, slope = mean_and_slope(logits, classification_loss(logits, targets, **options))

    torch.testing.assert_close(mean, expected.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(expected, logits)[0])


@pytest.mark.parametrize("options", FOCAL)
def test_a_whole_share_is_that_class(options):
    """Mixup that mixes nothing changes neither the loss nor its slope, class weights and focal modulation included."""
    logits, targets = samples(9)
    kept = targets != -100
    hard = classification_loss(logits[kept], targets[kept], **options)
    soft = classification_loss(logits[kept], functional.one_hot(targets[kept], 4).float(), **options)

    assert hard.weight == pytest.approx(soft.weight)
    for one, other in zip(mean_and_slope(logits, hard), mean_and_slope(logits, soft), strict=True):
        torch.testing.assert_close(one, other)


def test_focal_modulation_is_lins():
    """With gamma an item counts (1 - p)^gamma times its cross entropy."""
    logits, targets = samples(12)
    kept = targets != -100
    plain = functional.cross_entropy(logits[kept], targets[kept], reduction="none")
    expected = ((1 - torch.exp(-plain)) ** 2 * plain).sum()

    part = classification_loss(logits, targets, focal_gamma=2.0)

    assert float(kept.sum()) == part.weight
    torch.testing.assert_close(part.total, expected)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_nothing_to_learn_is_zero_and_not_nan(gamma):
    """A micro-batch of ignored tokens alone has weight 0, loss 0 and slopes of 0."""
    logits = torch.randn(5, 4, requires_grad=True)

    part = classification_loss(logits, torch.full((5,), -100), focal_gamma=gamma)

    assert part.weight == 0.0
    assert part.total.item() == 0.0
    assert torch.autograd.grad(part.total, logits)[0].abs().sum().item() == 0.0


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_a_sure_answer_has_a_finite_slope(gamma):
    """(1 - p)^gamma has no slope at p = 1; the loss has one, right and wrong answers alike."""
    logits = torch.tensor([[90.0, 0.0], [90.0, 0.0]], requires_grad=True)

    part = classification_loss(logits, torch.tensor([0, 1]), focal_gamma=gamma)

    assert torch.isfinite(part.total)
    assert torch.isfinite(torch.autograd.grad(part.total, logits)[0]).all()


def test_half_precision_logits_are_computed_in_full():
    """bfloat16 logits give a float32 loss: 64 small losses do not vanish in the sum."""
    logits = torch.zeros(300, 2, dtype=torch.bfloat16)

    part = classification_loss(logits, torch.zeros(300, dtype=torch.long))

    assert part.total.dtype == torch.float32
    assert part.total.item() == pytest.approx(300 * torch.log(torch.tensor(2.0)).item(), rel=1e-5)


def test_not_finite_stays_not_finite():
    """NaN can never end as a loss of 0.0."""
    logits = torch.full((2, 3), float("nan"))

    for gamma in (0.0, 2.0):
        assert torch.isnan(classification_loss(logits, torch.tensor([0, 1]), focal_gamma=gamma).total)
    assert torch.isnan(multilabel_loss(logits, torch.ones(2, 3)).total)


def test_the_weight_can_be_counted_beforehand():
    """What target_weight says on the CPU is what the loss uses."""
    logits, targets = samples(10)
    counted = target_weight(targets, class_weights=WEIGHTS)

    assert counted == pytest.approx(float(WEIGHTS[targets[targets != -100]].sum()))
    assert counted == classification_loss(logits, targets, class_weights=WEIGHTS).weight
    assert classification_loss(logits, targets, weight=3.5).weight == 3.5


def test_labels_together_are_torchs_binary_cross_entropy():
    """Without extras the mean over the known answers is F.binary_cross_entropy_with_logits."""
    logits, _ = samples(6)
    targets = torch.randint(0, 2, (6, 4), generator=torch.Generator().manual_seed(3)).float()
    positives = torch.tensor([1.0, 2.0, 3.0, 0.5])
    unknown = targets.clone()
    unknown[2] = -100
    known = [0, 1, 3, 4, 5]
    expected = functional.binary_cross_entropy_with_logits(logits[known], targets[known], pos_weight=positives)

    mean, slope = mean_and_slope(logits, multilabel_loss(logits, unknown, positive_weights=positives))

    torch.testing.assert_close(mean, expected.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(expected, logits)[0])


def test_labels_together_with_focal_modulation_and_smoothing():
    """Focal modulation weighs both sides by what they miss; smoothing draws targets to a half."""
    logits, targets = torch.tensor([[1.5, -2.0]]), torch.tensor([[1.0, 0.0]])
    p = torch.sigmoid(logits)
    true, false = -((1 - p) ** 2) * p.log(), -(p**2) * (1 - p).log()
    expected = 0.9 * true[0, 0] + 0.1 * false[0, 0] + 0.1 * true[0, 1] + 0.9 * false[0, 1]

    part = multilabel_loss(logits, targets, focal_gamma=2.0, label_smoothing=0.2)

    torch.testing.assert_close(part.total, expected)
    assert part.weight == 2.0


def test_balanced_weights():
    """Rare classes weigh more; on the mean of the items a weight is 1; an absent class does not count."""
    weights = balanced_class_weights([90, 10, 0])

    torch.testing.assert_close(weights, torch.tensor([100 / 180, 5.0, 1.0]))
    assert (90 * weights[0] + 10 * weights[1]) / 100 == pytest.approx(1.0)
    torch.testing.assert_close(balanced_positive_weights([10, 0, 100], 100), torch.tensor([9.0, 1.0, 1.0]))
