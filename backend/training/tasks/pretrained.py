"""Loads pretrained encoders and image models for a task, checks that no tensor is missing, adds LoRA, saves.

Image models get a new head: from a folder, from the hub, or small ones from scratch.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from PIL import Image
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForImageClassification, ConvNextConfig, ResNetConfig, ViTConfig
from transformers.image_processing_base import ImageProcessingMixin

from backend.errors import BadSettings, ModelUnavailable
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer
from backend.models.torch_models import LOAD_ERRORS, load_pretrained
from backend.training.lora import add_lora, merged
from backend.training.records import TrainingConfig

# Copied, not saved: a tokenizer that was used would be saved with padding and truncation switched on.
_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt", "sentencepiece.bpe.model",
)  # fmt: skip


def load_model(auto_class: Any, spec: ModelSpec, *, seed: int, **config: Any) -> Any:
    """Load a transformers model in float32 on the CPU; a new head is initialized from ``seed``, the encoder never.

    Args:
        auto_class: one of transformers' Auto classes.
        config: fields of the model's configuration to set, e.g. ``id2label``.

    Raises: ModelUnavailable when transformers cannot load it, or when tensors of the encoder are missing.
    """
    if spec.adapter is not None:
        raise ModelUnavailable(f"{spec.name} is an adapter: start from its base, or from a merged model")
    config["ignore_mismatched_sizes"] = True  # a head for other labels; the encoder's are checked below
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, report = load_pretrained(auto_class, spec.folder, torch.float32, " for training", **config)
    _check_encoder(model, report, spec)
    return model


def special_ids(tokenizer: TextTokenizer) -> tuple[list[int], list[int]]:
    """The special token ids that the tokenizer adds before and after a text."""
    pieces = tokenizer.pieces(["a"])[0]
    text_positions = [position for position, piece in enumerate(pieces) if not piece.special]
    ids = [piece.id for piece in pieces]
    return ids[: text_positions[0]], ids[text_positions[-1] + 1 :]


def padding_id(spec: ModelSpec, model: Any) -> int:
    """The id that pads rows; RoBERTa-like models compute positions from it."""
    pad_token_id = getattr(model.config, "pad_token_id", None)
    return pad_token_id if isinstance(pad_token_id, int) and 0 <= pad_token_id < spec.shape.vocabulary_size else 0


def adapted(model: nn.Module, config: TrainingConfig, also: Sequence[str] = ()) -> nn.Module:
    """Add LoRA where ``config.lora_rank`` is set (a new head is trained in full), else return the model.

    The adapters are initialized from the seed, like the head.

    Args:
        also: names of further modules that are trained in full.
    """
    if config.lora_rank is None:
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        with_lora: nn.Module = add_lora(model, config.lora_rank, config.lora_alpha, config.lora_dropout, also=also)
    return with_lora


def plain_copy(model: nn.Module) -> Any:
    """A copy on the CPU with LoRA merged: the architecture before ``adapted`` with the trained weights."""
    return merged(model).eval() if isinstance(model, PeftModel) else copy.deepcopy(model).cpu().eval()


def save_model(model: Any, spec: ModelSpec, output: Path) -> None:
    """Save weights as safetensors, config.json, and the base's unchanged tokenizer."""
    output.mkdir(parents=True, exist_ok=True)
    model.config.name_or_path = spec.name  # no path of this machine
    model.save_pretrained(output)
    copy_tokenizer(spec, output)


def copy_tokenizer(spec: ModelSpec, output: Path) -> None:
    """Copy the base's tokenizer files byte for byte."""
    for name in _TOKENIZER_FILES:
        if (spec.folder / name).is_file():
            shutil.copyfile(spec.folder / name, output / name)


def _check_encoder(model: Any, report: Mapping[str, Any], spec: ModelSpec) -> None:
    if absent := _absent(model, report):
        raise ModelUnavailable(f"{spec.folder} lacks the encoder's tensors {', '.join(absent[:5])}")


def _absent(model: Any, report: Mapping[str, Any]) -> list[str]:
    """Tensors of the encoder that its files lack, or have in another shape."""
    prefix = f"{model.base_model_prefix}."
    wraps_encoder = any(name.startswith(prefix) for name, _ in model.named_parameters())  # else it is the encoder
    missing = [*report["missing_keys"], *(row[0] for row in report.get("mismatched_keys", ()))]
    return sorted(name for name in missing if (name.startswith(prefix) or not wraps_encoder) and "pooler" not in name)


def divide_last_layer(model: Any, temperature: float) -> None:
    """Bake a temperature into the weights: divide the last linear layer outside of the encoder, which makes the logits.

    Where there is none outside (wrapped models keep everything inside) it is the last of all.
    """
    encoder_prefix = f"{model.base_model_prefix}."
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    outside = [module for name, module in layers if not name.startswith(encoder_prefix)]
    last = outside[-1] if outside else layers[-1][1]
    with torch.no_grad():
        for weights in (last.weight, last.bias):
            if weights is not None:
                weights.div_(temperature)


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
    if absent := _absent(model, report):
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
