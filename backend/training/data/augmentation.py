"""Augmentation of training images: RandAugment, a gentler policy for documents, mixup and cutmix, from a given seed.

Every random number comes from (seed, epoch, example), never from torch's global generator: a run sees the same images
with any number of loader threads, any micro-batch size, and after a resume. The operations are kornia's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from kornia import enhance
from kornia.filters import gaussian_blur2d
from kornia.geometry.transform import warp_affine
from torch import Tensor

from backend.errors import BadSettings

Policy = Literal["none", "document", "randaugment"]
_MAGNITUDE_MAX = 30  # RandAugment's scale (Cubuk et al. 2020)
_BACKGROUND = 1.0  # white: fills what a rotated or moved page leaves empty


@dataclass(frozen=True, slots=True)
class AugmentConfig:
    """How training images are augmented. Raises: BadSettings with every fault at once."""

    policy: Policy = "document"  # "randaugment" rotates up to 30 degrees and solarizes: for photographs, not for pages
    operations: int = 2  # different operations per image
    magnitude: int = 9  # 1 to 30; the paper's own choice for small models
    mixup_alpha: float = 0.0  # of Beta(alpha, alpha); 0, off: two overlaid pages are no real document
    cutmix_alpha: float = 0.0  # 0, off: a letterhead in an invoice says more about the class than its area
    mix_probability: float = 1.0  # share of images that are mixed, where an alpha is set

    def __post_init__(self) -> None:
        """Check all fields before raising."""
        is_known, operation_count = self.policy in _POLICIES, len(_POLICIES.get(self.policy, ()))
        checks = [
            (f"policy={self.policy!r}: use none, document or randaugment", not is_known),
            (
                f"operations={self.operations}: must be 1 to {operation_count} for {self.policy}",
                bool(operation_count) and not 1 <= self.operations <= operation_count,
            ),
            (f"magnitude={self.magnitude}: must be 1 to {_MAGNITUDE_MAX}", not 1 <= self.magnitude <= _MAGNITUDE_MAX),
            (f"mixup_alpha={self.mixup_alpha:g}: must not be negative", not self.mixup_alpha >= 0),
            (f"cutmix_alpha={self.cutmix_alpha:g}: must not be negative", not self.cutmix_alpha >= 0),
            (f"mix_probability={self.mix_probability:g}: must be from 0 to 1", not 0 <= self.mix_probability <= 1),
        ]
        faults = [fault for fault, wrong in checks if wrong]
        if faults:
            raise BadSettings(faults)

    @property
    def mixes(self) -> bool:
        """Whether images are mixed, and so targets are soft."""
        return self.mix_probability > 0 and (self.mixup_alpha > 0 or self.cutmix_alpha > 0)


@dataclass(frozen=True, slots=True)
class Mix:
    """Which other example is mixed into an image, and how much of it."""

    partner: int  # index of the training example
    share: float  # weight of the partner in the target, 0 to 1
    box: tuple[int, int, int, int] | None = None  # cutmix: top, left, bottom, right in px; None for mixup


@dataclass(frozen=True, slots=True)
class _Operation:
    """An image operation: no change at amount 0, ``limit`` at magnitude 30."""

    apply: Callable[[Tensor, float], Tensor]  # (1, 3, height, width_px) in [0, 1], amount -> the same
    limit: float = 0.0
    signed: bool = False  # the sign of the amount is random


def random_for(seed: int, epoch: int, index: int, *, stream: int = 0) -> np.random.Generator:
    """The random generator of one example in one epoch; streams are independent of one another."""
    return np.random.default_rng([abs(seed), epoch, index, stream])


def augment(image: Tensor, config: AugmentConfig, random: np.random.Generator) -> Tensor:
    """Apply ``config.operations`` random operations of the policy, in random order.

    Shapes: (3, height, width_px) float32 in [0, 1] -> the same. Amounts are symmetric around "no change", as in the
    paper; kornia's own RandAugment maps magnitude 9 to darker only.
    """
    operations = list(_POLICIES[config.policy].values())
    if not operations:
        return image
    page = image.unsqueeze(0)
    for index in random.permutation(len(operations))[: config.operations]:
        operation = operations[index]
        sign = -1.0 if operation.signed and random.random() < 0.5 else 1.0
        page = operation.apply(page, sign * operation.limit * config.magnitude / _MAGNITUDE_MAX)
    if config.policy == "document":
        page = _with_grain(page, random, config.magnitude / _MAGNITUDE_MAX)
    return page.squeeze(0).clamp(0.0, 1.0)


def draw_mix(
    config: AugmentConfig, random: np.random.Generator, *, examples: int, height: int, width_px: int
) -> Mix | None:
    """Draw whether to mix an image and with which; mixup and cutmix are equally likely where both are on.

    The partner is any training example, not one of the same batch, so that a batch can be split anywhere.
    """
    if not config.mixes or random.random() >= config.mix_probability:
        return None
    is_cutmix = config.cutmix_alpha > 0 and (config.mixup_alpha <= 0 or random.random() < 0.5)
    alpha = config.cutmix_alpha if is_cutmix else config.mixup_alpha
    share, partner = float(random.beta(alpha, alpha)), int(random.integers(examples))
    if not is_cutmix:
        return Mix(partner, share)
    box = _box(random, share, height, width_px)
    area = (box[2] - box[0]) * (box[3] - box[1])
    return Mix(partner, area / (height * width_px), box)


def blend(image: Tensor, partner: Tensor, mix: Mix) -> Tensor:
    """Mixup: a weighted mean (Zhang et al. 2018). Cutmix: a rectangle of the partner (Yun et al. 2019).

    Shapes: all (3, height, width_px) float.
    """
    if mix.box is None:
        return torch.lerp(image, partner, mix.share)
    top, left, bottom, right = mix.box
    mixed = image.clone()
    mixed[:, top:bottom, left:right] = partner[:, top:bottom, left:right]
    return mixed


def soft_target(label: int, partner_label: int, share: float, labels: int) -> Tensor:
    """The target of a mixed image: (labels,) float32 that sums to 1."""
    target = torch.zeros(labels)
    target[label] += 1.0 - share
    target[partner_label] += share
    return target


def _box(random: np.random.Generator, share: float, height: int, width_px: int) -> tuple[int, int, int, int]:
    """A rectangle of ``share`` of the area around a random point, clipped to the image."""
    half_height, half_width = math.sqrt(share) * height / 2, math.sqrt(share) * width_px / 2
    middle_y, middle_x = random.uniform(0, height), random.uniform(0, width_px)
    top, bottom = (min(height, max(0, round(middle_y + side))) for side in (-half_height, half_height))
    left, right = (min(width_px, max(0, round(middle_x + side))) for side in (-half_width, half_width))
    return top, left, bottom, right


def _warp(page: Tensor, matrix: tuple[tuple[float, float], tuple[float, float]], move: tuple[float, float]) -> Tensor:
    """Apply ``matrix`` around the centre, then move by shares of width and height; empty areas become white."""
    height, width_px = page.shape[-2:]
    middle = torch.tensor([(width_px - 1) / 2, (height - 1) / 2])
    linear = torch.tensor(matrix)
    shift = middle - linear @ middle + torch.tensor([move[0] * width_px, move[1] * height])
    forward = torch.cat([linear, shift.unsqueeze(1)], dim=1).unsqueeze(0)
    return warp_affine(page, forward, (height, width_px), padding_mode="fill", fill_value=torch.full((3,), _BACKGROUND))


def _rotate(page: Tensor, degrees: float) -> Tensor:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return _warp(page, ((cosine, sine), (-sine, cosine)), (0.0, 0.0))


def _color(page: Tensor, amount: float) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)  # ITU-R BT.601, as Pillow's own grey
    return torch.lerp((page * weights).sum(dim=1, keepdim=True).expand_as(page), page, 1.0 + amount).clamp(0.0, 1.0)


def _blur(page: Tensor, sigma_px: float) -> Tensor:
    return gaussian_blur2d(page, (5, 5), (sigma_px, sigma_px), border_type="replicate")


def _with_grain(page: Tensor, random: np.random.Generator, share: float) -> Tensor:
    """Add scanner noise of a random strength, at most 5 % of the value range."""
    sigma = 0.05 * share * random.random()
    return page + torch.from_numpy(random.standard_normal(page.shape, dtype=np.float32)) * sigma


_LINE = ((1.0, 0.0), (0.0, 1.0))
_BRIGHTNESS, _CONTRAST = enhance.adjust_contrast, enhance.adjust_contrast_with_mean_subtraction  # Pillow's names
_POLICIES: Mapping[str, Mapping[str, _Operation]] = {
    "none": {},
    # Distortions of scanners and phones. No flips or inversion, nothing that moves text out of the page.
    "document": {
        "rotate": _Operation(_rotate, 10.0, signed=True),
        "shear_x": _Operation(
            lambda page, amount: _warp(page, ((1.0, amount), (0.0, 1.0)), (0.0, 0.0)), 0.1, signed=True
        ),
        "scale": _Operation(
            lambda page, amount: _warp(page, ((1.0 + amount, 0.0), (0.0, 1.0 + amount)), (0.0, 0.0)), 0.2, signed=True
        ),
        "translate_x": _Operation(lambda page, amount: _warp(page, _LINE, (amount, 0.0)), 0.1, signed=True),
        "translate_y": _Operation(lambda page, amount: _warp(page, _LINE, (0.0, amount)), 0.1, signed=True),
        "brightness": _Operation(lambda page, amount: _BRIGHTNESS(page, 1.0 + amount), 0.5, signed=True),
        "contrast": _Operation(lambda page, amount: _CONTRAST(page, 1.0 + amount), 0.7, signed=True),
        "color": _Operation(lambda page, amount: _color(page, -amount), 1.0),
        "blur": _Operation(_blur, 2.0),
    },
    # The paper's fourteen, with its amounts as torchvision has them (RandAugment._augmentation_space).
    "randaugment": {
        "identity": _Operation(lambda page, _: page),
        "auto_contrast": _Operation(lambda page, _: enhance.normalize_min_max(page)),
        "equalize": _Operation(lambda page, _: enhance.equalize(page)),
        "rotate": _Operation(_rotate, 30.0, signed=True),
        "solarize": _Operation(lambda page, amount: enhance.solarize(page, 1.0 - amount), 1.0),
        "color": _Operation(_color, 0.9, signed=True),
        "posterize": _Operation(lambda page, amount: enhance.posterize(page, 8 - round(amount)), 4.0),
        "contrast": _Operation(lambda page, amount: _CONTRAST(page, 1.0 + amount), 0.9, signed=True),
        "brightness": _Operation(lambda page, amount: _BRIGHTNESS(page, 1.0 + amount), 0.9, signed=True),
        "sharpness": _Operation(lambda page, amount: enhance.sharpness(page, 1.0 + amount), 0.9, signed=True),
        "shear_x": _Operation(
            lambda page, amount: _warp(page, ((1.0, amount), (0.0, 1.0)), (0.0, 0.0)), 0.3, signed=True
        ),
        "shear_y": _Operation(
            lambda page, amount: _warp(page, ((1.0, 0.0), (amount, 1.0)), (0.0, 0.0)), 0.3, signed=True
        ),
        "translate_x": _Operation(lambda page, amount: _warp(page, _LINE, (amount, 0.0)), 0.45, signed=True),
        "translate_y": _Operation(lambda page, amount: _warp(page, _LINE, (0.0, amount)), 0.45, signed=True),
    },
}
