"""Loads transformers image models with a new head: from a folder, from the hub, or small ones from scratch.

Pages are preprocessed as by ``ViTImageProcessor``, without its module: transformers' fast processors need
torchvision, and the configuration written here loads with either kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageClassification, ConvNextConfig, ResNetConfig, ViTConfig
from transformers.image_processing_base import ImageProcessingMixin

from backend.errors import BadSettings, ModelUnavailable
from backend.models.torch_models import LOAD_ERRORS

PROCESSOR_CONFIG = "preprocessor_config.json"
_SIDE_PX = 224  # default; ImageNet's
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# To train from scratch: the sizes of ResNet-18 (11 M), timm's ConvNeXt-Pico (9 M) and DeiT-Tiny (6 M parameters).
BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "resnet": lambda: ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    ),
    "convnext": lambda: ConvNextConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 6, 2]),
    "vit": lambda: ViTConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768),
}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Size and normalization of a page as model input."""

    height: int  # px
    width_px: int
    mean: tuple[float, ...] = _IMAGENET_MEAN  # of each channel, on values from 0 to 1
    std: tuple[float, ...] = _IMAGENET_STD
    resample: int = Image.Resampling.BILINEAR

    def normalize(self, pixels: Tensor) -> Tensor:
        """Shapes: (batch, 3, height, width_px) uint8 on any device -> same shape float32, memory format kept."""
        values = pixels.float() / 255
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            values[:, channel].sub_(mean).div_(std)  # Python numbers: copying small tensors would block the host
        return values

    def save(self, folder: Path) -> None:
        """Write preprocessor_config.json, for transformers' AutoImageProcessor and pipelines."""
        fields = {
            "image_processor_type": "ViTImageProcessor",
            "do_convert_rgb": True,
            "do_resize": True,
            "size": {"height": self.height, "width": self.width_px},
            "resample": int(self.resample),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }
        (folder / PROCESSOR_CONFIG).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class ImageBase:
    """The base of a model, read without its weights."""

    name: str
    source: str  # folder or hub id; "" for built-in models
    revision: str
    config: Any  # a transformers configuration, may be changed
    preprocessing: Preprocessing
    pretrained: bool  # whether there are weights


def read_base(base: str | Path, *, image_size: tuple[int, int] | None = None) -> ImageBase:
    """Read a base: "resnet", "convnext" or "vit" from scratch; a folder, with or without weights; or a hub id.

    Args:
        image_size: height and width in px; None takes the base's own, 224 x 224 where it does not say.

    Raises: ModelUnavailable, BadSettings for a model of other than three channels.
    """
    if str(base) in BUILT_IN:
        config = BUILT_IN[str(base)]()
        height, width_px = image_size or (_SIDE_PX, _SIDE_PX)
        return ImageBase(str(base), "", "", _sized(config, height, width_px), Preprocessing(height, width_px), False)
    source, _, revision = str(base).partition("@")
    folder = Path(source).expanduser()
    if not folder.is_dir() and source.startswith((".", "/", "~")):
        raise ModelUnavailable(f"model folder {source} does not exist; built in are {', '.join(BUILT_IN)}")
    path_or_id = str(folder) if folder.is_dir() else source
    try:
        config = AutoConfig.from_pretrained(path_or_id, revision=revision or None, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise ModelUnavailable(f"{base} has no configuration that transformers reads: {error}") from error
    channels = getattr(config, "num_channels", 3)
    if channels != 3:
        raise BadSettings([f"base={base}: takes {channels} channels; pages are given as 3 (RGB)"])
    pretrained = not folder.is_dir() or any(folder.glob("*.safetensors"))
    if not pretrained and any(folder.glob("*.bin")):
        raise ModelUnavailable(f"{base} has weights as pickles alone; only safetensors are loaded")
    preprocessing = _preprocessing(path_or_id, revision, config, image_size)
    if not pretrained:
        config = _sized(config, preprocessing.height, preprocessing.width_px)
    name = folder.resolve().name if folder.is_dir() else source
    return ImageBase(name, path_or_id, revision, config, preprocessing, pretrained)


def load_image_model(base: ImageBase, labels: Sequence[str], *, seed: int) -> Any:
    """A float32 model on the CPU with an output per label; new weights depend on ``seed`` only.

    Raises: ModelUnavailable, also where encoder weights are absent; BadSettings for an unsupported image size.
    """
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: index for index, label in enumerate(labels)}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = _pretrained(base, names) if base.pretrained else _fresh(base, names)
        except LOAD_ERRORS as error:
            raise ModelUnavailable(f"{base.name} cannot be loaded as an image classifier: {error}") from error
    _check_size(model, base)
    return model


