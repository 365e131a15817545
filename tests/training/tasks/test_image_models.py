"""Image models: loaded whole or not at all, a fresh head, pages prepared as transformers prepares them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ConvNextConfig,
    ResNetConfig,
    ViTConfig,
    ViTModel,
)

from backend.errors import BadSettings, ModelUnavailable
from backend.training.data.images import resize
from backend.training.tasks.pretrained import BUILT_IN, Preprocessing, divide_last_layer, load_image_model, read_base

LABELS = ("form", "invoice", "letter")
CONFIGS: dict[str, Callable[[], Any]] = {
    "resnet": lambda: ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
    "convnext": lambda: ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4),
    "vit": lambda: ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=32, patch_size=8
    ),
}


def folder(root: Path, kind: str, *, weights: bool = True, **fields: Any) -> Path:
    """A tiny model of two classes, as transformers saves it."""
    config = CONFIGS[kind]()
    for name, value in fields.items():
        setattr(config, name, value)
    place = root / kind
    if not weights:
        config.save_pretrained(place)
        return place
    torch.manual_seed(1)
    AutoModelForImageClassification.from_config(config).save_pretrained(place)
    return place


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_small_models_from_nothing(kind: str):
    """Built in for who has no hub: the labels in their configuration, at any size, drawn from the seed."""
    base = read_base(kind, image_size=(64, 32))

    model = load_image_model(base, LABELS, seed=3)

    assert dict(enumerate(LABELS)) == model.config.id2label
    assert (1, 3) == model(pixel_values=torch.zeros(1, 3, 64, 32)).logits.shape
    assert (False, "") == (base.pretrained, base.source)


@pytest.mark.parametrize("weights", [True, False])
def test_new_weights_come_from_the_seed_alone(tmp_path: Path, weights: bool):
    """The same seed gives the same head and the global generator does not move."""
    place = folder(tmp_path, "vit", weights=weights)
    before = torch.get_rng_state()

    one, same, other = (load_image_model(read_base(place), LABELS, seed=seed).state_dict() for seed in (5, 5, 6))

    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["classifier.weight"], other["classifier.weight"])


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_a_folder_keeps_its_body_and_gets_a_new_head(tmp_path: Path, kind: str):
    """Every tensor of the body is the base's; the head has the labels of the data."""
    place = folder(tmp_path, kind)
    base = read_base(place, image_size=(32, 32))

    model = load_image_model(base, LABELS, seed=0)

    saved, loaded = AutoModelForImageClassification.from_pretrained(place).state_dict(), model.state_dict()
    body = [name for name in saved if not name.startswith("classifier")]
    assert base.pretrained
    assert all(torch.equal(saved[name], loaded[name]) for name in body)
    assert (LABELS, 3) == (tuple(model.config.id2label.values()), model.config.num_labels)


def test_a_body_without_a_head(tmp_path: Path):
    """A backbone as published for features is a base like any other."""
    torch.manual_seed(0)
    body = ViTModel(CONFIGS["vit"](), add_pooling_layer=False)
    body.save_pretrained(tmp_path / "body")

    model = load_image_model(read_base(tmp_path / "body"), LABELS, seed=0)

    loaded = model.vit.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in body.state_dict().items())


def test_a_body_with_holes_is_refused(tmp_path: Path):
    """Weights that are absent would silently be random."""
    place = folder(tmp_path, "vit")
    weights = load_file(place / "model.safetensors")
    gone = next(name for name in weights if "layernorm_before" in name)
    weights.pop(gone)
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelUnavailable, match="lacks the tensors"):
        load_image_model(read_base(place), LABELS, seed=0)


def test_pickled_weights_are_refused(tmp_path: Path):
    """They are not loaded, and not replaced by random ones either."""
    place = folder(tmp_path, "vit", weights=False)
    (place / "pytorch_model.bin").write_bytes(b"pickle")

    with pytest.raises(ModelUnavailable, match="safetensors"):
        read_base(place)


@pytest.mark.parametrize("content", [None, "{}", "{", '{"model_type": "bert"}'])
def test_what_is_no_image_model(tmp_path: Path, content: str | None):
    """No configuration, a broken one or one of texts: named, with transformers' reason."""
    if content is not None:
        (tmp_path / "config.json").write_text(content)

    with pytest.raises(ModelUnavailable, match=str(tmp_path.name)):
        load_image_model(read_base(tmp_path), LABELS, seed=0)


