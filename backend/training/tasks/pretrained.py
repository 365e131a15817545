"""Loads pretrained encoders for a task and checks that no tensor is missing, adds LoRA, and saves the result."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer
from backend.models.torch_models import load_pretrained
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
    prefix = f"{model.base_model_prefix}."
    wraps_encoder = any(name.startswith(prefix) for name, _ in model.named_parameters())  # else it is the encoder
    missing = [*report["missing_keys"], *(row[0] for row in report.get("mismatched_keys", ()))]
    absent = sorted(name for name in missing if (name.startswith(prefix) or not wraps_encoder) and "pooler" not in name)
    if absent:
        raise ModelUnavailable(f"{spec.folder} lacks the encoder's tensors {', '.join(absent[:5])}")


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
