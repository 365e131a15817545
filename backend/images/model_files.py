"""Finds an image classifier's files, in a folder or on the hub, and reads what it is without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backend.errors import ModelUnavailable
from backend.files.records import Framing, Preprocessing
from backend.models.checkpoint_tensors import WEIGHTS
from backend.models.fingerprint import effective_config, fingerprint_of
from backend.models.model_files import locate, sha256_of

PROCESSOR_CONFIG = "preprocessor_config.json"
_NESTED_CONFIG = "processor_config.json"  # transformers 5: of all modalities, one field for each
_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_BILINEAR, _BICUBIC = 2, 3
_FILTERS = range(6)
_MAX_PX = 4096  # a side of a model's input; the largest published ones have 1024
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
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_PX:
        raise ValueError(f"a side of {value!r} px; 1 to {_MAX_PX} are served")
    return value


def _channels(value: Any) -> tuple[float, float, float]:
    red, green, blue = [value] * 3 if isinstance(value, int | float) else value
    return float(red), float(green), float(blue)


CONFIG = "config.json"
_SHARDS = "model.safetensors.index.json"
_ARCHITECTURE = "ForImageClassification"  # ends the names of transformers' classes
# Raise it when this code computes other numbers from the same files: cached classes are then computed again.
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ImageModelSpec:
    """One image classifier as served."""

    name: str  # in requests and answers
    source: str  # what IMAGE_MODEL said, without a revision
    revision: str  # commit of the hub, or the first 12 digits of the weights' SHA-256
    sha256: str  # of model.safetensors
    folder: Path
    architecture: str  # transformers' class
    family: str  # its model_type: "vit", "beit", "resnet", …
    labels: tuple[str, ...]  # in the order of its outputs
    multi_label: bool  # any number of labels may be right
    preprocessing: Preprocessing
    stored_dtype: str | None  # of the weights, as config.json has it
    config: Mapping[str, Any] = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Of all that decides its output but the arithmetic."""
        return fingerprint_of(
            {
                "image classifier": _VERSION,
                "weights": self.sha256,
                "config": effective_config(self.config),
                "preprocessing": asdict(self.preprocessing),
            }
        )


def resolve_image_model(source: str) -> ImageModelSpec:
    """Find an image classifier and read what it is. Hashes the weights: 0.2 s for 340 MB.

    Args:
        source: a folder, such as ``python -m backend.training document-images`` writes, or a hub id with an optional
            ``@revision``.

    Raises: ModelUnavailable when it is absent, incomplete or of another kind; HubUnreachable when it would have to be
        fetched and the network fails.
    """
    found = locate(source, ("*.json", WEIGHTS), instead="IMAGE_MODEL=none")
    return read_image_model(found.folder, name=found.name, source=found.source, revision=found.revision)


def read_image_model(folder: Path, *, name: str, source: str, revision: str = "") -> ImageModelSpec:
    """What the model in a folder is. Raises: ModelUnavailable."""
    config = _config(folder, name)
    architecture = _architecture(config, name)
    _check_weights(folder, name)
    if (channels := config.get("num_channels", 3)) != 3:
        raise ModelUnavailable(f"{name} takes {channels} channels; pages are given as 3 (RGB)")
    multi_label = config.get("problem_type") == "multi_label_classification"
    labels = _labels(config, name, at_least=1 if multi_label else 2)
    preprocessing = read_preprocessing(folder, name)
    digest = sha256_of(folder / WEIGHTS)
    return ImageModelSpec(
        name=name,
        source=source,
        revision=revision or digest[:12],
        sha256=digest,
        folder=folder,
        architecture=architecture,
        family=str(config.get("model_type", "")),
        labels=labels,
        multi_label=multi_label,
        preprocessing=preprocessing,
        stored_dtype=config.get("dtype") or config.get("torch_dtype"),
        config=config,
    )


def check_unchanged(spec: ImageModelSpec) -> None:
    """Refuse a model whose files were replaced since it was read: its classes are cached as those of the old files.

    Raises: ModelUnavailable, also when the files are gone.
    """
    now = read_image_model(spec.folder, name=spec.name, source=spec.source, revision=spec.revision)
    if now.fingerprint != spec.fingerprint:
        raise ModelUnavailable(
            f"the files of {spec.name} in {spec.folder} have changed since it was loaded; restart the service to use "
            "the new ones"
        )


def _config(folder: Path, name: str) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{name} has no {CONFIG} that can be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{name}: {CONFIG} holds no object")
    return config


def _architecture(config: Mapping[str, Any], name: str) -> str:
    known = [str(architecture) for architecture in config.get("architectures") or ()]
    fitting = [architecture for architecture in known if _ARCHITECTURE in architecture]
    if fitting:
        return fitting[0]
    if config.get("auto_map"):
        raise ModelUnavailable(f"{name} needs code of its own (auto_map); code that comes with a model is never run")
    raise ModelUnavailable(
        f"{name} is a {known[0] if known else 'model of no known architecture'}; IMAGE_MODEL serves image classifiers "
        f"of transformers (…{_ARCHITECTURE}), CLASSIFIER_MODEL those of texts"
    )


def _check_weights(folder: Path, name: str) -> None:
    if (folder / WEIGHTS).is_file():
        return
    if (folder / _SHARDS).is_file():
        raise ModelUnavailable(f"{name} has its weights in several files; save it as one {WEIGHTS} (max_shard_size)")
    if any(folder.glob("*.bin")):
        raise ModelUnavailable(f"{name} has its weights as pickles alone, which may run code; only {WEIGHTS} is loaded")
    raise ModelUnavailable(f"{name} has no {WEIGHTS}")


def _labels(config: Mapping[str, Any], name: str, *, at_least: int) -> tuple[str, ...]:
    """The labels by their index. Raises: ModelUnavailable where they are no list of different names."""
    if config.get("problem_type") == "regression":
        raise ModelUnavailable(f"{name} predicts numbers (problem_type regression), no classes")
    by_index = config.get("id2label")
    if not isinstance(by_index, Mapping):
        raise ModelUnavailable(f"{name}: {CONFIG} has no id2label, and so no names of classes")
    labels = tuple(str(by_index.get(str(index), "")) for index in range(len(by_index)))
    if not all(labels) or len(set(labels)) < len(labels):
        raise ModelUnavailable(f"{name}: id2label must name the outputs 0 to {len(labels) - 1}, each by another name")
    if len(labels) < at_least:
        raise ModelUnavailable(f"{name} has {len(labels)} label; at least {at_least} are needed to tell apart")
    return labels
