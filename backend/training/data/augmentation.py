"""Changing training images without changing what they are: RandAugment, mixup and cutmix, drawn from a seed of our own.

Every draw comes from (seed, epoch, example), never from torch's global generator: the same run sees the same images
with any number of loader threads, any cut into micro-batches, and after a resume. The operations are kornia's.
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
_PAPER = 1.0  # what comes into view beside a page that was turned or moved


@dataclass(frozen=True, slots=True)
class AugmentConfig:
    """What may happen to a training image. Raises: BadSettings with every fault at once."""

    policy: Policy = "document"  # "randaugment" turns up to 30 degrees and solarizes: for photographs, not for pages
    operations: int = 2  # different ones, an image
    magnitude: int = 9  # 1 to 30; the paper's own choice for small models
    mixup_alpha: float = 0.0  # of Beta(alpha, alpha); 0 is off: two pages over one another are no document
    cutmix_alpha: float = 0.0  # 0 is off: a patch of a letter in an invoice says more than its share of the area
    mix_probability: float = 1.0  # share of images that are mixed, where an alpha says so

    def __post_init__(self) -> None:
        """Every fault at once."""
        known, most = self.policy in _POLICIES, len(_POLICIES.get(self.policy, ()))
        checks = [
            (f"policy={self.policy!r}: use none, document or randaugment", not known),
            (
                f"operations={self.operations}: must be 1 to {most} for {self.policy}",
                bool(most) and not 1 <= self.operations <= most,
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
        """Whether targets become soft."""
        return self.mix_probability > 0 and (self.mixup_alpha > 0 or self.cutmix_alpha > 0)


@dataclass(frozen=True, slots=True)
class Mix:
    """How much of which other example goes into an image."""

    partner: int  # index of the training example
    share: float  # of the partner in the target, 0 to 1
    box: tuple[int, int, int, int] | None = None  # cutmix: top, left, bottom, right in px; None for mixup


@dataclass(frozen=True, slots=True)
class _Operation:
    """One change, from nothing at amount 0 to ``most`` at magnitude 30."""

    apply: Callable[[Tensor, float], Tensor]  # (1, 3, height, width_px) in [0, 1], amount -> the same
    most: float = 0.0
    signed: bool = False  # either direction, by chance


def random_for(seed: int, epoch: int, index: int, *, stream: int = 0) -> np.random.Generator:
    """The draws of one example in one epoch; another ``stream`` draws independently."""
    return np.random.default_rng([abs(seed), epoch, index, stream])


def augment(image: Tensor, config: AugmentConfig, random: np.random.Generator) -> Tensor:
    """Some operations of the policy, each at the magnitude, in a drawn order.

    Shapes: (3, height, width_px) float32 in [0, 1] -> the same. Amounts are symmetric around "no change", as in the
    paper; kornia's own RandAugment maps magnitude 9 to darker only.
    """
    table = list(_POLICIES[config.policy].values())
    if not table:
        return image
    page = image.unsqueeze(0)
    for place in random.permutation(len(table))[: config.operations]:
        one = table[place]
        sign = -1.0 if one.signed and random.random() < 0.5 else 1.0
        page = one.apply(page, sign * one.most * config.magnitude / _MAGNITUDE_MAX)
    if config.policy == "document":
        page = _with_grain(page, random, config.magnitude / _MAGNITUDE_MAX)
    return page.squeeze(0).clamp(0.0, 1.0)


def draw_mix(
    config: AugmentConfig, random: np.random.Generator, *, examples: int, height: int, width_px: int
) -> Mix | None:
    """Whether and with what to mix an image; where both kinds are on, each has half the chance.

    The partner is any training example and not a neighbour in the batch, so that a batch can be cut anywhere.
    """
    if not config.mixes or random.random() >= config.mix_probability:
        return None
    cuts = config.cutmix_alpha > 0 and (config.mixup_alpha <= 0 or random.random() < 0.5)
    alpha = config.cutmix_alpha if cuts else config.mixup_alpha
    share, partner = float(random.beta(alpha, alpha)), int(random.integers(examples))
    if not cuts:
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
    """A rectangle of about ``share`` of the area around any point; what lies outside of the image is cut off."""
    half_height, half_width = math.sqrt(share) * height / 2, math.sqrt(share) * width_px / 2
    middle_y, middle_x = random.uniform(0, height), random.uniform(0, width_px)
    top, bottom = (min(height, max(0, round(middle_y + side))) for side in (-half_height, half_height))
    left, right = (min(width_px, max(0, round(middle_x + side))) for side in (-half_width, half_width))
    return top, left, bottom, right


def _warp(page: Tensor, matrix: tuple[tuple[float, float], tuple[float, float]], move: tuple[float, float]) -> Tensor:
    """Turn, shear or scale around the middle, then move by shares of width and height; paper comes into view."""
    height, width_px = page.shape[-2:]
    middle = torch.tensor([(width_px - 1) / 2, (height - 1) / 2])
    linear = torch.tensor(matrix)
    shift = middle - linear @ middle + torch.tensor([move[0] * width_px, move[1] * height])
    forward = torch.cat([linear, shift.unsqueeze(1)], dim=1).unsqueeze(0)
    return warp_affine(page, forward, (height, width_px), padding_mode="fill", fill_value=torch.full((3,), _PAPER))


def _rotate(page: Tensor, degrees: float) -> Tensor:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return _warp(page, ((cosine, sine), (-sine, cosine)), (0.0, 0.0))


def _color(page: Tensor, amount: float) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)  # ITU-R BT.601, as Pillow's own grey
    return torch.lerp((page * weights).sum(dim=1, keepdim=True).expand_as(page), page, 1.0 + amount).clamp(0.0, 1.0)


def _blur(page: Tensor, sigma_px: float) -> Tensor:
    return gaussian_blur2d(page, (5, 5), (sigma_px, sigma_px), border_type="replicate")


def _with_grain(page: Tensor, random: np.random.Generator, share: float) -> Tensor:
    """A scanner's noise: up to 5 % of the range, less in most images."""
    sigma = 0.05 * share * random.random()
    return page + torch.from_numpy(random.standard_normal(page.shape, dtype=np.float32)) * sigma


_LINE = ((1.0, 0.0), (0.0, 1.0))
_BRIGHTNESS, _CONTRAST = enhance.adjust_contrast, enhance.adjust_contrast_with_mean_subtraction  # Pillow's names
_POLICIES: Mapping[str, Mapping[str, _Operation]] = {
    "none": {},
    # Amounts that a scanner or a phone makes; no mirror, no inversion, nothing that moves text out of the page.
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