def _fresh(base: ImageBase, names: Mapping[str, Any]) -> Any:
    for field, value in names.items():
        setattr(base.config, field, value)
    base.config.num_labels = len(names["id2label"])
    build: Any = AutoModelForImageClassification  # its constructors have no annotations
    return build.from_config(base.config, dtype=torch.float32, trust_remote_code=False)


def _pretrained(base: ImageBase, names: Mapping[str, Any]) -> Any:
    model, report = AutoModelForImageClassification.from_pretrained(
        base.source,
        revision=base.revision or None,
        num_labels=len(names["id2label"]),
        **names,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # a head for other labels
        output_loading_info=True,
    )
    encoder_prefix = f"{model.base_model_prefix}."
    absent_or_mismatched = [*report["missing_keys"], *(row[0] for row in report.get("mismatched_keys", ()))]
    absent = sorted(name for name in absent_or_mismatched if name.startswith(encoder_prefix) and "pooler" not in name)
    if absent:
        raise ValueError(f"it lacks the tensors {', '.join(absent[:5])}")
    return model


@torch.no_grad()
def _check_size(model: Any, base: ImageBase) -> None:
    size = base.preprocessing.height, base.preprocessing.width_px
    training = model.training
    try:
        model.eval()(pixel_values=torch.zeros(1, 3, *size))
    except (ValueError, RuntimeError) as error:
        raise BadSettings([f"image_size={size[0]}x{size[1]}: {base.name} cannot take it ({error})"]) from error
    model.train(training)


def _preprocessing(path_or_id: str, revision: str, config: Any, image_size: tuple[int, int] | None) -> Preprocessing:
    """As the base was trained, but without cropping: a centre crop would lose the letterhead."""
    try:
        processor_config, _ = ImageProcessingMixin.get_image_processor_dict(path_or_id, revision=revision or None)
    except LOAD_ERRORS:
        processor_config = {}  # the base has a model configuration only
    height, width_px = image_size or _size(processor_config, config)
    if not processor_config.get("do_normalize", True):
        return Preprocessing(
            height, width_px, (0.0,) * 3, (1.0,) * 3, processor_config.get("resample", Image.Resampling.BILINEAR)
        )
    return Preprocessing(
        height,
        width_px,
        tuple(processor_config.get("image_mean", _IMAGENET_MEAN)),
        tuple(processor_config.get("image_std", _IMAGENET_STD)),
        processor_config.get("resample", Image.Resampling.BILINEAR),
    )


def _size(processor_config: Mapping[str, Any], config: Any) -> tuple[int, int]:
    for size in (processor_config.get("crop_size"), processor_config.get("size"), getattr(config, "image_size", None)):
        if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
            return int(size["height"]), int(size["width"])
        side = size.get("shortest_edge") if isinstance(size, Mapping) else size
        if isinstance(side, int):
            return side, side
        if isinstance(side, Sequence) and len(side) == 2:
            return int(side[0]), int(side[1])
    return _SIDE_PX, _SIDE_PX


def _sized(config: Any, height: int, width_px: int) -> Any:
    """Set the image size in a configuration that has one."""
    if hasattr(config, "image_size"):
        config.image_size = height if height == width_px else (height, width_px)
    return config
