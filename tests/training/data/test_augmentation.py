"""Augmentation: reproducible from the seed, gentle on documents, with mixup and cutmix as in their papers."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from kornia.augmentation import RandomCutMixV2, RandomMixUpV2
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from backend.errors import BadSettings
from backend.training.data.augmentation import (
    _POLICIES,
    AugmentConfig,
    Mix,
    _Operation,
    augment,
    blend,
    draw_mix,
    random_for,
    soft_target,
)

NAMES = [(policy, name) for policy, table in _POLICIES.items() for name in table]


def letter(height: int = 96, width: int = 64) -> Tensor:
    """A page of lines with a dark block at the top left. Shape: (3, height, width) in [0, 1]."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((6, 6, 24, 16), fill="navy")
    for y in range(24, height - 8, 6):
        draw.line((6, y, width - 8, y), fill="black", width=2)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def as_pillow(page: Tensor) -> Image.Image:
    return Image.fromarray((page * 255).round().byte().permute(1, 2, 0).numpy())


def as_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize("policy", ["document", "randaugment"])
def test_draws_come_from_the_seed_alone(policy: str):
    """Seed, epoch and example determine the image, in any thread and whatever the state of torch's generator."""
    config, page = AugmentConfig(policy=policy, operations=4), letter()

    def changed(number: int) -> Tensor:
        torch.rand(number + 1)
        return augment(page, config, random_for(7, 2, number))

    alone = [changed(number) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(changed, range(12)))

    assert all(torch.equal(image, other) for image, other in zip(alone, together, strict=True))
    assert not any(torch.equal(alone[0], other) for other in alone[1:])


def test_each_epoch_example_and_stream_has_its_own_random_numbers():
    """Another epoch, example, seed or stream draws something else."""
    seen = {tuple(random_for(*key, stream=s).random(3)) for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1)) for s in (0, 1)}

    assert 6 == len(seen)


def test_the_global_generator_is_left_alone():
    """Augmenting in a loader thread must not change the random numbers of dropout."""
    torch.manual_seed(3)
    before = torch.get_rng_state()

    augment(letter(), AugmentConfig(policy="randaugment", operations=14), random_for(0, 0, 0))

    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("policy", "name"), NAMES)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_operation_keeps_the_shape_and_changes_the_picture(policy: str, name: str, sign: int):
    """Finite, of the same shape, in range after the clamp, and different except for identity-like operations."""
    operation, page = _POLICIES[policy][name], letter()

    changed = operation.apply(page[None], (sign if operation.signed else 1) * operation.limit * 0.3)

    assert page[None].shape == changed.shape
    assert torch.isfinite(changed).all()
    unchanged = torch.allclose(changed.clamp(0, 1), page, atol=1e-3)
    assert unchanged == (name in {"identity", "auto_contrast"})  # its contrast is full already


@pytest.mark.parametrize(
    ("policy", "name"), [one for one in NAMES if _POLICIES[one[0]][one[1]].limit and one[1] != "solarize"]
)
def test_nothing_at_amount_zero(policy: str, name: str):
    """Each operation grows from no change; only solarize turns paper black at once, and is not for documents."""
    page = letter()

    changed = _POLICIES[policy][name].apply(page[None], 1e-6)

    assert torch.allclose(page, changed[0].clamp(0, 1), atol=5e-3)


@pytest.mark.parametrize("signed", [True, False])
def test_the_magnitude_is_the_amount(monkeypatch: pytest.MonkeyPatch, signed: bool):
    """Always the same share of an operation's most, in both directions where it has two."""
    seen: list[float] = []

    def noted(page: Tensor, amount: float) -> Tensor:
        seen.append(amount)
        return page

    monkeypatch.setitem(_POLICIES, "randaugment", {name: _Operation(noted, 40.0, signed=signed) for name in "abc"})
    for index in range(100):
        augment(letter(), AugmentConfig(policy="randaugment", operations=2, magnitude=15), random_for(0, 0, index))

    assert 200 == len(seen)
    assert ({20.0, -20.0} if signed else {20.0}) == set(seen)
    assert not signed or 60 < seen.count(20.0) < 140


@pytest.mark.parametrize(
    ("name", "amount", "pillow"),
    [
        pytest.param("brightness", 0.4, lambda image: ImageEnhance.Brightness(image).enhance(1.4), id="brighter"),
        pytest.param("brightness", -0.4, lambda image: ImageEnhance.Brightness(image).enhance(0.6), id="darker"),
        pytest.param("color", -0.5, lambda image: ImageEnhance.Color(image).enhance(0.5), id="paler"),
        pytest.param("solarize", 0.4, lambda image: ImageOps.solarize(image, int(255 * 0.6)), id="solarize"),
        pytest.param("posterize", 4.0, lambda image: ImageOps.posterize(image, 4), id="posterize"),
        pytest.param("auto_contrast", 0.0, ImageOps.autocontrast, id="auto-contrast"),
        pytest.param(
            "rotate",
            30.0,
            lambda image: image.rotate(30, Image.Resampling.BILINEAR, fillcolor="white"),
            id="counter-clockwise-as-pillow",
        ),
        pytest.param(
            "translate_x",
            0.25,
            lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, -16, 0, 1, 0), fillcolor="white"),
            id="to-the-right",
        ),
    ],
)
def test_operations_are_those_of_pillow(name: str, amount: float, pillow):
    """Same operations as the papers', which were made with Pillow."""
    page = as_tensor(as_pillow(letter()))

    ours = _POLICIES["randaugment"][name].apply(page[None], amount)[0].clamp(0, 1)

    theirs = as_tensor(pillow(as_pillow(page)))
    assert (ours - theirs).abs().mean() < 0.01


