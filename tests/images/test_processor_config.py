"""Pages are framed and normalised exactly as transformers' image processors do it, and what cannot be is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor

from backend.errors import ModelUnavailable
from backend.files.image_file import framed
from backend.files.limits import FileLimits
from backend.images.model_files import read_preprocessing

SIZES = ((210, 297), (64, 41), (33, 500), (1, 1), (32, 32), (20, 24))
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor"},
    "ours": {
        "image_processor_type": "ViTImageProcessor", "do_convert_rgb": True, "size": {"height": 48, "width": 32},
        "resample": 2, "rescale_factor": 1 / 255, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.2],
    },
    "dit": {"feature_extractor_type": "BeitFeatureExtractor", "size": 96, "do_center_crop": False, "resample": 2},
    "beit-crop": {"image_processor_type": "BeitImageProcessor", "size": {"height": 50, "width": 60},
                  "do_center_crop": True, "crop_size": {"height": 33, "width": 72}},
    "deit": {"image_processor_type": "DeiTImageProcessor"},
    "clip": {"image_processor_type": "CLIPImageProcessor"},
    "bit-odd": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 37}, "crop_size": 32},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 40, "width": 40}},
    "convnext-small": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224},
                       "crop_pct": 0.875, "resample": 3},
    "convnext-large": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}},
    "raw": {"image_processor_type": "ViTImageProcessor", "do_normalize": False, "do_rescale": False, "resample": 0},
}  # fmt: skip


def folder_of(root: Path, fields: dict[str, Any]) -> Path:
    (root / "preprocessor_config.json").write_text(json.dumps(fields), encoding="utf-8")
    return root


def picture(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """Noise over stripes, so that each pixel of a resized copy depends on the filter."""
    random = np.random.default_rng(sum(size))
    pixels = random.integers(0, 256, (size[1], size[0], 3), np.uint8)
    pixels[::3] = 255
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_equal_to_the_reference(tmp_path: Path, name: str) -> None:
    """The same numbers for pages of any shape: too small, too long, of the model's own size."""
    preprocessing = read_preprocessing(folder_of(tmp_path, CONFIGS[name]), name)
    reference = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")

    for size in SIZES:
        page = picture(size)
        pixels = framed(page, preprocessing.framing, FileLimits(), 1)
        expected = np.asarray(reference(page, return_tensors="np")["pixel_values"][0])
        ours = torch.from_numpy(np.array(pixels)).permute(2, 0, 1).float() * preprocessing.scale
        ours = (ours - torch.tensor(preprocessing.mean)[:, None, None]) / torch.tensor(preprocessing.std)[:, None, None]

        assert preprocessing.framing.size == pixels.shape[:2]
        np.testing.assert_allclose(ours.numpy(), expected, atol=2e-6, rtol=2e-6, err_msg=f"{name} {size}")


def test_gray_pages_are_resized_as_their_colour_copies(tmp_path: Path) -> None:
    """One channel is resized in place of three equal ones."""
    framing = read_preprocessing(folder_of(tmp_path, CONFIGS["ours"]), "ours").framing
    gray = picture((70, 50), "L")

    np.testing.assert_array_equal(
        framed(gray.convert("RGB"), framing, FileLimits(), 1), framed(gray, framing, FileLimits(), 1)
    )


def test_transformers_5_nests_it(tmp_path: Path) -> None:
    """processor_config.json has one field for each kind of input."""
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": CONFIGS["ours"]}), encoding="utf-8")

    assert (48, 32) == read_preprocessing(tmp_path, "ours").framing.size


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"image_processor_type": "PerceiverImageProcessor"}, "Perceiver; served are", id="kind"),
        pytest.param({"size": 32}, r"\(none\)", id="no-kind"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "do_resize": False}, "do_resize", id="no-resizing"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "do_pad": True}, "do_pad", id="padding"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "size": 100_000}, "1 to 4096", id="huge"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "size": {"width": 3}}, "height", id="half-a-size"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "resample": 9}, "0 to 5", id="filter"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "image_std": [1, 0, 1]}, "over 0", id="std"),
        pytest.param({"image_processor_type": "ViTImageProcessor", "image_mean": [1, 2]}, "cannot be used", id="mean"),
        pytest.param(
            {"image_processor_type": "CLIPImageProcessor", "do_center_crop": False}, "make no batch", id="no-crop"
        ),
    ],
)
def test_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    """Nothing is guessed: other numbers than the model was trained with are other classes."""
    with pytest.raises(ModelUnavailable, match=message):
        read_preprocessing(folder_of(tmp_path, fields), "owner/model")


def test_absent(tmp_path: Path) -> None:
    """The error says which file, and where to get it."""
    with pytest.raises(ModelUnavailable, match=r"no preprocessor_config.json.*copy it"):
        read_preprocessing(tmp_path, "owner/model")