def test_a_folder_that_is_not_there():
    """A path is not looked for on the hub."""
    with pytest.raises(ModelUnavailable, match=r"does not exist; built in are resnet"):
        read_base("./nowhere")


def test_grey_models_are_refused(tmp_path: Path):
    """Pages are given as RGB."""
    with pytest.raises(BadSettings, match="takes 1 channels"):
        read_base(folder(tmp_path, "resnet", weights=False, num_channels=1))


def test_a_size_the_weights_cannot_take(tmp_path: Path):
    """A pretrained ViT has positions for its own size; a convolutional model takes any."""
    with pytest.raises(BadSettings, match="image_size=64x64: vit cannot take it"):
        load_image_model(read_base(folder(tmp_path, "vit"), image_size=(64, 64)), LABELS, seed=0)

    assert load_image_model(read_base(folder(tmp_path, "resnet"), image_size=(64, 48)), LABELS, seed=0) is not None


@pytest.mark.parametrize(
    ("processor_config", "expected"),
    [
        pytest.param(None, (32, 32), id="the-configuration-s"),
        pytest.param({"size": {"height": 40, "width": 24}}, (40, 24), id="height-and-width"),
        pytest.param({"size": {"shortest_edge": 48}}, (48, 48), id="shortest-edge"),
        pytest.param({"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}, (56, 56), id="crop"),
        pytest.param({"size": 36}, (36, 36), id="a-number"),
    ],
)
def test_the_size_is_the_base_s(tmp_path: Path, processor_config: dict[str, Any] | None, expected: tuple[int, int]):
    """In any of the ways that processors have said it over the years."""
    place = folder(tmp_path, "vit", weights=False)
    if processor_config is not None:
        (place / "preprocessor_config.json").write_text(json.dumps(processor_config))

    preprocessing = read_base(place).preprocessing

    assert expected == (preprocessing.height, preprocessing.width_px)


@pytest.mark.parametrize(
    ("processor_config", "mean", "std", "resample"),
    [
        pytest.param({}, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 2, id="imagenet-s"),
        pytest.param(
            {"image_mean": [0.5] * 3, "image_std": [0.4] * 3, "resample": 3}, (0.5,) * 3, (0.4,) * 3, 3, id="its-own"
        ),
        pytest.param({"do_normalize": False, "image_mean": [0.5] * 3}, (0.0,) * 3, (1.0,) * 3, 2, id="none"),
    ],
)
def test_normalisation_is_the_base_s(
    tmp_path: Path, processor_config: dict[str, Any], mean: Any, std: Any, resample: int
):
    """The weights were trained with it."""
    place = folder(tmp_path, "vit")
    (place / "preprocessor_config.json").write_text(json.dumps(processor_config))

    preprocessing = read_base(place).preprocessing

    assert (mean, std, resample) == (preprocessing.mean, preprocessing.std, preprocessing.resample)


@pytest.mark.parametrize("resample", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC])
def test_pages_are_prepared_as_the_published_processor_does(tmp_path: Path, resample: int):
    """What a model sees in training is what transformers' processor gives it from the saved file."""
    page = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8))
    preprocessing = Preprocessing(48, 32, resample=resample)
    preprocessing.save(tmp_path)

    pixels = torch.from_numpy(resize(page, 48, 32, resample=resample).copy()).permute(2, 0, 1)[None]

    expected = AutoImageProcessor.from_pretrained(tmp_path)(page, return_tensors="pt")["pixel_values"]
    assert torch.allclose(preprocessing.normalize(pixels), expected, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_a_temperature_is_divided_into_the_last_layer(tmp_path: Path, kind: str):
    """The logits are divided by it, whatever the architecture."""
    model = load_image_model(read_base(folder(tmp_path, kind), image_size=(32, 32)), LABELS, seed=0).eval()
    pages = torch.randn(2, 3, 32, 32)
    before = model(pixel_values=pages).logits

    divide_last_layer(model, 2.5)

    assert torch.allclose(before / 2.5, model(pixel_values=pages).logits, atol=1e-6)
