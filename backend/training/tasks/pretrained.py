"""A pretrained encoder under a task's head: loaded with every tensor accounted for, adapted, and written out again."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from torch import nn

from backend.errors import ModelUnavailable
from backend.models.spec import ModelSpec
from backend.models.tokenizer import TextTokenizer
from backend.training.lora import add_lora, merged
from backend.training.records import TrainingConfig

# Of a tokenizer. Copied, not saved again: one that was used keeps padding and truncation switched on.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
)


def load_model(kind: Any, spec: ModelSpec, *, seed: int, **config: Any) -> Any:
    """A transformers model in float32 on the CPU; its new head is drawn from ``seed``, its encoder never.

    Args:
        kind: one of transformers' Auto classes.
        config: fields of the model's configuration to set, e.g. ``id2label``.

    Raises: ModelUnavailable when transformers cannot load it, or when tensors of the encoder are absent.
    """
    if spec.adapter is not None:
        raise ModelUnavailable(f"{spec.name} is an adapter: start from its base, or from a merged model")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, report = kind.from_pretrained(
                spec.folder,
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # a head for other labels; the encoder's are checked below
                output_loading_info=True,
                **config,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelUnavailable(f"transformers cannot load {spec.folder} for training: {error}") from error
    _check_encoder(model, report, spec)
    return model


def special_ids(tokenizer: TextTokenizer) -> tuple[list[int], list[int]]:
    """The ids that the model's template puts before and after a text."""
    pieces = tokenizer.pieces(["a"])[0]
    real = [place for place, piece in enumerate(pieces) if not piece.special]
    ids = [piece.id for piece in pieces]
    return ids[: real[0]], ids[real[-1] + 1 :]


def padding_id(spec: ModelSpec, model: Any) -> int:
    """What rows are filled with; RoBERTa's kind counts positions by it."""
    given = getattr(model.config, "pad_token_id", None)
    return given if isinstance(given, int) and 0 <= given < spec.shape.vocabulary_size else 0


def adapted(model: nn.Module, config: TrainingConfig, also: Sequence[str] = ()) -> nn.Module:
    """The model with LoRA where the settings ask for it (a new head is trained whole), else itself.

    The adapters are drawn from the seed, as the head is.

    Args:
        also: names of further modules that are trained whole.
    """
    if config.lora_rank is None:
        return model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        wrapped: nn.Module = add_lora(model, config.lora_rank, config.lora_alpha, config.lora_dropout, also=also)
    return wrapped


def plain_copy(model: nn.Module) -> Any:
    """A copy on the CPU with LoRA multiplied in: what it was before ``adapted``, with what it learnt since."""
    return merged(model).eval() if isinstance(model, PeftModel) else copy.deepcopy(model).cpu().eval()


def save_model(model: Any, spec: ModelSpec, output: Path) -> None:
    """Weights in safetensors, config.json, and the base's tokenizer as it was."""
    output.mkdir(parents=True, exist_ok=True)
    model.config.name_or_path = spec.name  # not the folder of this machine
    model.save_pretrained(output)
    copy_tokenizer(spec, output)


def copy_tokenizer(spec: ModelSpec, output: Path) -> None:
    """The base's tokenizer files, byte for byte."""
    for name in _TOKENIZER_FILES:
        if (spec.folder / name).is_file():
            shutil.copyfile(spec.folder / name, output / name)


def _check_encoder(model: Any, report: Mapping[str, Any], spec: ModelSpec) -> None:
    prefix = f"{model.base_model_prefix}."
    inside = any(name.startswith(prefix) for name, _ in model.named_parameters())  # else the model is the encoder
    strange = [*report["missing_keys"], *(row[0] for row in report.get("mismatched_keys", ()))]
    absent = sorted(name for name in strange if (name.startswith(prefix) or not inside) and "pooler" not in name)
    if absent:
        raise ModelUnavailable(f"{spec.folder} lacks the encoder's tensors {', '.join(absent[:5])}")


def divide_last_layer(model: Any, temperature: float) -> None:
    """Divide the logits for good: in every family the last linear layer beside the encoder makes them.

    Where none stands beside it (wrapped models keep everything inside) it is the last of all.
    """
    body = f"{model.base_model_prefix}."
    layers = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.Linear)]
    last = [one for name, one in layers if not name.startswith(body)] or [one for _, one in layers]
    with torch.no_grad():
        for weights in (last[-1].weight, last[-1].bias):
            if weights is not None:
                weights.div_(temperature)
