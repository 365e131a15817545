"""Reads how a model's pages are prepared from its ``preprocessor_config.json``, with transformers' own defaults.

An image processor of transformers is a class with a configuration. Those of the usual classifiers differ in defaults
and in how they resize; the few kinds here serve them without importing any of that into the processes that decode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.errors import ModelUnavailable
from backend.files.image_framing import Framing, Preprocessing

PROCESSOR_CONFIG = "preprocessor_config.json"
_NESTED_CONFIG = "processor_config.json"  # transformers 5: of all modalities, one field for each
_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_BILINEAR, _BICUBIC = 2, 3
_FILTERS = range(6)
_MOST_PX = 4096  # a side of a model's input; the largest published ones have 1024
_CONVNEXT_WARPS_FROM_PX = 384  # from this size on ConvNeXt's processor squeezes pages instead of cropping them
_CONVNEXT_CROP = 224 / 256

Size = int | tuple[int, int]  # of the shorter side, or height and width_px


@dataclass(frozen=True, slots=True)
class _Kind:
    """The defaults of an image processor of transformers."""

    size: Size = (224, 224)
    crop: tuple[int, int] = (224, 224)
    crops: bool = False
    resample: int = _BICUBIC
    mean: tuple[float, float, float] = _HALF
    std: tuple[float, float, float] = _HALF
    number_is_shorter_side: bool = False  # what a size that is one number means
    has_crop_ratio: bool = False  # ConvNeXt's: crops a part of a page that was resized to more


_CLIP = _Kind(size=224, crops=True, mean=_CLIP_MEAN, std=_CLIP_STD, number_is_shorter_side=True)
_KINDS: Mapping[str, _Kind] = {
    "ViT": _Kind(resample=_BILINEAR),
    "Beit": _Kind(),  # BEiT, DiT, data2vec
    "DeiT": _Kind(size=(256, 256), crops=True),
    "ConvNext": _Kind(size=384, mean=_HALF, std=_HALF, number_is_shorter_side=True, has_crop_ratio=True),  # ResNet too
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "Siglip": _Kind(),
}


def read_preprocessing(folder: Path, name: str) -> Preprocessing:
    """How pages are prepared for the model in ``folder``.

    Raises: ModelUnavailable where the folder does not say, or says what is not served.
    """
    fields = _fields(folder, name)
    kind_name = _kind_name(fields)
    kind = _KINDS.get(kind_name)
    if kind is None:
        raise ModelUnavailable(
            f"{name}: {PROCESSOR_CONFIG} names the image processor {kind_name or '(none)'}; served are those of "
            f"{', '.join(_KINDS)} (ViT, Swin, BEiT, DiT, DeiT, ConvNeXt, ResNet, CLIP and their kin)"
        )
    if fields.get("do_pad"):
        raise ModelUnavailable(f"{name}: {PROCESSOR_CONFIG} asks for padding (do_pad), which is not served")
    try:
        return Preprocessing(_framing(fields, kind), *_arithmetic(fields, kind))
    except (TypeError, ValueError, KeyError) as error:
        raise ModelUnavailable(f"{name}: {PROCESSOR_CONFIG} cannot be used: {error}") from error


def _fields(folder: Path, name: str) -> Mapping[str, Any]:
    for file, place in ((PROCESSOR_CONFIG, None), (_NESTED_CONFIG, "image_processor")):
        try:
            found = json.loads((folder / file).read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"{name}: {file} cannot be read: {error}") from error
        fields = found.get(place, {}) if place is not None and isinstance(found, dict) else found
        if isinstance(fields, dict) and fields:
            return fields
    raise ModelUnavailable(
        f"{name} has no {PROCESSOR_CONFIG}, which says how pages are resized and normalised; copy it from the model "
        "that it was made from"
    )


def _kind_name(fields: Mapping[str, Any]) -> str:
    """ViT, for one, of ViTImageProcessor, ViTImageProcessorFast and the ViTFeatureExtractor of old."""
    name = str(fields.get("image_processor_type") or fields.get("feature_extractor_type") or "")
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    return name


def _framing(fields: Mapping[str, Any], kind: _Kind) -> Framing:
    if not fields.get("do_resize", True):
        raise ValueError("do_resize is false: pages of any size would be computed as they are")
    size = _size(fields.get("size"), kind)
    resample = int(_given(fields, "resample", kind.resample))
    if resample not in _FILTERS:
        raise ValueError(f"resample is {resample}, and Pillow's filters are 0 to 5")
    crop = None
    if fields.get("do_center_crop", kind.crops):
        crop = _rectangle(_given(fields, "crop_size", {"height": kind.crop[0], "width": kind.crop[1]}))
    if kind.has_crop_ratio:
        return _convnext_framing(size, float(_given(fields, "crop_pct", _CONVNEXT_CROP)), resample)
    if isinstance(size, tuple):
        return Framing(resample, size, crop=crop)
    if crop is None:
        raise ValueError(f"size is {size} of the shorter side without a crop: pages of different shapes make no batch")
    return Framing(resample, None, shortest_px=size, crop=crop)


def _convnext_framing(size: Size, ratio: float, resample: int) -> Framing:
    """As ConvNextImageProcessor: small models see a crop of the page, those from 384 px on all of it, squeezed."""
    if isinstance(size, tuple):
        raise ValueError("size has height and width, and ConvNextImageProcessor knows shortest_edge alone")  # noqa: TRY004
    if size >= _CONVNEXT_WARPS_FROM_PX:
        return Framing(resample, (size, size))
    return Framing(resample, None, shortest_px=int(size / ratio), crop=(size, size))


def _arithmetic(
    fields: Mapping[str, Any], kind: _Kind
) -> tuple[float, tuple[float, float, float], tuple[float, float, float]]:
    scale = float(_given(fields, "rescale_factor", 1 / 255)) if fields.get("do_rescale", True) else 1.0
    if not fields.get("do_normalize", True):
        return scale, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    mean = _channels(_given(fields, "image_mean", kind.mean))
    std = _channels(_given(fields, "image_std", kind.std))
    if min(std) <= 0:
        raise ValueError(f"image_std is {std}; every value must be over 0")
    return scale, mean, std


def _given(fields: Mapping[str, Any], name: str, default: Any) -> Any:
    """A field, null counting as absent."""
    value = fields.get(name)
    return default if value is None else value


def _size(value: Any, kind: _Kind) -> Size:
    if value is None:
        return kind.size
    if isinstance(value, Mapping) and value.get("shortest_edge") is not None:
        if value.get("longest_edge") is not None:
            raise ValueError("size has a longest_edge: pages of different shapes make no batch")
        return _side(value["shortest_edge"])
    if kind.number_is_shorter_side and isinstance(value, int):
        return _side(value)
    return _rectangle(value)


def _rectangle(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping):
        return _side(value["height"]), _side(value["width"])
    if isinstance(value, Sequence):
        height, width_px = value
        return _side(height), _side(width_px)
    return _side(value), _side(value)


def _side(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PX:
        raise ValueError(f"a side of {value!r} px; 1 to {_MOST_PX} are served")
    return value


def _channels(value: Any) -> tuple[float, float, float]:
    red, green, blue = [value] * 3 if isinstance(value, int | float) else value
    return float(red), float(green), float(blue)