def ink(page: Tensor) -> float:
    """Share of the page that is clearly darker than its paper."""
    grey = page.mean(dim=0)
    return float((grey < grey.quantile(0.9) - 0.2).float().mean())


def test_the_document_policy_keeps_the_ink_on_the_page():
    """In a hundred draws of the document policy the amount of ink on the page stays about the same."""
    page = letter()

    kept = [ink(augment(page, AugmentConfig(), random_for(0, 0, index))) / ink(page) for index in range(100)]

    assert 0.6 < min(kept)
    assert max(kept) < 1.8


def test_documents_are_never_mirrored_or_inverted():
    """The block stays at the top left, dark on light: mirrored text and negatives are no documents."""
    page = letter()

    for index in range(100):
        changed = augment(page, AugmentConfig(), random_for(1, 0, index)).mean(dim=0)

        assert changed[4:18, 4:26].mean() < changed[4:18, 38:60].mean()
        assert changed.mean() > 0.5


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        pytest.param({"policy": "flip"}, ["policy='flip'"], id="unknown"),
        pytest.param({"operations": 0, "magnitude": 31}, ["operations=0", "magnitude=31"], id="all-at-once"),
        pytest.param({"mixup_alpha": -1.0, "mix_probability": 2.0}, ["mixup_alpha=-1", "mix_probability=2"], id="mix"),
        pytest.param({"cutmix_alpha": float("nan")}, ["cutmix_alpha=nan"], id="nan"),
    ],
)
def test_invalid_settings(settings: dict[str, object], faults: Sequence[str]):
    """All faults are reported at once."""
    with pytest.raises(BadSettings) as caught:
        AugmentConfig(**settings)

    assert len(faults) == len(caught.value.faults)
    assert all(fault.startswith(start) for fault, start in zip(caught.value.faults, faults, strict=True))


def mixes(config: AugmentConfig, count: int = 400) -> list[Mix | None]:
    return [draw_mix(config, random_for(0, 0, index), examples=50, height=30, width_px=20) for index in range(count)]


def test_mixup_draws_from_beta():
    """Shares of Beta(alpha, alpha): a mean of a half, its variance, partners from everywhere."""
    drawn = [mix for mix in mixes(AugmentConfig(mixup_alpha=0.4)) if mix is not None]

    shares = np.array([mix.share for mix in drawn])
    assert 400 == len(drawn)
    assert {None} == {mix.box for mix in drawn}
    assert abs(shares.mean() - 0.5) < 0.06
    assert abs(shares.var() - 1 / (4 * (2 * 0.4 + 1))) < 0.03
    assert len({mix.partner for mix in drawn}) > 45


def test_both_kinds_and_neither():
    """With both on each has half; the probability leaves the rest unmixed."""
    drawn = mixes(AugmentConfig(mixup_alpha=1.0, cutmix_alpha=1.0, mix_probability=0.5))

    kinds = [None if mix is None else mix.box is not None for mix in drawn]
    assert 160 < kinds.count(None) < 240
    assert 70 < kinds.count(True) < 130
    assert {None} == set(mixes(AugmentConfig(mixup_alpha=1.0, mix_probability=0.0)))


def test_the_share_of_cutmix_is_its_area():
    """A box that is cut off at the edge counts for what is left of it."""
    for mix in mixes(AugmentConfig(cutmix_alpha=1.0)):
        assert mix.box is not None
        top, left, bottom, right = mix.box
        assert 0 <= top <= bottom <= 30
        assert 0 <= left <= right <= 20
        assert (bottom - top) * (right - left) / 600 == mix.share


def test_blending_as_kornia_does():
    """Mixup and cutmix of a pair equal kornia's with the same share and box."""
    page, other = torch.rand(3, 12, 10), torch.rand(3, 12, 10)
    pair = torch.stack([page, other])
    mixup, cutmix = RandomMixUpV2(), RandomCutMixV2(use_correct_lambda=True)
    order = {"mixup_pairs": torch.tensor([1, 0]), "mixup_lambdas": torch.tensor([0.3, 0.3])}
    corners = torch.tensor([[[2.0, 4.0], [5.0, 4.0], [5.0, 8.0], [2.0, 8.0]]]).repeat(2, 1, 1)  # last px included
    boxes = {"mix_pairs": torch.tensor([[1, 0]]), "crop_src": corners[None]}

    assert torch.allclose(mixup.apply_transform(pair, order)[0], blend(page, other, Mix(1, 0.3)))
    assert torch.equal(cutmix.apply_transform(pair, boxes)[0], blend(page, other, Mix(1, 20 / 120, (4, 2, 9, 6))))


def test_blending_leaves_its_inputs_alone():
    """The inputs may be cached images."""
    page, other = torch.zeros(3, 4, 4), torch.ones(3, 4, 4)

    blend(page, other, Mix(0, 0.25, (0, 0, 2, 2)))

    assert (0.0, 1.0) == (float(page.sum()), float(other.mean()))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        pytest.param((0, 2), [0.75, 0.0, 0.25], id="two-classes"),
        pytest.param((1, 1), [0.0, 1.0, 0.0], id="of-the-same-class"),
    ],
)
def test_soft_targets(pair: tuple[int, int], expected: list[float]):
    """Each class by its share, all together 1."""
    assert expected == soft_target(*pair, 0.25, 3).tolist()
